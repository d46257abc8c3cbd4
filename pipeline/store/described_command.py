"""`rootrank tables`: what can be asked of ClickHouse, without asking it."""

from typing import Annotated, Any

import msgspec
import orjson
import typer

from pipeline.store.described import Described, described

EXIT_USAGE = 2


def tables(
    name: Annotated[str, typer.Argument(help="One of them, with its columns; none: list them.")] = "",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON, for programs and assistants.")] = False,
) -> None:
    """Say what the tables and their columns mean. Asks no ClickHouse.

    Examples: rootrank tables      rootrank tables incidents      rootrank tables --json
    """
    found = [view for view in described() if name in ("", view.name)]
    if not found:
        names = ", ".join(view.name for view in described())
        typer.echo(f"rootrank: there is no table {name!r}. There are: {names}", err=True)
        raise typer.Exit(EXIT_USAGE)
    if as_json:
        shape: list[Any] = msgspec.to_builtins(found)
        typer.echo(orjson.dumps(shape, option=orjson.OPT_INDENT_2).decode())
    elif name:
        typer.echo(view_text(found[0]))
    else:
        width = max(len(view.name) for view in found)
        typer.echo("\n".join(f"{view.name:<{width}}  {view.meaning}" for view in found))


def view_text(view: Described) -> str:
    """A view with its columns and questions."""
    names, types = max(len(c.name) for c in view.columns), min(max(len(c.type) for c in view.columns), 30)
    text = [view.meaning, ""]
    text += [f"{c.name:<{names}}  {c.type:<{types}}  {c.meaning}".rstrip() for c in view.columns]
    text += ["", view.example, *([f"as it stood then: {view.as_of}"] if view.as_of else [])]
    for question in view.questions:
        text += ["", f"{question.query}: {question.question}", f"    {question.example}"]
    return "\n".join(text)

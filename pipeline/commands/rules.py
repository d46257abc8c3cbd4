"""`rootrank rules`: the signals and cause rules, shown, tested and explained."""

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import orjson
import typer

from pipeline.core.causes import Rule, RuleSet
from pipeline.folder import FolderPlan, missing_in, plan
from pipeline.logfiles import UnreadableFileError, lines, open_log
from pipeline.manifest import ManifestError
from pipeline.near import near
from pipeline.objects import object_lines
from pipeline.report import look_of
from pipeline.report.words import listed, visible
from pipeline.rulebook import rules_text
from pipeline.rulebook.checks import Problem, lint, played_rules, played_signals
from pipeline.rulebook.explain import explain, shape
from pipeline.rulebook.unmatched import unmatched
from pipeline.rules import RuleFileError, load_rules
from schemas import signals
from schemas.lines import body_of
from schemas.matching import SITE_RULES, SignalFileError
from schemas.records import RawLine
from schemas.signal_files import Signal
from schemas.signals import SignalSet
from schemas.xid import meaning_of

PROBLEM, USAGE, UNREADABLE = 1, 2, 3

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Show, test and explain the signals (which line means what) and the cause rules.\n\n"
    "\b\nExamples:\n  rootrank rules list --event gpu.xid\n  rootrank rules show nvrm.xid\n"
    "  tail -1 kern.log | rootrank rules explain\n  rootrank rules unmatched ./logs",
)  # fmt: skip

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _site(
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules", envvar=SITE_RULES, file_okay=False,
            help="Folder of your own signals/*.toml and causes/*.toml; they come before those of the release, and "
            "one with the id of a shipped one replaces it. Other commands take it from the same variable.",
        ),
    ] = None,
) -> None:  # fmt: skip
    if rules is not None:
        os.environ[SITE_RULES] = str(rules)


@app.command("list")
def list_(
    *,
    event: Annotated[str, typer.Option(help="Only signals of this event, or of events that begin so.")] = "",
    role: Annotated[str, typer.Option(help="Only signals of this role.")] = "",
    as_json: AsJson = False,
) -> None:
    """List all signals and cause rules.

    \b
    Examples:
      rootrank rules list
      rootrank rules list --event nccl. --role symptom
    """  # noqa: D301 - \b keeps the lines of an example apart
    known, rules = _loaded()
    chosen = [s for s in known.signals if s.event.startswith(event) and role in ("", s.role)]
    causes = [] if event or role else rules.rules
    if as_json:
        _json({"signals": [_shape(signal) for signal in chosen], "causes": [_shape(rule) for rule in causes]})
        return
    sys.stdout.write(rules_text.listing(chosen, causes, known, look_of(sys.stdout).width))


@app.command("show")
def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="A signal, an event, a cause rule, or xid:N.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one signal or cause rule in full, with its examples and references.

    \b
    Examples:
      rootrank rules show nvrm.xid
      rootrank rules show gpu_fell_off_bus
      rootrank rules show xid:79
    """  # noqa: D301 - \b keeps the lines of an example apart
    known, rules = _loaded()
    if id_.lower().startswith("xid:"):
        _show_xid(id_[4:], as_json=as_json)
        return
    found: list[Signal | Rule] = [s for s in known.signals if id_ in (s.id, s.event)]
    found += [rule for rule in rules.rules if id_ in (rule.id, rule.class_)]
    if not found:
        names = {name for signal in known.signals for name in (signal.id, signal.event)}
        names |= {name for rule in rules.rules for name in (rule.id, rule.class_)}
        _unknown(f"no signal, event or rule {id_}", near(id_, names))
    if as_json:
        _json([_shape(one) for one in found])
        return
    sys.stdout.write("\n".join(rules_text.in_full(one, known) for one in found))


def _show_xid(number: str, *, as_json: bool) -> None:
    meaning = meaning_of(int(number)) if number.isascii() and number.isdecimal() and len(number) < 9 else None
    if meaning is None:
        typer.echo(f"rootrank: no meaning is known of Xid {visible(number)}; drivers go on adding numbers", err=True)
        raise typer.Exit(USAGE)
    if as_json:
        _json({"xid": int(number), **msgspec.to_builtins(meaning)})
    else:
        sys.stdout.write(rules_text.xid(int(number), meaning))


@app.command("test")
def run_tests(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Signals, events, files, rules.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Play the examples of signals and the stories of cause rules. Exit code 1: some fail.

    \b
    Examples:
      rootrank rules test
      rootrank rules --rules ./mine test
    """  # noqa: D301 - \b keeps the lines of an example apart
    known, rules = _loaded()
    wanted = set(ids or ())
    signal_ids = {s.id for s in known.signals} | {s.event for s in known.signals} | set(known.files)
    names = signal_ids | {rule.id for rule in rules.rules}
    unknown = sorted(wanted - names)
    if unknown:
        close = dict.fromkeys(name for id_ in unknown for name in near(id_, names))
        _unknown(f"no signal, event, file or rule {', '.join(unknown)}", list(close))
    problems = list(played_signals(known, wanted)) if not wanted or wanted & signal_ids else []
    problems += played_rules(rules, wanted)
    _report(problems, f"{len(known.signals)} signals and {len(rules.rules)} rules", as_json=as_json)


@app.command("lint")
def lint_(*, as_json: AsJson = False) -> None:
    """Say what loads and still should be better: missing versions, events that no signal gives. Exit code 1: some.

    Example: rootrank rules --rules ./mine lint
    """
    known, rules = _loaded()
    _report(list(lint(known, rules)), "all files", as_json=as_json)


@app.command("explain")
def explain_(
    line: Annotated[str | None, typer.Argument(help="The line; without it lines are read from standard input.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Say which signal reads a line, what it captures, and why the near ones do not fit.

    Exit code 1: some line is read by no signal.

    \b
    Examples:
      rootrank rules explain 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'
      tail -3 kern.log | rootrank rules explain --json
    """  # noqa: D301 - \b keeps the lines of an example apart
    known, _ = _loaded()
    texts = (line,) if line is not None else _standard_input()
    unread = False
    for text in texts:
        said = explain(text, known)
        unread = unread or said.match is None
        if as_json:
            _json(shape(said))
        else:
            sys.stdout.write(rules_text.explained(said))
    raise typer.Exit(PROBLEM if unread else 0)


@app.command("unmatched")
def unmatched_(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders of logs.", readable=False)],
    *,
    limit: Annotated[int, typer.Option(help="Shapes to print of each kind.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List what no signal reads: near misses (a hint, no pattern) and lines that look like errors, by shape.

    Example: rootrank rules unmatched ./logs
    """
    known, _ = _loaded()
    missing = missing_in(paths)
    if missing is not None:
        typer.echo(f"rootrank: {visible(missing)}", err=True)
        raise typer.Exit(UNREADABLE)
    try:
        folder = plan(paths)
    except ManifestError as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None
    broken = [gap.reason for gap in folder.unreadable]
    found = unmatched(_lines_of(folder, broken), known)
    if as_json:
        _json(msgspec.to_builtins(found))
    else:
        sys.stdout.write(rules_text.unmatched_text(found, limit))
    for reason in broken:
        typer.echo(f"rootrank: cannot read {visible(reason)}", err=True)
    raise typer.Exit(UNREADABLE if broken else 0)


def _lines_of(folder: FolderPlan, broken: list[str]) -> Iterator[RawLine]:
    """Every line of a planned folder, worth reading or not."""
    for source in (source for node in folder.nodes for source in node.sources):
        line = partial(RawLine, source=source.name, generation="0")
        if source.objects:
            for number, (line_no, offset, text) in enumerate(object_lines(source.path), 1):
                yield line(seq=number, offset=offset, line_no=line_no, body=text)
            continue
        try:
            with open_log(source.path) as stream:
                for number, (offset, data, _) in enumerate(lines(stream), 1):
                    yield line(seq=number, offset=offset, line_no=number, body=body_of(data)[0])
        except UnreadableFileError as error:
            broken.append(str(error))


def _standard_input() -> Iterator[str]:
    if sys.stdin.isatty():
        typer.echo("rootrank: give a line as an argument, or lines on standard input", err=True)
        raise typer.Exit(USAGE)
    yield from (body_of(data)[0] for _, data, _ in lines(sys.stdin.buffer))


def _unknown(text: str, close: list[str]) -> NoReturn:
    hint = f"did you mean {listed(close)}? " if close else ""
    typer.echo(f"rootrank: {visible(text)}; {hint}`rootrank rules list` has all", err=True)
    raise typer.Exit(USAGE)


def _loaded() -> tuple[SignalSet, RuleSet]:
    try:
        return signals.load(), load_rules()
    except (SignalFileError, RuleFileError) as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None


def _report(problems: list[Problem], what: str, *, as_json: bool) -> None:
    if as_json:
        _json([msgspec.to_builtins(problem) for problem in problems])
    else:
        for p in problems:
            place = ": ".join(part for part in (p.file, p.id, p.field) if part)
            sys.stdout.write(f"{visible(f'{place}: {p.text}')}\n")
        sys.stdout.write(f"{len(problems)} problems\n" if problems else f"no problem in {what}\n")
    raise typer.Exit(PROBLEM if problems else 0)


def _shape(one: Signal | Rule) -> Any:
    return msgspec.to_builtins(one)


def _json(shape: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(shape, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()

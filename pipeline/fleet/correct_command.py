"""`rootrank correct`."""

import getpass
import shlex
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

import typer
from msgspec import Struct

from pipeline.fleet import asked
from pipeline.report.words import visible
from pipeline.store.clickhouse import Store
from pipeline.store.commands import EXIT_USAGE, PasswordFile, Url, errors_as_exits, exit_with
from pipeline.store.queries import STORED_RUNS
from pipeline.store.settings import DEFAULT_URL, settings_from_url
from pipeline.store.sqlfiles import statement
from pipeline.store.tables import Table
from schemas.vocabulary import CLASSES

INCIDENT_CORRECTIONS: Final = Table(
    name="incident_corrections_rows",
    columns=(
        "run", "run_id", "cluster", "incident_id", "corrected_at", "class", "unit_kind", "unit", "node", "is_failure",
        "why", "corrected_by",
    ),
)  # fmt: skip
MOST_CHARACTERS: Final = 2_000


class Correction(Struct, frozen=True, kw_only=True):
    """What a person says of an incident. Empty: as it was."""

    class_: str = ""
    unit_kind: Literal["", "gpu", "node"] = ""
    unit: str = ""
    node: str = ""
    is_failure: bool = True
    why: str
    by: str


def correct(
    incident: Annotated[str, typer.Argument(help="The incident's id.")],
    *,
    why: Annotated[str, typer.Option(help="Why, for those who read the restated figures.")],
    class_: Annotated[str, typer.Option("--class", help="What it was, as hardware/nvlink_fault.")] = "",
    unit: Annotated[str, typer.Option(help="What was to blame: a GPU's UUID or serial, or a machine id or node.")] = "",
    unit_kind: Annotated[str, typer.Option(help="gpu or node; default: gpu where --unit begins with GPU-.")] = "",
    node: Annotated[str, typer.Option(help="The node that a GPU sits in.")] = "",
    not_a_failure: Annotated[bool, typer.Option("--not-a-failure", help="Do not count it at all.")] = False,
    by: Annotated[str, typer.Option(help="Who says so; default: you.")] = "",
    cluster: Annotated[str, typer.Option(help="Where several clusters have an incident of this id.")] = "",
    run: Annotated[str, typer.Option(help=f"{', '.join(STORED_RUNS[:-1])} or {STORED_RUNS[-1]}.")] = "live",
    run_id: Annotated[str, typer.Option("--run-id", help="Where several replays have an incident of this id.")] = "",
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
) -> None:
    """Say what an incident was, where the engine is wrong. The incident stays as it is; rates follow the correction.

    Days that are built count it when they are built again: the command to do so is printed. The latest correction of an
    incident stands; each says all of it (class, unit, whether it counts).

    \b
    Examples:
      rootrank correct 3f9a61c20b7d4e55 --class network/ib_link_flap --why "cable 12 was loose"
      rootrank correct 3f9a61c20b7d4e55 --unit GPU-8a1b… --node n17 --why "vendor found the other GPU broken"
      rootrank correct 3f9a61c20b7d4e55 --not-a-failure --why "planned test of the alarm"
    """  # noqa: D301 - \b keeps the lines of an example apart
    asked.run(run)
    kind = _kind(unit, unit_kind)
    if class_ and class_ not in CLASSES:
        exit_with(_no_class(class_), EXIT_USAGE)
    if not (class_ or unit or not_a_failure):
        exit_with("nothing to correct: give --class, --unit or --not-a-failure", EXIT_USAGE)
    if not why.strip() or len(why) > MOST_CHARACTERS:
        exit_with(f"--why must say why, in at most {MOST_CHARACTERS:,} characters", EXIT_USAGE)
    said = Correction(
        class_=class_, unit_kind=kind, unit=unit, node=node or (unit if kind == "node" else ""),
        is_failure=not not_a_failure, why=why, by=by or _user(),
    )  # fmt: skip
    with errors_as_exits():
        store = Store(settings_from_url(clickhouse_url, password_file=password_file))
        place = _find(store, incident, run, run_id, cluster)
        store.insert(INCIDENT_CORRECTIONS, [_row(place, incident, said, time.time_ns() // 1_000_000)])
    day = place[3]
    of = f"--cluster {shlex.quote(place[2])}" + ("" if run == "live" else f" --run {run}")
    typer.echo(visible(f"corrected {incident}; rates follow after `rootrank rollup --day {day} --why correction {of}`"))


def _no_class(said: str) -> str:
    """That it is none, and the one that was probably meant, else those of its domain, else the domains."""
    by_name = {name.partition("/")[2]: name for name in sorted(CLASSES)}
    if near := get_close_matches(said.rpartition("/")[2], by_name, n=1):
        return f"--class {said} is no class; is it {by_name[near[0]]}?"
    domain = said.partition("/")[0]
    if of_domain := sorted(name for name in CLASSES if name.startswith(f"{domain}/")):
        return f"--class {said} is no class. Of {domain} there are {', '.join(of_domain)}"
    domains = sorted({name.partition("/")[0] for name in CLASSES})
    return f"--class {said} is no class: write it as network/ib_link_flap. Domains are {', '.join(domains)}"


def _kind(unit: str, kind: str) -> Literal["", "gpu", "node"]:
    if not unit:
        return ""
    told = kind or ("gpu" if unit.startswith("GPU-") else "node")
    if told not in ("gpu", "node"):
        exit_with(f"--unit-kind {told}: it is gpu or node", EXIT_USAGE)
    return "gpu" if told == "gpu" else "node"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _find(store: Store, incident: str, run: str, run_id: str, cluster: str) -> tuple[Any, ...]:
    where = {"incident": incident, "run": run, "cluster": cluster}
    rows = [row for row in store.rows(statement("incident_to_correct", "fleet"), where) if run_id in ("", row[1])]
    if not rows:
        listed = f"`rootrank query incidents --param run={run}` lists them"
        exit_with(f"there is no incident {incident} in run {run} (--run); {listed}", EXIT_USAGE)
    if len({row[2] for row in rows}) > 1:
        exit_with(f"several clusters have it: give --cluster ({', '.join(row[2] for row in rows)})", EXIT_USAGE)
    if run != "live" and len({row[1] for row in rows}) > 1:
        exit_with(f"several {run}s have it: give --run-id ({', '.join(row[1] for row in rows)})", EXIT_USAGE)
    return tuple(rows[-1])


def _row(place: Sequence[Any], incident: str, said: Correction, at_ms: int) -> tuple[Any, ...]:
    run, run_id, cluster, _ = place
    return (
        run, run_id, cluster, incident, at_ms, said.class_, said.unit_kind, said.unit, said.node, said.is_failure,
        said.why, said.by,
    )  # fmt: skip

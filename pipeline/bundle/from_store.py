"""What belongs to an incident that the store holds."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import orjson

from pipeline.bundle.contents import Contents, Line, captures_in, distinct, line_of
from pipeline.bundle.from_folder import NoSuchIncidentError
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import statement
from schemas.records import ChainStep, Incident

_LINES: Final = 50_000
_CAPTURE_LINES: Final = 100_000
_CAPTURED: Final = timedelta(hours=2)  # a capture may come long after the fault, or before what it led to


def contents_of_store(store: Store, incident_id: str, run: str, around: int, minutes: float) -> Contents:
    """Raises NoSuchIncidentError, StoreError."""
    rows = _rows(store, "incident", {"incident": incident_id, "run": run})
    if not rows:
        asked = f"{incident_id} of run {run}" if run else incident_id
        raise NoSuchIncidentError(f"the store has no incident {asked}; `rootrank query incidents` lists them")
    incident = msgspec.json.decode(rows[0]["incident"], type=Incident)
    where = {"run": incident.run, "run_id": incident.run_id, "cluster": incident.cluster}
    lines = [line for step in incident.chain for line in _at(store, step, where, around)]
    remarks, captured = [], dict[str, str]()
    begin, end = (
        _moment(incident.started_at or incident.detected_at),
        _moment(incident.ended_at or incident.detected_at),
    )
    if incident.run != "live" or begin is None or end is None:
        remarks.append("lines were read with no time of their own (a replay): only those around evidence are here")
    else:
        nodes = sorted({each.node for each in incident.culprits if each.node})
        apart = timedelta(minutes=minutes)
        span = {**where, "nodes": nodes, "since": _text(begin - apart), "until": _text(end + apart), "limit": _LINES}
        between = _rows(store, "lines_between", span)
        lines.extend(map(line_of, between))
        if len(between) == _LINES:
            remarks.append(f"the nodes wrote more than {_LINES} lines in that time; the rest is not here: --minutes")
        span |= {"since": _text(begin - _CAPTURED), "until": _text(end + _CAPTURED), "limit": _CAPTURE_LINES}
        captured = captures_in(row["body"] for row in _rows(store, "captures", span))
    return Contents(
        incident=incident, lines=distinct(lines), captures=captured, remarks=remarks,
        origin=f"ClickHouse, run {incident.run}, cluster {incident.cluster}",
    )  # fmt: skip


def _at(store: Store, step: ChainStep, where: dict[str, Any], around: int) -> Iterator[Line]:
    evidence = step.evidence
    place = evidence.line_no or evidence.offset
    if place is None:
        return
    asked = {**where, "source": evidence.source, "line_no": evidence.line_no or 0, "place": place, "lines": around}
    yield from map(line_of, _rows(store, "lines_at", asked))


def _rows(store: Store, name: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    answer = orjson.loads(store.text(statement(name, "bundle"), parameters, "JSONCompact"))
    columns = [column["name"] for column in answer["meta"]]
    return [dict(zip(columns, row, strict=True)) for row in answer["data"]]


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")

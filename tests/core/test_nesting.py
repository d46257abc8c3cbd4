"""Whatever wraps a line, in whatever order: the record comes out to the letter, with who wrote it and when."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.parse import parse_line
from schemas import signals

FIELDS = ("node", "pod", "process", "pid", "rank", "local_rank", "task", "cuda_dev", "pg_rank")
# Records are told apart from prefixes only where they do not look like one.
STANDING = ("", "2026-08-10T15:36:05Z ", "[rank3]: ")


def _is_record(line: str) -> bool:
    if line != line.strip() or "\n" in line or "#0" in line:
        return False
    return all(parse_line(before + line).body == line for before in STANDING)


RECORDS = sorted({e.line for s in signals.load().signals for e in s.matches if _is_record(e.line)})


class Wrapper(NamedTuple):
    """Puts something around a text, and what that says. `outside`: stands only outside what names a process."""

    wrap: Callable[[str], str]
    says: dict[str, Any]
    stamp: tuple[int, bool] | None = None
    outside: bool = False


def _before(prefix: str, stamp: tuple[int, bool] | None = None, *, outside: bool = False, **says: object) -> Wrapper:
    return Wrapper(lambda text: prefix + text, says, stamp, outside)


def _object(stamp: tuple[int, bool] | None = None, **record: Any) -> Callable[[dict[str, Any]], Wrapper]:
    """A JSON object with the text under the key that holds TEXT."""

    def wrapper(says: dict[str, Any]) -> Wrapper:
        def wrap(text: str) -> str:
            return json.dumps({key: text + "\n" if value == "TEXT" else value for key, value in record.items()})

        return Wrapper(wrap, says, stamp)

    return wrapper


NOON = 1_786_363_200_000_000_000  # 2026-08-10 12:00:00 UTC


@st.composite
def wrappers(draw: st.DrawFn) -> Wrapper:
    number, second = draw(st.integers(0, 9_999)), draw(st.integers(0, 59))
    host = draw(st.sampled_from(["gpu01", "g002", "node-a", "dgx-a100-07.hpc.example", "10.9.0.5"]))
    name = draw(st.sampled_from(["gpu01", "node-a", "dgx-a100-07"]))
    zoned = (NOON + second * 10**9, True)
    local = (NOON + second * 10**9, False)
    iso, plain = f"2026-08-10T12:00:{second:02}", f"2026-08-10 12:00:{second:02}"
    wrapper: Wrapper = draw(
        st.sampled_from(
            [
                _before(f"[default{number % 64}]:", local_rank=number % 64),
                _before(f"[trainer {number}]:", rank=number),
                _before(f"[rank{number}]: ", rank=number),
                _before(f"[rank{number}]:", rank=number),
                _before(f"[rank: {number}] ", rank=number),
                _before(f"{number:>6}: ", outside=True, task=number),
                _before(f"P1 {number}: ", outside=True, task=number),
                _before(f"[1,{number}]<stderr>:", rank=number),
                _before(f"[prterun-{name}-77@1,{number}]<stdout>: ", rank=number),
                _before(f"[x@1,{number}][{name}:{number + 10}]<stderr>: ", rank=number, node=name, pid=number + 10),
                _before(f"Mon Aug 10 12:00:{second:02} 2026[1,{number}]<stderr>:", local, rank=number),
                _before(f"Mon Aug 10 12:00:{second:02} 2026<stdout>:", local),
                _before(f"{host}: ", outside=True, node=host),
                _before(f"(Actor pid={number + 1}, ip=10.0.0.7) ", pid=number + 1, process="Actor", node="10.0.0.7"),
                _before(f"[pod/train-{number}/main] ", pod=f"train-{number}"),
                _before(f"{iso}.123456789Z ", (zoned[0] + 123_456_789, True)),
                _before(f"{iso}.5+00:00 stderr F ", (zoned[0] + 500_000_000, True)),
                _before(f"[{plain},250] [INFO] ", (local[0] + 250_000_000, False)),
                _before(f"[task {iso}.006+00:00] [train] ", (zoned[0] + 6_000_000, True)),
                _before(f"{iso}.123456+00:00 {name} python[{number + 1}]: ", (zoned[0] + 123_456_000, True),
                        node=name, process="python", pid=number + 1),
                _before("[stderr] "),
                _before("stdout: "),
                _before("##[error]"),
                _before("WARNING:acme.train:"),
                _before("\x1b[1;31m"),
                Wrapper(lambda text: f"{number}%|###   | {number}/99\r{text}", {}),
                _object((zoned[0] + 123_000_000, True), log="TEXT", stream="stderr", time=f"{iso}.123Z")({}),
                _object(None, MESSAGE="TEXT", _HOSTNAME=name, SYSLOG_IDENTIFIER="python", _PID=str(number + 1))(
                    {"node": name, "process": "python", "pid": number + 1}
                ),
                _object(zoned, event="TEXT", level="error", timestamp=f"{iso}Z", rank=number)({"rank": number}),
                _object((local[0] + 7_000_000, False), message="TEXT", levelname="ERROR", asctime=f"{plain},007")({}),
                _object(None, log="TEXT", kubernetes={"pod_name": f"t-{number}", "host": name})(
                    {"node": name, "pod": f"t-{number}"}
                ),
                _object(None, line="TEXT", labels={"pod": f"t-{number}"})({"pod": f"t-{number}"}),
                Wrapper(lambda text: f'time="{iso}Z" level=error msg={json.dumps(text)}', {}, zoned),
            ]
        )
    )  # fmt: skip
    return wrapper


def _outside_first(chosen: list[Wrapper]) -> list[Wrapper]:
    """What machines put in front of lines stands outside what names a process."""
    named = {"rank", "local_rank", "pid", "process"}
    first = next((n for n, wrapper in enumerate(chosen) if named & wrapper.says.keys()), len(chosen))
    late = [wrapper for wrapper in chosen[first:] if wrapper.outside]
    return chosen[:first] + late + [wrapper for wrapper in chosen[first:] if not wrapper.outside]


@settings(max_examples=600, deadline=None)
@given(st.lists(wrappers(), max_size=5), st.sampled_from(RECORDS), st.booleans())
def test_any_wrappers_in_any_order_come_off(chosen: list[Wrapper], record: str, nccl: bool) -> None:
    chosen = _outside_first(chosen)
    wanted: dict[str, Any] = dict.fromkeys(FIELDS)
    stamps: list[tuple[int, bool]] = []
    for wrapper in chosen:
        wanted |= wrapper.says
        stamps += [wrapper.stamp] if wrapper.stamp else []
    text = record
    if nccl:
        text = f"gpu77:4711:4890 [5] NCCL INFO {record}"
        wanted |= {"node": "gpu77", "pid": 4711, "cuda_dev": 5}
    for wrapper in reversed(chosen):
        text = wrapper.wrap(text)
    parsed = parse_line(text)
    assert parsed.body == record
    assert {name: getattr(parsed, name) for name in FIELDS} == wanted
    # Of nested stamps the one that says most counts, and the inner one where they are equal.
    best = max(enumerate(stamps), key=lambda pair: (pair[1][1], pair[0]), default=(0, None))[1]
    assert (None if parsed.stamp is None else (parsed.stamp.ns, parsed.stamp.has_zone)) == best

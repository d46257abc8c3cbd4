"""Lines that were split come together, lines that were torn come apart, and records of several lines find theirs."""

import json
import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.align import REST_NS, NodeFold
from pipeline.core.blocks import MAX_BLOCKS, Block, Blocks
from pipeline.core.parse import parse_line
from pipeline.core.partials import DOCKER_BYTES, HEAD_CHARACTERS, MAX_OPEN, TAIL_CHARACTERS, Partial, Partials
from pipeline.core.pieces import is_whole, pieces
from schemas import signals
from schemas.documents import FOLLOW_BYTES
from schemas.records import ClockReading, Event, EventBatch, Progress, RawBatch, RawLine, SourceProgress
from tests.lines.reading import events_of

SIGNALS = signals.load()
STAMP = "2026-08-10T15:36:05.{:09}Z"
ERROR = "ValueError: shard 7 is not sorted"


def _line(number: int, body: str = "") -> RawLine:
    return RawLine(seq=number, source="s", generation="0", offset=number, line_no=number, body=body)


def _joined(bodies: list[str]) -> list[tuple[str, int | None]]:
    """The bodies that may be read, each with the number of the line that it stands for."""
    partials = Partials({})
    taken = [partials.take(_line(number, body)) for number, body in enumerate(bodies, 1)]
    return [(whole.line.body, whole.line.line_no) for whole in [*taken, *partials.flush()] if whole is not None]


def _cri(flag: str, text: str, stream: str = "stderr") -> str:
    return f"{STAMP.format(1)} {stream} {flag} {text}"


# --- split lines ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_cri_line_are_one_line() -> None:
    bodies = [_cri("P", "one "), _cri("P", "two "), _cri("F", "three"), _cri("F", "four")]
    assert _joined(bodies) == [(_cri("F", "one two three"), 1), (_cri("F", "four"), 4)]


def test_parts_of_two_streams_do_not_mix() -> None:
    bodies = [_cri("P", "a1 "), _cri("P", "b1 ", "stdout"), _cri("F", "a2"), _cri("F", "x"), _cri("F", "b2", "stdout")]
    assert [body for body, _ in _joined(bodies)] == [_cri("F", "a1 a2"), _cri("F", "x"), _cri("F", "b1 b2", "stdout")]


def test_a_line_whose_rest_never_comes_is_read_as_far_as_it_goes() -> None:
    assert _joined([_cri("P", ERROR), "[rank3]: hello"]) == [("[rank3]: hello", 2), (_cri("F", ERROR), 1)]


def test_what_comes_long_after_a_part_is_not_its_rest() -> None:
    partials = Partials({})
    assert partials.take(_line(1, _cri("P", "old "))) is None
    whole = partials.take(_line(2 + FOLLOW_BYTES, _cri("F", "new")))
    assert whole is not None
    assert (whole.line.body, whole.joined) == (_cri("F", "new"), False)


def _docker(text: str, stream: str = "stderr") -> str:
    return json.dumps({"log": text, "stream": stream, "time": STAMP.format(1)})


def test_the_parts_of_a_docker_line_are_one_line() -> None:
    first = "x" * DOCKER_BYTES
    ((body, number),) = _joined([_docker(first), _docker(f"[rank3]: {ERROR}\n")])
    parsed = parse_line(body)
    assert number == 1
    assert parsed.body.startswith("xxx")
    assert parsed.body.endswith(ERROR)
    assert parsed.stamp is not None


def test_a_short_docker_line_without_a_newline_is_whole() -> None:
    assert len(_joined([_docker("the last line of a container"), _docker("another one\n")])) == 2


@pytest.mark.parametrize(
    ("key", "more", "last"), [("logtag", "P", "F"), ("_p", "P", "F"), ("CONTAINER_PARTIAL_MESSAGE", "true", None)]
)
def test_parts_that_a_collector_marks_are_one_line(key: str, more: str, last: str | None) -> None:
    bodies = [
        json.dumps({key: more, "log": "[rank3]: Value", "stream": "stderr"}),
        json.dumps(({key: last} if last else {key: "false"}) | {"log": "Error: x", "stream": "stderr"}),
    ]
    ((body, _),) = _joined(bodies)
    assert (parse_line(body).body, parse_line(body).rank) == ("ValueError: x", 3)


def test_of_a_very_long_line_head_and_tail_are_kept() -> None:
    memory: dict[str, Partial] = {}
    partials = Partials(memory)
    for number in range(200):
        partials.take(_line(number + 1, _cri("P", f"{number:04} " * 1_000)))
    assert len(msgspec.json.encode(memory)) < 2 * (HEAD_CHARACTERS + TAIL_CHARACTERS)
    whole = partials.take(_line(201, _cri("F", ERROR)))
    assert whole is not None
    assert whole.line.body.endswith(ERROR)
    assert "0000 0000" in whole.line.body
    assert whole.line.truncated


def test_open_lines_are_bounded() -> None:
    memory: dict[str, Partial] = {}
    partials = Partials(memory)
    for number in range(5 * MAX_OPEN):
        partials.take(_line(number, json.dumps({"_p": "P", "log": "x", "stream": f"s{number}"})))
    assert len(memory) == MAX_OPEN


@given(st.text(min_size=1, max_size=300), st.lists(st.integers(0, 300), max_size=6), st.booleans())
def test_a_line_is_what_it_was_wherever_it_is_split(text: str, cuts: list[int], snapshot: bool) -> None:
    edges = [0, *sorted({min(cut, len(text)) for cut in cuts}), len(text)]
    parts = [text[start:end] for start, end in pairwise(edges)]
    memory: dict[str, Partial] = {}
    found = []
    for number, part in enumerate(parts, 1):
        flag = "F" if number == len(parts) else "P"
        found.append(Partials(memory).take(_line(number, _cri(flag, part))))
        if snapshot:
            memory = msgspec.json.decode(msgspec.json.encode(memory), type=dict[str, Partial])
    assert [whole.line.body for whole in found if whole is not None] == [_cri("F", text)]
    assert not memory


def test_an_event_of_a_split_line_says_so() -> None:
    (event,) = events_of("\n".join([_cri("P", "[rank3]: Value"), _cri("F", "Error: shard 7")]))
    assert (event.name, event.line_no, event.subject.rank) == ("python.exception", 1, 3)
    assert event.attributes["joined"] == "true"


def test_the_last_line_of_a_dead_container_is_read_when_nothing_more_comes() -> None:
    assert [e.attributes.get("joined") for e in _after_the_end([_cri("P", ERROR)], ended=True)] == ["true"]
    assert [e.attributes.get("joined") for e in _after_the_end([_cri("P", ERROR)], waited_ns=REST_NS)] == ["true"]
    assert _after_the_end([_cri("P", ERROR)], waited_ns=REST_NS - 1) == []


def test_a_list_is_complete_when_nothing_more_comes() -> None:
    lines = ["low 0", "high 0", "max 7", "oom 3", "oom_kill 2"]
    assert len(_after_the_end(lines, ended=True)) == 1
    assert len(_after_the_end(lines, waited_ns=REST_NS)) == 1


def _after_the_end(bodies: list[str], *, ended: bool = False, waited_ns: int = 0) -> list[Event]:
    """What the end of a file says, once its reader has waited for so long, or is over."""
    fold, now_ns = NodeFold(SIGNALS), 1_786_350_000_000_000_000
    clock = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)
    attributes = {"kind": "application", "node": "n1", "job.id": "j1"}
    batch = RawBatch(
        run="post_mortem", run_id="", cluster="c", reporter="n1", boot_id="", shipper_id="s", batch_seq=1, clock=clock,
        records=[_line(number, body) for number, body in enumerate(bodies, 1)], source_attributes={"s": attributes},
    )  # fmt: skip
    progress = Progress(
        run="post_mortem", run_id="", cluster="c", reporter="n1", machine_id=None, boot_id="", shipper_id="s",
        last_batch_seq=1, clock=clock, ended=ended,
        sources=[SourceProgress(source="s", state="on", at_end=True, attributes=attributes)],
    )  # fmt: skip
    assert [o for o in fold.apply(batch, now_ns=now_ns) if isinstance(o.record, EventBatch) and o.record.events] == []
    outputs = list(NodeFold.restore(SIGNALS, fold.snapshot()).apply(progress, now_ns=now_ns + waited_ns))
    return [event for output in outputs if isinstance(output.record, EventBatch) for event in output.record.events]


# --- torn lines -------------------------------------------------------------------------------------------------------

TORN = [
    ("[rank1]: loss 0.3[rank3]: Traceback (most recent call last):",
     [("loss 0.3", 1), ("Traceback (most recent call last):", 3)]),
    ("step 7[default1]:[rank5]: ValueError: x", [("step 7", None), ("ValueError: x", 5)]),
    ("[1,2]<stdout>:step 7[1,3]<stderr>:ValueError: x", [("step 7", 2), ("ValueError: x", 3)]),
    ("[rank1]:[E810 15:36:05.94[rank2]:[E810 15:36:05.945860779 ProcessGroupNCCL.cpp:607] [Rank 2] boo",
     [("[E810 15:36:05.94", 1), ("boo", 2)]),
    ("[rank0]: a[rank1]: b[rank2]: c", [("a", 0), ("b", 1), ("c", 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "parts"), TORN, ids=[line[:40] for line, _ in TORN])
def test_text_of_two_writers_in_one_line_is_parted(line: str, parts: list[tuple[str, int | None]]) -> None:
    found = pieces(parse_line(line))
    assert [(piece.parsed.body, piece.parsed.rank) for piece in found] == parts
    assert all(piece.torn for piece in found)


def test_a_torn_line_keeps_what_was_said_of_the_whole_line() -> None:
    (first, second) = pieces(parse_line("gpu01: 3: [rank1]: loss[rank3]: hello"))
    assert (first.parsed.node, first.parsed.task, first.parsed.rank) == ("gpu01", 3, 1)
    assert (second.parsed.node, second.parsed.task, second.parsed.rank) == ("gpu01", 3, 3)


def test_the_host_of_a_second_writer_is_taken_where_it_is_the_known_one() -> None:
    same = "gpu01:77:78 [0] NCCL INFO Channel 0gpu01:4711:4890 [3] NCCL INFO hello"
    other = "gpu01:77:78 [0] NCCL INFO Channel 0gpu02:4711:4890 [3] NCCL INFO hello"
    assert [(p.parsed.node, p.parsed.pid) for p in pieces(parse_line(same))] == [("gpu01", 77), ("gpu01", 4711)]
    assert [(p.parsed.node, p.parsed.pid) for p in pieces(parse_line(other))] == [("gpu01", 77), (None, 4711)]


@pytest.mark.parametrize(
    "line", ["x [rank0] y", "the [default0] group", "<stdout> is closed", "NCCL INFO is a level", "a [rank3] b: c"]
)
def test_text_about_prefixes_is_one_line(line: str) -> None:
    parsed = parse_line(line)
    assert is_whole(parsed.body) or [piece.parsed.body for piece in pieces(parsed)] == [parsed.body]


def test_an_event_of_a_torn_line_says_so() -> None:
    events = events_of("[rank1]: torch.OutOfMemoryError: CUDA out of mem[rank3]: ValueError: shard 7")
    said = {event.subject.rank: event for event in events}
    assert said[3].attributes["torn"] == "true"
    assert said[3].name == "python.exception"


def test_the_lines_of_a_text_in_an_object_are_lines() -> None:
    text = f'Traceback (most recent call last):\n  File "a.py", line 7, in f\n    g()\n{ERROR}'
    line = json.dumps({"message": "it failed", "exc_info": text, "rank": 3})
    (event,) = [event for event in events_of(line) if event.name == "python.exception"]
    assert event.subject.rank == 3
    assert {name: event.attributes[name] for name in ("file", "line", "function")} == {
        "file": "a.py", "line": "7", "function": "f",
    }  # fmt: skip


def test_the_lines_that_syslog_wrote_as_one_are_lines() -> None:
    text = f'Traceback (most recent call last):#012  File "a.py", line 7, in f#012{ERROR}'
    line = f"Aug 10 15:36:05 gpu01 python[77]: {text}"
    (event,) = [event for event in events_of(line) if event.name == "python.exception"]
    assert (event.node, event.subject.pid, event.attributes["line"]) == ("gpu01", 77, "7")


@given(st.text(alphabet="[]rank0123:defult<>stoCNCL INFOW gpu.\n"))
def test_any_text_can_be_parted(text: str) -> None:
    parsed = parse_line(text)
    pieces(parsed)
    is_whole(parsed.body)


# --- records of several lines -----------------------------------------------------------------------------------------


def _traceback(writer: int) -> tuple[list[str], dict[str, str]]:
    lines = [
        "Traceback (most recent call last):", f'  File "main{writer}.py", line {writer + 9}, in <module>', "    main()",
        f'  File "loop{writer}.py", line {writer + 70}, in step_{writer}', "    raise ValueError(shard)",
        f"ValueError: shard {writer} is not sorted",
    ]  # fmt: skip
    said = {"file": f"loop{writer}.py", "line": str(writer + 70), "function": f"step_{writer}"}
    return lines, said | {"message": f"shard {writer} is not sorted"}


def _child_failed(writer: int) -> tuple[list[str], dict[str, str]]:
    lines = [
        "Root Cause (first observed failure):", "[0]:", f"  time      : 2026-08-10_15:36:{writer % 60:02}",
        f"  host      : gpu{writer:02}", f"  rank      : {writer} (local_rank: {writer % 8})",
        f"  exitcode  : -6 (pid: {writer + 4000})", "  error_file: <N/A>",
    ]  # fmt: skip
    said = {"host": f"gpu{writer:02}", "rank": str(writer), "local_rank": str(writer % 8), "pid": str(writer + 4000)}
    return lines, said


def _rendezvous(writer: int) -> tuple[list[str], dict[str, str]]:
    lines = [
        "[default] Rendezvous complete for workers. Result:", f"  restart_count={writer}",
        f"  master_addr=10.0.0.{writer}", "  master_port=29500", f"  group_rank={writer}", "  group_world_size=64",
        f"  global_ranks=[{writer * 8}, {writer * 8 + 1}]", f"  global_world_sizes=[{writer + 500}]",
    ]  # fmt: skip
    said = {"restart_count": str(writer), "master_addr": f"10.0.0.{writer}", "group_rank": str(writer)}
    return lines, said | {"world_size": str(writer + 500)}


def _terminate(writer: int) -> tuple[list[str], dict[str, str]]:
    lines = [f"terminate called after throwing an instance of 'acme::Error{writer}'", f"  what():  shard {writer}"]
    return lines, {"type": f"acme::Error{writer}", "what": f"shard {writer}"}


# By the event of the last line: the lines, with all that they say.
RECORDS = {
    "python.exception": _traceback, "elastic.rank_failed": _child_failed, "elastic.rendezvous": _rendezvous,
    "process.abort": _terminate,
}  # fmt: skip
# What only the last line of a record says.
OWN = {
    "python.exception": "message", "elastic.rank_failed": "pid", "elastic.rendezvous": "world_size",
    "process.abort": "what",
}  # fmt: skip
PREFIXES = ["[rank{}]: ", "{}: ", "[1,{}]<stderr>:", "gpu{:02}: ", "[default{}]:", "(A pid={}) ", "[pod/t-{}/main] "]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 63), st.sampled_from(sorted(RECORDS))), max_size=5, unique_by=lambda x: x[0]),
    st.sampled_from(["", *PREFIXES]), st.integers(0, 2**32),
)  # fmt: skip
def test_records_of_several_writers_come_out_whatever_the_order_of_their_lines(
    writers: list[tuple[int, str]], prefix: str, chance: int
) -> None:
    queues = {number: [prefix.format(number) + line for line in RECORDS[name](number)[0]] for number, name in writers}
    lines, order = list[str](), random.Random(chance)
    while queues:
        number = order.choice(sorted(queues))
        lines.append(queues[number].pop(0))
        if not queues[number]:
            del queues[number]
    records = [(name, RECORDS[name](number)[1]) for number, name in writers]
    wanted = {(name, said[OWN[name]]): said for name, said in records}
    found = [event for event in events_of("\n".join(lines)) if OWN.get(event.name) in event.attributes]
    assert len(found) == len(writers)
    for event in found:
        said = wanted[event.name, event.attributes[OWN[event.name]]]
        read = {name: event.attributes[name] for name in said if name in event.attributes}
        # Where nothing tells the writers apart attributes may be missing; none is another writer's.
        assert read == said if prefix else read.items() <= said.items()


@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_the_place_of_an_exception_is_its_deepest_frame(prefix: str) -> None:
    lines, said = _traceback(3)
    (event,) = [e for e in events_of("\n".join(prefix + line for line in lines)) if e.name == "python.exception"]
    assert said.items() <= event.attributes.items()


def test_each_of_two_chained_exceptions_has_its_own_place() -> None:
    first, said_first = _traceback(1)
    second, said_second = _traceback(2)
    between = ["", "During handling of the above exception, another exception occurred:", ""]
    one, two = (e for e in events_of("\n".join([*first, *between, *second])) if e.name == "python.exception")
    assert said_first.items() <= one.attributes.items()
    assert said_second.items() <= two.attributes.items()


def test_a_line_that_is_no_exception_does_not_end_a_traceback() -> None:
    lines, said = _traceback(3)
    lines.insert(4, "[2026-08-10 15:36:05] step 10 loss 2.5")
    (event,) = [e for e in events_of("\n".join(lines)) if e.name == "python.exception"]
    assert said.items() <= event.attributes.items()


def test_a_torn_line_gives_nothing_to_later_ones() -> None:
    lines = ["Root Cause (first observed failure):", "  host      : gpu1[rank3]: hello", "  exitcode  : -6 (pid: 77)"]
    (event,) = [e for e in events_of("\n".join(lines)) if e.name == "elastic.rank_failed"]
    assert "host" not in event.attributes


def test_a_record_that_breaks_off_gives_nothing_to_one_far_behind() -> None:
    blocks = Blocks({}, SIGNALS)

    def said(body: str, offset: int) -> dict[str, Any] | None:
        parsed = parse_line(body)
        match = SIGNALS.match(parsed.body)
        assert match is not None
        done = blocks.completed(match, parsed, offset, torn=False)
        return None if done is None else done.attributes

    assert said("  host      : gpu17", 1) is None
    assert said("  exitcode  : -6 (pid: 77)", 10_000_000) == {"exitcode": "-6", "pid": "77"}


def test_records_that_are_not_complete_are_bounded() -> None:
    memory: dict[str, Block] = {}
    blocks = Blocks(memory, SIGNALS)
    for number in range(2 * MAX_BLOCKS):
        parsed = parse_line(f"[rank{number}]:   host      : gpu17")
        match = SIGNALS.match(parsed.body)
        assert match is not None
        blocks.completed(match, parsed, number, torn=False)
    assert len(memory) == MAX_BLOCKS


def test_a_list_of_tasks_gives_each_of_them_what_its_head_says() -> None:
    head = (
        "Terminating process because the JAX distributed service detected fatal errors. absl::Status: UNAVAILABLE: "
        "The following tasks are unhealthy (stopped sending heartbeats):"
    )
    tasks = [f"/job:jax_worker/replica:0/task:{task}" for task in (3, 7)]
    events = [e for e in events_of("\n".join([head, *tasks])) if e.name == "jax.task_named"]
    assert [(e.subject.rank, e.attributes.get("status")) for e in events] == [(3, "UNAVAILABLE"), (7, "UNAVAILABLE")]

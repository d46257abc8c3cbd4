"""Prefixes come off in any nesting; the body and what the prefixes said are left."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.parse import is_kmsg, is_kmsg_continuation, parse_line

NCCL = "gpu03:4711:4890 [5] NCCL INFO "

CASES: list[tuple[str, str, dict[str, object]]] = [
    ("plain text", "plain text", {}),
    ("", "", {}),
    ("[default3]:hello", "hello", {"local_rank": 3}),
    ("[default1]:[rank3]: hello", "hello", {"local_rank": 1, "rank": 3}),
    ("[rank3]:   File \"x.py\", line 3", "  File \"x.py\", line 3", {"rank": 3}),
    ("[rank3]:[E810 15:36:05.945860779 ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 5(tp) Rank 1] hello", "hello",
     {"rank": 3, "pg_rank": 1, "pg": "ID 2 PG GUID 5(tp)"}),
    ("[E ProcessGroupNCCL.cpp:474] [Rank 3] hello", "hello", {"rank": 3}),
    ("[rank3]:[E ProcessGroupNCCL.cpp:523] [Rank 1] hello", "hello", {"rank": 3, "pg_rank": 1}),
    ("[rank: 1] hello", "hello", {"rank": 1}),
    (" 3: hello", "hello", {"task": 3, "rank": None}),
    ("P0 3: hello", "hello", {"task": 3}),
    ("[1,3]<stderr>:hello", "hello", {"rank": 3}),
    ("g002: hello", "hello", {"node": "g002"}),
    ("gpu-a-17: hello", "hello", {"node": "gpu-a-17"}),
    ("(Worker[rank=8] pid=201, ip=10.0.0.5) hello", "hello", {"rank": 8, "pid": 201, "node": "10.0.0.5"}),
    ("[pod/train-0/main] 2026-08-10T15:36:05.123456789Z hello", "hello", {"pod": "train-0"}),
    ("2026-08-10T15:36:05.123456789+08:00 stderr F [rank3]: hello", "hello", {"rank": 3}),
    ('{"log":"[rank3]: hello\\n","stream":"stderr","time":"2026-08-10T07:36:05.123Z"}', "hello", {"rank": 3}),
    ("Aug 10 15:36:05 gpu01 kernel: [56701.234567] hello", "hello",
     {"node": "gpu01", "process": "kernel", "boot_ns": 56_701_234_567_000}),
    ("Aug 10 15:36:05 gpu01 python[123]: hello", "hello", {"node": "gpu01", "process": "python", "pid": 123}),
    ("2026-08-10T15:36:05.123456+08:00 gpu01 kernel: hello", "hello", {"node": "gpu01", "process": "kernel"}),
    ("2026-08-10T15:36:05+0800 gpu01 slurmstepd[77]: hello", "hello", {"process": "slurmstepd", "pid": 77}),
    ("[56701.234567] [  T1946] hello", "hello", {"boot_ns": 56_701_234_567_000, "process": "kernel"}),
    ("6,1234,56701234567,-,caller=T1;hello", "hello", {"boot_ns": 56_701_234_567_000, "process": "kernel"}),
    (NCCL + "hello", "hello", {"node": "gpu03", "pid": 4711, "cuda_dev": 5}),
    ("[2026-08-10 15:36:05] gpu03:4711:4890 [5] init.cc:1356 NCCL WARN hello", "hello", {"node": "gpu03"}),
    ("gpu03:4711:4890 [5] misc/socket.cc:50 (ncclSocketConnect) NCCL WARN hello", "hello", {"cuda_dev": 5}),
    ("gpu03: [rank3]: " + NCCL + "hello", "hello", {"node": "gpu03", "rank": 3}),
    ("7: [default1]:[rank3]: hello", "hello", {"task": 7, "local_rank": 1, "rank": 3}),
    ("WARNING:torch.distributed.elastic.multiprocessing.api:hello", "hello", {}),
    ("[2026-08-10 15:36:05,123] torch.distributed.elastic.multiprocessing.api: [WARNING] hello", "hello", {}),
    ("2026-02-10 14:23:45,123 - trainer - ERROR - hello", "hello", {}),
    ("[2026-08-10 15:36:05,123] [INFO] [logging.py:96:log_dist] [Rank 3] hello", "hello", {"rank": 3}),
    ("2026-08-10 15:36:05,123 gpu03 rank=3 step 5/80", "step 5/80", {"rank": 3, "node": "gpu03"}),
    ("[default1]:2026-08-10 15:36:05,123 [rank 3] INFO step 5/80", "step 5/80", {"rank": 3, "local_rank": 1}),
    ("[rank3] step 5/80", "step 5/80", {"rank": 3}),
    ("\x1b[31m[rank3]:\x1b[0m hello", "hello", {"rank": 3}),
    ("10%|#    | 1/10\r20%|##   | 2/10\r[rank3]: hello", "hello", {"rank": 3}),
    ("[rank3]: hello\r", "hello", {"rank": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "body", "context"), CASES, ids=[case[0][:40] for case in CASES])
def test_prefixes_come_off_and_say_who_wrote(line: str, body: str, context: dict[str, object]) -> None:
    parsed = parse_line(line)
    assert parsed.body == body
    assert {name: getattr(parsed, name) for name in context} == context


@pytest.mark.parametrize(
    "line",
    [
        "Error: no such file", "error: no such file", "RuntimeError: CUDA error: x", "mlx5_0: hello", "nvme0n1: hello",
        "python3: can't open file", "eth0: link up", "[1, 2, 3] is a list", "[tensor] x", "(x) y", "{not json}",
        "  time      : 2026-03-04_05:06:07", "NVRM: hello", "rank3: hello", "step10: hello", "{\"a\": 1}", "[]",
        "bond0: (slave ens3np0): link status definitely down, disabling slave", "[E] x", "12 files",
        "slurmstepd: error: *** STEP", "EDAC MC0: 1 CE", "http://x: y", "cuda:0: hello", "Aug hello",
    ],
)  # fmt: skip
def test_text_that_looks_like_a_prefix_stays(line: str) -> None:
    parsed = parse_line(line)
    assert parsed.body == line
    assert parsed.wrappers == ()
    assert parsed.node is None


def test_the_journal_as_json_gives_clock_host_and_bytes() -> None:
    line = (
        '{"MESSAGE":[104,105],"_HOSTNAME":"gpu01","SYSLOG_IDENTIFIER":"kernel","_SOURCE_MONOTONIC_TIMESTAMP":"5000000",'
        '"__REALTIME_TIMESTAMP":"1786347365000000"}'
    )
    parsed = parse_line(line)
    assert (parsed.body, parsed.node, parsed.process, parsed.boot_ns) == ("hi", "gpu01", "kernel", 5_000_000_000)
    assert parsed.stamp is not None
    assert (parsed.stamp.ns, parsed.stamp.has_zone) == (1_786_347_365_000_000_000, True)
    assert parsed.stamp.resolution_ns == 1000


def test_of_nested_stamps_the_one_with_a_zone_is_kept() -> None:
    parsed = parse_line("2026-08-10T07:36:05.123456789Z [2026-08-10 15:36:05] hello")
    assert parsed.stamp is not None
    assert (parsed.stamp.kind, parsed.body) == ("iso", "hello")


def test_of_nested_stamps_that_say_as_much_the_inner_one_is_kept() -> None:
    parsed = parse_line("[2026-08-10 15:36:05] [2026-08-10 15:36:04.5] hello")
    assert parsed.stamp is not None
    assert parsed.stamp.resolution_ns == 100_000_000


def test_wrappers_are_named_outermost_first() -> None:
    assert parse_line("7: [default1]:[rank3]: " + NCCL + "x").wrappers == ("srun_label", "torchrun", "rank", "nccl")


def test_a_kmsg_record_gives_priority_sequence_and_boot_time() -> None:
    record = is_kmsg("6,1234,56701234567,-;text")
    assert record is not None
    assert (record.priority, record.sequence, record.boot_us) == (6, 1234, 56_701_234_567)
    assert is_kmsg("6,1234,text") is None
    assert is_kmsg_continuation(" SUBSYSTEM=pci")
    assert not is_kmsg_continuation(" indented text")
    assert not is_kmsg_continuation("SUBSYSTEM=pci")


@given(st.text())
def test_any_text_parses(text: str) -> None:
    parsed = parse_line(text)
    assert isinstance(parsed.body, str)


@given(st.lists(st.sampled_from([line for line, _, _ in CASES]), max_size=4), st.text(max_size=30), st.integers(0, 60))
def test_any_nesting_parses(lines: list[str], tail: str, cut: int) -> None:
    text = "".join(lines)
    parse_line(text[cut:] + tail)
    parse_line(tail + text)


@given(st.sampled_from(["[rank1]:", "[default1]:", "gpu01: ", "[Rank 2] "]), st.text(alphabet="abc ", min_size=1))
def test_a_body_without_prefixes_is_kept_to_the_letter(prefix: str, body: str) -> None:
    assert parse_line(prefix + "x" + body).body == "x" + body


@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "(",
        "[rank1]:",
        "1,",
        "a-",
        "a.",
        "a1:",
        "2026-",
        "\x1b[",
        "\x1b]",
        "\r",
        "[PG ",
        '{"a":',
        " ",
        "[ ",
        "[[",
        "gpu1:1:1 ",
    ],
)
def test_a_line_of_100_kb_takes_little_time(unit: str) -> None:
    line = unit * (100_000 // len(unit))
    start = time.process_time()
    parse_line(line)
    parse_line(line + "x")
    assert time.process_time() - start < 0.5

"""Prefixes come off in any nesting; the body and what the prefixes said are left."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import parse, times
from pipeline.core.parse import is_kmsg_continuation, kmsg_header, parse_line
from schemas.matching import load_prefixes

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
    ("[2026-08-10 15:36:05] gpu03:4711:4890 [5] init.cc:1356 NCCL WARN hello", "NCCL WARN hello", {"node": "gpu03"}),
    ("gpu03:4711:4890 [5] misc/socket.cc:50 (ncclSocketConnect) NCCL WARN hello", "NCCL WARN hello", {"cuda_dev": 5}),
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
    ("[rank3]: 10%|#  | 1/10\r20%|## | 2/10\rhello", "hello", {"rank": 3}),
    ("\ufeffgpu01: hello\x00", "hello", {"node": "gpu01"}),
    ("[default3]:  File \"x.py\", line 3", "  File \"x.py\", line 3", {"local_rank": 3}),
    ("[trainer 9]:hello", "hello", {"rank": 9, "local_rank": None}),
    ("P0  3: hello", "hello", {"task": 3}),
    ("[prterun-gpu01-77@1,3]<stdout>: hello", "hello", {"rank": 3, "node": None}),
    ("[prterun-gpu01-77@1,3][gpu02:4711]<stderr>: hello", "hello", {"rank": 3, "node": "gpu02", "pid": 4711}),
    ("Mon Aug 10 15:36:05 2026[1,3]<stderr>:hello", "hello", {"rank": 3}),
    ("Mon Aug 10 15:36:05 2026<stdout>:hello", "hello", {"rank": None}),
    ("[1,mpirank:3,algo-2]<stderr>:hello", "hello", {"rank": 3}),
    ("10.9.0.5: hello", "hello", {"node": "10.9.0.5"}),
    ("gpu01.hpc.example: [rank3]: hello", "hello", {"node": "gpu01.hpc.example", "rank": 3}),
    ("[pod/train-0/main] gpu01: 3: hello", "hello", {"pod": "train-0", "node": "gpu01", "task": 3}),
    ("train-0-worker-1 pytorch [rank1]: hello", "hello", {"pod": "train-0-worker-1", "rank": 1}),
    ("(Worker pid=201, ip=10.0.0.5) hello [repeated 7x across cluster]", "hello", {"pid": 201, "count": 7}),
    ("(pid=201) hello [repeated 7x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable "
     "log deduplication, or see https://docs.ray.io/ for more options.)", "hello", {"pid": 201, "count": 7}),
    ("(raylet, ip=10.0.0.5) hello", "hello", {"process": "raylet", "node": "10.0.0.5"}),
    ("[2026-08-10 15:36:05,123 E 4711 4730] (raylet) node_manager.cc:3065: hello", "hello", {}),
    ("2026-08-10 15:36:05,123\tERROR worker.py:401 -- hello", "hello", {}),
    ("2026-08-10 15:36:05.123456: E external/xla/xla/service/rendezvous.cc:98] hello", "hello", {}),
    ("2026-08-10 15:36:05,123: rank3[4711][MainThread]: ERROR: composer.trainer: hello", "hello",
     {"rank": 3, "pid": 4711}),
    ("[INFO|trainer.py:1234] 2026-08-10 15:36:05,123 >> hello", "hello", {}),
    ("submitit WARNING (2026-08-10 15:36:05,123) - hello", "hello", {}),
    ("INFO 08-10 15:36:05 [model_runner.py:943] hello", "hello", {}),
    ("[gpu03:12345] hello", "hello", {"node": "gpu03", "pid": 12345}),
    ("[1786347365.123456] [gpu01:4711 :0] hello", "hello", {"node": "gpu01", "pid": 4711}),
    ("2026-08-10T15:36:05.1234567Z ##[error]hello", "hello", {}),
    ("[2026-08-10T15:36:05.123] [4242.0] error: hello", "error: hello", {}),
    ("3: slurmstepd: error: hello", "error: hello", {"task": 3, "process": "slurmstepd"}),
    ("Aug 10 15:36:05 gpu01 python[123]: #033[31m[rank3]: hello#033[0m#011now", "hello\tnow",
     {"node": "gpu01", "rank": 3}),
    ("Aug 10 15:36:05 gpu01 python[123]: one#012two#015", "one\ntwo", {"pid": 123}),
    ('2026-08-10T15:36:05.1Z stderr F {"message": "[rank3]: hello", "level": "error"}', "hello", {"rank": 3}),
    ('{"log": "{\\"msg\\": \\"hello\\", \\"rank\\": 3}\\n", "kubernetes": {"pod_name": "t-0", "host": "gpu01"}}',
     "hello", {"rank": 3, "pod": "t-0", "node": "gpu01"}),
    ('{"labels": {"pod": "t-0"}, "line": "hello", "timestamp": "2026-08-10T15:36:05Z"}', "hello", {"pod": "t-0"}),
    ('{"@timestamp": "2026-08-10T15:36:05Z", "message": "hello", "host": {"name": "gpu01"}, "log": {"offset": 7}}',
     "hello", {"node": "gpu01"}),
    ('{"event": "hello", "level": "error", "timestamp": "2026-08-10T15:36:05Z"}', "hello", {}),
    ('{"message": "lost", "exc_info": "Traceback (most recent call last):\\nKeyError: 1"}',
     "lost\nTraceback (most recent call last):\nKeyError: 1", {}),
    ('{"MESSAGE": ["one", "two"], "_HOSTNAME": "gpu01"}', "one\ntwo", {"node": "gpu01"}),
    ('time="2026-08-10T15:36:05.123Z" level=error msg="no \\"x\\"" error="exit status 1" id=ab',
     'no "x" error="exit status 1" id=ab', {}),
    ('ts=2026-08-10T15:36:05.123Z caller=main.go:7 level=error msg="hello"',
     "hello caller=main.go:7", {}),
    ('Aug 10 15:36:05 gpu01 dockerd[77]: time="2026-08-10T15:36:05Z" level=error msg="hello"',
     "hello", {"pid": 77}),
    ('{"kind": "Event", "type": "Warning", "reason": "Evicted", "message": "low on memory", '
     '"involvedObject": {"kind": "Pod", "name": "t-0"}, "lastTimestamp": "2026-08-10T15:36:05Z"}',
     "kubectl events: LASTSEEN=2026-08-10T15:36:05Z, TYPE=Warning, REASON=Evicted, OBJECT=pod/t-0, "
     "MESSAGE=low on memory", {}),
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
        "EDAC MC0: 1 CE", "http://x: y", "cuda:0: hello", "Aug hello", "conv1: hello", "resnet50: loaded",
        "llama-7b: loading", "sha256: 0a1b", "fp16: on", "p99: 3.1 ms", "warm-up: done", "gpu3: 74 C",
        "nvidia-uvm: hello",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034", "ata1.00: failed command", "e1000e: hello", "12:34 hello",
        "pdsh@head: gpu07: ssh exited with exit code 1", "[step:100] hello", "[cuda:10] hello", "(a, b) c", "key=value",
        "level=3 reached", "epoch-3 train loss 0.5", "stderr goes to /dev/null", "{\"message\": 7}",
        "issue #012 is open",
    ],
)  # fmt: skip
def test_text_that_looks_like_a_prefix_stays(line: str) -> None:
    parsed = parse_line(line)
    assert parsed.body == line
    assert parsed.wrappers == ()
    assert parsed.node is None


@pytest.mark.parametrize(
    "text",
    [
        "trainer started: hello", "checkpoint saved: /ckpt/7", "epoch done: 3", "some error: hello", "model loaded: x",
        "gpu01 says hello", "worker failed: exit", "issue #012 is open",
    ],
)  # fmt: skip
@pytest.mark.parametrize("stamp", ["2026-08-10 15:36:05,123 ", "[2026-08-10 15:36:05] ", "2026-08-10T15:36:05Z "])
def test_text_behind_a_stamp_is_no_host(stamp: str, text: str) -> None:
    parsed = parse_line(stamp + text)
    assert (parsed.body, parsed.node, parsed.process) == (text, None, None)


@pytest.mark.parametrize("text", ["conv1: hello", "gpu01: hello", "3: hello", "[3/16] hello"])
def test_what_names_a_machine_stands_outside_of_what_names_a_process(text: str) -> None:
    parsed = parse_line(f"[rank3]: {text}")
    assert (parsed.body, parsed.node, parsed.task) == (text, None, None)


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
    record = kmsg_header("6,1234,56701234567,-;text")
    assert record is not None
    assert (record.priority, record.sequence, record.boot_us) == (6, 1234, 56_701_234_567)
    assert kmsg_header("6,1234,text") is None
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


def test_the_prefixes_that_code_names_are_in_the_files() -> None:
    names = {prefix.entry.name for prefix in load_prefixes().prefixes}
    for named in (parse._SYSLOG, parse._OF_A_DAEMON, times.COMPUTED, times.BMC, {"iso", "kmsg"}):
        assert named <= names


@pytest.mark.parametrize(("blanks", "rank"), [(0, 3), (1, 3), (4, 3), (5, None)])
def test_a_small_indent_may_stand_before_a_prefix_in_brackets(blanks: int, rank: int | None) -> None:
    assert parse_line(f"{' ' * blanks}[rank3]: saved").rank == rank

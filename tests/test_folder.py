"""Working out what the files of a folder are, without a manifest and with one."""

import gzip
import lzma
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard

from pipeline.diagnose import diagnose
from pipeline.folder import FolderPlan, NodePlan, plan
from pipeline.logfiles import open_log
from pipeline.manifest import ManifestError
from pipeline.reader import records
from schemas.lines import MAX_LINE_BYTES
from schemas.records import Progress, RawBatch, RawLine

KERN = "2026-03-04T05:06:07.100000+00:00 {node} kernel: {text}\n"
XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
INIT = (
    "{node}:{pid}:{pid} [0] NCCL INFO comm 0x55 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId {bus}000 commId 0x77aa "
    "- Init COMPLETE\n"
)
WAITED = (
    "[rank0]:[E304 05:16:09.123456789 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600011 "
    "milliseconds before timing out.\n"
)
OOM = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
    "79.11 GiB\n"
)
FAILED = (
    "E0304 05:06:08.400000 790 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) "
    "local_rank: 0 (pid: 801) of binary: /usr/bin/python3\n"
)
STEP = "[2026-03-04 05:05:00] step 10 loss 2.5\n"
LOST = "[rank1]: RuntimeError: CUDA error: unspecified launch failure\n"


def _write(folder: Path, contents: Mapping[str, str | bytes]) -> Path:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def _pressed(how: str, data: bytes) -> bytes:
    if how == "gz":
        return gzip.compress(data)
    return lzma.compress(data) if how == "xz" else zstandard.ZstdCompressor().compress(data)


def _two_nodes(folder: Path) -> Path:
    return _write(folder, {
        "gx-01/rank0.log": INIT.format(node="gx-01", pid=800, rank=0, bus="1b") + STEP,
        "gx-02/rank1.log": INIT.format(node="gx-02", pid=801, rank=1, bus="5e") + STEP,
        "gx-02/kern.log": KERN.format(node="gx-02", text=XID),
    })  # fmt: skip


def _node(found: FolderPlan, name: str) -> NodePlan:
    return next(node for node in found.nodes if node.reporter == name)


def _lines(found: FolderPlan) -> list[RawLine]:
    return [line for keyed in records(found) if isinstance(keyed.record, RawBatch) for line in keyed.record.records]


# --- nodes, ranks, kinds ------------------------------------------------------------------------------------------


def test_nodes_ranks_and_kinds_come_from_lines_and_names(tmp_path: Path) -> None:
    found = plan([_two_nodes(tmp_path)])
    assert [node.reporter for node in found.nodes] == ["gx-01", "gx-02"]
    sources = {source.name: source for source in _node(found, "gx-02").sources}
    assert sources["gx-02/kern.log"].kind == "kernel"
    assert sources["gx-02/rank1.log"].attributes["rank"] == "1"
    assert not found.gaps
    assert not found.unreadable


@pytest.mark.parametrize(
    "name",
    ["torchrun.log", "launcher.log", "trainer.log", "rank1_stderr.log", "rank_1.err", "stderr.log", "core.log",
     "empty.log",      "agent.log", "nccl_debug.log", "train_1.out"],
)  # fmt: skip
def test_a_file_in_a_nodes_folder_is_that_nodes_whatever_its_name(tmp_path: Path, name: str) -> None:
    _write(_two_nodes(tmp_path), {f"gx-02/{name}": LOST})

    assert [node.reporter for node in plan([tmp_path]).nodes] == ["gx-01", "gx-02"]


def test_a_file_that_names_its_node_in_its_name_is_that_nodes(tmp_path: Path) -> None:
    _write(tmp_path, {"dmesg-gx-07.txt": XID + "\n", "node-gx-08.log": LOST})
    assert [node.reporter for node in plan([tmp_path]).nodes] == ["gx-07", "gx-08"]


def test_one_log_of_many_nodes_has_no_node_of_its_own(tmp_path: Path) -> None:
    text = "".join(INIT.format(node=f"gx-0{n}", pid=800 + n, rank=n, bus="1b") for n in range(2))
    (node,) = plan([_write(tmp_path, {"job.log": text})]).nodes
    assert node.sources[0].attributes["node"] == ""


@pytest.mark.parametrize("host", ["gpu-102", "gpu07", "node-a", "trn-b", "ip-10-0-3-7", "a100x4"])
def test_a_folder_is_its_node(tmp_path: Path, host: str) -> None:
    (node,) = plan([_write(tmp_path, {f"{host}/kern.log": LOST, f"{host}/rank3.log": STEP})]).nodes
    assert node.reporter == host


def test_the_node_option_names_what_nothing_else_does(tmp_path: Path) -> None:
    found = plan([_write(tmp_path, {"log.txt": LOST})], node="gx-09")
    assert [node.reporter for node in found.nodes] == ["gx-09"]


def test_single_files_are_read_too(tmp_path: Path) -> None:
    _two_nodes(tmp_path)
    found = plan([tmp_path / "gx-02" / "kern.log", tmp_path / "gx-02" / "rank1.log"])
    assert [node.reporter for node in found.nodes] == ["gx-02"]
    assert [source.name for source in found.nodes[0].sources] == ["kern.log", "rank1.log"]


def test_two_files_of_one_name_stay_two_sources(tmp_path: Path) -> None:
    _write(tmp_path, {"a/rank1.log": LOST + STEP, "b/rank1.log": STEP})
    found = plan([tmp_path / "a" / "rank1.log", tmp_path / "b" / "rank1.log"])
    names = [source.name for node in found.nodes for source in node.sources]

    assert len(set(names)) == 2


# --- manifest -----------------------------------------------------------------------------------------------------


def test_a_manifest_states_claims_and_what_a_file_is(tmp_path: Path) -> None:
    _write(_two_nodes(tmp_path), {"rootrank.toml": '''
        cluster = "east"
        job_id = "9"
        time_zone = "+02:00"
        [nodes.gx-02]
        clock_offset_s = -7.25
        clock_bound_s = 0.02
        machine_id = "m-2"
        [files."gx-01/rank0.log"]
        rank = 7
        node = "gx-03"
    '''})  # fmt: skip
    found = plan([tmp_path])
    assert found.cluster == "east"
    claim = _node(found, "gx-02").claim
    assert claim is not None
    assert (claim.offset_ns, claim.bound_ns, claim.by) == (-7_250_000_000, 20_000_000, "rootrank.toml")
    (source,) = _node(found, "gx-03").sources
    assert source.attributes["rank"] == "7"
    assert source.attributes["time.zone"] == "+02:00"
    assert source.attributes["job.id"] == "9"


def test_a_file_that_is_stated_to_be_of_a_service_is_no_output_of_the_job(tmp_path: Path) -> None:
    stated = '[files."gx-01/daemon.log"]\nkind = "service"\n'
    _write(_two_nodes(tmp_path), {"gx-01/daemon.log": STEP, "rootrank.toml": stated})
    sources = {source.name: source for source in _node(plan([tmp_path]), "gx-01").sources}
    assert "job.id" in sources["gx-01/rank0.log"].attributes
    assert "job.id" not in sources["gx-01/daemon.log"].attributes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cluster = ", "rootrank.toml"),
        ("clustre = 'x'", "clustre"),
        ("time_zone = 'Mars'", "Mars"),
        ("[nodes.gx-02]\nwall_time = 'noon'", "gx-02"),
        ("[nodes.gx-02]\nclock_offset_s = 'x'", "clock_offset_s"),
        ("[nodes.gx-02]\nclock_offset_s = nan", "rootrank.toml: nodes.gx-02.clock_offset_s nan"),
        ("[nodes.gx-02]\nclock_offset_s = 1e300", "rootrank.toml: nodes.gx-02.clock_offset_s"),
        ("[nodes.gx-02]\nclock_offset_s = 1\nclock_bound_s = -0.5", "rootrank.toml: nodes.gx-02.clock_bound_s -0.5"),
        ("[nodes.gx-02]\nclock_bound_s = inf", "rootrank.toml: nodes.gx-02.clock_bound_s inf"),
        ("[nodes.gx-02]\nuptime_s = nan", "rootrank.toml: nodes.gx-02.uptime_s nan"),
        ("[nodes.gx-02]\nwall_time = '0001-01-01T00:00:00Z'", "rootrank.toml: nodes.gx-02.wall_time"),
        ("year = 0", "rootrank.toml: year 0"),
        ("[files.'gx-01/rank0.log']\nrank = -1", "rank -1"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_file_and_field(tmp_path: Path, text: str, says: str) -> None:
    _write(_two_nodes(tmp_path), {"rootrank.toml": text})
    with pytest.raises(ManifestError, match=says):
        plan([tmp_path])


def test_a_manifest_that_is_a_folder_or_leads_nowhere_is_said(tmp_path: Path) -> None:
    (_two_nodes(tmp_path) / "rootrank.toml").mkdir()
    with pytest.raises(ManifestError, match=r"rootrank\.toml: no regular file"):
        plan([tmp_path])
    (tmp_path / "rootrank.toml").rmdir()
    (tmp_path / "rootrank.toml").symlink_to(tmp_path / "gone")
    with pytest.raises(ManifestError, match=r"rootrank\.toml: no regular file"):
        plan([tmp_path])


def test_a_manifest_that_names_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    _write(_two_nodes(tmp_path), {"rootrank.toml": '[files."gx-01/rnak0.log"]\nrank = 3\n'})
    found = plan([tmp_path])

    assert [gap for gap in found.gaps if "rnak0" in gap.source or "rnak0" in gap.reason]


# --- time ---------------------------------------------------------------------------------------------------------


def test_the_year_of_other_stamps_is_used_where_a_stamp_has_none(tmp_path: Path) -> None:
    _write(_two_nodes(tmp_path), {"gx-01/syslog": "Mar  4 05:06:07 gx-01 kernel: hello\n"})
    sources = {source.name: source for source in _node(plan([tmp_path]), "gx-01").sources}
    assert sources["gx-01/syslog"].attributes["time.year"] == "2026"


def test_a_folder_without_any_year_still_orders_its_lines(tmp_path: Path) -> None:
    _write(tmp_path, {"syslog-gx-02": f"Mar  4 05:06:07 gx-02 kernel: {XID}\nMar  4 05:06:09 gx-02 kernel: {XID}\n"})
    (incident,) = diagnose([tmp_path]).incidents
    assert incident.class_ == "hardware/gpu_xid_79"


# --- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gz", "xz", "zst"])
def test_compressed_logs_give_the_same_incident(tmp_path: Path, how: str) -> None:
    plain, pressed = tmp_path / "plain" / "run", tmp_path / "pressed" / "run"
    _two_nodes(plain)
    for path in plain.rglob("*.log"):
        _write(pressed, {f"{path.relative_to(plain)}.{how}": _pressed(how, path.read_bytes())})
    (a,), (b,) = diagnose([plain]).incidents, diagnose([pressed]).incidents
    assert a.class_ == b.class_
    assert a.culprits == b.culprits
    assert a.incident_id == b.incident_id


@pytest.mark.parametrize("how", ["gz", "xz", "zst"])
def test_a_compressed_file_that_is_cut_short_is_named_and_its_neighbours_are_read(tmp_path: Path, how: str) -> None:
    whole = _pressed(how, os.urandom(60_000).hex().encode() + b"\n" + LOST.encode() * 2_000)
    _write(_two_nodes(tmp_path), {f"gx-02/rank1_old.log.{how}": whole[: len(whole) // 2]})
    diagnosis = diagnose([tmp_path])
    assert diagnosis.incidents[0].class_ == "hardware/gpu_xid_79"
    named = [gap.source for incident in diagnosis.incidents for gap in incident.gaps]
    named += [gap.source for gap in (*diagnosis.gaps, *diagnosis.unreadable)]

    assert f"gx-02/rank1_old.log.{how}" in named


@pytest.mark.parametrize("rest", ["", "x" * 6_000_000])
def test_what_stands_before_a_break_is_read(tmp_path: Path, rest: str) -> None:
    whole = gzip.compress(f"{LOST}{LOST}".encode())
    cut = whole[:-8] if not rest else gzip.compress(f"{LOST}{LOST}{rest}".encode())[:-8]
    lines = _lines(plan([_write(tmp_path, {"gx-02/rank1.log.gz": cut})]))
    assert [(line.body[:20], line.truncated) for line in lines] == [
        (LOST[:20], False), (LOST[:20], False), *([("x" * 20, True)] if rest else []),
    ]  # fmt: skip


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    _two_nodes(tmp_path)
    (tmp_path / "gx-02" / "rank9.log").symlink_to(tmp_path / "gone")
    found = plan([tmp_path])

    assert [gap.source for gap in found.unreadable] == ["gx-02/rank9.log"]


def test_a_pipe_in_the_folder_does_not_hang_the_reading(tmp_path: Path) -> None:
    _two_nodes(tmp_path)
    os.mkfifo(tmp_path / "gx-02" / "pipe.log")
    assert diagnose([tmp_path]).incidents


def test_a_path_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    assert [gap.source for gap in plan([tmp_path / "gone"]).unreadable] == ["gone"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("weights.bin", bytes(100_000)),
        ("noise.bin", bytes(range(256)) * 400),
        ("state.json", b'{"a": 1}'),
        ("dump.pkl", b"\x80\x04\x95" + bytes(50)),
    ],
)
def test_a_file_of_a_kind_that_is_not_read_is_named_in_the_gaps(tmp_path: Path, name: str, content: bytes) -> None:
    found = plan([_write(_two_nodes(tmp_path), {f"gx-02/{name}": content})])

    assert [gap.source for gap in found.gaps] == [f"gx-02/{name}"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("job_5001/gx-02/dmesg-T.txt", "kernel"), ("gx-02/dmesg.txt", "kernel"), ("kernel/job-5001.txt", "application")],
)
def test_a_kernel_log_in_the_folder_of_a_job_is_one(tmp_path: Path, name: str, kind: str) -> None:
    stamped = "[Fri May 29 11:19:56 2026] nvme nvme0: I/O tag 88 (7058) QID 23 timeout, aborting\n"
    found = plan([_write(tmp_path, {name: stamped, "gx-02/rank0.log": "step 1\n"})])

    assert {s.name: s.kind for node in found.nodes for s in node.sources}[name] == kind


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_zeros_in_a_log_that_was_cut_or_whose_machine_died_do_not_hide_its_lines(tmp_path: Path, where: str) -> None:
    line, zeros = KERN.format(node="gx-02", text=XID), "\0" * 4_000
    content = {"before": zeros + line, "within": line + zeros + "\n" + line, "after": line + zeros}[where]
    found = plan([_write(tmp_path, {"gx-02/kern.log": content})])

    assert found.gaps == []
    assert any(XID in read.body for read in _lines(found))


def test_a_file_that_grows_as_it_is_read_is_read_to_where_it_ended_when_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("one\n")
    with open_log(path) as file:
        with path.open("a") as writer:
            writer.write("two\n")
        assert file.read() == b"one\n"


def test_a_folder_with_nothing_to_read_says_so(tmp_path: Path) -> None:
    found = plan([_write(tmp_path, {"a.json": "{}"})])
    assert found.nodes == []
    assert [gap.source for gap in found.gaps] == ["a.json"]


def test_empty_files_are_harmless(tmp_path: Path) -> None:
    _write(_two_nodes(tmp_path), {"gx-01/rank0_empty.log": b"", "gx-02/newlines.log": b"\n" * 40})
    assert [i.class_ for i in diagnose([tmp_path]).incidents] == ["hardware/gpu_xid_79"]


# --- lines --------------------------------------------------------------------------------------------------------


def test_a_line_of_ten_megabytes_is_cut_marked_and_its_neighbours_are_read(tmp_path: Path) -> None:
    text = b"before\n" + b"x" * 10_000_000 + b"\n" + KERN.format(node="gx-02", text=XID).encode()
    lines = _lines(plan([_write(tmp_path, {"gx-02/kern.log": text})]))
    assert [line.truncated for line in lines] == [False, True, False]
    assert len(lines[1].body) == MAX_LINE_BYTES
    assert lines[2].offset == 7 + 10_000_001
    assert lines[2].line_no == 3


def test_invalid_utf8_becomes_a_mark_and_offsets_count_bytes(tmp_path: Path) -> None:
    lines = _lines(plan([_write(tmp_path, {"gx-02/rank1.log": b"\xff\xfeab\nnext\r\nlast"})]))
    assert [line.body for line in lines] == ["\ufffd\ufffdab", "next", "last"]
    assert [line.offset for line in lines] == [0, 5, 11]


def test_kmsg_records_keep_sequence_and_boot_time_and_drop_continuations(tmp_path: Path) -> None:
    text = f"4,900,30702220080,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:5e:00.0\n6,901,30702220090,-;next\n"
    lines = _lines(plan([_write(tmp_path, {"gx-02/kernel.kmsg": text})]))

    assert [(line.offset, line.kernel_time_ns) for line in lines] == [
        (900, 30_702_220_080_000),
        (901, 30_702_220_090_000),
    ]
    assert [line.body for line in lines] == [XID, "next"]


def test_each_node_ends_with_a_progress_that_names_every_source(tmp_path: Path) -> None:
    last: dict[bytes, object] = {}
    for keyed in records(plan([_two_nodes(tmp_path)])):
        last[keyed.key] = keyed.record
    assert all(isinstance(record, Progress) and record.ended for record in last.values())
    progress = last[b"local/gx-02"]
    assert isinstance(progress, Progress)
    assert [source.source for source in progress.sources] == ["gx-02/kern.log", "gx-02/rank1.log"]


# --- whose fault --------------------------------------------------------------------------------------------------


def test_a_fault_on_a_node_where_no_rank_of_the_job_runs_is_not_its_culprit(tmp_path: Path) -> None:
    _write(tmp_path, {
        "gx-01/rank0.log": INIT.format(node="gx-01", pid=800, rank=0, bus="1b") + STEP + WAITED,
        "gx-02/rank1.log": INIT.format(node="gx-02", pid=801, rank=1, bus="5e") + STEP,
        "gx-77/kern.log": KERN.format(node="gx-77", text=XID),
    })  # fmt: skip
    main = next(i for i in diagnose([tmp_path]).incidents if i.jobs)

    assert [culprit.node for culprit in main.culprits] != ["gx-77"]


def test_two_attempts_in_one_folder_are_two_stories(tmp_path: Path) -> None:
    later = KERN.format(node="gx-02", text=XID).replace("05:06:07", "07:06:07")
    failed_later = FAILED.replace("05:06:08", "07:06:09").replace("801", "901").replace("exitcode: 1", "exitcode: -6")
    _write(tmp_path, {
        "attempt_0/gx-02/rank1.log": INIT.format(node="gx-02", pid=801, rank=1, bus="5e") + STEP + OOM + FAILED,
        "attempt_1/gx-02/rank1.log": INIT.format(node="gx-02", pid=901, rank=1, bus="5e") + failed_later,
        "gx-02/kern.log": later,
    })  # fmt: skip

    assert {i.class_ for i in diagnose([tmp_path]).incidents} == {"software/cuda_oom", "hardware/gpu_xid_79"}


def test_stamps_without_a_year_that_nothing_gives_are_said_once_with_the_way_out(tmp_path: Path) -> None:
    kern = "Mar  4 05:06:07 {} kernel: " + XID + "\n"
    logs = _write(tmp_path, {f"{name}/kern.log": kern.format(name) for name in ("alpha", "beta")})
    for name in ("alpha", "beta"):
        os.utime(logs / name / "kern.log", (0, 0))
    (gap,) = plan([logs]).gaps
    assert gap.source == "alpha/kern.log"
    assert "times (and of 1 more) not known" in gap.reason
    assert "`year = YYYY` into rootrank.toml" in gap.reason

    _write(tmp_path, {"rootrank.toml": "year = 2026\n"})
    assert plan([logs]).gaps == []


def test_the_year_of_when_a_file_was_written_is_the_last_hint_and_is_said_once(tmp_path: Path) -> None:
    kern = "Mar  4 05:06:07 {} kernel: " + XID + "\n"
    logs = _write(tmp_path, {f"{name}/kern.log": kern.format(name) for name in ("alpha", "beta")})
    for name in ("alpha", "beta"):
        os.utime(logs / name / "kern.log", (1_772_700_000, 1_772_700_000))  # 2026-03-05
    found = plan([logs])
    (gap,) = found.gaps
    assert "the times (and of 1 more); by when the file was last written they begin on 2026-03-04" in gap.reason
    assert "`year = YYYY` into rootrank.toml" in gap.reason
    attributes = _node(found, "beta").sources[0].attributes
    assert (attributes["time.year"], attributes["time.inferred"]) == ("2026", "year,zone")
    (incident,) = diagnose([logs]).incidents[:1]
    assert (incident.started_at or "").startswith("2026-03-04T05:06:07")


def test_a_date_at_the_end_of_a_long_file_is_seen(tmp_path: Path) -> None:
    long = "Dec 31 23:59:58 gx-01 app: x\n" * 3_000 + "[rank0]:   time      : 2027-01-01_00:00:03\n"
    found = plan([_write(tmp_path, {"gx-01/rank0.log": long})])
    assert _node(found, "gx-01").sources[0].attributes["time.year"] == "2026"


def test_the_zone_comes_from_a_line_that_stands_in_two_files_of_a_node(tmp_path: Path) -> None:
    kern = "2026-03-04T05:06:07.100000+08:00 gx-01 kernel: " + XID + "\n"
    logs = _write(tmp_path, {"gx-01/journal.log": kern, "gx-01/syslog": f"Mar  4 05:06:07 gx-01 kernel: {XID}\n"})
    sources = {source.name: source for source in _node(plan([logs]), "gx-01").sources}
    assert sources["gx-01/syslog"].attributes["time.zone"] == "+08:00"
    assert sources["gx-01/syslog"].attributes["time.inferred"] == "year,zone"


def test_bare_kernel_stamps_are_placed_by_lines_that_show_both_clocks(tmp_path: Path) -> None:
    lines = [f"2026-03-04T05:06:{second:02}.5+00:00 gx-01 kernel: [  {100 + second}.400000] x" for second in (5, 7)]
    logs = _write(tmp_path, {"gx-01/dmesg.log": f"[  110.000000] {XID}\n", "gx-01/kern.log": "\n".join(lines)})
    (incident,) = diagnose([logs]).incidents
    assert (incident.started_at or "").startswith("2026-03-04T05:06:10")


def test_a_kernel_log_with_times_is_of_a_job_whose_lines_have_none(tmp_path: Path) -> None:
    logs = _write(_two_nodes(tmp_path), {})
    for name in ("gx-01/rank0.log", "gx-02/rank1.log"):
        (logs / name).write_text(
            (logs / name).read_text().replace(STEP, "step 10 loss 2.5\n") + WAITED.split("] ", 1)[1]
        )
    assert diagnose([logs]).incidents[0].class_ == "hardware/gpu_xid_79"
    assert [job.job_id for job in diagnose([logs]).incidents[0].jobs]


AGENT = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: 801) of binary: "
    "/usr/bin/python3\n"
    "============================================================\nRoot Cause (first observed failure):\n[0]:\n"
    "  time      : 2026-03-04_05:06:09\n  host      : gx-02\n  rank      : 1 (local_rank: 0)\n"
    "  exitcode  : -9 (pid: 801)\n"
)
OOM_KILL = (
    "Out of memory: Killed process 801 (python3) total-vm:98000000kB, anon-rss:61000000kB, file-rss:100kB, "
    "shmem-rss:0kB, UID:1000 pgtables:120000kB oom_score_adj:0"
)


@pytest.mark.parametrize(
    ("day", "class_"),
    [("04", "resource/host_oom"), ("02", "infra/process_killed")],  # what was there before may be of another job
)
def test_a_kernel_log_is_of_a_job_whose_only_time_stands_in_the_launchers_table(
    tmp_path: Path, day: str, class_: str
) -> None:
    logs = _write(tmp_path, {
        "gx-01/rank0.log": INIT.format(node="gx-01", pid=800, rank=0, bus="1b") + STEP,
        "gx-02/torchrun.log": AGENT,
        "gx-02/kern.log": KERN.format(node="gx-02", text=OOM_KILL).replace("03-04", f"03-{day}"),
    })  # fmt: skip
    incident = diagnose([logs]).incidents[0]
    assert (incident.class_, [job.job_id for job in incident.jobs] != []) == (class_, True)
    assert [culprit.node for culprit in incident.culprits] == ["gx-02"]


def test_another_file_that_shows_the_year_gives_it_to_all(tmp_path: Path) -> None:
    logs = _write(tmp_path, {"kern.log": f"Mar  4 05:06:07 alpha kernel: {XID}\n", "rank0.log": STEP})
    assert plan([logs]).gaps == []

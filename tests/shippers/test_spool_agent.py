"""Through a whole agent: no secret reaches the disk or the wire, and what a storm loses is counted by its policy."""

from pathlib import Path

from schemas.records import ClockReading
from shippers.agent import Agent
from shippers.config import BatchSettings, ClockSettings, Config, SourceSettings, SpoolSettings
from shippers.saved import saved_positions
from tests.shippers.fakes import FakeSink, append, eventually
from tests.shippers.secrets.planted import planted
from tests.shippers.test_agent import Running

MIB = 1024 * 1024
CLOCK = ClockSettings(static=ClockReading(raw_ns=1, mono_ns=2, boottime_ns=3, wall_ns=4), boot_id="b")
TOKEN = "ghp_" + "aB3dE6gH9" * 4


def config_for(folder: Path, *sources: SourceSettings, max_bytes: int = 64 * MIB) -> Config:
    return Config(
        cluster="c", reporter="n", run="replay", run_id="r", start_at="beginning", end_file=str(folder / "end"),
        clock=CLOCK, spool=SpoolSettings(dir=str(folder / "spool"), max_bytes=max_bytes),
        batch=BatchSettings(linger_ms=5), source=sources,
    )  # fmt: skip


def is_read(folder: Path, *names: str) -> bool:
    known = saved_positions(folder / "spool")
    positions = [known.get(name) for name in names]
    return all(
        position is not None
        and position.generations
        and position.generations[0].offset == (folder / name).stat().st_size
        for name, position in zip(names, positions, strict=True)
    )


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (folder / "spool").iterdir() if path.is_file())


def test_no_secret_of_a_line_or_a_file_name_reaches_the_spool_or_kafka(tmp_path: Path) -> None:
    secrets = list(planted())
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in (1, 2):
        text = "".join(f"{each.line}\n" for each in secrets[number - 1 :: 2])
        append(logs / f"{TOKEN}{number}.log", text)
    config = config_for(tmp_path, SourceSettings(name="logs", path=f"{logs}/*.log"))
    away, back = FakeSink(), FakeSink()
    away.is_away = True
    run = Running(config, away)
    eventually(lambda: b"[redacted:stripe-key]" in on_disk(tmp_path), "all is in the spool")
    run.agent.request_stop()
    run.join()
    stored = on_disk(tmp_path)
    append(logs / f"{TOKEN}1.log", "after the restart\n")
    (tmp_path / "end").touch()
    Agent(config, back, lambda text: None).run()
    sent = b"".join(back.values)
    names = {line.source for batch in back.batches() for line in batch.records}

    for each in (*(secret.value for secret in secrets), TOKEN[:16]):
        assert each.encode() not in stored
        assert each.encode() not in sent
    assert len(names) == 2
    assert all(name.startswith("logs/[redacted:github-token:") for name in names)
    # The real names are not saved, and still each file is read on from where it was.
    assert len(back.bodies()) == len(secrets) + 1
    assert back.bodies()[-1] == "after the restart"
    assert [gap for batch in back.batches() for gap in batch.gaps] == []


def test_a_storm_keeps_its_first_lines_or_its_last_ones_and_all_lost_lines_are_counted(tmp_path: Path) -> None:
    names = {"first": "newest", "last": "oldest"}
    for name in names:
        (tmp_path / name).touch()
    config = config_for(
        tmp_path,
        SourceSettings(name="first", path=str(tmp_path / "first"), drop="newest"),
        SourceSettings(name="last", path=str(tmp_path / "last")),
        max_bytes=16 * MIB,
    )
    sink = FakeSink()
    sink.is_away = True
    run = Running(config, sink)
    count = 24_000
    for begin in range(0, count, 2000):
        for name in names:
            append(tmp_path / name, "".join(f"{number} {'x' * 1000}\n" for number in range(begin, begin + 2000)))
    eventually(lambda: is_read(tmp_path, *names), "all is read", 60)
    sink.is_away = False
    (tmp_path / "end").touch()
    eventually(lambda: not run.thread.is_alive(), "the end", 60)
    batches = sink.batches()
    arrived = {
        name: [int(line.body.split()[0]) for batch in batches for line in batch.records if line.source == name]
        for name in names
    }
    lost = {
        name: sum(gap.lost_lines or 0 for batch in batches for gap in batch.gaps if gap.source == name)
        for name in names
    }

    for name in names:
        assert len(arrived[name]) == len(set(arrived[name]))
        assert len(arrived[name]) + lost[name] == count
        assert lost[name] > 0
    assert arrived["first"][:3000] == list(range(3000))
    assert arrived["last"][-1] == count - 1

"""The incidents of a folder do not depend on how its lines are cut, ordered, interleaved or restarted over."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from pipeline import VERSION
from pipeline.core.align import NodeFold
from pipeline.core.investigation import Investigation
from pipeline.core.join import Join
from pipeline.engine import Engine
from pipeline.folder import plan
from pipeline.reader import Keyed, node_records
from pipeline.rules import load_rules
from schemas.records import DELIVERY_FIELDS, RawBatch

CORPUS = Path(__file__).parent / "corpus"
FOLDERS = {folder.parent.name: folder for folder in sorted(CORPUS.glob("*/logs"))} | {
    "demo": Path(str(files("pipeline").joinpath("demo", "fell_off_bus")))
}
RULES = load_rules()
SEED = 5

# A story is one stream of records per node: its batches, then the progress that says it was read to its end.
Streams = list[list[Keyed]]


class Restarting(Engine):
    """An engine of which every fold is written down and read back after every record."""

    def feed(self, key: bytes, record: msgspec.Struct, *, now_ns: int = 0) -> None:
        """Take a record, then restart all folds."""
        super().feed(key, record, now_ns=now_ns)
        self._nodes = {name: NodeFold.restore(self._signals, fold.snapshot()) for name, fold in self._nodes.items()}
        self._investigations = {
            name: Investigation.restore(self._rules, VERSION, fold.snapshot())
            for name, fold in self._investigations.items()
        }
        self._join = Join.restore(self._join.snapshot())


@lru_cache
def _streams(folder: Path) -> Streams:
    planned = plan([folder])
    return [list(node_records(planned.cluster, node, "post_mortem", "")) for node in planned.nodes]


def _incidents(records: Iterable[Keyed], engine: Engine) -> list[bytes]:
    for keyed in records:
        engine.feed(keyed.key, keyed.record)
    shapes = [msgspec.to_builtins(incident) for incident in engine.incidents()]
    told = [{name: value for name, value in shape.items() if name not in DELIVERY_FIELDS} for shape in shapes]
    return sorted(msgspec.json.encode(shape, order="sorted") for shape in told)


@lru_cache
def _plain(folder: Path) -> list[bytes]:
    return _incidents((keyed for stream in _streams(folder) for keyed in stream), Engine(RULES))


# --- what is done to the streams ------------------------------------------------------------------------------------


def _cut(stream: Sequence[Keyed], size: int) -> Iterator[Keyed]:
    """The same lines in batches of `size` lines."""
    for keyed in stream:
        if not isinstance(keyed.record, RawBatch):
            yield keyed
            continue
        lines = keyed.record.records
        for start in range(0, max(len(lines), 1), size):
            part = msgspec.structs.replace(keyed.record, records=lines[start : start + size])
            yield Keyed(key=keyed.key, record=part)


def _numbered(stream: Iterable[Keyed]) -> list[Keyed]:
    """The batches of a stream numbered as a shipper that sends them in this order would."""
    numbered = []
    for seq, keyed in enumerate(stream, 1):
        record = keyed.record
        if isinstance(record, RawBatch):
            record = msgspec.structs.replace(record, batch_seq=seq)
        numbered.append(Keyed(key=keyed.key, record=record))
    return numbered


def _split(stream: Sequence[Keyed], chance: random.Random) -> list[Keyed]:
    """Each line is a batch of its own."""
    return _numbered(_cut(stream, 1))


def _resorted(stream: Sequence[Keyed], chance: random.Random) -> list[Keyed]:
    """The sources of the node come in another order; each source keeps its own."""
    by_source: dict[str, list[Keyed]] = {}
    for keyed in stream[:-1]:
        assert isinstance(keyed.record, RawBatch)
        by_source.setdefault(next(iter(keyed.record.source_attributes)), []).append(keyed)
    names = list(by_source)
    chance.shuffle(names)
    return _numbered([*(keyed for name in names for keyed in by_source[name]), stream[-1]])


def _split_and_resorted(stream: Sequence[Keyed], chance: random.Random) -> list[Keyed]:
    return _split(_resorted(stream, chance), chance)


def _interleaved(streams: Streams, chance: random.Random) -> Iterator[Keyed]:
    """The records of all nodes mixed; each node keeps its own order."""
    waiting = [iter(stream) for stream in streams]
    order = [number for number, stream in enumerate(streams) for _ in stream]
    chance.shuffle(order)
    return (next(waiting[number]) for number in order)


def _nodes_shuffled(streams: Streams, chance: random.Random) -> Iterator[Keyed]:
    streams = streams[:]
    chance.shuffle(streams)
    return (keyed for stream in streams for keyed in stream)


# --- the five ways --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_has_something_to_compare(name: str) -> None:
    quiet = name.startswith("quiet_")
    assert bool(_plain(FOLDERS[name])) is not quiet


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("change", [_split, _resorted, _split_and_resorted])
def test_how_a_node_is_read_does_not_change_the_incidents(
    name: str, change: Callable[[Sequence[Keyed], random.Random], list[Keyed]]
) -> None:
    chance = random.Random(SEED)
    streams = [change(stream, chance) for stream in _streams(FOLDERS[name])]
    assert _incidents(_nodes_shuffled(streams, chance), Engine(RULES)) == _plain(FOLDERS[name])


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", FOLDERS)
def test_how_the_nodes_are_interleaved_does_not_change_the_incidents(name: str, seed: int) -> None:
    chance = random.Random(seed)
    streams = [_numbered(_cut(stream, 1 if seed == 1 else 20)) for stream in _streams(FOLDERS[name])]
    assert _incidents(_interleaved(streams, chance), Engine(RULES)) == _plain(FOLDERS[name])


@pytest.mark.parametrize("name", FOLDERS)
def test_a_restart_of_every_fold_after_every_record_does_not_change_the_incidents(name: str) -> None:
    chance = random.Random(SEED)
    streams = [_numbered(_cut(stream, 10)) for stream in _streams(FOLDERS[name])]
    assert _incidents(_interleaved(streams, chance), Restarting(RULES)) == _plain(FOLDERS[name])

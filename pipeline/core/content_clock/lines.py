"""Which lines tell of an event that other nodes tell of too."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pipeline.core.content_clock.meetings import Mark, MarkKind
from pipeline.core.dating import Dating
from pipeline.core.flight.dump import Dump
from pipeline.core.parse import ParsedLine
from pipeline.core.stamps import Stamp, resolve
from pipeline.core.times import BMC, COMPUTED
from schemas.signals import Match

# What every line has in it that tells of such an event.
WORDS: Final = ("step", "Step", "iter", "Iter", "'loss'", "Epoch", "Init ", "endezvous", "rootrank")
STEPS: Final = frozenset(("train.step", "train.mark"))
# Hugging Face's Trainer gathers the losses of all ranks, then prints on each node (trainer.py,
# _maybe_log_save_evaluate; PrinterCallback).
FOLLOW: Final = frozenset(("train.step.hf",))
# torchtitan takes the mean of the loss over all ranks, then prints (torchtitan/train.py, train_step).
TITAN: Final = ("memory: ", "tps: ")
# Operations that end on no rank before all have begun them: each needs something of every rank.
_WAIT_FOR_ALL: Final = ("all_reduce", "all_gather", "_all_gather", "reduce_scatter", "_reduce_scatter")
MAX_OPS: Final = 256
# A dump takes about as long to read as a large log.
MAX_NODES_OF_DUMPS: Final = 64


class Seen(Struct, frozen=True, kw_only=True, gc=False):
    """A mark whose time is not resolved yet: `wall_ns` is 0 where `stamp` tells it."""

    series: str
    number: str
    kind: MarkKind
    follows: bool = False
    stamp: Stamp | None = None
    wall_ns: int = 0


def seen_in(parsed: ParsedLine, match: Match | None) -> Seen | None:
    """What a line tells of an event of several nodes."""
    stamp = parsed.stamp
    if match is None or stamp is None or not stamp.has_date or stamp.kind in COMPUTED or stamp.kind in BMC:
        return None
    said, event = match.attributes, match.event
    if event in STEPS:
        number = said.get("step") or (said.get("epoch", "") if match.signal in FOLLOW else "")
        if not number:
            return None
        series = f"{match.signal}/{said.get('epoch', '') if said.get('step') else ''}/{said.get('phase', '')}"
        follows = match.signal in FOLLOW or all(word in parsed.body for word in TITAN)
        return Seen(series=series, number=number, kind="together", follows=follows, stamp=stamp)
    if event == "nccl.init" and said.get("comm_id") and said.get("state"):
        kind: MarkKind = "enter" if said["state"] == "start" else "leave"
        return Seen(series="nccl.init", number=f"{said['comm_id']}/{said.get('nranks', '')}", kind=kind, stamp=stamp)
    return None


def seen_in_dump(dump: Dump) -> Iterator[Seen]:
    """When a rank enqueued its last collectives, and when it saw that they had ended: its host's clock, in ns."""
    for entry in dump.entries[-MAX_OPS:]:
        group = dump.groups.get(entry.group)
        if entry.is_p2p or entry.seq < 0 or not entry.created_ns or not entry.op.startswith(_WAIT_FOR_ALL):
            continue
        if "coalesced" in entry.op or not any(size > 0 for size in entry.sizes[:2]):
            # A coalesced one is noted after it began; one without elements waits for nobody.
            continue
        ranks = "" if group is None else f"{hash_of(group.ranks)}"
        series, number = f"flight/{entry.group}/{entry.desc}/{ranks}", str(entry.seq)
        yield Seen(series=series, number=number, kind="enter", wall_ns=entry.created_ns)
        if entry.completed_ns:
            yield Seen(series=series, number=number, kind="leave", wall_ns=entry.completed_ns)


def hash_of(ranks: tuple[int, ...]) -> str:
    """Ranks in short: how many, which ends, their sum."""
    return f"{len(ranks)}:{ranks[0]}-{ranks[-1]}:{sum(ranks)}" if ranks else ""


def marks_of(seen: Iterable[Seen], node: str, source: str, job: str, dating: Dating) -> Iterator[Mark]:
    """The marks of one file, where their times are known for certain."""
    for one in seen:
        wall_ns, resolution_ns = one.wall_ns, 1
        if one.stamp is not None:
            if dating.slack_ns(one.stamp) != (0, 0):
                continue
            resolved = resolve(one.stamp, dating.year, dating.zone_s, dating.near_ns)
            if resolved is None:
                continue
            wall_ns, resolution_ns = resolved
        yield Mark(
            node=node, source=source, series=f"{job}/{one.series}", number=one.number, kind=one.kind, wall_ns=wall_ns,
            resolution_ns=resolution_ns, follows=one.follows,
        )  # fmt: skip

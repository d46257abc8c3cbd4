"""A GPU that is not there: a node that shows fewer than before, or than the other nodes."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from pipeline.core.chains import SECOND_NS, Resolved
from pipeline.core.derived.compare import counted, of_node
from pipeline.core.derived.scene import Change, Changes, Scene, as_finding, last_of
from pipeline.core.order import canonical
from schemas.records import Entity

GPU_MISSING: Final = "compare.gpu_missing"
# Lists of all GPUs of a node.
LISTS: Final = ("gpu.listed", "gpu.enumerated")
# In a list the row of a GPU may say something of it that counts for more.
_ROWS: Final = (*LISTS, "gpu.ecc_uncorrected", "gpu.unreadable")
# A GPU that the other GPUs' later lists leave out by more than this is not in a row that was cut off.
LISTED_AGAIN_S: Final = 60
# Of a node more than one GPU in so many is not missing: another job was given fewer.
MISSING_SHARE: Final = 4
# So many nodes alike, and more than half of all, show how many GPUs a node should have.
MIN_ALIKE: Final = 3


def gpus(scene: Scene) -> Changes:
    """The node that shows fewer GPUs than before, or than its peers."""
    listing = {item.episode.first.source for item in scene.named(*LISTS)}
    lists: dict[tuple[str, str], list[Resolved]] = defaultdict(list)
    for item in scene.named(*_ROWS):
        if item.subject.node and _gpu(item.subject) and item.episode.first.source in listing:
            lists[item.subject.node, item.episode.first.source].append(item)
    gone: set[str] = set()
    for (node, _), items in sorted(lists.items()):
        lost = _gone(items)
        if lost is not None and _is_heard_of(lost, scene):
            continue
        if lost is not None and node not in gone:
            gone.add(node)
            others = counted(len({_gpu(one.subject) for one in items}) - 1, "other GPU")
            yield _found(lost, lost.subject, f"listed before, {others} listed later without it", "before")
    yield from _fewer(_numbers(lists, scene.named("gpu.count")), gone)


def _gone(items: list[Resolved]) -> Resolved | None:
    """The GPU that a later list in the same source leaves out."""
    last: dict[str, Resolved] = {}
    for item in items:
        known = last.get(_gpu(item.subject))
        if known is None or known.episode.end_ns < item.episode.end_ns:
            last[_gpu(item.subject)] = item
    ends_ns = [item.episode.end_ns for item in last.values()]
    bound_ns = max(ends_ns) - LISTED_AGAIN_S * SECOND_NS
    missing = sorted(name for name, item in last.items() if item.episode.end_ns < bound_ns)
    if not missing or len(missing) * MISSING_SHARE > len(last) or min(ends_ns) < 0:
        return None
    return last[missing[0]]


def _is_heard_of(lost: Resolved, scene: Scene) -> bool:
    """Whether any other line shows the GPU later than the list does."""
    bound_ns = lost.episode.end_ns + LISTED_AGAIN_S * SECOND_NS
    name, node = _gpu(lost.subject), lost.subject.node
    later = (item for items in scene.by_name.values() for item in items if item.episode.end_ns > bound_ns)
    return any(item.subject.node == node and _gpu(item.subject) == name for item in later)


def _numbers(
    lists: dict[tuple[str, str], list[Resolved]], counts: Iterable[Resolved]
) -> dict[str, tuple[int, Resolved]]:
    """By node how many GPUs it shows at most, and a line that shows it."""
    found: dict[str, tuple[int, Resolved]] = {}
    for (node, _), items in sorted(lists.items()):
        number = len({_gpu(item.subject) for item in items})
        if node not in found or number > found[node][0]:
            found[node] = (number, max(items, key=lambda item: canonical(last_of(item))))
    for item in sorted(counts, key=lambda item: canonical(last_of(item))):
        text, node_of = item.episode.attributes.get("gpus", ""), item.subject.node
        if node_of and text.isdecimal() and len(text) < 4:
            found[node_of] = (int(text), item)
    return found


def _fewer(numbers: dict[str, tuple[int, Resolved]], gone: set[str]) -> Changes:
    """The few nodes that show fewer GPUs than most do."""
    usual = Counter(number for number, _ in numbers.values())
    if not usual:
        return
    most, alike = max(usual.items(), key=lambda pair: (pair[1], pair[0]))
    fewer = {node: one for node, one in numbers.items() if one[0] < most and node not in gone}
    if alike < MIN_ALIKE or alike * 2 <= len(numbers) or len(fewer) * MIN_ALIKE > len(numbers):
        return
    for _, (number, item) in sorted(fewer.items())[:MIN_ALIKE]:
        yield _found(item, of_node(item.subject), f"{counted(number, 'GPU')}, {most} on {alike} other nodes", "peers")


def _found(item: Resolved, subject: Entity, numbers: str, against: str) -> Change:
    finding = as_finding(
        item, last_of(item), GPU_MISSING, subject, role="cause", label="hardware/gpu_fell_off_bus",
        attributes={"against": against, "numbers": numbers},
    )  # fmt: skip
    return id(item), [item, finding]


def _gpu(subject: Entity) -> str:
    return str(subject.pci_bus_id or subject.gpu_uuid or ("" if subject.gpu_index is None else subject.gpu_index))

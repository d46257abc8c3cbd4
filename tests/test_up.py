"""Keeping parts up, whatever becomes of one try."""

from pipeline.embedded.errors import PartFailedError
from pipeline.up import MAX_PAUSE_S, Addresses, Keeper


class Moody:
    """A part that refuses to start as often as it is told."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.running = False
        self.tries: list[float] = []
        self.now_s = 0.0

    def start(self) -> None:
        self.tries.append(self.now_s)
        if len(self.tries) <= self.refusals:
            raise PartFailedError("it ended with status 1")
        self.running = True

    def watch(self, keeper: Keeper, seconds: int) -> None:
        for _ in range(seconds * 2):
            self.now_s += 0.5
            keeper.keep_up()


def test_a_part_that_dies_while_it_is_started_again_is_tried_again_later_each_time() -> None:
    part = Moody(refusals=8)
    part.watch(Keeper("Kafka", part, lambda: part.now_s), 600)

    pauses = [later - earlier for earlier, later in zip(part.tries, part.tries[1:], strict=False)]
    assert part.running
    assert len(part.tries) == 9
    assert pauses == sorted(pauses)
    assert MAX_PAUSE_S <= pauses[-1] <= MAX_PAUSE_S + 1


def test_a_part_that_lived_long_is_started_again_at_once() -> None:
    part = Moody(refusals=5)
    keeper = Keeper("Kafka", part, lambda: part.now_s)
    part.watch(keeper, 600)
    part.running = False
    died_s = part.now_s
    part.watch(keeper, 10)

    assert part.running
    assert part.tries[-1] - died_s <= 1.5


def test_a_part_that_runs_is_left_alone() -> None:
    part = Moody(refusals=0)
    part.running = True
    part.watch(Keeper("Kafka", part, lambda: part.now_s), 60)

    assert part.tries == []


def test_another_shell_reads_as_the_reader_of_our_own_engine_only() -> None:
    addresses = Addresses(kafka="k:1", clickhouse_url="http://c/rootrank", web="http://w")
    own = Addresses(kafka="k:1", clickhouse_url="http://c/rootrank", web="http://w", reader_user="rootrank_reader")

    assert "READER" not in addresses.exports
    assert "CLICKHOUSE_READER_USER=rootrank_reader " in own.exports

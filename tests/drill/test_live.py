"""What a live drill says at its end."""

import pytest

from pipeline.drill.generate import Options, incident
from pipeline.drill.live import Outcome, Stages
from pipeline.drill.output import MANIFEST
from pipeline.drill.scoring import Score

NOW_NS = 1_795_000_000_000_000_000


def outcome(stages: Stages, score: Score | None = None, *, quiet: bool = False) -> Outcome:
    return Outcome(run_id="drill-1", chain="C10", variant="x", seed=1, quiet=quiet, stages=stages, score=score)


def score(*, class_right: bool = True, culprit: str = "right") -> Score:
    return Score(
        folder="drill-1", chain="C10", variant="x", seed=1, ranks=16, removed=0, expected="network/ib_link_flap",
        said="network/ib_link_flap" if class_right else "infra/process_killed", quiet_right=False,
        class_right=class_right, culprit=culprit, why="" if culprit == "right" else "node drill-a, not drill-b",  # type: ignore[arg-type]
        confidence=0.9, seconds=0.1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (Stages(), "the shippers delivered no line"),
        (Stages(lines=9), "no event came of them"),
        (Stages(lines=9, events=3), "there are events, but no verdict"),
        (Stages(lines=9, events=3, verdicts=1), "there are verdicts, but no incident"),
        (Stages(lines=9, events=3, verdicts=1, incidents=1), "but not in the feed"),
    ],
)
def test_it_says_after_which_stage_a_drill_was_lost(stages: Stages, said: str) -> None:
    lost = outcome(stages)
    assert not lost.right
    assert lost.sentence.startswith("lost: ")
    assert said in lost.sentence


def test_it_says_when_the_incident_was_there_and_whether_it_is_right() -> None:
    there = Stages(lines=9, events=3, verdicts=1, incidents=1, in_feed_s=1.94)
    assert outcome(there, score()).sentence == "incident in the feed after 1.9 s, culprit right"
    assert outcome(there, score()).right
    wrong = outcome(there, score(culprit="wrong"))
    assert wrong.sentence == "incident in the feed after 1.9 s, culprit wrong: node drill-a, not drill-b"
    assert not wrong.right
    other = outcome(there, score(class_right=False))
    assert other.sentence.endswith("but class infra/process_killed where network/ib_link_flap is true")
    assert not other.right


def test_silence_is_right_after_a_quiet_ending_only_if_something_was_read() -> None:
    assert outcome(Stages(lines=9, events=3), quiet=True).right
    assert not outcome(Stages(), quiet=True).right
    assert not outcome(Stages(lines=9, events=3), quiet=False).right


def test_a_live_story_is_over_now_and_states_a_reading_of_every_clock() -> None:
    made = incident(Options(seed=4, chain="C1", ranks=16, end_ns=NOW_NS))
    last_ns = max(line.true_ns for lines in made.files.values() for line in lines)
    assert NOW_NS - 3_600_000_000_000 < last_ns <= NOW_NS
    nodes = {*made.story.fleet.nodes, *made.story.fleet.others}
    assert made.manifest.count("wall_time = ") == len(nodes), MANIFEST
    past = incident(Options(seed=4, chain="C1", ranks=16))
    assert [len(lines) for lines in past.files.values()] == [len(lines) for lines in made.files.values()]

"""Hangs that print nothing: the steps stop, and nobody says a word."""

from pipeline.drill.chains.common import UNCLEAR
from pipeline.drill.emit import telemetry
from pipeline.drill.opening import start, train
from pipeline.drill.prefixes import iso
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim


def _life_goes_on(story: Story, since: float, seconds: float) -> None:
    """Other writers of the nodes show that time passes: telemetry and kernels."""
    watched = story.fleet.nodes[:8]
    for node in watched:
        telemetry.header(story, node, since - 300)
    for number in range(int((seconds + 300) // 60)):
        for node in watched:
            telemetry.sample(
                story, node, since - 300 + 60 * number + story.r.uniform(0, 1), {}, "life" if number > 8 else None
            )


@chain("hang", "all_stop")
def all_stop(story: Story) -> Told:
    """All ranks stop at the same step; nothing tells them apart."""
    course = start(story)
    t = train(story, course, low=1500)
    _life_goes_on(story, t, story.r.uniform(1500, 3000))
    return Told([
        Claim(class_="unknown/collective_timeout", also=["unknown/silent_rank"], needs=["life"], silent_ok=True),
        Claim(class_="unknown/collective_timeout", also=UNCLEAR, quiet=True, silent_ok=True),
    ])  # fmt: skip


@chain("hang", "one_behind")
def one_behind(story: Story) -> Told:
    """Every rank marks its steps; one did not reach the last that all others did."""
    course = start(story)
    t = train(story, course, low=1500)
    rank, r, fleet = story.pick(), story.r, story.fleet
    begin = t - 60 * course.step_s if course.step_s < 10 else t - 20 * course.step_s
    step, at = course.step, begin
    shown = fleet.ranks if not story.big else [rank, *r.sample([one for one in fleet.ranks if one is not rank], 127)]
    while at < t:
        at += course.step_s
        step += 1
        last = at >= t
        for one in shown:
            if one is rank and last:
                continue
            text = f"[{iso(one.node.clock, story.ns(at), digits=3)}] rank {one.rank} step {step} loss {course.loss:.4f}"
            story.rank(one, at + r.uniform(0, 0.1), text, "marks" if at > t - 3 * course.step_s else None)
    _life_goes_on(story, t, r.uniform(1500, 3000))
    who = [story.who(rank, gpu=False)]
    return Told(
        [
            Claim(
                class_="unknown/silent_rank",
                also=["unknown/collective_timeout"],
                culprits=who,
                needs=["life", "marks"],
                silent_ok=True,
            ),
            Claim(class_="unknown/collective_timeout", also=UNCLEAR, culprits=who, quiet=True, silent_ok=True),
        ],
        rank.node,
    )

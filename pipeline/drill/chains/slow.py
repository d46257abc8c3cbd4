"""C5, C18, C32: heat, starved CPUs, and ranks that are slow long before anything fails."""

from pipeline.drill.chains.common import UNCLEAR, fall, unclear, work_of
from pipeline.drill.collapse import Exit, Fall
from pipeline.drill.emit import host, telemetry, torch, training
from pipeline.drill.emit.telemetry import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL, Sample
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Node, Rank, Wants
from pipeline.drill.opening import start, train
from pipeline.drill.prefixes import iso
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim


def _slow_steps(story: Story, course: Course, until: float, factor: float, tag: str | None = None) -> None:
    """Steps that take `factor` times as long, up to a time."""
    seconds = course.step_s
    while course.at < until:
        seconds = min(seconds * 1.25, course.step_s * factor)
        every = max(1, course.every // 4)
        course.at += seconds * every
        course.step += every
        training.step_line(story, course, course.at, seconds, tag)


def _watch(
    story: Story, node: Node, begin: float, end: float, hot: dict[int, Sample], since: float, tag: str, rounds: int = 24
) -> None:
    """A telemetry file of a node; from `since` on some GPUs are as given."""
    telemetry.header(story, node, begin)
    for number in range(rounds):
        at = begin + (end - begin) * number / rounds
        telemetry.sample(story, node, at, hot if at >= since else {}, tag if at >= since and hot else None)


def _hot(story: Story, reasons: int) -> Sample:
    r = story.r
    return Sample(
        r.randrange(88, 95),
        r.choice((345, 600, 765, 1005)),
        r.uniform(180, 300),
        reasons,
        round(story.fleet.gpu_memory_mib * 0.82),
        100,
    )


@chain("C5", "cooling")
def cooling(story: Story) -> Told:
    """A node's cooling fails: its GPUs brake, steps crawl, at last a collective times out everywhere."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    node = rank.node
    hit = story.fleet.ranks_on(node) if r.random() < 0.5 else [rank]
    hot = {
        one.gpu.index: _hot(story, r.choice((HW_THERMAL | HW_SLOWDOWN, HW_THERMAL, SW_THERMAL | HW_THERMAL)))
        for one in hit
    }
    stall = t + r.uniform(300, 900)
    end = stall + story.fleet.job.timeout_s
    _watch(story, node, t - 600, end, hot, t, "hot")
    for other in [n for n in story.fleet.nodes if n is not node][:3]:
        _watch(story, other, t - 600, end, {}, end, "hot")
    if r.random() < 0.5:
        telemetry.bmc(
            story, node, t - 30, r.randrange(16, 200), "Temperature #0x30", "Upper Critical going high", "sel"
        )
    _slow_steps(story, course, stall, 9, "slow")
    Fall(
        story, max(stall, course.at), work_of(story, course), hung=[rank] if len(hit) == 1 and r.random() < 0.6 else []
    ).run()
    culprits = [story.who(one) for one in hit]
    return Told(
        [
            Claim(class_="hardware/thermal", culprits=[*culprits, story.node_as_culprit(node)], needs=["hot"]),
            Claim(
                class_="hardware/thermal",
                also=["hardware/gpu_slow", *UNCLEAR],
                culprits=[*culprits, story.node_as_culprit(node)],
                needs=["sel"],
                silent_ok=True,
            ),
            *unclear([*culprits, story.node_as_culprit(node)]),
        ],
        node,
    )


@chain("C5", "power_brake")
def power_brake(story: Story) -> Told:
    """The board brakes its GPUs for power."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    node, hit = rank.node, story.fleet.ranks_on(rank.node)
    hot = {
        one.gpu.index: Sample(
            r.randrange(45, 60),
            r.choice((210, 345, 600)),
            r.uniform(90, 180),
            POWER_BRAKE | HW_SLOWDOWN,
            round(story.fleet.gpu_memory_mib * 0.82),
            100,
        )
        for one in hit
    }
    stall = t + r.uniform(300, 900)
    _watch(story, node, t - 600, stall + story.fleet.job.timeout_s, hot, t, "brake")
    _slow_steps(story, course, stall, 9, "slow")
    Fall(story, max(stall, course.at), work_of(story, course)).run()
    culprits = [*(story.who(one) for one in hit), story.node_as_culprit(node)]
    return Told([Claim(class_="hardware/power", culprits=culprits, needs=["brake"]), *unclear(culprits)], node)


@chain("C18", "soft_lockup", Wants(torch=((2, 2), (9, 0))))
def soft_lockup(story: Story) -> Told:
    """CPUs of a node are stuck in kernel code: its ranks launch nothing more."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    node = rank.node
    at = t
    for _ in range(r.randrange(3, 9)):
        story.kernel(
            node,
            at,
            host.soft_lockup(r, r.randrange(96), r.choice((22, 23, 26, 45)), rank.comm, rank.host_pid),
            "kernel",
        )
        at += r.uniform(20, 60)
    if r.random() < 0.4:
        story.kernel(node, t + 21, "rcu: INFO: rcu_preempt self-detected stall on CPU", "kernel")
    if r.random() < 0.3 and story.fleet.job.timeout_s > 600:
        fall(story, course, t, exits=[Exit(rank, torch.heartbeat_stuck(story, rank, t, "cuda"), -6)], how="watchdog")
    else:
        Fall(story, t + course.step_s, work_of(story, course), hung=[rank]).run()
    who = [story.who(rank, gpu=False)]
    return Told(
        [
            Claim(class_="resource/cpu_starved", culprits=who, needs=["kernel"]),
            Claim(class_="software/watchdog_stuck", also=UNCLEAR, culprits=who, needs=["cuda"], silent_ok=True),
            *unclear(who),
        ],
        node,
    )


@chain("C18", "quota", Wants(container=True))
def quota(story: Story) -> Told:
    """A CPU quota throttles one container: its steps crawl until a collective times out."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    node = rank.node
    second = r.random() < 0.6
    for other in [node, *[n for n in story.fleet.nodes if n is not node][:3]]:
        periods, throttled, used = 10_000 + r.randrange(9000), r.randrange(0, 40), r.randrange(10**9, 10**11)
        for round_ in range(8):
            at = t - 600 + 240 * round_
            periods += 2400
            bad = other is node and round_ >= 3
            throttled += r.randrange(1300, 2200) if bad else r.randrange(0, 6)
            lost_us = throttled * 61_000
            values = (
                [
                    f"usage_usec {used}",
                    f"user_usec {used // 2}",
                    f"system_usec {used // 2}",
                    f"nr_periods {periods}",
                    f"nr_throttled {throttled}",
                    f"throttled_usec {lost_us}",
                    "nr_bursts 0",
                    "burst_usec 0",
                ]
                if second
                else [f"nr_periods {periods}", f"nr_throttled {throttled}", f"throttled_time {lost_us * 1000}"]
            )
            path = "/sys/fs/cgroup/cpu.stat" if second else "/sys/fs/cgroup/cpu/cpu.stat"
            telemetry.counters(
                story, other, at + r.uniform(0, 1), "cpu.stat.txt", f"cat {path}", values, "quota" if bad else None
            )
    stall = t + r.uniform(400, 900)
    _slow_steps(story, course, stall, 7, "slow")
    Fall(story, max(stall, course.at), work_of(story, course), hung=[rank] if r.random() < 0.5 else []).run()
    culprits = [story.node_as_culprit(node), *(story.who(one, gpu=False) for one in story.fleet.ranks_on(node))]
    return Told(
        [
            Claim(class_="resource/cpu_throttle", also=["resource/cpu_starved"], culprits=culprits, needs=["quota"]),
            *unclear(culprits),
        ],
        node,
    )


# --- slow, not failed ----------------------------------------------------------------------------------------------------


def _slow(story: Story, rank: Rank, class_: str, proof: str) -> Told:
    who = [story.who(rank)]
    return Told([
        Claim(class_=class_, culprits=who, needs=[proof]),
        Claim(class_="hardware/gpu_slow", also=[*UNCLEAR, class_], culprits=who, quiet=True, silent_ok=True),
    ], rank.node)  # fmt: skip


@chain("C32", "hot_gpu")
def hot_gpu(story: Story) -> Told:
    """One GPU brakes for heat for an hour: the job is slow and nothing fails."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    end = t + r.uniform(2400, 5400)
    hot = {rank.gpu.index: _hot(story, r.choice((HW_THERMAL | HW_SLOWDOWN, HW_THERMAL)))}
    _watch(story, rank.node, t - 1200, end, hot, t, "hot", 40)
    for other in [n for n in story.fleet.nodes if n is not rank.node][:3]:
        _watch(story, other, t - 1200, end, {}, end, "hot", 40)
    _slow_steps(story, course, end, 2.2, "slow")
    who = [story.who(rank)]
    return Told(
        [
            Claim(class_="hardware/thermal", culprits=who, needs=["hot"]),
            Claim(
                class_="hardware/gpu_slow",
                also=[*UNCLEAR, "hardware/thermal"],
                culprits=who,
                needs=["slow"],
                quiet=True,
                silent_ok=True,
            ),
            Claim(class_="hardware/gpu_slow", also=UNCLEAR, culprits=who, quiet=True, silent_ok=True),
        ],
        rank.node,
    )


@chain("C32", "low_clock")
def low_clock(story: Story) -> Told:
    """One GPU runs at a third of its clock and says no reason."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    end = t + r.uniform(2400, 5400)
    slow = {
        rank.gpu.index: Sample(
            r.randrange(48, 60),
            r.choice((345, 495, 600)),
            r.uniform(150, 240),
            0,
            round(story.fleet.gpu_memory_mib * 0.82),
            100,
        )
    }
    _watch(story, rank.node, t - 1200, end, slow, t, "clock", 40)
    for other in [n for n in story.fleet.nodes if n is not rank.node][:3]:
        _watch(story, other, t - 1200, end, {}, end, "clock", 40)
    _slow_steps(story, course, end, 2.5, "slow")
    who = [story.who(rank)]
    return Told([
        Claim(class_="hardware/gpu_slow", culprits=who, needs=["clock"]),
        Claim(class_="hardware/gpu_slow", also=UNCLEAR, culprits=who, quiet=True, silent_ok=True),
    ], rank.node)  # fmt: skip


@chain("C32", "straggler_report")
def straggler_report(story: Story) -> Told:
    """Megatron's straggler detector names the rank with the lowest throughput, again and again."""
    course = start(story)
    course.style = "megatron"
    t = train(story, course)
    rank, r, fleet = story.pick(), story.r, story.fleet
    first, world = fleet.ranks[0], len(fleet.ranks)
    for number in range(r.randrange(10, 24)):
        at = t + number * 150
        slow = number >= 2
        low, low_rank = (r.uniform(150, 210), rank.rank) if slow else (r.uniform(385, 392), r.randrange(world))
        high, most = r.uniform(394, 399), r.randrange(world)
        short = course.step_s * 1000 * 0.98
        late, late_rank = (short * 2.1, rank.rank) if slow else (short * 1.02, r.randrange(world))
        clock_mhz, temperature = fleet.gpu_clock_mhz, r.randrange(60, 68)
        text = (
            f"INFO:megatron.core.utils:[{iso(first.node.clock, story.ns(at))}] | MnRtt/Rnk: {short:.2f}ms/{most} | MxRtt/Rnk: {late:.2f}ms/{late_rank} | "
            f"MnPwr/Rnk: {r.uniform(390_000, 420_000):.2f}W/{low_rank} | MxPwr/Rnk: {r.uniform(600_000, 690_000):.2f}W/{most} | MnTmp/Rnk: 50.00C/{r.randrange(world)} | "
            f"MxTmp/Rnk: {temperature}.00C/{r.randrange(world)} | MnUtl/Rnk: 97.00%/{r.randrange(world)} | MxUtl/Rnk: 100.00%/{r.randrange(world)} | "
            f"MnClk/Rnk: {clock_mhz * (0.5 if slow else 0.99):.2f}MHz/{low_rank} | MxClk/Rnk: {clock_mhz}.00MHz/{most} | MnDRtt/Rnk: 1.22ms/{r.randrange(world)} | "
            f"MxDRtt/Rnk: {r.uniform(3, 30):.2f}ms/{r.randrange(world)} | MnEtpt/Rnk: {low:.2f}TF/{low_rank} | MxEtpt/Rnk: {high:.2f}TF/{most}"
        )
        story.rank(first, at, text, "straggler" if slow else None)
    _slow_steps(story, course, t + 2400, 2.1, "slow")
    return _slow(story, rank, "hardware/gpu_slow", "straggler")


@chain("C32", "rank_times")
def rank_times(story: Story) -> Told:
    """Every rank prints how long its own computing took: one takes twice as long as the others."""
    course = start(story)
    t = train(story, course)
    rank, r, fleet = story.pick(), story.r, story.fleet
    shown = [rank, *r.sample([one for one in fleet.ranks if one is not rank], min(len(fleet.ranks) - 1, 63))]
    for number in range(24):
        at = t + number * 120
        for one in shown:
            compute = (
                course.step_s * 0.7 * (r.uniform(2.0, 2.3) if one is rank and number >= 2 else r.uniform(0.97, 1.03))
            )
            story.rank(
                one,
                at + r.uniform(0, 0.5),
                f"{iso(one.node.clock, story.ns(at), digits=3, comma=',')} - trainer - INFO - rank {one.rank} step "
                f"{course.step + number * 50} forward_backward_s={compute:.3f} data_s={r.uniform(0.01, 0.05):.3f}",
                "times" if one is rank and number >= 2 else None,
            )
    return _slow(story, rank, "hardware/gpu_slow", "times")


@chain("C32", "narrow_pcie")
def narrow_pcie(story: Story) -> Told:
    """After a reboot a GPU's link came up with fewer lanes; the job is slow."""
    course = start(story)
    rank = story.pick()
    story.kernel(rank.node, -story.r.uniform(600, 3000), host.narrow_link(rank.gpu), "pcie")
    t = train(story, course)
    _slow_steps(story, course, t + 2400, 1.8, "slow")
    return _slow(story, rank, "hardware/pcie_link", "pcie")

"""C1, C3, C4, C6, C7, C8: GPUs, their links and their firmware fail."""

from pipeline.drill.chains.common import UNCLEAR, cuda_death, fall, process, unclear
from pipeline.drill.collapse import Exit
from pipeline.drill.emit import host, nvrm, torch
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Rank, Wants
from pipeline.drill.opening import start, train
from pipeline.drill.prefixes import fabric_manager
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim, Who

_LOST = ("unspecified launch failure", "unknown error")


def _end_of_gpu(story: Story, course: Course, rank: Rank, t: float, texts: tuple[str, ...], *, within_s: float) -> None:
    """The rank of a failed GPU meets a CUDA error, or hangs in a call that never returns."""
    if story.r.random() < 0.7:
        dead = cuda_death(story, rank, t + story.r.uniform(0.01, within_s), story.r.choice(texts))
        fall(story, course, t, exits=[dead])
    else:
        fall(story, course, t, hung=[rank])


def _off_bus(story: Story, rank: Rank, t: float) -> float:
    v, gpu = story.fleet.versions, rank.gpu
    witness = process(rank) if story.r.random() < 0.3 else None
    lines = [*nvrm.identity(gpu), *nvrm.fallen(v, gpu, witness)]
    t = story.kernel(rank.node, t, lines, "xid")
    return story.kernel(rank.node, t + 0.05, nvrm.recovery(v, gpu, 2), "xid")


def _gone(story: Story, rank: Rank, *, port_first: bool) -> list[Claim]:
    who = story.who(rank)
    also = ["hardware/pcie_link"] if port_first else []
    claims = [Claim(class_="hardware/gpu_xid_79", culprits=[who], needs=["xid"])]
    claims.append(
        Claim(
            class_="hardware/gpu_failure",
            also=["hardware/gpu_xid_79", *also],
            culprits=[who],
            needs=["cuda"],
            silent_ok=True,
        )
    )
    return [*claims, *unclear([who])]


@chain("C1", "surprise_down")
def surprise_down(story: Story) -> Told:
    """The link breaks, the port reports it, the GPU is gone."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    story.kernel(
        rank.node, t, host.aer_fatal(story.fleet.versions, rank.gpu, story.fleet.gpu_pci_id, surprise=True), "aer"
    )
    t = _off_bus(story, rank, t + story.r.uniform(0.08, 0.15))
    _end_of_gpu(story, course, rank, t, _LOST, within_s=20)
    return Told(_gone(story, rank, port_first=True), rank.node)


@chain("C1", "contained_port")
def contained_port(story: Story) -> Told:
    """The port cuts itself off or hot-plug sees the link go down; then 79."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    lines = (
        host.containment(story.fleet.versions, rank.gpu)
        if story.r.random() < 0.5
        else host.slot_down(rank.gpu, story.r.randrange(1, 20))
    )
    story.kernel(rank.node, t, lines, "aer")
    t = _off_bus(story, rank, t + story.r.uniform(0.002, 0.05))
    _end_of_gpu(story, course, rank, t, _LOST, within_s=20)
    return Told(_gone(story, rank, port_first=True), rank.node)


@chain("C1", "only_79")
def only_79(story: Story) -> Told:
    """No word from the port."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    t = _off_bus(story, rank, t)
    if story.r.random() < 0.4:
        for _ in range(story.r.randrange(1, 4)):
            t = story.kernel(rank.node, t + 6, nvrm.gsp_timeout(story.r, story.fleet.versions, rank.gpu, process(rank)))
    _end_of_gpu(story, course, rank, t, _LOST, within_s=60)
    return Told(_gone(story, rank, port_first=False), rank.node)


@chain("C1", "no_79")
def no_79(story: Story) -> Told:
    """The port reports a fatal error and cannot recover the device; the driver prints no 79."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    t = story.kernel(
        rank.node, t, host.aer_fatal(story.fleet.versions, rank.gpu, story.fleet.gpu_pci_id, surprise=False), "aer"
    )
    t = story.kernel(rank.node, t + story.r.uniform(0.5, 3), host.recovery_failed(rank.gpu), "aer")
    _end_of_gpu(story, course, rank, t, _LOST, within_s=20)
    who = story.who(rank)
    return Told([
        Claim(class_="hardware/pcie_link", culprits=[who], needs=["aer"]),
        Claim(class_="hardware/gpu_failure", culprits=[who], needs=["cuda"], silent_ok=True), *unclear([who]),
    ], rank.node)  # fmt: skip


@chain("C1", "gone_at_probe")
def gone_at_probe(story: Story) -> Told:
    """A GPU is gone when the driver looks for it: no Xid is printed, and the job's last rank there finds no device."""
    course = start(story, joins=False)
    node, r, fleet = story.pick().node, story.r, story.fleet
    gone = r.choice(node.gpus)
    story.kernel(node, -r.uniform(300, 3000), nvrm.missing_at_probe(gone, fleet.gpu_pci_id), "probe")
    last = fleet.ranks_on(node)[-1]
    done = torch.cuda_error(story, last, 15 + r.uniform(0, 2), "invalid device ordinal", "cuda")
    fall(story, course, 15, exits=[Exit(last, done + r.uniform(0.2, 1), 1)], how="killed")
    who = Who(node=node.name, aliases=story.aliases(node), pci_bus_id=gone.bdf)
    ranks = [story.who(last, gpu=False)]
    return Told([
        Claim(class_="hardware/gpu_xid_79", culprits=[who], needs=["probe"]),
        Claim(class_="hardware/gpu_failure", also=["software/python_exception", "software/config_error", *UNCLEAR],
              culprits=[who, *ranks], needs=["cuda"], silent_ok=True), *unclear([who, *ranks]),
    ], node)  # fmt: skip


@chain("C3", "double_bit")
def double_bit(story: Story) -> Told:
    """An uncorrectable error in the GPU's memory."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    v, r = story.fleet.versions, story.r
    lines = [
        *nvrm.identity(rank.gpu),
        *nvrm.double_bit(r, v, rank.gpu, process(rank)),
        *nvrm.recovery(v, rank.gpu, 1, process(rank)),
    ]
    story.kernel(rank.node, t, lines, "xid")
    dead = cuda_death(story, rank, t + r.uniform(0.5, 1.5), "uncorrectable ECC error encountered")
    fall(story, course, t, exits=[dead])
    return Told(_ecc(story, rank), rank.node)


def _ecc(story: Story, rank: Rank) -> list[Claim]:
    who = story.who(rank)
    return [
        Claim(class_="hardware/gpu_ecc_uncorrectable", culprits=[who], needs=["xid"]),
        Claim(
            class_="hardware/gpu_ecc_uncorrectable",
            also=["hardware/gpu_failure"],
            culprits=[who],
            needs=["cuda"],
            silent_ok=True,
        ),
        *unclear([who]),
    ]


@chain("C4", "contained")
def contained(story: Story) -> Told:
    """Xid 94: only the process that touched it pays."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    v, r = story.fleet.versions, story.r
    lines = [
        *nvrm.identity(rank.gpu),
        *nvrm.contained(r, v, rank.gpu, process(rank)),
        nvrm.remapped(v, rank.gpu, r.getrandbits(24), process(rank)),
    ]
    story.kernel(rank.node, t, lines, "xid")
    dead = cuda_death(story, rank, t + r.uniform(0.2, 2), "uncorrectable ECC error encountered")
    fall(story, course, t, exits=[dead])
    return Told(_ecc(story, rank), rank.node)


@chain("C4", "uncontained")
def uncontained(story: Story) -> Told:
    """Xid 95: every process of the GPU pays."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    v, r = story.fleet.versions, story.r
    story.kernel(rank.node, t, [*nvrm.identity(rank.gpu), *nvrm.uncontained(r, v, rank.gpu, process(rank))], "xid")
    dead = cuda_death(story, rank, t + r.uniform(0.2, 2), "uncorrectable ECC error encountered")
    fall(story, course, t, exits=[dead])
    return Told(_ecc(story, rank), rank.node)


@chain(
    "C6", "link_event", Wants(models=("B200", "GB200"), drivers=(570, 999), torch=((2, 5), (9, 0)), kernels=(601, 9900))
)
def link_event(story: Story) -> Told:
    """An NVLink of a Blackwell GPU loses its signal; its peers lose what was in flight."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    v, r, link = story.fleet.versions, story.r, story.r.randrange(18)
    peers = [other for other in story.fleet.ranks_on(rank.node) if other is not rank]
    story.kernel(rank.node, t, [*nvrm.identity(rank.gpu), nvrm.nvlink_down(r, v, rank.gpu, link)], "xid")
    for peer in r.sample(peers, r.choice((1, 2, len(peers)))):
        story.kernel(rank.node, t + 0.0006, nvrm.nvlink_remote(r, v, peer.gpu, r.randrange(18)), "xid")
    story.kernel(rank.node, t + 0.283, nvrm.torn_down(r, v, rank.gpu, process(rank), previous=149), "xid")
    story.kernel(rank.node, t + 0.404, nvrm.recovery(v, rank.gpu, 1), "xid")
    text = r.choice(
        (
            "uncorrectable NVLink error detected during the execution",
            "CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory over nvlink or a hardware error",
        )
    )
    dead = cuda_death(story, rank, t + r.uniform(0.5, 3), text)
    fall(story, course, t, exits=[dead])
    who = story.who(rank)
    return Told(
        [
            Claim(class_="hardware/nvlink_fault", culprits=[who], needs=["xid"]),
            Claim(
                class_="hardware/nvlink_fault",
                also=["hardware/gpu_failure"],
                culprits=[who],
                needs=["cuda"],
                silent_ok=True,
            ),
            *unclear([who]),
        ],
        rank.node,
    )


@chain("C7", "switch_fatal", Wants(drivers=(0, 565)))
def switch_fatal(story: Story) -> Told:
    """An NVSwitch of a board fails; every GPU at its end goes with it."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    node, v, r = rank.node, story.fleet.versions, story.r
    switch, port = r.randrange(4), r.randrange(64)
    bdf = f"0000:{5 + switch:02x}:00.0"
    number, text = r.choice(
        (
            (20034, "LTSSM Fault Up"),
            (24007, "sourcetrack TCEN0 crubmstore ECC DBE Error"),
            (12020, "egress sequence ID error"),
        )
    )
    story.kernel(node, t, nvrm.switch_error(r, switch, bdf, number, port, text=text, fatal=True), "sxid")
    stamp = fabric_manager(node.clock, story.ns(t + 0.3))
    story.service(
        node,
        "fabricmanager.log",
        t + 0.3,
        f"{stamp} [ERROR] [tid 841] detected NVSwitch fatal error {number} on "
        f"fid 0 on NVSwitch pci bus id 0000{bdf} physical id {switch} port {port}",
        "fm",
    )
    hit = r.sample(story.fleet.ranks_on(node), r.choice((2, 4, len(node.gpus))))
    for victim in hit:
        story.kernel(node, t + 0.01, nvrm.nvlink4_fatal(r, v, victim.gpu, r.randrange(12)), "xid")
        story.kernel(node, t + 0.02, nvrm.torn_down(r, v, victim.gpu, process(victim)), "xid")
    exits = [
        cuda_death(story, victim, t + r.uniform(0.3, 4), "uncorrectable NVLink error detected during the execution")
        for victim in hit
    ]
    fall(story, course, t, exits=exits)
    who, ranks = story.node_as_culprit(node), [story.who(victim) for victim in hit]
    return Told(
        [
            Claim(class_="hardware/nvswitch_sxid", culprits=[who], needs=["sxid"]),
            Claim(class_="hardware/nvswitch_sxid", also=["hardware/nvlink_fault"], culprits=[who], needs=["fm"]),
            Claim(
                class_="hardware/nvlink_fault",
                also=["hardware/gpu_failure"],
                culprits=ranks,
                needs=["cuda"],
                silent_ok=True,
            ),
            *unclear(ranks),
        ],
        node,
    )


@chain("C8", "gsp_hang", Wants(torch=((2, 2), (9, 0))))
def gsp_hang(story: Story) -> Told:
    """The GPU's firmware stops answering: every call waits, then the watchdog's own watchdog gives up."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    v, r = story.fleet.versions, story.r
    callers = [
        process(rank),
        process(rank),
        (r.randrange(2000, 9000), "nvidia-smi"),
        (r.randrange(1000, 2000), "nv-hostengine"),
    ]
    story.kernel(
        rank.node,
        t,
        [*nvrm.identity(rank.gpu), nvrm.gsp_timeout(r, v, rank.gpu, process(rank)), *nvrm.gsp_history(r, rank.gpu)],
        "xid",
    )
    for number in range(1, r.randrange(3, 12)):
        story.kernel(rank.node, t + 6 * number, nvrm.gsp_timeout(r, v, rank.gpu, r.choice(callers)), "xid")
    if r.random() < 0.5:
        story.kernel(rank.node, t + 6 * 12, nvrm.gsp_limited(rank.gpu), "xid")
    if r.random() < 0.5 and story.fleet.job.timeout_s > 600:
        aborted = torch.heartbeat_stuck(story, rank, t + r.uniform(0, 5), "cuda")
        fall(story, course, t, exits=[Exit(rank, aborted, -6)])
    else:
        fall(story, course, t, hung=[rank])
    who = story.who(rank)
    return Told(
        [
            Claim(class_="hardware/gpu_xid_119", culprits=[who], needs=["xid"]),
            Claim(
                class_="software/watchdog_stuck",
                also=["hardware/gpu_failure"],
                culprits=[who],
                needs=["cuda"],
                silent_ok=True,
            ),
            *unclear([who]),
        ],
        rank.node,
    )


@chain("C8", "off_bus_then_gsp")
def off_bus_then_gsp(story: Story) -> Told:
    """79 came first; the timeouts are its aftermath."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    t = _off_bus(story, rank, t)
    for number in range(story.r.randrange(2, 6)):
        story.kernel(
            rank.node, t + 6 * (number + 1), nvrm.gsp_timeout(story.r, story.fleet.versions, rank.gpu, process(rank))
        )
    fall(story, course, t, hung=[rank])
    return Told(_gone(story, rank, port_first=False), rank.node)


@chain("C8", "halted_then_gsp")
def halted_then_gsp(story: Story) -> Told:
    """62, then the channels, then the firmware's timeouts."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    v, r = story.fleet.versions, story.r
    story.kernel(rank.node, t, [*nvrm.identity(rank.gpu), nvrm.halted(r, v, rank.gpu)], "xid")
    story.kernel(rank.node, t + 30, nvrm.torn_down(r, v, rank.gpu, process(rank)), "xid")
    story.kernel(rank.node, t + 45, nvrm.gsp_timeout(r, v, rank.gpu, process(rank)), "xid")
    story.kernel(rank.node, t + 46, nvrm.recovery(v, rank.gpu, 1), "xid")
    _end_of_gpu(story, course, rank, t + 30, ("unspecified launch failure",), within_s=10)
    who = story.who(rank)
    return Told([
        Claim(class_="hardware/gpu_error", also=["hardware/gpu_xid_119"], culprits=[who], needs=["xid"]),
        Claim(class_="hardware/gpu_failure", culprits=[who], needs=["cuda"], silent_ok=True), *unclear([who]),
    ], rank.node)  # fmt: skip

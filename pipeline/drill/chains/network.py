"""C10, C11, C12, C13: ports, cables, cards and congestion."""

from pipeline.drill.chains.common import UNCLEAR, fall, unclear, work_of
from pipeline.drill.collapse import Fall
from pipeline.drill.emit import host, nccl, telemetry, torch, training
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Nic, Rank, Wants
from pipeline.drill.names import hexes
from pipeline.drill.opening import start, train
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim

_OLD_IB = Wants(networks=("ib",), min_nodes=2, kernels=(0, 612))
_ROCE = Wants(networks=("roce",), min_nodes=2)


def _broken_link(story: Story, course: Course, rank: Rank, t: float, *, both_ends: bool = True) -> None:
    """The HCA of a rank cannot reach anybody: its neighbours give up on it, and it on them; flushes follow; all abort."""
    fleet, r = story.fleet, story.r
    nic, count = rank.nic(), len(fleet.nodes)
    peers = [
        other
        for other in fleet.ranks
        if other.local == rank.local
        and other.node is not rank.node
        and (other.node.number - rank.node.number) % count in (1, count - 1)
    ]
    pairs = [(peer, rank) for peer in peers] + ([(rank, peers[0])] if both_ends else [])
    falling = Fall(story, t, work_of(story, course))
    where = nccl.net_file(fleet)
    first_seen = t + fleet.job.ib_timeout_s * r.uniform(0.95, 1.15)
    last_text = ""
    for here, there in pairs:
        at = first_seen + r.uniform(0, 1.5)
        own = nic if here is rank else here.nic()
        last_text = nccl.completion_text(r, fleet, there.node, 12, own, there.nic(), r.choice(("Send", "Recv")))
        nccl.warn(story, here, at, where, last_text, "wc")
        for number in range(r.choice((0, 2, 6))):
            flushed = nccl.completion_text(r, fleet, there.node, 5, own, there.nic(), r.choice(("Send", "Recv")))
            nccl.warn(story, here, at + 0.01 * (number + 1), where, flushed, "wc")
        nccl.echo(story, here, at + 0.1, 6)
        if here.rank not in falling.ended:
            done = torch.nccl_abort(
                story, here, at + r.uniform(0.1, 2), nccl.failure_text(fleet, 6, last_text), "wc_torch"
            )
            falling.ended[here.rank] = (done + r.uniform(0.05, 0.5), -6)
    _rest_follows(story, falling, first_seen + 2, rank)


def _rest_follows(story: Story, falling: Fall, t: float, rank: Rank) -> None:
    """Whoever did not see the link itself sees closed connections to those who did, or is stopped."""
    fleet, r = story.fleet, story.r
    first = fleet.ranks[next(iter(falling.ended))]
    for other in fleet.ranks:
        if other.rank in falling.ended or r.random() < 0.3 or (story.big and other.rank % 8):
            continue
        text = nccl.closed_text(fleet, r, first if other.node is not first.node else rank)
        at = t + r.uniform(0.5, 6)
        nccl.warn(story, other, at, "misc/socket.cc:58", text, "peers")
        done = torch.nccl_abort(story, other, at + r.uniform(0.01, 1), nccl.failure_text(fleet, 6, text), "peers")
        falling.ended[other.rank] = (done + r.uniform(0.05, 0.5), -6)
    falling.finish()


def _claims(story: Story, rank: Rank, class_: str, nic: Nic, *, tag: str, weaker: str) -> list[Claim]:
    who = story.node_as_culprit(rank.node, nic=nic)
    hit = [
        who,
        *(
            story.who(other, gpu=False)
            for other in story.fleet.ranks
            if other.local == rank.local
            and (other.node.number - rank.node.number) % len(story.fleet.nodes) in (0, 1, len(story.fleet.nodes) - 1)
        ),
    ]
    return [
        Claim(class_=class_, culprits=[who], needs=[tag]),
        Claim(class_=weaker, also=[class_, *UNCLEAR], culprits=hit, needs=["wc"], silent_ok=True),
        Claim(class_=weaker, also=UNCLEAR, culprits=hit, needs=["wc_torch"], silent_ok=True), *unclear(hit),
    ]  # fmt: skip


def _flapped(story: Story, rank: Rank) -> Told:
    weaker = "network/ib_retry_exceeded"
    return Told(_claims(story, rank, "network/ib_link_flap", rank.nic(), tag="port", weaker=weaker), rank.node)


@chain("C10", "port_kernel", Wants(networks=("ib",), min_nodes=2, kernels=(614, 9900)))
def port_kernel(story: Story) -> Told:
    """An InfiniBand port goes down and a new kernel says so."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    nic = rank.nic()
    story.kernel(rank.node, t, host.ib_port(nic, "DOWN"), "port")
    if story.r.random() < 0.5:
        nccl.async_event(story, rank, t + 0.01, nic, "port error", 10, "port")
    _broken_link(story, course, rank, t)
    if story.r.random() < 0.4:
        story.kernel(rank.node, t + story.fleet.job.ib_timeout_s + story.r.uniform(20, 90), host.ib_port(nic, "ACTIVE"))
    return _flapped(story, rank)


@chain("C10", "port_event", _OLD_IB)
def port_event(story: Story) -> Told:
    """Older kernels say nothing: NCCL hears the port's event."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    nic = rank.nic()
    for other in story.fleet.ranks_on(rank.node):
        if other.nic() is nic or story.r.random() < 0.5:
            nccl.async_event(story, other, t + story.r.uniform(0, 0.05), nic, "port error", 10, "port")
    _broken_link(story, course, rank, t)
    return _flapped(story, rank)


@chain("C10", "port_counters", _OLD_IB)
def port_counters(story: Story) -> Told:
    """Nobody prints it; a script that dumps ibstat every few minutes shows the port down."""
    course = start(story)
    t = train(story, course)
    rank = story.pick()
    nic = rank.nic()
    _ibstat(story, rank, nic, t - 200, up=True)
    _ibstat(story, rank, nic, t + 1.5, up=False)
    _broken_link(story, course, rank, t)
    return _flapped(story, rank)


def _ibstat(story: Story, rank: Rank, nic: Nic, t: float, *, up: bool) -> None:
    state, physical, rate = ("Active", "LinkUp", 400) if up else ("Down", "Polling", 10)
    telemetry.counters(
        story,
        rank.node,
        t,
        "ibstat.txt",
        f"ibstat {nic.name}",
        [
            f"CA '{nic.name}'",
            "\tCA type: MT4129",
            "\tNumber of ports: 1",
            "\tFirmware version: 28.39.1002",
            "\tHardware version: 0",
            f"\tNode GUID: 0x{hexes(story.r, 16)}",
            f"\tSystem image GUID: 0x{hexes(story.r, 16)}",
            "\tPort 1:",
            f"\t\tState: {state}",
            f"\t\tPhysical state: {physical}",
            f"\t\tRate: {rate}",
            "\t\tBase lid: 211",
            "\t\tLMC: 0",
            "\t\tSM lid: 3",
            "\t\tCapability mask: 0xa651e848",
            f"\t\tPort GUID: 0x{hexes(story.r, 16)}",
            "\t\tLink layer: InfiniBand",
        ],
        None if up else "port",
    )


@chain("C11", "cable", _ROCE)
def cable(story: Story) -> Told:
    """A cable or module fails, the Ethernet link goes down, RoCE gives up."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    nic = rank.nic()
    lines = r.choice(
        (
            [
                host.module_error(
                    nic,
                    r.choice(("High Temperature", "Bus stuck (I2C or data shorted)", "Bad or shorted cable/module")),
                ),
                host.link(nic, "down"),
            ],
            [host.module(nic, "Cable unplugged"), host.link(nic, "down")],
            [host.link(nic, "down")],
        )
    )
    story.kernel(rank.node, t, lines, "port")
    _broken_link(story, course, rank, t)
    claims = _claims(story, rank, "network/roce_retry_exceeded", nic, tag="port", weaker="network/roce_retry_exceeded")
    return Told(claims, rank.node)


@chain("C11", "cable_ib", Wants(networks=("ib",), min_nodes=2))
def cable_ib(story: Story) -> Told:
    """The same on InfiniBand: the module's event is all the kernel prints."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    nic = rank.nic()
    story.kernel(
        rank.node,
        t,
        r.choice((host.module(nic, "Cable unplugged"), host.module_error(nic, "High Temperature"))),
        "port",
    )
    nccl.async_event(story, rank, t + 0.02, nic, "port error", 10, "port")
    _broken_link(story, course, rank, t)
    return _flapped(story, rank)


@chain("C12", "firmware", Wants(networks=("ib", "roce"), min_nodes=2))
def firmware(story: Story) -> Told:
    """The card's firmware dies and does not come back."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    nic = rank.nic()
    story.kernel(rank.node, t, host.nic_health(r, nic), "health")
    story.kernel(rank.node, t + r.uniform(10, 60), host.nic_not_recovered(r, nic), "health")
    if r.random() < 0.5:
        nccl.async_event(story, rank, t + 0.02, nic, "local catastrophic error", 8, None)
    _broken_link(story, course, rank, t)
    weaker = "network/ib_retry_exceeded" if story.fleet.job.network == "ib" else "network/roce_retry_exceeded"
    return Told(_claims(story, rank, "hardware/ib_hca_fatal", nic, tag="health", weaker=weaker), rank.node)


@chain("C13", "discards", _ROCE)
def discards(story: Story) -> Told:
    """A congested fabric: counters climb everywhere, steps take ever longer, at last a collective times out."""
    course = start(story)
    t = train(story, course)
    r, fleet = story.r, story.fleet
    watched = list(fleet.nodes)[:16]
    drops = {node.name: r.randrange(0, 500) for node in watched}
    for round_ in range(8):
        at = t - 900 + 300 * round_
        for node in watched:
            drops[node.name] += 0 if round_ < 3 else r.randrange(40_000, 900_000)
            nic = node.nics[0]
            marked = drops[node.name] * 7
            telemetry.counters(
                story,
                node,
                at + r.uniform(0, 2),
                "ethtool.txt",
                f"ethtool -S {nic.netdev}",
                [
                    "NIC statistics:",
                    f"     rx_packets_phy: {10**11 + round_ * 10**9}",
                    f"     rx_discards_phy: {drops[node.name]}",
                    "     rx_crc_errors_phy: 0",
                    f"     rx_prio3_pause: {drops[node.name] * 3}",
                    f"     tx_prio3_pause: {drops[node.name]}",
                    f"     rx_prio3_discards: {drops[node.name]}",
                    "     link_down_events_phy: 0",
                    f"     np_ecn_marked_roce_packets: {marked}",
                ],
                "counters" if round_ >= 3 else None,
            )
    seconds = course.step_s
    while course.at < t + 700:
        seconds *= r.uniform(1.15, 1.5)
        seconds = min(seconds, 240)
        course.at += seconds
        course.step += 1
        training.step_line(story, course, course.at, seconds)
    work = work_of(story, course)
    Fall(story, course.at + 1, work).run()
    return Told(
        [
            Claim(class_="network/fabric_congestion", needs=["counters"], silent_ok=True, shared=True),
            Claim(
                class_="unknown/collective_timeout",
                also=[*UNCLEAR, "network/fabric_congestion"],
                quiet=True,
                silent_ok=True,
            ),
        ]
    )


@chain("C13", "retransmits", Wants(networks=("socket",), min_nodes=2))
def retransmits(story: Story) -> Told:
    """TCP loses packets everywhere: netstat shows it."""
    course = start(story)
    t = train(story, course)
    r, fleet = story.r, story.fleet
    again = {node.name: r.randrange(1000, 5000) for node in fleet.nodes[:16]}
    for round_ in range(6):
        for node in fleet.nodes[:16]:
            again[node.name] += r.randrange(10, 90) if round_ < 2 else r.randrange(300_000, 2_000_000)
            out = 10**9 + round_ * 20_000_000
            telemetry.counters(
                story,
                node,
                t - 600 + 300 * round_ + r.uniform(0, 2),
                "netstat.txt",
                "netstat -s",
                [
                    "Tcp:",
                    f"    {out} segments sent out",
                    f"    {again[node.name]} segments retransmitted",
                    "    0 bad segments received",
                    "TcpExt:",
                    f"    {again[node.name] // 3} fast retransmits",
                    f"    TCPTimeouts: {again[node.name] // 9}",
                    f"    TCPLostRetransmit: {again[node.name] // 20}",
                ],
                "counters" if round_ >= 2 else None,
            )
    seconds = course.step_s
    while course.at < t + 500:
        seconds = min(seconds * r.uniform(1.2, 1.6), 240)
        course.at += seconds
        course.step += 1
        training.step_line(story, course, course.at, seconds)
    fall(story, course, course.at)
    return Told(
        [
            Claim(class_="network/fabric_congestion", needs=["counters"], silent_ok=True, shared=True),
            Claim(
                class_="unknown/collective_timeout",
                also=[*UNCLEAR, "network/fabric_congestion"],
                quiet=True,
                silent_ok=True,
            ),
        ]
    )

"""C20, C21, C22, C23: disks, full file systems, NFS and Lustre."""

from pipeline.drill.chains.common import UNCLEAR, fall, unclear
from pipeline.drill.collapse import Exit, Fall
from pipeline.drill.emit import host, torch, training
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Rank
from pipeline.drill.opening import start, train
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim

_SITE = "/opt/lib/python3.10/site-packages/torch"


def _save_error(story: Story, rank: Rank, t: float, error: str, tag: str = "py") -> Exit:
    frames = [
        (f"/workspace/{story.fleet.job.script}", 245, "<module>", "main()"),
        (f"/workspace/{story.fleet.job.script}", 161, "save_checkpoint", "torch.save(state, path)"),
        (f"{_SITE}/serialization.py", 628, "save", "_save(obj, opened_zipfile, pickle_module, pickle_protocol)"),
    ]
    done = torch.python(story, rank, t, torch.traceback(story.fleet, frames, [error]), tag)
    return Exit(rank, done + story.r.uniform(0.3, 2), 1)


@chain("C20", "disk_lost")
def disk_lost(story: Story) -> Told:
    """An NVMe disk stops answering, does not come back, and the checkpoint on it fails."""
    return _disk(story, lost=True)


@chain("C20", "disk_errors")
def disk_errors(story: Story) -> Told:
    """A disk gives write errors but stays."""
    return _disk(story, lost=False)


def _disk(story: Story, *, lost: bool) -> Told:
    course = start(story)
    t = train(story, course)
    rank, r, v = story.pick() if story.r.random() < 0.5 else story.fleet.ranks[0], story.r, story.fleet.versions
    disk, node = r.randrange(8), None
    node = rank.node
    training.save_begin(story, course, t - 2)
    if lost:
        story.kernel(node, t, host.nvme_timeout(r, v, disk, "aborting"), "kernel")
        story.kernel(node, t + 30, host.nvme_timeout(r, v, disk, "reset controller"), "kernel")
        t = story.kernel(node, t + 31, host.nvme_down(disk, gone=r.random() < 0.5), "kernel")
        t = story.kernel(node, t + r.uniform(1, 8), host.nvme_lost(v, disk), "kernel")
    for _ in range(r.choice((1, 3, 6))):
        t = story.kernel(node, t + 0.01, host.block_error(r, v, disk), "kernel")
    gone = host.ext4_gone(r, disk) if r.random() < 0.5 else host.xfs_gone(disk)
    t = story.kernel(node, t + 0.02, gone, "kernel")
    errno = "[Errno 30] Read-only file system" if "EXT4" in gone[-1] else "[Errno 5] Input/output error"
    path = f"/local/nvme{disk}/ckpt/step-{course.step}/rank_{rank.rank}.pt"
    dead = _save_error(story, rank, t + r.uniform(0.1, 3), f"OSError: {errno}: '{path}'")
    fall(story, course, t, exits=[dead])
    who = story.who(rank, gpu=False)
    class_ = "hardware/nvme" if lost else "storage/local_disk_error"
    return Told(
        [
            Claim(class_=class_, culprits=[who], needs=["kernel"]),
            Claim(
                class_="storage/local_disk_error",
                also=["storage/checkpoint_write", "software/python_exception"],
                culprits=[who],
                needs=["py"],
                silent_ok=True,
            ),
            *unclear([who]),
        ],
        node,
    )


@chain("C21", "errno_28")
def errno_28(story: Story) -> Told:
    """No space for the checkpoint; Python says so."""
    return _full(story, plain=True)


@chain("C21", "stream_writer")
def stream_writer(story: Story) -> Told:
    """No space for the checkpoint; torch's own writer does not say why."""
    return _full(story, plain=False)


def _full(story: Story, *, plain: bool) -> Told:
    course = start(story)
    t = train(story, course)
    r = story.r
    rank = story.fleet.ranks[0] if r.random() < 0.6 else story.pick()
    training.save_begin(story, course, t)
    root = story.fleet.job.checkpoints
    if plain:
        error = f"OSError: [Errno 28] No space left on device: '{root}/step-{course.step}/rank_{rank.rank}.pt'"
        class_, also = "storage/disk_full", []
    else:
        at = r.randrange(10**6, 10**8)
        error = r.choice((
            f"RuntimeError: PytorchStreamWriter failed writing file data/{r.randrange(90)}: file write failed",
            f"RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos {at} vs {at - 104}",
        ))  # fmt: skip
        class_, also = "storage/checkpoint_write", ["storage/disk_full"]
    dead = _save_error(story, rank, t + r.uniform(2, 40), error)
    fall(story, course, dead.at, exits=[dead])
    who = story.who(rank, gpu=False)
    return Told([Claim(class_=class_, also=also, culprits=[who], needs=["py"]), *unclear([who])], None)


@chain("C22", "server_silent")
def server_silent(story: Story) -> Told:
    """The file server stops answering while rank 0 saves: everybody waits, the watchdogs end it."""
    course = start(story)
    t = train(story, course)
    r, fleet = story.r, story.fleet
    server, rank = r.choice(("nas01", "nas-exp", "10.60.0.9", "filer3")), fleet.ranks[0]
    training.save_begin(story, course, t, "save")
    clients = list(fleet.nodes) if r.random() < 0.6 else [rank.node]
    for node in clients[:: max(1, len(clients) // 64)]:
        story.kernel(
            node,
            t + r.uniform(60, 180) if node is not rank.node else t + r.uniform(60, 90),
            host.nfs_silent(server),
            "kernel",
        )
    stack = ("io_schedule", "folio_wait_bit_common", "nfs_wb_all", "nfs4_file_flush", "filp_close")
    story.kernel(rank.node, t + r.uniform(125, 240), host.hung_task(r, rank.comm, rank.host_pid, stack), "hung")
    _waits(story, course, t, rank)
    after = story.end_s
    if r.random() < 0.5:
        for node in clients[:: max(1, len(clients) // 64)]:
            story.kernel(node, after + r.uniform(60, 300), host.nfs_ok(server))
    hit = [story.who(rank, gpu=False), *(story.node_as_culprit(node) for node in clients if node is not rank.node)]
    return Told(
        [
            Claim(class_="storage/nfs_unresponsive", culprits=hit, needs=["kernel"], shared=True),
            Claim(
                class_="storage/fs_hang",
                also=["storage/nfs_unresponsive", "storage/checkpoint_write", *UNCLEAR],
                culprits=hit,
                needs=["save", "peers"],
                silent_ok=True,
            ),
            *unclear(hit),
        ]
    )


def _waits(story: Story, course: Course, t: float, rank: Rank) -> None:
    """Rank 0 hangs in its save; the others wait for it in the next collective."""
    work = torch.Work(max(course.step, 1) * 7 + 5, story.r.choice(("ALLREDUCE", "_ALLGATHER_BASE", "BARRIER")), 1, 1)
    if work.op == "_ALLGATHER_BASE":
        work = torch.Work(work.seq, work.op, 16, 16 * len(story.fleet.ranks))
    Fall(story, t + story.r.uniform(0.1, 2), work, hung=[rank]).run()


@chain("C23", "evicted")
def evicted(story: Story) -> Told:
    """A Lustre client loses a target and is evicted: its saves fail."""
    course = start(story)
    t = train(story, course)
    r = story.r
    rank = story.pick()
    target, nid = f"scratch-OST{r.randrange(64):04x}", f"10.0.1.{r.randrange(2, 250)}@o2ib"
    sent = rank.node.clock.wall_ns(story.ns(t)) // 1_000_000_000
    lost, gone = host.lustre_evicted(r, target, nid, sent)
    training.save_begin(story, course, t)
    story.kernel(rank.node, t + r.uniform(100, 130), lost, "kernel")
    at = story.kernel(rank.node, t + r.uniform(160, 300), gone, "kernel")
    if r.random() < 0.5 and story.fleet.versions.torch >= (2, 1):
        error = (
            f"torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([{rank.rank}])"
        )
        inner = f"OSError: [Errno 108] Cannot send after transport endpoint shutdown: '{story.fleet.job.checkpoints}/step-{course.step}/__{rank.rank}_0.distcp'"
        dead = _save_error(story, rank, at + r.uniform(0.01, 1), inner)
        if rank.rank != 0:
            torch.python(
                story,
                story.fleet.ranks[0],
                dead.at + 0.1,
                torch.traceback(story.fleet, torch.step_frames(story.fleet)[:2], [error]),
                "py",
            )
    else:
        dead = _save_error(
            story,
            rank,
            at + r.uniform(0.01, 1),
            f"OSError: [Errno 5] Input/output error: '{story.fleet.job.checkpoints}/step-{course.step}/rank_{rank.rank}.pt'",
        )
    fall(story, course, dead.at, exits=[dead])
    who = story.who(rank, gpu=False)
    return Told(
        [
            Claim(class_="storage/lustre_eviction", culprits=[who], needs=["kernel"], silent_ok=True),
            Claim(
                class_="storage/checkpoint_write",
                also=[
                    "storage/lustre_eviction",
                    "storage/fs_hang",
                    "storage/local_disk_error",
                    "software/python_exception",
                ],
                culprits=[who],
                needs=["py"],
                silent_ok=True,
            ),
            *unclear([who]),
        ],
        rank.node,
    )

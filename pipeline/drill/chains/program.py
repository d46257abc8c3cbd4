"""C2, C9, C17, C19, C31: the program itself is at fault, or the data it reads."""

from dataclasses import replace

from pipeline.drill.chains.common import UNCLEAR, cuda_death, fall, process, unclear, work_of
from pipeline.drill.collapse import Exit, Fall
from pipeline.drill.emit import host, nvrm, torch
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Rank, Wants
from pipeline.drill.opening import start, train
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim, Who

_SITE = "/opt/lib/python3.10/site-packages/torch"


def _code_claims(
    story: Story, rank: Rank, class_: str, *, also: list[str] | None = None, kernel: str = "xid"
) -> list[Claim]:
    who = story.who(rank)
    return [
        Claim(class_=class_, also=also or [], culprits=[who], needs=[kernel, "cuda"]),
        Claim(class_=class_, also=[*(also or []), "hardware/gpu_failure"], culprits=[who], needs=["cuda"]),
        Claim(class_=class_, also=[*(also or []), *UNCLEAR], culprits=[who], needs=[kernel], silent_ok=True),
        *unclear([who]),
    ]


@chain("C2", "page_fault")
def page_fault(story: Story) -> Told:
    """A kernel of the program reads where it must not: 31 (and 43), then CUDA's error."""
    course = start(story)
    t = train(story, course)
    rank, r, v = story.pick(), story.r, story.fleet.versions
    lines = [*nvrm.identity(rank.gpu), nvrm.page_fault(r, v, rank.gpu, process(rank))]
    if r.random() < 0.5:
        lines.append(nvrm.stopped_channel(r, v, rank.gpu, process(rank)))
    story.kernel(rank.node, t, lines, "xid")
    dead = cuda_death(story, rank, t + r.uniform(0.02, 4), "an illegal memory access was encountered")
    fall(story, course, t, exits=[dead])
    return Told(_code_claims(story, rank, "software/illegal_memory_access"), rank.node)


@chain("C2", "warp_exception")
def warp_exception(story: Story) -> Told:
    """The same found by a warp: 13, 43."""
    course = start(story)
    t = train(story, course)
    rank, r, v = story.pick(), story.r, story.fleet.versions
    lines = [*nvrm.identity(rank.gpu), *nvrm.warp_exception(r, v, rank.gpu, process(rank), "Out Of Range Address"),
             nvrm.stopped_channel(r, v, rank.gpu, process(rank))]  # fmt: skip
    story.kernel(rank.node, t, lines, "xid")
    dead = cuda_death(story, rank, t + r.uniform(0.02, 4), "an illegal memory access was encountered")
    fall(story, course, t, exits=[dead])
    return Told(_code_claims(story, rank, "software/illegal_memory_access"), rank.node)


@chain("C9", "switch_timeout")
def switch_timeout(story: Story) -> Told:
    """13, 43, and five seconds later a context that cannot be switched away: 109."""
    course = start(story)
    t = train(story, course)
    rank, r, v = story.pick(), story.r, story.fleet.versions
    reason, class_, text = r.choice((
        ("Illegal Instruction Encoding", "software/illegal_instruction", "an illegal instruction was encountered"),
        ("Out Of Range Address", "software/illegal_memory_access", "unspecified launch failure"),
        ("Misaligned Address", "software/illegal_memory_access", "misaligned address"),
    ))  # fmt: skip
    lines = [
        *nvrm.identity(rank.gpu),
        *nvrm.warp_exception(r, v, rank.gpu, process(rank), reason),
        nvrm.stopped_channel(r, v, rank.gpu, process(rank)),
    ]
    story.kernel(rank.node, t, lines, "xid")
    story.kernel(rank.node, t + 5, nvrm.switch_timeout(r, v, rank.gpu, process(rank)), "xid")
    dead = cuda_death(story, rank, t + r.uniform(5, 8), text)
    fall(story, course, t, exits=[dead])
    return Told(_code_claims(story, rank, class_), rank.node)


@chain("C17", "allocation")
def out_of_memory(story: Story) -> Told:
    """One rank asks for more than its GPU has."""
    course = start(story)
    t = train(story, course, low=120)
    rank, r = story.pick(), story.r
    done = torch.python(story, rank, t, _oom_lines(story, rank), "cuda")
    dead = Exit(rank, done + r.uniform(0.5, 3), 1)
    fall(story, course, t, exits=[dead])
    who = story.who(rank)
    return Told([Claim(class_="software/cuda_oom", culprits=[who], needs=["cuda"]), *unclear([who])], rank.node)


def _oom_lines(story: Story, rank: Rank) -> list[str]:
    fleet, r = story.fleet, story.r
    total = fleet.gpu_memory_mib / 1024
    asked, free = r.choice((2.0, 3.5, 6.0, 12.25)), r.uniform(0.3, 1.9)
    reserved = total - free - 1.1
    held = reserved - r.uniform(0.4, 1.2)
    v = fleet.versions.torch
    if v < (2, 1):
        text = (
            f"CUDA out of memory. Tried to allocate {asked:.2f} GiB (GPU {rank.local}; {total:.2f} GiB total capacity; {held:.2f} GiB already "
            f"allocated; {free:.2f} GiB free; {reserved:.2f} GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
            "setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
        )
    else:
        text = (
            f"CUDA out of memory. Tried to allocate {asked:.2f} GiB. GPU {rank.local} has a total {'capacty' if v < (2, 2) else 'capacity'} of "
            f"{total:.2f} GiB of which {free:.2f} GiB is free. Process {rank.host_pid} has {reserved + 0.6:.2f} GiB memory in use. Of the allocated "
            f"memory {held:.2f} GiB is allocated by PyTorch, and {reserved - held:.2f} GiB is reserved by PyTorch but unallocated. If reserved but "
            "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
        )
    name = "torch.cuda.OutOfMemoryError" if v < (2, 5) else "torch.OutOfMemoryError"
    frames = [*torch.step_frames(fleet)[:2], (f"{_SITE}/nn/functional.py", 1858, "softmax", "ret = input.softmax(dim)")]
    return torch.traceback(fleet, frames, [f"{name}: {text}"])


@chain("C19", "other_collective", Wants(torch=((2, 1), (9, 0))))
def other_collective(story: Story) -> Told:
    """One rank takes another branch and waits in another collective: all time out together."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    work = torch.Work(course.step * 7 + 5, "ALLREDUCE", r.choice((1, 1_048_576, 46_797_824)), 0)
    work = replace(work, numel_out=work.numel_in)
    size = work.numel_in if r.random() < 0.5 else max(work.numel_in // 2, 2)
    other = r.choice(
        (
            replace(work, op="_ALLGATHER_BASE", numel_in=16, numel_out=16 * len(story.fleet.ranks)),
            replace(work, op="BROADCAST", numel_in=size, numel_out=size),
            replace(work, numel_in=work.numel_in + r.choice((1, 512)), numel_out=work.numel_in + r.choice((1, 512))),
        )
    )
    if other.op == "ALLREDUCE":
        other = replace(other, numel_out=other.numel_in)
    _timed_out_together(story, course, t, work, {rank.rank: other})
    return _mismatch(story, rank)


def _mismatch(story: Story, rank: Rank, *also: str) -> Told:
    """Who waits in another collective is known from its own watchdog, next to those of the others."""
    who = [story.who(rank, gpu=False)]
    class_ = "software/collective_mismatch"
    return Told([
        Claim(class_=class_, also=list(also), culprits=who, needs=["odd", "peers"]),
        Claim(class_=class_, also=UNCLEAR, culprits=who, needs=["odd"], silent_ok=True, quiet=True), *unclear(who),
    ], rank.node)  # fmt: skip


@chain("C19", "behind", Wants(torch=((2, 4), (9, 0))))
def behind(story: Story) -> Told:
    """One rank skipped a collective: it waits in an earlier number, with another operation."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    work = torch.Work(course.step * 7 + 5, "ALLREDUCE", 1_048_576, 1_048_576)
    back = r.choice((1, 2, 8))
    other = torch.Work(work.seq - back, r.choice(("_ALLGATHER_BASE", "BROADCAST")), 4096, 4096 * len(story.fleet.ranks))
    _timed_out_together(story, course, t, work, {rank.rank: other})
    return _mismatch(story, rank, "unknown/silent_rank")


@chain("C19", "detail", Wants(torch=((2, 0), (9, 0))))
def detail(story: Story) -> Told:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compares collectives before they run, and says who differs."""
    course = start(story)
    t = train(story, course)
    rank, r, fleet = story.pick(), story.r, story.fleet
    seq = course.step * 7 + 5
    op, other = r.choice((("ALLREDUCE", "BROADCAST"), ("_ALLGATHER_BASE", "ALLREDUCE"), ("ALLREDUCE", "ALLREDUCE")))
    shape, odd = "[1024]", "[1024]" if op != other else "[1023]"
    tail = (
        "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), requires_grad=false "
        "(default), pinned_memory=false (default), memory_format=(nullopt)))"
    )
    exits = []
    for one in fleet.ranks:
        mine, theirs = ((other, odd), (op, shape)) if one is rank else ((op, shape), (other, odd))
        peer = (rank.rank + 1) % len(fleet.ranks) if one is rank else rank.rank
        said = (
            f"RuntimeError: Detected mismatch between collectives on ranks. Rank {one.rank} is running collective: CollectiveFingerPrint("
            f"SequenceNumber={seq}, OpType={mine[0]}, TensorShape={mine[1]}, {tail}, but Rank {peer} is running collective: CollectiveFingerPrint("
            f"SequenceNumber={seq}, OpType={theirs[0]}, TensorShape={theirs[1]}, {tail}."
        )
        frames = [
            *torch.step_frames(fleet)[:2],
            (f"{_SITE}/distributed/distributed_c10d.py", 2050, "all_reduce", "work = group.allreduce([tensor], opts)"),
        ]
        done = torch.python(story, one, t + r.uniform(0, 0.2), torch.traceback(fleet, frames, [said]), "odd")
        exits.append(Exit(one, done + r.uniform(0.3, 1.5), 1))
        if story.big and one.rank > 128 and one is not rank:
            break
    Fall(story, t, work_of(story, course), exits=exits, how="killed").run()
    who = story.who(rank, gpu=False)
    return Told(
        [
            Claim(class_="software/collective_mismatch", culprits=[who], needs=["odd"], silent_ok=len(fleet.ranks) < 3),
            *unclear([who]),
        ],
        rank.node,
    )


def _timed_out_together(story: Story, course: Course, t: float, work: torch.Work, odd: dict[int, torch.Work]) -> None:
    """Everybody waits, some in another collective."""
    stall = t + course.step_s
    falling = Fall(story, stall, work)
    for rank in story.fleet.ranks:
        mine = odd.get(rank.rank, work)
        at = stall + abs(story.r.gauss(0.1, 0.1))
        done = torch.watchdog_timeout(
            story,
            rank,
            at,
            mine,
            enqueued=mine.seq,
            completed=mine.seq - 1,
            tag="odd" if rank.rank in odd else "peers",
        )
        falling.ended[rank.rank] = (done, -6)
    falling.finish()


@chain("C31", "missing_file")
def missing_file(story: Story) -> Told:
    """A shard is not where it should be; a loader's worker says so."""
    course = start(story)
    t = train(story, course, low=120)
    rank, r = story.pick(), story.r
    path = f"/data/shards/train-{r.randrange(10_000):05d}.tar"
    dead = _loader_error(
        story, rank, t, f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'", "FileNotFoundError"
    )
    fall(story, course, t, exits=[dead])
    who = story.who(rank, gpu=False)
    return Told([Claim(class_="software/python_exception", culprits=[who], needs=["py"]), *unclear([who])], rank.node)


@chain("C31", "broken_sample")
def broken_sample(story: Story) -> Told:
    """A sample cannot be decoded."""
    course = start(story)
    t = train(story, course, low=120)
    rank, r = story.pick(), story.r
    error = r.choice(
        (
            ("KeyError: 'input_ids'", "KeyError"),
            ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "JSONDecodeError"),
            (
                "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f31c4b1f0e0>",
                "UnidentifiedImageError",
            ),
            ("ValueError: buffer size must be a multiple of element size", "ValueError"),
        )
    )
    dead = _loader_error(story, rank, t, *error)
    fall(story, course, t, exits=[dead])
    who = story.who(rank, gpu=False)
    return Told([Claim(class_="software/python_exception", culprits=[who], needs=["py"]), *unclear([who])], rank.node)


@chain("C31", "broken_checkpoint")
def broken_checkpoint(story: Story) -> Told:
    """A rank cannot load its part of the checkpoint that the job starts from."""
    course = start(story)
    t = course.at + story.r.uniform(10, 60)
    rank, r, fleet = story.pick(), story.r, story.fleet
    path = f"{fleet.job.checkpoints}/step-{max(course.step, 4500)}/rank_{rank.rank}.pt"
    error = r.choice(
        (
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
            "EOFError: Ran out of input",
            "_pickle.UnpicklingError: invalid load key, '\\x00'.",
        )
    )
    frames = [
        (f"/workspace/{fleet.job.script}", 245, "<module>", "main()"),
        (f"/workspace/{fleet.job.script}", 77, "load_checkpoint", f"state = torch.load({path!r}, map_location='cpu')"),
        (f"{_SITE}/serialization.py", 1014, "load", "return _load(opened_zipfile,"),
    ]
    done = torch.python(story, rank, t, torch.traceback(fleet, frames, [error]), "py")
    fall(story, course, t, exits=[Exit(rank, done + r.uniform(0.3, 2), 1)])
    who = story.who(rank, gpu=False)
    return Told(
        [
            Claim(
                class_="software/checkpoint_corrupt",
                also=["storage/checkpoint_read", "software/python_exception"],
                culprits=[who],
                needs=["py"],
            ),
            *unclear([who]),
        ],
        rank.node,
    )


@chain("C31", "read_error")
def read_error(story: Story) -> Told:
    """The disk under the data gives an I/O error: the storage is the root."""
    course = start(story)
    t = train(story, course, low=120)
    rank, r, v = story.pick(), story.r, story.fleet.versions
    disk = r.randrange(4)
    line = host.block_error(r, v, disk, "critical medium").replace("0x1:(WRITE)", "0x0:(READ)")
    story.kernel(rank.node, t, line, "kernel")
    text = f"OSError: [Errno 5] Input/output error: '/local{disk}/shards/train-{r.randrange(1000):04d}.tar'"
    dead = _loader_error(story, rank, t + r.uniform(0.01, 2), text, "OSError")
    fall(story, course, t, exits=[dead])
    who = story.who(rank, gpu=False)
    return Told(_disk_claims(who), rank.node)


def _disk_claims(who: Who) -> list[Claim]:
    return [
        Claim(class_="storage/local_disk_error", also=["hardware/nvme"], culprits=[who], needs=["kernel", "py"]),
        Claim(
            class_="storage/local_disk_error",
            also=["hardware/nvme", *UNCLEAR],
            culprits=[who],
            needs=["kernel"],
            silent_ok=True,
            quiet=True,
        ),
        Claim(class_="storage/local_disk_error", also=["software/python_exception"], culprits=[who], needs=["py"]),
        *unclear([who]),
    ]


def _loader_error(story: Story, rank: Rank, t: float, error: str, kind: str) -> Exit:
    """An exception in a DataLoader worker, as the main process prints it."""
    fleet = story.fleet
    frames = [
        *torch.step_frames(fleet)[:2],
        (f"{_SITE}/utils/data/dataloader.py", 630, "__next__", "data = self._next_data()"),
        (f"{_SITE}/_utils.py", 694, "reraise", "raise exception"),
    ]
    inner = [
        "Original Traceback (most recent call last):",
        f'  File "{_SITE}/utils/data/_utils/worker.py", line 308, in _worker_loop',
        "    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]",
        f'  File "/workspace/data.py", line {story.r.randrange(20, 300)}, in __getitem__',
        "    sample = self.read(index)",
        error,
    ]
    head = error.partition(":")[0]
    lines = torch.traceback(
        fleet, frames, [f"{head}: Caught {kind} in DataLoader worker process {story.r.randrange(8)}.", *inner]
    )
    done = torch.python(story, rank, t, lines, "py")
    return Exit(rank, done + story.r.uniform(0.3, 2), 1)

"""C26, C27, C28: jobs that never come up: drivers, fabric manager, memory that a dead process holds."""

from pipeline.drill.chains.common import UNCLEAR, unclear, work_of
from pipeline.drill.collapse import Exit, Fall
from pipeline.drill.emit import nvrm, telemetry, torch
from pipeline.drill.emit.training import new_course
from pipeline.drill.fleet import Rank, Wants
from pipeline.drill.opening import start
from pipeline.drill.prefixes import fabric_manager, iso, syslog
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim

_SITE = "/opt/lib/python3.10/site-packages/torch"


def _no_cuda(story: Story, rank: Rank, t: float, error: str, tag: str) -> Exit:
    """The first CUDA call of a rank fails."""
    frames = [
        (f"/workspace/{story.fleet.job.script}", 245, "<module>", "main()"),
        (f"/workspace/{story.fleet.job.script}", 61, "main", "torch.cuda.set_device(local_rank)"),
        (f"{_SITE}/cuda/__init__.py", 404, "set_device", "torch._C._cuda_setDevice(device)"),
    ]
    done = torch.python(story, rank, t, torch.traceback(story.fleet, frames, [error]), tag)
    return Exit(rank, done + story.r.uniform(0.2, 1), 1)


def _everybody_else(story: Story, exits: list[Exit], t: float) -> None:
    """The others wait in the rendezvous or the first collective until they are stopped."""
    Fall(story, t, work_of(story, new_course(story.r, 20)), exits=exits, how="killed").run()


@chain("C26", "driver_upgraded", Wants(drivers=(535, 580)))
def driver_upgraded(story: Story) -> Told:
    """The driver's packages were upgraded on a node without a reboot: library and kernel module differ."""
    start(story, joins=False)
    rank, r = story.pick(), story.r
    node, v = rank.node, story.fleet.versions
    client = {
        535: "535.216.01",
        550: "550.163.01",
        560: "565.57.01",
        565: "570.86.15",
        570: "570.211.01",
        575: "580.65.06",
    }.get(v.branch, "580.105.08")
    t = 12.0
    exits = []
    for one in story.fleet.ranks_on(node):
        at = t + r.uniform(0, 0.6)
        story.kernel(node, at, nvrm.api_mismatch(one.comm, one.host_pid, client, v.driver), "kernel")
        error = r.choice(
            (
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an "
                "error? Error 803: system has unsupported display driver / cuda driver combination",
                "RuntimeError: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu.",
            )
        )
        exits.append(_no_cuda(story, one, at + 0.2, error, "py"))
    if r.random() < 0.6:
        said = "Failed to initialize NVML: Driver/library version mismatch"
        lines = [said, f"NVML library version: {'.'.join(client.split('.')[:2])}"] if v.branch >= 535 else [said]
        story.service(
            node,
            "nvidia-smi.txt",
            t + 3,
            "\n".join((f"# {iso(node.clock, story.ns(t + 3))} nvidia-smi", *lines)),
            "smi",
        )
    _everybody_else(story, exits, t + 2)
    culprits = [story.node_as_culprit(node), *(story.who(e.rank, gpu=False) for e in exits)]
    return Told(
        [
            Claim(class_="software/driver_mismatch", culprits=culprits, needs=["kernel"]),
            Claim(class_="software/driver_mismatch", culprits=culprits, needs=["smi"]),
            Claim(
                class_="software/driver_mismatch",
                also=[*UNCLEAR, "software/config_error"],
                culprits=culprits,
                needs=["py"],
                silent_ok=True,
            ),
            *unclear(culprits),
        ],
        node,
    )


@chain("C27", "fabric_manager", Wants(models=("A100", "H100", "H200"), drivers=(535, 580)))
def no_fabric_manager(story: Story) -> Told:
    """The fabric manager of a node does not run: CUDA has no system to initialise there."""
    start(story, joins=False)
    rank, r = story.pick(), story.r
    node, t = rank.node, 12.0
    stamp = fabric_manager(node.clock, story.ns(-900))
    text = r.choice(
        (
            "detected number of NVSwitches don't match with any supported system topology, aborting fabric manager",
            "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
        )
    )
    story.service(
        node,
        "fabricmanager.log",
        -900,
        f"{stamp} [ERROR] [tid 12] {text}",
        "fm",
    )
    if r.random() < 0.7:
        # systemd is a service of its own: it writes into the node's journal or syslog.
        story.service(
            node,
            "daemon.log",
            -899,
            f"{syslog(node.clock, story.ns(-899))} {node.short} systemd[1]: nvidia-fabricmanager.service: Failed with result "
            "'exit-code'.",
            "fm",
        )
    exits = []
    for one in story.fleet.ranks_on(node):
        error = (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set "
            "an error? Error 802: system not yet initialized"
        )
        exits.append(_no_cuda(story, one, t + r.uniform(0, 0.6), error, "py"))
    _everybody_else(story, exits, t + 2)
    culprits = [story.node_as_culprit(node), *(story.who(e.rank, gpu=False) for e in exits)]
    return Told(
        [
            Claim(class_="hardware/fabric_manager", culprits=culprits, needs=["fm", "py"]),
            Claim(class_="hardware/fabric_manager", culprits=culprits, needs=["py"]),
            Claim(
                class_="hardware/fabric_manager",
                also=UNCLEAR,
                culprits=culprits,
                needs=["fm"],
                silent_ok=True,
                quiet=True,
            ),
            *unclear(culprits),
        ],
        node,
    )


@chain("C28", "memory_held", Wants(torch=((2, 1), (9, 0))))
def memory_held(story: Story) -> Told:
    """A process of an earlier job still holds a GPU's memory: out of memory with the first tensors."""
    course = start(story)
    rank, r, fleet = story.pick(), story.r, story.fleet
    t = course.at + r.uniform(1, 20)
    zombie = rank.host_pid - r.randrange(3000, 9000)
    total = fleet.gpu_memory_mib / 1024
    held, own = total * r.uniform(0.85, 0.93), r.uniform(1.1, 3)
    free = max(total - held - own, 0.05)
    name = "torch.cuda.OutOfMemoryError" if fleet.versions.torch < (2, 5) else "torch.OutOfMemoryError"
    typo = "capacty" if fleet.versions.torch < (2, 2) else "capacity"
    error = (
        f"{name}: CUDA out of memory. Tried to allocate 4.00 GiB. GPU {rank.local} has a total {typo} of {total:.2f} GiB of which {free:.2f} GiB is free. Process "
        f"{zombie} has {held:.2f} GiB memory in use. Process {rank.host_pid} has {own:.2f} GiB memory in use. Of the allocated memory {own - 0.9:.2f} GiB is allocated by "
        "PyTorch, and 0.20 GiB is reserved by PyTorch but unallocated."
    )
    used = round(held * 1024)
    telemetry.counters(
        story,
        rank.node,
        -60,
        "nvidia-smi.txt",
        "nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid,used_memory --format=csv",
        [
            "pid, process_name, gpu_uuid, used_gpu_memory [MiB]",
            f"{zombie}, [Not Found], {rank.gpu.uuid}, {used} MiB",
        ],
        "apps",
    )
    frames = [
        (f"/workspace/{fleet.job.script}", 245, "<module>", "main()"),
        (f"/workspace/{fleet.job.script}", 90, "main", "model.to(device)"),
    ]
    done = torch.python(story, rank, t, torch.traceback(fleet, frames, [error]), "py")
    Fall(story, t, work_of(story, course), exits=[Exit(rank, done + r.uniform(0.2, 2), 1)], how="killed").run()
    who = story.who(rank, pids=[zombie])
    return Told(
        [
            Claim(class_="resource/gpu_memory_leaked", culprits=[who], needs=["py", "apps"]),
            Claim(class_="resource/gpu_memory_leaked", also=["software/cuda_oom"], culprits=[who], needs=["py"]),
            *unclear([who]),
        ],
        rank.node,
    )


@chain("C28", "devices_busy")
def devices_busy(story: Story) -> Told:
    """The GPU is in exclusive mode and somebody else is on it."""
    start(story, joins=False)
    rank, r = story.pick(), story.r
    t = 14.0
    zombie = rank.host_pid - r.randrange(3000, 9000)
    telemetry.counters(
        story,
        rank.node,
        -60,
        "fuser.txt",
        f"fuser -v /dev/nvidia{rank.gpu.index}",
        [
            "                     USER        PID ACCESS COMMAND",
            f"/dev/nvidia{rank.gpu.index}:        root      {zombie} F...m python3",
        ],
        "apps",
    )
    dead = _no_cuda(
        story,
        rank,
        t,
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
        if story.fleet.versions.torch >= (2, 3)
        else "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "py",
    )
    _everybody_else(story, [dead], t + 1)
    who = story.who(rank, pids=[zombie])
    return Told(
        [
            Claim(class_="resource/gpu_memory_leaked", culprits=[who], needs=["py"]),
            *unclear([who]),
        ],
        rank.node,
    )

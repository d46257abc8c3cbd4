"""What a healthy cluster prints: NCCL INFO, kernel boot, Slurm, training progress. Deterministic; for tests and benches.

No line is of a real machine. Many hold words that a careless pattern would take for a fault: error, timeout, failed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

Maker = Callable[[Random, int], str]

_OPS: Final = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "SendRecv", "AlltoAll")
_NICS: Final = ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_7")


def stamp(number: int, per_second: int = 500) -> str:
    """The time of the nth line."""
    second, part = divmod(number, per_second)
    return f"2026-03-04T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{part * (1_000_000 // per_second):06d}"


def _host(r: Random) -> str:
    return f"trn-{r.randrange(64):03d}"


def _nccl(r: Random, text: str) -> str:
    gpu = r.randrange(8)
    pid = 20_000 + gpu
    return f"{_host(r)}:{pid}:{pid + r.randrange(1, 60)} [{gpu}] NCCL INFO {text}"


def _nccl_operation(r: Random, n: int) -> str:
    return _nccl(
        r, f"{r.choice(_OPS)}: opCount {n:x} sendbuff 0x7f{r.getrandbits(38):010x} recvbuff 0x7f{r.getrandbits(38):010x} "
        f"count {1 << r.randrange(8, 26)} datatype {r.randrange(9)} op {r.randrange(4)} root 0 comm 0x55{r.getrandbits(38):010x} "
        f"[nranks=512] stream 0x55{r.getrandbits(38):010x}",
    )  # fmt: skip


_NCCL_TEXTS: Final[tuple[Callable[[Random], str], ...]] = (
    lambda r: f"Channel {r.randrange(16):02d}/0 : {r.randrange(512)}[{r.randrange(8)}] -> {r.randrange(512)}[{r.randrange(8)}] via P2P/CUMEM/read",
    lambda r: f"Channel {r.randrange(16):02d}/0 : {r.randrange(512)}[{r.randrange(8)}] -> {r.randrange(512)}[{r.randrange(8)}] [send] via NET/IB/{r.randrange(8)}/GDRDMA",
    lambda r: f"Trees [0] {r.randrange(9)}/-1/-1->{r.randrange(9)}->{r.randrange(9)} [1] {r.randrange(9)}/-1/-1->{r.randrange(9)}->{r.randrange(9)}",
    lambda r: f"Ring {r.randrange(16):02d} : {r.randrange(512)} -> {r.randrange(512)} -> {r.randrange(512)}",
    lambda r: f"NET/IB : Using [0]{r.choice(_NICS)}:1/IB/SHARP [1]{r.choice(_NICS)}:1/IB [RO]; OOB bond0:10.77.{r.randrange(9)}.{r.randrange(250)}<0>",
    lambda r: "NCCL_IB_TIMEOUT set by environment to 22.",
    lambda r: "NCCL_ASYNC_ERROR_HANDLING set by environment to 1.",
    lambda r: "NCCL_SOCKET_IFNAME set by environment to bond0",
    lambda r: "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    lambda r: "ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 0",
    lambda r: f"P2P Chunksize set to {1 << r.randrange(17, 21)}",
    lambda r: f"threadThresholds 8/8/64 | {r.randrange(512)}/8/64 | 512 | 512",
    lambda r: f"{r.randrange(2, 32)} coll channels, {r.randrange(2, 32)} collnet channels, 0 nvls channels, 32 p2p channels, 2 p2p channels per peer",
    lambda r: "Connected all rings",
    lambda r: "Connected all trees",
    lambda r: f"Setting affinity for GPU {r.randrange(8)} to ffffffff,00000000",
    lambda r: "comm 0x55d4 rank 3 nRanks 512 nNodes 64 localRanks 8 localRank 3 MNNVL 0",
    lambda r: "TUNER/Plugin: Plugin name set by env to libnccl-tuner.so",
    lambda r: "DMA-BUF is available on GPU device 3",
    lambda r: "GPU Direct RDMA Enabled for GPU 3 / HCA 0 (distance 4 <= 4), read 0 mode Default",
    lambda r: "Bootstrap : Using bond0:10.77.3.9<0>",
    lambda r: "cudaDriverVersion 12040",
    lambda r: "RAS client listening socket at ::1<28028>",
    lambda r: f"{r.choice(_NICS)}:1 Got async error event: port active",
)  # fmt: skip

_KERNEL_TEXTS: Final[tuple[Callable[[Random], str], ...]] = (
    lambda r: f"perf: interrupt took too long ({r.randrange(2600, 9000)} > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
    lambda r: f"docker0: port {r.randrange(9)}(veth{r.getrandbits(24):06x}) entered forwarding state",
    lambda r: f"veth{r.getrandbits(24):06x}: renamed from eth0",
    lambda r: f"audit: type=1400 audit(1772600767.{r.randrange(1000):03d}:{r.randrange(99999)}): apparmor=\"ALLOWED\" operation=\"open\" profile=\"x\"",
    lambda r: f"mlx5_core 0000:{r.randrange(0x10, 0xF0):02x}:00.0: Port module event: module {r.randrange(8)}, Cable plugged",
    lambda r: f"pcieport 0000:{r.randrange(0x10, 0xF0):02x}:00.0: AER: enabled with IRQ {r.randrange(24, 300)}",
    lambda r: f"pcieport 0000:{r.randrange(0x10, 0xF0):02x}:01.0: pciehp: Slot #{r.randrange(9)} AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+",
    lambda r: "mce: CPU supports 32 MCE banks",
    lambda r: "EDAC MC: Ver: 3.0.0",
    lambda r: "ACPI: PM: Power Resource [PRIC] turned on",
    lambda r: "RAS: Correctable Errors collector initialized.",
    lambda r: "ERST: Error Record Serialization Table (ERST) support is initialized.",
    lambda r: "GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",
    lambda r: "HEST: Table parsing has been initialized.",
    lambda r: f"nvme nvme{r.randrange(4)}: {r.randrange(8, 64)}/0/0 default/read/poll queues",
    lambda r: f"nvme nvme{r.randrange(4)}: Shutdown timeout set to 10 seconds",
    lambda r: "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Feb  3 05:06:07 UTC 2026",
    lambda r: "nvidia-nvlink: Nvlink Core is being initialized, major device number 239",
    lambda r: "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    lambda r: f"mlx5_core 0000:{r.randrange(0x10, 0xF0):02x}:00.0: firmware version: 28.39.1002",
    lambda r: f"mlx5_core 0000:{r.randrange(0x10, 0xF0):02x}:00.0: 252.048 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)",
    lambda r: f"mlx5_core 0000:{r.randrange(0x10, 0xF0):02x}:00.0 ens{r.randrange(9)}np0: Link up",
    lambda r: "DMAR: Intel(R) Virtualization Technology for Directed I/O",
    lambda r: "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Opts: errors=remount-ro. Quota mode: none.",
    lambda r: "EXT4-fs (nvme0n1p2): re-mounted. Opts: errors=remount-ro. Quota mode: none.",
    lambda r: "XFS (md0): Mounting V5 Filesystem",
    lambda r: "Lustre: Mounted scratch-client",
    lambda r: "Lustre: Lustre: Build Version: 2.15.4",
    lambda r: "watchdog: NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    lambda r: "rcu: Adjusting geometry for rcu_fanout_leaf=16, nr_cpu_ids=224",
    lambda r: "x86/fpu: Supporting XSAVE feature 0x200: 'Protection Keys User registers'",
    lambda r: "pci 0000:3b:00.0: reg 0x10: [mem 0x39ffe0000000-0x39ffefffffff 64bit pref]",
    lambda r: "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    lambda r: "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    lambda r: "systemd[1]: Starting Check for failed units...",
    lambda r: "systemd[1]: Started Session 12 of User root.",
    lambda r: "systemd[1]: run-docker-runtime\\x2drunc-moby.mount: Deactivated successfully.",
    lambda r: "thermal LNXTHERM:00: registered as thermal_zone0",
    lambda r: "oom_reaper kthread started" if r.random() < 0.01 else "random: crng init done",
)  # fmt: skip

_SLURM_TEXTS: Final[tuple[Callable[[Random], str], ...]] = (
    lambda r: f"slurmd: Launching batch job {r.randrange(90000)} for UID 1007",
    lambda r: f"slurmd: launch task StepId={r.randrange(90000)}.0 request from UID:1007 GID:1007 HOST:10.77.0.9 PORT:{r.randrange(30000, 60000)}",
    lambda r: f"slurmctld: sched: Allocate JobId={r.randrange(90000)} NodeList=trn-[000-063] #CPUs=14336 Partition=train",
    lambda r: f"slurmctld: _job_complete: JobId={r.randrange(90000)} WEXITSTATUS 0",
    lambda r: f"slurmctld: _job_complete: JobId={r.randrange(90000)} done",
    lambda r: f"slurmd: task/affinity: job {r.randrange(90000)} CPU input mask for node: 0xFFFFFFFF",
    lambda r: "slurmctld: debug: sched/backfill: _attempt_backfill: beginning",
)  # fmt: skip

_TRAINING_TEXTS: Final[tuple[Callable[[Random, int], str], ...]] = (
    lambda r, n: f" [2026-03-04 05:06:07] iteration {n // 512:8d}/  500000 | consumed samples: {n * 2:12d} | elapsed time per iteration (ms): {4000 + 300 * r.random():.1f} | learning rate: 1.500E-04 | global batch size:  1024 | lm loss: {1.5 + r.random():.6E} | loss scale: 1.0 | grad norm: {r.random():.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |",
    lambda r, n: f"iteration {n // 512:6d}/ 500000 | samples: {n * 2:10d} | ms per iteration: {4000 + 300 * r.random():.1f} | lm loss: {1.5 + r.random():.6E} | grad norm: {r.random():.3f}",
    lambda r, n: f"step {n // 512} loss {1.5 + r.random():.4f} lr 1.5e-4 tokens/s {r.randrange(300000, 400000)}",
    lambda r, n: f"{{'loss': {1.5 + r.random():.4f}, 'grad_norm': {r.random():.4f}, 'learning_rate': 1.5e-05, 'epoch': {n / 1e6:.2f}}}",
    lambda r, n: f"Epoch {n // 100000}:  {r.randrange(100)}%|####      | {r.randrange(1000)}/1000 [00:41<00:58, 10.2it/s, loss={1 + r.random():.3f}]",
    lambda r, n: f"DEBUG:trainer.data:worker {r.randrange(8)} prefetch shard /data/shard-{r.randrange(99999):05d}.tar offset {r.getrandbits(30)} took {50 * r.random():.2f} ms",
    lambda r, n: f"[INFO] [logging.py:96:log_dist] [Rank 0] step={n // 512}, skipped=0, lr=[0.00015], mom=[(0.9, 0.95)]",
    lambda r, n: "[I ProcessGroupNCCL.cpp:1005] [PG ID 0 PG GUID 0(default_pg) Rank 3] using GPU 3 as device used by this process",
    lambda r, n: "[I ProcessGroupNCCL.cpp:852] [Rank 3] NCCL watchdog thread started!",
    lambda r, n: "[I ProcessGroupNCCL.cpp:837] [Rank 3] ProcessGroupNCCL initialization options: NCCL_ASYNC_ERROR_HANDLING: 1, NCCL_DESYNC_DEBUG: 0, NCCL_BLOCKING_WAIT: 0, TIMEOUT(ms): 600000, USE_HIGH_PRIORITY_STREAM: 0",
    lambda r, n: "[I socket.cpp:787] [c10d] The client socket has connected to [trn-000]:29500 on [trn-004]:40022.",
    lambda r, n: "UserWarning: The given NumPy array is not writable, and PyTorch does not support non-writable tensors.",
    lambda r, n: "  warnings.warn(\"None of the inputs have requires_grad=True. Gradients will be None\")",
    lambda r, n: f"validation loss at iteration {n // 512} | lm loss value: {2 + r.random():.6E} | lm loss PPL: {8 + r.random():.6E} |",
    lambda r, n: f"error rate on the held-out set: {r.random():.4f}, failed samples: 0, timeout: none",
    lambda r, n: f"saving checkpoint at iteration {n // 512:7d} to /ckpt/run7 in torch_dist format",
    lambda r, n: f"  successfully saved checkpoint from iteration {n // 512:7d} to /ckpt/run7",
    lambda r, n: "retrying is enabled: max_retries=5, on_failure=restart, abort_on_nan=True",
)  # fmt: skip


def line(r: Random, number: int) -> str:
    """One line, as likely as in a log of a job with NCCL_DEBUG=INFO."""
    kind = r.randrange(100)
    if kind < 35:
        return _nccl_operation(r, number)
    if kind < 60:
        # A rank says dozens of channels and rings for each of the other things it says at its start.
        return _nccl(r, _NCCL_TEXTS[r.randrange(4)](r) if r.random() < 0.85 else r.choice(_NCCL_TEXTS)(r))
    if kind < 70:
        return f"{stamp(number)}+00:00 {_host(r)} kernel: [{100_000 + number // 500}.{number % 1_000_000:06d}] {r.choice(_KERNEL_TEXTS)(r)}"
    if kind < 73:
        return f"[{stamp(number)[:23]}] {r.choice(_SLURM_TEXTS)(r)}"
    # Of what a job prints nearly all are its steps.
    make = _TRAINING_TEXTS[r.randrange(7)] if r.random() < 0.98 else r.choice(_TRAINING_TEXTS)
    return f"[rank{r.randrange(512)}]: {make(r, number)}"


def lines(count: int, seed: int = 20261129) -> Iterator[str]:
    """So many lines. The same seed gives the same lines."""
    r = Random(seed)
    return (line(r, number) for number in range(count))


# One of each: what a cluster prints when something breaks. `{g}` a GPU number, `{n}` a count.
FAULTS: Final[tuple[str, ...]] = (
    "kernel: [{n}.000001] NVRM: Xid (PCI:0000:{g}b:00): 79, pid={n}, name=python, GPU has fallen off the bus.",
    "kernel: [{n}.000001] NVRM: Xid (PCI:0000:{g}b:00): 48, pid={n}, name=python, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x1a2b3c000 partition 3, subpartition 0.",
    "kernel: [{n}.000001] nvidia-nvswitch{g}: SXid (PCI:0000:0{g}:00.0): 20034, Fatal, Link 63 LTSSM Fault Up",
    "kernel: [{n}.000001] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "kernel: [{n}.000001] Out of memory: Killed process {n} (python) total-vm:183245600kB, anon-rss:67108864kB, file-rss:12800kB, shmem-rss:524288kB, UID:0 pgtables:140000kB oom_score_adj:0",
    "kernel: [{n}.000001] mlx5_core 0000:{g}b:00.0 ens{g}np0: Link down",
    "kernel: [{n}.000001] python[{n}]: segfault at 7f1c00000010 ip 00007f1c2b3c4d5e sp 00007ffd12345678 error 4 in libtorch_cuda.so[7f1c10000000+5000000]",
    "kernel: [{n}.000001] nfs: server nas-{g} not responding, still trying",
    "kernel: [{n}.000001] INFO: task python:{n} blocked for more than 120 seconds.",
    "kernel: [{n}.000001] watchdog: BUG: soft lockup - CPU#{g} stuck for 27s! [python3:{n}]",
    "kernel: [{n}.000001] pcieport 0000:{g}a:00.0: AER: Uncorrectable (Fatal) error message received from 0000:{g}b:00.0",
    "[rank{g}]:[E304 05:06:07.945860779 ProcessGroupNCCL.cpp:629] [Rank {g}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600072 milliseconds before timing out.",
    "trn-00{g}:{n}:{n} [{g}] transport/net_ib.cc:2458 NCCL WARN NET/IB: Got completion from peer 10.77.0.{g}<45231> with status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_{g}",
    "[rank{g}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB. GPU {g} has a total capacity of 79.15 GiB of which 1.84 GiB is free. Process {n} has 77.3 GiB memory in use.",
    "[rank{g}]: torch.distributed.DistBackendError: NCCL error in: /build/ProcessGroupNCCL.cpp:1333, remote process exited or there was a network error, NCCL version 2.21.5",
    "slurmstepd: error: *** STEP {n}.0 ON trn-00{g} CANCELLED AT 2026-03-04T05:06:07 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
)  # fmt: skip


def fault(r: Random, number: int, kind: int) -> str:
    """One line that means something."""
    text = FAULTS[kind % len(FAULTS)].format(g=r.randrange(8), n=10_000 + r.randrange(80_000))
    return f"{stamp(number)} {_host(r)} {text}"


def mixed(count: int, one_in: int, seed: int = 20261129) -> Iterator[str]:
    """Noise with one significant line in every `one_in`, all kinds in turn; with 1 every line is significant."""
    r = Random(seed)
    chosen = 0
    for number in range(count):
        if number % one_in == 0:
            chosen = r.randrange(one_in)
        significant = number % one_in == chosen
        yield fault(r, number, number // one_in) if significant else line(r, number)


def write(path: Path, texts: Iterator[str]) -> None:
    """Write lines to a file."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in texts)

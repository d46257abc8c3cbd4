"""What the Linux kernel prints of a host: PCIe, memory, NICs, disks, file systems, stalls. By kernel version.

Sources: Linux 5.4 to 6.14 (drivers/pci/pcie/aer.c, dpc.c, mm/oom_kill.c, mlx5 core, nvme host, sunrpc, kernel/hung_task.c),
Lustre client, public reports.
"""

from random import Random

from pipeline.drill.fleet import Gpu, Nic, Versions


def aer_fatal(v: Versions, gpu: Gpu, pci_id: str, *, surprise: bool) -> list[str]:
    """An uncorrectable PCIe error of a GPU."""
    new = v.kernel_at >= (6, 12)
    word = "Uncorrectable (Fatal)" if new else "Uncorrected (Fatal)"
    received = (
        f"{word} error message received from {gpu.bdf}"
        if v.kernel_at >= (6, 1)
        else f"{word} error received: {gpu.bdf}"
    )
    bit, name, layer = (5, "SDES", "Transaction Layer") if surprise else (14, "CmpltTO", "Transaction Layer")
    status = 1 << bit
    return [
        f"pcieport {gpu.port}: AER: {received}",
        f"nvidia {gpu.bdf}: PCIe Bus Error: severity={word}, type={layer}, (Receiver ID)",
        f"nvidia {gpu.bdf}:   device [{pci_id}] error status/mask={status:08x}/00000000",
        f"nvidia {gpu.bdf}:    [{bit:2d}] {name:<22} (First)",
    ]


def aer_corrected(v: Versions, bdf: str, port: str, driver: str, pci_id: str) -> list[str]:
    """A PCIe error that the hardware corrected: harmless one by one."""
    word = "Correctable" if v.kernel_at >= (6, 12) else "Corrected"
    received = f"{word} error message received from {bdf}" if v.kernel_at >= (6, 1) else f"{word} error received: {bdf}"
    return [
        f"pcieport {port}: AER: {received}",
        f"{driver} {bdf}: PCIe Bus Error: severity={word}, type=Physical Layer, (Receiver ID)",
        f"{driver} {bdf}:   device [{pci_id}] error status/mask=00000001/0000e000",
        f"{driver} {bdf}:    [ 0] RxErr                  (First)",
    ]


def recovery_failed(gpu: Gpu) -> list[str]:
    """The kernel gives up on a device."""
    return [
        f"pcieport {gpu.port}: AER: Root Port link has been reset (0)",
        f"pcieport {gpu.port}: AER: device recovery failed",
    ]


def containment(v: Versions, gpu: Gpu) -> list[str]:
    """The port cut itself off."""
    if v.kernel_at >= (6, 12):
        return [f"pcieport {gpu.port}: DPC: containment event, status:0x1f05, ERR_FATAL received from {gpu.bdf}"]
    return [
        f"pcieport {gpu.port}: DPC: containment event, status:0x1f01 source:0x0000",
        f"pcieport {gpu.port}: DPC: unmasked uncorrectable error detected",
    ]


def slot_down(gpu: Gpu, slot: int) -> list[str]:
    """Hot-plug saw the link go."""
    return [
        f"pcieport {gpu.port}: pciehp: Slot({slot}): Link Down",
        f"pcieport {gpu.port}: pciehp: Slot({slot}): Card not present",
    ]


def narrow_link(gpu: Gpu) -> str:
    """A link that trained with fewer lanes."""
    return (
        f"pci {gpu.bdf}: 31.504 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x2 link at {gpu.port} "
        "(capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)"
    )


def oom(r: Random, *, comm: str, pid: int, group: str | None, asker: str, anon_kb: int, uid: int = 1000) -> list[str]:
    """The OOM killer's lines; `group` is the memory cgroup, None where the whole node is out of memory."""
    constraint = "CONSTRAINT_MEMCG" if group else "CONSTRAINT_NONE"
    where = f"oom_memcg={group},task_memcg={group}" if group else "global_oom,task_memcg=/user.slice/user-1000.slice"
    cpuset = group.rsplit("/", 1)[1] if group else "/"
    head = "Memory cgroup out of memory" if group else "Out of memory"
    adjust = 986 if group and "kubepods" in group else 0
    usage = (
        [f"memory: usage {anon_kb + 52_428}kB, limit {anon_kb + 52_428}kB, failcnt {r.randrange(100, 99_999)}"]
        if group
        else []
    )
    return [
        f"{asker} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj={adjust}",
        f"CPU: {r.randrange(96)} PID: {pid + 3} Comm: {asker} Tainted: P           OE      6.1.0 #1",
        *usage,
        "Tasks state (memory values in pages):",
        "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        f"[{pid:7d}]  {uid} {pid:5d} {anon_kb // 2} {anon_kb // 4} {r.randrange(10**6, 10**8)}        0           {adjust} {comm}",
        f"oom-kill:constraint={constraint},nodemask=(null),cpuset={cpuset},mems_allowed=0-1,{where},task={comm},pid={pid},uid={uid}",
        f"{head}: Killed process {pid} ({comm}) total-vm:{anon_kb * 2}kB, anon-rss:{anon_kb}kB, file-rss:12800kB, "
        f"shmem-rss:524288kB, UID:{uid} pgtables:140000kB oom_score_adj:{adjust}",
        f"oom_reaper: reaped process {pid} ({comm}), now anon-rss:0kB, file-rss:0kB, shmem-rss:524288kB",
    ]


def hung_task(r: Random, comm: str, pid: int, stack: tuple[str, ...]) -> list[str]:
    """A task that slept uninterruptibly for two minutes, with the functions it sleeps in."""
    return [
        f"INFO: task {comm}:{pid} blocked for more than 120 seconds.",
        "      Tainted: P           OE      6.1.0-27-amd64 #1",
        '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
        f"task:{comm:<15} state:D stack:0     pid:{pid} ppid:{pid - 40} flags:0x00004002",
        "Call Trace:",
        " <TASK>",
        *(
            f" {name}+0x{r.randrange(16, 900):x}/0x{r.randrange(901, 4000):x}"
            for name in ("__schedule", "schedule", *stack)
        ),
        " </TASK>",
    ]


def soft_lockup(r: Random, cpu: int, seconds: int, comm: str, pid: int) -> str:
    """A CPU that ran kernel code without a break."""
    return f"watchdog: BUG: soft lockup - CPU#{cpu} stuck for {seconds}s! [{comm}:{pid}]"


def segfault(r: Random, comm: str, pid: int) -> str:
    """A process touched memory that is not its own."""
    return (
        f"{comm}[{pid}]: segfault at {r.randrange(16, 4096):x} ip 00007f{r.getrandbits(40):010x} sp 00007ffd{r.getrandbits(32):08x} "
        f"error 4 in libtorch_cuda.so[7f{r.getrandbits(40):010x}+5000000]"
    )


# --- NICs ------------------------------------------------------------------------------------------------------------


def ib_port(nic: Nic, state: str) -> str:
    """The InfiniBand core names a port's state; kernels of about 6.14 and later."""
    return f"mlx5_core {nic.bdf} {nic.name}: Port: 1 Link {state}"


def link(nic: Nic, state: str) -> str:
    """An Ethernet port's state."""
    return f"mlx5_core {nic.bdf} {nic.netdev}: Link {state}"


def module(nic: Nic, what: str) -> str:
    """What a port's module reports."""
    return f"mlx5_core {nic.bdf}: Port module event: module 0, {what}"


def module_error(nic: Nic, reason: str) -> str:
    """A module's fault."""
    return f"mlx5_core {nic.bdf}: Port module event[error]: module 0, Cable error, {reason}"


def nic_health(r: Random, nic: Nic) -> list[str]:
    """The firmware of a NIC died."""
    pid = r.randrange(900, 9000)
    return [
        f"mlx5_core {nic.bdf}: poll_health:801:(pid 0): device's health compromised - reached miss count",
        f"mlx5_core {nic.bdf}: print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:",
        f"mlx5_core {nic.bdf}: print_health_info:435:(pid 0): assert_var[0] 0x{r.getrandbits(32):08x}",
        f"mlx5_core {nic.bdf}: print_health_info:450:(pid 0): synd 0x1: firmware internal error",
        f"mlx5_core {nic.bdf}: mlx5_health_try_recover:335:(pid {pid}): handling bad device here",
        f"mlx5_core {nic.bdf}: mlx5_error_sw_reset:231:(pid {pid}): start",
    ]


def nic_not_recovered(r: Random, nic: Nic) -> list[str]:
    """And stays dead."""
    pid = r.randrange(900, 9000)
    return [
        f"mlx5_core {nic.bdf}: wait_func:1156:(pid {pid}): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
        f"mlx5_core {nic.bdf}: mlx5_health_try_recover:338:(pid {pid}): health recovery failed",
    ]


def register_refused(r: Random, nic: Nic) -> str:
    """A tool asked for a register that the firmware does not have: harmless."""
    return (
        f"mlx5_core {nic.bdf}: mlx5_cmd_out_err:803:(pid {r.randrange(900, 9000)}): ACCESS_REG(0x805) op_mod(0x1) failed, "
        f"status bad parameter(0x3), syndrome (0x{r.getrandbits(24):x}), err(-22)"
    )


# --- disks and file systems --------------------------------------------------------------------------------------------


def nvme_timeout(r: Random, v: Versions, disk: int, action: str) -> str:
    """A command got no answer for 30 s."""
    tag, queue = r.randrange(1, 900), r.randrange(1, 32)
    if v.kernel_at >= (6, 12):
        return (
            f"nvme nvme{disk}: I/O tag {tag} ({tag:04x}) opcode 0x1 (Write) QID {queue} timeout, {action} "
            "req_op:WRITE(1) size:131072"
        )
    return f"nvme nvme{disk}: I/O {tag} QID {queue} timeout, {action}"


def nvme_down(disk: int, *, gone: bool) -> str:
    """The controller is down."""
    state = "CSTS=0xffffffff, PCI_STATUS=0xffff" if gone else "CSTS=0x3, PCI_STATUS=0x10"
    return f"nvme nvme{disk}: controller is down; will reset: {state}"


def nvme_lost(v: Versions, disk: int) -> str:
    """The kernel gives a disk up."""
    if v.kernel_at >= (6, 1):
        return f"nvme nvme{disk}: Disabling device after reset failure: -19"
    return f"nvme nvme{disk}: Removing after probe failure status: -19"


def block_error(r: Random, v: Versions, disk: int, kind: str = "I/O") -> str:
    """A request failed."""
    head = "" if v.kernel_at >= (5, 16) else "blk_update_request: "
    return (
        f"{head}{kind} error, dev nvme{disk}n1, sector {r.randrange(10**6, 10**9)} op 0x1:(WRITE) flags 0x800 phys_seg "
        f"{r.randrange(1, 64)} prio class 2"
    )


def ext4_gone(r: Random, disk: int) -> list[str]:
    """ext4 stops writing."""
    return [
        f"Buffer I/O error on dev nvme{disk}n1p1, logical block {r.randrange(10**6)}, lost async page write",
        f"Aborting journal on device nvme{disk}n1p1-8.",
        f"EXT4-fs error (device nvme{disk}n1p1): ext4_journal_check_start:83: comm python3: Detected aborted journal",
        f"EXT4-fs (nvme{disk}n1p1): Remounting filesystem read-only",
    ]


def xfs_gone(disk: int) -> list[str]:
    """XFS shuts down."""
    return [
        f"XFS (nvme{disk}n1p1): log I/O error -5",
        f"XFS (nvme{disk}n1p1): Filesystem has been shut down due to log error (0x2).",
        f"XFS (nvme{disk}n1p1): Please unmount the filesystem and rectify the problem(s).",
    ]


def nfs_silent(server: str, *, soft: bool = False) -> str:
    """A file server does not answer."""
    return f"nfs: server {server} not responding, {'timed out' if soft else 'still trying'}"


def nfs_ok(server: str) -> str:
    """It answers again."""
    return f"nfs: server {server} OK"


def lustre_evicted(r: Random, target: str, nid: str, lost_epoch_s: int) -> tuple[list[str], list[str]]:
    """A Lustre client loses a target, and is evicted when it comes back."""
    client = f"{target}-osc-ffff{r.getrandbits(48):012x}"
    lost = [
        f"Lustre: {r.randrange(2000, 9000)}:0:(client.c:2295:ptlrpc_expire_one_request()) @@@ Request sent has timed out for "
        f"slow reply: [sent {lost_epoch_s}/real {lost_epoch_s}]  req@ffff{r.getrandbits(48):012x} x17{r.getrandbits(40)}/t0(0) "
        f"o4->{client}@{nid}:6/4 lens 488/448 e 0 to 1 dl {lost_epoch_s + 100} ref 2 fl Rpc:X/0/ffffffff rc 0/-1 job:''",
        f"Lustre: {client}: Connection to {target} (at {nid}) was lost; in progress operations using this service will wait for "
        "recovery to complete",
    ]
    evicted = [
        f"LustreError: 167-0: {client}: This client was evicted by {target}; in progress operations using this service will fail.",
        f"LustreError: 11-0: {client}: operation ost_write to node {nid} failed: rc = -107",
        f"Lustre: {client}: Connection restored to {target} (at {nid})",
    ]
    return lost, evicted


# --- memory, CPUs, power -------------------------------------------------------------------------------------------------


def memory_uncorrected(r: Random, comm: str, pid: int) -> list[str]:
    """A DIMM lost data that a process was using."""
    page = r.getrandbits(26)
    return [
        "mce: [Hardware Error]: Machine check events logged",
        f"EDAC MC{r.randrange(4)}: 1 UE memory read error on CPU_SrcID#{r.randrange(2)}_MC#1_Chan#0_DIMM#0 (channel:0 slot:0 "
        f"page:0x{page:x} offset:0x40 grain:32 - err_code:0x0000:0x0090)",
        f"Memory failure: 0x{page:x}: Sending SIGBUS to {comm}:{pid} due to hardware memory corruption",
        f"Memory failure: 0x{page:x}: recovery action for dirty LRU page: Recovered",
    ]


def machine_check_panic(r: Random) -> list[str]:
    """A machine check that nobody survives."""
    cpu, bank = r.randrange(96), r.choice((7, 13, 17))
    return [
        f"mce: [Hardware Error]: CPU {cpu}: Machine Check Exception: 5 Bank {bank}: be00000000800400",
        f"mce: [Hardware Error]: RIP !INEXACT! 33:<00007f{r.getrandbits(40):010x}>",
        f"mce: [Hardware Error]: TSC {r.getrandbits(48):x} ADDR {r.getrandbits(38):x} MISC 200000c020002086",
        f"mce: [Hardware Error]: PROCESSOR 0:806f8 TIME {r.randrange(1_700_000_000, 1_790_000_000)} SOCKET 1 APIC {cpu:x} microcode 2b0004d0",
        "mce: [Hardware Error]: Machine check: Data load in unrecoverable area of kernel",
        "Kernel panic - not syncing: Fatal machine check",
    ]


def memory_corrected(r: Random) -> list[str]:
    """A DIMM corrected itself: harmless one by one."""
    return [
        f"EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#{r.randrange(4)}_DIMM#0 (channel:{r.randrange(4)} slot:0 "
        f"page:0x{r.getrandbits(24):x} offset:0x40 grain:32 syndrome:0x0 - err_code:0x0000:0x009f)",
    ]


def booted(v: Versions) -> list[str]:
    """A kernel starts."""
    return [
        f"Linux version {v.kernel} (build@drill) (gcc (Debian 12.2.0-14) 12.2.0, GNU ld 2.40) #1 SMP PREEMPT_DYNAMIC",
        "Command line: BOOT_IMAGE=/vmlinuz root=/dev/mapper/vg-root ro quiet iommu=pt",
        "x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'",
        "smpboot: CPU0: Intel(R) Xeon(R) Platinum 8480C (family: 0x6, model: 0x8f, stepping: 0x8)",
    ]

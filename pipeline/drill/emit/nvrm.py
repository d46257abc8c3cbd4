"""What NVIDIA's kernel driver prints, by driver branch.

Sources: open-gpu-kernel-modules 515 to 595 (headers, 119, 154, 79), NVIDIA's Xid catalogue, public reports.
"""

from random import Random

from pipeline.drill.fleet import Gpu, Versions

# Process of a channel: pid on the host and name.
Process = tuple[int, str]


def xid(v: Versions, gpu: Gpu, number: int, body: str, process: Process | None = None) -> str:
    """An Xid line. Up to R565 pid and name always stand there; from R570 only where they are known."""
    who = ""
    if process is not None:
        who = f"pid={process[0]}, name={process[1]}, "
    elif v.branch < 570:
        who = "pid='<unknown>', name=<unknown>, "
    return f"NVRM: Xid (PCI:{gpu.bus}): {number}, {who}{body}"


def identity(gpu: Gpu) -> list[str]:
    """Printed once after loading, before the first Xid of a GPU."""
    return [f"NVRM: GPU at PCI:{gpu.bus}: {gpu.uuid}", f"NVRM: GPU Board Serial Number: {gpu.serial}"]


def loaded(v: Versions, *, is_open: bool) -> str:
    """The driver was loaded."""
    if is_open:
        return f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {v.driver}  Release Build  (dvs-builder@U16-I3-B06-4-4)"
    return f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {v.driver}  Mon Oct  2 11:43:12 UTC 2023"


def fallen(v: Versions, gpu: Gpu, process: Process | None) -> list[str]:
    """Xid 79 and what the driver prints with it."""
    lines = [
        xid(v, gpu, 79, "GPU has fallen off the bus.", process if v.branch < 570 else None),
        f"NVRM: GPU {gpu.bdf}: GPU has fallen off the bus.",
    ]
    if v.branch < 570:
        lines.append(f"NVRM: GPU {gpu.bdf}: GPU serial number is {gpu.serial}.")
    return [
        *lines,
        "NVRM: A GPU crash dump has been created. If possible, please run",
        "NVRM: nvidia-bug-report.sh as root to collect this data before",
        "NVRM: the NVIDIA kernel module is unloaded.",
    ]


def missing_at_probe(gpu: Gpu, pci_id: str) -> list[str]:
    """A GPU that is gone when the driver looks for it; no Xid is printed."""
    return [
        f"NVRM: The NVIDIA GPU {gpu.bdf}",
        f"NVRM: (PCI ID: {pci_id}) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
        f"nvidia: probe of {gpu.bdf} failed with error -1",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    ]


def recovery(v: Versions, gpu: Gpu, code: int, process: Process | None = None) -> list[str]:
    """Xid 154, which drivers print since R565."""
    if v.branch < 565:
        return []
    name = ("None", "GPU Reset Required", "Node Reboot Required", "Drain P2P", "Drain and Reset")[code]
    return [xid(v, gpu, 154, f"GPU recovery action changed from 0x0 (None) to {code:#x} ({name})", process)]


def double_bit(r: Random, v: Versions, gpu: Gpu, process: Process) -> list[str]:
    """An uncorrectable memory error: 48, where known 171, and the row remap that follows."""
    address, partition = r.randrange(1 << 20, 1 << 26), r.randrange(24)
    physical = f"0x{address << 12:x}"
    lines = [
        xid(
            v,
            gpu,
            48,
            "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr "
            f"{physical} partition {partition}, subpartition {r.randrange(2)}.",
            process,
        ),
    ]
    lines += [xid(v, gpu, 48, f"channel 0x{channel:08x}", process) for channel in range(2, 2 + r.choice((0, 2, 8)))]
    if v.driver >= "570.211" and r.random() < 0.8:
        lines.append(
            xid(
                v,
                gpu,
                171,
                f"HBM, Uncorrectable DRAM error in FBPA {partition} subpartition {r.randrange(2)} physAddr {physical}",
            )
        )
    lines.append(remapped(v, gpu, address, process))
    return lines


def remapped(v: Versions, gpu: Gpu, address: int, process: Process | None = None) -> str:
    """Xid 63: a row will be remapped at the next reset."""
    return xid(
        v, gpu, 63, f"Row Remapper: New row (0x{address:016x}) marked for remapping, reset gpu to activate.", process
    )


def contained(r: Random, v: Versions, gpu: Gpu, process: Process) -> list[str]:
    """Xid 94: one process pays."""
    body = r.choice(
        (
            "Contained: SM (0x1). RST: No, D-RST: No",
            "Contained: CE User Channel (0x9). RST: No, D-RST: No",
            f"Contained: FB DED (0x{r.randrange(32):x},0x{r.randrange(4):x}). physAddr: 0x{r.getrandbits(40):012x} RST: No, D-RST: No",
        )
    )
    channels = [xid(v, gpu, 94, f"Ch {channel:08x}", process) for channel in range(8, 8 + r.choice((0, 1, 4)))]
    return [xid(v, gpu, 94, body, process), *channels]


def uncontained(r: Random, v: Versions, gpu: Gpu, process: Process) -> list[str]:
    """Xid 95: every process of the GPU pays."""
    body = r.choice((
        "Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No", "Uncontained: FBHUB. RST: Yes, D-RST: No",
        "Uncontained: MMU. RST: Yes, D-RST: No",
    ))  # fmt: skip
    return [xid(v, gpu, 95, body), *torn_down(r, v, gpu, process, previous=95), *recovery(v, gpu, 1)]


def torn_down(r: Random, v: Versions, gpu: Gpu, process: Process, *, previous: int | None = None) -> list[str]:
    """Xid 45, one a channel."""
    said = f" caused by previous Xid {previous}" if previous and v.driver >= "570.211" else ""
    first = r.choice((1, 8))
    channel = "channel 0x{:08x}" if v.branch >= 560 else "Ch {:08x}"
    return [xid(v, gpu, 45, channel.format(n) + said, process) for n in range(first, first + r.choice((2, 4, 9)))]


def gsp_timeout(r: Random, v: Versions, gpu: Gpu, process: Process) -> str:
    """Xid 119 in the words of the branch."""
    function = r.choice(
        ("76 (GSP_RM_CONTROL) (0x20802a02 0x8)", "103 (GSP_RM_ALLOC) (0x80 0x38)", "10 (FREE) (0x5 0x0)")
    )
    if v.driver >= "535.183":
        numbered = v.driver >= "570.211" and v.branch != 575
        if numbered:
            name, rest = function.rsplit(" (", 1)
            function = f"{name} sequence {r.randrange(10_000, 99_999)} ({rest}"
        body = f"Timeout after 6s of waiting for RPC response from GPU{gpu.index} GSP! Expected function {function}."
    else:
        body = f"Timeout waiting for RPC from GSP{gpu.index}! Expected function {function}."
    return xid(v, gpu, 119, body, process)


def gsp_history(r: Random, gpu: Gpu) -> list[str]:
    """What is printed after the first Xid 119."""
    address = f"0x{r.getrandbits(40):016x}"
    return [
        f"NVRM: GPU{gpu.index} GSP RPC buffer contains function 76 (GSP_RM_CONTROL) and data 0x0000000020802a02 0x0000000000000008.",
        f"NVRM: GPU{gpu.index} RPC history (CPU -> GSP):",
        "NVRM:     entry function                   data0              data1              ts_start           ts_end             duration actively_polling",
        f"NVRM:      0    76   GSP_RM_CONTROL        0x0000000020802a02 0x0000000000000008 {address} 0x0000000000000000          y",
        f"NVRM: GPU{gpu.index} RPC event history (CPU <- GSP):",
    ]


def gsp_limited(gpu: Gpu) -> str:
    """Later ones are printed rarely."""
    return (
        f"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{gpu.bus} (printing 1 of every 30).  "
        "The GPU likely needs to be reset."
    )


def warp_exception(r: Random, v: Versions, gpu: Gpu, process: Process, reason: str) -> list[str]:
    """Xid 13: what a kernel did wrong, with its registers."""
    gpc, tpc, sm = r.randrange(8), r.randrange(9), r.randrange(2)
    at = f"(GPC {gpc}, TPC {tpc}, SM {sm})"
    return [
        xid(v, gpu, 13, f"Graphics SM Warp Exception on {at}: {reason}", process),
        xid(v, gpu, 13, f"Graphics SM Global Exception on {at}: Multiple Warp Errors", process),
        xid(
            v,
            gpu,
            13,
            f"Graphics Exception: ESR 0x{r.getrandbits(24):x}=0x{r.getrandbits(20):x} 0x{r.getrandbits(24):x}=0x24 "
            f"0x{r.getrandbits(24):x}=0x1f81fb60 0x{r.getrandbits(24):x}=0x1174",
            process,
        ),
    ]


def page_fault(r: Random, v: Versions, gpu: Gpu, process: Process) -> str:
    """Xid 31."""
    channel = f"channel 0x{r.randrange(2, 32):08x}" if v.branch >= 560 else f"Ch {r.randrange(2, 32):08x}"
    return xid(
        v,
        gpu,
        31,
        f"{channel}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC{r.randrange(8)} GPCCLIENT_T1_{r.randrange(12)} "
        f"faulted @ 0x{r.randrange(0x7000, 0x7FFF):x}_{r.getrandbits(32):08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        process,
    )


def stopped_channel(r: Random, v: Versions, gpu: Gpu, process: Process) -> str:
    """Xid 43."""
    channel = r.randrange(8, 24)
    return xid(v, gpu, 43, f"channel 0x{channel:08x}" if v.branch >= 560 else f"Ch {channel:08x}", process)


def switch_timeout(r: Random, v: Versions, gpu: Gpu, process: Process) -> str:
    """Xid 109."""
    return xid(
        v,
        gpu,
        109,
        f"Ch {r.randrange(8, 24):08x}, errorString CTX SWITCH TIMEOUT, Info 0x{r.randrange(0x1000, 0x9FFFF):x}",
        process,
    )


def nvlink_down(r: Random, v: Versions, gpu: Gpu, link: int) -> str:
    """Xid 149: a link of a Blackwell GPU went down by its own signal; the layout of the word changed with R575."""
    word = 0x004505C6 if v.branch < 575 else (4 << 20) | 0x0E
    return xid(
        v, gpu, 149, f"NETIR_LINK_EVT  Fatal   XC0 i0 Link {link:02d} (0x{word:08x} 0x00000000 0x00000000 0x00000000 "
        "0x00000000 0x00000000)",
    )  # fmt: skip


def nvlink_remote(r: Random, v: Versions, gpu: Gpu, link: int) -> str:
    """Xid 145 on a peer: it lost what it had in flight."""
    return xid(
        v,
        gpu,
        145,
        f"RLW_REMAP  Nonfatal   XC0 i0 Link {link:02d} (0x{0x82 if v.branch < 575 else 0x04:08x} 0x00000004 "
        "0x00000000 0x00000000 0x00000000 0x00000000)",
    )


def nvlink4_fatal(r: Random, v: Versions, gpu: Gpu, link: int) -> str:
    """Xid 74 with its seven registers."""
    return xid(v, gpu, 74, f"NVLink: fatal error detected on link {link}(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")


def halted(r: Random, v: Versions, gpu: Gpu) -> str:
    """Xid 62: the GPU's own controller stopped."""
    return xid(
        v, gpu, 62, f"{r.getrandbits(16):04x}({r.getrandbits(14):04x}) {r.getrandbits(32):08x} {r.getrandbits(32):08x}"
    )


def switch_error(r: Random, switch: int, bdf: str, number: int, link: int, *, text: str, fatal: bool) -> list[str]:
    """An SXid's three lines."""
    head = f"nvidia-nvswitch{switch}: SXid (PCI:{bdf}): {number}, "
    data = ", ".join(f"0x{r.getrandbits(32):08x}" for _ in range(9))
    return [
        f"{head}{'Fatal' if fatal else 'Non-fatal'}, Link {link:02d} {text}",
        f"{head}Severity {1 if fatal else 0} Engine instance {link:02d} Sub-engine instance 00",
        f"{head}Data {{{data}}}",
    ]


def api_mismatch(comm: str, pid: int, client: str, module: str) -> list[str]:
    """The library and the loaded module differ."""
    return [
        f"NVRM: API mismatch: the client '{comm}' (pid {pid})",
        f"NVRM: has the version {client}, but this kernel module has",
        f"NVRM: the version {module}.  Please make sure that this",
        "NVRM: kernel module and all NVIDIA driver components",
        "NVRM: have the same version.",
    ]

"""Logs to measure with: NCCL and kernel noise in real shapes, one significant line in a thousand."""

import random
from collections.abc import Iterator
from pathlib import Path

OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")


def noise(node: str, seed: int) -> Iterator[str]:
    """Endless noise of one node, without newlines."""
    pick = random.Random(seed)
    number = 0
    while True:
        number += 1
        gpu, kind = pick.randrange(8), pick.randrange(10)
        prefix = f"{node}:{4000 + gpu}:{4100 + gpu} [{gpu}] NCCL INFO "
        if kind < 5:
            yield (
                f"{prefix}{pick.choice(OPS)}: opCount {number:x} sendbuff 0x7f{pick.getrandbits(38):010x} recvbuff "
                f"0x7f{pick.getrandbits(38):010x} count {1 << pick.randrange(8, 26)} datatype 7 op 0 root 0"
            )
        elif kind < 7:
            yield f"{prefix}Channel {pick.randrange(16):02d}/0 : {gpu}[{gpu}] -> {gpu + 1}[{gpu + 1}] via P2P/CUMEM"
        elif kind < 9:
            second = number // 100
            yield (
                f"[rank{gpu}]: [2026-03-11 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}] "
                f"iteration {number} loss {pick.random():.4f} grad norm {pick.random():.3f}"
            )
        else:
            yield f"DEBUG:data:worker {gpu} prefetch shard-{pick.randrange(99999):05d} took {pick.random() * 50:.2f} ms"


def write_folder(folder: Path, *, nodes: int, lines: int) -> int:
    """A folder of `nodes` logs with `lines` lines in all; every thousandth says something. Returns the line count."""
    folder.mkdir(parents=True)
    (folder / "rootrank.toml").write_text('cluster = "bench"\njob_id = "1"\n', encoding="utf-8")
    share = lines // nodes
    for index in range(nodes):
        node = f"bench{index:02d}"
        source = noise(node, index)
        with (folder / f"{node}.rank{index}.log").open("w", encoding="utf-8") as out:
            for number in range(share):
                if number % 1000 == 999:
                    out.write(f"[rank{index}]: ValueError: sample {number} is out of range\n")
                else:
                    out.write(next(source) + "\n")
    return share * nodes

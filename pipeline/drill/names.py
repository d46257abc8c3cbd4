"""Invented names. Nodes of a drill begin with `drill-`, so that nobody takes them for real ones or drains them."""

from random import Random
from typing import Final

PREFIX: Final = "drill-"
_STYLES: Final = (
    "gpu{:03d}", "n{}", "hgx-a{:02d}", "cn{:04d}", "ip-10-40-{0}-17", "worker-{}", "r{0}u12", "dgx-{:02d}", "g{:05d}",
    "p5-{:03d}.cluster.local", "node{}.hpc.example",
)  # fmt: skip
_WORDS: Final = ("llm", "vit", "moe", "asr", "diff", "bert", "video", "sft", "rank", "mix")
_ROOTS: Final = ("/scratch/ckpt", "/data/runs", "/mnt/nas/exp", "/lustre/proj7/out", "/ckpt", "/fsx/train")
_SCRIPTS: Final = ("train.py", "pretrain_gpt.py", "main.py", "run_pretrain.py", "finetune.py")
_PYTHONS: Final = ("/usr/bin/python3", "/opt/conda/bin/python", "/usr/local/bin/python3.10", "/opt/venv/bin/python")


def node_names(r: Random, count: int) -> list[str]:
    """Full names of nodes, in the style of one site; numbers have gaps as real node lists do."""
    style = r.choice(_STYLES)
    number, names = r.randrange(1, 60), []
    for _ in range(count):
        names.append(PREFIX + style.format(number))
        number += r.choice((1, 1, 1, 2, 5)) if count < 200 else 1
    return names


def job_name(r: Random) -> str:
    """`moe-7b`."""
    return f"{r.choice(_WORDS)}-{r.choice(('1b', '7b', '13b', '70b', 'xl', 'base'))}"


def checkpoint_root(r: Random) -> str:
    """Where a job saves."""
    return f"{r.choice(_ROOTS)}/{r.choice(_WORDS)}{r.randrange(10, 99)}"


def script(r: Random) -> str:
    """The training script."""
    return r.choice(_SCRIPTS)


def python(r: Random) -> str:
    """The interpreter."""
    return r.choice(_PYTHONS)


def hexes(r: Random, digits: int) -> str:
    """Random hexadecimal digits."""
    return f"{r.getrandbits(4 * digits):0{digits}x}"


def uuid(r: Random) -> str:
    """A UUID of a GPU or of a pod, without its prefix."""
    raw = hexes(r, 32)
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def hostlist(names: list[str]) -> str:
    """Slurm's short form where the names differ in a number at the end, else names with commas."""
    short = [name.split(".")[0] for name in names]
    stems = {name.rstrip("0123456789") for name in short}
    digits = [name[len(next(iter(stems))) :] for name in short] if len(stems) == 1 else []
    if len(names) < 2 or not digits or not all(digits) or len({len(d) for d in digits}) > 1:
        return ",".join(short)
    parts: list[list[str]] = []
    for one in digits:
        if parts and int(one) == int(parts[-1][-1]) + 1:
            parts[-1][1:] = [one]
        else:
            parts.append([one])
    return f"{stems.pop()}[{','.join('-'.join(part) for part in parts)}]"

"""Is there a wheel for aarch64 of all that the plain install, the agent and its signatures need? `make aarch64`.

Asks the index that pip is set to, for the pinned versions, and downloads what it finds into build/aarch64.
"""

import argparse
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT: Final = Path(__file__).parents[2]
EXTRAS: Final = ("shipper", "signing")
PYTHONS: Final = ("3.11", "3.12", "3.13")
# glibc 2.17 and up, and what newer wheels are built on; abi3 and pure ones fit each Python.
PLATFORMS: Final = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64")


def needed() -> list[str]:
    """The packages of the plain install and the extras with all that they need, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [
        *project["dependencies"],
        *(each for extra in EXTRAS for each in project["optional-dependencies"][extra]),
    ]
    found: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        fits = requirement.marker is None or requirement.marker.evaluate({"platform_machine": "aarch64", "extra": ""})
        if fits and name not in found:
            found.add(name)
            waiting += requires(name) or []
    return sorted(found)


def pinned() -> dict[str, str]:
    """The versions of requirements.lock."""
    rows = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pairs = [row.split("==") for row in rows if "==" in row]
    return {canonicalize_name(name): version.split()[0] for name, version in pairs}


def wheels(versions: dict[str, str], python: str, folder: Path) -> dict[str, str]:
    """The file that pip takes for this Python on aarch64, by package; those are left out of which there is none."""
    wanted = [f"{name}=={version}" for name, version in versions.items() if version]
    if not _download(wanted, python, folder):
        for each in wanted:  # which of them is it?
            _download([each], python, folder)
    files = [each.name for each in folder.glob("*.whl")]
    return {parse_wheel_filename(each)[0]: each for each in files}


def _download(wanted: list[str], python: str, folder: Path) -> bool:
    tag = f"cp{python.replace('.', '')}"
    platforms = [word for each in PLATFORMS for word in ("--platform", each)]
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary=:all:", *platforms, "--python-version", python, "--implementation", "cp", "--abi", tag,
            "--abi", "abi3", "--abi", "none", "--dest", str(folder), *wanted,
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.returncode == 0


def kind_of(file: str) -> str:
    """How a wheel was built: pure, or its ABI and platform."""
    if not file:
        return "NONE"
    (tag, *_) = sorted(parse_wheel_filename(file)[3], key=str)
    return "pure" if tag.platform == "any" else f"{tag.abi} {tag.platform.removesuffix('_aarch64')}"


def main() -> int:
    """Print the table. 1 where a wheel is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.aarch64", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "aarch64", help="where wheels are put")
    options = parser.parse_args()
    known = pinned()
    versions = {name: known.get(name, "") for name in needed()}
    found = {python: wheels(versions, python, options.out / python) for python in PYTHONS}
    print(
        f"| package | version | {' | '.join(f'Python {each}' for each in PYTHONS)} |\n|---|---|{'---|' * len(PYTHONS)}"
    )
    for name, version in versions.items():
        kinds = [kind_of(found[python].get(name, "")) for python in PYTHONS]
        print(f"| {name} | {version or 'not pinned'} | {' | '.join(kinds)} |")
    return int(any(name not in each for each in found.values() for name in versions))


if __name__ == "__main__":
    sys.exit(main())

"""The Kafka jars: given, kept in the data folder, shared in the user's cache, or fetched once with Maven."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from pipeline.embedded.errors import JarsError, MissingProgramError

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).with_name("kafka_pom.xml")
FETCH_TIMEOUT_S = 600.0
NEEDED = ("kafka_2.13-*.jar", "kafka-clients-*.jar", "log4j-slf4j*-impl-*.jar")


def jars_for(*, kafka_dir: Path, jars_dir: Path | None) -> Path:
    """Return a folder with all jars: the one given (or ROOTRANK_KAFKA_JARS), else the data folder's, filled if need be.

    Raises:
        JarsError: the folder given lacks jars, or fetching failed.
        MissingProgramError: jars must be fetched and Maven is not installed.

    """
    given = jars_dir or (Path(os.environ["ROOTRANK_KAFKA_JARS"]) if os.environ.get("ROOTRANK_KAFKA_JARS") else None)
    if given is not None:
        require_complete(given)
        return given
    own = kafka_dir / "jars"
    if not is_complete(own):
        # Kept in the data folder too: a later start needs neither the network nor the cache.
        _publish(copy_jars, source=fetch_kafka_jars(), target=own)
    return own


def fetch_kafka_jars() -> Path:
    """Return the jars in the user's cache, fetching them first where they are missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rootrank" / "kafka-jars"
    target = cache / KAFKA_VERSION
    if is_complete(target):
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one download for all who start at once; freed by the kernel on a crash
        if not is_complete(target):
            _publish(_fetch_with_maven, source=POM, target=target)
    return target


def is_complete(folder: Path) -> bool:
    """Tell whether the folder holds a Kafka broker with its logging."""
    return all(any(folder.glob(pattern)) for pattern in NEEDED)


def require_complete(folder: Path) -> None:
    """Raise JarsError when the folder given by the user does not hold what a broker needs."""
    missing = [pattern for pattern in NEEDED if not any(folder.glob(pattern))]
    if missing:
        raise JarsError(
            f"{folder} holds no {' and no '.join(missing)}; give the folder that "
            f"`mvn dependency:copy-dependencies -f {POM} -DoutputDirectory=DIR` fills, or a Kafka distribution's libs"
        )


def copy_jars(source: Path, target: Path) -> None:
    """Copy every jar, as a hard link where the file system allows it."""
    for jar in source.glob("*.jar"):
        try:
            os.link(jar, target / jar.name)
        except OSError:
            shutil.copy2(jar, target / jar.name)


def _publish(fill: Callable[[Path, Path], None], *, source: Path, target: Path) -> None:
    """Fill a temporary neighbour and rename it, so that a kill in the middle leaves nothing half done."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(source, temporary)
        shutil.rmtree(target, ignore_errors=True)
        temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fetch_with_maven(pom: Path, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingProgramError(
            "`mvn` is not installed and the Kafka jars are not on this machine yet: install Maven "
            "(Debian and Ubuntu: apt install maven), or give a folder with the jars with --kafka-jars, "
            "or set KAFKA_BOOTSTRAP to a Kafka you have"
        )
    # A copy of the pom: Maven must not leave files beside an installed package.
    work = target / ".work"
    work.mkdir()
    shutil.copy(pom, work / "pom.xml")
    command = [maven, "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
    try:
        result = subprocess.run(
            [*command, f"-DoutputDirectory={target}"],
            capture_output=True, text=True, errors="replace", timeout=FETCH_TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise JarsError(f"Maven did not bring the Kafka jars within {FETCH_TIMEOUT_S:.0f} s; try again") from error
    shutil.rmtree(work)
    if result.returncode != 0 or not is_complete(target):
        raise JarsError(
            "Maven could not bring the Kafka jars (is there a network?); a machine without one takes them from "
            f"--kafka-jars DIR. Maven said:\n{(result.stdout + result.stderr).strip()[-2000:]}"
        )

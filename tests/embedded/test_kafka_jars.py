"""Where the Kafka jars come from, and what is said when they or the programs are missing."""

import os
import stat
from pathlib import Path

import pytest

from pipeline.embedded.errors import JarsError, MissingProgramError
from pipeline.embedded.kafka import KafkaBroker, find_java
from pipeline.embedded.kafka_jars import fetch_kafka_jars, is_complete, jars_for

JARS = ("kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar", "log4j-slf4j-impl-2.25.3.jar", "other-1.jar")
# Stands in for Maven: writes the jars where it is told to, or fails half way.
MAVEN_THAT_WORKS = f"""#!/bin/sh
for argument; do case "$argument" in -DoutputDirectory=*) out="${{argument#*=}}";; esac; done
for jar in {" ".join(JARS)}; do echo jar > "$out/$jar"; done
"""
MAVEN_THAT_FAILS = """#!/bin/sh
for argument; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
echo half > "$out/kafka_2.13-4.3.1.jar"
echo "could not transfer artifact" >&2
exit 1
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache and nothing on PATH but what a test puts into tmp_path/bin."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ROOTRANK_KAFKA_JARS", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def put_program(machine: Path, name: str, text: str) -> None:
    program = machine / "bin" / name
    program.write_text(text.replace("#!/bin/sh", "#!/bin/sh\nPATH=/usr/bin:/bin"))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def put_jars(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for jar in JARS:
        (folder / jar).touch()
    return folder


def test_missing_java_names_what_to_install(machine: Path) -> None:
    with pytest.raises(MissingProgramError, match="JDK or JRE 17"):
        KafkaBroker(machine / "data").start()


def test_missing_maven_names_what_to_install_and_the_way_without_it(machine: Path) -> None:
    with pytest.raises(MissingProgramError, match=r"install Maven(.|\n)*--kafka-jars"):
        jars_for(kafka_dir=machine / "data", jars_dir=None)


def test_java_of_java_home_is_taken_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_program(machine, "java", "#!/bin/sh\n")
    home = machine / "jdk"
    (home / "bin").mkdir(parents=True)
    os.link(machine / "bin" / "java", home / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java() == str(home / "bin" / "java")


def test_a_given_folder_is_used_in_place(machine: Path) -> None:
    given = put_jars(machine / "given")

    assert jars_for(kafka_dir=machine / "data", jars_dir=given) == given


def test_the_environment_may_give_the_folder(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = put_jars(machine / "given")
    monkeypatch.setenv("ROOTRANK_KAFKA_JARS", str(given))

    assert jars_for(kafka_dir=machine / "data", jars_dir=None) == given


def test_a_given_folder_without_a_broker_is_refused_by_what_it_lacks(machine: Path) -> None:
    given = put_jars(machine / "given")
    (given / "kafka-clients-4.3.1.jar").unlink()

    with pytest.raises(JarsError, match=r"kafka-clients-\*\.jar"):
        jars_for(kafka_dir=machine / "data", jars_dir=given)


def test_jars_in_the_data_folder_need_neither_maven_nor_cache(machine: Path) -> None:
    own = put_jars(machine / "data" / "jars")

    assert jars_for(kafka_dir=machine / "data", jars_dir=None) == own


def test_fetched_jars_are_kept_in_cache_and_data_folder(machine: Path) -> None:
    put_program(machine, "mvn", MAVEN_THAT_WORKS)

    first = jars_for(kafka_dir=machine / "one", jars_dir=None)
    (machine / "bin" / "mvn").unlink()
    second = jars_for(kafka_dir=machine / "two", jars_dir=None)

    assert {jar.name for jar in first.iterdir()} == {jar.name for jar in second.iterdir()} == set(JARS)


def test_a_download_that_fails_leaves_nothing_half_and_says_why(machine: Path) -> None:
    put_program(machine, "mvn", MAVEN_THAT_FAILS)

    with pytest.raises(JarsError, match="could not transfer artifact"):
        jars_for(kafka_dir=machine / "data", jars_dir=None)

    assert not list((machine / "cache").rglob("*.jar"))
    assert not is_complete(machine / "data" / "jars")


def test_what_a_killed_download_left_is_cleared_away(machine: Path) -> None:
    put_program(machine, "mvn", MAVEN_THAT_WORKS)
    left = machine / "cache" / "rootrank" / "kafka-jars" / ".4.3.1-abandoned"
    left.mkdir(parents=True)

    assert is_complete(fetch_kafka_jars())
    assert not left.exists()

"""Which paths may hang, by a mountinfo written for the test over folders that are there."""

from pathlib import Path

import pytest

from shippers.places import Places


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("data/nfs/job", "data/local", "var/log"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def places_of(root: Path, **mounted: str) -> Places:
    lines = ["1 1 8:1 / / rw - ext4 /dev/sda1 rw"]
    for number, (name, kind) in enumerate(mounted.items(), 2):
        lines.append(f"{number} 1 0:{40 + number} / {root / name.replace('__', '/')} rw - {kind} server:/x rw")
    table = root / "mountinfo"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Places(str(table))


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "autofs", "fuse", "fuse.sshfs", "cifs", "unheard-of"])
def test_what_a_server_or_a_program_answers_for_may_hang(root: Path, kind: str) -> None:
    places = places_of(root, data__nfs=kind)

    assert places.may_hang(str(root / "data/nfs/job/rank0.log"))
    assert places.may_hang(str(root / "data/nfs/job/*.log"))
    assert not places.may_hang(str(root / "data/local/rank0.log"))


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "overlay"])
def test_a_disk_of_this_machine_and_its_memory_do_not_hang(root: Path, kind: str) -> None:
    assert not places_of(root, data__nfs=kind).may_hang(str(root / "data/nfs/job/rank0.log"))


def test_a_link_leads_where_it_leads(root: Path) -> None:
    (root / "var/log/jobs").symlink_to(root / "data/nfs/job")
    (root / "var/log/near").symlink_to("../../data/local")
    (root / "var/log/far").symlink_to("../../data/nfs")
    (root / "var/log/loop").symlink_to("loop")
    places = places_of(root, data__nfs="nfs4")

    assert places.may_hang(str(root / "var/log/jobs/rank0.log"))
    assert places.may_hang(str(root / "var/log/far/*.log"))
    assert places.may_hang(str(root / "data/local/../nfs/rank0.log"))
    assert not places.may_hang(str(root / "var/log/near/rank0.log"))
    assert not places.may_hang(str(root / "var/log/loop/rank0.log"))


@pytest.mark.parametrize("pattern", ["**/*.log", "data/*/rank0.log", "*/nfs/*.log", "data/n*/*/*.log"])
def test_a_glob_that_comes_by_such_a_mount_may_hang(root: Path, pattern: str) -> None:
    assert places_of(root, data__nfs="nfs4").may_hang(str(root / pattern))


@pytest.mark.parametrize("pattern", ["data/l*/*.log", "var/**/*.log", "data/local/*", "*.log"])
def test_a_glob_that_passes_such_a_mount_by_does_not(root: Path, pattern: str) -> None:
    assert not places_of(root, data__nfs="nfs4").may_hang(str(root / pattern))


def test_the_mount_that_was_made_last_over_a_path_counts(root: Path) -> None:
    table = root / "mountinfo"
    place = root / "data/nfs"
    auto, disk = f"2 1 0:4 / {place} rw - autofs auto rw", f"3 2 8:2 / {place} rw - xfs /dev/b rw"
    table.write_text(f"1 1 8:1 / / rw - ext4 /dev/a rw\n{auto}\n{disk}\n", encoding="utf-8")

    assert not Places(str(table)).may_hang(str(place / "rank0.log"))


def test_a_file_that_was_opened_through_a_link_tells_by_its_device(root: Path) -> None:
    places = places_of(root, data__nfs="nfs4")  # 0:42

    assert places.may_hang(str(root / "var/log/*.log"), [42])
    assert not places.may_hang(str(root / "var/log/*.log"), [43])


def test_without_proc_nothing_is_known_and_nothing_fails(root: Path) -> None:
    places = Places(str(root / "none"))

    assert (places.refresh(), places.may_hang(str(root / "data/nfs/rank0.log"))) == (0, False)

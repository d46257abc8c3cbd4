"""The manifests of the node agent, read as Kubernetes reads them as far as that goes without a cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shippers.builtin import check_switches
from shippers.config import load

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
PRIVILEGED, RESTRICTED = FOLDER / "shipper.yaml", FOLDER / "shipper-restricted.yaml"
BOTH = pytest.mark.parametrize("path", [PRIVILEGED, RESTRICTED], ids=["privileged", "restricted"])


def documents(path: Path) -> dict[str, Any]:
    """By kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))}


def pod(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = documents(path)["DaemonSet"]["spec"]["template"]["spec"]
    return found


def containers(path: Path) -> list[dict[str, Any]]:
    return [*pod(path)["initContainers"], *pod(path)["containers"]]


@BOTH
def test_its_settings_are_settings_of_the_agent(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "shipper.toml"
    file.write_text(documents(path)["ConfigMap"]["data"]["shipper.toml"], encoding="utf-8")
    config = load(file, {})

    check_switches(config)
    assert Path(config.spool.dir) in {Path(each["mountPath"]) for each in containers(path)[0]["volumeMounts"]}


@BOTH
def test_every_mount_has_its_volume_and_logs_are_read_only(path: Path) -> None:
    volumes = {each["name"] for each in pod(path)["volumes"]}
    for container in containers(path):
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        assert set(mounts) == volumes
        assert [name for name, each in mounts.items() if not each.get("readOnly")] == ["spool", "jobs"]


@BOTH
def test_it_reads_the_folder_that_training_pods_write_their_marks_into(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "shipper.toml"
    file.write_text(documents(path)["ConfigMap"]["data"]["shipper.toml"], encoding="utf-8")
    (folder,) = (each for each in pod(path)["volumes"] if each["name"] == "jobs")
    environment = yaml.safe_load((FOLDER / "job-environment.yaml").read_text(encoding="utf-8"))

    assert folder["hostPath"]["path"] == load(file, {}).jobs.dir
    assert {"name": "ROOTRANK_JOBS_DIR", "value": load(file, {}).jobs.dir} in environment["env"]


@BOTH
def test_selector_labels_and_names_agree_and_it_asks_kubernetes_for_nothing(path: Path) -> None:
    found = documents(path)
    spec = found["DaemonSet"]["spec"]

    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod(path)["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert pod(path)["automountServiceAccountToken"] is False
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Service"} & found.keys()
    assert {each["metadata"]["namespace"] for kind, each in found.items() if kind != "Namespace"} == {"rootrank"}


@BOTH
def test_it_is_bounded_and_opens_no_port(path: Path) -> None:
    (shipper,) = pod(path)["containers"]

    assert shipper["resources"]["limits"] == {"cpu": "250m", "memory": "256Mi"}
    assert all("ports" not in each for each in containers(path))
    assert "hostNetwork" not in pod(path)


def test_the_restricted_one_holds_no_privilege() -> None:
    for container in containers(RESTRICTED):
        context = container["securityContext"]
        assert context["privileged"] is False
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "add" not in context["capabilities"]
    assert not {"hostPID", "hostIPC", "hostNetwork"} & pod(RESTRICTED).keys()
    settings = documents(RESTRICTED)["ConfigMap"]["data"]["shipper.toml"]
    assert "/dev/" not in settings


def test_the_privileged_one_has_the_device_of_the_kernel_log() -> None:
    assert all(each["securityContext"]["privileged"] is True for each in containers(PRIVILEGED))
    assert "/dev/kmsg" in documents(PRIVILEGED)["ConfigMap"]["data"]["shipper.toml"]

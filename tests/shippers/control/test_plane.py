"""The settings of the agent of a cluster, what `check` finds, and its manifests."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from shippers.clock import HostClock
from shippers.config import ConfigError, load
from shippers.control.kube_access import access_of
from shippers.control.settings import KubernetesSettings
from shippers.reader import Reader
from tests.shippers.control.api_server import FakeApi, serving
from tests.shippers.control.shapes import PODS

REPOSITORY = Path(__file__).parents[3]
MANIFESTS = REPOSITORY / "deploy" / "kubernetes" / "control"


def settings(folder: Path, text: str) -> Path:
    path = folder / "control.toml"
    path.write_text(text)
    return path


def kubeconfig(folder: Path, **user: Any) -> Path:
    path = folder / "kubeconfig"
    shape = {
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
    }  # fmt: skip
    path.write_bytes(orjson.dumps(shape))
    return path


def test_the_example_is_what_the_settings_are(tmp_path: Path) -> None:
    config = load(REPOSITORY / "deploy" / "control.example.toml", {})
    assert config.control is not None
    assert config.control.kubernetes == KubernetesSettings()
    assert config.source == ()
    assert (config.profile, config.clock.beacon) == ("none", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[control]\n", r'needs reporter = "control"'),
        ('reporter = "c"\n[control]\nseat_s = 1.0\n', "seat_s must be 3 to 600"),
        ('reporter = "c"\n[control]\n[[source]]\npath = "/a"\n', r"\[control\] and \[\[source\]\] in one file"),
        ('reporter = "c"\n[control.kubernets]\n', "did you mean kubernetes"),
    ],
)
def test_settings_that_cannot_be_are_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(settings(tmp_path, text), {})


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"exec": {"command": "aws"}}, "logs in by a program"),
        ({"client-certificate-data": "!", "client-key-data": "!"}, "not base64"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_said(tmp_path: Path, user: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        access_of(KubernetesSettings(kubeconfig=str(kubeconfig(tmp_path, **user))))


def test_outside_a_cluster_a_kubeconfig_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="this is no pod"):
        access_of(KubernetesSettings())


def test_what_is_refused_or_absent_is_found_before_the_start(tmp_path: Path) -> None:
    with serving(FakeApi()) as fake:
        fake.forbidden.add(PODS)
        path = kubeconfig(tmp_path, token="t")
        path.write_bytes(path.read_bytes().replace(b"https://127.0.0.1:6443", f"http://127.0.0.1:{fake.port}".encode()))
        text = f'reporter = "c"\n[control.kubernetes]\nkubeconfig = "{path}"\n'
        text += '[control.slurm]\nscontrol = "/nowhere/scontrol"\n'
        config = load(settings(tmp_path, text), {})
        reader = Reader(config, HostClock(), {})
        assert reader.control is not None
        found = {each.source: (each.state, each.reason or "") for each in reader.control.probe()}
        reader.close()
    assert found["seat"] == ("on", "nobody has it")
    assert found["kubernetes/events"] == ("on", "")
    assert found["kubernetes/pods"][0] == "refused"
    assert 'resources ["pods"], verbs ["list", "watch"]' in found["kubernetes/pods"][1]
    assert found["kubernetes/workloads"][0] == "off"
    assert found["slurm/jobs"] == ("refused", "/nowhere/squeue: No such file or directory")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def test_the_role_allows_what_is_asked_for_and_no_more(tmp_path: Path) -> None:
    roles = [each for each in documents("rbac.yaml") if each["kind"] in ("ClusterRole", "Role")]
    rules = [rule for role in roles for rule in role["rules"]]
    allowed = {(group, kind) for rule in rules for group in rule["apiGroups"] for kind in rule["resources"]}
    assert allowed == {
        ("", "events"), ("", "pods"), ("", "nodes"), ("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"),
        ("kueue.x-k8s.io", "workloads"), ("coordination.k8s.io", "leases"),
    }  # fmt: skip
    writing = [rule for rule in rules if not set(rule["verbs"]) <= {"list", "watch"}]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in writing] == [
        (["leases"], ["rootrank-control"], ["get", "update"])
    ]


def test_the_manifests_name_each_other_rightly_and_hold_settings_that_can_be_used(tmp_path: Path) -> None:
    named = {(each["kind"], each["metadata"]["name"]) for each in documents("rbac.yaml") + documents("deployment.yaml")}
    for each in documents("rbac.yaml"):
        if each["kind"].endswith("Binding"):
            assert (each["roleRef"]["kind"], each["roleRef"]["name"]) in named
            assert {(subject["kind"], subject["name"]) for subject in each["subjects"]} <= named
    shown, deployment = documents("deployment.yaml")
    config = load(settings(tmp_path, shown["data"]["control.toml"]), {})
    assert config.control is not None
    assert ("Lease", (config.control.kubernetes or KubernetesSettings()).lease) in named
    pod = deployment["spec"]["template"]["spec"]
    assert ("ServiceAccount", pod["serviceAccountName"]) in named
    assert deployment["spec"]["replicas"] == 2
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "ports" not in pod["containers"][0]

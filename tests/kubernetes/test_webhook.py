"""`livevirt webhook` on a real kube-apiserver, as people meet it: through plain kubectl."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import examples
from .cluster import KubernetesCluster, eventually
from .running_guest import (
    AS_COMPONENT,
    KUBEVIRT,
    NODE,
    VOLUMES,
    a_manifest,
    patch_status,
    start,
)
from .webhook_process import WebhookProcess

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="clusters need root for their namespaces"),
]

NAMESPACE = "team"
Object = dict[str, Any]
Result = subprocess.CompletedProcess[str]
GUEST = "running"


@pytest.fixture(scope="module")
def team(webhook: WebhookProcess) -> Iterator[KubernetesCluster]:
    """A cluster with the webhook, a namespace and a VM whose guest runs."""
    cluster = webhook.cluster
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.apply(KUBEVIRT)
    cluster.kubectl("label", "nodes", "--all", "kubevirt.io/schedulable=true")
    start(cluster, NAMESPACE, a_manifest(GUEST))
    yield cluster
    cluster.kubectl("delete", "kubevirts", "--all", "-n", "kubevirt")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def configured(team: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """A cluster whose KubeVirt object is restored at the end."""
    yield team
    team.kubectl("replace", "-f", "-", text=json.dumps(KUBEVIRT))
    [before] = SIZED
    assert eventually(lambda: verdicts(team, BIGGER) == [before])


def configure(cluster: KubernetesCluster, patch: Object) -> None:
    command = ("patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type=merge", "-p")
    cluster.kubectl(*command, json.dumps({"spec": patch}))


def send(
    cluster: KubernetesCluster, manifest: Object, *options: str, verb: str = "apply"
) -> Result:
    return cluster.run_kubectl(
        verb, "-n", NAMESPACE, "-f", "-", *options, text=json.dumps(manifest)
    )


def dry_run(cluster: KubernetesCluster, edit: Object, *options: str) -> Result:
    """Edit the VM whose guest runs, without storing it."""
    change = ("--type=merge", "-p", json.dumps(edit), "--dry-run=server")
    return cluster.run_kubectl("patch", "vm", GUEST, "-n", NAMESPACE, *change, *options)


def template(**spec: Any) -> Object:
    return {"spec": {"template": {"spec": spec}}}


def warnings(done: Result) -> list[str]:
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    return [line.removeprefix("Warning: ") for line in lines if line.startswith("Warning: ")]


def refusal(done: Result) -> str:
    assert done.returncode != 0, done.stdout
    return done.stderr


# ---------------------------------------------------------------- kubectl's ways to write


@pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["apply", "apply --server-side"])
def test_given_a_manifest_when_applied_then_diff_is_empty(
    team: KubernetesCluster, way: tuple[str, ...]
) -> None:
    manifest = a_manifest(f"applied{len(way)}")
    preview = send(team, manifest, *way, "--dry-run=server")
    assert preview.returncode == 0, preview.stderr
    name = manifest["metadata"]["name"]
    assert team.run_kubectl("get", "vm", name, "-n", NAMESPACE).returncode != 0
    assert send(team, manifest, *way).returncode == 0
    different = send(team, manifest, *way, verb="diff")
    assert (different.returncode, different.stdout) == (0, "")

    manifest["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] = 2
    different = send(team, manifest, *way, verb="diff")
    assert (different.returncode, "sockets: 2" in different.stdout) == (1, True)
    assert send(team, manifest, *way).returncode == 0
    assert send(team, manifest, *way, verb="diff").returncode == 0


def test_given_an_editor_then_edits_are_judged_too(
    team: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(team, a_manifest("edited"))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/runStrategy: .*/runStrategy: Halted/' \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(editor))
    edited = team.run_kubectl("edit", "vm", "edited", "-n", NAMESPACE)
    assert edited.returncode == 0, edited.stderr
    assert team.get("vm", "edited", "-n", NAMESPACE)["spec"]["runStrategy"] == "Halted"
    # A refused edit is shown again, with the reasons on top.
    seen = tmp_path / "seen"
    change = "s/runStrategy: .*/runStrategy: Sometimes/"
    editor.write_text(f'#!/bin/sh\ncp "$1" {seen}\nsed -i "{change}" "$1"\n')
    refusal(team.run_kubectl("edit", "vm", "edited", "-n", NAMESPACE))
    assert "# * spec.runStrategy" in seen.read_text()


# ---------------------------------------------------------------- verdicts

HOT = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
BIGGER = template(domain={"cpu": {"sockets": 2}, "memory": {"guest": "1Gi"}})
MIGRATE: Object = {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}}
SIZED = ["live, after a resize of the pod"]
NOT_IN_PLACE = copy.deepcopy(KUBEVIRT["spec"]) | MIGRATE
NOT_IN_PLACE["configuration"]["developerConfiguration"]["disabledFeatureGates"] = ["InPlaceHotplug"]


def verdicts(cluster: KubernetesCluster, edit: Object) -> list[str]:
    """Return the classes of verdict that kubectl warns of."""
    shown = warnings(dry_run(cluster, edit))
    assert all(len(each) <= 256 for each in shown)
    return [each.partition(":")[0] for each in shown]


@pytest.mark.wording
@pytest.mark.parametrize(
    ("edit", "classes"),
    [
        (template(tolerations=[{"operator": "Exists"}]), ["live"]),
        (template(volumes=[*VOLUMES, HOT]), ["live"]),
        (BIGGER, SIZED),
        (template(domain={"cpu": {"cores": 2}}), ["at the next restart only"]),
        (template(domain={"cpu": {"sockets": 9}}), ["at the next restart only"]),
        (template(hostname="a", domain={"cpu": {"sockets": 2}}), ["at the next restart only"]),
        (
            {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}},
            ["at the next restart only"],
        ),
        ({"spec": {"runStrategy": "Halted"}}, []),
        ({"metadata": {"labels": {"a": "b"}}}, []),
    ],
    ids=["place", "volume", "size", "cores", "too many", "held back", "labels", "halt", "nothing"],
)
def test_given_an_edit_of_a_running_guest_then_its_verdict_is_a_warning(
    team: KubernetesCluster, edit: Object, classes: list[str]
) -> None:
    assert verdicts(team, edit) == classes


@pytest.mark.wording
def test_given_a_live_volume_beside_a_restart_then_both_verdicts_are_shown(
    team: KubernetesCluster,
) -> None:
    edit = template(hostname="other", volumes=[*VOLUMES, HOT])
    assert verdicts(team, edit) == ["at the next restart only", "live"]


@pytest.mark.wording
def test_given_sizes_change_by_migration_then_the_verdict_says_so(
    configured: KubernetesCluster,
) -> None:
    configure(configured, NOT_IN_PLACE)
    assert eventually(lambda: verdicts(configured, BIGGER) == ["live, by migration"])


@pytest.mark.wording
def test_given_the_strategy_stage_then_every_edit_waits_for_a_restart(
    configured: KubernetesCluster,
) -> None:
    configure(configured, {"configuration": {"vmRolloutStrategy": "Stage"}})
    assert eventually(lambda: verdicts(configured, BIGGER) == ["at the next restart only"])


@pytest.mark.wording
def test_given_a_quota_then_the_warning_says_that_it_is_exceeded(team: KubernetesCluster) -> None:
    assert "OverQuota" not in "".join(warnings(dry_run(team, BIGGER)))
    team.kubectl("create", "quota", "tight", "--hard=requests.cpu=110m", "-n", NAMESPACE)
    try:
        assert eventually(lambda: "(OverQuota)" in "".join(warnings(dry_run(team, BIGGER))))
    finally:
        team.kubectl("delete", "quota", "tight", "-n", NAMESPACE)
    assert eventually(lambda: "OverQuota" not in "".join(warnings(dry_run(team, BIGGER))))


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (template(domain={"memory": {"guest": "0"}}), "domain.memory"),
        (template(domain={"cpu": {"sockets": 3, "maxSockets": 2}}), "domain.cpu"),
    ],
    ids=["no memory", "more sockets than the owner allows"],
)
def test_given_an_impossible_edit_then_it_is_refused(
    team: KubernetesCluster, edit: Object, field: str
) -> None:
    assert f"spec.template.spec.{field}" in refusal(dry_run(team, edit))


@pytest.mark.wording
def test_given_a_lost_record_of_the_start_then_the_warning_says_that_it_is_unknown(
    team: KubernetesCluster,
) -> None:
    start(team, NAMESPACE, a_manifest("lost"))
    status = team.get("vmi", "lost", "-n", NAMESPACE)["status"]
    record = status["virtualMachineRevisionName"]
    team.kubectl("delete", "controllerrevision", record, "-n", NAMESPACE)
    change = ("--type=merge", "-p", json.dumps(BIGGER), "--dry-run=server")
    [warning] = warnings(team.run_kubectl("patch", "vm", "lost", "-n", NAMESPACE, *change))
    assert record in warning


# ---------------------------------------------------------------- refusals


def an_instancetype(version: str, spec: Object, name: str = "sized") -> Object:
    return examples.other(
        f"instancetype.kubevirt.io/{version}", "VirtualMachineInstancetype", name, spec
    )


BAD_PREFERENCE = {"requirements": {"cpu": {"guest": -1}}}
REFUSED: dict[str, tuple[Object, str]] = {
    "a VM that breaks the schema": (
        a_manifest("bad") | {"spec": {"runStrategy": 7, "template": {"spec": {}}}},
        "spec.runStrategy",
    ),
    "a VM with an unknown run strategy": (
        a_manifest("bad") | {"spec": {**a_manifest("bad")["spec"], "runStrategy": "Now"}},
        "spec.runStrategy",
    ),
    "an instance without memory that can boot": (
        examples.a_vmi("bad", examples.a_spec(domain={"memory": {"guest": "1e1.5"}})),
        "spec.domain.memory.guest",
    ),
    "a migration of nothing": (
        examples.other(
            "kubevirt.io/v1", "VirtualMachineInstanceMigration", "bad", {"vmiName": "none"}
        ),
        "spec.vmiName",
    ),
    "an instance type without CPUs": (
        an_instancetype("v1beta2", {"cpu": {"guest": 0}, "memory": {"guest": "1Gi"}}),
        "spec.cpu.guest",
    ),
    "a preference that nothing meets": (
        examples.other(
            "instancetype.kubevirt.io/v1beta2", "VirtualMachinePreference", "bad", BAD_PREFERENCE
        ),
        "spec.requirements.cpu.guest",
    ),
    "a DataVolume without a source": (
        examples.other("cdi.kubevirt.io/v1beta1", "DataVolume", "bad", {"storage": {}}),
        "spec",
    ),
}


@pytest.mark.parametrize(("manifest", "field"), REFUSED.values(), ids=REFUSED)
def test_given_a_wrong_object_then_kubectl_names_the_field(
    team: KubernetesCluster, manifest: Object, field: str
) -> None:
    assert f"{field}" in refusal(send(team, manifest, verb="create"))


def test_given_wrong_settings_then_the_kubevirt_object_is_refused(team: KubernetesCluster) -> None:
    patch = json.dumps({"spec": {"configuration": {"vmRolloutStrategy": "Soon"}}})
    refused = team.run_kubectl(
        "patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type=merge", "-p", patch
    )
    assert "spec.configuration.vmRolloutStrategy" in refusal(refused)


def test_given_a_user_then_instances_are_not_edited_directly(team: KubernetesCluster) -> None:
    edit = ("--type=merge", "-p", json.dumps({"spec": {"domain": {"cpu": {"sockets": 2}}}}))
    change = ("patch", "vmi", GUEST, "-n", NAMESPACE, *edit)
    assert "spec" in refusal(team.run_kubectl(*change))
    assert team.run_kubectl(*change, "--dry-run=server", *AS_COMPONENT).returncode == 0
    failed = ("--type=merge", "-p", json.dumps({"status": {"phase": "Failed"}}))
    team.kubectl("patch", "vmi", GUEST, "-n", NAMESPACE, *failed)
    assert team.get("vmi", GUEST, "-n", NAMESPACE)["status"]["phase"] == "Running"


# ---------------------------------------------------------------- warnings and defaults


def test_given_fields_nobody_acts_on_then_each_is_warned_about_once(
    team: KubernetesCluster,
) -> None:
    manifest = a_manifest("warned")
    manifest["spec"]["template"]["spec"]["domain"]["devices"]["tpm"] = {}
    [warning] = warnings(send(team, manifest, "--dry-run=server"))
    assert "spec.template.spec.domain.devices.tpm" in warning
    deprecated = a_manifest("warned")
    deprecated["spec"]["running"] = deprecated["spec"].pop("runStrategy") == "Always"
    [warning] = warnings(send(team, deprecated, "--dry-run=server"))
    assert "spec.running" in warning


def test_given_a_missing_instance_type_then_the_vm_is_accepted_with_a_warning(
    team: KubernetesCluster,
) -> None:
    vm = examples.sized("unsized", instancetype="nowhere")
    [warning] = warnings(send(team, vm, "--dry-run=server"))
    assert "spec.instancetype" in warning


def test_given_an_instance_type_and_its_vm_in_one_file_then_nothing_is_missing(
    team: KubernetesCluster,
) -> None:
    for number in range(5):
        name = f"together{number}"
        spec = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}
        manifests = (
            an_instancetype("v1beta2", spec, name),
            examples.sized(name, instancetype=name),
        )
        text = yaml.safe_dump_all(manifests)
        assert warnings(team.run_kubectl("apply", "-n", NAMESPACE, "-f", "-", text=text)) == []


def test_given_a_new_instance_then_it_is_complete(team: KubernetesCluster) -> None:
    send(team, examples.a_vmi("complete", examples.a_spec()))
    vmi = team.get("vmi", "complete", "-n", NAMESPACE)
    domain = vmi["spec"]["domain"]
    assert domain["cpu"]["maxSockets"] == 4
    assert domain["memory"]["maxGuest"] == "512Mi"
    assert domain["firmware"]["uuid"]
    assert vmi["status"]["phase"] == "Pending"
    assert vmi["metadata"]["finalizers"]
    send(team, examples.a_vmi("another", examples.a_spec()))
    other = team.get("vmi", "another", "-n", NAMESPACE)["spec"]["domain"]
    assert other["firmware"]["uuid"] != domain["firmware"]["uuid"]


def test_given_a_vm_then_its_spec_stays_as_written(team: KubernetesCluster) -> None:
    manifest = a_manifest("kept")
    send(team, manifest)
    vm = team.get("vm", "kept", "-n", NAMESPACE)
    assert vm["spec"] == manifest["spec"]
    assert vm["metadata"]["finalizers"]


def test_given_kubevirts_examples_then_the_rules_accept_what_can_run(
    team: KubernetesCluster,
) -> None:
    team.kubectl("create", "priorityclass", "non-preemtible", "--value=1000")
    options = ("--dry-run=server", "--validate=strict", "-n", NAMESPACE, "-o", "name", "-f", "-")
    done = team.run_kubectl("create", *options, text=yaml.safe_dump_all(examples.MANIFESTS))
    team.kubectl("delete", "priorityclass", "non-preemtible")
    accepted = {line.partition("/")[2] for line in done.stdout.splitlines()}
    wanted = {each["metadata"]["name"] for each in examples.MANIFESTS} - examples.REFUSED
    assert accepted == wanted, done.stderr
    assert done.stderr.count("validate.livevirt.io") == len(examples.REFUSED)


# ---------------------------------------------------------------- conversion


def in_version(cluster: KubernetesCluster, version: str, name: str) -> Object:
    resource = f"virtualmachineinstancetypes.{version}.instancetype.kubevirt.io"
    found: Object = cluster.get(resource, name, "-n", NAMESPACE)
    assert found["apiVersion"].endswith(version)
    return found


def test_given_instance_types_then_each_version_is_shown_as_the_other(
    team: KubernetesCluster,
) -> None:
    spec = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
    send(team, an_instancetype("v1beta1", spec, "older"))
    assert in_version(team, "v1beta2", "older")["spec"] == spec
    send(team, an_instancetype("v1beta2", {"memory": {"maxGuest": "4Gi"}}, "open"))
    older = in_version(team, "v1beta1", "open")["spec"]
    assert (older["cpu"]["guest"], older["memory"]["guest"]) == (0, "0")
    label = ("label", "virtualmachineinstancetypes.v1beta1.instancetype.kubevirt.io", "open")
    team.kubectl(*label, "-n", NAMESPACE, "team=blue")
    newer = in_version(team, "v1beta2", "open")
    assert newer["spec"] == {"cpu": {}, "memory": {"maxGuest": "4Gi"}}
    assert newer["metadata"]["labels"] == {"team": "blue"}
    listed = team.get(
        "virtualmachineinstancetypes.v1beta1.instancetype.kubevirt.io", "-n", NAMESPACE
    )
    assert {each["apiVersion"] for each in listed["items"]} == {"instancetype.kubevirt.io/v1beta1"}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["apply", "apply --server-side"])
def test_given_either_version_when_applied_then_diff_is_empty(
    team: KubernetesCluster, version: str, way: tuple[str, ...]
) -> None:
    spec = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
    manifest = an_instancetype(version, spec, f"diff-{version}-{len(way)}")
    assert send(team, manifest, *way).returncode == 0
    assert send(team, manifest, *way, verb="diff").returncode == 0


# ---------------------------------------------------------------- evictions


def evict(cluster: KubernetesCluster, pod: str, *options: str) -> Result:
    body: Object = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    if options:
        body["deleteOptions"] = {"dryRun": list(options)}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    return cluster.run_kubectl("create", "--raw", path, "-f", "-", text=json.dumps(body))


def test_given_an_eviction_then_a_movable_guest_is_marked_and_its_pod_stays(
    team: KubernetesCluster,
) -> None:
    manifest = a_manifest("moving", evictionStrategy="LiveMigrate")
    start(team, NAMESPACE, manifest)
    pods = team.get("pods", "-n", NAMESPACE)["items"]
    [pod] = [p["metadata"]["name"] for p in pods if p["metadata"]["name"].startswith(
        "virt-launcher-moving")]  # fmt: skip
    refused = refusal(evict(team, pod, "All"))
    assert "evict.livevirt.io" in refused
    status = team.get("vmi", "moving", "-n", NAMESPACE)["status"]
    assert "evacuationNodeName" not in status
    refusal(evict(team, pod))
    status = team.get("vmi", "moving", "-n", NAMESPACE)["status"]
    assert status["evacuationNodeName"] == NODE
    patch_status(team, NAMESPACE, "moving", {"phase": "Succeeded"})
    assert eventually(lambda: evict(team, pod, "All").returncode == 0)


# ---------------------------------------------------------------- at rest, and faults


def test_given_nothing_to_do_then_the_webhook_writes_nothing(team: KubernetesCluster) -> None:
    objects = (
        ("secret", "livevirt-webhook-certificates", "-n", "kubevirt"),
        ("mutatingwebhookconfiguration", "livevirt-webhook"),
        ("validatingwebhookconfiguration", "livevirt-webhook"),
        ("crd", "virtualmachineinstancetypes.instancetype.kubevirt.io"),
    )

    def versions() -> list[str]:
        return [team.get(*each)["metadata"]["resourceVersion"] for each in objects]

    before = versions()
    for _ in range(5):
        verdicts(team, BIGGER)
    assert versions() == before


def test_given_no_webhook_then_writes_that_need_rules_are_refused(
    team: KubernetesCluster, webhook: WebhookProcess
) -> None:
    with webhook.stopped():
        refused = refusal(send(team, a_manifest("unchecked"), verb="create"))
        assert "default.livevirt.io" in refused
        edit = dry_run(team, template(domain={"cpu": {"sockets": 2}}))
        assert "validate.livevirt.io" in refusal(edit)
        # What our components report does not depend on it, nor do other kinds.
        patch_status(team, NAMESPACE, GUEST, {"guestOSInfo": {"id": "debian"}})
        team.kubectl("create", "configmap", "other", "-n", NAMESPACE)
        team.kubectl("get", "vm", GUEST, "-n", NAMESPACE)
    assert send(team, a_manifest("unchecked"), verb="create").returncode == 0


def test_given_no_warnings_then_writes_are_accepted_without_them(
    team: KubernetesCluster, webhook: WebhookProcess
) -> None:
    assert len(warnings(dry_run(team, BIGGER))) == 1
    closed = {"name": "warn.livevirt.io", "clientConfig": {"url": "https://127.0.0.1:9/warn"}}
    patch = ("--type=strategic", "-p", json.dumps({"webhooks": [closed]}))
    name = ("validatingwebhookconfiguration", "livevirt-webhook")
    team.kubectl("patch", *name, *patch)
    try:
        assert eventually(lambda: warnings(dry_run(team, BIGGER)) == [])
        refusal(dry_run(team, {"spec": {"runStrategy": "Now"}}))
    finally:
        webhook.install()
    assert eventually(lambda: len(warnings(dry_run(team, BIGGER))) == 1)

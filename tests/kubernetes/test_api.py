"""`livevirt api` behind a real kube-apiserver: every subresource, and who may use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.cluster import api as api_server
from livevirt.cluster import api_manifests, rbac
from livevirt.kube.objects import core
from livevirt.node.node_labels import AGENT_ADDRESS
from livevirt.vm import kinds
from livevirt.vm.config.controller import KUBEVIRT
from livevirt.vm.kinds import subresources
from livevirt.vm.kinds.subresources import NO_NODE_AGENT, SUBRESOURCES

from .cluster import KubernetesCluster, eventually, running_cluster, tool
from .component import (
    NAMESPACE,
    account_kubeconfig,
    at_hub,
    hub_address,
    install_definitions,
    is_whole_module,
    requests_of,
    running,
    unused_permissions,
    user_kubeconfig,
    virtctl,
)

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
PORT = 9443
ROOT_PATH = "/apis/subresources.kubevirt.io/v1/namespaces/default"
Virtctl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    """A cluster whose nodes run nothing: no test here needs a pod."""
    name = f"api-{os.getpid()}"
    with running_cluster(name, "--nodes", "0", "--hollow", "1", "--audit") as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def api(cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The aggregated API server, registered; gives its address."""
    folder = tmp_path_factory.mktemp("api")
    address = hub_address(cluster)
    install_definitions(cluster)
    cluster.apply(*rbac.user_manifests(), *rbac.component_manifests(rbac.API), KUBEVIRT)
    cluster.apply(*api_manifests.manifests(), at_hub(cluster, api_manifests.NAME, PORT))
    config = account_kubeconfig(cluster, rbac.API.name, folder / "kubeconfig")
    listen = f"{address}:{PORT}"
    with running(cluster, folder / "log", "api", "--kubeconfig", str(config), "--listen", listen):
        for version in ("v1", "v1alpha3"):
            cluster.wait(f"apiservice/{version}.subresources.kubevirt.io", "condition=Available")
        yield address


@pytest.fixture
def admin(cluster: KubernetesCluster) -> Virtctl:
    """virtctl of the administrator."""
    return lambda *arguments: virtctl(cluster.kubeconfig, *arguments)


def a_vm(name: str, **spec: Any) -> dict[str, Any]:
    domain = {"memory": {"guest": "512Mi"}, "cpu": {"sockets": 1}, "devices": {}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}, **spec},
    }


def an_instance(name: str, **status: Any) -> dict[str, Any]:
    """Return an instance as if its guest ran."""
    spec = a_vm(name)["spec"]["template"]["spec"]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running", **status},
    }


@pytest.fixture
def vm(cluster: KubernetesCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A VM of its own for each test, with nothing running."""
    name = f"vm-{abs(hash(request.node.name)) % 10**8}"
    cluster.apply(a_vm(name))
    yield name
    for kind in ("vm", "vmi"):
        cluster.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")


def strategy(cluster: KubernetesCluster, vm: str) -> str:
    return str(cluster.get("vm", vm)["spec"]["runStrategy"])


def test_given_both_versions_then_discovery_lists_every_subresource(
    cluster: KubernetesCluster,
) -> None:
    for version in ("v1", "v1alpha3"):
        path = f"/apis/subresources.kubevirt.io/{version}"
        listed = json.loads(cluster.kubectl("get", "--raw", path))["resources"]
        assert {each["name"] for each in listed} == {each.path for each in SUBRESOURCES}


def test_given_virtctl_when_vms_are_started_and_stopped_then_their_strategy_changes(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    assert admin("start", vm).returncode == 0
    assert strategy(cluster, vm) == "Always"
    cluster.apply(an_instance(vm))
    assert admin("stop", vm).returncode == 0
    assert strategy(cluster, vm) == "Halted"


def test_given_a_stop_with_a_grace_period_then_the_instance_has_it(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    cluster.kubectl("patch", "vm", vm, "--type=merge", '-p={"spec":{"runStrategy":"Always"}}')
    cluster.apply(an_instance(vm))
    assert admin("stop", vm, "--grace-period", "7", "--force").returncode == 0
    assert cluster.get("vmi", vm)["spec"]["terminationGracePeriodSeconds"] == 7


def test_given_a_running_vm_when_restarted_then_the_request_is_in_its_status(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    assert admin("restart", vm).returncode == 1  # it does not run
    cluster.kubectl("patch", "vm", vm, "--type=merge", '-p={"spec":{"runStrategy":"Always"}}')
    cluster.apply(an_instance(vm))
    assert admin("restart", vm).returncode == 0
    requests = cluster.get("vm", vm)["status"]["stateChangeRequests"]
    assert [each["action"] for each in requests] == ["Stop", "Start"]


def test_given_a_running_vm_when_migrated_then_a_migration_is_created(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    assert admin("migrate", vm).returncode == 1  # it does not run
    cluster.apply(an_instance(vm))
    assert admin("migrate", vm).returncode == 0
    migrations = cluster.get("vmim")["items"]
    assert [each["spec"]["vmiName"] for each in migrations].count(vm) == 1


def test_given_a_plan_then_it_is_answered_with_the_verdict_and_the_placement(
    admin: Virtctl, vm: str
) -> None:
    patch = '{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":2}}}}}}'
    done = admin("plan", vm, "--patch", patch, "-o", "json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["observed"]["virtualMachine"]
    assert "placement" in plan


def test_given_a_plan_with_a_priority_class_then_it_is_looked_up(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    cluster.kubectl("create", "priorityclass", f"of-{vm}", "--value=10")
    template = {"spec": {"priorityClassName": f"of-{vm}"}}
    done = admin("plan", vm, "--patch", json.dumps({"spec": {"template": template}}))
    assert done.returncode == 0, done.stderr
    cluster.kubectl("delete", "priorityclass", f"of-{vm}")


def test_given_a_running_vm_when_its_growth_is_planned_then_quotas_and_nodes_are_consulted(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    spec = a_vm(vm)["spec"]
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": f"start-{vm}", "namespace": "default"},
        "revision": 1,
        "data": {"spec": spec},
    }
    instance = an_instance(vm, nodeName="hollow-1", virtualMachineRevisionName=f"start-{vm}")
    instance["spec"]["domain"]["cpu"]["maxSockets"] = 4
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": vm}
    uid = cluster.get("vm", vm)["metadata"]["uid"]
    instance["metadata"]["ownerReferences"] = [{**owner, "uid": uid, "controller": True}]
    cluster.kubectl("patch", "vm", vm, "--type=merge", '-p={"spec":{"runStrategy":"Always"}}')
    cluster.apply(revision, instance)
    patch = '{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":2}}}}}}'
    done = admin("plan", vm, "--patch", patch, "-o", "json")
    assert done.stdout, done.stderr
    assert {"node", "namespace"} <= set(json.loads(done.stdout)["observed"])
    cluster.kubectl("delete", "controllerrevision", f"start-{vm}")


def test_given_a_claim_when_added_and_removed_then_the_template_has_it_and_has_it_no_more(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
        },
    }
    cluster.apply(claim)
    added = admin("addvolume", vm, "--volume-name=data", "--persist")
    assert added.returncode == 0, added.stderr
    template = cluster.get("vm", vm)["spec"]["template"]["spec"]
    assert [volume["name"] for volume in template["volumes"]] == ["data"]
    assert admin("removevolume", vm, "--volume-name=data", "--persist").returncode == 0
    assert not cluster.get("vm", vm)["spec"]["template"]["spec"].get("volumes")


def test_given_an_instance_without_a_vm_when_a_volume_is_added_then_its_spec_has_it(
    cluster: KubernetesCluster,
) -> None:
    cluster.apply(an_instance("alone"))
    options = {
        "name": "extra",
        "disk": {"disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "extra"}},
    }
    path = f"{ROOT_PATH}/virtualmachineinstances/alone"
    cluster.kubectl("replace", "--raw", f"{path}/addvolume", "-f", "-", text=json.dumps(options))
    assert cluster.get("vmi", "alone")["spec"]["volumes"][0]["name"] == "extra"
    text = json.dumps({"name": "extra"})
    cluster.kubectl("replace", "--raw", f"{path}/removevolume", "-f", "-", text=text)
    assert not cluster.get("vmi", "alone")["spec"].get("volumes")
    cluster.kubectl("delete", "vmi", "alone")


def test_given_instance_types_then_vms_are_expanded_stored_or_not(
    cluster: KubernetesCluster, tmp_path: Path, admin: Virtctl
) -> None:
    def sizes(kind: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
        version = "instancetype.kubevirt.io/v1beta2"
        return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}

    instancetype = {"cpu": {"guest": 3}, "memory": {"guest": "1Gi"}}
    cluster.apply(
        sizes("VirtualMachineClusterInstancetype", instancetype, name="three"),
        sizes("VirtualMachineInstancetype", instancetype, name="three", namespace="default"),
        sizes("VirtualMachineClusterPreference", {}, name="plain"),
        sizes("VirtualMachinePreference", {}, name="plain", namespace="default"),
    )
    for prefix in ("Cluster", ""):
        vm = a_vm(f"sized-{prefix.lower()}x")
        vm["spec"] |= {
            "template": {"spec": {"domain": {"devices": {}}}},
            "instancetype": {"name": "three", "kind": f"VirtualMachine{prefix}Instancetype"},
            "preference": {"name": "plain", "kind": f"VirtualMachine{prefix}Preference"},
        }
        cluster.apply(vm)
        name = vm["metadata"]["name"]
        raw = cluster.kubectl("get", "--raw", f"{ROOT_PATH}/virtualmachines/{name}/expand-spec")
        expanded = json.loads(raw)
        assert expanded["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] == 3
        manifest = tmp_path / "vm.json"
        manifest.write_text(json.dumps(vm))
        assert admin("expand", "--file", str(manifest)).returncode == 0
        cluster.kubectl("delete", "vm", name)


AGENT: dict[str, Any] = {"conditions": [{"type": "AgentConnected", "status": "True"}]}
PAUSED: dict[str, Any] = {"conditions": [{"type": "Paused", "status": "True"}]}
IN_GUEST = {
    "pause": ("replace", AGENT, {}),
    "unpause": ("replace", PAUSED, {}),
    "softreboot": ("replace", AGENT, {}),
    "reset": ("replace", AGENT, {}),
    "guestosinfo": ("get", AGENT, None),
    "userlist": ("get", AGENT, None),
    "filesystemlist": ("get", AGENT, None),
    "exec": ("create", AGENT, {"command": ["true"]}),
}


@pytest.mark.parametrize("verb", IN_GUEST)
def test_given_a_running_guest_when_its_node_agent_is_needed_then_the_refusal_says_so(
    cluster: KubernetesCluster, api: str, verb: str, vm: str
) -> None:
    method, status, body = IN_GUEST[verb]
    cluster.apply(an_instance(vm, **status))
    path = f"{ROOT_PATH}/virtualmachineinstances/{vm}/{verb}"
    code, answer = send(cluster, api, path, method, body)
    assert code == 501
    assert [cause["reason"] for cause in answer["details"]["causes"]] == [NO_NODE_AGENT]
    more = ["-f", "-"] if body is not None else []
    done = cluster.run_kubectl(method, "--raw", path, *more, text=json.dumps(body))
    assert done.returncode == 1
    assert "node agent" in done.stderr  # kubectl shows it to the user


def test_given_a_node_agent_that_is_not_reachable_then_the_refusal_says_so(
    cluster: KubernetesCluster, api: str, vm: str
) -> None:
    node = cluster.get("nodes")["items"][0]["metadata"]["name"]
    cluster.kubectl("annotate", "node", node, f"{AGENT_ADDRESS}=127.0.0.1:1")
    cluster.apply(an_instance(vm, nodeName=node))
    path = f"{ROOT_PATH}/virtualmachineinstances/{vm}/reset"
    code, answer = send(cluster, api, path, "replace", {})
    cluster.kubectl("annotate", "node", node, f"{AGENT_ADDRESS}-")
    assert code == 503
    assert [cause["reason"] for cause in answer["details"]["causes"]] == [NO_NODE_AGENT]


def test_given_a_console_when_its_node_agent_is_needed_then_virtctl_fails_with_the_reason(
    cluster: KubernetesCluster, admin: Virtctl, vm: str
) -> None:
    cluster.apply(an_instance(vm))
    done = admin("console", vm, "--timeout", "1")
    assert done.returncode == 1


def test_given_anybody_then_the_version_is_answered(cluster: KubernetesCluster) -> None:
    config = user_of(cluster, "nobody")
    assert virtctl(config, "version").returncode == 0


def user_of(cluster: KubernetesCluster, name: str, role: str = "") -> str:
    """Return the kubeconfig of a user with a role in the namespace `default`."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": "default"},
    }
    cluster.apply(account)
    if role:
        binding = ["create", "rolebinding", name, "-n", "default", f"--clusterrole={role}"]
        text = cluster.kubectl(*binding, f"--serviceaccount=default:{name}", "--dry-run=client",
                               "-o", "json")  # fmt: skip
        cluster.kubectl("apply", "-f", "-", text=text)
    path = Path(cluster.kubeconfig).parent / f"{name}.kubeconfig"
    return str(user_kubeconfig(cluster, name, path))


def test_given_the_view_role_then_a_user_may_plan_and_expand_and_nothing_else(
    cluster: KubernetesCluster, vm: str
) -> None:
    viewer = user_of(cluster, "viewer", "kubevirt.io:view")
    assert eventually(lambda: virtctl(viewer, "plan", vm).returncode == 0)
    assert virtctl(viewer, "expand", "--vm", vm).returncode == 0
    assert virtctl(viewer, "start", vm).returncode == 1
    assert strategy(cluster, vm) == "Halted"
    assert virtctl(viewer, "plan", vm, "-n", NAMESPACE).returncode == 1


def test_given_the_edit_role_then_a_user_may_start_and_not_migrate(
    cluster: KubernetesCluster, vm: str
) -> None:
    editor = user_of(cluster, "editor", "kubevirt.io:edit")
    assert eventually(lambda: virtctl(editor, "start", vm).returncode == 0)
    cluster.apply(an_instance(vm))
    before = len(cluster.get("vmim")["items"])
    assert virtctl(editor, "migrate", vm).returncode == 1
    assert len(cluster.get("vmim")["items"]) == before
    migrator = user_of(cluster, "migrator", "kubevirt.io:migrate")
    assert eventually(lambda: virtctl(migrator, "migrate", vm).returncode == 0)


#: By role of `docs/kubernetes.md`: what a user with it may do in the namespace, and what not.
MAY = {
    "kubevirt.io:view": (
        ["get vm", "watch vmi", "list vmim", "get dv", "create vm/plan", "get vm/expand-spec"],
        ["create vm", "delete vmi", "update vm/start", "get vmi/console", "create vmi/exec"],
    ),
    "kubevirt.io:edit": (
        ["create vm", "patch vmi", "delete dv", "update vm/restart", "get vmi/console"],
        ["create vmim", "update vm/migrate", "deletecollection vm", "patch kv", "create vmcf"],
    ),
    "kubevirt.io:admin": (
        ["deletecollection vm", "update vmi/pause", "create vmi/exec", "update vm/addvolume"],
        ["create vmim", "update vm/migrate", "patch kv", "get secret", "create vmcf"],
    ),
    "kubevirt.io:migrate": (
        ["create vmim", "deletecollection vmim", "update vm/migrate"],
        ["get vm", "update vm/start", "patch vmi"],
    ),
}
KINDS = {
    "vm": kinds.VM, "vmi": kinds.VMI, "vmim": kinds.MIGRATION, "dv": kinds.DATA_VOLUME,
    "kv": kinds.KUBEVIRT, "vmcf": kinds.CLUSTER_INSTANCETYPE, "secret": core.SECRET,
}  # fmt: skip


def may(cluster: KubernetesCluster, user: str, request: str) -> bool:
    """Return whether Kubernetes allows a request such as `get vm` or `update vm/start`."""
    verb, _, resource = request.partition(" ")
    name, _, subresource = resource.partition("/")
    kind = KINDS[name]
    attributes = {
        "verb": verb,
        "group": subresources.GROUP if subresource else kind.group,
        "resource": kind.plural,
        "subresource": subresource,
        "namespace": "default",
    }
    who = {"user": f"system:serviceaccount:default:{user}", "groups": ["system:authenticated"]}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, "resourceAttributes": attributes},
    }
    answer = cluster.kubectl("create", "-f", "-", "-o", "json", text=json.dumps(review))
    return bool(json.loads(answer)["status"]["allowed"])


@pytest.mark.parametrize("role", MAY)
def test_given_a_role_then_its_users_may_do_what_the_page_lists_and_nothing_else(
    cluster: KubernetesCluster, role: str
) -> None:
    user = f"holder-of-{role.partition(':')[2]}"
    user_of(cluster, user, role)
    allowed, refused = MAY[role]
    assert eventually(lambda: may(cluster, user, allowed[0]))  # kube-apiserver has seen the role
    assert [each for each in allowed if not may(cluster, user, each)] == []
    assert [each for each in refused if may(cluster, user, each)] == []


def test_given_no_role_then_kubernetes_and_the_component_itself_refuse(
    cluster: KubernetesCluster, api: str, vm: str
) -> None:
    assert virtctl(user_of(cluster, "nobody"), "start", vm).returncode == 1
    path = f"{ROOT_PATH}/virtualmachines/{vm}/start"
    user = {"X-Remote-User": "system:serviceaccount:default:nobody"}
    code, _ = send(cluster, api, path, "replace", {}, headers=user)
    assert code == 403
    assert strategy(cluster, vm) == "Halted"


def test_given_forged_headers_without_the_proxys_certificate_then_nobody_is_believed(
    cluster: KubernetesCluster, api: str, vm: str
) -> None:
    path = f"{ROOT_PATH}/virtualmachines/{vm}/start"
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    assert send(cluster, api, path, "replace", {}, headers=forged, certificate="")[0] == 401
    # One that the cluster has signed, but not for the proxy: the handshake fails.
    assert send(cluster, api, path, "replace", {}, headers=forged, certificate="admin")[0] == 0
    assert strategy(cluster, vm) == "Halted"


def test_given_a_token_then_metrics_need_the_permission_to_read_them(
    cluster: KubernetesCluster, api: str
) -> None:
    user_of(cluster, "scraper")
    token = cluster.kubectl("create", "token", "scraper", "-n", "default").strip()
    headers = {"Authorization": f"Bearer {token}"}
    assert send(cluster, api, "/metrics", "get", headers=headers, certificate="")[0] == 403
    cluster.kubectl("create", "clusterrole", "scraper", "--verb=get",
                    "--non-resource-url=/metrics")  # fmt: skip
    cluster.kubectl("create", "clusterrolebinding", "scraper", "--clusterrole=scraper",
                    "--serviceaccount=default:scraper")  # fmt: skip
    assert eventually(
        lambda: send(cluster, api, "/metrics", "get", headers=headers, certificate="")[0] == 200
    )
    headers = {"Authorization": "Bearer none"}
    assert send(cluster, api, "/metrics", "get", headers=headers, certificate="")[0] == 401


def test_given_a_damaged_secret_then_new_certificates_are_issued_and_trusted(
    cluster: KubernetesCluster,
) -> None:
    def bundle() -> str:
        found = cluster.get("apiservice", "v1.subresources.kubevirt.io")
        return str(found["spec"].get("caBundle"))

    before = bundle()
    damage = '{"data":{"tls.crt":"eA=="}}'
    cluster.kubectl("patch", "secret", api_server.SECRET, "-n", NAMESPACE, "-p", damage)
    assert eventually(lambda: bundle() != before)
    path = "/apis/subresources.kubevirt.io/v1/version"
    assert eventually(lambda: cluster.run_kubectl("get", "--raw", path).returncode == 0)


def test_given_all_of_the_above_then_the_role_of_the_component_fits_exactly(
    cluster: KubernetesCluster, request: pytest.FixtureRequest
) -> None:
    if not is_whole_module(request.config):
        pytest.skip("only after all other tests of this module")
    requests = requests_of(cluster, rbac.API.user)
    assert requests
    assert not [each for each in requests if not each.allowed]
    assert not unused_permissions(rbac.API, requests)


SCRIPT = """
import http.client, json, ssl, sys
call = json.load(sys.stdin)
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
if call["certificate"]:
    context.load_cert_chain(call["certificate"] + ".crt", call["certificate"] + ".key")
try:
    connection = http.client.HTTPSConnection(call["host"], call["port"], context=context)
    connection.request(call["method"], call["path"], call["body"], call["headers"])
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode()]))
except (ssl.SSLError, ConnectionError):
    print(json.dumps([0, ""]))
"""
METHODS = {"get": "GET", "create": "POST", "replace": "PUT"}


def send(
    cluster: KubernetesCluster,
    host: str,
    path: str,
    method: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    certificate: str = "front-proxy",
) -> tuple[int, Any]:
    """Send a request to the component itself; return the status, 0 if TLS failed, and the body.

    By default it is sent as the front proxy does, for an administrator.
    """
    user = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    folder = Path(cluster.kubeconfig).parent / "pki"
    call = {
        "host": host,
        "port": PORT,
        "path": path,
        "method": METHODS[method],
        "body": None if body is None else json.dumps(body),
        "headers": {"Content-Type": "application/json", **(user if headers is None else headers)},
        "certificate": str(folder / certificate) if certificate else "",
    }
    command = ["exec", "--name", cluster.name, "--", sys.executable, "-c", SCRIPT]
    done = tool(*command, text=json.dumps(call))
    assert done.returncode == 0, done.stderr
    code, text = json.loads(done.stdout)
    return code, json.loads(text) if text.startswith("{") else text

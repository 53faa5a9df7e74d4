"""The real kubectl, doing what people do with it."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..server_process import BIN, ServerProcess
from .manifests import a_halted_vm, a_map, a_pod, owned_by

pytestmark = pytest.mark.slow
SECONDS = 60.0
SOCKETS = "{.spec.template.spec.domain.cpu.sockets}"


class Kubectl:
    """kubectl in one namespace."""

    def __init__(self, server: ServerProcess, namespace: str) -> None:
        self.server, self.namespace = server, namespace

    def __call__(self, *args: str, stdin: Any = None, env: dict[str, str] | None = None) -> str:
        return self.server.kubectl(
            "--namespace", self.namespace, *args, input=_text(stdin), env=env
        )

    def fails(self, *args: str, stdin: Any = None) -> tuple[int, str]:
        """Run it, expect it to fail; return the exit status and all that it said."""
        done = self.server.run_kubectl("--namespace", self.namespace, *args, input=_text(stdin))
        assert done.returncode != 0, done.stdout
        return done.returncode, done.stdout + done.stderr

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "-o", "json"))

    def create(self, *objects: Any) -> None:
        self("create", "-f", "-", stdin=list(objects))

    def data(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.json("get", "cm", name).get("data", {})
        return found

    def rows(self, *args: str) -> list[list[str]]:
        """Return a table without its head, split into words."""
        return [line.split() for line in self(*args, "--no-headers").splitlines()]

    def maps(self, *args: str) -> list[str]:
        """Return the names of ConfigMaps, in the order printed."""
        printed = self("get", "cm", "-o", "name", *args).split()
        return [name.partition("/")[2] for name in printed if "kube-root-ca" not in name]


def _text(stdin: Any) -> str:
    if isinstance(stdin, list):
        return yaml.safe_dump_all(stdin)
    return "" if stdin is None else stdin if isinstance(stdin, str) else yaml.safe_dump(stdin)


@pytest.fixture
def kubectl(server: ServerProcess, namespace: str) -> Kubectl:
    return Kubectl(server, namespace)


def eventually(look: Callable[[], str]) -> str:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)  # kubectl tells nobody
    return found


# ---------------------------------------------------------------- what there is


def test_api_resources_lists_kinds_with_short_names_and_verbs(server: ServerProcess) -> None:
    lines = server.kubectl("api-resources", "--no-headers", "-o", "wide").splitlines()
    rows: dict[str, list[str]] = {}
    for words in map(str.split, lines):
        rows.setdefault(words[0], words)  # metrics have nodes and pods of their own
    assert rows["virtualmachines"][1:3] == ["vm,vms", "kubevirt.io/v1"]
    assert rows["configmaps"][:4] == ["configmaps", "cm", "v1", "true"]
    assert rows["nodes"][3] == "false"
    assert "create,delete,deletecollection,get,list,patch,update,watch" in rows["pods"]


def test_api_versions_lists_every_group(server: ServerProcess) -> None:
    assert {
        "v1", "apps/v1", "kubevirt.io/v1", "instancetype.kubevirt.io/v1beta1",
        "coordination.k8s.io/v1", "storage.k8s.io/v1", "events.k8s.io/v1",
    } <= set(server.kubectl("api-versions").split())  # fmt: skip


def test_explain_shows_the_whole_tree_and_one_field(server: ServerProcess) -> None:
    tree = server.kubectl("explain", "virtualmachine", "--recursive")
    for words in ("runStrategy\t<string>", "maxSockets\t<integer>", "dataVolumeTemplates\t<[]"):
        assert words in tree
    field = server.kubectl("explain", "pod.spec.containers.resources.limits")
    assert "FIELD: limits" in field
    assert "DESCRIPTION" in field
    older = server.kubectl("explain", "vm.spec", "--output=plaintext-openapiv2")
    assert "runStrategy\t<string>" in older


def test_get_crd_shows_what_kubevirt_would_have_installed(server: ServerProcess) -> None:
    printed = server.kubectl("get", "crd", "-o", "name").split()
    assert "customresourcedefinition.apiextensions.k8s.io/virtualmachines.kubevirt.io" in printed
    scope = "jsonpath={.spec.scope} {.spec.names.kind}"
    name = "virtualmachineclusterinstancetypes.instancetype.kubevirt.io"
    assert server.kubectl("get", "crd", name, "-o", scope) == (
        "Cluster VirtualMachineClusterInstancetype"
    )


def a_definition(name: str) -> str:
    plural, _, group = name.partition(".")
    names = {"plural": plural, "kind": plural.title()}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": []}
    meta = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return json.dumps(meta | {"metadata": {"name": name}, "spec": spec})


@pytest.mark.wording
@pytest.mark.parametrize(
    ("name", "why"),
    [("gadgets.example.com", "built-in kinds only"), ("virtualmachines.kubevirt.io", "already")],
)
@pytest.mark.parametrize("verb", ["create --validate=false", "apply --validate=false", "delete"])
def test_a_refused_definition_says_why(
    server: ServerProcess, verb: str, name: str, why: str
) -> None:
    done = server.run_kubectl(*verb.split(), "-f", "-", input=a_definition(name))
    assert done.returncode == 1
    assert "MethodNotAllowed" in done.stderr
    assert name in done.stderr
    assert why in done.stderr


def test_get_raw_reaches_any_path(server: ServerProcess) -> None:
    assert server.kubectl("get", "--raw", "/readyz") == "ok"
    assert json.loads(server.kubectl("get", "--raw", "/version"))["major"] == "1"
    assert "/apis/kubevirt.io" in json.loads(server.kubectl("get", "--raw", "/"))["paths"]


def test_version_shows_the_servers(server: ServerProcess) -> None:
    assert "Server Version: v1." in server.kubectl("version")


# ---------------------------------------------------------------- writing


def test_apply_creates_changes_and_then_leaves_alone(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=a_map("a", x="1", y="2"))
    assert "configured" in kubectl("apply", "-f", "-", stdin=a_map("a", x="1", z="3"))
    assert kubectl.data("a") == {"x": "1", "z": "3"}
    version = kubectl.json("get", "cm", "a")["metadata"]["resourceVersion"]
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=a_map("a", x="1", z="3"))
    assert kubectl.json("get", "cm", "a")["metadata"]["resourceVersion"] == version


def test_apply_of_a_vm_keeps_what_others_wrote(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=a_halted_vm("web"))
    kubectl("annotate", "vm", "web", "owner=me")
    kubectl("apply", "-f", "-", stdin=a_halted_vm("web", sockets=2))
    vm = kubectl.json("get", "vm", "web")
    assert vm["spec"]["template"]["spec"]["domain"]["cpu"] == {"sockets": 2}
    assert vm["metadata"]["annotations"]["owner"] == "me"
    assert vm["metadata"]["generation"] == 2


def test_diff_is_empty_before_a_change_and_names_it_after(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=a_halted_vm("web"))
    assert kubectl("diff", "-f", "-", stdin=a_halted_vm("web")) == ""
    status, printed = kubectl.fails("diff", "-f", "-", stdin=a_halted_vm("web", sockets=4))
    assert status == 1
    assert "-          sockets: 1" in printed
    assert "+          sockets: 4" in printed
    assert kubectl("get", "vm", "web", "-o", f"jsonpath={SOCKETS}") == "1"


def test_replace_takes_away_what_is_not_named(kubectl: Kubectl) -> None:
    kubectl.create(a_map("a", x="1", y="2"))
    uid = kubectl.json("get", "cm", "a")["metadata"]["uid"]
    kubectl("replace", "-f", "-", stdin=a_map("a", x="3"))
    assert kubectl.data("a") == {"x": "3"}
    kubectl("replace", "--force", "-f", "-", stdin=a_map("a", x="4"))
    assert kubectl.json("get", "cm", "a")["metadata"]["uid"] != uid


def test_replace_of_an_old_version_is_refused(kubectl: Kubectl) -> None:
    kubectl.create(a_map("a", x="1"))
    old = kubectl.json("get", "cm", "a")
    kubectl("label", "cm", "a", "touched=yes")
    _, said = kubectl.fails("replace", "-f", "-", stdin=old)
    assert "the object has been modified" in said


def test_edit_saves_what_the_editor_wrote(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=a_halted_vm("web"))
    editor = {"KUBE_EDITOR": "sed -i s/512Mi/768Mi/"}
    assert "edited" in kubectl("edit", "vm", "web", env=editor)
    shown = kubectl("get", "vm", "web", "-o", "jsonpath={.spec.template.spec.domain.memory.guest}")
    assert shown == "768Mi"
    kubectl("edit", "vm", "web", env={"KUBE_EDITOR": "true"})  # leaves without a change
    assert kubectl.json("get", "vm", "web")["metadata"]["generation"] == 2


PATCHES = {
    "merge": ("merge", {"data": {"x": None, "y": "2"}}, {"y": "2"}),
    "json": ("json", [{"op": "replace", "path": "/data/x", "value": "5"}], {"x": "5"}),
    "strategic": ("strategic", {"data": {"y": "3"}}, {"x": "1", "y": "3"}),
}


@pytest.mark.parametrize(("kind", "patch", "data"), PATCHES.values(), ids=PATCHES)
def test_patch(kubectl: Kubectl, kind: str, patch: Any, data: dict[str, str]) -> None:
    kubectl.create(a_map("a", x="1"))
    kubectl("patch", "cm", "a", "--type", kind, "-p", json.dumps(patch))
    assert kubectl.data("a") == data


def test_a_strategic_patch_merges_containers_by_name(kubectl: Kubectl) -> None:
    kubectl.create(a_pod("p"))
    patch = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    kubectl("patch", "pod", "p", "-p", json.dumps(patch))
    (container,) = kubectl.json("get", "pod", "p")["spec"]["containers"]
    assert container["image"] == "other"
    assert container["imagePullPolicy"]  # a default: the container was merged, not replaced


def test_label_and_annotate_add_and_take_away(kubectl: Kubectl) -> None:
    kubectl.create(a_map("a"))
    kubectl("label", "cm", "a", "tier=front", "app=web")
    kubectl("annotate", "cm", "a", "note=hello there")
    _, said = kubectl.fails("label", "cm", "a", "tier=back")
    assert "--overwrite is false" in said
    kubectl("label", "cm", "a", "tier=back", "app-", "--overwrite")
    meta = kubectl.json("get", "cm", "a")["metadata"]
    assert meta["labels"] == {"tier": "back"}
    assert meta["annotations"] == {"note": "hello there"}


def test_a_dry_run_on_the_server_checks_and_stores_nothing(kubectl: Kubectl) -> None:
    said = kubectl("create", "--dry-run=server", "-f", "-", stdin=a_map("a", x="1"), env=None)
    assert "created (server dry run)" in said
    assert kubectl.maps() == []
    _, said = kubectl.fails("create", "--dry-run=server", "-f", "-", stdin=a_map("Not_A_Name"))
    assert "RFC 1123" in said


def test_apply_of_a_kustomization(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump(a_halted_vm("web")))
    kustomization = {
        "resources": ["vm.yaml"],
        "namePrefix": "eu-",
        "configMapGenerator": [{"name": "settings", "literals": ["x=1"]}],
        "labels": [{"pairs": {"team": "blue"}}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    kubectl("apply", "-k", str(tmp_path))
    assert kubectl("get", "vm", "-l", "team=blue", "-o", "name").split() == [
        "virtualmachine.kubevirt.io/eu-web"
    ]
    (settings,) = kubectl.maps("-l", "team=blue")
    assert settings.startswith("eu-settings-")
    assert kubectl.data(settings) == {"x": "1"}
    assert "unchanged" in kubectl("apply", "-k", str(tmp_path))


def test_apply_of_a_folder_prunes_what_is_no_longer_in_it(kubectl: Kubectl, tmp_path: Path) -> None:
    (below := tmp_path / "below").mkdir()
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(a_map("a", {"team": "blue"})))
    (below / "vm.yaml").write_text(yaml.safe_dump(a_halted_vm("web", team="blue")))
    apply = (
        "apply", "-f", str(tmp_path), "-R", "--prune", "-l", "team=blue",
        "--prune-allowlist=core/v1/ConfigMap", "--prune-allowlist=kubevirt.io/v1/VirtualMachine",
    )  # fmt: skip
    assert kubectl(*apply).split() == [
        "configmap/a", "created", "virtualmachine.kubevirt.io/web", "created",
    ]  # fmt: skip
    (below / "vm.yaml").unlink()
    assert "virtualmachine.kubevirt.io/web pruned" in kubectl(*apply)
    kubectl("wait", "--for=delete", "vm/web", "--timeout=50s")


def test_unknown_fields_are_refused_or_warned_of(kubectl: Kubectl) -> None:
    wrong = a_halted_vm("web")
    wrong["spec"]["runStategy"] = "Always"
    _, said = kubectl.fails("create", "-f", "-", stdin=wrong)
    assert 'strict decoding error: unknown field "spec.runStategy"' in said
    done = kubectl.server.run_kubectl(
        "-n", kubectl.namespace, "create", "--validate=warn", "-f", "-", input=yaml.safe_dump(wrong)
    )
    assert 'Warning: unknown field "spec.runStategy"' in done.stderr
    assert "runStategy" not in kubectl.json("get", "vm", "web")["spec"]


def a_list(*items: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def test_apply_of_a_list_creates_each_item_and_then_leaves_them_alone(kubectl: Kubectl) -> None:
    web = a_halted_vm("web", tier="front")
    web["spec"]["template"]["metadata"] = {"kept": "as it is"}
    both = a_list(a_map("a", x="1"), web)
    assert kubectl("apply", "-f", "-", stdin=both).splitlines() == [
        "configmap/a created",
        "virtualmachine.kubevirt.io/web created",
    ]
    assert kubectl("apply", "-f", "-", stdin=both).splitlines() == [
        "configmap/a unchanged",
        "virtualmachine.kubevirt.io/web unchanged",
    ]


def test_given_a_list_with_an_unknown_field_then_it_is_named_and_nothing_is_made(
    kubectl: Kubectl,
) -> None:
    wrong = a_halted_vm("web")
    wrong["spec"]["runStategy"] = "Always"
    given = a_list(a_map("a"), wrong)
    _, said = kubectl.fails("create", "--validate=strict", "-f", "-", stdin=given)
    assert 'unknown field "runStategy" in io.kubevirt.v1.VirtualMachine' in said
    assert kubectl.maps() == []


def test_what_was_read_of_several_kinds_can_be_applied_again(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[a_map("a", x="1"), a_halted_vm("web"), a_pod("p")])
    read = yaml.safe_load(kubectl("get", "cm/a", "vm/web", "pod/p", "-o", "yaml"))
    assert read["kind"] == "List"
    read["items"][0]["data"]["x"] = "2"
    for item in read["items"]:
        del item["metadata"]["resourceVersion"]  # a controller may have written in between
    kubectl("apply", "-f", "-", stdin=read)
    assert kubectl.data("a") == {"x": "2"}


CREATIONS: dict[str, tuple[list[str], str, str]] = {
    "configmap": (["configmap", "a", "--from-literal=x=1"], "cm/a", "{.data.x}=1"),
    "secret": (
        ["secret", "generic", "s", "--from-literal=x=1"],
        "secret/s",
        f"{{.type}} {{.data.x}}=Opaque {base64.b64encode(b'1').decode()}",
    ),
    "service account": (["serviceaccount", "robot"], "sa/robot", "{.metadata.name}=robot"),
    "quota": (["quota", "q", "--hard=pods=3,cpu=2"], "quota/q", "{.spec.hard.cpu}=2"),
    "role": (
        ["role", "reader", "--verb=get,list", "--resource=pods"],
        "role/reader",
        "{.rules[0].verbs[1]} {.rules[0].resources[0]}=list pods",
    ),
}


@pytest.mark.parametrize(("args", "name", "shows"), CREATIONS.values(), ids=CREATIONS)
def test_create_of_a_kind_that_kubectl_sends_as_protobuf(
    kubectl: Kubectl, args: list[str], name: str, shows: str
) -> None:
    assert "created" in kubectl("create", *args)
    path, _, value = shows.partition("=")
    assert kubectl("get", name, "-o", f"jsonpath={path}") == value
    _, said = kubectl.fails("create", *args)
    assert "already exists" in said


def test_create_namespace_makes_a_place_with_its_service_account(kubectl: Kubectl) -> None:
    assert kubectl.json("get", "ns", kubectl.namespace)["status"]["phase"] == "Active"
    kubectl("wait", "--for=create", "sa/default", "--timeout=50s")


def test_create_token_gives_one_that_the_server_takes(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=20m").strip()
    who = kubectl("--token", token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}",
                  env={"KUBECONFIG": str(_without_certificate(kubectl.server))})  # fmt: skip
    assert who == f"system:serviceaccount:{kubectl.namespace}:robot"
    kubectl("delete", "sa", "robot")
    status, said = _as_token(kubectl.server, token, "get", "ns")
    assert status == 1
    assert "Unauthorized" in said or "must be logged in" in said


def _without_certificate(server: ServerProcess) -> Path:
    """Return a kubeconfig with the same server and no user."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {}
    path = server.home / "nobody.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def _as_token(server: ServerProcess, token: str, *args: str) -> tuple[int, str]:
    env = {"KUBECONFIG": str(_without_certificate(server))}
    done = server.run_kubectl("--token", token, *args, env=env)
    return done.returncode, done.stdout + done.stderr


def test_auth_says_who_i_am_and_what_i_may(kubectl: Kubectl) -> None:
    who = kubectl("auth", "whoami", "-o", "json")
    assert "system:masters" in json.loads(who)["status"]["userInfo"]["groups"]
    assert kubectl("auth", "can-i", "create", "virtualmachines").strip() == "yes"
    assert "*.*" in kubectl("auth", "can-i", "--list")


# ---------------------------------------------------------------- reading


def test_get_in_each_output_form(kubectl: Kubectl) -> None:
    kubectl.create(a_map("a", x="1"))
    assert kubectl.json("get", "cm", "a")["data"] == {"x": "1"}
    assert yaml.safe_load(kubectl("get", "cm", "a", "-o", "yaml"))["data"] == {"x": "1"}
    assert kubectl("get", "cm", "a", "-o", "name") == "configmap/a\n"
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.metadata.namespace}") == kubectl.namespace
    columns = "custom-columns=CALLED:.metadata.name,X:.data.x"
    assert kubectl("get", "cm", "a", "-o", columns).split() == ["CALLED", "X", "a", "1"]
    head, row = kubectl("get", "cm", "a").splitlines()
    assert head.split() == ["NAME", "DATA", "AGE"]
    assert row.split()[:2] == ["a", "1"]


def test_get_wide_shows_more_columns(kubectl: Kubectl) -> None:
    kubectl.create(a_pod("p"))
    head, row = kubectl("get", "pod", "p", "-o", "wide").splitlines()
    assert head.split()[:4] == ["NAME", "READY", "STATUS", "RESTARTS"]
    assert "NODE" in head.split()
    assert row.split()[:4] == ["p", "0/1", "Pending", "0"]
    assert "NODE" not in kubectl("get", "pod", "p")


def test_get_of_vms_has_kubevirts_columns(kubectl: Kubectl) -> None:
    kubectl.create(a_halted_vm("web"))
    head = kubectl("get", "vm").splitlines()[0]
    assert head.split() == ["NAME", "AGE", "STATUS", "READY"]


def test_selectors_choose_by_label_and_by_field(kubectl: Kubectl) -> None:
    kubectl.create(a_map("a", {"tier": "front"}), a_map("b", {"tier": "back"}), a_map("c"))
    assert kubectl.maps("-l", "tier=front") == ["a"]
    assert kubectl.maps("-l", "tier in (front,back)") == ["a", "b"]
    assert kubectl.maps("-l", "tier!=front,tier") == ["b"]
    assert kubectl.maps("-l", "!tier") == ["c"]
    assert kubectl.maps("--field-selector", "metadata.name=b") == ["b"]
    assert kubectl.maps("--field-selector", "metadata.name!=b") == ["a", "c"]
    kubectl.create(a_pod("p"), a_pod("q", nodeName="far-away"))
    assert kubectl.rows("get", "pod", "--field-selector", "spec.nodeName=far-away")[0][0] == "q"
    _, said = kubectl.fails("get", "pod", "--field-selector", "spec.colour=red")
    assert "field label not supported" in said


def test_sort_by_and_chunks_give_everything_once(kubectl: Kubectl) -> None:
    kubectl.create(*(a_map(f"m{i}", order=str(9 - i)) for i in range(7)))
    names = [f"m{i}" for i in range(7)]
    assert kubectl.maps("--chunk-size=2") == names
    assert kubectl.maps("--sort-by={.data.order}") == names[::-1]


def test_get_all_and_several_kinds_at_once(kubectl: Kubectl) -> None:
    kubectl.create(a_halted_vm("web"), a_pod("p"), a_map("a"))
    printed = kubectl("get", "all", "-o", "name").split()
    assert printed == ["pod/p", "virtualmachine.kubevirt.io/web"]
    assert kubectl("get", "vm/web", "pod/p", "-o", "name").split() == printed[::-1]
    everywhere = kubectl("get", "vm", "-A", "--no-headers")
    assert [kubectl.namespace, "web"] in [line.split()[:2] for line in everywhere.splitlines()]


@contextmanager
def watching(kubectl: Kubectl, *args: str) -> Iterator[Callable[[Callable[[str], bool]], None]]:
    """Run a kubectl that goes on; yield what waits until it has printed something."""
    command = [str(BIN / "kubectl"), "--namespace", kubectl.namespace, *args]
    process = subprocess.Popen(
        command,
        env=kubectl.server.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed: list[str] = []
    more = threading.Condition()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with more:
                printed.append(line)
                more.notify_all()

    reader = threading.Thread(target=read)
    reader.start()

    def until(seen: Callable[[str], bool]) -> None:
        with more:
            assert more.wait_for(lambda: seen("".join(printed)), SECONDS), "".join(printed)

    try:
        yield until
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def test_get_with_watch_prints_changes_as_they_come(kubectl: Kubectl) -> None:
    kubectl.create(a_map("a", {"seen": "yes"}, x="1"))
    args = ("get", "cm", "-l", "seen", "-w", "--output-watch-events", "--no-headers")
    with watching(kubectl, *args) as until:
        until(lambda text: "ADDED" in text)
        kubectl.create(a_map("b", {"seen": "yes"}))
        until(lambda text: text.count("ADDED") == 2)
        kubectl("patch", "cm", "b", "--type=merge", "-p", '{"data":{"x":"1"}}')
        until(lambda text: "MODIFIED" in text)
        kubectl("label", "cm", "a", "seen-")  # out of sight is gone
        until(lambda text: "DELETED" in text)


def test_wait_for_a_condition(kubectl: Kubectl) -> None:
    kubectl.create(a_pod("p"))
    status, said = kubectl.fails("wait", "--for=condition=Ready", "pod/p", "--timeout=100ms")
    assert status == 1
    assert "timed out" in said
    with watching(kubectl, "wait", "--for=condition=Ready", "pod/p", "--timeout=50s") as until:
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        kubectl("patch", "pod", "p", "--subresource=status", "-p", json.dumps(ready))
        until(lambda text: "condition met" in text)


def test_wait_for_a_value(kubectl: Kubectl) -> None:
    kubectl.create(a_halted_vm("web"))
    wait = ("wait", f"--for=jsonpath={SOCKETS}=4", "vm/web", "--timeout=50s")
    with watching(kubectl, *wait) as until:
        sockets = {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 4}}}}}}
        kubectl("patch", "vm", "web", "--type=merge", "-p", json.dumps(sockets))
        until(lambda text: "condition met" in text)


def test_wait_for_deletion(kubectl: Kubectl) -> None:
    held = a_map("a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    kubectl.create(held)
    kubectl("delete", "cm", "a", "--wait=false")
    assert "deletionTimestamp" in kubectl.json("get", "cm", "a")["metadata"]
    with watching(kubectl, "wait", "--for=delete", "cm/a", "--timeout=50s", "-v=6") as until:
        until(lambda text: "configmaps/a" in text)  # of a map gone before it looks it says nothing
        kubectl("patch", "cm", "a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        until(lambda text: "condition met" in text)


def test_describe_and_events_show_why_a_pod_waits(kubectl: Kubectl) -> None:
    kubectl.create(a_pod("p", schedulerName="default-scheduler", nodeSelector={"on": "the-moon"}))
    kubectl("wait", "--for=condition=PodScheduled=false", "pod/p", "--timeout=50s")
    events = eventually(lambda: kubectl("events", "--for", "pod/p", "--no-headers"))
    assert "FailedScheduling" in events
    described = kubectl("describe", "pod", "p")
    assert "PodScheduled   False" in described
    assert "on=the-moon" in described
    assert "FailedScheduling" in described
    reasons = kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert set(reasons.split()) == {"FailedScheduling"}


DESCRIBED = {
    "vm": (a_halted_vm("it"), "vm", "Run Strategy: Halted"),
    "config map": (a_map("it", x="some text"), "cm", "some text"),
    "pod": (a_pod("it"), "pod", "Image: none"),
    "claim": (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "it"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        "pvc",
        "Status: Pending",
    ),
    "quota": (
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "it"},
            "spec": {"hard": {"pods": "3"}},
        },
        "quota",
        "pods 0 3",
    ),
}


@pytest.mark.parametrize(("obj", "kind", "shows"), DESCRIBED.values(), ids=DESCRIBED)
def test_describe(kubectl: Kubectl, obj: Any, kind: str, shows: str) -> None:
    kubectl.create(obj)
    described = kubectl("describe", kind, "it")
    assert shows in " ".join(described.split())


INTO_CONTAINERS = {
    "exec": ["exec", "p", "--", "true"],
    "attach": ["attach", "p"],
    "cp": ["cp", "p:/etc/hosts", "hosts"],
    "port-forward": ["port-forward", "p", "0:80"],
}


@pytest.mark.parametrize("args", INTO_CONTAINERS.values(), ids=INTO_CONTAINERS)
def test_what_needs_a_container_says_that_there_is_none(kubectl: Kubectl, args: list[str]) -> None:
    kubectl.create(a_pod("p"))
    ready = {"status": {"phase": "Running"}}
    kubectl("patch", "pod", "p", "--subresource=status", "-p", json.dumps(ready))
    _, said = kubectl.fails(*args)
    assert "of pods, which have no containers" in said
    assert "livevirt exec" in said


def test_debug_says_that_there_are_no_ephemeral_containers(kubectl: Kubectl) -> None:
    kubectl.create(a_pod("p"))
    _, said = kubectl.fails("debug", "p", "--image=none")
    assert "ephemeral containers are disabled for this cluster" in said


# ---------------------------------------------------------------- deleting


def a_family(kubectl: Kubectl) -> None:
    """Store an owner with one dependent."""
    kubectl.create(a_map("owner"))
    kubectl.create(owned_by(kubectl.json("get", "cm", "owner"), a_map("child")))


def test_a_background_deletion_is_followed_by_the_dependents(kubectl: Kubectl) -> None:
    a_family(kubectl)
    kubectl("delete", "cm", "owner", "--cascade=background")
    kubectl("wait", "--for=delete", "cm/child", "--timeout=50s")


def test_a_foreground_deletion_ends_with_the_owner(kubectl: Kubectl) -> None:
    a_family(kubectl)
    kubectl("delete", "cm", "owner", "--cascade=foreground", "--timeout=50s")
    assert kubectl.maps() == []


def test_an_orphaning_deletion_leaves_dependents_without_owner(kubectl: Kubectl) -> None:
    a_family(kubectl)
    kubectl("delete", "cm", "owner", "--cascade=orphan", "--timeout=50s")
    child = kubectl.json("get", "cm", "child")
    assert "ownerReferences" not in child["metadata"]


def test_delete_by_selector_and_of_everything(kubectl: Kubectl) -> None:
    kubectl.create(*(a_map(n, {"tier": n}) for n in "abc"))
    kubectl("delete", "cm", "-l", "tier in (a,b)")
    assert kubectl.maps() == ["c"]
    kubectl("delete", "cm", "--all")
    assert kubectl.maps() == []
    _, said = kubectl.fails("delete", "cm", "c")
    assert '"c" not found' in said
    kubectl("delete", "cm", "c", "--ignore-not-found")


def test_a_deleted_pod_may_be_forced_away(kubectl: Kubectl) -> None:
    kubectl.create(a_pod("p", nodeName="far-away"))
    kubectl("delete", "pod", "p", "--wait=false")
    assert kubectl.json("get", "pod", "p")["metadata"]["deletionGracePeriodSeconds"] == 30
    kubectl("delete", "pod", "p", "--force", "--grace-period=0", "--wait=false")
    assert kubectl.rows("get", "pod") == []


def test_a_deleted_namespace_takes_all_with_it(server: ServerProcess) -> None:
    name = "to-be-emptied"
    server.kubectl("create", "namespace", name)
    server.kubectl("-n", name, "create", "configmap", "a")
    server.kubectl("delete", "namespace", name, "--timeout=50s")
    done = server.run_kubectl("-n", name, "get", "cm")
    assert "No resources found" in done.stderr


# ---------------------------------------------------------------- configuration


def test_config_chooses_another_context(kubectl: Kubectl, tmp_path: Path) -> None:
    copy = tmp_path / "kubeconfig"
    copy.write_text(kubectl.server.kubeconfig.read_text())
    env = {"KUBECONFIG": str(copy)}
    kubectl.create(a_map("here"))

    def config(*args: str) -> str:
        return kubectl.server.kubectl("config", *args, env=env)

    assert config("current-context") == "livevirt\n"
    config("set-context", "mine", "--cluster=livevirt", "--user=admin",
           f"--namespace={kubectl.namespace}")  # fmt: skip
    assert "Switched to context" in config("use-context", "mine")
    assert "configmap/here" in kubectl.server.kubectl("get", "cm", "-o", "name", env=env)
    config("use-context", "livevirt")
    assert "configmap/here" not in kubectl.server.kubectl("get", "cm", "-o", "name", env=env)

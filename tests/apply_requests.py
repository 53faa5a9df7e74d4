"""Requests around server-side apply, and what a real kube-apiserver answered to them.

`tests/api/test_apply.py` compares the embedded server with the recording, and
`tests/kubernetes/test_apply.py` a real cluster, so that the recording stays true. To record it
again from a cluster with our definitions:

    python -m tests.apply_requests KUBECONFIG
"""

from __future__ import annotations

import base64
import copy
import json
import ssl
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import yaml

RECORDING = Path(__file__).parent / "data" / "apply.json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"

Object = dict[str, Any]


class Step(NamedTuple):
    """One request; `path` is below the namespace."""

    method: str
    path: str
    body: Any = None
    type_: str = JSON


def applied(manager: str, kind: str, body: Object, query: str = "", sub: str = "") -> Step:
    """Return the apply of a configuration to the object called `a`."""
    group, plural = {
        "ConfigMap": ("api/v1", "configmaps"),
        "Secret": ("api/v1", "secrets"),
        "Pod": ("api/v1", "pods"),
        "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
        "VirtualMachineInstancetype": (
            "apis/instancetype.kubevirt.io/v1beta2",
            "virtualmachineinstancetypes",
        ),
    }[kind]
    api_version = group.partition("/")[2]
    metadata = {"name": "a", **body.get("metadata", {})}
    config = {"apiVersion": api_version, "kind": kind, **body, "metadata": metadata}
    path = f"{group}/NS/{plural}/a{sub}?fieldManager={manager}{query}"
    return Step("PATCH", path, config, APPLY)


def a_pod(*containers: Object, **spec: Any) -> Object:
    return {"spec": {"schedulerName": "none", "containers": list(containers), **spec}}


def a_type(**spec: Any) -> Object:
    return {"spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, **spec}}


def a_map(**data: str) -> Object:
    return {"data": data}


MAPS = "api/v1/NS/configmaps"
PODS = "api/v1/NS/pods"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


_LAST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}

SEQUENCES: dict[str, list[Step]] = {
    "every writer": [
        Step("POST", MAPS, {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "1"}}),
        Step("PATCH", f"{MAPS}/a?fieldManager=bob", {"data": {"l": "2"}}, MERGE),
        Step("PATCH", f"{MAPS}/a?fieldManager=bob", {"data": {"l": "2"}}, STRATEGIC),
        Step("PATCH", f"{MAPS}/a", [{"op": "add", "path": "/data/m", "value": "3"}], JSON_PATCH),
        Step("PUT", f"{MAPS}/a?fieldManager=carol", {"metadata": {"name": "a"}, **a_map(m="4")}),
        applied("dave", "ConfigMap", a_map(m="4")),
        applied("dave", "ConfigMap", a_map(m="5")),
        applied("dave", "ConfigMap", a_map(m="5"), "&force=true"),
        Step("PATCH", f"{MAPS}/a", {"metadata": {"managedFields": []}}, MERGE),
        Step("PATCH", f"{MAPS}/a?fieldManager=erin", {"data": {"m": "6"}}, MERGE),
        applied("dave", "ConfigMap", a_map(m="7")),
        applied("dave", "ConfigMap", a_map(n="8")),
        applied("dave", "ConfigMap", a_map()),
    ],
    "shared fields": [
        applied("alice", "ConfigMap", a_map(k="1", l="1")),
        applied("alice", "ConfigMap", a_map(k="1", l="1")),
        applied("bob", "ConfigMap", a_map(k="1", m="1")),
        applied("alice", "ConfigMap", a_map(l="2")),
        applied("bob", "ConfigMap", {}),
        applied("alice", "ConfigMap", {"data": None}),
        applied("alice", "ConfigMap", {"data": {"x": None}, "metadata": {"labels": {}}}),
    ],
    "sets and owner references": [
        applied("alice", "ConfigMap", {"metadata": {"finalizers": ["x/a", "x/b"]}}),
        applied("bob", "ConfigMap", {"metadata": {"finalizers": ["x/c", "x/b"]}}),
        applied("alice", "ConfigMap", {"metadata": {"finalizers": ["x/a"]}}),
        applied("bob", "ConfigMap", {}),
        applied("alice", "ConfigMap", {"metadata": {"finalizers": ["x/a", "x/a"]}}),
        applied("alice", "ConfigMap", {}),
    ],
    "lists with keys": [
        applied("alice", "Pod", a_pod({"name": "a", "image": "i"}, {"name": "b", "image": "i"})),
        Step("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, MERGE),
        applied("bob", "Pod", {"spec": {"containers": [{"name": "b", "image": "j"}]}}),
        applied("bob", "Pod", {"spec": {"containers": [{"name": "b", "image": "j"}]}}, "&force=1"),
        applied("bob", "Pod", {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
        applied("alice", "Pod", a_pod({"name": "a"}, {"name": "a"})),
        applied("alice", "Pod", a_pod({"name": "a", "imagge": "i"})),
        applied("alice", "Pod", {"spec": {"containers": {"name": "a"}, "hostname": 1}}),
        applied(
            "kubelet", "Pod",
            {"status": {"conditions": [{"type": "x/y", "status": "True"}]}}, sub="/status",
        ),
        Step(
            "PATCH", f"{PODS}/a/status?fieldManager=other",
            {"status": {"conditions": [{"type": "x/z", "status": "True"}]}}, STRATEGIC,
        ),
        applied("kubelet", "Pod", {"status": {"conditions": []}}, sub="/status"),
    ],
    "secrets and claims": [
        applied("alice", "Secret", {"stringData": {"x": "y"}}),
        applied("alice", "Secret", {"data": {"x": "eQ=="}, "type": "Opaque"}),
        applied("bob", "Secret", {"stringData": {"x": "z"}}),
        applied(
            "alice", "PersistentVolumeClaim",
            {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "none",
                    "resources": {"requests": {"storage": "1024Mi"}},
                }
            },
        ),
        applied("bob", "PersistentVolumeClaim", {"spec": {"accessModes": ["ReadWriteMany"]}}),
    ],
    "custom resources": [
        applied("alice", "VirtualMachineInstancetype", a_type(annotations={"a": "1"})),
        applied("bob", "VirtualMachineInstancetype", {"spec": {"annotations": {"b": "1"}}}),
        applied("bob", "VirtualMachineInstancetype", {"spec": {"cpu": {"guest": 2}}}),
        applied("alice", "VirtualMachineInstancetype", a_type(gpus=[{"name": "g"}])),
        applied("bob", "VirtualMachineInstancetype", {"spec": {"gpus": [{"name": "h"}]}}),
        applied("alice", "VirtualMachineInstancetype", a_type(nonsense=1)),
        applied("alice", "VirtualMachineInstancetype", a_type()),
    ],
    "client-side apply": [
        Step(
            "POST", f"{MAPS}?fieldManager=kubectl-client-side-apply",
            {**_LAST, "metadata": {"name": "a", "annotations": {LAST_APPLIED: json.dumps(_LAST)}}},
        ),
        Step("PATCH", f"{MAPS}/a?fieldManager=other", {"data": {"o": "1"}}, MERGE),
        applied("kubectl", "ConfigMap", a_map(k="2", o="2")),
        applied("kubectl", "ConfigMap", a_map(k="2")),
        applied("kubectl", "ConfigMap", a_map(l="2")),
    ],
    "what is refused": [
        Step("PATCH", f"{MAPS}/a", _LAST, APPLY),
        Step("PATCH", f"{MAPS}/a?force=true", {}, MERGE),
        Step("PATCH", f"{MAPS}/b?fieldManager=x", _LAST, APPLY),
        Step("PATCH", f"{MAPS}/a?fieldManager=x", {**_LAST, "kind": "Secret"}, APPLY),
        Step("PATCH", f"{MAPS}/a?fieldManager=x", {**_LAST, "apiVersion": "v2"}, APPLY),
        Step("PATCH", f"{MAPS}/a?fieldManager=x", {**_LAST, "metadata": {}}, APPLY),
        applied("x", "ConfigMap", {"metadata": {"managedFields": []}}),
        applied("x", "ConfigMap", {"metadata": {"uid": "1"}}),
        applied("x", "ConfigMap", {"metadata": {"namespace": "other"}}),
        applied("x", "Pod", {}, sub="/status"),
        Step("PATCH", f"{MAPS}/a?fieldManager=x", _LAST, "application/apply-patch+cbor"),
    ],
    "many updaters": [
        applied("first", "ConfigMap", a_map(k="0")),
        *(
            Step("PATCH", f"{MAPS}/a?fieldManager={letter}", {"data": {letter: "1"}}, MERGE)
            for letter in "abcdefghijklm"
        ),
    ],
}  # fmt: skip


class Api:
    """Sends requests to a server."""

    def __init__(self, url: str, context: ssl.SSLContext, token: str = "") -> None:
        self._url, self._context = url, context
        self._headers = {"User-Agent": "tester/1", "Accept": JSON}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def of_kubeconfig(cls, path: str | Path) -> Api:
        """Return the API of an administrator's kubeconfig."""
        config = yaml.safe_load(Path(path).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile(suffix=".pem") as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]) + b"\n")
            pair.flush()
            context.load_cert_chain(pair.name)
        return cls(cluster["server"], context)

    def send(self, method: str, path: str, body: Any, type_: str = JSON) -> tuple[int, Object]:
        """Return the status and body of the answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": type_}
        request = urllib.request.Request(f"{self._url}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


def play(api: Api, steps: list[Step]) -> list[Object]:
    """Send the requests of a sequence in a namespace of its own; return what matters of each."""
    space = f"apply-{uuid.uuid4().hex[:8]}"
    api.send("POST", "api/v1/namespaces", {"metadata": {"name": space}})
    # Without a default service account pods are refused, and a controller may be slow to make it.
    api.send(
        "POST", f"api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": "default"}}
    )
    found, versions = [], dict[str, str]()
    for step in steps:
        path = step.path.replace("NS", f"namespaces/{space}")
        code, body = api.send(step.method, path, step.body, step.type_)
        found.append(_answer(code, body, space, versions))
    api.send("DELETE", f"api/v1/namespaces/{space}", None)
    return found


def _answer(code: int, body: Object, space: str, versions: dict[str, str]) -> Object:
    """Return an answer without what differs from run to run."""
    if code >= 400:
        causes = (body.get("details") or {}).get("causes") or []
        refusal = {"code": code, "reason": body.get("reason", "")}
        if causes:
            refusal["causes"] = sorted(([c["reason"], c["field"]] for c in causes), key=str)
        return refusal
    meta = body["metadata"]
    version, kind = meta["resourceVersion"], body["kind"]
    written = versions.get(kind) != version
    versions[kind] = version
    entries = copy.deepcopy(meta.get("managedFields") or [])
    for entry in entries:
        entry["timed"] = entry.pop("time", None) is not None
    content = {
        name: value
        for name, value in body.items()
        if name in ("data", "stringData") or (name == "spec" and kind != "Pod")
    }
    shown = {name: meta[name] for name in ("labels", "annotations", "finalizers") if name in meta}
    if kind == "Pod":
        containers = body["spec"]["containers"]
        content["containers"] = [[c["name"], c.get("image")] for c in containers]
    if kind == "PersistentVolumeClaim":
        shown.pop("finalizers", None)
    result = {"code": code, "written": written, "metadata": shown, **content}
    result["managedFields"] = sorted(entries, key=lambda e: (e["operation"], e["manager"], str(e)))
    text = json.dumps(result).replace(space, "NS")
    return json.loads(text)  # type: ignore[no-any-return]


def recorded() -> dict[str, list[Object]]:
    """Return what kube-apiserver answered to each sequence."""
    found: dict[str, list[Object]] = json.loads(RECORDING.read_text())
    return found


def record(kubeconfig: str) -> None:
    """Write the recording of all sequences."""
    api = Api.of_kubeconfig(kubeconfig)
    found = {name: play(api, steps) for name, steps in SEQUENCES.items()}
    lines = []
    for name, answers in found.items():
        shown = ",\n  ".join(json.dumps(answer, sort_keys=True) for answer in answers)
        lines.append(f"{json.dumps(name)}: [\n  {shown}\n]")
    RECORDING.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record(sys.argv[1])

"""Requests that no server may accept, made up by chance, the same ones in every run.

Each maker below knows one way to be wrong. What it returns must be refused: nothing here is right
by accident.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from .manifests import Object, a_halted_vm, a_map, a_pod

SPACE = "bad-input"  # holds a ConfigMap `a`, a Pod `p` and a VM `web`
CORE = f"/api/v1/namespaces/{SPACE}"
VMS = f"/apis/kubevirt.io/v1/namespaces/{SPACE}/virtualmachines"
COLLECTIONS: dict[str, Callable[[], Object]] = {
    f"{CORE}/configmaps": lambda: a_map("new", {"tier": "front"}, x="1"),
    f"{CORE}/pods": lambda: a_pod("new"),
    VMS: lambda: a_halted_vm("new"),
}
NAMED = (f"{CORE}/configmaps/a", f"{CORE}/pods/p", f"{VMS}/web")
JSON = "application/json"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


@dataclass(frozen=True)
class Bad:
    """One request, as bytes to send; `framed` tells whether the connection may be used again."""

    label: str
    raw: bytes = field(repr=False)
    framed: bool = True


def ask(
    label: str, method: str, path: str, body: bytes | None = None, *, token: str = "TOKEN",
    **headers: str,
) -> Bad:  # fmt: skip
    """Write a request whose HTTP is right; `TOKEN` is filled in by the sender."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines).encode("utf-8", "surrogateescape")
    return Bad(f"{label}: {method} {path[:200]}", head + b"\r\n\r\n" + (body or b""))


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def word(chance: random.Random, most: int = 12) -> str:
    return "".join(chance.choices(string.ascii_lowercase, k=chance.randint(1, most)))


# ---------------------------------------------------------------- paths and methods


def unknown_path(chance: random.Random) -> Bad:
    thing = word(chance)
    path = chance.choice(
        [
            f"/{thing}x",
            f"/api/v9/{thing}",
            f"/api/v1/{thing}s",
            f"/apis/{thing}.io/v1",
            f"/apis/{thing}.io/v1/namespaces/{SPACE}/things",
            f"/apis/kubevirt.io/v0{thing}/virtualmachines",
            f"{CORE}/configmaps/a/{thing}",
            f"{CORE}/configmaps/a/status",
            f"{CORE}/configmaps/a/b/c/d",
            f"{CORE}/nodes",
            f"/api/v1/pods/{thing}",
            f"/openapi/v3/apis/{thing}",
            f"/openapi/{thing}",
            f"/apis/subresources.kubevirt.io/v1/{thing}",
            f"/apis/subresources.kubevirt.io/v1/namespaces/{SPACE}/{thing}/web/start",
            f"{CORE}/configmaps/{thing}" + "/.." * chance.randint(1, 9),
        ]
    )
    return ask("unknown path", "GET", path)


def strange_name(chance: random.Random) -> Bad:
    name = chance.choice(
        [
            "%00", "%2e%2e", "%2F", "a%2Fb", "%zz", "%f", "%", "%ff", "%c3%28", "%ed%a0%80", "%20",
            "a" * chance.randint(254, 5000), quote("имя"), "A", "-a", "a%0d%0aX-Evil:1", "%25", "*",
            quote("".join(chr(chance.randint(1, 0x2FFF)) for _ in range(5))) or "%01",
        ]
    )  # fmt: skip
    collection = chance.choice(list(COLLECTIONS))
    method = chance.choice(["GET", "DELETE"])
    return ask("strange name", method, f"{collection}/{name}")


def strange_namespace(chance: random.Random) -> Bad:
    name = chance.choice(["%00", "%ff", "No", "%2e", "x" * 64, "%20", quote("ñ"), "-", "a.b"])
    kind = chance.choice(["configmaps", "pods"])
    body = encoded(a_map("new") if kind == "configmaps" else a_pod("new"))
    path = f"/api/v1/namespaces/{name}/{kind}"
    return ask("strange namespace", "POST", path, body, Content_Type=JSON)


def wrong_method(chance: random.Random) -> Bad:
    collection, named = chance.choice(list(COLLECTIONS)), chance.choice(NAMED)
    method, path = chance.choice(
        [
            ("POST", named), ("PUT", collection), ("PATCH", collection), ("POST", "/version"),
            ("DELETE", "/healthz"), ("TRACE", named), ("OPTIONS", collection), ("FOO", collection),
            ("PUT", "/api/v1/namespaces"), ("PATCH", "/apis"), ("DELETE", "/openapi/v2"),
            ("GET", f"{CORE}/pods/p/binding"), ("DELETE", f"{CORE}/pods/p/eviction"),
            ("GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
            ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
            ("DELETE", f"{VMS}/web/status"), ("PROPFIND", named), ("get", named),
        ]
    )  # fmt: skip
    body = encoded(COLLECTIONS[collection]())
    return ask("wrong method", method, path, body, Content_Type=JSON)


# ---------------------------------------------------------------- bodies


def broken_json(chance: random.Random) -> Bad:
    collection = chance.choice(list(COLLECTIONS))
    right = encoded(COLLECTIONS[collection]())
    depth = chance.choice([101, 500, 5000, 100_000])
    body = chance.choice(
        [
            right[: chance.randint(1, len(right) - 1)],
            right + chance.choice([b"}", b"x", b"{}", b"\x00", b",", b" null"]),
            right.replace(b'"', b"'"),
            right.replace(b":", b"", 1),
            right[:-1] + b',"extra":' + chance.choice([b"NaN", b"Infinity", b"-Infinity"]) + b"}",
            right[:-1] + b',"extra":' + chance.choice([b"01", b"1.", b".5", b"+1", b"0x1"]) + b"}",
            right[:-1] + b',"extra":' + b"[" * depth + b"]" * depth + b"}",
            right[:-1] + b',"extra":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}",
            b"[" * depth,
            b'{"a":' * depth,
            right.replace(b"new", b"n\xff\xfew"),
            right.replace(b"new", b"n\xed\xa0\x80"),
            right.replace(b'"new"', b'"n\\ud800"'),
            right.replace(b'"name": "new"', b'"name": "new", "annotations": {"a": "\\ud800"}'),
            right.replace(b'"name": "new"', b'"name": "new", "annotations": {"\\uDC00": "b"}'),
            right.replace(b'"new"', b'"n\nw"'),
            right.decode().encode("utf-16"),
            right.decode().encode("utf-32"),
            right.decode().encode("utf-16-le"),
            b"",
            b"   ",
            bytes(chance.randrange(256) for _ in range(chance.randint(1, 300))),
        ]
    )
    return ask("broken JSON", "POST", collection, body, Content_Type=JSON)


def wrong_top(chance: random.Random) -> Bad:
    top = chance.choice([None, 1, -1.5, True, "text", [], [a_map("new")], [[]], 10**400])
    method, path = chance.choice(
        [("POST", chance.choice(list(COLLECTIONS))), ("PUT", chance.choice(NAMED))]
    )
    return ask("not an object", method, path, encoded(top), Content_Type=JSON)


def wrong_kind(chance: random.Random) -> Bad:
    collection = chance.choice(list(COLLECTIONS))
    body = COLLECTIONS[collection]()
    part = chance.choice(["kind", "apiVersion"])
    body[part] = chance.choice([word(chance) + "9", 5, [], {}, True, "v2", "Node", 1e300])
    return ask("wrong kind", "POST", collection, encoded(body), Content_Type=JSON)


METADATA: list[tuple[str, list[Any]]] = [
    ("name", [5, [], {}, True, "", "No", "a_b", "a" * 254, "-a", "a..b", "a\u0000", "ü", None]),
    ("namespace", ["elsewhere", 5, [], {}]),
    ("labels", [5, "x", [], {"a": 5}, {"a": ["b"]}, {"a b": "c"}, {"a": "b c"}, {"": "x"},
                {"a/b/c": "x"}, {"a": "v" * 64}, {"-a": "x"}]),
    ("annotations", [5, "x", [], {"a": 5}, {"a": {}}, {"a b": "c"}, {"a": "v" * 300_000}]),
    ("finalizers", [5, "x", {}, [5], [{}], [""], ["a b"]]),
    ("ownerReferences", [5, "x", {}, [5], [{}], [{"name": 5}],
                         [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": ""}]]),
    ("resourceVersion", ["1", 5, [], "x"]),
    ("uid", [5, [], {}, True]),
    ("generation", ["x", [], {}, 1.5, 1e400]),
    ("creationTimestamp", ["yesterday", 5, [], {}, "2020-13-45T99:99:99Z"]),
    ("deletionGracePeriodSeconds", ["x", [], 1.5, 10**30]),
    ("managedFields", [5, "x", {}, [5]]),
]  # fmt: skip


def wrong_metadata(chance: random.Random) -> Bad:
    collection = chance.choice(list(COLLECTIONS))
    body = COLLECTIONS[collection]()
    name, values = chance.choice(METADATA)
    body["metadata"][name] = chance.choice(values)
    text = encoded(body).replace(b"Infinity", b"1e400")
    return ask(f"wrong metadata.{name}", "POST", collection, text, Content_Type=JSON)


def whole_metadata(chance: random.Random) -> Bad:
    collection = chance.choice(list(COLLECTIONS))
    body = COLLECTIONS[collection]() | {"metadata": chance.choice([5, "x", [], [{}], True, None])}
    return ask("no metadata", "POST", collection, encoded(body), Content_Type=JSON)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from paths_of(inner, (*path, key))


def another_type(value: Any, chance: random.Random) -> Any:
    """Return something that no field which holds `value` can hold."""
    if isinstance(value, dict):
        return chance.choice(["x", 5, [], [{}], True])
    if isinstance(value, list):
        return chance.choice(["x", 5, {}, True, [5], [[]]])
    return chance.choice([[], {}, [5], {"x": []}])


def wrong_types(chance: random.Random) -> Bad:
    """Take a good object and put something of another type at one place of it."""
    if chance.random() < 0.5:
        method, path = "POST", chance.choice(list(COLLECTIONS))
        body = COLLECTIONS[path]()
    else:
        method, path = "PUT", chance.choice(NAMED)
        bodies = (a_map("a", x="1"), a_pod("p"), a_halted_vm("web"))
        body = dict(zip(NAMED, bodies, strict=True))[path]
    where = chance.choice(list(paths_of(body)))
    holder: Any = body
    for key in where[:-1]:
        holder = holder[key]
    holder[where[-1]] = another_type(holder[where[-1]], chance)
    return ask(f"wrong type at {where}", method, path, encoded(body), Content_Type=JSON)


def wrong_values(chance: random.Random) -> Bad:
    """Give a field a value of its type that the kind does not take."""
    name, value = chance.choice(
        [
            ("resources", {"limits": {"cpu": chance.choice(["x", "1x", "--1", "1e", " "])}}),
            ("resources", {"limits": {"memory": "-1"}}),
            ("resources", {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            ("ports", [{"containerPort": chance.choice([0, -1, 65536, 2**63, 1e30])}]),
            ("name", chance.choice(["", "No", "a b", "x" * 64])),
            ("image", ""),
            ("env", [{"name": chance.choice(["", "a=b"]), "value": "x"}]),
        ]
    )
    spec, given = chance.choice(
        [
            ("containers", chance.choice([[], a_pod("x")["spec"]["containers"] * 2])),
            ("restartPolicy", word(chance)),
            ("tolerations", [{"operator": word(chance)}]),
            ("terminationGracePeriodSeconds", chance.choice(["5", 1.5, 2**64])),
            ("nodeSelector", {"a b": "c"}),
            ("containers", [a_pod("x")["spec"]["containers"][0] | {name: value}]),
            ("containers", [a_pod("x")["spec"]["containers"][0] | {name: value}]),
        ]
    )
    data = chance.choice(
        [{"data": {"a b": "x"}}, {"data": {"..": "x"}}, {"data": {"k" * 300: "x"}},
         {"binaryData": {"k": chance.choice(["not base64!", 5, "a"])}}, {"immutable": "yes"},
         {"data": {"k": "x"}, "binaryData": {"k": "eA=="}}]
    )  # fmt: skip
    vm = a_halted_vm("new")
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["cpu"]["sockets"] = chance.choice(["2", 1.5, [], True])
    path, body = chance.choice(
        [
            (f"{CORE}/pods", a_pod("new", **{spec: given})),
            (f"{CORE}/pods", a_pod("new", **{spec: given})),
            (f"{CORE}/configmaps", a_map("new") | data),
            (VMS, vm),
            (VMS, a_halted_vm("new") | {"spec": {"runStrategy": "Halted"}}),
        ]
    )
    return ask("wrong value", "POST", path, encoded(body), Content_Type=JSON)


#: What no template of a VM may hold, by the path below `spec.template`.
WRONG_TEMPLATES: list[tuple[str, Any]] = [
    ("metadata.labels", {"version": 5}), ("metadata.labels", "abc"),
    ("metadata.labels", {"a b": "c d"}), ("metadata.annotations", ["a"]),
    ("metadata.annotations", {"a b": "c"}), ("metadata", {"name": {}}),
    ("spec.domain.memory.guest", "1e1.5"), ("spec.domain.memory.guest", "1e9999"),
    ("spec.domain.memory.hugepages", {"pageSize": "foo"}),
    ("spec.domain.cpu.sockets", 10**12), ("spec.domain.cpu.sockets", 1e300),
    ("spec.domain.cpu.features", [{"name": "vmx", "policy": "disabled"}]),
    ("spec.domain.cpu.model", "no model"), ("spec.architecture", "x y"),
    ("spec.terminationGracePeriodSeconds", 10**30), ("spec.nodeSelector", {"a": "x y"}),
    ("spec.tolerations", [{"key": "a", "operator": "Bogus"}]),
    ("spec.affinity", {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
    ("spec.topologySpreadConstraints", [
        {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]),
    ("spec.dnsPolicy", "Sometimes"), ("spec.schedulerName", "No One"),
    ("spec.volumes", [{"name": "root", "emptyDisk": {"capacity": "1e1.5"}}]),
    ("spec.volumes", [{"name": "root", "cloudInitNoCloud": {"userDataBase64": "\u00e9"}}]),
    ("spec.volumes", [{"name": name, "persistentVolumeClaim": {"claimName": "c"}}
                      for name in ("root", "data")]),
]  # fmt: skip


def with_wrong_template(vm: Object, path: str, value: Any) -> Object:
    """Put a value into the template of a VM, in place."""
    *above, last = path.split(".")
    holder = vm["spec"]["template"]
    for name in above:
        holder = holder.setdefault(name, {})
    holder[last] = value
    return vm


def wrong_template(chance: random.Random) -> Bad:
    path, value = chance.choice(WRONG_TEMPLATES)
    body = with_wrong_template(a_halted_vm(word(chance)), path, value)
    return ask(f"wrong {path}", "POST", VMS, encoded(body), Content_Type=JSON)


def unknown_field(chance: random.Random) -> Bad:
    collection = chance.choice(list(COLLECTIONS))
    body = COLLECTIONS[collection]()
    holder = chance.choice([body, body["metadata"], body.get("spec", body)])
    holder[f"x{word(chance)}"] = chance.choice([1, "x", {}, []])
    path = f"{collection}?fieldValidation=Strict"
    return ask("unknown field", "POST", path, encoded(body), Content_Type=JSON)


def too_large(chance: random.Random) -> Bad:
    size = chance.choice([1 << 20, 2_000_000, 3 * 1024 * 1024]) + chance.randint(1, 1000)
    body = encoded(a_map("new", k="x" * size))
    return ask("too large", "POST", f"{CORE}/configmaps", body, Content_Type=JSON)


def wrong_encoding(chance: random.Random) -> Bad:
    collection = chance.choice(list(COLLECTIONS))
    body = encoded(COLLECTIONS[collection]())
    packed = gzip.compress(body)
    content, coding, sent = chance.choice(
        [
            ("text/plain", "", body), ("application/xml", "", b"<a/>"), ("image/png", "", body),
            ("application/x-www-form-urlencoded", "", b"a=b"), ("multipart/form-data", "", body),
            (JSON, "", packed), (JSON, "gzip", body), (JSON, "gzip", packed[:20]),
            (JSON, "deflate", body), (JSON, "br", body), (JSON, "zstd", body),
            (JSON, "gzip", gzip.compress(b"[" * 5_000_000)),
            (f"{JSON}; charset=utf-16", "", body.decode().encode("utf-16")),
            (f"{JSON}; charset=nonsense", "", b"\xff" + body), ("/", "", body),
            (";", "", b"\xff\xfe"), ("\udcff/\udcfe", "", body),
            ("application/vnd.kubernetes.protobuf", "", body),
            ("application/yaml", "", b"\xff\xfe\x00"),
        ]
    )  # fmt: skip
    more = {"Content_Encoding": coding} if coding else {}
    return ask(f"wrong encoding {content} {coding}", "POST", collection, sent,
               Content_Type=content, **more)  # fmt: skip


def broken_yaml(chance: random.Random) -> Bad:
    collection = chance.choice(list(COLLECTIONS))
    bomb = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 8)}]\n" for i in range(12)
    )
    body = chance.choice(
        [
            bomb, "a: [", "a: b: c", "\tx: 1", "- 1\n- 2", "just text", "",
            "---\na: 1\n---\nb: 2\n",
            "kind: ConfigMap\nmetadata: !!python/object/apply:os.system [ls]\n",
            "metadata: {name: new}\ndata: {k: .nan}\n", "metadata: {name: new}\ndata: {k: .inf}\n",
            "? [a, b]\n: c\n", "a: *nothing\n", "metadata: {name: !!binary aGk=, labels: 5}\n",
            "[" * 3000, "{a: " * 3000, "[" * 200_000, "- " * 200_000,
            "a: " + "[" * 101 + "]" * 101, "a: !!set {x, y}\n", "%YAML 9.9\n---\na: 1\n",
            "a: \x07\n",
            "&a [*a]\n", "metadata: {name: 5}\n", "@", "`", "a: |\n b\n  c\n d\n - e: {",
        ]
    )  # fmt: skip
    return ask("broken YAML", "POST", collection, body.encode(), Content_Type="application/yaml")


def broken_protobuf(chance: random.Random) -> Bad:
    def field(number: int, value: bytes) -> bytes:
        assert len(value) < 128
        return bytes([number << 3 | 2, len(value)]) + value

    meta = field(1, field(1, b"v1") + field(2, b"ConfigMap"))
    noise = bytes(chance.randrange(256) for _ in range(chance.randint(1, 60)))
    body = b"k8s\0" + chance.choice(
        [
            meta + field(2, b"\x0a\x7f" + noise[:20]),
            meta + field(2, b"\x0a\x03\x0a\x7fx"),
            meta + field(2, field(1, field(1, b"\xff\xfe"))),
            meta + field(2, b"\x08\x01"),
            meta + field(2, b"\x0f\x01"),
            meta + field(2, b"\x00\x00"),
            meta + b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            meta + b"\x12\xff\xff\xff\x7f",
            meta[:-3],
            field(1, field(1, b"v7") + field(2, b"Nothing")),
            field(1, field(1, b"kubevirt.io/v1") + field(2, b"VirtualMachine")),
            field(1, field(1, b"v1") + field(2, b"Pod")) + field(2, b""),
            b"\x0b" + noise,
            b"",
        ]
    )
    body = chance.choice([body, body, body[: chance.randint(0, 3)], noise])
    kind = "application/vnd.kubernetes.protobuf"
    return ask("broken protobuf", "POST", f"{CORE}/configmaps", body, Content_Type=kind)


# ---------------------------------------------------------------- patches


def patch(label: str, kind: str, path: str, body: bytes) -> Bad:
    return ask(f"{label} ({kind})", "PATCH", path, body, Content_Type=PATCHES[kind])


def broken_patch(chance: random.Random) -> Bad:
    kind, path = chance.choice(list(PATCHES)), chance.choice(NAMED)
    depth = chance.choice([150, 2000, 50_000])
    body = chance.choice(
        [
            b"", b"{", b"[{]", b"null", b"5", b'"x"', b"true", b'{"data":NaN}', b"\xff\xfe",
            b'{"data":{"a":"\xff"}}', b'[{"op":"add","path":"/data/x","value":Infinity}]',
            b'{"a":' * depth + b"1" + b"}" * depth, b"[" * depth + b"]" * depth, b"[5]", b"[[]]",
            b'{"metadata":{"name":"\\ud800"}}', b'[null]',
        ]
    )  # fmt: skip
    return patch("broken patch", kind, path, body)


def json_patch(chance: random.Random) -> Bad:
    path = chance.choice(NAMED)
    step: Object = chance.choice(
        [
            {"op": "remove", "path": f"/{word(chance)}x"},
            {"op": "remove", "path": "/metadata/labels/none/deeper"},
            {"op": "test", "path": "/metadata/name", "value": word(chance) + "x"},
            {"op": "test", "path": f"/spec/{word(chance)}x", "value": 5},
            {"op": word(chance) + "x", "path": "/data/x", "value": 1},
            {"op": "add", "value": 1},
            {"op": "add", "path": "data/x", "value": "1"},
            {"op": "add", "path": "/data/~2", "value": "1"},
            {"op": "add", "path": "/a/b/c/d", "value": 1},
            {"op": "add", "path": 5, "value": 1},
            {"op": "add", "path": ["/data"], "value": 1},
            {"op": "add", "path": "/metadata/finalizers/7", "value": "a/b"},
            {"op": "add", "path": "/metadata/name/x", "value": "1"},
            {"op": "replace", "path": "/metadata/name", "value": "other"},
            {"op": "replace", "path": "/metadata", "value": chance.choice([5, None, [], "x"])},
            {"op": "replace", "path": "/metadata/labels", "value": chance.choice([5, "x", [1]])},
            {"op": "replace", "path": "/metadata/uid", "value": "another"},
            {"op": "replace", "path": "/kind", "value": "Node"},
            {"op": "replace", "path": "/apiVersion", "value": 5},
            {"op": "replace", "path": "", "value": {}},
            {"op": "remove", "path": ""},
            {"op": "move", "from": f"/{word(chance)}x", "path": "/data/x"},
            {"op": "move", "path": "/data/x"},
            {"op": "move", "from": "/metadata", "path": "/metadata/labels"},
            {"op": "copy", "from": 5, "path": "/data/x"},
            {"op": "copy", "from": "/metadata", "path": "/metadata/name"},
            {"op": "remove", "path": "/metadata"},
            {"op": {}, "path": "/data/x"},
            {"op": "replace", "path": "/spec", "value": 5} if path != NAMED[0] else {"op": "x"},
            {},
        ]
    )
    return patch("JSON patch", "json", path, encoded([step]))


def merge_patch(chance: random.Random) -> Bad:
    kind, path = chance.choice(["merge", "strategic"]), chance.choice(NAMED)
    body: Object = chance.choice(
        [
            {"metadata": chance.choice([None, 5, "x", [], True])},
            {"metadata": {"name": chance.choice(["other", 5, None, [], {}])}},
            {"metadata": {"namespace": chance.choice(["other", 5, None])}},
            {"metadata": {"uid": chance.choice(["other", 5, []])}},
            {"metadata": {"resourceVersion": chance.choice(["1", "x", 5, []])}},
            {"metadata": {"labels": chance.choice([5, "x", [], {"a": 5}, {"a b": "c"}])}},
            {"metadata": {"annotations": chance.choice([5, "x", [], {"a": []}])}},
            {"metadata": {"finalizers": chance.choice([5, "x", {}, [5], ["a b"]])}},
            {"metadata": {"ownerReferences": chance.choice([5, "x", {}, [{}]])}},
            {"metadata": {"annotations": {"a": "v" * 300_000}}},
            {"kind": "Node"},
            {"apiVersion": chance.choice(["v9", 5, {}])},
            {"data": 5} if path == NAMED[0] else {"spec": 5},
            {"data": {"k": 5}} if path == NAMED[0] else {"spec": []},
        ]
    )
    return patch("merge patch", kind, path, encoded(body))


def strategic_patch(chance: random.Random) -> Bad:
    body: Object = chance.choice(
        [
            {"$patch": word(chance) + "x"},
            {"$patch": 5},
            {"$patch": {}},
            {"$patch": "replace"},
            {"$patch": "delete"},
            {"spec": {"$retainKeys": 5}},
            {"spec": {"$retainKeys": ["containers"], "nodeName": "x"}},
            {"spec": {"$setElementOrder/containers": 5}},
            {"spec": {"$setElementOrder/containers": [5], "containers": [{"name": "main"}]}},
            {"spec": {"$setElementOrder": []}},
            {"spec": {"containers": [5]}},
            {"spec": {"containers": [{"image": "x"}]}},
            {"spec": {"containers": [{"name": [], "image": "x"}]}},
            {"spec": {"containers": {}}},
            {"spec": {"containers": [{"$patch": "delete"}]}},
            {"spec": {"containers": [{"name": "main", "$patch": "delete"}]}},
            {"spec": {"containers": [{"name": "main", "image": {"a": 1}}]}},
            {"spec": {"tolerations": "x"}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": 5}},
            {"metadata": {"$deleteFromPrimitiveList": []}},
        ]
    )
    return patch("strategic patch", "strategic", NAMED[1], encoded(body))


def wrong_patch_type(chance: random.Random) -> Bad:
    kind = chance.choice(
        [JSON, "application/yaml", "", "text/plain", "application/apply-patch+yaml",
         "application/strategic-merge-patch+json", "application/json-patch+xml", "nonsense"]
    )  # fmt: skip
    return ask(f"patch type {kind}", "PATCH", NAMED[2], b'{"metadata":{"labels":{"a":"b"}}}',
               Content_Type=kind)  # fmt: skip


# ---------------------------------------------------------------- queries

SELECTORS = [
    "a=b=c", "=", "a in", "a in (", "a in b", "a in (b", "a notin ()x", "a,,b", "a b", "!", "!a=b",
    "a==b==c", "a in (b c)", "-a", "a=" + "v" * 64, "a/b/c=d", "a>", "a>x", "a<y", "(a)", "a=b,",
    "&", "a in (b))", "ü=1", "a=ü", "x" * 400, "a in (b),,", "a=b;c=d", "!!a",
]  # fmt: skip
FIELDS = [
    "spec.colour=red", "metadata.name", "a=b", "metadata.name>b", "metadata.labels=a", "=x",
    "metadata.name=a,nothing", "metadata.name=a\\", "status=x", "metadata.name==a==b=",
]  # fmt: skip


def bad_selector(chance: random.Random) -> Bad:
    name, value = chance.choice(
        [("labelSelector", chance.choice(SELECTORS)), ("fieldSelector", chance.choice(FIELDS))]
    )
    method = chance.choice(["GET", "GET", "DELETE"])
    watch = "&watch=true&timeoutSeconds=1" if method == "GET" and chance.random() < 0.3 else ""
    path = f"{chance.choice(list(COLLECTIONS))}?{name}={quote(value, safe='')}{watch}"
    return ask("selector", method, path)


LIST_OPTIONS = [
    "limit=x", "limit=-1", "limit=1.5", "limit=99999999999999999999", "continue=x", "continue=e30",
    "continue=" + base64.urlsafe_b64encode(b'[1,"a"]').decode(), "continue=%00",
    "continue=" + base64.urlsafe_b64encode(b'[-1,"a","b",1]').decode(),
    "continue=" + base64.urlsafe_b64encode(b'[99999999999999999999,"a","b",1]').decode(),
    "continue=" + base64.urlsafe_b64encode(b'[5000000000,"a","b",1]').decode(),
    "resourceVersion=x", "resourceVersion=-1", "resourceVersion=1.0", "resourceVersion=%20",
    "resourceVersion=99999999999999999999", "resourceVersionMatch=Exact", "%zz=%zz&limit=x",
    "resourceVersion=1&resourceVersionMatch=Sometimes",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "labelSelector=%ff", "labelSelector=%c3%28", "&".join(f"a{i}=1" for i in range(200)),
]  # fmt: skip
WATCH_OPTIONS = [
    "resourceVersion=x", "resourceVersion=-5", "sendInitialEvents=true", "timeoutSeconds=x",
    "timeoutSeconds=-1", "resourceVersionMatch=NotOlderThan", "timeoutSeconds=99999999999999999999",
    "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
]  # fmt: skip
WRITE_OPTIONS = [
    "dryRun=Some", "dryRun=", "dryRun=all", "fieldValidation=x", "fieldValidation=strict",
    "fieldManager=" + "m" * 200, "fieldManager=%01", "fieldManager=a%0ab", "dryRun=%ff",
]  # fmt: skip
DELETE_OPTIONS = [
    "propagationPolicy=x", "gracePeriodSeconds=x", "gracePeriodSeconds=-5", "dryRun=x",
    "gracePeriodSeconds=1.5", "propagationPolicy=Orphan&orphanDependents=true",
]  # fmt: skip


def bad_option(chance: random.Random) -> Bad:
    collection, named = chance.choice(list(COLLECTIONS)), chance.choice(NAMED)
    match chance.randrange(6):
        case 0:
            return ask("list option", "GET", f"{collection}?{chance.choice(LIST_OPTIONS)}")
        case 1:
            option = chance.choice(WATCH_OPTIONS)
            return ask("watch option", "GET", f"{collection}?watch=1&{option}")
        case 2:
            path = f"{collection}?{chance.choice(WRITE_OPTIONS)}"
            body = encoded(COLLECTIONS[collection]())
            return ask("create option", "POST", path, body, Content_Type=JSON)
        case 3:
            path = f"{named}?{chance.choice(WRITE_OPTIONS)}"
            return patch("patch option", "merge", path, b'{"metadata":{"labels":{"x":"y"}}}')
        case 4:
            path = f"{chance.choice([named, collection])}?{chance.choice(DELETE_OPTIONS)}"
            return ask("delete option", "DELETE", path)
        case _:
            path = f"{collection}?includeObject={word(chance)}"
            accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
            return ask("table option", "GET", path, Accept=accept)


DELETE_BODIES: list[Any] = [
    5, "x", [], True, {"kind": "Pod"}, {"gracePeriodSeconds": "x"}, {"gracePeriodSeconds": -1},
    {"gracePeriodSeconds": 1.5}, {"propagationPolicy": 5}, {"propagationPolicy": "x"},
    {"preconditions": 5}, {"preconditions": {"uid": "another"}}, {"preconditions": {"uid": 5}},
    {"preconditions": {"resourceVersion": "1"}}, {"preconditions": []}, {"dryRun": "All"},
    {"dryRun": ["x"]}, {"dryRun": [5]}, {"orphanDependents": "x"}, {"kind": 5}, {"kind": []},
    {"orphanDependents": True, "propagationPolicy": "Orphan"}, {"gracePeriodSeconds": True},
    {"apiVersion": 5}, {"orphanDependents": []}, {"preconditions": {"resourceVersion": 1}},
]  # fmt: skip


def bad_deletion(chance: random.Random) -> Bad:
    body = encoded(chance.choice(DELETE_BODIES))
    body = chance.choice([body, body, body, b"{", b"\xff", body + b"x"])
    return ask("delete body", "DELETE", chance.choice(NAMED), body, Content_Type=JSON)


def not_acceptable(chance: random.Random) -> Bad:
    accept = chance.choice(
        ["text/html", "image/*", "application/xml", "application/vnd.kubernetes.protobuf",
         "application/json;as=Nothing;v=v1", "x", "/", "application/json;as=Table;v=v99"]
    )  # fmt: skip
    return ask("accept", "GET", chance.choice(list(COLLECTIONS)), Accept=accept)


# ---------------------------------------------------------------- doors to an object

BINDINGS: list[Any] = [
    5, [], "x", None, {}, {"metadata": 5}, {"metadata": []}, {"metadata": {"name": 5}},
    {"metadata": {"name": "other"}, "target": {"name": "n"}},
    {"metadata": {"name": "p"}, "target": 5},
    {"metadata": {"name": "p"}, "target": []}, {"metadata": {"name": "p"}, "target": {"name": 5}},
    {"metadata": {"name": "p"}, "target": {"name": []}},
    {"metadata": {"name": "p"}, "target": {"name": "n", "kind": {}}},
    {"metadata": {"name": "p", "uid": 5}, "target": {"name": "n"}},
    {"metadata": {"name": "p", "uid": "x"}, "target": {"name": "n"}},
    {"metadata": {"name": "p", "annotations": 5}, "target": {"name": "n"}},
    {"metadata": {"name": "p", "annotations": {"a": 5}}, "target": {"name": "n"}},
    {"metadata": {"name": "p", "annotations": ["a"]}, "target": {"name": "n"}},
    {"kind": "Pod", "metadata": {"name": "p"}, "target": {"name": "n"}},
    {"apiVersion": 5, "metadata": {"name": "p"}, "target": {"name": "n"}},
]  # fmt: skip
EVICTIONS: list[Any] = [
    5, [], "x", None, {}, {"metadata": 5}, {"metadata": "x"}, {"metadata": {"name": 5}},
    {"metadata": {"name": "p"}, "deleteOptions": 5},
    {"metadata": {"name": "p"}, "deleteOptions": []},
    {"metadata": {"name": "p"}, "deleteOptions": "x"},
    {"metadata": {"name": "p"}, "deleteOptions": [[1, 2]]},
    {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": "x"}},
    {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "x"}}},
    {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": 5}},
    {"kind": "Pod", "metadata": {"name": "p"}}, {"metadata": {"name": "other"}},
]  # fmt: skip
TOKENS: list[Any] = [
    5, [], "x", {"spec": 5}, {"spec": []}, {"spec": {"expirationSeconds": "x"}},
    {"spec": {"expirationSeconds": 5}}, {"spec": {"expirationSeconds": 1e300}},
    {"spec": {"audiences": 5}}, {"spec": {"audiences": [5]}},
    {"spec": {"expirationSeconds": 10**30}}, {"spec": {"expirationSeconds": 2**62}},
    {"kind": "Pod"}, {"spec": {"expirationSeconds": True}}, {"spec": {"boundObjectRef": 5}},
]  # fmt: skip
REVIEWS: list[Any] = [5, [], "x", None, {"spec": 5}, {"spec": []}, {"kind": "Pod"}, {"metadata": 5}]
STATUSES: list[Any] = [
    5, [], {"kind": "Node"}, {"metadata": {"name": "other"}}, {"metadata": 5}, {"status": 5},
    {"metadata": {"name": "p"}, "status": 5}, {"metadata": {"name": "p"}, "status": {"phase": 5}},
    {"metadata": {"name": "p"}, "status": {"conditions": {}}},
]  # fmt: skip


def bad_door(chance: random.Random) -> Bad:
    path, bodies = chance.choice(
        [
            (f"{CORE}/pods/p/binding", BINDINGS),
            (f"{CORE}/pods/p/eviction", EVICTIONS),
            (f"{CORE}/serviceaccounts/default/token", TOKENS),
            (f"{CORE}/serviceaccounts/nobody/token", [{}, {"spec": {}}]),
            (f"{CORE}/pods/nobody/binding",
             [{"metadata": {"name": "nobody"}, "target": {"name": "n"}}]),
            ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", REVIEWS),
            ("/apis/authentication.k8s.io/v1/tokenreviews", [*REVIEWS, {"spec": {"token": 5}}]),
            ("/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEWS[:4]),
        ]
    )  # fmt: skip
    return ask("door", "POST", path, encoded(chance.choice(bodies)), Content_Type=JSON)


def bad_status(chance: random.Random) -> Bad:
    door = chance.choice(["status", "resize", "ephemeralcontainers"])
    body = encoded(chance.choice(STATUSES))
    if chance.random() < 0.5:
        return ask(door, "PUT", f"{CORE}/pods/p/{door}", body, Content_Type=JSON)
    wrong = chance.choice(
        [b"5", b"[]", b'{"metadata":{"name":5}}', b'{"metadata":5}', b'{"kind":"Node"}', b"{"]
    )
    return patch(door, chance.choice(["merge", "strategic"]), f"{CORE}/pods/p/{door}", wrong)


# ---------------------------------------------------------------- who is asking


def forged(chance: random.Random) -> str:
    """Return something like a token that nobody signed."""

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(encoded(value)).rstrip(b"=").decode()

    claims: Object = {
        "sub": "system:serviceaccount:kube-system:admin",
        "exp": 4_000_000_000,
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "default", "uid": "x"},
        },
    }
    signature = base64.urlsafe_b64encode(bytes(chance.randrange(256) for _ in range(64))).decode()
    algorithm = chance.choice(["none", "HS256", "ES256"])
    head = chance.choice([{"alg": algorithm, "typ": "JWT"}, {}, [], 5])
    body = chance.choice([claims, {}, [], "x", None])
    return f"{part(head)}.{part(body)}.{chance.choice(['', 'x', signature, signature * 9])}"


def bad_token(chance: random.Random) -> Bad:
    path = chance.choice(
        [*COLLECTIONS, *NAMED, "/api", "/apis", "/metrics", "/openapi/v2", "/nope"]
    )
    token = chance.choice(
        ["x", ".", "..", "...", "a.b.c", "=" * 50, "é", "%00", "e30.e30.e30", "x" * 4000,
         forged(chance), forged(chance), forged(chance), "TOKEN" + "x", "xTOKEN", "TOKEN.TOKEN"]
    )  # fmt: skip
    return ask("bad token", chance.choice(["GET", "DELETE"]), path, token=token)


def no_token(chance: random.Random) -> Bad:
    path = chance.choice(
        [*COLLECTIONS, *NAMED, "/api", "/apis", "/metrics", "/openapi/v2", "/nope"]
    )
    method = chance.choice(["GET", "DELETE"])
    more = chance.choice(
        [{}, {"Authorization": "Basic YWRtaW46YWRtaW4="}, {"Authorization": "Bearer"},
         {"Authorization": "Token x"}, {"Authorization": "Negotiate"}, {"X-Remote-User": "admin"},
         {"Impersonate-User": "admin"}]
    )  # fmt: skip
    return ask("no token", method, path, token="", **more)


# ---------------------------------------------------------------- HTTP itself


def broken_http(chance: random.Random) -> Bad:
    path = f"{CORE}/configmaps"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\r\n".encode()
    typed = head + b"Content-Type: application/json\r\n"
    get = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\r\n".encode()
    body = encoded(a_map("new"))
    chunked = typed + b"Transfer-Encoding: chunked\r\n\r\n"
    length = b"Content-Length: %d\r\n" % len(body)
    no_length = chance.choice([b"abc", b"-1", b"+5", b"1.5", b"0x10", b"", b"9" * 30, b"1 2"])
    no_chunk = chance.choice(
        [
            b"zz\r\n",
            b"-5\r\nhello\r\n",
            b"5\r\nhelloXX",
            b"\r\n\r\n",
            b"5;\x00\r\n",
            b"F" * 18 + b"\r\n",
        ]
    )
    version = chance.choice([b"HTTP/9.9", b"HTTP/x", b"HTTP", b"JUNK/1.1", b"HTTP/1.1 x"])
    method = chance.choice([b"G ET", b"G\x00T", b"", b"(GET)", b"\xff"])
    raw = chance.choice(
        [
            typed + b"Content-Length: " + no_length + b"\r\n\r\n" + body,
            typed + length + b"Content-Length: 3\r\n\r\n" + body,
            typed + length + b"Transfer-Encoding: chunked\r\n\r\n" + body,
            typed + b"Transfer-Encoding: nonsense\r\n\r\n" + body,
            typed + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + body,
            chunked + no_chunk + body + b"\r\n0\r\n\r\n",
            chunked + b"5\r\n{\"a\":\r\n1\r\n5\r\n0\r\n\r\n",
            get + b"No colon here\r\n\r\n",
            get + b": no name\r\n\r\n",
            get + b"Sp ace: x\r\n\r\n",
            get + b"X-Null: a\x00b\r\n\r\n",
            get + b"X-Big: " + b"x" * 20_000 + b"\r\n\r\n",
            get + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 200) for i in range(400)) + b"\r\n",
            get + b" folded: x\r\n\r\n",
            get.replace(b"HTTP/1.1", version) + b"\r\n",
            get.replace(path.encode(), path.encode() + b"/" + b"n" * 20_000) + b"\r\n",
            get.replace(path.encode(), b"/api/v1/\xff\xfe") + b"\r\n",
            get.replace(path.encode(), b"no-slash") + b"\r\n",
            get.replace(path.encode(), b"http://[::1/x") + b"\r\n",
            get.replace(b"GET", method) + b"\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\r\n\r\n\r\n\x00\x01\x02\r\n\r\n",
            b"GET\r\n\r\n",
            bytes(chance.randrange(256) for _ in range(200)) + b"\r\n\r\n",
        ]
    )  # fmt: skip
    return Bad(f"broken HTTP: {raw[:200]!r}", raw, framed=False)


MAKERS: list[Callable[[random.Random], Bad]] = [
    unknown_path, strange_name, strange_namespace, wrong_method,
    broken_json, broken_json, wrong_top, wrong_kind, wrong_metadata, wrong_metadata, whole_metadata,
    wrong_types, wrong_types, wrong_values, wrong_template, unknown_field, wrong_encoding,
    broken_yaml, broken_protobuf, broken_patch, json_patch, merge_patch, merge_patch,
    strategic_patch, wrong_patch_type, bad_selector, bad_selector, bad_option, bad_option,
    bad_deletion, not_acceptable, bad_door, bad_door, bad_status, bad_token, no_token, broken_http,
    broken_http,
]  # fmt: skip
LARGE_EVERY = 100  # requests of megabytes are rarer than the others


def requests(count: int, seed: int) -> Iterator[Bad]:
    """Yield so many different bad requests, the same ones for the same seed."""
    seen: set[bytes] = set()
    makers = itertools.cycle(MAKERS)
    chance = random.Random(seed)
    while len(seen) < count:
        large = len(seen) % LARGE_EVERY == LARGE_EVERY - 1
        bad = (too_large if large else next(makers))(chance)
        if bad.raw not in seen:
            seen.add(bad.raw)
            yield bad

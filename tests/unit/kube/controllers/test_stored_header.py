from __future__ import annotations

from pathlib import Path

import msgspec

from livevirt.kube.controllers import stored
from livevirt.kube.controllers.stored import PAGE, OwnerReference
from livevirt.kube.store import Key as StoreKey
from livevirt.kube.store import Put, Store
from livevirt.vm.kinds import REGISTRY


def test_a_reference_is_written_back_as_it_was() -> None:
    reference = {
        "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True,
        "blockOwnerDeletion": False,
    }  # fmt: skip
    plain = {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "2"}
    metadata = {"uid": "u", "name": "x", "ownerReferences": [reference, plain]}
    found = stored.decode_header(
        msgspec.json.encode({"kind": "Pod", "metadata": metadata, "spec": {}})
    )
    assert [msgspec.to_builtins(each) for each in found.owners] == [reference, plain]
    assert found.owners[1] == OwnerReference("v1", "Pod", "q", "2")


def test_what_is_null_is_as_good_as_absent() -> None:
    metadata = {"uid": "u", "finalizers": None, "ownerReferences": None, "deletionTimestamp": None}
    found = stored.decode_header(msgspec.json.encode({"metadata": metadata}))
    assert (found.owners, found.deleting, found.held_by("x")) == ((), False, False)


def test_events_are_stored_once() -> None:
    assert "events" in REGISTRY.stored
    assert "events.events.k8s.io" not in REGISTRY.stored


async def test_a_scan_yields_every_object_once_over_several_pages(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    keys = [StoreKey("pods", f"ns{n % 3}", f"p{n:04}") for n in range(PAGE + 10)]
    await store.write(*(Put(key, None, lambda revision: b"{}") for key in keys))
    try:
        assert [key async for key, _ in stored.scan(store, "pods")] == sorted(keys)
        one = [key async for key, _ in stored.scan(store, "pods", "ns1")]
        assert one == sorted(key for key in keys if key.namespace == "ns1")
    finally:
        await store.close()

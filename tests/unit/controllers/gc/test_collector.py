from __future__ import annotations

import pytest

from livevirt.controllers.gc.collector import owner_key
from livevirt.controllers.header import OwnerReference
from livevirt.store import Key

POD = Key("pods", "ns", "p")
NODE = Key("nodes", "", "n")

PLACES = {
    "given an owner in a namespace, then it is in the dependent's": (
        POD, "kubevirt.io/v1", "VirtualMachineInstance",
        Key("virtualmachineinstances.kubevirt.io", "ns", "o")),
    "given an owner without a namespace, then it is in none": (
        POD, "v1", "Node", Key("nodes", "", "o")),
    "given a dependent without a namespace, then its owner has none either": (
        NODE, "v1", "Namespace", Key("namespaces", "", "o")),
    "given a dependent without a namespace, when the owner needs one, then nobody knows": (
        NODE, "v1", "Pod", None),
    "given a kind we do not serve, then nobody knows": (POD, "apps/v1", "Deployment", None),
    "given a version we do not serve, then nobody knows": (POD, "v2", "Pod", None),
    "given a kind that is never stored, then nobody knows": (
        POD, "authentication.k8s.io/v1", "TokenReview", None),
}  # fmt: skip


@pytest.mark.parametrize(("dependent", "version", "kind", "place"), PLACES.values(), ids=PLACES)
def test_owner_key(dependent: Key, version: str, kind: str, place: Key | None) -> None:
    assert owner_key(dependent, OwnerReference(version, kind, "o", "uid")) == place

"""Network interfaces: the one a manifest leaves out, and what those that are there lack."""

from __future__ import annotations

from livevirt.kube.objects.request import Object
from livevirt.vm.spec import identity

DEFAULT = "default"
BINDINGS = (
    "bridge", "masquerade", "sriov", "slirp", "passt", "passtBinding", "macvtap", "binding",
)  # fmt: skip


def attach_default(spec: Object, binding: str) -> None:
    """Connect a guest that says nothing about networks to the pod's, in place."""
    devices = spec["domain"].setdefault("devices", {})
    if spec.get("networks") or devices.get("interfaces"):
        return
    if devices.get("autoattachPodInterface") is False:
        return
    devices["interfaces"] = [{"name": DEFAULT, binding: {}}]
    spec["networks"] = [{"name": DEFAULT, "pod": {}}]


def complete(interfaces: list[Object], uid: str, binding: str) -> None:
    """Give each interface a binding, a model and an address, in place."""
    for interface in interfaces:
        if not any(interface.get(each) is not None for each in BINDINGS):
            interface[binding] = {}
        interface.setdefault("model", "virtio")
        interface.setdefault("macAddress", identity.mac_address(uid, interface["name"]))

"""What can be asked of a VM besides reading and writing it: group `subresources.kubevirt.io`.

The group stores nothing. Its paths are `…/namespaces/NS/virtualmachines/NAME/start` and the like.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "subresources.kubevirt.io"
VERSIONS = ("v1", "v1alpha3")  # the same in both; clients of either exist


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to ask for. `verb` is what a role grants: GET is get, PUT update, POST create."""

    resource: str  # plural of the kind it belongs to; empty for one of the namespace itself
    name: str
    verb: str
    kind: str = ""  # what the body or the answer is, where that is a kind

    @property
    def path(self) -> str:
        """Its name in discovery and roles, such as `virtualmachines/start`."""
        return f"{self.resource}/{self.name}" if self.resource else self.name


_VM, _VMI = "virtualmachines", "virtualmachineinstances"

SUBRESOURCES: tuple[Action, ...] = (
    Action("", "expand-vm-spec", "update", "VirtualMachine"),
    Action(_VM, "start", "update", "StartOptions"),
    Action(_VM, "stop", "update", "StopOptions"),
    Action(_VM, "restart", "update", "RestartOptions"),
    Action(_VM, "migrate", "update", "MigrateOptions"),
    Action(_VM, "addvolume", "update", "AddVolumeOptions"),
    Action(_VM, "removevolume", "update", "RemoveVolumeOptions"),
    Action(_VM, "expand-spec", "get", "VirtualMachine"),
    Action(_VM, "plan", "create", "VirtualMachine"),
    Action(_VMI, "pause", "update", "PauseOptions"),
    Action(_VMI, "unpause", "update", "UnpauseOptions"),
    Action(_VMI, "softreboot", "update"),
    Action(_VMI, "reset", "update"),
    Action(_VMI, "addvolume", "update", "AddVolumeOptions"),
    Action(_VMI, "removevolume", "update", "RemoveVolumeOptions"),
    Action(_VMI, "exec", "create"),  # our own: a command in the guest, by its agent
    Action(_VMI, "console", "get"),
    Action(_VMI, "guestosinfo", "get", "VirtualMachineInstanceGuestAgentInfo"),
    Action(_VMI, "userlist", "get", "VirtualMachineInstanceGuestOSUserList"),
    Action(_VMI, "filesystemlist", "get", "VirtualMachineInstanceFileSystemList"),
)

BY_PATH: dict[tuple[str, str], Action] = {(a.resource, a.name): a for a in SUBRESOURCES}

#: What KubeVirt's clients ask for and we do not serve, with what to do instead.
UNSERVED: dict[tuple[str, str], str] = {
    (_VMI, "vnc"): "VNC: use the serial console (virtctl console)",
    (_VM, "portforward"): "port forwarding (nor ssh and scp, which go through it)",
    (_VMI, "portforward"): "port forwarding (nor ssh and scp, which go through it)",
}

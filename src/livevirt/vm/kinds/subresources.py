"""The verbs of `subresources.kubevirt.io`: `…/namespaces/NS/virtualmachines/NAME/start` etc.

The group stores nothing.
"""

from __future__ import annotations

from livevirt.kube.objects.registry import Action, ActionGroup

GROUP = "subresources.kubevirt.io"
VERSIONS = ("v1", "v1alpha3")  # the same in both; clients of either exist
# Causes of the refusal of something that needs a running guest, or its agent.
GUEST_NOT_RUNNING = "GuestNotRunning"
NO_GUEST_AGENT = "GuestAgentNotConnected"  # it has not answered yet
GUEST_AGENT_STOPPED = "GuestAgentStopped"  # it has answered, and does not any more
NO_NODE_AGENT = "NodeAgentNotReachable"  # the same for a node agent, on a cluster

_VM, _VMI = "virtualmachines", "virtualmachineinstances"


def _with_schema(resource: str, name: str, verb: str, kind: str) -> Action:
    return Action(resource, name, verb, kind, f"kubevirt.{kind}")


SUBRESOURCES: tuple[Action, ...] = (
    _with_schema("", "expand-vm-spec", "update", "VirtualMachine"),
    _with_schema(_VM, "start", "update", "StartOptions"),
    _with_schema(_VM, "stop", "update", "StopOptions"),
    _with_schema(_VM, "restart", "update", "RestartOptions"),
    _with_schema(_VM, "migrate", "update", "MigrateOptions"),
    _with_schema(_VM, "addvolume", "update", "AddVolumeOptions"),
    _with_schema(_VM, "removevolume", "update", "RemoveVolumeOptions"),
    _with_schema(_VM, "expand-spec", "get", "VirtualMachine"),
    _with_schema(_VM, "plan", "create", "VirtualMachine"),
    Action(_VM, "portforward", "get"),
    _with_schema(_VMI, "pause", "update", "PauseOptions"),
    _with_schema(_VMI, "unpause", "update", "UnpauseOptions"),
    Action(_VMI, "softreboot", "update"),
    Action(_VMI, "reset", "update"),
    _with_schema(_VMI, "addvolume", "update", "AddVolumeOptions"),
    _with_schema(_VMI, "removevolume", "update", "RemoveVolumeOptions"),
    Action(_VMI, "exec", "create"),  # our own: a command in the guest, run by its agent
    Action(_VMI, "console", "get"),
    Action(_VMI, "vnc", "get"),
    Action(_VMI, "vnc/screenshot", "get"),
    Action(_VMI, "portforward", "get"),
    Action(_VMI, "usbredir", "get"),
    Action(_VMI, "guestosinfo", "get", "VirtualMachineInstanceGuestAgentInfo"),
    Action(_VMI, "userlist", "get", "VirtualMachineInstanceGuestOSUserList"),
    Action(_VMI, "filesystemlist", "get", "VirtualMachineInstanceFileSystemList"),
)

ACTIONS = ActionGroup(GROUP, VERSIONS, SUBRESOURCES)
BY_PATH: dict[tuple[str, str], Action] = {(a.resource, a.name): a for a in SUBRESOURCES}

#: What KubeVirt's clients ask for and we do not serve, with what to do instead.
UNSERVED: dict[tuple[str, str], str] = {
    (_VMI, "vsock"): "vsock: forward a port (virtctl port-forward)",
    (_VM, "memorydump"): "memory dumps",
}

"""Manifests made from flags: pure functions from what was asked for to the object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from livevirt.cli.vm import manifest_parts
from livevirt.cli.vm.flags import FlagError, params, prefixed, quantity, required
from livevirt.cli.vm.manifest_parts import Login, Volume

Object = dict[str, Any]

RUN_STRATEGIES = ("Always", "Manual", "Halted", "Once", "RerunOnFailure")
INSTANCETYPES = ("virtualmachineinstancetype", "virtualmachineclusterinstancetype")
PREFERENCES = ("virtualmachinepreference", "virtualmachineclusterpreference")
_GROUP = "instancetype.kubevirt.io"
TOPOLOGIES = ("sockets", "cores", "threads", "spread", "any")
DEFAULT_MEMORY = "512Mi"


@dataclass(frozen=True, slots=True)
class Matcher:
    """What the flags said about an instance type or a preference."""

    given: str = ""  # [kind/]name
    infer: bool | None = None  # None: if it can be
    infer_from: str = ""  # a volume

    @property
    def explicit(self) -> bool:
        """Whether it was asked for, in one way or another."""
        return bool(self.given or self.infer or self.infer_from)


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything `create vm` was asked for."""

    name: str
    namespace: str = ""
    run_strategy: str = "Always"
    grace_period: int = 180
    memory: str = ""
    vcpus: int = 0
    instancetype: Matcher = Matcher()
    preference: Matcher = Matcher()
    volumes: Sequence[Volume] = ()
    sysprep: Volume | None = None
    login: Login = field(default_factory=Login)
    credentials: Sequence[Object] = field(default_factory=list)


def vm(asked: Machine) -> Object:
    """Return the VirtualMachine; raises FlagError where flags contradict each other."""
    _check_exclusive(asked)
    _check_volumes(_all_volumes(asked))
    instancetype = asked.instancetype
    if (asked.memory or asked.vcpus) and instancetype == Matcher():
        instancetype = Matcher(infer=False)
    spec: Object = {"runStrategy": _run_strategy(asked.run_strategy)}
    for name, matcher, kinds in (
        ("instancetype", instancetype, INSTANCETYPES),
        ("preference", asked.preference, PREFERENCES),
    ):
        if found := _matcher(name, matcher, kinds, asked.volumes):
            spec[name] = found
    domain: Object = {"devices": {}, "resources": {}}
    disks = [{"name": v.name, "bootOrder": v.boot_order} for v in asked.volumes if v.boot_order]
    if disks:
        domain["devices"] = {"disks": disks}
    if asked.vcpus:
        domain["cpu"] = {"guest": asked.vcpus}
    if asked.memory or not instancetype.explicit:
        domain["memory"] = {"guest": quantity("memory", asked.memory or DEFAULT_MEMORY)}
    instance: Object = {"domain": domain, "terminationGracePeriodSeconds": asked.grace_period}
    if volumes := _volumes(asked):
        instance["volumes"] = volumes
    if asked.credentials:
        instance["accessCredentials"] = list(asked.credentials)
    spec["template"] = {"metadata": {}, "spec": instance}
    templates = [v.template for v in asked.volumes if v.template]
    if templates:
        spec["dataVolumeTemplates"] = templates
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": _metadata(asked.name, asked.namespace),
        "spec": spec,
        "status": {},
    }


@dataclass(frozen=True, slots=True)
class Instancetype:
    """Everything `create instancetype` was asked for; a size not given is left to the VM."""

    name: str
    namespace: str = ""
    namespaced: bool = False
    cpu: int | None = None
    memory: str = ""
    gpus: Sequence[str] = ()
    host_devices: Sequence[str] = ()
    io_threads: str = ""


def instancetype(asked: Instancetype) -> Object:
    """Return an instance type, of the cluster unless namespaced."""
    if asked.cpu is not None and asked.cpu <= 0:
        raise FlagError("cpu", "cpu value must be greater than zero")
    spec: Object = {}
    if asked.cpu is not None:
        spec["cpu"] = {"guest": asked.cpu}
    if asked.memory:
        spec["memory"] = {"guest": quantity("memory", asked.memory)}
    version = "v1beta1" if len(spec) == 2 else "v1beta2"  # which lets a type leave sizes open
    for flag, field_, texts in (
        ("gpu", "gpus", asked.gpus), ("hostdevice", "hostDevices", asked.host_devices),
    ):  # fmt: skip
        if texts:
            spec[field_] = [_device(flag, text) for text in texts]
    if asked.io_threads:
        if asked.io_threads not in ("auto", "shared"):
            raise FlagError("iothreadspolicy", "IOThread must be of value auto or shared")
        spec["ioThreadsPolicy"] = asked.io_threads
    made = _sizing("Instancetype", asked.name, asked.namespace, asked.namespaced, spec)
    return {**made, "apiVersion": f"{_GROUP}/{version}"}


def preference(
    name: str, namespace: str, namespaced: bool, topology: str, machine_type: str,
    storage_class: str,
) -> Object:  # fmt: skip
    """Return a preference, of the cluster unless namespaced."""
    spec: Object = {}
    if topology:
        aliases = {f"prefer{name.capitalize()}" for name in TOPOLOGIES}
        if topology not in aliases and topology not in TOPOLOGIES:
            raise FlagError(
                "cpu-topology",
                "CPU topology must have a value of sockets, cores, threads or spread",
            )
        spec["cpu"] = {"preferredCPUTopology": topology}
    if machine_type:
        spec["machine"] = {"preferredMachineType": machine_type}
    if storage_class:
        spec["volumes"] = {"preferredStorageClassName": storage_class}
    return _sizing("Preference", name, namespace, namespaced, spec)


def _sizing(sort: str, name: str, namespace: str, namespaced: bool, spec: Object) -> Object:
    own = namespaced or bool(namespace)
    return {
        "apiVersion": f"{_GROUP}/v1beta1",
        "kind": f"VirtualMachine{'' if own else 'Cluster'}{sort}",
        "metadata": _metadata(name, namespace),
        "spec": spec,
    }


def _metadata(name: str, namespace: str) -> Object:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _device(flag: str, text: str) -> Object:
    given = params(flag, text, ("name", "devicename"))
    return {
        "name": required(flag, given, "name"),
        "deviceName": required(flag, given, "devicename"),
    }


def _run_strategy(text: str) -> str:
    found = next((s for s in RUN_STRATEGIES if s.lower() == text.lower()), None)
    if found is None:
        known = ", ".join(RUN_STRATEGIES)
        why = f'invalid run strategy "{text}", supported values are: {known}'
        raise FlagError("run-strategy", why)
    return found


def _check_exclusive(asked: Machine) -> None:
    it, pref = asked.instancetype, asked.preference
    custom = asked.vcpus and it.given  # the instance type leaves the size open
    for group in (
        {
            "memory": asked.memory if not custom else "",
            "instancetype": it.given,
            "infer-instancetype": it.infer is not None,
            "infer-instancetype-from": it.infer_from,
        },
        {
            "preference": pref.given,
            "infer-preference": pref.infer is not None,
            "infer-preference-from": pref.infer_from,
        },
    ):
        used = [f"--{name}" for name, value in group.items() if value]
        if len(used) > 1:
            raise click.ClickException(f"{' and '.join(used)} exclude each other; give one of them")


def _check_volumes(volumes: Sequence[Volume]) -> None:
    names = {manifest_parts.VOLUME}  # kept for cloud-init
    orders: set[int] = set()
    for volume in volumes:
        if volume.name in names:
            raise FlagError(volume.flag, f'there is already a volume with name "{volume.name}"')
        if volume.boot_order in orders:
            why = f"bootorder {volume.boot_order} was specified multiple times"
            raise FlagError(volume.flag, why)
        names.add(volume.name)
        if volume.boot_order is not None:
            orders.add(volume.boot_order)


def _volumes(asked: Machine) -> list[Object]:
    entries = [volume.entry for volume in _all_volumes(asked)]
    cloud_init = manifest_parts.cloud_init(asked.login)
    return entries if cloud_init is None else [*entries, cloud_init]


def _all_volumes(asked: Machine) -> list[Volume]:
    return [*asked.volumes, *([asked.sysprep] if asked.sysprep else ())]


def _matcher(
    name: str, matcher: Matcher, kinds: Sequence[str], volumes: Sequence[Volume]
) -> Object | None:
    if matcher.given:
        kind, given = prefixed(name, matcher.given, name, kinds)
        return {"kind": kind, "name": given} if kind else {"name": given}
    if matcher.infer is False:
        return None
    if matcher.infer_from:
        flag = f"infer-{name}-from"
        source = next((v for v in volumes if v.name == matcher.infer_from), None)
        if source is None:
            raise FlagError(flag, f'there is no volume with name "{matcher.infer_from}"')
        return {"inferFromVolume": _inferable(flag, source)}
    flag = f"infer-{name}"
    first = _boot_volume(volumes)
    if matcher.infer:
        if first is None:
            raise FlagError(
                flag, "at least one volume is needed to infer an instance type or preference"
            )
        return {"inferFromVolume": _inferable(flag, first)}
    if first is None or not first.inferable:
        return None
    return {"inferFromVolume": first.name, "inferFromVolumeFailurePolicy": "Ignore"}


def _boot_volume(volumes: Sequence[Volume]) -> Volume | None:
    ordered = [v for v in volumes if v.boot_order]
    if ordered:
        return min(ordered, key=lambda v: v.boot_order or 0)
    return volumes[0] if volumes else None


def _inferable(flag: str, volume: Volume) -> str:
    if not volume.inferable:
        raise FlagError(flag, f'nothing can be inferred from volume "{volume.name}"')
    return volume.name

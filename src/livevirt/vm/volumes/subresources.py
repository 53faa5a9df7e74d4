"""PUT …/addvolume and …/removevolume: they attach and detach by editing the spec only.

Of a VM the template is edited, and the guest follows as it does any edit; of an instance that no VM
owns, its own spec. Beyond KubeVirt: a volume named like an empty CD-ROM drive is put into it, and
taking a drive's volume away leaves the drive; a volume can be removed by the name of its claim; an
unknown `dryRun` is refused; the verdict on the edit is given in warnings, as for every edit.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from livevirt.errors import BadRequest, Conflict, NotFound
from livevirt.kube.objects import refusals
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.config.settings import CDROM_GATE, HOTPLUG_GATE, Config
from livevirt.vm.guest.subresources import running_instance
from livevirt.vm.spec import disks
from livevirt.vm.spec.validation import spec_errors
from livevirt.vm.subresources.call import Call, Stale, decided, dry_run, pruned
from livevirt.vm.verdict import plan_subresource
from livevirt.vm.volumes.admission import INVALID
from livevirt.vm.volumes.update_admission import bus_errors
from livevirt.vm.volumes.volume_lists import Lists, NotInLists

_NO_BODY = "Request with no body, a new name is expected as the request body"
_SOURCES = ("persistentVolumeClaim", "dataVolume")

Edit = Callable[[Lists], Lists]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, and the warnings about the rest of it."""

    name: str
    options: Object
    dry_run: bool
    warnings: tuple[str, ...] = ()

    def added(self, lists: Lists) -> Lists:
        """Return the lists with the volume."""
        source = self.options["volumeSource"]
        given = {key: {**source[key], "hotpluggable": True} for key in _SOURCES if key in source}
        return lists.with_volume({"name": self.name, **given}, self.options["disk"])

    def removed(self, lists: Lists) -> Lists:
        """Return the lists without it; it may be named by its claim."""
        return lists.without_volume(lists.meant(self.name))


async def add_to_vm(call: Call) -> Answer:
    """Let a VM have one more volume."""
    asked = await _read(call, "AddVolumeOptions", disk="disk", volumeSource="VolumeSource")
    return await decided(call, lambda: _edit_vm(call, asked, asked.added))


async def remove_from_vm(call: Call) -> Answer:
    """Let a VM have one volume less."""
    asked = await _read(call, "RemoveVolumeOptions")
    return await decided(call, lambda: _edit_vm(call, asked, asked.removed))


async def add_to_instance(call: Call) -> Answer:
    """Let an instance without a VM have one more volume."""
    asked = await _read(call, "AddVolumeOptions", disk="disk", volumeSource="VolumeSource")
    return await decided(call, lambda: _edit_instance(call, asked, asked.added))


async def remove_from_instance(call: Call) -> Answer:
    """Let an instance without a VM have one volume less."""
    asked = await _read(call, "RemoveVolumeOptions")
    return await decided(call, lambda: _edit_instance(call, asked, asked.removed))


# ---------------------------------------------------------------- reading


async def _read(call: Call, type_: str, **parts: str) -> Asked:
    """Return what is asked for; `parts` are the fields it must have, by what refusals call them."""
    settings = await _config(call)
    if not settings.enabled(HOTPLUG_GATE) and not settings.enabled(CDROM_GATE):
        raise _closed(HOTPLUG_GATE)
    if not isinstance(call.body, dict):
        raise BadRequest(_NO_BODY)
    options, warnings = pruned(type_, call.body)
    if not options.get("name"):
        raise BadRequest(f"{type_} requires name to be set")
    for field, shown in parts.items():
        if options.get(field) is None:
            raise BadRequest(f"{type_} requires {shown} to not be nil")
    if isinstance(options.get("disk"), dict):
        options["disk"]["name"] = options["name"]
    return Asked(options["name"], options, dry_run(type_, options), warnings)


async def _config(call: Call) -> Config:
    with contextlib.suppress(NotFound):
        return config.read(await call.client.get(kinds.KUBEVIRT, config.NAME, config.NAMESPACE))
    return config.read(None)


def _closed(gate: str) -> BadRequest:
    return BadRequest(f"Enable DeclarativeHotplugVolumes or {gate} feature gate to use this API.")


# ---------------------------------------------------------------- writing


async def _edit_vm(call: Call, asked: Asked, edit: Edit) -> Answer:
    vm = await call.vm()
    lists = Lists.of(vm["spec"]["template"].get("spec") or {})
    edited = await _edited(call, kinds.VM, lists, edit)
    spec = {"template": {"spec": edited.patch()}}
    # Asked for first: once it is written the controller may have done it already.
    warnings = await _verdict(call, spec)
    await _write(call, kinds.VM, vm, spec, asked.dry_run)
    return _accepted(asked, warnings)


async def _edit_instance(call: Call, asked: Asked, edit: Edit) -> Answer:
    vmi = await call.instance()
    owners = vmi["metadata"].get("ownerReferences") or ()
    if any(owner.get("controller") and owner["kind"] == kinds.VM.kind for owner in owners):
        raise BadRequest(f"VMI {call.namespace}/{call.name} is owned by a VM")
    vmi = await running_instance(call)
    lists = Lists.of(vmi["spec"])
    edited = await _edited(call, kinds.VMI, lists, edit)
    spec = _applied(vmi["spec"], edited)
    usb = disks.has_usb_controller(vmi)
    if errors := _errors(vmi["spec"], spec, await _config(call), usb=usb):
        raise refusals.invalid(kinds.VMI, call.name, errors)
    await _write(call, kinds.VMI, vmi, Lists.of(spec).patch(), asked.dry_run)
    return _accepted(asked)


async def _edited(call: Call, kind: Kind, lists: Lists, edit: Edit) -> Lists:
    try:
        edited = edit(lists)
    except NotInLists as error:
        raise call.refuse(kind, str(error)) from error
    (name,) = edited.names() ^ lists.names()
    gate = CDROM_GATE if lists.is_drive(name) else HOTPLUG_GATE
    if not (await _config(call)).enabled(gate):
        raise _closed(gate)
    return edited


async def _verdict(call: Call, spec: Object) -> list[str]:
    """Return the verdict on an edit of a VM, as the `plan` subresource gives it."""
    with contextlib.suppress(Conflict):  # it is unknown how the guest was started
        planned = await plan_subresource.plan(replace(call, body={"spec": spec}))
        assert isinstance(planned.body, dict)
        return list(planned.body["warnings"])
    return []


async def _write(call: Call, kind: Kind, obj: Object, spec: Object, dry_run: bool) -> None:
    """Write the spec of an object as it was read; raises Stale if it is another one by now."""
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    patch = {"metadata": version, "spec": spec}
    try:
        await call.client.patch(kind, call.name, call.namespace, patch, dry_run=dry_run)
    except Conflict as error:
        raise Stale(error.message, details=error.details) from error


def _accepted(asked: Asked, warnings: list[str] | None = None) -> Answer:
    return Answer(202, b"", (*asked.warnings, *(warnings or ())))


# ---------------------------------------------------------------- instances


def _applied(spec: Object, lists: Lists) -> Object:
    """Return the spec of an instance with these lists, its new disk on a bus."""
    found = copy.deepcopy(spec)
    found["volumes"] = copy.deepcopy(list(lists.volumes))
    found["domain"].setdefault("devices", {})["disks"] = copy.deepcopy(list(lists.disks))
    disks.set_buses(found)
    return found


def _errors(before: Object, after: Object, settings: Config, *, usb: bool) -> list[FieldError]:
    """List what is wrong with an edit of an instance, which no restart will ever apply."""
    known = set(spec_errors("spec", before, settings, explicit_maximum=False))
    found = spec_errors("spec", after, settings, explicit_maximum=False)
    new = [each for each in found if each not in known]
    return [*new, *bus_errors(before, after), *_unpluggable(before, after, usb=usb)]


def _unpluggable(before: Object, after: Object, *, usb: bool) -> Iterator[FieldError]:
    """Yield the disks that come and that the guest could not be given, however long they wait."""
    old = Lists.of(before).disks
    has_usb = usb or any(disks.bus(disk) == "usb" for disk in old)
    at = "spec.domain.devices.disks"
    for disk in Lists.of(after).disks:
        name, shown_as = disk["name"], disks.target(disk)
        if disk in old:
            continue
        if shown_as == "lun":
            message = f"{name} is a lun: it takes a SCSI device of the host, and no claim is one"
            yield FieldError(at, INVALID, message)
        elif (shown_as, disks.bus(disk)) == ("cdrom", "usb") and not has_usb:
            message = f"the guest was started without a usb controller, so {name} cannot be added"
            yield FieldError(at, INVALID, message)

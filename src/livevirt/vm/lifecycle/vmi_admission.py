"""VirtualMachineInstances: made complete when created, then changed by livevirt itself only."""

from __future__ import annotations

from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Reader, Review, Rules, keep
from livevirt.vm.config import settings as configs
from livevirt.vm.kinds import KUBEVIRT, VM, support
from livevirt.vm.kinds.support import is_component
from livevirt.vm.spec import defaults, disks, instance
from livevirt.vm.spec.placement_validation import priority_errors
from livevirt.vm.spec.refused_fields import refused_annotations
from livevirt.vm.spec.sizes import guest, topology
from livevirt.vm.spec.validation import NO_EXEMPTIONS, Exemptions, size_warnings, spec_errors
from livevirt.vm.volumes import update_admission
from livevirt.vm.volumes.admission import empty_drives, wrong
from livevirt.vm.volumes.claims import shared_claims

FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
_GIVEN_STATUS = "virtualMachineRevisionName"  # the one part of it a creator knows
_RESTRICTED = "update of VMI object is restricted"


class InstanceRules(Rules):
    """What a VirtualMachineInstance must be."""

    def prepare(self, review: Review) -> None:
        """Fill in a new one; keep the status of an old one from others than ourselves."""
        new, old = review.new, review.old
        if old is not None:
            if not is_component(review.user):
                keep(new, old, "status")
            return
        config = cluster_config(review.read)
        meta = new["metadata"]
        if is_component(review.user):
            given = {_GIVEN_STATUS: status_of(new).get(_GIVEN_STATUS)}
        else:
            given = {}
            review.warnings += support.warnings("spec", new["spec"])
            review.warnings += size_warnings("spec", new["spec"], config)
        disks.add_missing(new["spec"])
        defaults.fill(new["spec"], owner_uid(new), config)
        annotations = meta.setdefault("annotations", {})
        annotations[configs.RECORDED] = config.recorded()
        if FINALIZER not in meta.setdefault("finalizers", []):
            meta["finalizers"].append(FINALIZER)
        moment = times.format_time(review.now)
        message = "Guest VM is not reported as running"
        ready = conditions.condition("Ready", False, "GuestNotRunning", message)
        new["status"] = {
            "phase": "Pending",
            # The first value holds until the guest runs, so that it is not written again.
            "conditions": [{**ready, "lastTransitionTime": moment}],
            "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": moment}],
            **_boot_size(new["spec"]),
            **{key: value for key, value in given.items() if value},
        }

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with a new instance, or with what changes in an old one."""
        new, old = review.new, review.old
        if old is None:
            config = cluster_config(review.read)
            explicit = (new["spec"]["domain"].get("memory") or {}).get("maxGuest") is not None
            # A VM that has been let in starts, whatever gate was closed since.
            ours = is_component(review.user)
            exempt = NO_EXEMPTIONS
            if ours:
                exempt = Exemptions(empty_drives(new["spec"]), shared_claims(new["spec"]))
            return [
                *_vcpu_errors(new["spec"]["domain"]),
                *refused_annotations("metadata", new["metadata"]),
                *priority_errors("spec", new["spec"], {}, review.read.get),
                *spec_errors(
                    "spec",
                    new["spec"],
                    config,
                    explicit_maximum=explicit,
                    exempt=exempt,
                ),
            ]
        if new["spec"] == old["spec"]:
            return []
        if not is_component(review.user):
            return [wrong("spec", _RESTRICTED, "FieldValueNotSupported")]
        return [
            *_maximum_errors(new["spec"]["domain"], old["spec"]["domain"]),
            *update_admission.update_errors(new, old),
        ]


def cluster_config(read: Reader) -> configs.Config:
    """Return the settings of the KubeVirt object in force."""
    return configs.read(read.get(KUBEVIRT, configs.NAME, configs.NAMESPACE))


def owner_uid(instance: Object) -> str:
    """Return the uid a guest's identity is made from: its VM's, else its own."""
    meta = instance["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == VM.kind:
            return str(owner["uid"])
    return str(meta["uid"])


def _vcpu_errors(domain: Object) -> list[FieldError]:
    """A number of vCPUs is for VMs: what they start has a topology."""
    if (domain.get("cpu") or {}).get("guest") is None:
        return []
    at = "spec.domain.cpu"
    message = f"{at}.guest is for VirtualMachines, give {at}.sockets, cores and threads instead"
    return [wrong(f"{at}.guest", message, "FieldValueNotSupported")]


def _maximum_errors(new: Object, old: Object) -> list[FieldError]:
    found = []
    if (new.get("cpu") or {}).get("maxSockets") != (old.get("cpu") or {}).get("maxSockets"):
        found.append(wrong("spec.domain.cpu.maxSockets", "CPU topology maxSockets changed"))
    if (new.get("memory") or {}).get("maxGuest") != (old.get("memory") or {}).get("maxGuest"):
        found.append(wrong("spec.domain.memory.maxGuest", "Memory maxGuest changed"))
    return found


def _boot_size(spec: Object) -> Object:
    """Return the size a guest boots with, which an edit before its boot does not change."""
    view = instance.read(spec)
    chosen, memory = topology(view.domain.cpu, view.domain.resources), guest(view)
    found: Object = {
        "currentCPUTopology": {
            "cores": chosen.cores, "sockets": chosen.sockets, "threads": chosen.threads,
        },
    }  # fmt: skip
    if memory is not None:
        found["memory"] = {"guestAtBoot": str(memory), "guestRequested": str(memory)}
    return found

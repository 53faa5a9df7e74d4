"""VirtualMachines: the spec stays as its owner wrote it; its meaning is checked on a copy."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from livevirt.kube.objects import core, names
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.metadata import validate_annotations, validate_labels
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Get, Review, Rules
from livevirt.vm.config.settings import Config
from livevirt.vm.instancetypes import sizing_admission
from livevirt.vm.instancetypes.sizing_admission import Sized, is_referred_anew, is_resized
from livevirt.vm.kinds import support
from livevirt.vm.kinds.support import is_component
from livevirt.vm.lifecycle.vmi_admission import cluster_config
from livevirt.vm.spec import defaults, disks
from livevirt.vm.spec.defaults import RUN_STRATEGIES, run_strategy
from livevirt.vm.spec.placement_validation import priority_errors
from livevirt.vm.spec.refused_fields import refused_annotations
from livevirt.vm.spec.validation import Exemptions, size_warnings, spec_errors
from livevirt.vm.verdict import rollout_policy
from livevirt.vm.verdict.gather import gather_now
from livevirt.vm.verdict.summary import RELABELLED, warnings
from livevirt.vm.verdict.verdict import judge, relabelled
from livevirt.vm.volumes import datavolume_admission
from livevirt.vm.volumes.admission import empty_drives, wrong
from livevirt.vm.volumes.claims import shared_claims
from livevirt.vm.volumes.volume_migration import STRATEGIES

FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
_TEMPLATE = "spec.template.spec"
_TEMPLATE_META = "spec.template.metadata"
_BOTH = (
    "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use"
    " RunStrategy instead"
)


class VirtualMachineRules(Rules):
    """What a VirtualMachine must be."""

    def prepare(self, review: Review) -> None:
        """Hold a VM that is to run from its first moment; warn of what is not acted on."""
        new, old = review.new, review.old
        if review.subresource:
            return
        if old is None and run_strategy(new["spec"]) != "Halted":
            # The controller would do it next; so a start costs one write less.
            finalizers = new["metadata"].setdefault("finalizers", [])
            if FINALIZER not in finalizers:
                finalizers.append(FINALIZER)
        if (old is None or new["spec"] != old["spec"]) and not is_component(review.user):
            template = new["spec"]["template"].get("spec") or {}
            review.warnings += support.warnings(_TEMPLATE, template)
            if new["spec"].get("running") is not None:
                review.warnings.append(
                    "spec.running is deprecated, please use spec.runStrategy instead."
                )

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the spec; warn of what becomes of an edit that is not.

        Taking another generation of the instance type is an edit as well.
        """
        new, old = review.new, review.old
        if "deletionTimestamp" in new["metadata"]:
            return []  # nothing more will start; an edit on the way out must not get stuck
        rollout = _rollout_errors(review)
        if not _is_edited(review):
            return rollout
        sized, config = sizing_admission.size(new, review.read), cluster_config(review.read)
        found = errors(new, config, sized, old) + missing_class(new, old, review.read.get)
        found += rollout
        if not found and not is_component(review.user):
            review.warnings += sized.warnings
            review.warnings += _data_volume_warnings(new, old, review.read.get)
            if sized.known and (old is None or review.subresource or is_resized(new, old)):
                review.warnings += _newly_ignored(review, sized)
                written = sized.vm["spec"]["template"]["spec"]
                review.warnings += size_warnings(_TEMPLATE, written, config)
                review.warnings += _edit_warnings(sized.vm, review) if old is not None else []
        return found


def _is_edited(review: Review) -> bool:
    """Return whether a write changes the spec of the VM, or the revisions it uses."""
    new, old = review.new, review.old
    if not review.subresource:
        return old is None or bool(new["spec"] != old["spec"])
    return old is not None and not is_component(review.user) and is_referred_anew(new, old)


def _newly_ignored(review: Review, sized: Sized) -> list[str]:
    """Return what instance type and preference set without effect and did not before this write."""
    new, old = review.new, review.old
    found = sizing_admission.ignored(new, sized)
    if not found or old is None or review.subresource:  # the latter takes another generation
        return found
    before = sizing_admission.size(old, review.read)
    known = sizing_admission.ignored(old, before) if before.known else []
    return [each for each in found if each not in known]


def errors(vm: Object, config: Config, sized: Sized, old: Object | None = None) -> list[FieldError]:
    """List what is wrong with the spec of a VM whose shape is right; `sized` is the same VM.

    A drive that was empty in the `old` one may stay so when the gate for that has been closed, and
    so may disks that used the same claim. One that is only to halt can, whatever else is wrong.
    """
    spec, was = vm["spec"], (old or {}).get("spec") or {}
    only_strategy = spec != was and _but_strategy(spec) == _but_strategy(was)
    if only_strategy and run_strategy(spec) == "Halted":
        return list(_strategy_errors(spec))
    before = was.get("template") or {}
    return [
        *_strategy_errors(spec),
        *_volumes_strategy_errors(spec),
        *sized.errors,
        *_metadata_errors(_TEMPLATE_META, sized.vm["spec"]["template"].get("metadata") or {}),
        *refused_annotations(_TEMPLATE_META, spec["template"].get("metadata") or {}),
        *_template_errors(sized, config, before.get("spec") or {}),
        *_data_volume_errors(vm),
    ]


def missing_class(vm: Object, old: Object | None, get: Get) -> list[FieldError]:
    """List the PriorityClass that an edit of a VM names and that does not exist.

    One that was deleted since keeps the VM from starting, not from being edited.
    """
    new, before = (
        (((each or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        for each in (vm, old)
    )
    return list(priority_errors(_TEMPLATE, new, before, get))


def _but_strategy(spec: Object) -> Object:
    """Return a spec without the fields on when the VM runs."""
    return {key: value for key, value in spec.items() if key not in ("running", "runStrategy")}


def _rollout_errors(review: Review) -> list[FieldError]:
    """List what is wrong with a new rollout strategy; warn if the one it names is not in force."""
    new, old = review.new, review.old
    if review.subresource or not rollout_policy.is_changed(new, old):
        return []
    namespace = review.read.get(core.NAMESPACE, new["metadata"]["namespace"])
    found = rollout_policy.errors(new, namespace)
    if not found and not is_component(review.user):
        config = cluster_config(review.read)
        review.warnings += rollout_policy.warnings(new, namespace, config, review.now)
    return found


def _edit_warnings(new: Object, review: Review) -> list[str]:
    """Return what becomes of an edit while the guest runs, given the VM as it would be sized."""
    inputs = gather_now(new, review.read, review.now)
    judgement = judge(inputs)
    found = warnings(judgement, new["metadata"]["name"], new["metadata"]["namespace"])
    return [*found, RELABELLED] if judgement.running and relabelled(inputs) else found


def _strategy_errors(spec: Object) -> Iterator[FieldError]:
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is not None and strategy is not None:
        yield wrong("spec.running", _BOTH)
    elif running is None and strategy is None:
        yield wrong("spec.running", "One of Running or RunStrategy must be specified")
    elif strategy is not None and strategy not in RUN_STRATEGIES:
        yield wrong(
            "spec.runStrategy", f"Invalid RunStrategy ({strategy})", "FieldValueNotSupported"
        )


def _volumes_strategy_errors(spec: Object) -> Iterator[FieldError]:
    strategy = spec.get("updateVolumesStrategy") or STRATEGIES[0]
    if strategy not in STRATEGIES:
        message = f"updateVolumes strategy not recognized: {strategy}"
        yield wrong("spec.updateVolumesStrategy", message, "FieldValueNotSupported")


def _template_errors(sized: Sized, config: Config, before: Object) -> list[FieldError]:
    """List what is wrong with the spec of the template, given what it was before."""
    written = sized.vm["spec"]["template"].get("spec")
    if written is None:
        return [wrong("spec.template.spec", "a template needs a spec", "FieldValueRequired")]
    expanded = _shown(written)
    defaults.fill(expanded, "", config)
    explicit = (written["domain"].get("memory") or {}).get("maxGuest") is not None
    return spec_errors(
        _TEMPLATE,
        expanded,
        config,
        explicit_maximum=explicit,
        sized=sized.known and not sized.errors,
        exempt=Exemptions(
            empty_drives(before), shared_claims(_shown(before)) if before else frozenset()
        ),
    )


def _shown(spec: Object) -> Object:
    """Return a spec with a disk for every volume."""
    found = copy.deepcopy(spec)
    disks.add_missing(found)
    return found


def _metadata_errors(at: str, meta: Object) -> list[FieldError]:
    """List what is wrong with labels and annotations that something made of this will have."""
    labels, annotations = (
        {key: value or "" for key, value in (meta.get(part) or {}).items()}
        for part in ("labels", "annotations")
    )
    return [
        *validate_labels(labels, f"{at}.labels"),
        *validate_annotations(annotations, f"{at}.annotations"),
    ]


def _data_volume_warnings(new: Object, old: Object | None, get: Get) -> Iterator[str]:
    """Yield what the DataVolumes of new or changed templates ask for without effect."""
    before = ((old or {}).get("spec") or {}).get("dataVolumeTemplates") or ()
    for number, template in enumerate(new["spec"].get("dataVolumeTemplates") or ()):
        if template not in before:
            at = f"spec.dataVolumeTemplates[{number}].spec"
            yield from datavolume_admission.warnings(at, template["spec"])
            yield from datavolume_admission.class_warnings(at, template["spec"], get)


def _data_volume_errors(vm: Object) -> Iterator[FieldError]:
    spec = vm["spec"]
    volumes = (spec["template"].get("spec") or {}).get("volumes") or ()
    used = {(volume.get("dataVolume") or {}).get("name") for volume in volumes}
    for number, template in enumerate(spec.get("dataVolumeTemplates") or ()):
        at, meta = f"spec.dataVolumeTemplate[{number}]", template.get("metadata") or {}
        if not meta.get("name"):
            yield wrong(
                f"{at}.name", f"'name' field must not be empty for DataVolumeTemplate entry {at}."
            )
        elif why := names.validate_dns1123_subdomain(meta["name"]):
            yield wrong(f"{at}.name", f"DataVolumeTemplate entry {at} has no valid name: {why[0]}")
        elif meta["name"] not in used:
            message = (
                f"DataVolumeTemplate entry {at} must be referenced in the VMI template's"
                " 'volumes' list"
            )
            yield wrong(at, message)
        namespace = meta.get("namespace") or vm["metadata"]["namespace"]
        if namespace != vm["metadata"]["namespace"]:
            message = (
                f"Embedded DataVolume namespace {namespace} differs from VM namespace"
                f" {vm['metadata']['namespace']}"
            )
            yield wrong(at, message)
        yield from _metadata_errors(f"spec.dataVolumeTemplates[{number}].metadata", meta)
        yield from datavolume_admission.spec_errors(f"{at}.spec", template["spec"])

"""POST …/virtualmachines/NAME/plan: what would become of an edit, before it is made.

The body is the VirtualMachine as it shall be, or a JSON merge patch of it; an empty one asks about
the VM as it is. Nothing is written.
"""

from __future__ import annotations

import contextlib
import functools

from livevirt.errors import BadRequest, NotFound
from livevirt.kube.objects import core, node_share, structural
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object
from livevirt.kube.objects.shape import shape
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.instancetypes.rules.lookup import decide
from livevirt.vm.instancetypes.sizing_admission import Sized, ignored, size
from livevirt.vm.kinds import support
from livevirt.vm.lifecycle import vm_admission as machines
from livevirt.vm.spec.validation import size_warnings
from livevirt.vm.subresources.call import Call
from livevirt.vm.verdict import edit, headroom
from livevirt.vm.verdict.case import Case
from livevirt.vm.verdict.changes import TEMPLATE
from livevirt.vm.verdict.growth import pod_changes
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import apply
from livevirt.vm.verdict.placement import placement
from livevirt.vm.verdict.summary import RELABELLED, plan_document
from livevirt.vm.verdict.verdict import judge, refuse


async def plan(call: Call) -> Answer:
    """Answer with the verdict on every field the edit changes, and what it was made from."""
    vm = await _vm(call)
    wanted, unknown = shape(kinds.VM, kinds.VM.version, _wanted(call, vm))
    found, seen, pods = await _found(call), headroom.Seen(), ""
    errors: list[FieldError] = structural.validate(kinds.VM.schema(kinds.VM.version), wanted)
    settings = config.read(found.kubevirt)
    judgement, unused, pod, place = Judgement(), [], [], None
    if not errors:  # what has no shape has no meaning either
        sized = await _sized(call, wanted)
        if sized.known and not sized.errors:
            case = _case(call, sized.vm, found)
            judgement = judge(case)
            if edit.resizes(judgement):
                seen, pods = await _around(call, found.vmi)
                case = _case(call, sized.vm, headroom.within(found, seen))
                judgement = judge(case)
            pod = pod_changes(case, judgement)
        errors = machines.errors(wanted, settings, sized, vm)
        if sized.known and not errors and not judgement.running:
            place = await _placement(call, sized.vm, settings)
        unused = sized.warnings + support.warnings(
            TEMPLATE, wanted["spec"]["template"].get("spec") or {}
        )
        if not errors:
            unused += ignored(wanted, sized)
            if sized.known:
                unused += size_warnings(TEMPLATE, sized.vm["spec"]["template"]["spec"], settings)
            if judgement.running and edit.relabelled(sized.vm, found):
                unused.append(RELABELLED)
    observed = _observed(vm, found, seen, pods)
    document = plan_document(refuse(judgement, errors), call.name, observed, call.namespace)
    if pod:
        document["pod"] = pod
    if place is not None:
        document["placement"] = place
    document["warnings"] += [f'unknown field "{path}"' for path in unknown] + unused
    return Answer(200, document)


async def _sized(call: Call, wanted: Object) -> Sized:
    """Return the VM as its instance type and preference would make it."""
    return await decide(lambda lookup: size(wanted, lookup), functools.partial(_get, call))


async def _vm(call: Call) -> Object:
    """Return the VM; one that is not there yet can be planned as a whole."""
    try:
        return await call.vm()
    except NotFound:
        if not _is_whole(call):
            raise
    meta = {"name": call.name, "namespace": call.namespace}
    return {"apiVersion": kinds.VM.api_version, "kind": kinds.VM.kind, "metadata": meta}


def _is_whole(call: Call) -> bool:
    """Tell whether the body is an object; a patch has no kind."""
    return "kind" in call.options


def _wanted(call: Call, vm: Object) -> Object:
    """Return the VM as the body wants it; only its spec matters."""
    body = call.options
    if not _is_whole(call):
        # The status counts as well: a reference that goes lets the newest generation be taken.
        patched = apply(body, vm)
        return {**vm, "spec": patched.get("spec"), "status": patched.get("status") or {}}
    meta = body.get("metadata")
    given = meta.get("name") if isinstance(meta, dict) else None
    group = str(body.get("apiVersion", "")).partition("/")[0]
    if body["kind"] != kinds.VM.kind or group != kinds.VM.group:
        raise BadRequest(f"the body must be a {kinds.VM.kind} or a merge patch without a kind")
    if given != call.name:
        raise BadRequest(
            f"the name of the object ({given}) does not match the name on the URL ({call.name})"
        )
    return {**vm, "spec": body.get("spec")}


async def _found(call: Call) -> edit.Found:
    vmi = await call.instance_or_none()
    return edit.Found(
        vmi,
        await _get(call, core.REVISION, edit.revision_of(vmi), call.namespace),
        await _get(call, kinds.KUBEVIRT, config.NAME, config.NAMESPACE),
        await _get(call, core.NODE, edit.node_of(vmi)),
    )


async def _around(call: Call, vmi: Object | None) -> tuple[headroom.Seen, str]:
    """Return what a guest's pod grows within, and the version of the list of the nodes' pods."""
    assert vmi is not None  # or nothing would be resized
    node, nodes = edit.node_of(vmi), (await call.client.list(core.NODE)).items
    one = f"spec.nodeName={node}" if len(nodes) == 1 else ""
    pods = await call.client.list(core.POD, fields=one)
    here = [pod for pod in pods.items if pod["spec"].get("nodeName") == node]
    own = node_share.pod_of(vmi, here)
    seen = headroom.Seen(
        await _get(call, core.NAMESPACE, call.namespace),
        (await call.client.list(core.QUOTA, call.namespace)).items,
        (await call.client.list(core.LIMIT_RANGE, call.namespace)).items,
        own,
        node_share.taken(here, own),
        node_share.by_node(nodes, pods.items),
    )
    return seen, pods.resource_version


async def _placement(call: Call, vm: Object, settings: config.Config) -> Object | None:
    """Return where a guest that does not run could start; None if no node is known yet."""
    nodes = (await call.client.list(core.NODE)).items
    if not nodes:
        return None
    pods = (await call.client.list(core.POD)).items
    return placement(vm, settings, node_share.by_node(nodes, pods))


async def _get(call: Call, kind: Kind, name: str, namespace: str = "") -> Object | None:
    if name:
        with contextlib.suppress(NotFound):
            return await call.client.get(kind, name, namespace)
    return None


def _case(call: Call, wanted: Object, found: edit.Found) -> Case:
    case = edit.case(wanted, found)
    if case is None:
        raise call.refuse(kinds.VM, edit.lost(found))
    return case


def _observed(vm: Object, found: edit.Found, seen: headroom.Seen, pods: str) -> Object:
    """Return the resourceVersion of each object the plan was made from."""
    one = {
        "virtualMachine": vm,
        "virtualMachineInstance": found.vmi,
        "controllerRevision": found.revision,
        "kubevirt": found.kubevirt,
        "node": found.node,
        "namespace": seen.namespace,
        "pod": seen.pod,
    }
    here = edit.node_of(found.vmi)
    others = [node for node, _ in seen.nodes or () if node["metadata"]["name"] != here]
    many = {
        "resourceQuotas": seen.quotas,
        "limitRanges": seen.limit_ranges,
        "otherNodes": others,
    }
    versions = {
        **{name: _version(obj) for name, obj in one.items() if obj is not None},
        **{
            name: {each["metadata"]["name"]: _version(each) for each in objects}
            for name, objects in many.items()
        },
        "podsOfNode": pods,
    }
    return {name: version for name, version in versions.items() if version}


def _version(obj: Object) -> str:
    """Return the resourceVersion of an object, empty if it is not stored yet."""
    return str(obj["metadata"].get("resourceVersion", ""))

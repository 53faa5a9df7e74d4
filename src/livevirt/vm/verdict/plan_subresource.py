"""POST …/virtualmachines/NAME/plan: what would become of an edit, before it is made.

The body is the VirtualMachine as it should be, or a JSON merge patch of it; an empty one asks about
the VM as it is. Nothing is written.
"""

from __future__ import annotations

import contextlib
from typing import Any

from livevirt.errors import BadRequest, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core, node_share, structural
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.node_share import NodeUsage, Share
from livevirt.kube.objects.request import Answer, Object, status_of
from livevirt.kube.objects.structural import shape
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.config.settings import Config
from livevirt.vm.instancetypes.rules.matchers import decide
from livevirt.vm.instancetypes.sizing_admission import Sized, ignored, size
from livevirt.vm.kinds import support
from livevirt.vm.lifecycle import vm_admission as machines
from livevirt.vm.spec.validation import size_warnings
from livevirt.vm.subresources.call import Call
from livevirt.vm.verdict import headroom, rollout_policy
from livevirt.vm.verdict.comparison import TEMPLATE
from livevirt.vm.verdict.gather import gather
from livevirt.vm.verdict.growth import pod_changes
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.summary import RELABELLED, plan_document
from livevirt.vm.verdict.verdict import judge, refuse, relabelled
from livevirt.vm.verdict.verdict_inputs import VerdictInputs


async def plan(call: Call) -> Answer:
    """Answer with the verdict on every field the edit changes, and what it was made from."""
    vm = await _vm(call)
    wanted, unknown = shape(kinds.VM, kinds.VM.version, _wanted(call, vm))
    errors: list[FieldError] = structural.validate(kinds.VM.schema(kinds.VM.version), wanted)
    sized = None if errors else await _sized(call, wanted)  # without a shape there is no meaning
    judged = sized is not None and sized.known and not sized.errors
    reader = ClientReader(call.client)
    inputs = await gather(sized.vm if sized is not None and judged else vm, reader, call.now())
    judgement = judge(inputs) if judged else Judgement()
    if judgement.unknown:
        raise call.refuse(kinds.VM, judgement.unknown)
    settings = config.read(inputs.objects["kubevirt"])  # as admission reads them
    unused, overruled, place = [], list[str](), None
    if sized is not None:
        errors = machines.errors(wanted, settings, sized, vm)
        errors += await decide(
            lambda read: machines.missing_class(wanted, vm, read.get), reader.get
        )
        if rollout_policy.is_changed(wanted, vm):
            namespace = await reader.get(core.NAMESPACE, call.namespace)
            errors += rollout_policy.errors(wanted, namespace)
            overruled = rollout_policy.warnings(wanted, namespace, settings, call.now())
        if sized.known and not errors and not judgement.running:
            place = await _placement(call, sized.vm, settings)
        unused = _unused(wanted, sized, settings, refused=bool(errors))
        if not errors:
            unused += overruled
        if not errors and judgement.running and relabelled(inputs):
            unused.append(RELABELLED)
    observed = _observed(vm, inputs, reader.pods_version)
    document = plan_document(refuse(judgement, errors), call.name, observed, call.namespace)
    if pod := pod_changes(inputs, judgement):
        document["pod"] = pod
    if place is not None:
        document["placement"] = place
    document["warnings"] += [f'unknown field "{path}"' for path in unknown] + unused
    return Answer(200, document)


def _unused(wanted: Object, sized: Sized, settings: Config, *, refused: bool) -> list[str]:
    """Return the warnings about fields of a VM that livevirt ignores."""
    template = wanted["spec"]["template"].get("spec") or {}
    found = sized.warnings + support.warnings(TEMPLATE, template)
    if not refused:
        found += ignored(wanted, sized)
        if sized.known:
            found += size_warnings(TEMPLATE, sized.vm["spec"]["template"]["spec"], settings)
    return found


class ClientReader:
    """Reads through a client; pods are listed once, when the first node's usage is asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._usage: NodeUsage[str] | None = None
        self._pods: dict[str, Object] = {}  # by uid
        self.pods_version = ""  # the resourceVersion of their list

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, None if there is none."""
        with contextlib.suppress(NotFound):
            return await self._client.get(kind, name, namespace)
        return None

    async def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace (all with "")."""
        return (await self._client.list(kind, namespace)).items

    async def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the other pods of that node use."""
        if self._usage is None:
            self._usage = await self._count()
        uid, others = self._usage.around(node, instance)
        return None if uid is None else self._pods[uid], others

    async def _count(self) -> NodeUsage[str]:
        page, usage = await self._client.list(core.POD), NodeUsage[str]()
        self.pods_version = page.resource_version
        for pod in page.items:
            uid = pod["metadata"]["uid"]
            self._pods[uid] = pod
            usage.put(uid, pod)
        return usage


async def _sized(call: Call, wanted: Object) -> Sized:
    """Return the VM as its instance type and preference would make it."""
    reader = ClientReader(call.client)
    return await decide(lambda lookup: size(wanted, lookup), reader.get)


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
    """Return whether the body is a whole object; a patch has no kind."""
    return "kind" in call.options


def _wanted(call: Call, vm: Object) -> Object:
    """Return the VM as the body wants it; only its spec and annotations matter."""
    body = call.options
    if not _is_whole(call):
        # The status counts as well: a reference that goes lets the newest generation be taken.
        patched = apply(body, vm)
        annotations = _annotations(patched.get("metadata"))
        return {
            **vm,
            "metadata": {**vm["metadata"], "annotations": annotations},
            "spec": patched.get("spec"),
            "status": status_of(patched),
        }
    meta = body.get("metadata")
    given = meta.get("name") if isinstance(meta, dict) else None
    group = str(body.get("apiVersion", "")).partition("/")[0]
    if body["kind"] != kinds.VM.kind or group != kinds.VM.group:
        raise BadRequest(f"the body must be a {kinds.VM.kind} or a merge patch without a kind")
    if given != call.name:
        raise BadRequest(
            f"the name of the object ({given}) does not match the name on the URL ({call.name})"
        )
    # As `kubectl apply` does: annotations that the manifest leaves out stay.
    annotations = _annotations(vm["metadata"]) | _annotations(meta)
    return {
        **vm,
        "metadata": {**vm["metadata"], "annotations": annotations},
        "spec": body.get("spec"),
    }


def _annotations(meta: Any) -> dict[str, str]:
    """Return the annotations in the metadata of a body, as far as their shape is right."""
    found = meta.get("annotations") if isinstance(meta, dict) else None
    if not isinstance(found, dict):
        return {}
    return {name: text for name, text in found.items() if isinstance(text, str)}


async def _placement(call: Call, vm: Object, settings: Config) -> Object | None:
    """Return where a guest that does not run could start; None if no node is known yet."""
    nodes = (await call.client.list(core.NODE)).items
    if not nodes:
        return None
    pods = (await call.client.list(core.POD)).items
    return headroom.placement(vm, settings, node_share.by_node(nodes, pods))


def _observed(vm: Object, inputs: VerdictInputs, pods: str) -> Object:
    """Return the resourceVersion of each object the plan was made from."""
    versions = {
        name: (
            {each["metadata"]["name"]: _version(each) for each in found}
            if isinstance(found, list)
            else _version(found)
        )
        for name, found in {"virtualMachine": vm, **inputs.objects}.items()
        if found is not None
    }
    versions["podsOfNode"] = pods
    return {name: version for name, version in versions.items() if version}


def _version(obj: Object) -> str:
    """Return the resourceVersion of an object, empty if it is not stored yet."""
    return str(obj["metadata"].get("resourceVersion", ""))

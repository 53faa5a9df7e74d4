"""Labels and annotations of a VM's template, which the instance and its pod get at once.

They never need a restart and nothing holds them back: no guest sees them. What others put on an
instance or a pod stays: only keys that the template has or had are changed. The instance records
those keys, because its pods must lose what it has lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from livevirt.kube.objects.merge_patch import difference
from livevirt.kube.objects.request import Object
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict

KEYS = "livevirt.io/template-keys"  # the annotation of an instance that records the keys
PARTS = ("labels", "annotations")
#: What livevirt sets itself on instances and pods; a template does not override it.
_OURS = re.compile(
    r"livevirt\.io/"
    r"|kubevirt\.io$"
    r"|kubevirt\.io/(vm-generation|created-by|nodeName|migration\w+|outdatedLauncherImage)$"
    r"|kubevirt\.io/(cluster-)?(instancetype|preference)-name$"
)
_MESSAGE = "the instance and its pod get them at once"


def path_of(part: str) -> str:
    """Return the path of labels or annotations as it is in a VM."""
    return f"spec.template.metadata.{part}"


def rulings(started: Object, wanted: Object, vmi: Object) -> list[Ruling]:
    """List the changes of an instance's labels and annotations.

    `started` and `wanted` are the metadata of the template at the start and now.
    """
    known = recorded(vmi)
    found = []
    for part in PARTS:
        new, has = _given(wanted, part), vmi["metadata"].get(part) or {}
        keys = {*_given(started, part), *known[part], *new}
        running = {key: value for key, value in has.items() if key in keys}
        if running != new:
            ruling = Ruling(Verdict.LIVE, Reason.NO_GUEST_CHANGE, _MESSAGE)
            found.append(
                msgspec.structs.replace(ruling, path=path_of(part), running=running, wanted=new)
            )
    return found


def patch(changes: Iterable[Ruling], vmi: Object) -> Object:
    """Return the merge patch of an instance that gets the labels and annotations of a judgement."""
    parts = {path_of(part): part for part in PARTS}
    ours = {parts[change.path]: change for change in changes if change.path in parts}
    if not ours:
        return {}
    meta: Object = {part: difference(c.running, c.wanted) for part, c in ours.items()}
    keys = recorded(vmi)
    for part, change in ours.items():
        keys[part] = sorted({*keys[part], *change.running, *change.wanted})
    meta.setdefault("annotations", {})[KEYS] = msgspec.json.encode(keys).decode()
    return {"metadata": meta}


def recorded(vmi: Object) -> dict[str, list[str]]:
    """Return the keys that the template of an instance has or had, as far as they changed."""
    text = (vmi["metadata"].get("annotations") or {}).get(KEYS)
    found = msgspec.json.decode(text) if text else {}
    return {part: list(found.get(part) or ()) for part in PARTS}


def pod_patch(vmi: Object, pod: Object, made: Mapping[str, Object]) -> Object | None:
    """Return the merge patch of a pod's metadata, None if it has what its instance has.

    `made` are the labels and annotations that a new pod of the instance would get.
    """
    changed: Object = {}
    for part, keys in recorded(vmi).items():
        has, new = pod["metadata"].get(part) or {}, made[part]
        moved = {key: new.get(key) for key in keys if has.get(key) != new.get(key)}
        if moved:
            changed[part] = moved
    return changed or None


def _given(metadata: Object, part: str) -> dict[str, str]:
    given = metadata.get(part) or {}
    return {key: value or "" for key, value in given.items() if not _OURS.match(key)}

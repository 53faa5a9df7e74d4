"""KubeVirt's fields that a guest cannot do without and livevirt cannot provide.

Other fields that livevirt does not act on are kept and warned of (`vm.kinds.support`). With these
the guest would be reported as running although it has nothing to boot, or not what its owner
relies on.
"""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.admission import wrong

HOOK_SIDECARS = "hooks.kubevirt.io/hookSidecars"
_REASON = "FieldValueNotSupported"


def refused_fields(path: str, spec: Object) -> Iterator[FieldError]:
    """Yield an error for each field of an instance's spec, found at `path`, that is refused."""
    for number, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("hostDisk") is not None:
            at = f"{path}.volumes[{number}].hostDisk"
            message = (
                f"{at} is not supported: guests get no files of their host; import the file with"
                " 'livevirt volume import' and use the claim"
            )
            yield wrong(at, message, _REASON)
    if (spec["domain"].get("firmware") or {}).get("kernelBoot"):
        at = f"{path}.domain.firmware.kernelBoot"
        message = f"{at} is not supported: guests boot from a disk with a boot loader"
        yield wrong(at, message, _REASON)


def refused_annotations(path: str, meta: Object) -> Iterator[FieldError]:
    """Yield an error for each annotation of an instance, with metadata at `path`, that is refused.

    An empty one asks for nothing.
    """
    if (meta.get("annotations") or {}).get(HOOK_SIDECARS):
        at = f"{path}.annotations[{HOOK_SIDECARS}]"
        message = f"{at} is not supported: no container runs beside a guest; remove the annotation"
        yield wrong(at, message, _REASON)

"""The machine type of a guest, which stays the same over its restarts.

A guest may find other hardware, and think it has moved, if its type changes under it. Two things
would do that to a VM whose template leaves the type open: another default of the cluster, and a new
QEMU, for which the alias `q35` stands for a newer type. So a VM keeps the type it was started with.
"""

from __future__ import annotations

from livevirt.kube.objects.request import Object

ALIAS = "q35"  # the newest type of whichever QEMU runs the guest


def kept(spec: Object, machine: Object | None) -> Object:
    """Return a spec with the type of an earlier start, or as it is if it names one itself."""
    earlier = (machine or {}).get("type")
    domain = spec.get("domain") or {}
    named = domain.get("machine") or {}
    if not earlier or named.get("type") not in (None, "", ALIAS):
        return spec
    return {**spec, "domain": {**domain, "machine": {**named, "type": earlier}}}

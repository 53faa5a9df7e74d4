"""The common instance types and preferences, generated from compact tables.

Names, sizes and settings are those of KubeVirt's common-instancetypes; descriptions are our own. To
them comes a `custom` size in every class but the universal one, which leaves vCPUs and memory to
the VM; `custom1gi` is the same with pages of 1Gi, where a class has both.
"""

from __future__ import annotations

from livevirt.catalog import guests, series
from livevirt.kube.objects.request import Object


def instancetypes() -> list[Object]:
    """Return every VirtualMachineClusterInstancetype of the catalog."""
    return series.objects()


def preferences() -> list[Object]:
    """Return every VirtualMachineClusterPreference of the catalog."""
    return guests.objects()

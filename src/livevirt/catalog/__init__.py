"""The common instance types and preferences, generated from compact tables.

Names, sizes and settings are those of KubeVirt's common-instancetypes; descriptions are our own. In
addition there is a `custom` size in every class but the universal one, which leaves vCPUs and
memory to the VM; `custom1gi` is the same with pages of 1Gi, where a class has both.

`series` has the instance types and `guests` the preferences; the labels here separate ours from a
user's.
"""

from __future__ import annotations

from livevirt.kube.objects.request import Object

PREFIX = "instancetype.kubevirt.io/"
LABEL = f"{PREFIX}common-instancetypes-version"
_OURS = "livevirt-"
#: Of the tables. Raise it with every change to them: installed objects of another one are replaced.
VERSION = f"{_OURS}3"


def labels(of: dict[str, str]) -> dict[str, str]:
    """Return the labels of an object of the catalog: these, by their full keys, and our own."""
    full = {f"{PREFIX}{key}": value for key, value in of.items()}
    return {**full, f"{PREFIX}vendor": "kubevirt.io", LABEL: VERSION}


def is_ours(obj: Object) -> bool:
    """Return whether an object came from this catalog, in whichever version.

    KubeVirt's own bundle has the same label with a version of its own, so it is a user's here.
    """
    return version_of(obj).startswith(_OURS)


def version_of(obj: Object) -> str:
    """Return the version of the catalog an object came from; empty if from none."""
    return str((obj["metadata"].get("labels") or {}).get(LABEL, ""))

"""Which claim `livevirt volume import` makes, and which it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from livevirt.cli.volume_import import ImportRequest, VolumeError, new_claim, refuse_present
from livevirt.kube.objects.request import Object

MIB = 2**20


def a_request(size: str | None = None) -> ImportRequest:
    return ImportRequest(Path("disk.iso"), "team", "data", size)


def a_claim(**metadata: Any) -> Object:
    meta = {"name": "data", "namespace": "team", **metadata}
    return {"metadata": meta, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}


SIZES = {
    "given no size, then that of the disk, in whole mebibytes": (None, 5 * MIB + 1, "6Mi"),
    "given a size, then that": ("1G", 5 * MIB, "1G"),
}


@pytest.mark.parametrize(("size", "virtual", "asked"), SIZES.values(), ids=SIZES)
def test_size_of_a_new_claim(size: str | None, virtual: int, asked: str) -> None:
    claim = new_claim(a_request(size), virtual)
    assert claim["spec"]["resources"]["requests"] == {"storage": asked}


@pytest.mark.parametrize(("size", "why"), [("1Mi", "too small"), ("much", "is not a size")])
def test_a_size_that_cannot_be_is_refused(size: str, why: str) -> None:
    with pytest.raises(VolumeError, match=why):
        new_claim(a_request(size), 5 * MIB)


REFUSED = {
    "one that goes": (a_claim(deletionTimestamp="2026-01-01T00:00:00Z"), None, "being deleted"),
    "a DataVolume's": (a_claim(ownerReferences=[{"kind": "DataVolume"}]), None, "DataVolume"),
    "one of another size": (a_claim(), "2Gi", "asks for 1Gi already"),
}


@pytest.mark.parametrize(("claim", "size", "why"), REFUSED.values(), ids=REFUSED)
def test_a_claim_that_is_not_for_us_is_refused(claim: Object, size: str | None, why: str) -> None:
    with pytest.raises(VolumeError, match=why):
        refuse_present(claim, a_request(size))


def test_a_claim_of_the_same_size_is_used() -> None:
    refuse_present(a_claim(), a_request("1024Mi"))
    refuse_present(a_claim(), a_request())

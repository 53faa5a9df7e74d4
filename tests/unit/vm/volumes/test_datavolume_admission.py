"""What a DataVolume must be."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.datavolume_admission import class_warnings, spec_errors, warnings

SIZE = {"resources": {"requests": {"storage": "1Gi"}}}
CLAIM = {"accessModes": ["ReadWriteOnce"], **SIZE}
BLANK = {"source": {"blank": {}}, "storage": SIZE}


def a_source(**source: Any) -> Object:
    return {"source": source, "storage": SIZE}


FINE = {
    "blank": BLANK,
    "a claim in full": {"source": {"blank": {}}, "pvc": CLAIM},
    "http": a_source(http={"url": "https://example.com/disk.qcow2"}),
    "registry": a_source(registry={"url": "docker://quay.io/some/image:1"}),
    "a copy": a_source(pvc={"name": "a", "namespace": "b"}),
    "a copy without a size": {"source": {"pvc": {"name": "a", "namespace": "b"}}, "storage": {}},
    "filled by others": {"pvc": {**CLAIM, "dataSourceRef": {"kind": "X", "name": "x"}}},
    "a reference": {"sourceRef": {"kind": "DataSource", "name": "x"}, "storage": {}},
}


@pytest.mark.parametrize("spec", FINE.values(), ids=FINE)
def test_these_are_fine(spec: Object) -> None:
    assert spec_errors("spec", spec) == []


WRONG = {
    "no storage": ({"source": {"blank": {}}}, "spec: Required value: Missing Data volume PVC"),
    "both storages": ({**BLANK, "pvc": CLAIM}, "spec.storage: Forbidden: Duplicate storage"),
    "no source": (
        {"storage": SIZE},
        "spec: Forbidden: Data volume should have either Source, SourceRef",
    ),
    "an empty source": (a_source(), "spec.source: Required value: Missing dataVolume valid"),
    "two sources": (
        a_source(blank={}, http={"url": "http://a/b"}),
        "spec.source: Forbidden: Multiple dataVolume sources",
    ),
    "a source and a reference": (
        {**BLANK, "sourceRef": {"kind": "DataSource", "name": "x"}},
        "spec: Forbidden: Data volume should have either",
    ),
    "filled twice": (
        {**BLANK, "storage": {**SIZE, "dataSource": {"kind": "X", "name": "x"}}},
        "spec: Forbidden: External population is incompatible",
    ),
    "no url": (a_source(http={"url": ""}), "spec.source.http.url: Required value"),
    "a file url": (a_source(http={"url": "file:///etc/passwd"}), "spec.source.http.url: Invalid"),
    "a plain image name": (a_source(registry={"url": "image"}), "spec.source.registry.url: Inv"),
    "no image at all": (a_source(registry={}), "spec.source.registry: Forbidden: exactly one"),
    "no size": (
        {"source": {"blank": {}}, "storage": {}},
        "spec.storage.resources[storage]: Required value: PVC size is missing",
    ),
    "a size of nothing": (
        {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "0"}}}},
        "spec.storage.resources[storage]: Invalid value",
    ),
    "no access mode of a claim": (
        {"source": {"blank": {}}, "pvc": SIZE},
        "spec.pvc.accessModes: Required value",
    ),
    "another content": (
        {**BLANK, "contentType": "songs"},
        "spec.contentType: Unsupported value",
    ),
}


@pytest.mark.parametrize(("spec", "message"), WRONG.values(), ids=WRONG)
def test_these_are_wrong(spec: Object, message: str) -> None:
    (error, *_) = spec_errors("spec", spec)
    assert str(error).startswith(message)


def test_what_is_accepted_in_vain_is_named() -> None:
    assert warnings("spec", a_source(s3={"url": "s3://b/c"})) == [
        "spec.source.s3 is not supported and will fail"
    ]
    assert warnings("spec", {**BLANK, "priorityClassName": "high"}) == [
        "spec.priorityClassName is not acted on"
    ]
    assert warnings("spec", BLANK) == []


@pytest.mark.parametrize("part", ["pvc", "storage"])
def test_a_storage_class_that_does_not_exist_is_warned_of(part: str) -> None:
    spec = {"source": {"blank": {}}, part: {**CLAIM, "storageClassName": "fast"}}
    assert len(class_warnings("spec", spec, lambda kind, name, namespace: None)) == 1
    assert class_warnings("spec", spec, lambda kind, name, namespace: {}) == []
    assert class_warnings("spec", BLANK, lambda kind, name, namespace: None) == []

"""Rewriting stored objects after the storage version of a definition has changed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from livevirt.cluster import stored_versions
from livevirt.errors import ApiError, Conflict, Invalid, NotFound, ServiceUnavailable
from livevirt.kube.client.interface import Client
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, Page
from livevirt.vm import kinds

OLD, NEW = "v1beta1", "v1beta2"


def a_definition(*stored: str) -> Object:
    versions = [{"name": OLD, "storage": False}, {"name": NEW, "storage": True}]
    return {
        "metadata": {"name": kinds.INSTANCETYPE.resource, "uid": "1", "resourceVersion": "7"},
        "spec": {"versions": versions},
        "status": {"storedVersions": list(stored)},
    }


class Cluster:
    """A cluster with three instance types; writes of some of them fail."""

    def __init__(self, definition: Object | None, failures: dict[str, ApiError]) -> None:
        self.definition, self.failures = definition, failures
        self.written: list[str] = []

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        if self.definition is None or name != kinds.INSTANCETYPE.resource:
            raise NotFound(name)
        return self.definition

    async def list(self, kind: Kind, *, limit: int, continue_: str) -> Page:
        assert limit
        names, following = (("a", "b"), "next") if not continue_ else (("c",), "")
        return Page([self._an_object(name) for name in names], "9", following)

    @staticmethod
    def _an_object(name: str) -> Object:
        meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "8"}
        return {"metadata": meta, "spec": {"cpu": {"guest": 1}}}

    async def patch(
        self, kind: Kind, name: str, namespace: str, patch: Object, *, subresource: str = ""
    ) -> None:
        assert set(patch["metadata"]) == {"uid", "resourceVersion"}
        if error := self.failures.get(name):
            raise error
        if subresource == "status" and self.definition is not None:
            self.definition["status"].update(patch["status"])
        else:
            assert set(patch) == {"metadata"}, "objects are written unchanged"
            self.written.append(name)


async def migrate(cluster: Cluster) -> list[str]:
    reported: list[str] = []
    await stored_versions.migrate(cast(Client, cluster), kinds.KINDS, reported.append)
    return reported


def stored(cluster: Cluster) -> Any:
    assert cluster.definition is not None
    return cluster.definition["status"]["storedVersions"]


async def test_given_an_older_version_then_every_object_is_written_and_the_list_is_trimmed() -> (
    None
):
    cluster = Cluster(a_definition(OLD, NEW), {})
    assert await migrate(cluster)
    assert cluster.written == ["a", "b", "c"]
    assert stored(cluster) == [NEW]
    assert await migrate(cluster) == []
    assert len(cluster.written) == 3, "once is enough"


@pytest.mark.parametrize("definition", [None, a_definition(NEW)], ids=["missing", "current"])
async def test_given_nothing_older_then_nothing_is_written(definition: Object | None) -> None:
    cluster = Cluster(definition, {})
    assert await migrate(cluster) == []
    assert not cluster.written


@pytest.mark.parametrize("error", [NotFound(""), Conflict("")])
async def test_given_an_object_that_changed_meanwhile_then_it_needs_no_write(
    error: ApiError,
) -> None:
    cluster = Cluster(a_definition(OLD, NEW), {"b": error})
    await migrate(cluster)
    assert stored(cluster) == [NEW]


async def test_given_an_object_that_is_refused_then_the_others_are_written_and_it_is_reported() -> (
    None
):
    cluster = Cluster(a_definition(OLD, NEW), {"b": Invalid("wrong")})
    [reported] = await migrate(cluster)
    assert "default/b" in reported
    assert cluster.written == ["a", "c"]
    assert stored(cluster) == [OLD, NEW], "its storage may contain the old version"


async def test_given_no_answer_then_it_is_for_the_caller_to_try_again() -> None:
    cluster = Cluster(a_definition(OLD, NEW), {"b": ServiceUnavailable("")})
    with pytest.raises(ServiceUnavailable):
        await migrate(cluster)
    assert stored(cluster) == [OLD, NEW]

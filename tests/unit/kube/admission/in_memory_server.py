"""A server of a few lines: the rules in their order, objects kept in a dict."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

from livevirt.kube.admission import limit_ranges, quotas
from livevirt.kube.admission.builtin import RULES
from livevirt.kube.objects import typed
from livevirt.kube.objects.core import LIMIT_RANGE, POD, QUOTA
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
NAMESPACE = "team"


class Refused(Exception):
    """Field errors, as (reason, path)."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors
        self.causes = {(error.reason.removeprefix("FieldValue"), error.field) for error in errors}


class InMemoryServer:
    """Takes writes as a server would; a refused one raises and changes nothing."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return self.objects.get((kind.resource, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return [obj for (resource, _), obj in self.objects.items() if resource == kind.resource]

    def put(self, kind: Kind, name: str, **fields: object) -> Object:
        """Store an object as it is, past every rule."""
        obj: Object = {"metadata": {"name": name, "namespace": NAMESPACE}, **fields}
        self.objects[kind.resource, name] = obj
        return obj

    def create(self, kind: Kind, name: str, **fields: object) -> Object:
        obj = typed.decode(kind.schema(), {"metadata": {"name": name}, **fields}, [])
        if kind.namespaced:
            obj["metadata"]["namespace"] = NAMESPACE
        return self._write("create", kind, obj, None, "")

    def update(self, kind: Kind, changed: Object, subresource: str = "") -> Object:
        new = typed.decode(kind.schema(), changed, [])
        old = self.objects[kind.resource, changed["metadata"]["name"]]
        return self._write("update", kind, new, old, subresource)

    def resize(self, pod: Object, **resources: dict[str, str]) -> Object:
        changed = copy.deepcopy(pod)
        changed["spec"]["containers"][0]["resources"] = resources
        return self.update(POD, changed, "resize")

    def _write(
        self, verb: str, kind: Kind, new: Object, old: Object | None, subresource: str
    ) -> Object:
        rules = RULES[kind.resource]
        stored = copy.deepcopy(old)
        review = Review(
            verb, kind, kind.version, new, stored, User("jane"), self, NOON, subresource
        )
        if subresource:
            rules.through(subresource, review)
        elif kind.has_status and stored is not None:
            new["status"] = copy.deepcopy(stored["status"])
        rules.default(review.new)
        limit_ranges.apply(review, self.list(LIMIT_RANGE))
        rules.prepare(review)
        if errors := rules.validate(review):
            raise Refused(errors)
        for charged in quotas.charge(self.list(QUOTA), review):
            self.objects[QUOTA.resource, charged["metadata"]["name"]] = charged
        assert stored == old, "the stored object was changed in place"
        self.objects[kind.resource, new["metadata"]["name"]] = review.new
        return review.new


def a_pod(*containers: Object, **spec: object) -> Object:
    """The spec of a pod, as `create` takes it."""
    listed = list(containers) or [{"name": "c", "image": "img:1"}]
    return {"spec": {"schedulerName": "none", "containers": listed, **spec}}


def a_container(name: str = "c", **resources: object) -> Object:
    return {"name": name, "image": "img:1", "resources": resources}

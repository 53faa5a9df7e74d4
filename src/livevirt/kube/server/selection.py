"""Label and field selectors of a list or watch, applied to stored objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from livevirt.errors import BadRequest
from livevirt.kube.objects import selector
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object

_ALWAYS = ("metadata.name", "metadata.namespace")


class Selection:
    """What a request wants to see of a kind."""

    def __init__(self, kind: Kind, options: Mapping[str, str]) -> None:
        labels, fields = options.get("labelSelector", ""), options.get("fieldSelector", "")
        self.everything = not labels and not fields
        try:
            self._labels = selector.parse_label_selector(labels)
            self._fields = selector.parse_field_selector(fields)
        except selector.SelectorError as error:
            raise BadRequest(str(error)) from None
        known = (*_ALWAYS, *kind.selectable)
        for wanted in self._fields.requirements:
            if wanted.path not in known:
                raise BadRequest(f'field label not supported: "{wanted.path}"')
        self._paths = tuple(dict.fromkeys(r.path for r in self._fields.requirements))
        self.name = self._fields.exact("metadata.name")
        self.namespace = self._fields.exact("metadata.namespace")

    def matches(self, obj: Object) -> bool:
        """Tell whether the request wants to see the object."""
        if self.everything:
            return True
        if not self._labels.matches(obj["metadata"].get("labels")):
            return False
        if not self._paths:
            return True
        return self._fields.matches({path: field_text(obj, path) for path in self._paths})


def field_text(obj: Object, path: str) -> str:
    """Return a field the way field selectors compare it: absent is empty."""
    value: Any = obj
    for part in path.split("."):
        if not isinstance(value, dict):
            return ""
        value = value.get(part)
    if path == "source" and isinstance(value, dict):  # events: the component stands for it
        value = value.get("component")
    match value:
        case None if path in ("spec.hostNetwork", "spec.unschedulable"):
            return "false"
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)

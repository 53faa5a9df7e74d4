"""ConfigMaps: good keys, at most 1 MiB, and no change once immutable."""

from __future__ import annotations

import base64

from livevirt.kube.objects import names
from livevirt.kube.objects.field_error import FieldError, forbidden, invalid, too_long
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

MAX_SIZE = 1024 * 1024


class ConfigMapRules(Rules):
    """What a ConfigMap must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List bad keys, keys given twice, too much data, and changes of an immutable one."""
        new, old = review.new, review.old
        found = key_errors("data", new)
        size = sum(map(_size, (new.get("data") or {}).values()))
        if new.get("binaryData"):
            found += key_errors("binaryData", new)
            found += [
                invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
                for key in sorted((new.get("data") or {}).keys() & new["binaryData"].keys())
            ]
            size += decoded_size(new, "binaryData")
        if size > MAX_SIZE:
            found.append(too_long("", MAX_SIZE))
        if old is not None:
            found += immutability_errors(new, old, ("data", "binaryData"))
        return found


def _size(text: str) -> int:
    """The bytes of a text, counted without making them where it is plain."""
    return len(text) if text.isascii() else len(text.encode())


def key_errors(field: str, obj: Object) -> list[FieldError]:
    """What is wrong with the keys of a map of files."""
    return [
        invalid(f"{field}[{key}]", key, why)
        for key in sorted(obj.get(field) or {})
        for why in names.validate_config_key(key)
    ]


def decoded_size(obj: Object, field: str) -> int:
    """The bytes in a map of base64 values."""
    return sum(len(base64.b64decode(value)) for value in (obj.get(field) or {}).values())


def immutability_errors(new: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    """What changed although the stored object is marked `immutable`."""
    if not old.get("immutable"):
        return []
    changed = [] if new.get("immutable") else ["immutable"]
    changed += [field for field in fields if (new.get(field) or {}) != (old.get(field) or {})]
    return [forbidden(field, "field is immutable when `immutable` is set") for field in changed]

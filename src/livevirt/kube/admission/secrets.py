"""ConfigMaps and Secrets: valid keys, at most 1 MiB, and no change once immutable.

Of a Secret `stringData` becomes `data`, and typed secrets hold the keys of their type.
"""

from __future__ import annotations

import base64
import json

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import immutable
from livevirt.kube.objects.field_error import FieldError, forbidden, invalid, required, too_long
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

# ---------------------------------------------------------------- ConfigMaps

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


# ---------------------------------------------------------------- Secrets

OPAQUE = "Opaque"
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"

_KEYS = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_KEYS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_REDACTED = "<secret contents redacted>"


class SecretRules(Rules):
    """What a Secret must be."""

    def default(self, obj: Object) -> None:
        """Fold `stringData` into `data` and give the secret a type."""
        obj.setdefault("type", OPAQUE)
        if plain := obj.pop("stringData", None):
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def validate(self, review: Review) -> list[FieldError]:
        """List bad keys, too much data, missing keys of the type, and forbidden changes."""
        new, old = review.new, review.old
        found = key_errors("data", new)
        if decoded_size(new, "data") > MAX_SIZE:
            found.append(too_long("data", MAX_SIZE))
        found += _type_errors(new)
        if old is not None:
            found += immutable("type", new.get("type"), old.get("type"))
            found += immutability_errors(new, old, ("data",))
        return found


def _type_errors(secret: Object) -> list[FieldError]:
    data = secret.get("data") or {}
    match secret.get("type"):
        case "kubernetes.io/service-account-token":
            annotations = secret["metadata"].get("annotations") or {}
            if annotations.get(SERVICE_ACCOUNT_NAME):
                return []
            return [required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]")]
        case "kubernetes.io/basic-auth":
            if "username" in data or "password" in data:
                return []
            return [required("data[username]"), required("data[password]")]
        case str(kind) if kind in _JSON_KEYS:
            key = _JSON_KEYS[kind]
            return _json_errors(f"data[{key}]", data.get(key))
        case kind:
            needed = _KEYS.get(kind or OPAQUE, ())
            return [required(f"data[{key}]") for key in needed if key not in data]


def _json_errors(path: str, encoded: str | None) -> list[FieldError]:
    if encoded is None:
        return [required(path)]
    try:
        content = json.loads(base64.b64decode(encoded))
    except ValueError as error:
        return [invalid(path, _REDACTED, str(error))]
    return [] if isinstance(content, dict) else [invalid(path, _REDACTED, "must be a JSON object")]

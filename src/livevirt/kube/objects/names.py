"""Which names Kubernetes accepts, and why it refuses the others.

Every `validate_*` function returns a list of complaints, each with the message of a kube-apiserver
it after the quoted value; an empty list means the name is good. Lengths are counted in bytes of
UTF-8, as Go counts them.
"""

from __future__ import annotations

import functools
import random
import re
import secrets
from collections.abc import Callable

NameRule = Callable[[str], list[str]]
"""Returns what is wrong with an object's name."""

LABEL_MAX = 63
_REMEMBERED_MAX = 128  # longer texts are judged each time: they are rare and would fill memory
SUBDOMAIN_MAX = 253

# Without vowels and look-alike digits, so no generated name spells a word.
GENERATED_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
GENERATED_LENGTH = 5

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch  # names differ: no verdict to remember
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_KEY_NAME})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_KEY_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


def _remembered(rule: NameRule) -> NameRule:
    """Keep a rule's verdicts: the same keys and values are checked many times."""
    verdict = functools.lru_cache(maxsize=4096)(lambda name: tuple(rule(name)))

    @functools.wraps(rule)
    def judge(name: str) -> list[str]:
        return list(verdict(name)) if len(name) <= _REMEMBERED_MAX else rule(name)

    return judge


@_remembered
def validate_dns1123_label(name: str) -> list[str]:
    """What keeps the name from being one lower-case DNS label (namespaces, volumes)."""
    found = _longer_than(LABEL_MAX, name, "characters")
    if not re.fullmatch(_LABEL, name):
        if re.fullmatch(_SUBDOMAIN, name):
            found.append("must not contain dots")
        else:
            found.append(
                _mismatch(
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric "
                    "characters or '-', and must start and end with an alphanumeric character",
                    _LABEL,
                    "my-name",
                    "123-abc",
                )
            )
    return found


def validate_dns1123_subdomain(name: str) -> list[str]:
    """What keeps the name from being dotted lower-case DNS labels (most objects)."""
    return _subdomain(name, "characters")


def validate_dns1035_label(name: str) -> list[str]:
    """What keeps the name from being a DNS label that starts with a letter (services)."""
    found = _longer_than(LABEL_MAX, name, "characters")
    if not re.fullmatch(_LABEL_1035, name):
        found.append(
            _mismatch(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
                "start with an alphabetic character, and end with an alphanumeric character",
                _LABEL_1035,
                "my-name",
                "abc-123",
            )
        )
    return found


def validate_path_segment(name: str) -> list[str]:
    """What keeps the name from being one segment of a URL path (RBAC objects)."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]


@_remembered
def validate_qualified_name(key: str) -> list[str]:
    """What keeps the key from being `name` or `domain/name` (labels, annotations, finalizers)."""
    mismatch = _mismatch(_KEY_NAME_RULE, _KEY_NAME, "MyName", "my.name", "123-abc")
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {mismatch} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    found = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {why}" for why in _subdomain(prefix, "bytes")]
    if not name:
        found.append("name part must be non-empty")
    found += [f"name part {why}" for why in _longer_than(LABEL_MAX, name, "bytes")]
    if not re.fullmatch(_KEY_NAME, name):
        found.append(f"name part {mismatch}")
    return found


validate_label_key = validate_qualified_name
validate_finalizer = validate_qualified_name


def validate_annotation_key(key: str) -> list[str]:
    """What keeps the key from being an annotation's; letters of any case are fine in its domain."""
    return validate_qualified_name(key.lower())


@_remembered
def validate_label_value(value: str) -> list[str]:
    """What keeps the text from being a label's value; the empty one is fine."""
    found = _longer_than(LABEL_MAX, value, "bytes")
    if not re.fullmatch(_LABEL_VALUE, value):
        found.append(
            _mismatch(
                f"a valid label must be an empty string or {_KEY_NAME_RULE.removeprefix('must ')}",
                _LABEL_VALUE,
                "MyValue",
                "my_value",
                "12345",
            )
        )
    return found


def validate_env_var_name(name: str) -> list[str]:
    """What keeps the text from being the name of an environment variable."""
    found = [] if name else ["environment variable name must be non-empty"]
    if any(not " " <= char <= "~" or char == "=" for char in name):
        found.append(
            "a valid environment variable name must consist only of "
            "printable ASCII characters other than '='"
        )
    return found


@_remembered
def validate_config_key(key: str) -> list[str]:
    """What keeps the key from being one of a ConfigMap's or Secret's data."""
    found = _longer_than(SUBDOMAIN_MAX, key, "characters")
    if not re.fullmatch(_CONFIG_KEY, key):
        found.append(
            _mismatch(
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                _CONFIG_KEY,
                "key.name",
                "KEY_NAME",
                "key-name",
            )
        )
    if key in (".", ".."):
        found.append(f"must not be '{key}'")
    elif key.startswith(".."):
        found.append("must not start with '..'")
    return found


def generate(prefix: str) -> str:
    """A name of at most 63 characters: the start of `generateName` and five random ones."""
    kept = prefix[: LABEL_MAX - GENERATED_LENGTH]
    return kept + "".join(secrets.choice(GENERATED_ALPHABET) for _ in range(GENERATED_LENGTH))


_chance = random.Random()  # begins with what the system's own randomness gives


def unique_id() -> str:
    """A random UUID (version 4), what `metadata.uid` holds: unlike any other, not a secret."""
    text = f"{_chance.getrandbits(128):032x}"
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def as_name(prefix: str) -> str:
    """A whole name that is as good or bad as the `generateName`, which may end in a dash."""
    if prefix in (".", ".."):
        return prefix + "a"  # what follows can still make it a path segment
    if len(prefix) > 1 and prefix.endswith("-") and prefix.isascii():
        return prefix[:-2] + "a"  # two characters give way to one, as in Kubernetes
    return prefix


def _subdomain(name: str, unit: str) -> list[str]:
    found = _longer_than(SUBDOMAIN_MAX, name, unit)
    if not _is_subdomain(name):
        found.append(
            _mismatch(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
                "characters, '-' or '.', and must start and end with an alphanumeric character",
                _SUBDOMAIN,
                "example.com",
            )
        )
    return found


def _longer_than(limit: int, text: str, unit: str) -> list[str]:
    size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    return [f"must be no more than {limit} {unit}"] if size > limit else []


def _mismatch(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"

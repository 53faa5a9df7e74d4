"""Which words QEMU takes as they are: identifiers, absolute paths, text without control characters.

QEMU's option parsers differ (`-cpu` knows no escaping at all), so a name that could mean more
than itself is refused where the machine is described, not where it is printed.
"""

import re

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")  # QEMU: id_wellformed()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # CPU models, features, machine types
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def identifier(what: str, value: str) -> None:
    """Refuse what QEMU would not take as the id of a device."""
    if not _IDENTIFIER.fullmatch(value):
        raise ValueError(f"{what} {value!r} is not an identifier QEMU accepts")


def name(what: str, value: str) -> None:
    """Refuse what is not one plain word, such as a CPU model."""
    if not _NAME.fullmatch(value):
        raise ValueError(f"{what} {value!r} is not a plain name")


def text(what: str, value: str) -> None:
    """Refuse control characters and lone surrogates; everything else can be quoted."""
    if _CONTROL.search(value):
        raise ValueError(f"{what} {value!r} holds a control character")


def path(what: str, value: str) -> None:
    """Refuse relative paths (QEMU would read some as a protocol) and unprintable ones."""
    text(what, value)
    if not value.startswith("/"):
        raise ValueError(f"{what} {value!r} is not an absolute path")

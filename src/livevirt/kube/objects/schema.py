"""Schemas of every kind, read from compact tables: folders named `definitions`.

A table is named after its package and holds one block per type, a line per field:

    PodSpec
      containers [Container]! always key=name merge=name @2
      nodeName string @10 -- the node that runs the pod

The type is a scalar (`string int32 int64 bool double bytes Quantity Time MicroTime Duration
NullableTime IntOrString any object`), a type of the same table, `table.Type`, a list `[T]` or a map
`{T}`; `!` means required, `?` that an explicit zero is kept. Then, each optional: `always` (written
even when empty), `key=a,b` or `set` (how apply merges the list), `atomic`, `merge=k` (strategic
merge by that key; bare `merge` for lists of scalars), `retainKeys`, `replace`, `enum=A|B`,
`default=V`, `min=N`, `open` (unknown fields stay), `@N` (protobuf number) and `-- description`.
`inline T` splices the fields of another type in. `atomic` after the name of a type means that apply
replaces its values as a whole, except in fields that are `granular`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple


@dataclass(slots=True, eq=False)
class Type:
    """What a value may be. Compared by identity: there is one Type per definition."""

    form: str  # object map list string integer number boolean bytes quantity time … any
    name: str = ""  # full name of a defined object type, as OpenAPI spells it
    format: str = ""
    fields: dict[str, Field] = field(default_factory=dict)
    element: Type | None = None
    inlines: list[tuple[int, Type]] = field(default_factory=list)  # protobuf number, type
    always: tuple[Field, ...] = ()  # those of `fields` that are written even when empty
    description: str = ""
    atomic: bool = False  # apply replaces values of an object type as a whole


@dataclass(slots=True)
class Field:
    """One field of an object type and how it is merged, defaulted and written."""

    name: str
    type: Type
    required: bool = False
    pointer: bool = False
    always: bool = False
    keys: tuple[str, ...] = ()
    set: bool = False
    atomic: bool = False
    granular: bool = False  # apply merges by field though the type is atomic
    merge: str | None = None  # strategic merge: the key, or "" for a list of scalars
    retain_keys: bool = False
    replace: bool = False
    enum: tuple[str, ...] = ()
    default: Any = None
    minimum: int | None = None
    open: bool = False
    number: int = 0
    description: str = ""


def merging(entry: Field) -> dict[str, Any]:
    """Return how server-side apply merges a field."""
    if entry.keys:
        return {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": list(entry.keys),
        }
    if entry.type.form == "list":
        return {"x-kubernetes-list-type": "set" if entry.set else "atomic"}
    if entry.granular:
        return {"x-kubernetes-map-type": "granular"}
    return {"x-kubernetes-map-type": "atomic"} if entry.atomic else {}


SCALARS: dict[str, Type] = {
    "string": Type("string"),
    "int32": Type("integer", format="int32"),
    "int64": Type("integer", format="int64"),
    "bool": Type("boolean"),
    "double": Type("number", format="double"),
    "bytes": Type("bytes", format="byte"),
    "Quantity": Type("quantity"),
    "Time": Type("time", format="date-time"),
    "MicroTime": Type("microtime", format="date-time"),
    "NullableTime": Type("nullable-time", format="date-time"),
    "Duration": Type("duration"),
    "IntOrString": Type("intorstring", format="int-or-string"),
    "any": Type("any"),
    "object": Type("object-any"),
}


class Definitions:
    """All types of all tables, linked."""

    def __init__(self, tables: dict[str, str]) -> None:
        self._types: dict[str, Type] = {}
        self._lists: dict[tuple[str, str], Type] = {}
        blocks = [block for table, text in tables.items() for block in _blocks(table, text)]
        for block in blocks:
            self._types[block.key] = Type(
                "object",
                name=f"{block.package}.{block.name}",
                description=block.description,
                atomic=block.atomic,
            )
        for block in blocks:
            self._fill(block.table, self._types[block.key], block.lines)
        for block in blocks:
            self._splice(self._types[block.key])
        for type_ in self._types.values():
            type_.always = tuple(entry for entry in type_.fields.values() if entry.always)

    def __getitem__(self, name: str) -> Type:
        """Return the type called `table.Type`."""
        return self._types[name]

    def names(self) -> list[str]:
        """List every `table.Type`."""
        return list(self._types)

    def _fill(self, table: str, type_: Type, lines: list[str]) -> None:
        for line in lines:
            text, _, description = line.partition(" -- ")
            name, spelled, *words = text.split()
            if name == "inline":
                number = int(words[0][1:]) if words else 0
                type_.inlines.append((number, self._named(table, spelled)))
                continue
            entry = Field(name, self._named(table, spelled.rstrip("!?")))
            entry.required = spelled.endswith("!")
            entry.pointer = spelled.endswith("?")
            entry.description = description.strip()
            for word in words:
                _apply(entry, word)
            type_.fields[name] = entry

    def _named(self, table: str, spelled: str) -> Type:
        if spelled[0] in "[{":
            form = "list" if spelled[0] == "[" else "map"
            inner = self._named(table, spelled[1:-1])
            key = (form, str(id(inner)))
            if key not in self._lists:
                self._lists[key] = Type(form, element=inner)
            return self._lists[key]
        if spelled in SCALARS:
            return SCALARS[spelled]
        full = spelled if "." in spelled else f"{table}.{spelled}"
        return self._types[full]

    def _splice(self, type_: Type) -> None:
        for _, inner in type_.inlines:
            self._splice(inner)
            for name, entry in inner.fields.items():
                type_.fields.setdefault(name, entry)


def _apply(entry: Field, word: str) -> None:
    key, _, value = word.partition("=")
    if key.startswith("@"):
        entry.number = int(key[1:])
    elif key == "key":
        entry.keys = tuple(value.split(","))
    elif key == "merge":
        entry.merge = value
    elif key == "enum":
        entry.enum = tuple(value.split("|"))
    elif key == "default":
        entry.default = _literal(entry.type, value)
    elif key == "min":
        entry.minimum = int(value)
    elif key in ("always", "set", "atomic", "granular", "replace", "open"):
        setattr(entry, key, True)
    elif key == "retainKeys":
        entry.retain_keys = True
    else:
        raise ValueError(f"unknown word {word!r} at field {entry.name}")


def _literal(type_: Type, text: str) -> Any:
    if type_.form == "integer":
        return int(text)
    if type_.form == "boolean":
        return text == "true"
    return text


_HEADER = re.compile(r"(\w+)( atomic)?(?: -- (.*))?")


class _Block(NamedTuple):
    """One type of a table, its fields still as lines."""

    table: str
    package: str
    name: str
    lines: list[str]
    description: str
    atomic: bool

    @property
    def key(self) -> str:
        return f"{self.table}.{self.name}"


def _blocks(table: str, text: str) -> list[_Block]:
    """Split a table into its types."""
    package = ""
    found: list[_Block] = []
    for line in text.splitlines():
        if line.startswith("package "):
            package = line.split()[1]
        elif line.startswith("  "):
            found[-1].lines.append(line)
        elif line and not line.startswith("#"):
            match = _HEADER.fullmatch(line)
            if match is None:
                raise ValueError(f"{table}: cannot read {line!r}")
            found.append(_Block(table, package, match[1], [], match[3] or "", bool(match[2])))
    return found


#: Packages with a folder of tables, in the order their types are linked.
_packages = ["livevirt.kube.objects"]


def add_tables(package: str) -> None:
    """Have `definitions` also read the tables of a package; called where kinds are declared."""
    if package not in _packages:
        _packages.append(package)
        definitions.cache_clear()


@functools.cache
def definitions() -> Definitions:
    """Return every type, read once."""
    return Definitions(
        {
            entry.name.removesuffix(".types"): entry.read_text()
            for package in _packages
            for entry in sorted(
                (resources.files(package) / "definitions").iterdir(), key=lambda e: e.name
            )
            if entry.name.endswith(".types")
        }
    )

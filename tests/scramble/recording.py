"""Records which component writes which status field of VMs, instances, migrations and pods.

Admission is given every write with the object as it was and as it will be, so what differs is what
this writer changes. A line is `kind component field`; a condition is `conditions[TYPE]`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: The file to append to; nothing is recorded without it.
FILE_VARIABLE = "RECORD_STATUS_WRITERS"
KINDS = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration", "Pod")


def changed(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of a status that differ, conditions by their type."""
    for name in sorted(old.keys() | new.keys()):
        if name == "conditions":
            before = {each["type"]: each for each in old.get(name) or ()}
            after = {each["type"]: each for each in new.get(name) or ()}
            for type_ in sorted(before.keys() | after.keys()):
                if before.get(type_) != after.get(type_):
                    yield f"conditions[{type_}]"
        elif old.get(name) != new.get(name):
            yield name


def install() -> None:
    """Record the writes of this process from now on."""
    from livevirt.kube.server.services import Services

    path = Path(os.environ[FILE_VARIABLE])
    review, written = Services.review, set[str]()

    def recorded(self: Services, request: Any, verb: str, new: Any, old: Any) -> Any:
        kind = request.kind
        own = request.subresource == "status" or not kind.has_status
        if kind.kind in KINDS and own and isinstance(new.get("status"), dict):
            for field in changed((old or {}).get("status") or {}, new["status"]):
                line = f"{kind.kind} {request.manager or 'user'} {field}"
                if line not in written:
                    written.add(line)
                    with path.open("a") as file:
                        file.write(line + "\n")
        return review(self, request, verb, new, old)

    Services.review = recorded  # type: ignore[method-assign]

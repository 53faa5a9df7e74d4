"""Every QMP name in the package is one QEMU knows: a wrong one would be silence, not an error."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import livevirt.qemu
from livevirt.qemu import lifecycle

pytestmark = pytest.mark.guest
SOURCES = sorted(Path(livevirt.qemu.__path__[0]).glob("*.py"))

# What is read from the answers, which the code does through plain dictionaries.
ANSWERS = {
    "query-status": ["status"],
    "query-hotpluggable-cpus": ["type", "props", "qom-path"],
    "query-memory-size-summary": ["base-memory"],
    "query-block": ["qdev", "removable", "locked", "tray_open", "io-status", "inserted"],
    "query-named-block-nodes": ["node-name", "image"],
    "query-jobs": ["id", "type", "status", "current-progress", "total-progress", "error"],
    "query-chardev": ["label", "frontend-open"],
    "query-iothreads": ["id", "thread-id"],
    "qom-list": ["name", "type"],
}
EVENTS = {
    "DEVICE_DELETED": ["device"],
    "DEVICE_UNPLUG_GUEST_ERROR": ["device"],
    "SHUTDOWN": ["guest", "reason"],
    "MEMORY_DEVICE_SIZE_CHANGE": ["id", "size"],
    "VSERPORT_CHANGE": ["id", "open"],
    "JOB_STATUS_CHANGE": ["id", "status"],
}


def calls(method: str) -> Iterator[ast.Call]:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr=name)) if name == method:
                    yield node


def strings(nodes: list[ast.expr | None]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


class Schema:
    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._by_name = {entry["name"]: entry for entry in entries}

    def members(self, type_name: str) -> set[str]:
        found = self._by_name[type_name]
        if found["meta-type"] == "array":
            found = self._by_name[found["element-type"]]
        return {member["name"] for member in found.get("members", ())}

    def command(self, name: str) -> dict[str, Any] | None:
        entry = self._by_name.get(name)
        return entry if entry and entry["meta-type"] == "command" else None

    def event(self, name: str) -> dict[str, Any] | None:
        entry = self._by_name.get(name)
        return entry if entry and entry["meta-type"] == "event" else None


async def test_every_command_argument_event_and_answer_is_in_qemus_schema(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        schema = Schema(await guest.qmp.execute("query-qmp-schema"))

    used = set()
    for call in calls("execute"):
        for name in strings([*call.args[:1]]):
            used.add(name)
            command = schema.command(name)
            assert command, f"QEMU has no command {name}"
            given = call.args[1:2]
            if given and isinstance(given[0], ast.Dict) and name != "device_add":
                unknown = set(strings(given[0].keys)) - schema.members(command["arg-type"])
                assert not unknown, f"{name} takes no {unknown}"
    assert {"device_add", "device_del", "blockdev-add", "query-status", "quit"} <= used

    heard = {name for call in calls("listen") for name in strings([*call.args])}
    for name in {*heard, *lifecycle.WATCHED, *EVENTS}:
        assert schema.event(name), f"QEMU has no event {name}"
    for name, members in EVENTS.items():
        assert set(members) <= schema.members(schema.event(name)["arg-type"]), name
    for name, members in ANSWERS.items():
        assert set(members) <= schema.members(schema.command(name)["ret-type"]), name


async def test_every_run_state_of_qemu_has_a_meaning(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        entries = await guest.qmp.execute("query-qmp-schema")
    status = next(e for e in entries if e["name"] == "query-status")
    info = next(e for e in entries if e["name"] == status["ret-type"])
    state = next(m["type"] for m in info["members"] if m["name"] == "status")
    known = next(e for e in entries if e["name"] == state)["values"]
    assert set(known) <= set(lifecycle.CONDITIONS)

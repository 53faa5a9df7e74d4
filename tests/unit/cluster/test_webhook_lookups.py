"""The webhook can read whatever the rules look up: no rule works embedded only."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

from livevirt.cluster import rbac
from livevirt.cluster.webhook import LOOKED_UP
from livevirt.kube.control.runtime import ROOM
from livevirt.kube.objects.kind import Kind

#: Names that rules give to a reader, or to its method.
READERS = ("read", "lookup", "_lookup", "get")
LOADED = (
    "import sys, livevirt.vm.admission;"
    "print(*(m for m in sys.modules if m.startswith(('livevirt.vm.', 'livevirt.kube.objects.'))))"
)


def lookups() -> Iterator[tuple[str, str, Kind]]:
    """Yield every lookup of a named kind in the modules that the rules are made of."""
    command = [sys.executable, "-c", LOADED]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        module = import_module(name)
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            *owner, verb = ast.unparse(node.func).split(".")
            if verb not in ("get", "list") or (owner and owner[-1] not in READERS):
                continue
            try:
                kind = eval(ast.unparse(node.args[0]), dict(vars(module)))
            except Exception:
                continue  # a name that only exists in the function
            if isinstance(kind, Kind):
                yield f"{name}:{node.lineno}", verb, kind


FOUND = list(lookups())


def test_lookups_are_found() -> None:
    assert {"kubevirts", "virtualmachineinstances", "nodes"} <= {each.plural for *_, each in FOUND}


def granted(kind: Kind) -> set[str]:
    """Return what the webhook may do with objects of a kind."""
    return {
        verb
        for rule in rbac.WEBHOOK.cluster_rules
        if kind.group == rule.group and kind.plural in rule.resources
        for verb in rule.verbs
    }


@pytest.mark.parametrize(("place", "verb", "kind"), FOUND, ids=[each[0] for each in FOUND])
def test_what_rules_look_up_can_be_read(place: str, verb: str, kind: Kind) -> None:
    if verb == "list":
        assert kind in (*ROOM, *LOOKED_UP), "lists are answered from caches only"
    assert ("watch" if verb == "list" else "get") in granted(kind)


def test_what_rules_only_list_cannot_be_read_one_by_one() -> None:
    looked_up = {kind for _, verb, kind in FOUND if verb == "get"}
    for kind in {kind for *_, kind in FOUND} - looked_up:
        assert "get" not in granted(kind), kind.plural

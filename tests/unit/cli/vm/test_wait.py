"""When a VM is where a command sent it."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.cli.vm import wait
from livevirt.cli.vm.wait import Goal


def a_vm(shown: str, *, ready: bool = False, created: bool = True) -> dict[str, Any]:
    return {"status": {"printableStatus": shown, "ready": ready, "created": created}}


def a_vmi(uid: str, ready: str) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


REACHED = {
    "running and ready is started": (wait.started, a_vm("Running", ready=True), True),
    "running and not ready is not": (wait.started, a_vm("Running"), False),
    "a VM without a status is not started": (wait.started, {}, False),
    "a VM that runs is not stopped": (wait.stopped, a_vm("Running"), False),
    "a VM that is being stopped is not stopped": (wait.stopped, a_vm("Stopping"), False),
    "stopped": (wait.stopped, a_vm("Stopped", created=False), True),
    "a VM that is gone is stopped": (wait.stopped, None, True),
    "paused": (wait.paused, a_vm("Paused"), True),
    "the instance from before is not the new one": (wait.replaced("a"), a_vmi("a", "True"), False),
    "the new one is not ready yet": (wait.replaced("a"), a_vmi("b", "False"), False),
    "the new one is ready": (wait.replaced("a"), a_vmi("b", "True"), True),
    "between the two there is none": (wait.replaced("a"), None, False),
}


@pytest.mark.parametrize(("goal", "obj", "reached"), REACHED.values(), ids=REACHED)
def test_goals(goal: Goal, obj: dict[str, Any] | None, reached: bool) -> None:
    assert goal(obj) is reached

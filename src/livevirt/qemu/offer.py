"""What QEMU can give a guest on this machine: CPU models, CPU features, machine types.

QEMU tells it of a machine that has nothing and never starts, with the accelerator that guests will
have: which models can be had depends on that.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.qemu.accelerator import Accelerator, end_with_parent

ASK_SECONDS = 10.0  # it takes a tenth of one


@dataclass(frozen=True, slots=True)
class Offer:
    """What a guest may ask for, by QEMU's own names, each list sorted."""

    cpu_models: tuple[str, ...] = ()
    cpu_features: tuple[str, ...] = ()
    machine_types: tuple[str, ...] = ()  # of the one family guests are made for, q35


NOTHING = Offer()


async def ask(accelerator: Accelerator, emulator: str = "qemu-system-x86_64") -> Offer:
    """Return what guests can have; raise OSError if QEMU does not tell."""
    full = accelerator.cpu_model("")  # all that the accelerator can do
    questions: dict[str, Mapping[str, object]] = {
        "qmp_capabilities": {},
        "query-cpu-definitions": {},
        "query-cpu-model-expansion": {"type": "static", "model": {"name": full}},
        "query-machines": {},
        "quit": {},
    }
    process = await asyncio.create_subprocess_exec(
        emulator,
        *("-nodefaults", "-no-user-config", "-display", "none"),
        *("-machine", "none", "-accel", accelerator.name, "-qmp", "stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=end_with_parent,
    )
    text = "".join(
        json.dumps({"execute": name, "arguments": arguments, "id": name}) + "\n"
        for name, arguments in questions.items()
    )
    try:
        async with asyncio.timeout(ASK_SECONDS):
            said, complaint = await process.communicate(text.encode())
    except TimeoutError:
        raise OSError(f"{emulator} did not tell what it can do in {ASK_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    try:
        return read(said)
    except (KeyError, ValueError) as error:
        why = complaint.decode(errors="replace").strip() or repr(error)
        raise OSError(f"{emulator} does not tell what it can do: {why}") from error


def read(said: bytes) -> Offer:
    """Return the offer in QEMU's answers. Pure; raises KeyError or ValueError without one."""
    answers: dict[str, Any] = {}
    for line in said.splitlines():
        message = json.loads(line)
        if "id" in message:
            answers[message["id"]] = message["return"]
    # A model that lacks features starts all the same, as another CPU than was asked for.
    models = [
        model["name"]
        for model in answers["query-cpu-definitions"]
        if model.get("unavailable-features") == []
    ]
    properties = answers["query-cpu-model-expansion"]["model"]["props"]
    names = [
        name
        for machine in answers["query-machines"]
        for name in (machine["name"], machine.get("alias", ""))
    ]
    return Offer(
        tuple(sorted(models)),
        tuple(sorted(name for name, value in properties.items() if value is True)),
        tuple(sorted(name for name in names if name.removeprefix("pc-").startswith("q35"))),
    )

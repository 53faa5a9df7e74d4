"""The host's side of node networks: observed, and taken away without leaving a trace."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable

from livevirt.node import process as processes
from livevirt.node.network import links, namespace, ruleset
from livevirt.node.network.links import Design, Observed
from livevirt.node.network.namespace import NetworkError


async def observe(design: Design) -> Observed:
    """Return what there is of a network."""
    host = frozenset(each["ifname"] for each in await namespace.ask("link"))
    if not namespace.exists(design.namespace):
        return Observed(host=host)
    inside = await namespace.ask("-n", design.namespace, "link")
    return Observed(True, frozenset(each["ifname"] for each in inside), host)


async def switched_on() -> dict[str, list[str]]:
    """Return the uplinks that livevirts have made the host forward from, by table."""
    listed = json.loads(await namespace.run("nft", "-j", "list", "tables", "inet"))["nftables"]
    names = [each["table"]["name"] for each in listed if "table" in each]
    found = {}
    for name in names:
        if name.startswith(f"{ruleset.TABLE}_"):
            with contextlib.suppress(NetworkError):  # it has just been removed
                shown = await namespace.run("nft", "-j", "list", "set", "inet", name, "uplinks")
                sets = [each["set"] for each in json.loads(shown)["nftables"] if "set" in each]
                found[name] = [link for each in sets for link in each.get("elem") or ()]
    return found


async def remove_abandoned() -> None:
    """Remove the networks of data directories that no longer exist."""
    owners = links.owners(await namespace.ask("link"))
    for name in filter(lambda name: not os.path.exists(owners[name]), owners):
        await remove(name)


async def remove(name: str) -> None:
    """Remove the network of that name, with every process in it, as far as it is there."""
    space, table = links.namespace_name(name), ruleset.table_name(name)
    if namespace.exists(space):
        for pid in (await namespace.run("ip", "netns", "pids", space)).split():
            if (found := processes.seen(int(pid))) is not None:
                processes.kill(found)
    commands = [
        ("ip", "link", "del", f"{links.PREFIX}{name}"),
        ("ip", "netns", "del", space),
    ]
    for command in commands:
        with contextlib.suppress(NetworkError):
            await namespace.run(*command)
    before = await switched_on()
    if table in before:
        await namespace.run("nft", "delete", "table", "inet", table)
        others = {link for other, each in before.items() if other != table for link in each}
        _restore(link for link in before[table] if link not in others)


def _restore(uplinks: Iterable[str]) -> None:
    """Have the host forward nothing from links that it did not before livevirt."""
    namespace.set_forwarding(uplinks, on=False)

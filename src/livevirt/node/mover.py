"""A node's part in migrations: which guests it waits for, sends away or has sent, and what it says.

What to do about a pod is decided elsewhere; this tells the facts, has an `Arrival` or a `Departure`
at work where one is needed, and passes on what they have to say.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object
from livevirt.node import events, move
from livevirt.node.arrival import Arrival
from livevirt.node.departure import Departure
from livevirt.node.ending import Ending
from livevirt.node.handover import Handovers, Offer
from livevirt.node.local import Local
from livevirt.node.move import Got, Move, Part, Side
from livevirt.node.start import Starter
from livevirt.vm import kinds

log = logging.getLogger(__name__)


class Mover:
    """Takes part in the migrations of the guests of one node."""

    def __init__(
        self,
        node: str,
        client: Client,
        recorder: Recorder,
        starter: Starter,
        handovers: Handovers,
        now: Now,
    ) -> None:
        self._node, self._client, self._recorder = node, client, recorder
        self._starter, self._handovers, self._now = starter, handovers, now

    def part(self, local: Local, vmi: Object | None) -> Part:
        """Return what part a pod has now."""
        now = move.of(vmi, local.key.name)
        noted = local.folder.read_departure()
        left = local.has_left or move.passed(vmi, local.key.name, noted.uid if noted else "")
        side = Side(
            node=self._node,
            target=local.target,
            begun=local.intent is not None,
            ended=local.ending is not None,
            awaits=local.awaits,
            left=left,
        )
        offered = (
            now is not None
            and now.wanted
            and local.target
            and local.intent is None
            and self._has_offer(local, now)
        )
        return move.part(now, side, offered=offered)

    def leaves(self, local: Local, vmi: Object | None) -> bool:
        """Tell whether a pod's guest is about to go elsewhere, or may have by now."""
        if local.has_left:
            return False
        now = move.of(vmi, local.key.name)
        handed = now is not None and now.role == "source" and not now.ended
        return handed or local.departure is not None or local.sends

    def may_run_elsewhere(self, local: Local, vmi: Object | None) -> bool:
        """Tell whether what ended here may not have been the guest, or not the only place of it."""
        if local.has_left or (local.target and not local.arrived):
            return True
        told = ((vmi or {}).get("status") or {}).get("nodeName")
        if not local.arrived and told not in (None, "", self._node):
            return True
        now = move.of(vmi, local.key.name)
        return now is not None and now.role == "source" and now.started and not now.ended

    def is_home(self, local: Local, vmi: Object) -> bool:
        """Tell whether a pod's guest runs in it, so that its node speaks for the instance."""
        here = (vmi.get("status") or {}).get("nodeName") in (None, "", self._node)
        return here and not (local.target and not local.arrived) and not local.has_left

    def offer(self, local: Local, vmi: Object) -> tuple[str, Offer] | None:
        """Return the migration and the guest that a pod can receive, None if it cannot yet."""
        now = move.of(vmi, local.key.name)
        found = self._handovers.offered(now.uid) if now is not None else None
        return (now.uid, found) if now is not None and found is not None else None

    def follow(self, local: Local, vmi: Object) -> bool:
        """Have a migration go on; return whether the guest is to be held still for it."""
        now = move.of(vmi, local.key.name)
        if now is None or local.guest is None or local.ending is not None:
            return False
        if now.role == "target":
            self._receive(local, vmi, now)
            return local.awaits
        return self._send(local, vmi, now)

    async def report(self, local: Local, vmi: Object) -> bool:
        """Say what is new about a migration; return whether something was."""
        now = move.of(vmi, local.key.name)
        if now is None:
            return False
        patch: Object = {}
        departure = local.departure
        if now.role == "source":
            if departure is not None and departure.uid == now.uid:
                patch = move.source_patch(now, departure.told, self._now())
        elif local.ending is not None:
            patch = self._last_word(local, local.ending, vmi, now)
        elif local.arrival is not None:
            patch = move.target_patch(vmi, now, local.arrival.told, self._node, self._now())
        written = await self._write(vmi, patch)
        if written and departure is not None and move.begins(patch):
            departure.want(replace(now, started=True, since=self._now()))  # why wait to be told
        return written

    def _last_word(self, local: Local, ending: Ending, vmi: Object, now: Move) -> Object:
        """Return what a target says whose QEMU is gone: that no guest came, or that it ended.

        A guest that came may have run, so it goes on nowhere else. How it ended is told next.
        """
        if not local.arrived:
            return move.lost_patch(vmi, now, ending.message, self._now())
        if now.ended:
            return {}
        return move.target_patch(vmi, now, Got(arrived=True), self._node, self._now())

    async def give_up(self, local: Local, vmi: Object) -> None:
        """Say of a place that has no QEMU yet that the migration was called off in time."""
        now = move.of(vmi, local.key.name)
        if now is not None and now.abort:
            why = "it was called off before the guest was sent"
            await self._write(vmi, move.lost_patch(vmi, now, why, self._now()))

    async def refuse(self, local: Local, vmi: Object, why: str) -> None:
        """Say that there is no place for a guest that was to come."""
        now = move.of(vmi, local.key.name)
        if now is not None:
            await self._write(vmi, move.lost_patch(vmi, now, why, self._now()))

    def _has_offer(self, local: Local, now: Move) -> bool:
        self._handovers.call(now.uid, "target", local.wake)
        return self._handovers.offered(now.uid) is not None

    def _receive(self, local: Local, vmi: Object, now: Move) -> None:
        assert local.intent is not None
        assert local.guest is not None
        incoming = local.intent.incoming
        if vmi["status"].get("nodeName") == self._node:
            local.arrival = None
        elif local.arrival is None and incoming is not None and incoming.uid == now.uid:
            local.guest.look_away()
            local.arrival = Arrival(
                local.guest, incoming, local.folder, self._handovers, local.wake
            )

    def _send(self, local: Local, vmi: Object, now: Move) -> bool:
        guest = local.guest
        assert guest is not None
        if local.departure is not None and local.departure.uid != now.uid:
            local.departure.stop()  # nobody saw its end
            local.departure = None
        unfinished = now.failed and local.sends
        if local.departure is None and (not now.ended or unfinished):
            local.hold_still()
            local.departure = Departure(
                guest,
                local.folder,
                self._handovers,
                lambda: self._starter.described(guest, vmi),
                local.wake,
                self._now,
            )
        if local.departure is None:
            return False
        local.departure.want(now)
        if local.departure.over and not local.has_left:
            local.go_on()
            return False
        return True

    async def _write(self, vmi: Object, patch: Object) -> bool:
        if not patch:
            return False
        meta = vmi["metadata"]
        changed = {"resourceVersion": meta["resourceVersion"], **patch.get("metadata", {})}
        try:
            await self._client.patch(
                kinds.VMI, meta["name"], meta["namespace"], {**patch, "metadata": changed}
            )
        except NotFound:
            return False
        events.moved(self._recorder, vmi, patch["status"]["migrationState"], self._node)
        return True

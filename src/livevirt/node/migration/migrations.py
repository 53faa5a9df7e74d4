"""The migrations that the pods of one node take part in.

Connects the pure `states` with the rest of the node: gathers the facts of a pod, keeps a
`SourceMigration` or `TargetMigration` at work where one is needed, and reports to the instance.
"""

from __future__ import annotations

from dataclasses import replace

from livevirt.errors import NotFound
from livevirt.kube.objects.request import Object
from livevirt.node import events
from livevirt.node.local import Local
from livevirt.node.migration import facts as migration_facts
from livevirt.node.migration import states, status
from livevirt.node.migration.facts import Migration, PodFacts, Side, migration_of, side
from livevirt.node.migration.handover import Handovers, Offer
from livevirt.node.migration.source import SourceMigration
from livevirt.node.migration.states import TargetState, TargetStep
from livevirt.node.migration.target import TargetMigration
from livevirt.node.start import Starter
from livevirt.node.watched import NodeApi
from livevirt.vm import kinds

_CANCELLED = "the migration was cancelled before the guest was sent"


class NodeMigrations:
    """Runs the node's side of each migration, one record per pod in `Local.migration`."""

    def __init__(self, api: NodeApi, starter: Starter, handovers: Handovers) -> None:
        self._api, self._starter, self._handovers = api, starter, handovers

    # ------------------------------------------------------------ what is true of a pod

    def facts(self, local: Local, vmi: Object | None) -> PodFacts:
        """Return what decides about a pod's part in migrations."""
        facts = local.migration_facts(self._api.node, vmi)
        if not facts.wanted or not facts.reserved or facts.intended:
            return facts
        return replace(facts, offered=self._offer_of(local, facts.own) is not None)

    def target_state(self, local: Local, vmi: Object | None) -> TargetState | None:
        """Return the state of a pod that was created to receive a guest, None for another pod."""
        return states.target(self.facts(local, vmi)).state if local.reserved else None

    def has_left(self, local: Local, vmi: Object | None) -> bool:
        """Return whether the pod's guest is known to run on another node."""
        return migration_facts.has_left(self.facts(local, vmi))

    def is_leaving(self, local: Local, vmi: Object | None) -> bool:
        """Return whether the pod's guest is about to move away, or may have by now."""
        running = local.migration is not None and local.migration.side is Side.SOURCE
        facts = self.facts(local, vmi)
        return migration_facts.is_leaving(facts) or (running and not facts.left)

    def is_home(self, local: Local, vmi: Object) -> bool:
        """Return whether the guest runs in this pod, so that its node reports the status."""
        return migration_facts.is_home(self.facts(local, vmi))

    def is_undecided(self, local: Local, vmi: Object) -> bool:
        """Return whether the guest is being sent, or was and its end is not reported."""
        own = self.facts(local, vmi).own
        return own is not None and own.sending

    def may_run_elsewhere(self, local: Local, vmi: Object | None) -> bool:
        """Return whether the guest of a QEMU that has ended may still run in another one."""
        return migration_facts.may_run_elsewhere(self.facts(local, vmi))

    def incoming(self, local: Local, vmi: Object) -> tuple[str, Offer] | None:
        """Return the migration, by uid, and the guest that a pod can receive now."""
        own = self.facts(local, vmi).own
        offer = self._offer_of(local, own)
        return (own.uid, offer) if own is not None and offer is not None else None

    def _offer_of(self, local: Local, own: Migration | None) -> Offer | None:
        if own is None:
            return None
        self._handovers.subscribe(own.uid, "target", local.wake)
        return self._handovers.get(own.uid).offer

    # ------------------------------------------------------------ progress

    def follow(self, local: Local, vmi: Object) -> bool:
        """Continue a pod's migration; return whether the guest must not be changed meanwhile."""
        if migration_of(vmi) is None:
            return False
        facts = self.facts(local, vmi)
        if facts.own is None or local.guest is None or local.ending is not None:
            return False
        if side(facts) is Side.TARGET:
            self._follow_target(local, facts)
            return local.awaits_guest
        return self._follow_source(local, vmi, facts.own)

    def _follow_target(self, local: Local, facts: PodFacts) -> None:
        assert local.intent is not None
        assert local.guest is not None
        incoming = local.intent.incoming
        if facts.vmi_node == self._api.node:
            local.migration = None
        elif (
            local.migration is None
            and incoming is not None
            and facts.own is not None
            and incoming.uid == facts.own.uid
        ):
            local.guest.suspend_observation()
            local.migration = TargetMigration(
                local.guest, incoming, local.folder.migration, self._handovers, local.wake
            )

    def _follow_source(self, local: Local, vmi: Object, own: Migration) -> bool:
        guest, source = local.guest, local.source
        assert guest is not None
        if source is not None and source.uid != own.uid:
            source.stop()  # its end was not seen
            local.migration = source = None
        unfinished = own.failed and local.is_sending
        if source is None and (not own.ended or unfinished):
            local.suspend_changes()
            local.migration = source = SourceMigration(
                guest,
                local.folder.migration,
                self._handovers,
                lambda: self._starter.described(guest, vmi),
                local.wake,
                self._api.now,
            )
        if source is None:
            return False
        source.follow(own)
        if source.over and not local.has_left:
            local.resume_changes()
            return False
        return True

    # ------------------------------------------------------------ reports

    async def report(self, local: Local, vmi: Object) -> bool:
        """Report what is new about a migration; return whether something was."""
        if migration_of(vmi) is None:
            return False
        facts = self.facts(local, vmi)
        if facts.own is None:
            return False
        if side(facts) is Side.TARGET:
            return await self._write(vmi, self._target_patch(local, vmi, facts, facts.own))
        source = local.source
        if source is None or source.uid != facts.own.uid:
            return False
        patch = status.source_patch(facts.own, source.report, self._api.now())
        written = await self._write(vmi, patch)
        if written and status.starts(patch):  # do not wait to read it back
            source.follow(replace(facts.own, started=True, since=self._api.now()))
        return written

    def _target_patch(self, local: Local, vmi: Object, facts: PodFacts, own: Migration) -> Object:
        """Return what the target reports.

        A guest that arrived may have run, so it is resumed nowhere else even if its QEMU has died
        since. How it ended is reported next.
        """
        decision = states.target(facts)
        if TargetStep.REPORT_FAILURE in decision.steps and local.ending is not None:
            return status.failure_patch(vmi, own, local.ending.message, self._api.now())
        durable = local.target is not None and local.target.arrived
        died = decision.state is TargetState.DIED
        if TargetStep.REPORT_ARRIVAL in decision.steps and (durable or died):
            return status.arrival_patch(own, self._api.node, self._api.now())
        return {}

    async def report_cancelled(self, local: Local, vmi: Object) -> None:
        """Report that a migration was cancelled before the target had a QEMU."""
        decision = states.target(self.facts(local, vmi))
        if TargetStep.REPORT_FAILURE in decision.steps:
            await self.report_failure(local, vmi, _CANCELLED)

    async def report_failure(self, local: Local, vmi: Object, why: str) -> None:
        """Report that a guest cannot be received."""
        own = self.facts(local, vmi).own
        if own is not None:
            await self._write(vmi, status.failure_patch(vmi, own, why, self._api.now()))

    async def _write(self, vmi: Object, patch: Object) -> bool:
        if not patch:
            return False
        meta = vmi["metadata"]
        changed = {"resourceVersion": meta["resourceVersion"], **patch.get("metadata", {})}
        try:
            await self._api.client.patch(
                kinds.VMI, meta["name"], meta["namespace"], {**patch, "metadata": changed}
            )
        except NotFound:
            return False
        events.moved(self._api.recorder, vmi, patch["status"]["migrationState"], self._api.node)
        return True

"""POST pods/NAME/eviction: a deletion that says why, or the order to a guest to leave."""

from __future__ import annotations

from dataclasses import replace

from livevirt.errors import TooManyRequests
from livevirt.kube.objects import refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import generation, objects, options
from livevirt.kube.server.binding import SUCCESS
from livevirt.kube.server.delete import check_preconditions, delete_one
from livevirt.kube.server.incoming import receive_as
from livevirt.kube.server.services import Services
from livevirt.kube.store import Missing, Put, Stale
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi_admission import cluster_config
from livevirt.vm.migration import eviction as pod_eviction

_EVICTION = Kind("policy", "Eviction", "evictions", ("v1",), "policy.Eviction", stored=False)
_TRIES = 50


async def evict(services: Services, request: Request) -> Answer:
    """Note the cause in the pod's status, then delete it; a guest that is to move is told so."""
    options.check_write(request.options, "CreateOptions")
    eviction = receive_as(_EVICTION, request)
    for _ in range(_TRIES):
        stored = services.stored(request)
        pod = objects.decode(stored.value)
        evicted = pod_eviction.evict(pod, eviction, services.now())
        how = options.read_delete(request.options, evicted.options)
        check_preconditions(request.kind, request.name, how, pod)
        await _let_move(services, pod, dry_run=how.dry_run)
        if not how.dry_run:
            write = objects.writer(request.kind, evicted.pod)
            try:
                noted, *_ = await services.store.write(Put(stored.key, stored.revision, write))
            except (Stale, Missing):
                continue
            if how.resource_version:  # it was that version; our own note made it another
                how = replace(how, resource_version=str(noted.revision))
        await delete_one(services, request, how)
        return Answer(201, SUCCESS)
    raise refusals.modified(request.kind, request.name)


async def _let_move(services: Services, pod: Object, *, dry_run: bool) -> None:
    """Raise TooManyRequests if the guest of a pod moves instead of ending, and let it do so."""
    name = pod_eviction.instance_of(pod)
    if not name:
        return
    key = objects.key_of(kinds.VMI, pod["metadata"]["namespace"], name)

    async def mark() -> TooManyRequests | bool | None:
        stored = services.store.get(key)
        vmi = None if stored is None else objects.decode(stored.value)
        move = pod_eviction.move(pod, vmi, cluster_config(services.reader))
        if stored is None or vmi is None or move is None:
            return True
        if not move.marked and not dry_run:
            marked = {**vmi, "metadata": {**vmi["metadata"]}}
            marked["status"] = {**vmi["status"], "evacuationNodeName": move.node}
            generation.bump(kinds.VMI, marked, vmi)
            write = objects.writer(kinds.VMI, marked)
            try:
                await services.store.write(Put(stored.key, stored.revision, write))
            except (Stale, Missing):
                return None
        return move.refusal

    done = await services.turns.write(key, mark)
    if done is None:
        raise refusals.modified(kinds.VMI, name)
    if isinstance(done, TooManyRequests):
        raise done

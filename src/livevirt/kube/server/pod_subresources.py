"""POST pods/NAME/binding and pods/NAME/eviction."""

from __future__ import annotations

from dataclasses import replace

from livevirt.kube.admission import pod_binding
from livevirt.kube.objects import refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import objects, options
from livevirt.kube.server.delete import check_preconditions, delete_one
from livevirt.kube.server.incoming import receive_as
from livevirt.kube.server.services import Services
from livevirt.kube.store import Missing, Put, Stale

SUCCESS: Object = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
_BINDING = Kind("", "Binding", "bindings", ("v1",), "core.Binding", stored=False)
_TRIES = 50


async def bind(services: Services, request: Request) -> Answer:
    """Set the node of a pod that has none."""
    options.check_write(request.options, "CreateOptions")
    binding = receive_as(_BINDING, request)
    for _ in range(_TRIES):
        stored = services.stored(request)
        pod = objects.decode(stored.value)
        bound = pod_binding.bind(pod, binding, services.now())
        if request.dry_run:
            return Answer(201, SUCCESS)
        write = objects.writer(request.kind, bound)
        try:
            await services.store.write(Put(stored.key, stored.revision, write))
        except (Stale, Missing):
            continue
        return Answer(201, SUCCESS)
    raise refusals.modified(request.kind, request.name)


_EVICTION = Kind("policy", "Eviction", "evictions", ("v1",), "policy.Eviction", stored=False)
_EVICTION_TRIES = 50


async def evict(services: Services, request: Request) -> Answer:
    """Record the cause in the pod's status, then delete it; a guard may refuse instead."""
    options.check_write(request.options, "CreateOptions")
    eviction = receive_as(_EVICTION, request)
    for _ in range(_EVICTION_TRIES):
        stored = services.stored(request)
        pod = objects.decode(stored.value)
        evicted = pod_binding.evict(pod, eviction, services.now())
        how = options.read_delete(request.options, evicted.options)
        check_preconditions(request.kind, request.name, how, pod)
        for guard in services.eviction_guards:
            await guard(pod, dry_run=how.dry_run)
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

"""POST pods/NAME/binding: a scheduler gives a pod its node."""

from __future__ import annotations

from livevirt.admission import pod_binding
from livevirt.api.kind import Kind
from livevirt.api.request import Answer, Object, Request
from livevirt.server import objects, options, refusals
from livevirt.server.incoming import receive_as
from livevirt.server.services import Services
from livevirt.store import Missing, Put, Stale

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

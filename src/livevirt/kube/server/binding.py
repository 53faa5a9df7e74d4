"""POST pods/NAME/binding: a scheduler gives a pod its node."""

from __future__ import annotations

from livevirt.kube.admission import pod_binding
from livevirt.kube.objects import refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import objects, options
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

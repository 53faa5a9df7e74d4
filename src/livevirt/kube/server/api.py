"""The API without its sockets: a request in, an answer out. HTTP and the local client call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from livevirt.errors import StoreError
from livevirt.kube.objects import core, refusals
from livevirt.kube.objects.request import Answer, Request, WatchEvent
from livevirt.kube.server import (
    apply,
    change,
    create,
    delete,
    metrics,
    patches,
    pod_subresources,
    read,
    storage_errors,
)
from livevirt.kube.server import watch as watching
from livevirt.kube.server.openapi import crd_view
from livevirt.kube.server.services import Services
from livevirt.kube.server.watch import Frame

Verb = Callable[[Services, Request], Awaitable[Answer]]

#: Subresources that take a POST and act by themselves; and, under "", kinds
#: that are answered and never stored.
_POSTS: dict[tuple[str, str], Verb] = {
    (core.POD.resource, "binding"): pod_subresources.bind,
    (core.POD.resource, "eviction"): pod_subresources.evict,
    (core.NODE_METRICS.resource, ""): metrics.nodes,
    (core.POD_METRICS.resource, ""): metrics.pods,
}
_THROUGH = ("status", "resize", "finalize")
#: Subresources that reach into a pod's containers, which our pods have not.
_INTO_CONTAINERS = ("attach", "exec", "portforward", "proxy")


class Api:
    """Answers requests; `more` holds verbs that other parts bring along.

    Its keys are (resource, subresource), with "" for kinds that are answered and never stored.
    """

    def __init__(self, services: Services, more: dict[tuple[str, str], Verb]) -> None:
        self.services = services
        self._posts = {**_POSTS, **more}

    async def call(self, request: Request) -> Answer:
        """Answer anything but a watch; refusals raise ApiError."""
        services, kind, verb = self.services, request.kind, request.verb
        try:
            if request.subresource:
                return await self._through(request)
            if verb not in kind.verbs:
                if kind is core.CRD:
                    raise crd_view.refusal(services.registry, request)
                raise refusals.method_not_allowed()
            if not kind.stored:
                if kind is core.CRD:
                    return crd_view.answer(services.registry, request)
                return await self._posts[kind.resource, ""](services, request)
            match verb:
                case "get":
                    return read.get(services, request)
                case "list":
                    return read.list_(services, request)
                case "create":
                    return await create.create(services, request)
                case "update":
                    return await change.update(services, request)
                case "patch":
                    return await _patch(services, request)
                case "delete":
                    return await delete.delete(services, request)
                case "deletecollection":
                    return await delete.delete_collection(services, request)
        except StoreError as error:
            raise storage_errors.answer(error) from error
        raise refusals.method_not_allowed()

    async def _through(self, request: Request) -> Answer:
        """Serve a subresource."""
        check_subresource(request)
        special = self._posts.get((request.kind.resource, request.subresource))
        if special is not None:
            return await special(self.services, request)
        if request.subresource not in _THROUGH:
            raise refusals.no_such_path()
        match request.verb:
            case "get":
                return read.get(self.services, request)
            case "update":
                return await change.update(self.services, request)
            case _:
                return await _patch(self.services, request)

    def frames(self, request: Request) -> AsyncIterator[list[Frame]]:
        """Stream a watch in batches, with objects as stored where that will do."""
        if "watch" not in request.kind.verbs or request.subresource:
            raise refusals.method_not_allowed()
        if request.kind is core.CRD:
            return crd_view.frames(self.services.registry, request)
        return watching.watch(self.services, request)

    async def watch(self, request: Request) -> AsyncIterator[WatchEvent]:
        """Stream a watch one decoded event at a time; all who watch get the same objects."""
        async for batch in self.frames(request):
            for frame in batch:
                obj = frame.object
                if obj is None:
                    assert frame.change is not None
                    obj = frame.change.object
                yield WatchEvent(frame.type, obj)


async def _patch(services: Services, request: Request) -> Answer:
    if request.patch == patches.APPLY:
        return await apply.apply(services, request)
    return await change.patch(services, request)


def check_subresource(request: Request) -> None:
    """Refuse a subresource that is not there, or a verb that it has not."""
    kind, name = request.kind, request.subresource
    subresource = kind.subresource(name)
    if subresource is None:
        if kind is core.POD and name in _INTO_CONTAINERS:
            raise refusals.not_served(
                f"{name} of pods, which have no containers;"
                " a guest is reached with livevirt exec and virtctl console"
            )
        raise refusals.no_such_path()
    if request.verb not in subresource.verbs:
        raise refusals.method_not_allowed()

"""The HTTPS endpoint of the node agent: subresources that reach into guests, for `livevirt api`.

`livevirt api` has authenticated and authorized the user. It identifies itself by a token of its
service account that is valid here only, so a node never sees a credential for kube-apiserver.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiohttp import web

from livevirt.cluster import api_manifests
from livevirt.cluster.certificate_rotation import CertificateRotation, Identity
from livevirt.cluster.certificates import Lifetimes
from livevirt.cluster.serving import ServingTls, listening_context
from livevirt.errors import Forbidden, Unauthorized
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.objects import core, refusals
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import ActionPath, Answer, User
from livevirt.kube.server.actions import ActionFront
from livevirt.kube.server.listen import listening_with
from livevirt.kube.server.metrics import Metrics
from livevirt.kube.server.route import Target
from livevirt.vm.config.settings import NAMESPACE
from livevirt.vm.kinds.subresources import ACTIONS
from livevirt.vm.subresources import router
from livevirt.vm.subresources.router import Actions, GuestAccess, GuestEndpoint

SECRET = "livevirt-node-certificates"
SERVER_NAME = "livevirt-node"  # in the certificate of every node agent
AUDIENCE = "livevirt-node"  # of the tokens that it accepts
CALLER = f"system:serviceaccount:{NAMESPACE}:{api_manifests.NAME}"
RESOURCE = "virtualmachineinstances"
#: The subresources that need the node agent of a guest.
GUEST_VERBS = (
    "pause", "unpause", "softreboot", "reset", "guestosinfo", "userlist", "filesystemlist",
    "console", "exec", "vnc",
)  # fmt: skip
_ACCEPTED_SECONDS = 60.0  # a token that was reviewed is accepted so long without another review
_LABELS = {"app.kubernetes.io/part-of": "livevirt", "app.kubernetes.io/name": "livevirt-node"}


class Guests(GuestAccess, GuestEndpoint, Protocol):
    """Everything that subresources do to a guest."""


class CallerGuard:
    """Admits `livevirt api` and nobody else."""  # phrase: an exclusion

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._accepted: dict[bytes, float] = {}  # until when, by the digest of the token

    async def authenticate(self, http: web.BaseRequest, path: str) -> User:
        """Return the caller; raises Unauthorized for any other."""
        scheme, _, token = http.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("Unauthorized")
        await self._check(token.strip())
        return User(CALLER)

    async def authorize(
        self, user: User, http: web.BaseRequest, target: Target | ActionPath | None
    ) -> None:
        """Raise Forbidden unless the request is for the guest of an instance."""
        if not isinstance(target, ActionPath) or target.resource != RESOURCE:
            raise Forbidden("a node agent serves subresources of instances only")

    async def _check(self, token: str) -> None:
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock()
        if self._accepted.get(digest, now) > now:
            return
        review = {
            "apiVersion": core.TOKEN_REVIEW.api_version,
            "kind": core.TOKEN_REVIEW.kind,
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        status = (await self._client.create(core.TOKEN_REVIEW, review)).get("status") or {}
        meant = AUDIENCE in (status.get("audiences") or ())
        user = (status.get("user") or {}).get("username")
        if not status.get("authenticated") or not meant or user != CALLER:
            raise Unauthorized("Unauthorized")
        self._accepted = {key: until for key, until in self._accepted.items() if until > now}
        self._accepted[digest] = now + _ACCEPTED_SECONDS


@asynccontextmanager
async def listening(
    client: Client, guests: Guests, now: Now, host: str, port: int
) -> AsyncIterator[int]:
    """Serve while the context is open, and yield the port."""
    rotation = CertificateRotation(
        client, Identity(SECRET, NAMESPACE, _LABELS, (SERVER_NAME,)), (), now, Lifetimes()
    )
    actions = Actions(client.for_component("subresources"), guests, router.guest_verbs(guests))

    async def handle(
        action: ActionPath, http: web.BaseRequest, user: User, body: Any
    ) -> Answer | web.StreamResponse:
        if action.action.partition("/")[0] not in GUEST_VERBS:
            raise refusals.no_such_path()
        return await actions.handle(action, http, user, body)

    def tls() -> ServingTls:
        assert rotation.pair is not None
        return ServingTls(rotation.pair)

    front = ActionFront(Registry((), ACTIONS), CallerGuard(client), Metrics(), handle)
    renewing = asyncio.create_task(rotation.run(), name="certificate-rotation")
    try:
        await rotation.serving.wait()
        context = listening_context(tls)
        async with listening_with(front.handle, context, host, port) as taken:
            yield taken
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)

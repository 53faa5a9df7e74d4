"""A server without sockets or controllers, read and written in either version."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from livevirt.kube.admission import builtin
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects.core import NAMESPACE
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, Request, User
from livevirt.kube.server import objects
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import admission, kinds
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE

SPACE = "default"
SECONDS = 120.0
ADMIN = User("admin", ("system:masters",))


@dataclass(frozen=True)
class Server:
    """What tests call."""

    api: Api
    client: LocalClient
    read: StoreReader

    async def call(
        self, verb: str, version: str, body: Any = None, name: str = "", *,
        kind: Kind = CLUSTER_INSTANCETYPE,
    ) -> Object:  # fmt: skip
        """Do something to an object through one version of its kind."""
        patch = "application/merge-patch+json" if verb == "patch" else ""
        request = Request(
            verb, kind, version, ADMIN, SPACE if kind.namespaced else "", name, body=body,
            patch=patch,
        )  # fmt: skip
        answer = await self.api.call(request)
        found = answer.body
        return objects.decode(found) if isinstance(found, bytes) else found  # type: ignore[no-any-return]


@asynccontextmanager
async def a_server() -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "store.db")
        reader = StoreReader(store)
        rules = {**builtin.RULES, **admission.RULES}
        api = Api(Services(store, rules, lambda: datetime.now(UTC), reader, kinds.REGISTRY), {})
        client = LocalClient(api, ADMIN)
        try:
            await client.create(NAMESPACE, {"metadata": {"name": SPACE}})
            async with asyncio.timeout(SECONDS):
                yield Server(api, client, reader)
        finally:
            await store.close()

"""`livevirt controller --all`: every component in one process, for small clusters.

Each component has its own client, rate limit and endpoints, as in a process of its own. Replicas
serve the webhook and the API all the time; the controllers run in the one that leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from livevirt.cluster import api, api_manifests, controller, webhook, webhook_manifests
from livevirt.cluster.controller import Replica, utc_now
from livevirt.kube.client.access import Access
from livevirt.kube.client.limits import COMPONENT
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.client.transport import Transport
from livevirt.kube.control.requests import Requests

#: Called with the name and the URL of a component that answers.
Ready = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of each component."""

    controller: controller.Settings
    webhook: webhook.Settings
    api: api.Settings


async def run(access: Access, settings: Settings, ready: Ready) -> None:
    """Run all components until cancelled; the failure of one ends the others."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_run_webhook(access, settings.webhook, ready), name="webhook")
        group.create_task(_run_api(access, settings.api, ready), name="api")
        replica = Replica(access, settings.controller)
        answering = replica.run(lambda host, port: ready(controller.NAME, f"http://{host}:{port}"))
        group.create_task(answering, name="controller")


async def _run_webhook(access: Access, settings: webhook.Settings, ready: Ready) -> None:
    client, requests = _client(access, webhook_manifests.NAME)

    def answers(port: int) -> None:
        ready(webhook_manifests.NAME, f"https://{settings.host}:{port}")

    await webhook.serve(settings, client, utc_now, (requests.samples,), answers)


async def _run_api(access: Access, settings: api.Settings, ready: Ready) -> None:
    client, requests = _client(access, api_manifests.NAME)
    counted = replace(settings, sources=(*settings.sources, requests.samples))

    def answers(port: int) -> None:
        ready(api_manifests.NAME, f"https://{settings.host}:{port}")

    try:
        await api.serve(counted, client, utc_now, answers)
    finally:
        await client.close()


def _client(access: Access, name: str) -> tuple[RemoteClient, Requests]:
    requests = Requests()
    transport = Transport(access, allowed=COMPONENT, observer=requests)
    return RemoteClient(access, manager=name, transport=transport), requests

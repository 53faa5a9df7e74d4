from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from livevirt.cluster.leader import Candidacy, Leader, NotLeading, unique_identity
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.cache import Key
from livevirt.kube.control.lease import Timing
from livevirt.kube.objects.request import User

from ..kube.control.memory_handler import UNREACHABLE, MemoryHandler, until

QUICK = Timing(duration=0.6, renew=0.4, retry=0.05)


def a_leader(server: MemoryHandler, lost: list[str], identity: str = "one") -> Leader:
    candidacy = Candidacy(Key("kubevirt", "controller"), identity, QUICK)
    client = LocalClient(server, User("me"))
    return Leader(client, candidacy, lambda: datetime.now(UTC), lambda: lost.append(identity))


async def test_given_no_lease_then_writes_are_refused_until_it_leads() -> None:
    server, lost = MemoryHandler(), list[str]()
    leader = a_leader(server, lost)
    with pytest.raises(NotLeading):
        leader.check()
    assert leader.healthy, "a replica that waits is healthy"
    task = asyncio.create_task(leader.run(asyncio.Event().wait))
    await until(lambda: leader.leading)
    leader.check()
    task.cancel()
    await asyncio.wait({task})
    assert lost == []
    with pytest.raises(NotLeading):
        leader.check()


async def test_given_no_renewal_then_writes_are_refused_and_the_process_is_ended() -> None:
    server, lost = MemoryHandler(), list[str]()
    leader = a_leader(server, lost)
    working, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert lost == ["one"], "the process ends before its work does anything more"
            ended.set()

    task = asyncio.create_task(leader.run(work))
    await working.wait()
    server.refuse = lambda request: UNREACHABLE
    async with asyncio.timeout(10):
        await ended.wait()
    with pytest.raises(NotLeading):
        leader.check()
    task.cancel()
    await asyncio.wait({task})


def test_given_two_replicas_of_one_host_then_their_identities_differ() -> None:
    assert unique_identity() != unique_identity()

"""The QMP session against a real QEMU, and what it says when QEMU is gone."""

import asyncio

import pytest

from livevirt.qemu.errors import CommandFailed, Disconnected
from livevirt.qemu.session import Session

pytestmark = pytest.mark.guest


async def test_a_refused_command_carries_qemus_error_class(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        with pytest.raises(CommandFailed, match="not found") as caught:
            await guest.qmp.execute("device_del", {"id": "nothing"})
        assert caught.value.kind == "DeviceNotFound"


async def test_a_listener_hears_what_it_asked_for_and_nothing_else(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        with guest.qmp.listen("STOP") as stops, guest.qmp.listen() as everything:
            await guest.qmp.execute("cont")
            await guest.qmp.execute("stop")
            assert (await anext(stops)).name == "STOP"
            assert (await anext(everything)).name == "RESUME"


async def test_the_session_keeps_no_event_nobody_listens_to(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        for _ in range(3):
            await guest.qmp.execute("cont")
            await guest.qmp.execute("stop")
        assert guest.qmp._client.events.history == ()


@pytest.mark.parametrize("waiting_for", ["an event", "an answer"])
async def test_given_qemu_dies_when_somebody_waits_then_they_are_told(
    a_machine, start, waiting_for
) -> None:
    async with start(a_machine()) as guest:
        with guest.qmp.listen("SHUTDOWN") as events:
            if waiting_for == "an event":
                waiter = asyncio.create_task(anext(events))
            else:
                guest.process.send_signal(19)  # SIGSTOP: it takes the command and is silent
                waiter = asyncio.create_task(guest.qmp.execute("query-status"))
            await asyncio.sleep(0)
            guest.process.kill()
            with pytest.raises(Disconnected):
                await waiter
            with pytest.raises(Disconnected):
                await anext(events)  # and again, for whoever asks again
        await guest.qmp.closed()
        assert not guest.qmp.connected
        with pytest.raises(Disconnected):
            await guest.qmp.execute("query-status")


async def test_a_second_session_follows_once_the_first_has_hung_up(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        second = asyncio.create_task(Session.connect(guest.machine.qmp_socket))
        await guest.qmp.execute("query-status")
        assert not second.done()
        await guest.qmp.close()
        async with await second as qmp:
            assert (await qmp.execute("query-status"))["status"] == "prelaunch"


async def test_a_connection_that_was_given_up_does_not_hold_the_monitor(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await Session.connect(guest.machine.qmp_socket)
        await guest.qmp.close()
        async with await Session.connect(guest.machine.qmp_socket) as qmp:
            await qmp.execute("query-status")


async def test_nobody_at_the_socket_is_disconnected(run_dir) -> None:
    with pytest.raises(Disconnected, match="cannot talk to QEMU"):
        await Session.connect(str(run_dir / "none.sock"))


async def test_a_command_that_was_given_up_does_not_disturb_the_next(a_machine, start) -> None:
    async with start(a_machine()) as guest:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await guest.qmp.execute("query-qmp-schema")
        assert (await guest.qmp.execute("query-status"))["status"] == "prelaunch"

"""What QEMU says of the ports it forwards."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.qemu import hostfwd
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.hostfwd import Forward

SAID = """\
Hub -1 (net-net-default):
  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
  TCP[ESTABLISHED]   21       127.9.8.7  4567       10.0.2.15    22     0     0
  TCP[HOST_FORWARD]  16       127.9.8.7  4567       10.0.2.15    22     0     0
  UDP[HOST_FORWARD]  17       127.1.2.3  4568       10.0.2.15    53     0     0
Hub -1 (net-net-second):
  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
  UDP[236 sec]       -1       10.0.2.15   123      192.0.2.10   123     0     0
"""
TCP = Forward("net-net-default", "tcp", "127.9.8.7", 4567)
UDP = Forward("net-net-default", "udp", "127.1.2.3", 4568)


class Monitor:
    """A QEMU whose monitor answers each line as it is told."""

    def __init__(self, **answers: str) -> None:
        self.answers, self.lines = answers, list[str]()

    async def execute(self, command: str, arguments: dict[str, str]) -> str:
        assert command == "human-monitor-command"
        self.lines.append(arguments["command-line"])
        return self.answers.get(self.lines[-1].split()[0], "")


def test_the_list_names_network_and_state_of_every_socket() -> None:
    assert hostfwd.parse(SAID.splitlines()) == [
        (TCP, "ESTABLISHED"),
        (TCP, hostfwd.FORWARD),
        (UDP, hostfwd.FORWARD),
        (Forward("net-net-second", "udp", "10.0.2.15", 123), "236 sec"),
    ]


async def test_a_forward_leads_to_the_address_that_the_guest_is_leased() -> None:
    qmp: Any = Monitor()
    await hostfwd.add(qmp, TCP, 22)
    assert qmp.lines == ["hostfwd_add net-net-default tcp:127.9.8.7:4567-:22"]


async def test_anything_that_is_said_about_a_forward_is_a_refusal() -> None:
    qmp: Any = Monitor(hostfwd_add="Could not set up host forwarding rule\r\n")
    with pytest.raises(CommandFailed):
        await hostfwd.add(qmp, TCP, 22)


async def test_what_an_earlier_session_forwarded_is_removed_and_connections_stay() -> None:
    qmp: Any = Monitor(info=SAID)
    await hostfwd.forget_forwards(qmp)
    assert qmp.lines[1:] == [
        "hostfwd_remove net-net-default tcp:127.9.8.7:4567",
        "hostfwd_remove net-net-default udp:127.1.2.3:4568",
    ]

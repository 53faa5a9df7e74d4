"""`livevirt down`: guests run on, or end in order, as asked; the next server knows which."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from ..server_process import BIN, ServerProcess
from .guest_host import GuestHost, running_host
from .moving_guest import (
    MovingGuest,
    Ticks,
    a_movable_vm,
    sent_slowly,
    two_nodes,
)
from .test_commands import agent_answers, run, until

pytestmark = [pytest.mark.guest, pytest.mark.slow]


@pytest.fixture
def host() -> Iterator[ServerProcess]:
    with running_host() as host:
        yield host.server


def down(server: ServerProcess, *options: str) -> str:
    command = [BIN / "livevirt", "down", "--data-dir", server.data, *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.stdout


def emulators(server: ServerProcess) -> list[str]:
    """Return the processes that run guests of this server."""
    found = subprocess.run(
        ["pgrep", "-f", f"qemu-system.*{server.data}/run"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return found.stdout.split()


def the_vmi(server: ServerProcess) -> dict[str, object]:
    done = server.run_kubectl("get", "vmi", "web", "-o", "json")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def test_guests_outlive_the_server_unless_told_otherwise(host: ServerProcess) -> None:
    made = run(host, "virtctl", "create", "vm", "--name=web", "--memory=192Mi",
               "--volume-containerdisk=src:livevirt/guest:latest")  # fmt: skip
    host.kubectl("apply", "-f", "-", input=made)
    agent_answers(host)
    first = emulators(host)
    assert len(first) == 1
    uid = the_vmi(host)["metadata"]["uid"]

    assert "its guests run on" in down(host)
    host.stop()  # already gone: this only buries it
    assert emulators(host) == first

    assert "stopped default/web" in down(host, "--guests", "stop")
    assert emulators(host) == []

    host.start()  # the VM shall always run: it gets a new guest, the old one ended well
    until("a new instance", lambda: (the_vmi(host).get("metadata") or {}).get("uid", uid) != uid)
    until("its guest", lambda: len(emulators(host)) == 1)
    assert emulators(host) != first
    reasons = host.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "BackOff" not in reasons


# ------------------------------------------------------------ during a migration


@pytest.fixture
def pair() -> Iterator[GuestHost]:
    with two_nodes() as host:
        yield host


@pytest.mark.long
def test_given_fewer_nodes_then_a_guest_beyond_them_is_served_until_it_ends(
    pair: GuestHost,
) -> None:
    vm = a_movable_vm("mover")
    vm["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node02"}
    guest = MovingGuest(pair, vm)
    guest.boot()
    label = "jsonpath={.metadata.labels.kubevirt\\.io/schedulable}"
    for flags, open_ in (((), "false"), (("--nodes", "2"), "true"), ((), "false")):
        down(pair.server)
        pair.server.stop()
        pair.server.flags = flags
        pair.server.start()
        pair.answers(guest.name)
        node = ("get", "node", "node02", "-o", label)
        until("the node", lambda: pair.server.kubectl(*node) == open_)  # noqa: B023 - at once
    pair.run("virtctl", "stop", guest.name)
    until("its end", lambda: not emulators(pair.server))
    until("its files to go", lambda: not [*pair.server.data.glob("nodes/node02/pods/*")])
    down(pair.server)
    pair.server.stop()
    pair.server.start()
    listed = ("get", "nodes", "-o", "name")
    until("one node", lambda: pair.server.kubectl(*listed).split() == ["node/node01"])


def under_way(host: GuestHost) -> MovingGuest:
    """Return a guest that is being sent to the other node."""
    guest = MovingGuest(host, a_movable_vm("web"))
    guest.boot()
    guest.ask("move")
    until("a transfer", lambda: guest.phase("move") == "Running")
    return guest


@pytest.mark.long
def test_a_guest_that_is_being_sent_stays_and_runs_on(pair: GuestHost) -> None:
    with sent_slowly(pair, "8Mi"):  # some seconds
        guest = under_way(pair)
        before = guest.node
        with Ticks(pair) as ticks:
            assert "its guests run on" in down(pair.server)
            pair.server.stop()  # already gone: this only buries it
            until("one QEMU", lambda: len(pair.qemus("web")) == 1)
            ticks.counts_on()
            pair.server.start()
            ended = guest.ends("move")
            assert ended["status"]["phase"] == "Failed", ended
            ticks.counts_on()
            ticks.never_went_back()
    assert guest.node == before
    guest.is_alone()
    guest.went_on()
    guest.move("again")


@pytest.mark.long
def test_a_guest_that_is_being_sent_is_shut_down_in_order(pair: GuestHost) -> None:
    with sent_slowly(pair, "8Mi"):
        guest = under_way(pair)
        said = down(pair.server, "--guests", "stop")
        assert "stopped default/web" in said
        assert "switched off" not in said
        assert pair.qemus() == []
        pair.server.stop()
        pair.server.start()
        until("its end", lambda: guest.phase("move") == "Failed")
        pair.answers("web")  # the VM shall always run


@pytest.mark.long
def test_a_guest_that_stands_between_two_nodes_is_shut_down_in_order(pair: GuestHost) -> None:
    with sent_slowly(pair, "8Mi"):
        under_way(pair)
        pair.server.kill()
        with Ticks(pair) as ticks:
            ticks.counts_on()
            until("it to be sent", lambda: stands_still(ticks))
        assert len(pair.qemus("web")) == 2
        said = down(pair.server, "--guests", "stop")
        assert "stopped default/web" in said
        assert "switched off" not in said
        assert pair.qemus() == []
        pair.server.start()
        pair.answers("web")


def stands_still(ticks: Ticks) -> bool:
    last = ticks.last
    time.sleep(3)  # it counts many times a second
    return ticks.last == last

"""Run strategies: what becomes of a VM when its guest ends, and when a person asks for something.

Guests that need no operating system have none, which makes them start at once. All of them are
started together, and each test uses up its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from .guest_host import SOON, GuestHost, a_bare_vm, a_vm, until

pytestmark = [pytest.mark.guest, pytest.mark.soak]

STARTING = ("Always", "RerunOnFailure", "Once")
#: What an ended guest's VM comes to: (instance, the word people see).
AGAIN, KEPT, GONE = "another instance", "the ended instance", "no instance"


def vm_name(story: str, strategy: str) -> str:
    return f"{story}-{strategy.lower()}"


def runs(host: GuestHost, name: str, other_than: str = "") -> str:
    """Return the uid of an instance once it runs."""
    found = ""

    def running() -> bool:
        nonlocal found
        vmi = host.get("vmi", name)
        found = vmi["metadata"]["uid"] if vmi else ""
        phase = (vmi.get("status") or {}).get("phase")
        return found not in ("", other_than) and phase == "Running"

    until(f"{name} to run", running)
    return found


@pytest.fixture(scope="module")
def started(guest_host: GuestHost) -> Iterator[GuestHost]:
    """The server, with guests of every strategy that starts one, some with an operating system."""
    vms = [a_vm(vm_name("off", each), each, "128Mi") for each in (*STARTING, "Manual")]
    vms += [a_bare_vm(vm_name("kill", each), each) for each in (*STARTING, "Manual")]
    guest_host.apply(*vms)
    for story in ("off", "kill"):
        guest_host.run("virtctl", "start", vm_name(story, "Manual"))
    yield guest_host
    guest_host.discard(*[vm["metadata"]["name"] for vm in vms])


def outcome(host: GuestHost, name: str, before: str, phase: str) -> str:
    """Return what there is of an instance that has ended that way, "" while it is not told."""
    vmi = host.get("vmi", name)
    if not vmi:
        return GONE if host.word(name) == "Stopped" else ""
    if vmi["metadata"]["uid"] != before:
        return AGAIN
    ended = vmi["status"]["phase"] == phase and host.word(name) == "Stopped"
    return KEPT if ended else ""


def settles(host: GuestHost, name: str, before: str, phase: str, wanted: str) -> None:
    """Expect the outcome in time, counted from now, and QEMU to be as the instance is."""
    seconds = until(wanted, lambda: outcome(host, name, before, phase) == wanted)
    assert seconds < SOON
    if wanted == AGAIN:
        runs(host, name, other_than=before)
    until("as many QEMUs", lambda: len(host.qemus(name)) == (1 if wanted == AGAIN else 0))


KILLED = {"Always": AGAIN, "RerunOnFailure": AGAIN, "Manual": KEPT, "Once": KEPT}


@pytest.mark.parametrize(("strategy", "wanted"), KILLED.items())
def test_given_qemu_is_killed(started: GuestHost, strategy: str, wanted: str) -> None:
    name = vm_name("kill", strategy)
    before = runs(started, name)
    os.kill(started.qemu(name), signal.SIGKILL)
    settles(started, name, before, "Failed", wanted)
    if wanted == KEPT:

        def phases() -> list[str]:
            return [pod["status"]["phase"] for pod in started.pods(name)]

        until("its pod to have failed", lambda: phases() == ["Failed"])


POWERED_OFF = {"Always": AGAIN, "RerunOnFailure": GONE, "Manual": KEPT, "Once": KEPT}


@pytest.mark.parametrize(("strategy", "wanted"), POWERED_OFF.items())
def test_given_the_guest_powers_itself_off(started: GuestHost, strategy: str, wanted: str) -> None:
    name = vm_name("off", strategy)
    started.answers(name)
    before, pid = started.uid(name), started.qemu(name)
    started.attempt("livevirt", "exec", name, "--", "poweroff", "-f")
    until("QEMU to end", lambda: pid not in started.qemus(name))
    settles(started, name, before, "Succeeded", wanted)


def test_given_it_ended_then_the_next_start_is_a_new_instance_where_starting_is_allowed(
    started: GuestHost,
) -> None:
    for strategy in ("Manual", "RerunOnFailure"):
        name = vm_name("off", strategy)
        until("it ended", lambda: started.word(name) == "Stopped")  # noqa: B023
        before = started.uid(name)
        started.run("virtctl", "start", name)
        runs(started, name, other_than=before)
    done = started.attempt("virtctl", "start", vm_name("off", "Once"))
    assert done.returncode == 1
    assert "Once does not support manual start requests" in done.stderr


# ------------------------------------------------------------ what people ask for


@pytest.fixture
def person(guest_host: GuestHost, request: pytest.FixtureRequest) -> Iterator[Person]:
    """A person with one VM, which is named after its strategy and goes with the test."""
    strategy: str = request.param
    vm = a_bare_vm(vm_name("ask", strategy), strategy)
    if strategy == "running":
        del vm["spec"]["runStrategy"]
        vm["spec"]["running"] = True
    guest_host.apply(vm)
    yield Person(guest_host, vm["metadata"]["name"])
    guest_host.discard(vm["metadata"]["name"])


class Person:
    """Somebody who types virtctl and looks at one VM."""

    def __init__(self, host: GuestHost, name: str) -> None:
        self.host, self.name = host, name
        self.last = ""  # instance that was seen running

    def asks(self, verb: str, *flags: str) -> None:
        self.host.run("virtctl", verb, self.name, *flags)

    def is_refused(self, verb: str, why: str) -> None:
        done = self.host.attempt("virtctl", verb, self.name)
        assert (done.returncode, why in done.stderr) == (1, True), done.stderr

    def sees_it_run(self, *, anew: bool = False) -> None:
        self.last = runs(self.host, self.name, other_than=self.last if anew else "")
        self._sees("Running")

    def sees_it_stopped(self) -> None:
        self._sees("Stopped")
        assert self.host.qemus(self.name) == []
        # As with KubeVirt the word follows the guest's end; its objects go a moment later.
        until("its instance to go", lambda: not self.host.get("vmi", self.name))
        until("its pod to go", lambda: not self.host.pods(self.name))

    def sees_it_paused(self) -> None:
        self._sees("Paused")

    def spec(self) -> tuple[str | None, bool | None]:
        spec = self.host.get("vm", self.name)["spec"]
        return spec.get("runStrategy"), spec.get("running")

    def _sees(self, word: str) -> None:
        until(f"{self.name} to be {word}", lambda: self.host.word(self.name) == word)


def always(person: Person) -> None:
    person.sees_it_run()
    person.is_refused("start", "VM is already running")
    person.asks("restart")
    person.sees_it_run(anew=True)
    person.asks("stop")
    person.sees_it_stopped()
    assert person.spec() == ("Halted", None)
    person.asks("start")
    person.sees_it_run(anew=True)
    assert person.spec() == ("Always", None)


def running(person: Person) -> None:
    person.sees_it_run()
    person.asks("stop")
    person.sees_it_stopped()
    assert person.spec() == (None, False)
    person.asks("start")
    person.sees_it_run(anew=True)
    assert person.spec() == (None, True)


def halted(person: Person) -> None:
    person.sees_it_stopped()
    person.is_refused("stop", "VM is not running")
    person.is_refused("restart", "does not support manual restart requests")
    person.asks("start", "--paused")
    person.sees_it_paused()
    assert person.spec() == ("Always", None)


def manual(person: Person) -> None:
    person.sees_it_stopped()
    person.is_refused("restart", "VM is not running")
    person.asks("start")
    person.sees_it_run()
    person.asks("restart")
    person.sees_it_run(anew=True)
    person.asks("stop", "--force", "--grace-period=0")
    person.sees_it_stopped()
    assert person.spec() == ("Manual", None)


def rerun_on_failure(person: Person) -> None:
    person.sees_it_run()
    person.asks("restart")
    person.sees_it_run(anew=True)
    person.asks("stop")
    person.sees_it_stopped()
    person.asks("start")
    person.sees_it_run(anew=True)
    assert person.spec() == ("RerunOnFailure", None)


def once(person: Person) -> None:
    person.sees_it_run()
    person.is_refused("restart", "does not support manual restart requests")
    person.asks("stop")
    person.sees_it_stopped()
    assert person.spec() == ("Halted", None)


STORIES = {
    "Always": always,
    "RerunOnFailure": rerun_on_failure,
    "Manual": manual,
    "Halted": halted,
    "Once": once,
    "running": running,
}


@pytest.mark.parametrize(("person", "story"), STORIES.items(), ids=STORIES, indirect=["person"])
def test_given_a_person_asks(person: Person, story: Callable[[Person], None]) -> None:
    story(person)


def test_given_qemu_fails_as_soon_as_it_starts_then_starts_are_spaced_out(
    guest_host: GuestHost,
) -> None:
    name = "broken"
    vm = a_bare_vm(name)
    # Forced, so that no node need have it: QEMU knows no such feature and ends at once.
    feature = {"name": "no-such-feature", "policy": "force"}
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"features": [feature]}
    guest_host.apply(vm)
    try:
        until("it is given up for now", lambda: guest_host.word(name) == "CrashLoopBackOff")
        failure = guest_host.get("vm", name)["status"]["startFailure"]
        assert failure["consecutiveFailCount"] >= 1
        assert failure["retryAfterTimestamp"] > time.strftime("%Y-%m-%dT%H:%M", time.gmtime())
    finally:
        guest_host.discard(name)

"""What `/metrics` and `kubectl top` say of a guest is what the guest and the kernel say."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .guest_host import GuestHost, until
from .live_guest import LiveGuest, a_live_vm

pytestmark = [pytest.mark.guest, pytest.mark.slow]

NAME = "measured"
MIB = 1 << 20
BUSY = "timeout 3 sh -c 'while :; do :; done' || true"
Labels = dict[str, str]


class Scrape:
    """One answer of `/metrics`."""

    def __init__(self, host: GuestHost) -> None:
        began = time.monotonic()
        text = host.server.kubectl("get", "--raw", "/metrics")
        self.seconds = time.monotonic() - began
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def all(self, metric: str, /, **labels: str) -> list[tuple[Labels, float]]:
        """Return the samples of that name whose labels are these, among others."""
        return [
            (sample.labels, sample.value)
            for sample in self._samples
            if sample.name == metric and labels.items() <= sample.labels.items()
        ]

    def of(self, metric: str, /, **labels: str) -> float:
        """Return the value of our guest's only sample of that name."""
        (found,) = self.all(f"kubevirt_vmi_{metric}", name=NAME, **labels)
        return found[1]


@pytest.fixture(scope="module")
def guest(guest_host: GuestHost) -> Iterator[LiveGuest]:
    """A guest of one socket and 512Mi that can grow."""
    made = LiveGuest(guest_host, a_live_vm(NAME))
    guest_host.apply(made.manifest)
    made.begin()
    yield made
    guest_host.discard(NAME)


def test_given_load_in_the_guest_then_cpu_seconds_grow_with_it(guest: LiveGuest) -> None:
    before = Scrape(guest.host)
    guest.host.shell(NAME, BUSY)
    after = Scrape(guest.host)
    for name, labels in (("cpu_usage_seconds_total", {}), ("vcpu_seconds_total", {"id": "0"})):
        grown = after.of(name, **labels) - before.of(name, **labels)
        assert 0.3 < grown < 60.0, name  # three seconds of work, on a machine that is busy
    total = after.of("cpu_user_usage_seconds_total") + after.of("cpu_system_usage_seconds_total")
    assert total == pytest.approx(after.of("cpu_usage_seconds_total"))


def test_given_a_guest_then_its_memory_is_what_it_says_and_the_kernel_holds(
    guest: LiveGuest,
) -> None:
    def told() -> Scrape | None:
        scrape = Scrape(guest.host)
        return scrape if scrape.all("kubevirt_vmi_memory_available_bytes", name=NAME) else None

    until("the agent has been asked", told)
    scrape = Scrape(guest.host)
    limit = 512 * MIB + 400 * MIB  # and what QEMU needs besides
    assert 0 < scrape.of("memory_resident_bytes") < limit
    assert scrape.of("memory_domain_bytes") == 512 * MIB
    shown = guest.host.shell(NAME, "cat /proc/meminfo")
    inside = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in shown.splitlines()}
    assert scrape.of("memory_available_bytes") == inside["MemTotal"]
    assert scrape.of("memory_usable_bytes") == pytest.approx(inside["MemAvailable"], rel=0.2)
    used, usable = scrape.of("memory_used_bytes"), scrape.of("memory_usable_bytes")
    assert used + usable == inside["MemTotal"]


def test_given_reads_and_packets_then_the_counters_of_disk_and_network_follow(
    guest: LiveGuest,
) -> None:
    scrape = Scrape(guest.host)
    assert scrape.of("storage_iops_read_total", drive="root") > 0
    before = scrape.of("storage_read_traffic_bytes_total", drive="root")
    guest.host.shell(NAME, "dd if=/dev/vda of=/dev/null bs=64k count=16 iflag=direct 2>&1")
    until(
        "a megabyte was read",
        lambda: (
            Scrape(guest.host).of("storage_read_traffic_bytes_total", drive="root") - before >= MIB
        ),
    )
    received = Scrape(guest.host).of("network_receive_bytes_total", interface="default")
    (counted,) = guest.host.shell(NAME, "cat /sys/class/net/e*/statistics/rx_bytes").split()
    assert 0 <= received <= int(counted)


def test_given_a_live_change_then_every_step_is_timed(guest: LiveGuest) -> None:
    guest.becomes(2, "768Mi")
    scrape = Scrape(guest.host)
    for resource in ("cpu", "memory"):
        counted = {
            labels["step"]: value
            for labels, value in scrape.all(
                "livevirt_live_change_step_seconds_count", resource=resource
            )
        }
        steps = dict.fromkeys(("vmi_patched", "pod_resized", "plugged", "confirmed"), 1.0)
        assert counted == steps, resource
        ((_, whole),) = scrape.all("livevirt_live_change_seconds_sum", resource=resource)
        parts = scrape.all("livevirt_live_change_step_seconds_sum", resource=resource)
        assert 0 < sum(value for _, value in parts) <= whole + 1e-6
    assert scrape.all("livevirt_vmi_live_change_timestamp_seconds", name=NAME) == []
    assert scrape.of("memory_domain_bytes") == 768 * MIB
    assert {labels["id"] for labels, _ in scrape.all("kubevirt_vmi_vcpu_seconds_total", name=NAME)}
    started = scrape.all(
        "kubevirt_vmi_phase_transition_time_from_creation_seconds_count", phase="Running"
    )
    assert started[0][1] >= 1


def test_given_a_guest_then_kubectl_top_shows_its_pod_and_node(guest: LiveGuest) -> None:
    kubectl = guest.host.server.kubectl
    (pod,) = guest.host.pods(NAME)
    shown = kubectl("top", "pod", pod["metadata"]["name"], "--containers", "--no-headers").split()
    assert shown[:2] == [pod["metadata"]["name"], "compute"]
    assert 0 <= int(shown[2].removesuffix("m")) <= 1000 * (os.cpu_count() or 1)
    assert 10 < int(shown[3].removesuffix("Mi")) < 768 + 400
    node = kubectl("top", "node", pod["spec"]["nodeName"], "--no-headers").split()
    assert int(node[3].removesuffix("Mi")) >= 10


def test_given_a_qemu_that_hangs_then_a_scrape_takes_no_longer(guest: LiveGuest) -> None:
    Scrape(guest.host)
    pid = guest.host.qemu(NAME)
    os.kill(pid, 19)  # SIGSTOP
    try:
        time.sleep(3.0)  # longer than QEMU's answers are kept
        first, second = Scrape(guest.host), Scrape(guest.host)
        assert first.of("cpu_usage_seconds_total") > 0
        assert max(first.seconds, second.seconds) < 5.0  # with the start of kubectl
    finally:
        os.kill(pid, 18)  # SIGCONT
    until(
        "QEMU answers again", lambda: Scrape(guest.host).all("kubevirt_vmi_storage_iops_read_total")
    )

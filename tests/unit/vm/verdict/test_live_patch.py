"""What an instance becomes when live changes reach it."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.quantity import parse
from livevirt.vm.spec import instance
from livevirt.vm.spec.resources import compute
from livevirt.vm.verdict.live_patch import live_patch

from ..cases import GONE, KVM, LIVE, STAGE, a_claim, a_spec, edited, judged, running, with_defaults

CPU = {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}
MEMORY = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}

PATCHES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "sockets": ({}, {"domain.cpu.sockets": 3}, {"domain": {"cpu": {"sockets": 3}}}),
    "memory, as it was written": (
        {}, {"domain.memory.guest": "2048Mi"}, {"domain": {"memory": {"guest": "2048Mi"}}}
    ),
    "both at once": (
        {},
        {"domain.cpu.sockets": 2, "domain.memory.guest": "2Gi"},
        {"domain": {"cpu": {"sockets": 2}, "memory": {"guest": "2Gi"}}},
    ),
    "a CPU request grows by a share for each vCPU": (
        {"domain.resources": CPU},
        {"domain.cpu.sockets": 3},
        {"domain": {"cpu": {"sockets": 3},
                    "resources": {"requests": {"cpu": "900m"}, "limits": {"cpu": "2400m"}}}},
    ),
    "memory requests grow with the guest": (
        {"domain.resources": MEMORY},
        {"domain.memory.guest": "3Gi"},
        {"domain": {"memory": {"guest": "3Gi"},
                    "resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "4Gi"}}}},
    ),
    "placement": (
        {"nodeSelector": {"zone": "a", "disk": "ssd"}, "tolerations": [{"key": "a"}]},
        {"nodeSelector": {"zone": "b"}, "tolerations": GONE},
        {"nodeSelector": {"zone": "b", "disk": None}, "tolerations": None},
    ),
    "what waits for a restart stays": ({}, {"domain.cpu.sockets": 2, "hostname": "web"}, {}),
    "volumes go another way": ({}, {"volumes.1": a_claim("data", "other")}, {}),
    "no change": ({}, {"domain.cpu.threads": 1}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("start", "edits", "patch"), PATCHES.values(), ids=PATCHES)
def test_the_patch(start: dict[str, Any], edits: dict[str, Any], patch: dict[str, Any]) -> None:
    started = edited(a_spec(), start)
    vmi = running(started)

    found = live_patch(judged(started, edited(started, edits), vmi=vmi), vmi)

    assert found == ({"spec": patch} if patch else {})


def test_given_stage_then_nothing_reaches_the_instance() -> None:
    judgement = judged(a_spec(), a_spec(domain__cpu__sockets=2), config=STAGE)

    assert live_patch(judgement, running(a_spec())) == {}


def test_given_a_migration_then_it_waits() -> None:
    state = {"startTimestamp": "2026-01-01T00:00:00Z"}
    judgement = judged(a_spec(), a_spec(domain__cpu__sockets=2), migrationState=state)

    assert live_patch(judgement, running(a_spec())) == {}


def test_shares_follow_the_ratio_recorded_at_start() -> None:
    started = a_spec(domain__resources={"requests": {"cpu": "1"}})
    vmi = running(started, with_defaults(cpu_allocation_ratio=2))

    wanted = edited(started, {"domain.cpu.sockets": 2})
    found = live_patch(judged(started, wanted, vmi=vmi, around=KVM), vmi)

    assert found["spec"]["domain"]["resources"] == {"requests": {"cpu": "2"}}


def test_given_an_overcommitted_guest_when_it_shrinks_then_a_request_is_left() -> None:
    started = a_spec(domain__cpu__sockets=4, domain__resources={"requests": {"cpu": "300m"}})
    wanted = edited(started, {"domain.cpu.sockets": 1})

    found = live_patch(judged(started, wanted), running(started))

    assert found["spec"]["domain"]["resources"] == {"requests": {"cpu": "200m"}}


RESTARTED: dict[str, dict[str, Any]] = {
    "a limit": {"domain.resources": {"limits": {"memory": "1Gi"}}},
    "a request as well": {
        "domain.resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    },
    "dedicated": {
        "domain.cpu.dedicatedCpuPlacement": True,
        "domain.resources": {"requests": {"memory": "1Gi"}},
    },
}


@pytest.mark.parametrize("written", RESTARTED.values(), ids=RESTARTED)
def test_given_a_guest_that_grew_when_it_starts_again_then_its_pod_is_as_large(
    written: dict[str, Any],
) -> None:
    started = edited(a_spec(), written)
    wanted, vmi = edited(started, {"domain.memory.guest": "2Gi"}), running(started)

    grown = apply(live_patch(judged(started, wanted, vmi=vmi), vmi), vmi)
    pods = [
        compute(instance.read(each["spec"]), LIVE.defaults) for each in (grown, running(wanted))
    ]

    assert pods[0] == pods[1]
    for pod in pods:
        assert parse(pod.limits["memory"]).bytes >= parse("2Gi").bytes + pod.overhead

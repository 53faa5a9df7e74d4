from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Defaults
from livevirt.vm.spec import instance
from livevirt.vm.spec import resources as spec_resources
from livevirt.vm.spec.resources import Compute, Namespace, compute

MIB = 2**20


def asked(
    defaults: Defaults | None = None, namespace: Namespace | None = None, **domain: Any
) -> Compute:
    headless = {"autoattachGraphicsDevice": False}
    spec = {"domain": {"devices": headless, "memory": {"guest": "1Gi"}, **domain}}
    return compute(instance.read(spec), defaults or Defaults(), namespace)


# ---------------------------------------------------------------- CPU

CPU: dict[str, tuple[Object, str, str | None]] = {
    "one CPU is a tenth": ({}, "100m", None),
    "twelve": ({"cpu": {"sockets": 3, "cores": 4}}, "1200m", None),
    "as requested": ({"resources": {"requests": {"cpu": "2"}}}, "2", None),
    "no more than the limit": ({"resources": {"limits": {"cpu": "50m"}}}, "50m", "50m"),
    "limits are kept": ({"cpu": {"cores": 2}, "resources": {"limits": {"cpu": "1"}}}, "200m", "1"),
    "dedicated": ({"cpu": {"cores": 3, "dedicatedCpuPlacement": True}}, "3", "3"),
    "dedicated with one for the emulator": (
        {"cpu": {"cores": 3, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}},
        "4", "4",
    ),
    "threads of a pool count as CPUs": (
        {"ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 2}},
        "300m", None,
    ),
    "dedicated with threads of a pool": (
        {"cpu": {"cores": 3, "dedicatedCpuPlacement": True}, "ioThreadsPolicy": "supplementalPool",
         "ioThreads": {"supplementalPoolThreadCount": 2}},
        "5", "5",
    ),
    "other threads do not": (
        {"ioThreadsPolicy": "auto", "ioThreads": {"supplementalPoolThreadCount": 2}}, "100m", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("domain", "request_", "limit"), CPU.values(), ids=CPU)
def test_cpu(domain: Object, request_: str, limit: str | None) -> None:
    found = asked(**domain)
    assert parse(found.requests["cpu"]) == parse(request_)
    assert found.limits.get("cpu") == limit


def test_the_recorded_ratio_counts() -> None:
    found = asked(Defaults(cpu_allocation_ratio=4), cpu={"cores": 2})
    assert found.requests["cpu"] == "500m"


# ---------------------------------------------------------------- memory


def test_a_guest_and_its_overhead_are_requested_and_nothing_limited() -> None:
    found = asked()
    assert parse(found.requests["memory"]).bytes == 1024 * MIB + found.overhead
    assert found.limits == {}


def test_overcommitted_memory_is_requested_in_part() -> None:
    found = asked(Defaults(memory_overcommit=200))
    assert parse(found.requests["memory"]).bytes == 512 * MIB + found.overhead


def test_what_the_owner_requests_and_limits_grows_by_the_overhead() -> None:
    resources = {"requests": {"memory": "2Gi"}, "limits": {"memory": "3Gi"}}
    found = asked(resources=resources)
    assert parse(found.requests["memory"]).bytes == 2048 * MIB + found.overhead
    assert parse(found.limits["memory"]).bytes == 3072 * MIB + found.overhead


def test_the_overhead_can_be_overcommitted_too() -> None:
    found = asked(resources={"requests": {"memory": "1Gi"}, "overcommitGuestOverhead": True})
    assert found.requests["memory"] == "1Gi"


def test_a_guest_in_huge_pages_requests_them_and_memory_for_the_rest() -> None:
    memory = {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}
    found = asked(memory=memory, resources={"requests": {"memory": "1025Mi"}})
    assert found.requests["hugepages-2Mi"] == found.limits["hugepages-2Mi"] == "1Gi"
    assert parse(found.requests["memory"]).bytes == MIB + found.overhead


def test_huge_pages_are_never_overcommitted() -> None:
    memory = {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}
    found = asked(Defaults(memory_overcommit=200), memory=memory)
    assert found.requests["hugepages-2Mi"] == "1Gi"
    assert parse(found.requests["memory"]).bytes == found.overhead


def test_dedicated_cpus_make_the_memory_exact() -> None:
    found = asked(cpu={"cores": 2, "dedicatedCpuPlacement": True})
    assert found.requests == found.limits


def test_a_quota_on_limits_makes_limits() -> None:
    found = asked(namespace=Namespace(True, True, Decimal("1.5")), cpu={"cores": 2})
    assert found.limits["cpu"] == "2"
    wanted = parse(found.requests["memory"]).bytes * 3 / 2
    assert parse(found.limits["memory"]).bytes == wanted


ALONE = {"cpu": {"dedicatedCpuPlacement": True}}
BELOW: dict[str, tuple[Object, Object, str, str]] = {
    # of a guest of 1Gi: what the owner wrote, and what is asked for and limited beside overhead
    "a limit": ({"limits": {"memory": "512Mi"}}, {}, "1Gi", "1Gi"),
    "a limit and a part of it": (
        {"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi"}}, {}, "256Mi", "1Gi",
    ),
    "a limit and all of it": (
        {"requests": {"memory": "512Mi"}, "limits": {"memory": "0.5Gi"}}, {}, "1Gi", "1Gi",
    ),
    "dedicated": ({"requests": {"memory": "512Mi"}}, ALONE, "1Gi", "1Gi"),
    "dedicated, with a limit": (
        {"requests": {"memory": "512Mi"}, "limits": {"memory": "512Mi"}}, ALONE, "1Gi", "1Gi",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("resources", "domain", "request_", "limit"), BELOW.values(), ids=BELOW)
def test_no_limit_is_below_the_guest(
    resources: Object, domain: Object, request_: str, limit: str
) -> None:
    found = asked(resources=resources, **domain)
    assert parse(found.requests["memory"]).bytes - found.overhead == parse(request_).bytes
    assert parse(found.limits["memory"]).bytes - found.overhead == parse(limit).bytes


# ---------------------------------------------------------------- overhead


def test_the_terms_of_the_overhead_add_up() -> None:
    plain = spec_resources.QEMU + spec_resources.TRANSLATION + spec_resources.IO_THREAD + 2 * MIB
    assert asked().overhead == plain + spec_resources.VCPU
    assert asked(cpu={"cores": 4}).overhead == plain + 4 * spec_resources.VCPU
    assert asked(devices={}).overhead == plain + spec_resources.VCPU + spec_resources.GRAPHICS


def test_a_ratio_adds_to_all_terms() -> None:
    plain, more = asked(), asked(Defaults(additional_guest_memory_overhead_ratio="1.5"))
    assert more.overhead == plain.overhead + plain.overhead // 2 // 1000 * 1000


def test_who_asks_may_change_what_was_answered() -> None:
    given = asked()
    expected = {**given.requests}
    given.requests["cpu"] = "none of it"
    assert asked().requests == expected


sizes = st.integers(1, 2**16).map(lambda n: {"guest": f"{2 * n}Mi"})
cpus = st.fixed_dictionaries({"sockets": st.integers(1, 64), "cores": st.integers(1, 8)})


@given(sizes, cpus, sizes, cpus)
def test_a_larger_guest_never_asks_for_less(m: Object, c: Object, n: Object, d: Object) -> None:
    smaller = min(parse(m["guest"]), parse(n["guest"])), min(c["sockets"], d["sockets"])
    larger = max(parse(m["guest"]), parse(n["guest"])), max(c["sockets"], d["sockets"])
    one, other = (
        asked(memory={"guest": str(guest)}, cpu={"sockets": sockets})
        for guest, sockets in (smaller, larger)
    )
    for name in ("cpu", "memory"):
        assert parse(one.requests[name]) <= parse(other.requests[name])

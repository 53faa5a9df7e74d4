"""IO threads of an instance: the policy, and how many there are in a pool of their own."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects.field_error import FieldError
from livevirt.vm.spec.instance import Instance
from livevirt.vm.volumes.disk_admission import wrong

POLICIES = ("shared", "auto", "supplementalPool")
MOST_THREADS = 256


def io_thread_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    """Yield what is wrong with the IO threads of a domain, found `at` a path."""
    domain = instance.domain
    policy, count = domain.io_threads_policy, domain.io_threads.supplemental_pool_thread_count
    if policy and policy not in POLICIES:
        yield wrong(f"{at}.ioThreadsPolicy", f"Invalid IOThreadsPolicy ({policy})")
    elif policy == "supplementalPool" and not 1 <= count <= MOST_THREADS:
        here = f"{at}.ioThreads.supplementalPoolThreadCount"
        message = f"{here} must be between 1 and {MOST_THREADS} with policy supplementalPool"
        yield wrong(here, message)

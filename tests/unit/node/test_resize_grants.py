from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.control.cache import Change, Key
from livevirt.kube.objects import node_share
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.quantity import parse
from livevirt.node.resize import Grants

NAMES = ("web", "db", "cache")


def a_pod(phase: str = "Running", granted: str = "", **requests: str) -> Any:
    container = {"name": "compute", "resources": {"requests": requests}}
    told = {"allocatedResources": {"cpu": granted}} if granted else {}
    return {
        "metadata": {},
        "spec": {"containers": [container]},
        "status": {"phase": phase, "containerStatuses": [{"name": "compute", **told}]},
    }


def of(**pods: Any) -> Grants:
    """Return the grants of a node that has seen these pods appear."""
    grants = Grants()
    for name, pod in pods.items():
        grants.note(Change(Key("default", name), None, pod))
    return grants


def cpu_beside(grants: Grants, name: str) -> int:
    return grants.beside(Key("default", name)).cpu.milli()


def test_what_is_granted_counts_and_not_what_is_asked_for() -> None:
    grants = of(
        web=a_pod(cpu="1"),
        db=a_pod(cpu="2", granted="500m"),
        cache=a_pod(cpu="3", phase="Succeeded"),
    )
    assert cpu_beside(grants, "web") == 500
    assert cpu_beside(grants, "db") == 1000


def test_a_pod_that_is_gone_leaves_its_room() -> None:
    pod = a_pod(cpu="1")
    grants = of(web=pod, db=a_pod(cpu="2"))
    grants.note(Change(Key("default", "web"), pod, None))
    assert cpu_beside(grants, "db") == 0


def test_a_grant_counts_before_its_pod_tells_it() -> None:
    grants = of(web=a_pod(cpu="1"), db=a_pod(cpu="1"))
    grants.grant(Key("default", "web"), Share(cpu=parse("3")))
    assert cpu_beside(grants, "db") == 3000


pods = st.one_of(
    st.none(),
    st.builds(
        a_pod,
        phase=st.sampled_from(("Pending", "Running", "Failed")),
        granted=st.sampled_from(("", "250m", "2")),
        cpu=st.sampled_from(("100m", "1", "3")),
    ),
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), pods)))
def test_given_any_changes_then_the_sum_is_that_of_the_pods_there_are(changes: list[Any]) -> None:
    grants, there = Grants(), dict[str, Any]()
    for name, pod in changes:
        grants.note(Change(Key("default", name), there.get(name), pod))
        there[name] = pod
    for name in NAMES:
        others = [pod for other, pod in there.items() if pod and other != name]
        assert cpu_beside(grants, name) == node_share.taken(others, None).cpu.milli()

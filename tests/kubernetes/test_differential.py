"""Generated sequences of requests: the embedded server answers them as a real kube-apiserver does.

Hypothesis shrinks the first difference. What differs on purpose is in `docs/differences.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .. import apply_requests
from ..apply_requests import APPLY, JSON_PATCH, MAPS, MERGE, STRATEGIC, Api, Object, Step
from ..server_process import running_server
from .cluster import KubernetesCluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
ROUND = 40  # sequences of up to eight requests

keys, texts = st.sampled_from("abc"), st.sampled_from(["x", "y"])
managers = st.sampled_from(["alice", "bob", "kubectl"])
queries = st.sampled_from(["", "&force=true", "&dryRun=All", "&fieldValidation=Strict"])
maps = st.dictionaries(keys, texts, max_size=2)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": maps,
        "annotations": maps,
        "finalizers": st.lists(keys.map(lambda key: f"x/{key}"), unique=True, max_size=2),
    },
)
#: Nearly all of them are valid.
bodies = st.fixed_dictionaries(
    {}, optional={"data": maps | st.just(None), "metadata": metadata, "immutable": st.just(False)}
)


def named(body: Object) -> Object:
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    return {**head, **body, "metadata": {"name": "a", **body.get("metadata", {})}}


def without_force(query: str) -> str:
    return query.replace("&force=true", "")


applies = st.builds(
    lambda manager, query, body: Step(
        "PATCH", f"{MAPS}/a?fieldManager={manager}{query}", named(body), APPLY
    ),
    managers, queries, bodies,
)  # fmt: skip
patches = st.builds(
    lambda manager, query, body, type_: Step(
        "PATCH", f"{MAPS}/a?fieldManager={manager}{without_force(query)}", body, type_
    ),
    managers, queries, bodies, st.sampled_from([MERGE, STRATEGIC]),
)  # fmt: skip
json_patches = st.builds(
    lambda op, key, text: Step(
        "PATCH", f"{MAPS}/a", [{"op": op, "path": f"/data/{key}", "value": text}], JSON_PATCH
    ),
    st.sampled_from(["add", "replace", "remove", "test"]), keys, texts,
)  # fmt: skip
puts = st.builds(
    lambda manager, body: Step("PUT", f"{MAPS}/a?fieldManager={manager}", named(body)),
    managers, bodies,
)  # fmt: skip
creates = st.builds(
    lambda manager, body: Step("POST", f"{MAPS}?fieldManager={manager}", named(body)),
    managers, bodies,
)  # fmt: skip
sequences = st.lists(applies | patches | json_patches | puts | creates, min_size=2, max_size=8)


@pytest.fixture(scope="module")
def both(control_plane: KubernetesCluster) -> Iterator[tuple[Api, Api]]:
    """A real API server and ours."""
    with running_server() as server:
        yield Api.of_kubeconfig(control_plane.kubeconfig), Api.of_kubeconfig(server.kubeconfig)


@given(steps=sequences)
@settings(
    max_examples=ROUND,
    deadline=None,
    derandomize=True,  # the same sequences every time
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_generated_sequences_are_answered_alike(both: tuple[Api, Api], steps: list[Step]) -> None:
    real, ours = both
    expected = apply_requests.play(real, steps)
    found = apply_requests.play(ours, steps)
    for step, wanted, got in zip(steps, expected, found, strict=True):
        assert got == wanted, step

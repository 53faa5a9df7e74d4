"""What a real kube-apiserver answered, asked of ours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ..server_process import ServerProcess

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"

#: What a case may need that we do not have: the last one is a server without its controllers.
LACKING = {"ssa", "rbac", "impersonate", "bare"}
#: How many cases need one of these; a change here means that the recordings changed.
LACKING_CASES = 26

#: Cases that fail for a reason, by topic and name.
EXCEPTIONS = {
    "kubectl-flows/diff": "its later steps are server-side apply, though it does not say so",
}


@pytest.fixture(scope="module")
def replayer() -> ModuleType:
    file = GOLDEN / "replay.py"
    if not file.exists():
        pytest.skip("the recordings of a real kube-apiserver are not here")
    spec = importlib.util.spec_from_file_location("golden_replay", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # one case must
async def test_every_recorded_case_that_applies_is_answered_alike(
    server: ServerProcess, replayer: ModuleType
) -> None:
    results = await replayer.replay(
        server.url, server.token, ca=str(server.ca), without=LACKING, jobs=6
    )
    by_outcome: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for result in results:
        by_outcome[result.outcome].append(f"{result.topic}/{result.name}")
    problems = "\n".join(
        f"{r.topic}/{r.name}: {r.why}\n" + "\n".join(r.problems)
        for r in results
        if r.outcome == "failed" and f"{r.topic}/{r.name}" not in EXCEPTIONS
    )
    assert set(by_outcome["failed"]) == set(EXCEPTIONS), problems
    assert len(by_outcome["skipped"]) == LACKING_CASES
    assert len(by_outcome["passed"]) == len(results) - LACKING_CASES - len(EXCEPTIONS)

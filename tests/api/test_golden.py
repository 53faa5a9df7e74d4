"""What a real kube-apiserver answered, asked of ours."""

from __future__ import annotations

import pytest

from .. import golden
from ..server_process import ServerProcess

#: What a case may need that we do not have: the last one is a server without its controllers.
LACKING = {"rbac", "impersonate", "bare"}
#: How many cases need one of these; a change here means that the recordings changed.
LACKING_CASES = 10

#: Cases that fail for a reason, by topic and name.
EXCEPTIONS: dict[str, str] = {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # one case must
async def test_every_recorded_case_that_applies_is_answered_alike(server: ServerProcess) -> None:
    results = await golden.replayer().replay(
        server.url, server.token, ca=str(server.ca), without=LACKING, jobs=6
    )
    found = golden.by_outcome(results)
    assert found["failed"] == set(EXCEPTIONS), golden.problems(results, set(EXCEPTIONS))
    assert len(found["skipped"]) == LACKING_CASES
    assert len(found["passed"]) == len(results) - LACKING_CASES - len(EXCEPTIONS)

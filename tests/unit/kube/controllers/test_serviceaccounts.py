from __future__ import annotations

from livevirt.kube.controllers.serviceaccounts import wanted

ACTIVE = {"metadata": {"name": "n"}}
GOING = {"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def test_a_namespace_without_an_account_gets_one() -> None:
    account = wanted(ACTIVE, present=False)
    assert account is not None
    assert account["metadata"] == {"name": "default", "namespace": "n"}


def test_a_namespace_with_one_or_on_its_way_out_or_gone_gets_none() -> None:
    assert wanted(ACTIVE, present=True) is None
    assert wanted(GOING, present=False) is None
    assert wanted(None, present=False) is None

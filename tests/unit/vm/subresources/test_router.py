"""What is offered of subresources.kubevirt.io is served."""

from __future__ import annotations

from typing import cast

from livevirt.vm.kinds.subresources import BY_PATH, SUBRESOURCES, UNSERVED
from livevirt.vm.subresources import router
from livevirt.vm.subresources.router import VERBS, GuestAccess


def test_every_subresource_has_a_verb() -> None:
    served = VERBS.keys() | router.guest_verbs(cast(GuestAccess, None)).keys()
    assert [
        a.path for a in SUBRESOURCES if (a.resource, a.name.partition("/")[0]) not in served
    ] == []


def test_what_is_not_served_is_not_offered() -> None:
    assert UNSERVED.keys().isdisjoint(BY_PATH)

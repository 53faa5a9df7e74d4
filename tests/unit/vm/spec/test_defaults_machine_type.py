from __future__ import annotations

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.spec.defaults import kept

from ..cases import a_spec as a_template
from ..cases import judged, rulings, running, with_defaults

EARLIER = {"type": "pc-q35-7.2"}


def a_spec(type_: str | None = None) -> Object:
    return {"domain": {"devices": {}, **({"machine": {"type": type_}} if type_ else {})}}


RULES: dict[str, tuple[str | None, Object | None, str | None]] = {
    "given no start before, then the cluster decides": (None, None, None),
    "given no start before, then an alias stays one": ("q35", None, "q35"),
    "given a start and no type named, then it is kept": (None, EARLIER, "pc-q35-7.2"),
    "given a start and an alias, then it is kept": ("q35", EARLIER, "pc-q35-7.2"),
    "given a start and another type named, then that wins": ("pc-q35-6.2", EARLIER, "pc-q35-6.2"),
    "given a start of which no type is known, then the cluster decides": (None, {}, None),
}


@pytest.mark.parametrize(("named", "earlier", "got"), RULES.values(), ids=RULES)
def test_kept(named: str | None, earlier: Object | None, got: str | None) -> None:
    spec = a_spec(named)
    found = kept(spec, earlier)
    assert (found["domain"].get("machine") or {}).get("type") == got
    assert found["domain"]["devices"] == {}
    assert spec == a_spec(named), "it is somebody else's"


# ---------------------------------------------------------------- edits of a guest that runs

TYPE = "domain.machine.type"

#: The guest runs on EARLIER, which its VM kept; the cluster's default has become 6.2.
EDITS: dict[str, tuple[str | None, str | None, bool]] = {
    "given the type is left open, then nothing": (None, None, False),
    "given the alias is written where it was open, then nothing": (None, "q35", False),
    "given the type it has is written out, then nothing": (None, "pc-q35-7.2", False),
    "given the type it has is no longer named, then nothing": ("pc-q35-7.2", None, False),
    "given the cluster's default is written, then a restart": (None, "pc-q35-6.2", True),
    "given another type, then a restart": ("pc-q35-7.2", "pc-q35-6.1", True),
}


@pytest.mark.parametrize(("before", "after", "restarts"), EDITS.values(), ids=EDITS)
def test_an_edit_is_judged_by_the_type_the_guest_has(
    before: str | None, after: str | None, restarts: bool
) -> None:
    was, wanted = (
        a_template(**({"domain__machine": {"type": each}} if each else {}))
        for each in (before, after)
    )
    settings = with_defaults(machine_type="pc-q35-6.2")
    vmi = running(kept(was, EARLIER), settings, machine=EARLIER)
    found = rulings(judged(was, wanted, config=settings, vmi=vmi))
    assert list(found) == ([TYPE] if restarts else [])

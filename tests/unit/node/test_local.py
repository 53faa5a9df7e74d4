"""What a node holds of its pods is found by uid, by name and by VMI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.control.cache import Key
from livevirt.node.local import Locals
from livevirt.node.process_runtime import Directories, ProcessRuntime

NOWHERE = Path("/nonexistent")
PODS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans()), max_size=12
)


def no_locals() -> Locals:
    nothing: Any = None
    runtime = ProcessRuntime(Directories(NOWHERE, NOWHERE), nothing, nothing, nothing, nothing)
    return Locals(runtime, lambda _: None)


@given(PODS)
def test_what_is_held_is_found_and_what_was_let_go_is_not(
    pods: list[tuple[str, str, bool]],
) -> None:
    locals_ = no_locals()
    kept = {}
    for number, (name, vmi, removed) in enumerate(pods):
        local = locals_.hold(Key("default", name), str(number + 1), vmi)
        if removed:
            locals_.remove(local)
        else:
            kept[local.folder.uid] = (local, name, vmi)
    assert list(locals_) == [local for local, _, _ in kept.values()]
    for number, _ in enumerate(pods, 1):
        expected = kept.get(str(number))
        assert locals_.get(str(number)) is (expected[0] if expected else None)
    for wanted in "abc":
        found = locals_.of_key(Key("default", wanted))
        assert found == [local for local, name, _ in kept.values() if name == wanted]
    for wanted in "xyz":
        found = locals_.of_vmi(wanted)
        assert found == [local for local, _, vmi in kept.values() if vmi == wanted]


def test_what_is_looked_at_can_be_let_go_meanwhile() -> None:
    locals_ = no_locals()
    for uid in ("1", "2"):
        locals_.hold(Key("default", "web"), uid, "vmi")
    for local in locals_.of_key(Key("default", "web")):
        locals_.remove(local)
    assert not list(locals_)
    assert not locals_.of_vmi("vmi")

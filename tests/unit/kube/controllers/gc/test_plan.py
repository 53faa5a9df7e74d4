from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.controllers.gc.plan import (
    FOREGROUND,
    ORPHAN,
    Delete,
    Facts,
    Item,
    Look,
    Owner,
    SetFinalizers,
    SetOwners,
    Step,
    plan,
)
from livevirt.kube.controllers.stored import Header, OwnerReference
from livevirt.kube.store import Key

ALIVE, GONE, WAITING = Owner.ALIVE, Owner.GONE, Owner.WAITING


def owner(name: str, *, blocks: bool | None = None) -> OwnerReference:
    return OwnerReference("v1", "ConfigMap", name, f"uid-{name}", block_owner_deletion=blocks)


def an_object(
    name: str, *owners: OwnerReference, deleting: bool = False, finalizers: tuple[str, ...] = ()
) -> Item:
    deleted = "2026-01-01T00:00:00Z" if deleting else None
    header = Header(f"uid-{name}", "7", finalizers or None, owners or None, deleted)
    return Item(Key("configmaps", "ns", name), header)


CHILD = an_object("child", owner("me"))
BLOCKING = an_object("child", owner("me", blocks=True))
GOING = an_object("child", owner("me", blocks=True), deleting=True, finalizers=(FOREGROUND,))
TWO = an_object("me", owner("a"), owner("b"))
MINE = an_object("me", owner("a", blocks=True))
EMPTYING = an_object("me", deleting=True, finalizers=("x/hold", FOREGROUND))
ORPHANING = an_object("me", deleting=True, finalizers=(ORPHAN, "x/hold"))


def delete(propagation: str) -> Delete:
    return Delete(Key("configmaps", "ns", "me"), "uid-me", propagation)


RULES: dict[str, tuple[Facts, list[Step]]] = {
    "given no owner, then nothing": (Facts(an_object("me"), (), ()), []),
    "given a living owner, then nothing": (Facts(MINE, (ALIVE,), ()), []),
    "given only dead owners, then delete": (Facts(TWO, (GONE, GONE), ()), [delete("Background")]),
    "given a dead owner and a living one, then lose the dead one": (
        Facts(TWO, (GONE, ALIVE), ()), [SetOwners(TWO, (owner("b"),))]),
    "given a waiting owner and a living one, then lose the waiting one": (
        Facts(TWO, (ALIVE, WAITING), ()), [SetOwners(TWO, (owner("a"),))]),
    "given a waiting owner, when nobody depends on it, then delete in the background": (
        Facts(MINE, (WAITING,), ()), [delete("Background")]),
    "given a waiting owner, when others depend on it, then delete in the foreground": (
        Facts(MINE, (WAITING,), (CHILD,)), [delete("Foreground")]),
    "given a waiting owner that is waited for, then stop blocking it": (
        Facts(MINE, (WAITING,), (GOING,)),
        [SetOwners(MINE, (owner("a", blocks=False),)), delete("Foreground")]),
    "given a finalizer for orphans, when the owner is dead, then orphan": (
        Facts(an_object("me", owner("a"), finalizers=(ORPHAN,)), (GONE,), ()), [delete("Orphan")]),
    "given it is being deleted, when its owner is dead, then nothing": (
        Facts(an_object("me", owner("a"), deleting=True, finalizers=("x/hold",)), (GONE,), ()), []),
    "given a foreground deletion, when nobody depends on it, then let it go": (
        Facts(EMPTYING, (), ()), [SetFinalizers(EMPTYING, ("x/hold",))]),
    "given a foreground deletion, when a dependent blocks, then send that off and wait": (
        Facts(EMPTYING, (), (BLOCKING,)), [Look(BLOCKING.key)]),
    "given a foreground deletion, when a blocking dependent goes already, then wait": (
        Facts(EMPTYING, (), (GOING,)), []),
    "given a foreground deletion, when a dependent does not block, then send it off at most": (
        Facts(EMPTYING, (), (CHILD,)), [Look(CHILD.key), SetFinalizers(EMPTYING, ("x/hold",))]),
    "given an orphaning deletion, then free the dependents first": (
        Facts(ORPHANING, (), (CHILD,)),
        [SetOwners(CHILD, ()), SetFinalizers(ORPHANING, ("x/hold",))]),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "steps"), RULES.values(), ids=RULES)
def test_plan(seen: Facts, steps: list[Step]) -> None:
    assert plan(seen) == steps


@given(st.lists(st.sampled_from(Owner), min_size=1, max_size=4), st.booleans())
def test_nothing_with_a_living_owner_is_ever_deleted(owners: list[Owner], dependents: bool) -> None:
    names = [f"o{number}" for number in range(len(owners))]
    item = an_object("me", *map(owner, names))
    steps = plan(Facts(item, tuple(owners), (CHILD,) if dependents else ()))
    deleted = any(isinstance(step, Delete) for step in steps)
    assert deleted == (ALIVE not in owners)

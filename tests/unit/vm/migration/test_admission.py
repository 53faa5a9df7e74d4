"""What a migration and a MigrationPolicy must be."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review
from livevirt.vm.admission import RULES
from livevirt.vm.kinds import MIGRATION, MIGRATION_POLICY, VMI
from livevirt.vm.migration.admission import FINALIZER, VMI_NAME

from ..vm_review import COMPONENT, JANE, NOON

UNFIT = {"type": "LiveMigratable", "status": "False", "reason": "Disks", "message": "not shared"}


class Objects:
    """Knows one instance and some migrations."""

    def __init__(self, vmi: Object | None, *migrations: Object) -> None:
        self.vmi, self.migrations = vmi, migrations

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return self.vmi if kind is VMI and name == "web" else None

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return list(self.migrations) if kind is MIGRATION else []


def a_vmi(phase: str = "Running", *listed: Object, **meta: Any) -> Object:
    return {"metadata": {"name": "web", **meta}, "status": {"phase": phase, "conditions": listed}}


def a_migration(phase: str = "", **spec: Any) -> Object:
    return {
        "metadata": {"name": "move", "namespace": "default", "uid": "m1"},
        "spec": {"vmiName": "web", **spec},
        "status": {"phase": phase},
    }


def review(
    new: Object,
    old: Object | None = None,
    read: Objects | None = None,
    user: User = JANE,
    kind: Kind = MIGRATION,
) -> tuple[Object, list[str]]:
    """Return the object as it would be stored, and what is wrong with it."""
    rules = RULES[kind.resource]
    asked = Review(
        "create" if old is None else "update", kind, kind.version, copy.deepcopy(new), old, user,
        read or Objects(a_vmi()), NOON,
    )  # fmt: skip
    rules.default(asked.new)
    rules.prepare(asked)
    return asked.new, [str(error) for error in rules.validate(asked)]


def test_a_new_one_is_labelled_and_held() -> None:
    stored, wrong = review(a_migration())
    assert wrong == []
    assert stored["metadata"]["labels"] == {VMI_NAME: "web"}
    assert stored["metadata"]["finalizers"] == [FINALIZER]


def test_given_a_long_name_then_its_label_is_short() -> None:
    name = "w" * 100
    stored, _ = review(a_migration(vmiName=name))
    assert len(stored["metadata"]["labels"][VMI_NAME]) == 63


REFUSED: dict[str, tuple[Object, Objects, str]] = {
    "no name": (a_migration(vmiName=""), Objects(a_vmi()), "spec.vmiName: Required value"),
    "an unknown instance": (
        a_migration(), Objects(None), 'spec.vmiName: the VMI "default/web" does not exist',
    ),
    "an ended guest": (
        a_migration(), Objects(a_vmi("Succeeded")),
        "spec.vmiName: Cannot migrate VMI in finalized state.",
    ),
    "an instance that goes": (
        a_migration(), Objects(a_vmi(deletionTimestamp="now")),
        "spec.vmiName: Cannot migrate VMI that is being deleted.",
    ),
    "a guest that cannot migrate": (
        a_migration(), Objects(a_vmi("Running", UNFIT)),
        "spec.vmiName: Cannot migrate VMI, Reason: Disks, Message: not shared",
    ),
    "another that is under way": (
        a_migration(), Objects(a_vmi(), a_migration("Running")),
        "spec.vmiName: in-flight migration detected. Active migration job (move)",
    ),
    "another that is new": (
        a_migration(), Objects(a_vmi(), a_migration()), "spec.vmiName: in-flight migration",
    ),
    "another cluster": (
        a_migration(sendTo={"connectURL": "x", "migrationID": "y"}), Objects(a_vmi()),
        "spec.sendTo: migration to or from another cluster",
    ),
    "from another cluster": (
        a_migration(receive={"migrationID": "y"}), Objects(a_vmi()), "spec.receive: migration to",
    ),
    "a priority nobody knows": (
        a_migration(priority="high"), Objects(a_vmi()), "spec.priority: Unsupported value",
    ),
    "a priority of one's own": (
        a_migration(priority="system-critical"), Objects(a_vmi()),
        "spec.priority: only the controllers",
    ),
    "a label that cannot be": (
        a_migration(addedNodeSelector={"a b": "c"}), Objects(a_vmi()),
        "spec.addedNodeSelector: Invalid value",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("new", "read", "why"), REFUSED.values(), ids=REFUSED)
def test_these_are_refused(new: Object, read: Objects, why: str) -> None:
    _, wrong = review(new, read=read)
    assert len(wrong) == 1
    assert wrong[0].startswith(why)


def test_given_others_that_ended_then_it_is_fine() -> None:
    read = Objects(a_vmi(), a_migration("Failed"), a_migration("Running", vmiName="other"))
    assert review(a_migration(), read=read)[1] == []


def test_controllers_may_set_a_priority() -> None:
    assert review(a_migration(priority="user-triggered"), user=COMPONENT)[1] == []


def test_the_spec_stays_as_it_is() -> None:
    _, wrong = review(a_migration(vmiName="other"), a_migration())
    assert wrong == ["spec: update of Migration object's spec is restricted"]


def test_an_update_does_not_ask_again_whether_the_guest_can_migrate() -> None:
    old = a_migration("Running")
    assert review(old, old, Objects(None))[1] == []


def test_the_label_stays_while_it_is_under_way() -> None:
    old, new = a_migration("Running"), a_migration("Running")
    old["metadata"]["labels"] = {VMI_NAME: "web"}
    assert review(new, old)[1][0].startswith("metadata.labels: label kubevirt.io/vmi-name")
    old["status"]["phase"] = "Failed"
    assert review(new, old)[1] == []


def test_only_controllers_write_the_status() -> None:
    old, new = a_migration("Running"), a_migration("Succeeded")
    assert review(new, old)[0]["status"] == {"phase": "Running"}
    assert review(new, old, user=COMPONENT)[0]["status"] == {"phase": "Succeeded"}


def a_policy(**spec: Any) -> Object:
    return {"metadata": {"name": "p"}, "spec": {"selectors": {}, **spec}}


POLICIES = {
    "negative time": ({"completionTimeoutPerGiB": -1}, "spec.completionTimeoutPerGiB: Invalid"),
    "negative bandwidth": ({"bandwidthPerMigration": "-1Mi"}, "spec.bandwidthPerMigration: Inv"),
    "no downtime": ({"maxDowntimeMs": 0}, "spec.maxDowntimeMs: Invalid value: 0: must be between"),
    "too much downtime": ({"maxDowntimeMs": 2000001}, "spec.maxDowntimeMs: Invalid value"),
    "a label that cannot be": (
        {"selectors": {"virtualMachineInstanceSelector": {"a b": "c"}}},
        "spec.selectors.virtualMachineInstanceSelector: Invalid value",
    ),
    "a label of the namespace that cannot be": (
        {"selectors": {"namespaceSelector": {"a": "b c"}}},
        "spec.selectors.namespaceSelector: Invalid value",
    ),
}


@pytest.mark.parametrize(("spec", "why"), POLICIES.values(), ids=POLICIES)
def test_these_policies_are_refused(spec: Object, why: str) -> None:
    _, wrong = review(a_policy(**spec), kind=MIGRATION_POLICY)
    assert len(wrong) == 1
    assert wrong[0].startswith(why)


IDLE = "stored but ignored by livevirt"
STOPS = "there is no post-copy; the guest is stopped when time is up"
WARNED: dict[str, tuple[Object, list[str]]] = {
    "post-copy": ({"allowPostCopy": True}, [f"spec.allowPostCopy: {STOPS}"]),
    "post-copy without disruption": (
        {"allowPostCopy": True, "allowWorkloadDisruption": False}, [f"spec.allowPostCopy: {IDLE}"],
    ),
    "no post-copy": ({"allowPostCopy": False}, []),
    "what is not there yet": ({"experimental": {"a": "b"}}, [f"spec.experimental: {IDLE}"]),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "warnings"), WARNED.values(), ids=WARNED)
def test_given_what_is_not_acted_on_then_a_policy_is_taken_with_a_warning(
    spec: Object, warnings: list[str]
) -> None:
    policy = a_policy(**spec)
    asked = Review("create", MIGRATION_POLICY, "v1alpha1", policy, None, JANE, Objects(None), NOON)
    assert RULES[MIGRATION_POLICY.resource].validate(asked) == []
    assert asked.warnings == warnings


def test_a_policy_may_say_all_or_nothing() -> None:
    full = {
        "selectors": {"namespaceSelector": {"team": "a"}},
        "bandwidthPerMigration": "64Mi",
        "completionTimeoutPerGiB": 0,
        "maxDowntimeMs": 300,
        "allowPostCopy": True,
    }
    assert review(a_policy(), kind=MIGRATION_POLICY)[1] == []
    assert review(a_policy(**full), kind=MIGRATION_POLICY)[1] == []

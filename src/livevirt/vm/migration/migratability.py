"""Whether livevirt may move a guest by itself, and why not if it may not."""

from __future__ import annotations

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.config.settings import Config

LIVE_MIGRATE, EVICT = "LiveMigrate", "Evict"  # the workloadUpdateMethods there are
JOB = "kubevirt.io/migrationJobUID"  # the label of a pod that a guest is to come to
NODE_NAME = "kubevirt.io/nodeName"  # the label of an instance: where its guest is
NOT_ALLOWED = "the KubeVirt object does not list LiveMigrate in workloadUpdateMethods"


def hindrance(vmi: Object, config: Config) -> str:
    """Return what keeps a guest from being moved by itself; empty if nothing does."""
    return unmovable(vmi) if LIVE_MIGRATE in config.update_methods else NOT_ALLOWED


def unmovable(vmi: Object) -> str:
    """Return why a guest cannot be moved by anybody; empty if it can."""
    listed = status_of(vmi).get("conditions")
    found = conditions.find(listed, "LiveMigratable")
    if found is None:
        return "the guest is not known to be live-migratable"
    if found.get("status") == "True":
        return ""
    details = [found[field] for field in ("reason", "message") if found.get(field)]
    return ": ".join(["the guest is not live-migratable", *details])


def moving(vmi: Object | None) -> bool:
    """Return whether a guest has been handed over to a migration that has not ended."""
    state = status_of(vmi).get("migrationState") or {}
    return bool(state) and not state.get("endTimestamp")


def node_of(vmi: Object | None) -> str:
    """Return the name of the node that runs an instance, empty if none does."""
    return str(status_of(vmi).get("nodeName") or "")

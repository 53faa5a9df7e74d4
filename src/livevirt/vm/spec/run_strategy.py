"""When a VM's guest is to run."""

from __future__ import annotations

from livevirt.kube.objects.request import Object

RUN_STRATEGIES = ("Always", "Halted", "Manual", "RerunOnFailure", "Once")


def run_strategy(spec: Object) -> str:
    """Return the run strategy a spec stands for, also by the deprecated `running`."""
    if strategy := spec.get("runStrategy"):
        return str(strategy)
    return "Always" if spec.get("running") else "Halted"

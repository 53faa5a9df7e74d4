"""The controllers of virtual machines, each as a factory that runs it on any API server."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Factory, Runtime
from livevirt.kube.objects import core
from livevirt.vm import kinds
from livevirt.vm.config import controller as config_controller
from livevirt.vm.evacuation.controller import EvacuationController
from livevirt.vm.lifecycle.vm.controller import VirtualMachines
from livevirt.vm.lifecycle.vmi.controller import Instances
from livevirt.vm.lifecycle.vmi.controller import Sources as InstanceSources
from livevirt.vm.lifecycle.vmi.pod_runtime import EMBEDDED, PodRuntime
from livevirt.vm.migration.caches import Sources as MigrationSources
from livevirt.vm.migration.controller import MigrationController
from livevirt.vm.volumes import attachment_controller
from livevirt.vm.volumes.attachment_controller import Attachments
from livevirt.vm.workload_update.controller import WorkloadUpdateController

#: KubeVirt's names of the components; events carry them.
VIRTUAL_MACHINE = "virtualmachine-controller"
INSTANCE = "virtualmachineinstance-controller"
MIGRATION = "virtualmachineinstancemigration-controller"
WORKLOAD_UPDATE = "workload-update-controller"
EVACUATION = "evacuation-controller"


class _Running(Protocol):
    async def run(self) -> None: ...


async def _run(recorder: Recorder, controller: _Running, name: str) -> None:
    """Run a controller and the recorder of its events until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name=f"{name}-events")
        group.create_task(controller.run(), name=name)


async def virtual_machines(runtime: Runtime) -> None:
    """Run the controller of VirtualMachines."""
    client = runtime.client.for_component(VIRTUAL_MACHINE)
    recorder = Recorder(client, VIRTUAL_MACHINE, runtime.now)
    controller = VirtualMachines(client, runtime.now, recorder, runtime.informers)
    await _run(recorder, controller, "vm")


async def instances(runtime: Runtime, pods: PodRuntime = EMBEDDED) -> None:
    """Run the controller of VirtualMachineInstances."""
    client = runtime.client.for_component(INSTANCE)
    recorder = Recorder(client, VIRTUAL_MACHINE, runtime.now)
    of = runtime.informers.of
    sources = InstanceSources(
        instances=of(kinds.VMI),
        pods=of(core.POD),
        claims=of(core.CLAIM),
        volumes=of(kinds.DATA_VOLUME),
        quotas=of(core.QUOTA),
        limits=of(core.LIMIT_RANGE),
        namespaces=of(core.NAMESPACE),
        settings=of(kinds.KUBEVIRT),
        priority_classes=of(core.PRIORITY_CLASS),
    )
    await _run(recorder, Instances(client, runtime.now, recorder, sources, pods), "vmi")


async def migrations(runtime: Runtime, pods: PodRuntime = EMBEDDED) -> None:
    """Run the controller of VirtualMachineInstanceMigrationController."""
    client = runtime.client.for_component(MIGRATION)
    recorder = Recorder(client, MIGRATION, runtime.now)
    of = runtime.informers.of
    sources = MigrationSources(
        migrations=of(kinds.MIGRATION),
        instances=of(kinds.VMI),
        pods=of(core.POD),
        policies=of(kinds.MIGRATION_POLICY),
        quotas=of(core.QUOTA),
        namespaces=of(core.NAMESPACE),
        kubevirts=of(kinds.KUBEVIRT),
    )
    controller = MigrationController(client, runtime.now, recorder, sources, pods)
    await _run(recorder, controller, "migration")


async def workload_updates(runtime: Runtime, pods: PodRuntime = EMBEDDED) -> None:
    """Run the workload updater."""
    client = runtime.client.for_component(WORKLOAD_UPDATE)
    recorder = Recorder(client, WORKLOAD_UPDATE, runtime.now)
    controller = WorkloadUpdateController(client, runtime.now, recorder, runtime.informers, pods)
    await _run(recorder, controller, "workload-update")


async def evacuations(runtime: Runtime) -> None:
    """Run the evacuation controller."""
    client = runtime.client.for_component(EVACUATION)
    recorder = Recorder(client, EVACUATION, runtime.now)
    controller = EvacuationController(client, recorder, runtime.informers)
    await _run(recorder, controller, "evacuation")


async def attachments(runtime: Runtime, pods: PodRuntime) -> None:
    """Run the controller of attachment pods, which only clusters need."""
    client = runtime.client.for_component(attachment_controller.NAME)
    await Attachments(client, runtime.now, runtime.informers, pods.image).run()


def factories(pods: PodRuntime) -> tuple[Factory, ...]:
    """Return the factories of all controllers, for pods of a runtime."""
    return (
        virtual_machines,
        partial(instances, pods=pods),
        config_controller.run,
        partial(migrations, pods=pods),
        partial(workload_updates, pods=pods),
        evacuations,
    )


ALL = factories(EMBEDDED)

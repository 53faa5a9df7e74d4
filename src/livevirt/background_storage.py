"""Builds the controllers of this package from the parts all controllers share."""

from __future__ import annotations

import asyncio
from pathlib import Path

from livevirt.files.directories import Directories
from livevirt.kube.control.events import Recorder
from livevirt.kube.controllers.embedded import Factory, Shared
from livevirt.kube.controllers.storage.claim_controller import Claims
from livevirt.kube.controllers.storage.volume_controller import Volumes
from livevirt.kube.objects import core
from livevirt.node.importing.importer import Images
from livevirt.vm import kinds
from livevirt.vm.datavolumes.controller import DataVolumes
from livevirt.vm.volumes.usage import Usage


def storage(root: Path, images: Images) -> Factory:
    """Return what runs the controllers of claims, volumes and DataVolumes below `root`."""

    async def run(shared: Shared) -> None:
        of = shared.informers.of
        claims, volumes = of(core.CLAIM), of(core.VOLUME)
        classes, datavolumes = of(core.STORAGE_CLASS), of(kinds.DATA_VOLUME)
        usage = Usage(of(core.POD), of(kinds.VMI))
        directories = Directories(root)
        recorder = Recorder(shared.client, "livevirt-storage", shared.now)
        parts = (shared.client, recorder, directories, usage)
        running = (
            Claims(*parts, claims=claims, volumes=volumes, classes=classes),
            Volumes(*parts, claims=claims, volumes=volumes),
            DataVolumes(
                shared.client, shared.now, recorder, directories, usage, images,
                datavolumes=datavolumes, claims=claims, classes=classes,
            ),
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run(), name="storage-events")
            for controller in running:
                group.create_task(controller.run(), name=type(controller).__name__.lower())

    return run

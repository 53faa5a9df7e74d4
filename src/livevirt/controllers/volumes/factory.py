"""Builds the controllers of this package from the parts all controllers share."""

from __future__ import annotations

import asyncio
from pathlib import Path

from livevirt.api import registry
from livevirt.control.events import Recorder
from livevirt.controllers.embedded import Factory, Shared
from livevirt.controllers.volumes.claim_controller import Claims
from livevirt.controllers.volumes.datavolume_controller import DataVolumes
from livevirt.controllers.volumes.directories import Directories
from livevirt.controllers.volumes.importer import Images
from livevirt.controllers.volumes.usage import Usage
from livevirt.controllers.volumes.volume_controller import Volumes


def storage(root: Path, images: Images) -> Factory:
    """Return what runs the controllers of claims, volumes and DataVolumes below `root`."""

    async def run(shared: Shared) -> None:
        of = shared.informers.of
        claims, volumes = of(registry.CLAIM), of(registry.VOLUME)
        classes, datavolumes = of(registry.STORAGE_CLASS), of(registry.DATA_VOLUME)
        usage = Usage(of(registry.POD), of(registry.VMI))
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

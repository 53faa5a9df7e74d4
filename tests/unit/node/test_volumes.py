import asyncio
import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from livevirt.errors import NotFound
from livevirt.files import loop_device, raw_file
from livevirt.files.disk_space import Promises
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.node.images import ImageStore
from livevirt.node.volumes import Prepared, VolumeProblem, Volumes, claim_size, unready
from livevirt.qemu.disk import Image
from livevirt.vm import kinds as virt_kinds

MIB = 1024 * 1024


class Objects:
    """A client that has these objects and no others."""

    def __init__(self, objects: dict[tuple[str, str], Any]) -> None:
        self._objects = objects

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Any:
        try:
            return self._objects[kind.kind, name]
        except KeyError:
            raise NotFound(f"{kind.kind} {name} not found") from None


def a_claim(phase: str = "Bound", size: str = "8Mi") -> Any:
    return {
        "metadata": {"name": "data"},
        "spec": {"volumeName": "pv1", "resources": {"requests": {"storage": size}}},
        "status": {"phase": phase, "capacity": {"storage": "16Mi"}},
    }


def a_volume(path: Path | str) -> Any:
    return {"metadata": {"name": "pv1"}, "spec": {"local": {"path": str(path)}}}


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    (tmp_path / "volumes" / "one").mkdir(parents=True)
    (tmp_path / "disks").mkdir()
    return tmp_path


async def prepared(roots: Path, wanted: Any, **objects: Any) -> Prepared:
    kinds = {
        "claim": core.CLAIM,
        "data": virt_kinds.DATA_VOLUME,
        "secret": core.SECRET,
        "volume": core.VOLUME,
    }
    known = {(kinds[key].kind, each["metadata"]["name"]): each for key, each in objects.items()}
    client: Any = Objects(known)
    volumes = Volumes(
        client, ImageStore(roots / "images"), (roots / "volumes",), None, Promises([roots])
    )
    vmi = {"metadata": {"namespace": "ns"}, "spec": {"volumes": [{"name": "v", **wanted}]}}
    found = await volumes.prepare(vmi, roots / "disks", {"local-hostname": "web"})
    return found["v"]


CLAIMED = {"persistentVolumeClaim": {"claimName": "data"}}


async def test_an_empty_disk_has_its_size_and_takes_no_room(roots: Path) -> None:
    found = await prepared(roots, {"emptyDisk": {"capacity": "100.5Mi"}})
    size = os.stat(found.image.path)
    assert (size.st_size, size.st_blocks) == (100 * MIB, 0)
    with pytest.raises(VolumeProblem, match="the size for volume v is too low"):
        await prepared(roots, {"emptyDisk": {"capacity": "1k"}})


@pytest.mark.wording
async def test_given_no_such_image_then_the_message_says_how_to_import_it(roots: Path) -> None:
    with pytest.raises(VolumeProblem, match="livevirt image import PATH --name some/os") as caught:
        await prepared(roots, {"containerDisk": {"image": "some/os"}})
    assert caught.value.reason == "ErrImagePull"


async def test_given_a_bound_claim_then_its_disk_is_made_once_and_then_kept(roots: Path) -> None:
    objects = {"claim": a_claim(), "volume": a_volume(roots / "volumes" / "one")}
    found = await prepared(roots, CLAIMED, **objects)
    disk = roots / "volumes" / "one" / "disk.img"
    assert found.image.path == str(disk)
    assert disk.stat().st_size == 8 * MIB
    disk.write_bytes(b"kept" * MIB * 3)
    await prepared(roots, {"dataVolume": {"name": "data"}}, **objects)
    assert disk.read_bytes() == b"kept" * MIB * 3


async def test_given_the_claim_has_grown_then_the_disk_does_at_the_next_start(roots: Path) -> None:
    disk = roots / "volumes" / "one" / "disk.img"
    disk.write_bytes(b"kept")
    objects = {"claim": a_claim(), "volume": a_volume(roots / "volumes" / "one")}
    await prepared(roots, CLAIMED, **objects)
    assert disk.stat().st_size == 8 * MIB
    assert disk.read_bytes().startswith(b"kept\0")


async def test_an_ephemeral_volume_leaves_the_claim_as_it_is(roots: Path) -> None:
    objects = {"claim": a_claim(), "volume": a_volume(roots / "volumes" / "one")}
    found = await prepared(roots, {"ephemeral": CLAIMED}, **objects)
    assert found.image.path == str(roots / "disks" / "v.qcow2")
    assert found.image.backing is not None
    assert found.image.backing.path.endswith("/one/disk.img")


def a_filled_claim() -> Any:
    """Return a claim of the DataVolume of its name."""
    claim = a_claim()
    claim["metadata"]["ownerReferences"] = [{"uid": "dv"}]
    return claim


def a_data_volume(phase: str) -> Any:
    return {"metadata": {"name": "data", "uid": "dv"}, "status": {"phase": phase}}


WAITS: dict[str, tuple[dict[str, Any], str]] = {
    "no claim": ({}, "FailedPvcNotFound"),
    "not bound": ({"claim": a_claim("Pending")}, "PVCNotReady"),
    "bound, and still being filled": (
        {"claim": a_filled_claim(), "data": a_data_volume("ImportInProgress")},
        "DataVolumeNotReady",
    ),
    "never filled": (
        {"claim": a_filled_claim(), "data": a_data_volume("Failed")}, "DataVolumeFailed",
    ),
}  # fmt: skip
SOURCES = {
    "claim": CLAIMED,
    "data volume": {"dataVolume": {"name": "data"}},
    "ephemeral": {"ephemeral": CLAIMED},
}


@pytest.mark.parametrize("wanted", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(("objects", "reason"), WAITS.values(), ids=WAITS)
async def test_a_claim_that_is_not_ready_is_waited_for(
    roots: Path, objects: dict[str, Any], reason: str, wanted: dict[str, Any]
) -> None:
    volume = a_volume(roots / "volumes" / "one")
    with pytest.raises(VolumeProblem) as caught:
        await prepared(roots, wanted, volume=volume, **objects)
    assert caught.value.reason == reason
    assert not (roots / "volumes" / "one" / "disk.img").exists()


async def test_a_claim_is_used_once_it_is_filled(roots: Path) -> None:
    volume, data = a_volume(roots / "volumes" / "one"), a_data_volume("Succeeded")
    objects = {"claim": a_filled_claim(), "volume": volume, "data": data}
    assert (await prepared(roots, CLAIMED, **objects)).image.path.endswith("/one/disk.img")


ELSEWHERE = ("/etc", "{root}/volumes/../disks", "{root}/volumes/link", "", "{root}/volumes-too")


@pytest.mark.parametrize("path", ELSEWHERE)
async def test_a_volume_outside_the_known_roots_is_never_opened(roots: Path, path: str) -> None:
    (roots / "volumes" / "link").symlink_to(roots / "disks")
    (roots / "volumes-too").mkdir()
    volume = a_volume(path.format(root=roots))
    with pytest.raises(VolumeProblem):
        await prepared(roots, CLAIMED, claim=a_claim(), volume=volume)
    assert list((roots / "disks").iterdir()) == []


async def test_given_somebody_grows_the_image_then_only_this_volume_waits(roots: Path) -> None:
    folder = roots / "volumes" / "one"
    raw_file.create(folder / "disk.img", MIB)
    with (folder / "disk.img").open() as image:
        fcntl.flock(image, fcntl.LOCK_EX)
        # It is let go at last, for a loop that waits for it could do so for ever.
        rescue = threading.Timer(30, fcntl.flock, (image, fcntl.LOCK_UN))
        rescue.start()
        waiting = prepared(roots, CLAIMED, claim=a_claim(), volume=a_volume(folder))
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0.05)
        others_go_on = not task.done()
        rescue.cancel()
        fcntl.flock(image, fcntl.LOCK_UN)
        async with asyncio.timeout(30):
            found = await task
        rescue.join()
    assert others_go_on
    assert os.stat(found.image.path).st_size == 8 * MIB


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_a_disk_that_is_no_regular_file_is_refused(roots: Path, kind: str) -> None:
    disk = roots / "volumes" / "one" / "disk.img"
    secret = roots / "secret"
    secret.write_text("secret")
    match kind:
        case "link":
            disk.symlink_to(secret)
        case "pipe":
            os.mkfifo(disk)
        case "folder":
            disk.mkdir()
    with pytest.raises(VolumeProblem) as caught:
        await prepared(roots, CLAIMED, claim=a_claim(), volume=a_volume(roots / "volumes" / "one"))
    assert caught.value.reason == "FailedMount"
    assert secret.read_text() == "secret"


async def test_given_a_secret_is_missing_then_the_container_cannot_be_configured(
    roots: Path,
) -> None:
    source = {"cloudInitNoCloud": {"secretRef": {"name": "seed"}}}
    with pytest.raises(VolumeProblem) as caught:
        await prepared(roots, source)
    assert caught.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(("asked", "size"), [("8Mi", 8), ("1Gi", 16), ("9000000", 8)])
def test_a_disk_is_as_large_as_asked_for_or_as_there_is_room(asked: str, size: int) -> None:
    assert claim_size(a_claim(size=asked)) == size * MIB


@pytest.mark.parametrize("given", [{}, {"readOnly": False}, {"readOnly": True}])
async def test_given_a_claim_may_only_be_read_then_no_disk_on_it_is_written(
    roots: Path, given: dict[str, bool]
) -> None:
    objects = {"claim": a_claim(), "volume": a_volume(roots / "volumes" / "one")}
    wanted = {"persistentVolumeClaim": {"claimName": "data", **given}}
    assert (await prepared(roots, wanted, **objects)).readonly is given.get("readOnly", False)


# ---------------------------------------------------------------- what may come and go

HOT = {"persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
IMPORTING = {"metadata": {"uid": "dv"}, "status": {"phase": "ImportInProgress", "progress": "12%"}}


def imported(phase: str, reason: str, message: str) -> Any:
    """Return a DataVolume whose import stands so."""
    running = {"type": "Running", "status": "False", "reason": reason, "message": message}
    return {"status": {"phase": phase, "progress": "N/A", "conditions": [running]}}


UNREADY: dict[str, tuple[Any, Any, tuple[str, str] | None]] = {
    "no claim": (None, None, ("FailedPvcNotFound", "PVC data not found")),
    "not bound": (a_claim("Pending"), None, ("PVCNotReady", "PVC data is in phase ClaimPending")),
    "lost": (a_claim("Lost"), None, ("PVCNotReady", "PVC data is in phase Lost")),
    "imported": (
        a_claim(), IMPORTING,
        ("DataVolumeNotReady", "DataVolume data is in phase ImportInProgress, 12% done"),
    ),
    "an image that is too large": (
        a_claim(), imported("Failed", "Error", "the image holds a disk of 9 bytes: too large"),
        ("DataVolumeFailed",
         "DataVolume data is in phase Failed: the image holds a disk of 9 bytes: too large"),
    ),
    "no space for the import": (
        a_claim(), imported("ImportInProgress", "Error", "no space left below /volumes"),
        ("DataVolumeNotReady",
         "DataVolume data is in phase ImportInProgress: no space left below /volumes"),
    ),
    "an import that waits for its turn": (
        a_claim(), imported("ImportScheduled", "Pending", "waits for its turn"),
        ("DataVolumeNotReady", "DataVolume data is in phase ImportScheduled"),
    ),
    "about to be imported": (
        None, {"metadata": {}}, ("DataVolumeNotReady", "DataVolume data is in phase Pending"),
    ),
    "ready": (a_claim(), {"status": {"phase": "Succeeded"}}, None),
    "ready, and nobody fills it": (a_claim(), None, None),
}  # fmt: skip


@pytest.mark.parametrize(("claim", "data", "why"), UNREADY.values(), ids=UNREADY)
def test_what_a_claim_waits_for(claim: Any, data: Any, why: tuple[str, str] | None) -> None:
    found = unready("data", claim, data)
    assert (found and (found.reason, str(found))) == why


def some_volumes(roots: Path, *objects: tuple[Kind, Any]) -> Volumes:
    known = {(kind.kind, each["metadata"]["name"]): each for kind, each in objects}
    client: Any = Objects(known)
    return Volumes(
        client, ImageStore(roots / "images"), (roots / "volumes",), None, Promises([roots])
    )


def bound(roots: Path) -> list[tuple[Kind, Any]]:
    volume = a_volume(roots / "volumes" / "one")
    return [(core.CLAIM, a_claim()), (core.VOLUME, volume)]


FULL = {
    "no space": (OSError(errno.ENOSPC, "No space left on device"), "DiskFull", "free some"),
    "no quota": (OSError(errno.EDQUOT, "Disk quota exceeded"), "DiskFull", "free some"),
    "no right": (PermissionError(errno.EACCES, "Permission denied"), "FailedMount", "Permission"),
}


@pytest.mark.parametrize(("error", "reason", "words"), FULL.values(), ids=FULL)
async def test_given_the_disk_cannot_be_made_then_it_says_why(
    roots: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str, words: str
) -> None:
    def ensure(path: Path, size: int) -> None:
        raise error

    monkeypatch.setattr(raw_file, "ensure", ensure)
    with pytest.raises(VolumeProblem, match=words) as caught:
        await some_volumes(roots, *bound(roots)).attachable("ns", HOT)
    assert caught.value.reason == reason
    assert "PVC data" in str(caught.value)


@pytest.mark.parametrize("problem", ["", "/dev/loop-control cannot be opened"])
async def test_a_block_claim_is_a_device_where_there_are_loop_devices(
    roots: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    released: list[Path] = []
    monkeypatch.setattr(loop_device, "problem", lambda: problem)
    monkeypatch.setattr(loop_device, "attach", lambda file: file.with_suffix(".dev"))
    monkeypatch.setattr(loop_device, "release", released.append)
    objects = bound(roots)
    objects[0][1]["spec"]["volumeMode"] = "Block"
    volumes, disk = some_volumes(roots, *objects), roots / "volumes" / "one" / "disk.img"
    if problem:
        with pytest.raises(VolumeProblem, match=problem):
            await volumes.attachable("ns", HOT)
        return
    found = await volumes.attachable("ns", HOT)
    assert found.image == Image(str(disk.with_suffix(".dev")), block=True)
    assert disk.stat().st_size == 8 * MIB
    volumes.release(found)
    assert released == [disk]


async def test_an_import_of_the_claim_s_own_is_waited_for_and_a_namesake_s_is_not(
    roots: Path,
) -> None:
    importing = {**IMPORTING, "metadata": {"name": "data", "uid": "dv"}}
    objects = [*bound(roots), (virt_kinds.DATA_VOLUME, importing)]
    assert await some_volumes(roots, *objects).attachable("ns", HOT)
    objects[0][1]["metadata"]["ownerReferences"] = [{"uid": "dv"}]
    with pytest.raises(VolumeProblem, match="12% done"):
        await some_volumes(roots, *objects).attachable("ns", HOT)


ON_SCSI, ON_SATA = ({"name": "hot", "disk": {"bus": bus}} for bus in ("scsi", "sata"))
DRIVE, EMPTY = {"name": "hot", "cdrom": {"bus": "sata"}}, {"name": "empty"}


@pytest.mark.parametrize(
    ("disks", "waits"),
    [
        ([ON_SCSI, EMPTY], True),
        ([EMPTY, ON_SCSI], False),
        ([EMPTY, ON_SATA], True),
        ([EMPTY, DRIVE], False),
    ],
    ids=["the guest boots from it", "it can come later", "its bus takes no more", "it is a disc"],
)
async def test_a_start_waits_for_a_hotpluggable_volume_only_if_it_cannot_come_later(
    roots: Path, disks: list[Any], waits: bool
) -> None:
    volumes = [{"name": "hot", **HOT}, {"name": "empty", "emptyDisk": {"capacity": "1Mi"}}]
    vmi = {
        "metadata": {"namespace": "ns"},
        "spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}},
    }
    if waits:
        with pytest.raises(VolumeProblem, match="PVC data not found"):
            await some_volumes(roots).prepare(vmi, roots / "disks", {})
    else:
        assert set(await some_volumes(roots).prepare(vmi, roots / "disks", {})) == {"empty"}
    found = await some_volumes(roots, *bound(roots)).prepare(vmi, roots / "disks", {})
    assert set(found) == {"hot", "empty"}

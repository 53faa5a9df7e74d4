"""One VM with a disk of every kind, so that one boot shows them all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pycdlib

from .guest_host import IMAGE, GuestHost, Object, a_vm, until
from .web_site import serving

NAME = "disks"
TEXT = b"written by the host\n"
ON_DISC = b"pressed on a disc\n"
FETCHED = b"fetched from a web site\n"
MiB = 1 << 20
#: A word of the kernel's command line in the image, and what it is in the disk to be booted.
IN_IMAGE, IN_BOOTED = b"quiet loglevel=2", b"quiet loglevel=3"

_AT_ONCE = {"annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"}}


def _disk(name: str, bus: str, **more: Any) -> Object:
    return {"name": name, "disk": {"bus": bus}, "serial": name.upper(), **more}


#: In the order of the manifest, which is not the boot order.
DISKS: list[Object] = [
    _disk("container", "scsi", bootOrder=2),
    _disk("empty", "sata"),
    _disk("claim", "virtio", cache="writethrough", io="threads"),
    _disk("blank", "scsi", cache="none", io="native"),
    _disk("clone", "sata"),
    _disk("ephemeral", "virtio"),
    {"name": "locked", "disk": {"bus": "virtio", "readonly": True}, "serial": "LOCKED"},
    _disk("kept", "scsi"),
    {"name": "disc", "cdrom": {"bus": "sata"}, "serial": "DISC"},
    {"name": "cloud", "cdrom": {"bus": "scsi"}, "serial": "CLOUD"},
    _disk("fetched", "scsi"),
    _disk("imported", "virtio", bootOrder=1),
]
VOLUMES: list[Object] = [
    {"name": "container", "containerDisk": {"image": IMAGE}},
    {"name": "empty", "emptyDisk": {"capacity": "24Mi"}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "disks-claim"}},
    {"name": "blank", "dataVolume": {"name": "disks-blank"}},
    {"name": "clone", "dataVolume": {"name": "disks-clone"}},
    {"name": "ephemeral", "ephemeral": {"persistentVolumeClaim": {"claimName": "disks-filled"}}},
    {"name": "locked", "persistentVolumeClaim": {"claimName": "disks-locked"}},
    {
        "name": "kept",
        "persistentVolumeClaim": {"claimName": "disks-filled", "readOnly": True},
    },
    {"name": "disc", "persistentVolumeClaim": {"claimName": "disks-disc"}},
    {
        "name": "cloud",
        "cloudInitNoCloud": {"userData": "#cloud-config\nhostname: many-disks\n"},
    },
    {"name": "fetched", "dataVolume": {"name": "disks-fetched"}},
    {"name": "imported", "dataVolume": {"name": "disks-imported"}},
]


def data_volume(name: str, source: Object, size: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": name, **metadata},
        "spec": {"source": source, "storage": {"resources": {"requests": {"storage": size}}}},
    }


def manifests() -> list[Object]:
    """Return the VM and what it uses, but for the claims that are filled from files."""
    vm = a_vm(NAME)
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"] = DISKS
    spec["volumes"] = VOLUMES
    vm["spec"]["dataVolumeTemplates"] = [
        {k: v for k, v in data_volume("disks-blank", {"blank": {}}, "16Mi").items() if k != "kind"}
    ]
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disks-claim"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "32Mi"}},
        },
    }
    clone = {"pvc": {"name": "disks-filled", "namespace": "default"}}
    return [claim, data_volume("disks-clone", clone, "12Mi"), vm]


def a_disc() -> bytes:
    """Return a small ISO 9660 image with one file."""
    iso, made = pycdlib.PyCdlib(), io.BytesIO()
    iso.new(interchange_level=3, rock_ridge="1.09", vol_ident="PRESSED")
    iso.add_fp(io.BytesIO(ON_DISC), len(ON_DISC), "/TEXT.;1", rr_name="text")
    iso.write_fp(made)
    iso.close()
    return made.getvalue()


def start(host: GuestHost) -> None:
    """Prepare every volume, start the VM and return once its agent answers."""
    import_(host, "disks-filled", TEXT.ljust(8 * MiB, b"\0"), "filled.raw")
    import_(host, "disks-locked", TEXT.ljust(4 * MiB, b"\0"), "locked.raw")
    import_(host, "disks-disc", a_disc(), "disc.iso")
    source = {"registry": {"url": f"docker://{IMAGE}"}}
    host.apply(data_volume("disks-imported", source, "48Mi", **_AT_ONCE))
    with serving({"/disk.raw": FETCHED.ljust(4 * MiB, b"\0")}) as site:
        source = {"http": {"url": f"{site.url}/disk.raw"}}
        host.apply(data_volume("disks-fetched", source, "8Mi", **_AT_ONCE))
        until("the download", lambda: _done(host, "disks-fetched"))
    until("the import", lambda: _done(host, "disks-imported"))
    _mark(host.disk_of("disks-imported"))
    host.apply(*manifests())
    answers(host)


def answers(host: GuestHost) -> None:
    """Return once the agent answers and the guest, which names disks last, has named them all."""
    host.answers(NAME)
    serials = [disk["serial"] for disk in DISKS if "disk" in disk]
    host.shell(
        NAME,
        f"for serial in {' '.join(serials)}; do"
        " until ls /dev/disk/by-id | grep -q $serial; do usleep 50000; done; done",
    )


def import_(host: GuestHost, claim: str, content: bytes, name: str) -> None:
    """Fill a new claim from a file, as a person does."""
    file = host.server.home / name
    file.write_bytes(content)
    command = ("livevirt", "volume", "import", "--data-dir", str(host.server.data))
    host.run(*command, str(file), "--pvc", claim)


def _done(host: GuestHost, name: str) -> bool:
    return bool((host.get("dv", name).get("status") or {}).get("phase") == "Succeeded")


def _mark(disk: Path) -> None:
    """Change a word in the boot loader's configuration, so that the guest tells what it booted."""
    content = disk.read_bytes()
    assert content.count(IN_IMAGE) == 1
    with disk.open("r+b") as file:
        file.seek(content.index(IN_IMAGE))
        file.write(IN_BOOTED)

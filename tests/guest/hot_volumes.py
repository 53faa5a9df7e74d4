"""A guest whose disks and discs come and go by edits of its manifest, looked at from all sides."""

from __future__ import annotations

import contextlib
import copy
import http.client
import io
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pycdlib
import yaml

from .guest_host import GuestHost, Object, a_vm, until

SECONDS = 60.0  # far more than a change takes
BY_ID = "/dev/disk/by-id"


def a_claim(name: str, size: str = "16Mi") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        },
    }


def a_data_volume(name: str, source: Object, size: str) -> Object:
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"source": source, "storage": {"resources": {"requests": {"storage": size}}}},
    }


def a_disc(folder: Path, label: str) -> Path:
    """Make an ISO file with one text on it that tells its label."""
    path, text = folder / f"{label}.iso", f"this is {label}\n".encode()
    disc = pycdlib.PyCdlib()
    disc.new(joliet=3, rock_ridge="1.09", vol_ident=label.upper())
    disc.add_fp(io.BytesIO(text), len(text), "/TEXT.;1", rr_name="text", joliet_path="/text")
    disc.write(str(path))
    disc.close()
    return path


def on_claim(name: str, claim: str = "", **more: Any) -> Object:
    return {
        "name": name,
        "persistentVolumeClaim": {"claimName": claim or name, "hotpluggable": True, **more},
    }


class HotGuest:
    """One VM, edited through its manifest as a person does."""

    def __init__(self, host: GuestHost, name: str = "hot") -> None:
        self.host, self.name = host, name
        self.manifest = a_vm(name)
        self.devices["disks"] += [
            {"name": "cd", "cdrom": {"bus": "sata"}},
            {"name": "stick", "cdrom": {"bus": "usb"}},
        ]
        self.start = copy.deepcopy(self.manifest)

    # ------------------------------------------------------------ editing

    @property
    def spec(self) -> Object:
        found: Object = self.manifest["spec"]["template"]["spec"]
        return found

    @property
    def devices(self) -> Object:
        found: Object = self.spec["domain"]["devices"]
        return found

    def add(self, volume: Object, **disk: Any) -> None:
        """Put a volume and its disk at the end of the manifest's lists."""
        self.spec["volumes"].append(volume)
        self.devices["disks"].append({"name": volume["name"], **(disk or {"disk": {}})})

    def drop(self, name: str) -> None:
        """Take a volume and its disk out of the manifest."""
        self.take_out(name)
        self.devices["disks"] = [d for d in self.devices["disks"] if d["name"] != name]

    def take_out(self, name: str) -> None:
        """Take a volume out of the manifest, and leave its drive."""
        self.spec["volumes"] = [v for v in self.spec["volumes"] if v["name"] != name]

    def apply(self) -> None:
        self.host.apply(self.manifest)

    def patch(self) -> None:
        """Send the lists of volumes and disks alone, faster than kubectl could."""
        spec = {
            "volumes": self.spec["volumes"],
            "domain": {"devices": {"disks": self.devices["disks"]}},
        }
        url = urlsplit(self.host.server.url)
        with contextlib.closing(
            http.client.HTTPSConnection(url.hostname or "", url.port, context=self.host.context)
        ) as connection:
            connection.request(
                "PATCH",
                f"/apis/kubevirt.io/v1/namespaces/default/virtualmachines/{self.name}",
                json.dumps({"spec": {"template": {"spec": spec}}}),
                {"Content-Type": "application/merge-patch+json"},
            )
            answer = connection.getresponse()
            said = answer.read()
        assert answer.status == 200, said

    def reset(self) -> None:
        """Go back to the manifest of the start, by force if need be, and expect just that."""
        self.manifest = copy.deepcopy(self.start)
        self.apply()
        stuck = [n for n, e in self.told().items() if "Detaching" in e["phase"]]
        if stuck:
            self.force(",".join(stuck))
        self.settles()
        self.force("")
        self.nothing_leaks()

    def force(self, names: str) -> None:
        word = f"livevirt.io/force-detach={names}" if names else "livevirt.io/force-detach-"
        self.host.server.kubectl("annotate", "vm", self.name, word, "--overwrite")

    def forced(self) -> str:
        """Return the volumes that go by force, and have not yet."""
        annotations = self.host.get("vm", self.name)["metadata"].get("annotations") or {}
        return str(annotations.get("livevirt.io/force-detach", ""))

    # ------------------------------------------------------------ the API's view

    def status(self) -> Object:
        found: Object = self.host.get("vmi", self.name).get("status") or {}
        return found

    def told(self) -> dict[str, Object]:
        """Return what is said of each volume that may come and go."""
        listed = self.status().get("volumeStatus") or ()
        return {each["name"]: each for each in listed if "hotplugVolume" in each}

    def claims(self) -> dict[str, str]:
        """Return the claims of the volumes that are attached, by volume."""
        return {
            name: each["persistentVolumeClaimInfo"]["claimName"]
            for name, each in self.told().items()
            if each["phase"] == "Ready"
        }

    def wanted(self) -> dict[str, str]:
        return {
            v["name"]: (v.get("persistentVolumeClaim") or {}).get("claimName")
            or v["dataVolume"]["name"]
            for v in self.spec["volumes"]
            if v["name"] != "root"
        }

    def settles(self, seconds: float = SECONDS) -> float:
        """Return once the status tells just the volumes of the manifest, with how long it took."""

        def settled() -> bool:
            return set(self.told()) == set(self.wanted()) and self.claims() == self.wanted()

        try:
            return until("the volumes of the manifest", settled, seconds)
        except AssertionError as error:
            log = self.host.server.log.read_text()[-3000:]
            raise AssertionError(f"{error}\n{self.told()}\n{log}") from None

    def waits(self, name: str, phase: str, reason: str, *words: str) -> None:
        """Expect a volume to stand there, and the words about it; the VM says so too."""

        def stands() -> bool:
            entry = self.told().get(name, {})
            told = (entry.get("phase"), entry.get("reason")) == (phase, reason)
            return told and all(word in entry["message"] for word in words)

        try:
            until(f"{name} to be {phase}, {reason}: {words}", stands, SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None
        until("the VM", lambda: self.host.holds("vm", self.name, "HotVolumeChange"), SECONDS)

    def is_as_written(self) -> None:
        """Expect the VM to be as its owner's file says."""
        done = self.host.server.run_kubectl("diff", "-f", "-", input=yaml.safe_dump(self.manifest))
        assert (done.returncode, done.stdout) == (0, ""), done.stderr

    def needs_no_restart(self) -> None:
        assert not self.host.condition("vm", self.name, "RestartRequired")

    def pending(self) -> dict[str, str]:
        """Return what waits for a restart, and why."""
        listed = (self.host.get("vm", self.name).get("status") or {}).get("pendingChanges") or ()
        return {each["path"].removeprefix("spec.template.spec."): each["reason"] for each in listed}

    def waits_for_restart(self, reasons: dict[str, str]) -> None:
        """Expect just these fields to wait; the VM's status may follow the guest's disks."""
        until(f"{reasons} to wait", lambda: self.pending() == reasons, SECONDS)

    # ------------------------------------------------------------ QEMU's and the guest's view

    def nothing_leaks(self) -> None:
        """Expect QEMU to have open just the images of the claims that the manifest names."""
        folder = self.host.server.data / "volumes"
        wanted = {str(self.host.disk_of(claim)) for claim in self.wanted().values()}

        def opened() -> set[str]:
            links = Path(f"/proc/{self.host.qemu(self.name)}/fd")
            found = set()
            for link in links.iterdir():
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    found.add(os.readlink(link))
            return {each for each in found if each.startswith(str(folder))}

        until(f"QEMU to have just {wanted} open", lambda: opened() == wanted, SECONDS)

    def shell(self, script: str) -> str:
        return self.host.shell(self.name, script)

    def serials(self) -> set[str]:
        """Return the serials of the disks the guest sees, but for the one it boots from."""
        listed = self.shell(f"ls {BY_ID} 2>/dev/null || true").split()
        return {each.rpartition("_")[2].removeprefix("virtio-") for each in listed}

    def count(self) -> int:
        """Return how many scsi disks the guest's kernel knows; links to them come later."""
        return self.shell("ls /sys/block").count("sd")

    def sees(self, *names: str) -> None:
        """Expect the guest to see just these disks."""
        until(f"the guest to see {names}", lambda: self.serials() == set(names), SECONDS)

    def grows_to(self, name: str, size: int) -> None:
        """Expect the disk of a claim of its name to have so many MiB, and that name at its start.

        The guest sees it, can use it to its end, and the API tells of it.
        """
        device = f"$(echo {BY_ID}/*{name})"
        asked = f"blockdev --getsize64 {device}"
        until(f"{name} of {size}Mi", lambda: self.shell(asked) == str(size << 20), SECONDS)
        last = f"dd if=/dev/zero of={device} bs=1M count=1 conv=fsync seek={size - 1}"
        assert self.shell(f"{last} && head -c {len(name)} {device}") == name

        def told() -> bool:
            entry = self.told()[name]
            capacity = entry["persistentVolumeClaimInfo"]["capacity"]
            return (capacity, entry["size"]) == ({"storage": f"{size}Mi"}, size << 20)

        until("the status", told, SECONDS)
        assert not self.host.get("pvc", name)["status"].get("conditions")

    def drives(self) -> set[str]:
        """Return the CD-ROM drives that the guest knows."""
        return set(self.shell("cd /sys/block; ls -d sr* 2>/dev/null; true").split())

    def disc(self, device: str = "sr0") -> str:
        """Return what is on the disc in a drive, "" if it is empty; the guest lets go of it."""
        # A disc that was just changed fails to be read once: it says that it was changed.
        return self.shell(
            f"exec 2>/dev/null; mkdir -p /mnt/d; for i in 1 2 3; do"
            f" mount -r /dev/{device} /mnt/d && break; done;"
            " cat /mnt/d/text; umount /mnt/d; true"
        )

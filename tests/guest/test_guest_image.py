"""The test guest itself, booted by plain QEMU: what every other guest test relies on.

One boot serves all tests of this file, so each leaves the guest as usable as it found it and the
power button comes last.
"""

import base64
import contextlib
import io
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pycdlib
import pytest

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(
        not shutil.which("apt-get"), reason="the guest is built from Debian packages"
    ),
]

ROOT = Path(__file__).parents[2]
BOOT_TIMEOUT = 120  # an emulated CPU on a busy machine
MiB = 1 << 20

USER_DATA = """\
#cloud-config
hostname: web
password: ignored
ssh_authorized_keys:
  - ssh-ed25519 AAAA ignored
write_files:
- path: /etc/greeting/text
  permissions: '0640'
  content: |
    it's: "quoted"
      and indented
runcmd:
  - echo string > /run/string
  - [ sh, -c, "echo 'a, list' > /run/list" ]
  - |
    if true; then
      echo block > /run/block
    fi
"""


class Guest:
    """A running QEMU with its monitor, its serial console and its guest agent."""

    def __init__(
        self, process: subprocess.Popen[bytes], folder: Path, closing: contextlib.ExitStack
    ) -> None:
        self.process = process
        self._closing = closing
        self._console = self._connect(folder / "console.sock")  # QEMU waits for it: no text is lost
        self._monitor = self._connect(folder / "qmp.sock")
        self._agent = self._connect(folder / "agent.sock")
        self._lines = closing.enter_context(self._monitor.makefile("rb"))
        self._answers = closing.enter_context(self._agent.makefile("rb"))
        greeting = self._lines.readline()
        assert greeting, (folder / "qemu.log").read_text()
        self.monitor("qmp_capabilities")

    def _connect(self, path: Path) -> socket.socket:
        connection = self._closing.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(BOOT_TIMEOUT)

        def connected() -> bool:
            assert self.process.poll() is None, "QEMU ended at once"
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            return True

        eventually(connected, 60)
        return connection

    def monitor(self, command: str, **arguments: Any) -> Any:
        request = {"execute": command, "arguments": arguments}
        self._monitor.sendall(json.dumps(request).encode() + b"\n")
        while True:
            answer = json.loads(self._lines.readline())
            if "event" not in answer:
                return answer["return"]

    def agent(self, command: str, **arguments: Any) -> Any:
        request = {"execute": command, "arguments": arguments}
        self._agent.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(self._answers.readline())["return"]

    def run(self, command: str) -> str:
        """What a command prints, run in the guest by its agent."""
        arguments = {"path": "sh", "arg": ["-c", command], "capture-output": True}
        pid = self.agent("guest-exec", **arguments)["pid"]
        status: dict[str, Any] = {}

        def exited() -> bool:
            status.update(self.agent("guest-exec-status", pid=pid))
            return bool(status["exited"])

        eventually(exited, 30)
        return base64.b64decode(status.get("out-data", "")).decode().strip()

    def type(self, text: str) -> None:
        self._console.sendall(text.encode())

    def reads(self, text: str) -> str:
        """What the console shows up to and including `text`."""
        seen = b""
        while text.encode() not in seen:
            part = self._console.recv(4096)
            assert part, f"the console ended before {text!r}: {seen!r}"
            seen += part
        return seen.decode(errors="replace")


def eventually(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def an_iso(path: Path, label: str, files: dict[str, str]) -> Path:
    iso = pycdlib.PyCdlib()
    iso.new(vol_ident=label, joliet=3, rock_ridge="1.09")
    for number, (name, text) in enumerate(files.items()):
        data = text.encode()
        iso.add_fp(
            io.BytesIO(data), len(data), f"/F{number}.;1", rr_name=name, joliet_path=f"/{name}"
        )
    iso.write(str(path))
    iso.close()
    return path


def a_disk(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(8 * MiB)
    return path


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    subprocess.run([sys.executable, ROOT / "tools/guest/build.py"], check=True)
    folder = tmp_path_factory.mktemp("guest")
    image = ROOT / ".cache/guest/guest.qcow2"
    meta_data = json.dumps({"instance-id": "1", "local-hostname": "from-meta-data"})
    seed = an_iso(folder / "seed.iso", "cidata", {"user-data": USER_DATA, "meta-data": meta_data})
    disc = an_iso(folder / "disc.iso", "disc", {"readme": "hello"})
    drives = {
        "boot": f"file={image},format=qcow2,snapshot=on",
        "seed": f"file={seed},format=raw,readonly=on",
        "disc": f"file={disc},format=raw,readonly=on,media=cdrom",
        "sata": f"file={a_disk(folder / 'sata')},format=raw",
        "scsi": f"file={a_disk(folder / 'scsi')},format=raw",
    }
    arguments = [
        *("-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"),
        # QEMU 7.2 aborts when a CPU is plugged while the last part of the translation buffer is in
        # use, so the buffer must not fill up before the CPU comes.
        *("-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"),
        *("-smp", "1,sockets=2,cores=1,threads=1,maxcpus=2", "-m", "512M,maxmem=2G"),
        *("-qmp", f"unix:{folder}/qmp.sock,server=on,wait=off"),
        *("-serial", f"unix:{folder}/console.sock,server=on,wait=on"),
        *("-chardev", f"socket,id=agent,path={folder}/agent.sock,server=on,wait=off"),
        *("-device", "virtio-serial-pci"),
        *("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"),
        *("-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net"),
        *("-object", "memory-backend-ram,id=mem,size=1G,reserve=off"),
        *("-device", "virtio-mem-pci,id=vmem,memdev=mem,requested-size=0"),
        *("-device", "virtio-scsi-pci,id=bus"),
        *(
            word
            for name, drive in drives.items()
            for word in ("-drive", f"if=none,id={name},{drive}")
        ),
        *("-device", "virtio-blk-pci,drive=boot,bootindex=1"),
        *("-device", "virtio-blk-pci,drive=seed"),
        *("-device", "ide-cd,drive=disc,bus=ide.0"),
        *("-device", "ide-hd,drive=sata,bus=ide.1"),
        *("-device", "scsi-hd,drive=scsi,bus=bus.0,serial=pear,device_id=pear"),
        *("-device", "pcie-root-port,id=spare,chassis=1"),
    ]
    with (folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(["qemu-system-x86_64", *arguments], stdout=log, stderr=log)
    try:
        with contextlib.ExitStack() as closing:
            yield Guest(process, folder, closing)
    finally:
        process.kill()
        process.wait()


def test_it_prints_a_login_prompt_by_itself_and_root_needs_no_password(guest: Guest) -> None:
    assert guest.reads("web login: ").strip().endswith("web login:")

    guest.type("root\n")
    guest.reads("web:~# ")

    guest.type("id -un; exit\n")
    assert "\nroot" in guest.reads("web login: ")


def test_the_agent_runs_commands_with_a_full_path(guest: Guest) -> None:
    assert guest.agent("guest-ping") == {}
    assert guest.run("which lspci poweroff") == "/usr/bin/lspci\n/usr/sbin/poweroff"
    assert guest.agent("guest-get-osinfo")["id"] == "livevirt-guest"


def test_when_the_agent_dies_then_it_comes_back(guest: Guest) -> None:
    before = guest.run("pidof qemu-ga")
    guest.type("root\n")
    guest.reads("web:~# ")
    guest.type(f"kill -9 {before}; until pidof qemu-ga; do usleep 50000; done; exit\n")
    guest.reads("web login: ")
    assert guest.run("pidof qemu-ga") not in ("", before)


def test_cloud_config_sets_the_host_name_writes_files_and_runs_commands(guest: Guest) -> None:
    eventually(lambda: guest.run("ls /run/cloud-init/done") != "", 30)
    assert guest.run("hostname; cat /run/string /run/list /run/block") == (
        "web\nstring\na, list\nblock"
    )
    assert guest.run("cat /etc/greeting/text") == 'it\'s: "quoted"\n  and indented'
    assert guest.run("stat -c %a /etc/greeting/text") == "640"


def test_when_a_cpu_is_plugged_then_it_goes_online_by_itself(guest: Guest) -> None:
    assert guest.run("nproc") == "1"
    (slot,) = (slot for slot in guest.monitor("query-hotpluggable-cpus") if "qom-path" not in slot)
    guest.monitor("device_add", driver=slot["type"], id="cpu-1", **slot["props"])
    eventually(lambda: guest.run("nproc") == "2", 30)


def test_when_memory_is_plugged_and_unplugged_then_it_comes_and_goes(guest: Guest) -> None:
    def total() -> int:
        return int(guest.run("awk '/MemTotal/ {print $2}' /proc/meminfo")) * 1024

    def request(size: int) -> None:
        guest.monitor(
            "qom-set", path="/machine/peripheral/vmem", property="requested-size", value=size
        )

    before = total()
    request(512 * MiB)
    eventually(lambda: total() - before == 512 * MiB, 30)
    request(0)
    eventually(lambda: total() == before, 60)


def test_it_sees_virtio_scsi_and_sata_disks_and_cdroms(guest: Guest) -> None:
    lines = guest.run("lsblk -dnro NAME,TRAN,TYPE | sort").splitlines()
    assert {line.split(" ")[0][:2] for line in lines} == {"sd", "sr", "vd"}
    assert sorted(line.split(" ")[0] for line in lines) == ["sda", "sdb", "sr0", "vda", "vdb"]
    disk = guest.run("readlink -f /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_pear")
    assert disk in ("/dev/sda", "/dev/sdb")
    assert guest.run("mount -o ro /dev/sr0 /mnt && cat /mnt/readme; umount /mnt") == "hello"


def test_when_a_disk_is_plugged_then_it_can_be_formatted_and_used(
    guest: Guest, tmp_path: Path
) -> None:
    file = str(a_disk(tmp_path / "disk"))
    guest.monitor(
        "blockdev-add",
        **{"driver": "raw", "node-name": "plug", "file": {"driver": "file", "filename": file}},
    )
    guest.monitor(
        "device_add", driver="virtio-blk-pci", id="plug", drive="plug", bus="spare", serial="plum"
    )
    eventually(lambda: guest.run("ls /dev/disk/by-id/virtio-plum") != "", 30)
    device = "/dev/disk/by-id/virtio-plum"
    assert guest.run(
        f"mkfs.ext4 -q {device} && mount {device} /mnt && findmnt -no FSTYPE /mnt"
    ) == ("ext4")
    guest.run("umount /mnt")
    guest.monitor("device_del", id="plug")
    eventually(lambda: guest.run("ls /dev/disk/by-id/virtio-plum") == "", 30)


def test_it_asks_dhcp_for_its_address(guest: Guest) -> None:
    eventually(lambda: "inet 10.0.2." in guest.run("ip -4 addr show eth0"), 30)


def test_it_has_the_tools_people_look_with(guest: Guest) -> None:
    assert "Virtio block device" in guest.run("lspci")
    assert "util-linux" in guest.run("mount --version")
    assert guest.run("lscpu | grep -c ^Socket") == "1"


def test_when_the_power_button_is_pressed_then_it_powers_off(guest: Guest) -> None:
    guest.monitor("system_powerdown")
    assert guest.process.wait(timeout=60) == 0

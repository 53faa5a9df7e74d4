"""First program inside a node's namespaces: mount its private directories, then become `pause`.

Runs as `python node_init.py NAME DIRECTORY VOLUMES HELPER`; the standard library is enough. Mounts
made here exist in the node's mount namespace only, and the node's programs find the usual paths.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

# What the node sees at these paths lies in its own directory on the host. Mounts below the shared
# ones have to propagate between kubelet, containerd and pods.
PRIVATE_DIRECTORIES = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/cni": "cni",
    "/etc/cni": "cni-config",
    "/var/log": "log",
}
SHARED = ("/var/lib/kubelet", "/var/lib/containerd", "/run")
# The kubelet sets these for the whole machine. It finds the values it wants, so it changes nothing.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def main() -> None:
    """Prepare the namespaces and wait for their end."""
    name, directory, volumes, helper = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    socket.sethostname(name)
    release_network_namespaces()
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for folder in ("netns", "lock"):
        Path("/run", folder).mkdir()
    for target, source in PRIVATE_DIRECTORIES.items():
        (directory / source).mkdir(exist_ok=True)
        mount("--bind", str(directory / source), target)
    mount("--bind", volumes, "/tmp/hostpath_pv")
    for target in SHARED:
        mount("--make-shared", target)
    shield_sysctls(directory / "sysctls")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")  # of this network namespace
    (directory / "ready").touch()
    os.execv(helper, ["pause"])


def release_network_namespaces() -> None:
    """Unmount our copies of all clusters' namespaces, which would outlive their clusters."""
    for path in Path("/run/livevirt/clusters").glob("*/namespaces/*"):
        subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)


def shield_sysctls(files: Path) -> None:
    """Put files over the machine's settings, so that writes do not reach them."""
    files.mkdir(exist_ok=True)
    for name, value in SYSCTLS.items():
        setting = Path("/proc/sys", name)
        if setting.exists():
            file = files / name.replace("/", "_")
            file.write_text(value + "\n")
            mount("--bind", str(file), str(setting))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main()

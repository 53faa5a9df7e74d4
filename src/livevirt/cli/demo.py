"""`livevirt demo`: from nothing to a guest that answers, on a server of its own.

A list of small steps; each prints the commands it stands for, so that what is seen can be typed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from livevirt.cli import cluster, process
from livevirt.cli.session import Session
from livevirt.errors import ApiError, LivevirtError, NotFound
from livevirt.paths import DataDir, default_data_dir
from livevirt.settings import Settings

if TYPE_CHECKING:
    from livevirt.kube.objects.request import Object

T = TypeVar("T")

VM = "demo"
NODE = "node01"  # the only one
IMAGE = "livevirt/guest:latest"
BOOT_SECONDS = 180.0  # an emulated CPU on a busy machine
_END_SECONDS = 30.0

MANIFEST = f"""\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: {VM}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 5
      domain:
        cpu:
          sockets: 1
          maxSockets: 4
        memory:
          guest: 256Mi
          maxGuest: 1Gi
        devices:
          disks:
          - name: root
            disk:
              bus: virtio
          - name: scratch
            disk:
              bus: virtio
          - name: cloudinit
            disk:
              bus: virtio
          interfaces:
          - name: default
            masquerade: {{}}
      networks:
      - name: default
        pod: {{}}
      volumes:
      - name: root
        containerDisk:
          image: {IMAGE}
      - name: scratch
        emptyDisk:
          capacity: 1Gi
      - name: cloudinit
        cloudInitNoCloud:
          userData: |
            #cloud-config
            hostname: {VM}
"""

# What is asked inside the guest.
_SIZE = ("nproc", "grep MemTotal /proc/meminfo", "uptime")
_LOOKS = (*_SIZE, "lsblk -o NAME,SIZE,TYPE")
_LIVE_SECONDS = 60.0


class DemoError(LivevirtError):
    """A step of the demonstration did not come out."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What the steps share: the server's files and the real kubectl, if there is one."""

    data: DataDir
    kubectl: str

    @property
    def manifest(self) -> Path:
        """The VM, as a file to apply."""
        return self.data.root / "demo.yaml"

    def talk(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do something with a client of the server."""

        async def connected() -> T:
            client = cluster.connect(cluster.access(cluster.Chosen(), self.data))
            try:
                return await work(Session(client, "default"))
            finally:
                await client.close()

        return asyncio.run(connected())

    def run_kubectl(self, *args: str) -> None:
        """Show a kubectl command and run it."""
        _command("kubectl", *args)
        # Its cache would otherwise go to the user's home.
        own = {"KUBECONFIG": str(self.data.kubeconfig), "KUBECACHEDIR": str(self.data.root / "c")}
        done = subprocess.run([self.kubectl, *args], env=os.environ | own, check=False)
        if done.returncode:
            raise DemoError(f"kubectl {args[0]} failed; the server's log is {self.data.log}")


def _heading(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _command(*arguments: str) -> None:
    click.secho(f"$ {shlex.join(arguments)}", fg="cyan")


# ---------------------------------------------------------------- the steps


def start(stage: Stage) -> None:
    """Start a server."""
    _command("livevirt", "up", "--detach", "--data-dir", str(stage.data.root), "--listen",
             "127.0.0.1:0")  # fmt: skip
    process.detach(stage.data, Settings(str(stage.data.root), port=0))
    _command("export", f"KUBECONFIG={stage.data.kubeconfig}")
    stage.talk(_node_ready)


async def _node_ready(session: Session) -> None:
    from livevirt.cli.vm import wait
    from livevirt.kube.objects import core

    await wait.until(
        session, core.NODE, NODE, wait.node_ready, BOOT_SECONDS, "waiting for the node"
    )


def apply(stage: Stage) -> None:
    """Describe a virtual machine and hand it over."""
    stage.manifest.write_text(MANIFEST)
    _command("cat", str(stage.manifest))
    click.echo(MANIFEST, nl=False)
    if stage.kubectl:
        stage.run_kubectl("apply", "-f", str(stage.manifest))
        return
    stage.talk(_create)
    click.echo(f"virtualmachine.kubevirt.io/{VM} created")


async def _create(session: Session) -> None:
    import yaml

    from livevirt.vm import kinds

    await session.client.create(kinds.VM, yaml.safe_load(MANIFEST), session.namespace)


def boot(stage: Stage) -> None:
    """Wait until the guest runs and its agent answers."""
    from livevirt.cli.vm import wait
    from livevirt.vm import kinds

    async def work(session: Session) -> None:
        await wait.until(session, kinds.VM, VM, _booted, BOOT_SECONDS, f"starting {VM}")
        await wait.until(
            session, kinds.VMI, VM, wait.agent_connected, BOOT_SECONDS, "waiting for its agent"
        )

    began = time.monotonic()
    stage.talk(work)
    click.echo(f"ready after {time.monotonic() - began:.1f} s")


def _booted(vm: Object | None) -> bool:
    from livevirt.cli.vm import wait

    shown = ((vm or {}).get("status") or {}).get("printableStatus")
    if shown in ("ErrImagePull", "ImagePullBackOff"):
        raise DemoError(
            f"the image store has no image {IMAGE}; `make setup` builds and imports it, or name a"
            f" disk of your own so: livevirt image import PATH --name {IMAGE}"
        )
    return wait.started(vm)


def look_inside(stage: Stage) -> None:
    """Ask the guest itself what it has."""
    _ask(stage, _LOOKS)


def _ask(stage: Stage, looks: tuple[str, ...]) -> None:
    from livevirt.cli import exec as commands

    async def work(session: Session) -> None:
        for look in looks:
            _command(
                "livevirt", "exec", "--data-dir", str(stage.data.root), VM, "--", *look.split()
            )
            ended = await commands.in_guest(session, VM, tuple(look.split()))
            click.echo((ended.stdout + ended.stderr).decode(errors="replace"), nl=False)
            if ended.status:
                raise DemoError(f"`{look}` ended with status {ended.status} in the guest")

    stage.talk(work)


def look_outside(stage: Stage) -> None:
    """Show what Kubernetes' tools see of it."""
    if stage.kubectl:
        stage.run_kubectl("get", "vm,vmi,pods,nodes")


def grow(stage: Stage) -> None:
    """Give the running guest more CPUs and memory."""
    _resize(stage, 3, "512Mi")


def shrink(stage: Stage) -> None:
    """Take some of them away again."""
    _resize(stage, 2, "384Mi")


def _resize(stage: Stage, sockets: int, memory: str) -> None:
    from livevirt.cli.vm import wait
    from livevirt.vm import kinds

    _patch(stage, {"domain": {"cpu": {"sockets": sockets}, "memory": {"guest": memory}}})
    began = time.monotonic()

    async def work(session: Session) -> None:
        goal = wait.resized(sockets, memory)
        what = "the guest follows"
        await wait.until(session, kinds.VMI, VM, goal, _LIVE_SECONDS, what)

    stage.talk(work)
    click.echo(f"done after {time.monotonic() - began:.1f} s")
    _ask(stage, _SIZE)


def _patch(stage: Stage, spec: Object) -> None:
    """Edit the template of the VM, as its owner would."""
    patch = {"spec": {"template": {"spec": spec}}}
    if stage.kubectl:
        stage.run_kubectl("patch", "vm", VM, "--type=merge", "-p", json.dumps(patch))
        return
    from livevirt.vm import kinds

    stage.talk(lambda session: session.client.patch(kinds.VM, VM, session.namespace, patch))


def ask_first(stage: Stage) -> None:
    """Ask what would become of an edit that cannot be live; make it, and take it back."""
    from livevirt.cli.vm import plan, wait
    from livevirt.vm import kinds

    spec = {"hostname": "other", "domain": {"cpu": {"sockets": 4}}}
    patch = {"spec": {"template": {"spec": spec}}}
    _command("virtctl", "plan", VM, "--patch", json.dumps(patch))
    plan.show(VM, stage.talk(lambda session: plan.ask(session, VM, patch)))
    for title, edit, waiting in (
        ("make it all the same", spec, True),
        ("take it back", {"hostname": None, "domain": {"cpu": {"sockets": 2}}}, False),
    ):
        click.echo()
        _patch(stage, edit)

        async def settled(session: Session, waiting: bool = waiting, title: str = title) -> None:
            goal = wait.restart_required(waiting)
            await wait.until(session, kinds.VM, VM, goal, _LIVE_SECONDS, title)

        stage.talk(settled)
        if stage.kubectl:
            stage.run_kubectl("get", "vm", VM, "-o", f"jsonpath={_PENDING}")


_PENDING = (
    '{range .status.pendingChanges[*]}{.path} {.from} -> {.to} ({.reason}){"\\n"}{end}'
    '{.status.conditions[?(@.type=="RestartRequired")].message}{"\\n"}'
)


STEPS: tuple[tuple[str, Callable[[Stage], None]], ...] = (
    ("Start livevirt: an API server, its controllers and a node", start),
    ("Describe a virtual machine, as for KubeVirt", apply),
    ("It boots", boot),
    ("What the guest sees", look_inside),
    ("What kubectl sees", look_outside),
    ("Grow it while it runs: three CPUs, 512Mi", grow),
    ("Shrink it while it runs: two CPUs, 384Mi", shrink),
    ("Ask first: an edit that needs a restart, and the way back without one", ask_first),
)

# ---------------------------------------------------------------- around the steps


@click.command()
@click.option("--keep", is_flag=True, help="Leave the server and the guest running.")
def demo(keep: bool) -> None:
    """Boot a guest on a server of its own, change it while it runs; leaves nothing behind.

    \b
    livevirt demo
    livevirt demo --keep      # and go on by hand
    """
    kubectl = Path(sys.executable).parent / "kubectl"
    found = str(kubectl) if kubectl.exists() else shutil.which("kubectl") or ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both must clean up
    root = _own_directory()
    stage, finished = Stage(DataDir(root), found), False
    try:
        for number, (title, step) in enumerate(STEPS, 1):
            _heading(f"{number}. {title}")
            step(stage)
        finished = True
    finally:
        if not (keep and finished):
            _clean_up(stage)
            shutil.rmtree(root, ignore_errors=True)
    _heading("Try next")
    for line in _kept(stage) if keep else _next():
        click.echo(f"  {line}")


def _own_directory() -> Path:
    """Make a directory: short, for the sockets in it, and passable, for a QEMU without rights."""
    root = Path(tempfile.mkdtemp(prefix="lv-demo-", dir="/tmp"))
    root.chmod(0o711)
    return root


def _clean_up(stage: Stage) -> None:
    """Delete the VM and stop the server, whatever came before; not to be interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _heading("Clean up")
    if process.running_pid(stage.data) is None:
        return
    _command("kubectl", "delete", "vm", VM)
    try:
        stage.talk(_delete)
    except (LivevirtError, TimeoutError, OSError) as error:
        click.echo(f"the VM could not be deleted: {error}", err=True)
    _command("livevirt", "down", "--guests", "stop", "--data-dir", str(stage.data.root))
    process.stop(stage.data, stop_guests=True)


async def _delete(session: Session) -> None:
    """Delete the VM; return once nothing of it runs."""
    from livevirt.cli.vm import wait
    from livevirt.vm import kinds

    with contextlib.suppress(NotFound):
        await session.client.delete(kinds.VM, VM, session.namespace, propagation="Foreground")
    try:
        await wait.until(
            session, kinds.VMI, VM, lambda vmi: vmi is None, _END_SECONDS, f"stopping {VM}"
        )
    except ApiError as error:
        raise DemoError(error.message) from error


# Where livevirt, virtctl and kubectl are.
_PATH = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"


def _next() -> tuple[str, ...]:
    return (
        _PATH,
        "livevirt demo --keep                        # the same, left running",
        "livevirt up --detach                        # a server to keep",
        f"export KUBECONFIG={DataDir(default_data_dir()).kubeconfig}",
        f"virtctl create vm --name web --volume-containerdisk src:{IMAGE} | kubectl apply -f -",
        "virtctl console web                         # user root, no password; Ctrl+] leaves",
    )


def _kept(stage: Stage) -> tuple[str, ...]:
    root = stage.data.root
    return (
        _PATH,
        f"export KUBECONFIG={stage.data.kubeconfig}",
        f"virtctl console {VM}                        # user root, no password; Ctrl+] leaves",
        f"virtctl guestosinfo {VM}",
        f"virtctl restart {VM} --wait",
        f"kubectl delete vm {VM} && livevirt down --data-dir {root} && rm -r {root}",
    )

"""`livevirt webhook` as a process in the network of a cluster's control plane."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .cluster import ROOT, TOOL, KubernetesCluster, eventually, tool

LIVEVIRT = (sys.executable, "-m", "livevirt")
ACCOUNT = "system:serviceaccount:kubevirt:livevirt-webhook"
#: The groups a service account is in; no others, so that only its own roles count.
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated")
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}


def livevirt(*arguments: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        [*LIVEVIRT, *arguments], capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class WebhookProcess:
    """A webhook that can be stopped and started again."""

    cluster: KubernetesCluster
    log: Path
    port: int = 9443
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def install(self) -> None:
        """Apply definitions, permissions and configurations."""
        definitions = livevirt("crds", "--webhook-url", self.url)
        self.cluster.kubectl("apply", "--server-side", "-f", "-", text=definitions)
        manifests = livevirt("webhook", "--url", self.url, "--print-manifests")
        self.cluster.kubectl("apply", "-f", "-", text=manifests)

    def start(self) -> None:
        """Start it as its service account, and wait until it answers."""
        kubeconfig = tool("kubeconfig", "--name", self.cluster.name, "--internal").stdout.strip()
        command = [
            str(TOOL), "exec", "--name", self.cluster.name, "--", *LIVEVIRT, "webhook",
            "--kubeconfig", kubeconfig, "--as", ACCOUNT,
            *(word for group in GROUPS for word in ("--as-group", group)),
            "--listen", f"127.0.0.1:{self.port}", "--url", self.url, *self.options,
        ]  # fmt: skip
        with self.log.open("ab") as stream:
            begins = stream.tell()
            self.process = subprocess.Popen(command, stdout=stream, stderr=stream, env=ENVIRONMENT)
        ready = eventually(lambda: b"ready: https" in self.log.read_bytes()[begins:])
        assert ready, self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it and return its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(30)
        self.process = None
        return status

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it for a while."""
        self.stop(signal.SIGKILL)
        try:
            yield
        finally:
            self.start()


@contextlib.contextmanager
def running_webhook(
    cluster: KubernetesCluster, log: Path, port: int = 9443, options: tuple[str, ...] = ()
) -> Iterator[WebhookProcess]:
    """Install and start a webhook; stop it at the end."""
    webhook = WebhookProcess(cluster, log, port, options)
    webhook.install()
    webhook.start()
    try:
        yield webhook
    finally:
        if webhook.process is not None:
            webhook.stop()
        configurations = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
        for kind in configurations:
            cluster.kubectl("delete", kind, "livevirt-webhook")

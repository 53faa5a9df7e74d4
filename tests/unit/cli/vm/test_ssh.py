"""What `virtctl ssh` and `scp` run: the local client, with a proxy that is virtctl itself."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from livevirt.cli import virtctl
from livevirt.cli.cluster import Chosen
from livevirt.cli.vm import ssh
from livevirt.cli.vm.target import Target

WEB = Target("vm", "web", "prod")
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: here, user: me, namespace: prod}}]
users: [{name: me, user: {token: secret}}]
"""


def test_the_proxy_reaches_the_same_cluster() -> None:
    choice = Chosen(
        context="other", as_="jane", as_group=("a", "b c"), insecure_skip_tls_verify=True
    )
    words = shlex.split(ssh.proxy(["virtctl"], choice, WEB, 2222))
    assert words[:5] == ["virtctl", "port-forward", "--stdio", "vm/web/prod", "2222"]
    assert words[5:] == [
        "--context=other", "--as=jane", "--as-group=a", "--as-group=b c",
        "--insecure-skip-tls-verify",
    ]  # fmt: skip


def test_ssh_expands_nothing_in_the_proxy() -> None:
    assert "100%%h" in ssh.proxy(["virtctl"], Chosen(kubeconfig="/100%h"), WEB, 22)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The programs that replaced virtctl; the namespace is that of the kubeconfig."""
    found: list[list[str]] = []
    config = tmp_path / "kubeconfig"
    config.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv("USER", "me")
    monkeypatch.setattr(ssh.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(ssh.os, "execvp", lambda _, words: found.append(words))
    return found


COMMANDS = {
    "ssh vm/web": ["ssh", "me@vm.web.prod"],
    "ssh jane@vmi/web/other": ["ssh", "jane@vmi.web.other"],
    "ssh vm/web -l jane -i key -c 'ls /'": ["ssh", "-i", "key", "jane@vm.web.prod", "ls /"],
    "ssh vm/web --known-hosts=kh -t '-o A=b' -t -v": [
        "ssh", "-o", "UserKnownHostsFile=kh", "-o", "A=b", "-v", "me@vm.web.prod",
    ],
    "scp a jane@vm/web:b": ["scp", "a", "jane@vm.web.prod:b"],
    "scp -r --preserve vm/web/other:/a:b .": ["scp", "-r", "-p", "me@vm.web.other:/a:b", "."],
}  # fmt: skip


@pytest.mark.parametrize(("typed", "words"), COMMANDS.items(), ids=COMMANDS)
def test_the_local_client_is_run(ran: list[list[str]], typed: str, words: list[str]) -> None:
    done = CliRunner().invoke(virtctl.cli, shlex.split(typed))
    assert done.exit_code == 0, done.output
    (found,) = ran
    assert found[1] == "-o"
    assert found[2].startswith("ProxyCommand=")
    assert [found[0], *found[3:]] == words


@pytest.mark.parametrize(
    "typed", ["ssh web", "ssh @vm/web", "scp a b", "scp vm/web:a vm/web:b", "ssh vm/web -p 0"]
)
def test_what_cannot_be_meant_is_refused(ran: list[list[str]], typed: str) -> None:
    done = CliRunner().invoke(virtctl.cli, shlex.split(typed))
    assert done.exit_code != 0
    assert ran == []


def test_without_a_client_the_package_is_named(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh.shutil, "which", lambda _: None)
    done = CliRunner().invoke(virtctl.cli, ["ssh", "vm/web"])
    assert "openssh-client" in done.output

"""Which cluster a command talks to."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from livevirt.cli import cluster
from livevirt.cli.cluster import Chosen, access, overridden
from livevirt.kube.client.access import Access, Tls
from livevirt.kube.client.errors import ConfigError
from livevirt.paths import DataDir


def a_kubeconfig(path: Path, server: str, **more: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    contexts = [
        {"name": name, "context": {"cluster": "c", "namespace": namespace}}
        for name, namespace in {"main": "default", "other": "elsewhere", **more}.items()
    ]
    clusters = [{"name": "c", "cluster": {"server": server}}]
    content = {"clusters": clusters, "contexts": contexts, "current-context": "main"}
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory, whose `own` is the default data directory."""
    monkeypatch.setattr(cluster, "default_data_dir", lambda: tmp_path / "own")
    return tmp_path


def test_the_nearest_answer_wins(home: Path) -> None:
    env = {"HOME": str(home)}
    with pytest.raises(ConfigError, match="no kubeconfig"):
        access(Chosen(), env=env)
    a_kubeconfig(home / ".kube/config", "https://home")
    assert access(Chosen(), env=env).server == "https://home"
    a_kubeconfig(home / "own/kubeconfig", "https://own")
    assert access(Chosen(), env=env).server == "https://own"
    env["KUBECONFIG"] = str(a_kubeconfig(home / "env", "https://env"))
    assert access(Chosen(), env=env).server == "https://env"
    flag = str(a_kubeconfig(home / "flag", "https://flag"))
    assert access(Chosen(kubeconfig=flag), env=env).server == "https://flag"


def test_a_named_data_directory_is_the_only_place_to_look(home: Path) -> None:
    env = {"HOME": str(home), "KUBECONFIG": str(a_kubeconfig(home / "env", "https://env"))}
    data = DataDir(home / "data")
    with pytest.raises(ConfigError, match="livevirt up --detach --data-dir"):
        access(Chosen(), data, env)
    a_kubeconfig(data.kubeconfig, "https://data")
    assert access(Chosen(), data, env).server == "https://data"


def test_the_context_and_its_namespace_can_be_chosen(home: Path) -> None:
    path = str(a_kubeconfig(home / "config", "https://x"))
    assert access(Chosen(kubeconfig=path)).namespace == "default"
    assert access(Chosen(kubeconfig=path, context="other")).namespace == "elsewhere"
    assert access(Chosen(kubeconfig=path, context="other", namespace="n")).namespace == "n"


def test_a_server_alone_needs_no_file(home: Path) -> None:
    found = access(Chosen(server="https://x", token="t"), env={"HOME": str(home)})
    assert (found.server, found.token, found.namespace) == ("https://x", "t", "default")


FOUND = Access("https://x", tls=Tls(authority=b"ca"), token_file=Path("file"))
OVERRIDES = {
    "a token replaces what the file says": (
        Chosen(token="t"), {"token": "t", "token_file": None, "plugin": None},
    ),
    "no certificate is trusted blindly and checked too": (
        Chosen(insecure_skip_tls_verify=True), {"tls": Tls(insecure=True)},
    ),
    "somebody else": (
        Chosen(as_="me", as_group=("a", "b")),
        {"impersonate": (
            ("Impersonate-User", "me"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"),
        )},
    ),
    "nothing given changes nothing": (Chosen(), {}),
}  # fmt: skip


@pytest.mark.parametrize(("chosen", "changes"), OVERRIDES.values(), ids=OVERRIDES)
def test_flags_override_the_file(chosen: Chosen, changes: dict[str, object]) -> None:
    found = overridden(FOUND, chosen)
    same = {name: getattr(FOUND, name) for name in ("server", "tls", "token_file", "impersonate")}
    for name, value in (same | changes).items():
        assert getattr(found, name) == value, name


@pytest.mark.parametrize(
    "args",
    [["-n", "x", "--as-group=a", "show"], ["show", "--namespace=x", "--as-group", "a"]],
    ids=["before the verb", "behind the verb"],
)
def test_global_flags_may_stand_anywhere(args: list[str]) -> None:
    @click.group()
    @cluster.flags(all_shown=True)
    def root() -> None:
        pass

    @root.command()
    @cluster.flags()
    def show() -> None:
        chosen = cluster.chosen()
        click.echo(f"{chosen.namespace} {chosen.as_group}")

    assert CliRunner().invoke(root, args).output == "x ('a',)\n"


HEADERS = {
    "--token": Chosen(token="one\ntwo"),
    "--as": Chosen(as_="a\nb"),
    "--as-group": Chosen(as_="a", as_group=("b", "c\n")),
    "--as-uid": Chosen(as_="a", as_uid="b\r"),
}


@pytest.mark.parametrize(("flag", "choice"), HEADERS.items(), ids=HEADERS)
def test_what_cannot_be_a_header_is_refused(flag: str, choice: Chosen) -> None:
    with pytest.raises(click.UsageError, match=f"{flag} must be one line of text"):
        overridden(Access("https://x"), choice)


URLS = {
    "a server": Access("https://x:99999"),
    "a proxy": Access("https://x", proxy="http://["),
}


@pytest.mark.parametrize("found", URLS.values(), ids=URLS)
def test_what_is_no_url_is_named(found: Access) -> None:
    with pytest.raises(ConfigError) as error:
        cluster.connect(found)
    assert (found.proxy or found.server) in str(error.value)

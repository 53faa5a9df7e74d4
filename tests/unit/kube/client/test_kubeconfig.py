"""Kubeconfigs are read as kubectl reads them."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from livevirt.kube.client.access import Access, Plugin, Tls
from livevirt.kube.client.errors import ConfigError
from livevirt.kube.client.kubeconfig import Choice, find, in_cluster, read


def a_config(**changes: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "vms"}},
            {"name": "there", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://one:6443"}},
            {"name": "d", "cluster": {"server": "https://two:6443"}},
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    return config | changes


def a_user(**user: Any) -> dict[str, Any]:
    return a_config(users=[{"name": "u", "user": user}])


def a_cluster(**cluster: Any) -> dict[str, Any]:
    return a_config(clusters=[{"name": "c", "cluster": {"server": "https://one"} | cluster}])


def write(path: Path, config: Any) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_current_context_says_server_user_and_namespace(path: Path) -> None:
    access = read([write(path, a_config())])
    assert access == Access("https://one:6443", "vms", "u", token="secret")


CHOICES = {
    "another context": (Choice(context="there"), "https://two:6443", "default"),
    "another cluster": (Choice(cluster="d"), "https://two:6443", "vms"),
}


@pytest.mark.parametrize(("choice", "server", "namespace"), CHOICES.values(), ids=CHOICES)
def test_a_choice_replaces_what_the_file_says(
    path: Path, choice: Choice, server: str, namespace: str
) -> None:
    access = read([write(path, a_config())], choice)
    assert (access.server, access.namespace) == (server, namespace)


USERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nobody": ({}, {}),
    "a token": ({"token": "t"}, {"token": "t"}),
    "a password": (
        {"username": "me", "password": "pw"},
        {"username": "me", "password": "pw"},
    ),
    "somebody else": (
        {"as": "jane", "as-groups": ["g", "h"], "as-uid": "7", "as-user-extra": {"k": ["v"]}},
        {
            "impersonate": (
                ("Impersonate-User", "jane"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Group", "g"),
                ("Impersonate-Group", "h"),
                ("Impersonate-Extra-k", "v"),
            )
        },
    ),
    "a certificate": (
        {"client-certificate-data": b64("cert"), "client-key-data": b64("key")},
        {"tls": Tls(certificate=b"cert", key=b"key")},
    ),
}


@pytest.mark.parametrize(("user", "expected"), USERS.values(), ids=USERS)
def test_users(path: Path, user: dict[str, Any], expected: dict[str, Any]) -> None:
    access = read([write(path, a_user(**user))])
    assert access == Access("https://one:6443", "vms", "u", **expected)


CLUSTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an authority": (
        {"certificate-authority-data": b64("ca")},
        {"tls": Tls(authority=b"ca")},
    ),
    "no verification": ({"insecure-skip-tls-verify": True}, {"tls": Tls(insecure=True)}),
    "another name": ({"tls-server-name": "inner"}, {"tls": Tls(server_name="inner")}),
    "a proxy": ({"proxy-url": "http://proxy:3128"}, {"proxy": "http://proxy:3128"}),
    "no compression": ({"disable-compression": True}, {"compress": False}),
}


@pytest.mark.parametrize(("cluster", "expected"), CLUSTERS.values(), ids=CLUSTERS)
def test_clusters(path: Path, cluster: dict[str, Any], expected: dict[str, Any]) -> None:
    access = read([write(path, a_cluster(**cluster))])
    assert access == Access("https://one", "vms", "u", token="secret", **expected)


def test_files_are_found_next_to_the_kubeconfig(tmp_path: Path) -> None:
    user = {"client-certificate": "tls/c", "client-key": "tls/k", "tokenFile": "token"}
    config = a_user(**user)
    config["clusters"][0]["cluster"]["certificate-authority"] = "tls/ca"
    for name in ("c", "k", "ca"):
        write(tmp_path / "sub" / "tls" / name, name)
    access = read([write(tmp_path / "sub" / "config", config)])
    assert access.tls == Tls(b"ca", b"c", b"k")
    assert access.token_file == tmp_path / "sub" / "token"


def test_an_exec_plugin_is_kept_for_later(path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./bin/login",
        "args": ["--cluster", "c"],
        "env": [{"name": "REGION", "value": "north"}],
        "installHint": "install it",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    config = a_user(exec=plugin)
    config["clusters"][0]["cluster"]["certificate-authority-data"] = b64("ca")
    assert read([write(path, config)]).plugin == Plugin(
        command=str(path.parent / "bin/login"),
        args=("--cluster", "c"),
        env={"REGION": "north"},
        api_version="client.authentication.k8s.io/v1beta1",
        hint="install it",
        interactive="Never",
        cluster={"server": "https://one:6443", "certificate-authority-data": b64("ca")},
    )


def test_of_several_files_the_first_to_say_something_wins(tmp_path: Path) -> None:
    first = {"users": [{"name": "u", "user": {"token": "first"}}]}
    one, two = write(tmp_path / "one", first), write(tmp_path / "two", a_config())
    env = {"KUBECONFIG": f"{one}:{tmp_path / 'missing'}:{two}"}
    assert find(env=env) == Access("https://one:6443", "vms", "u", token="first")


def test_without_a_kubeconfig_named_it_is_the_one_in_the_home_directory(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", a_config())
    assert find(env={"HOME": str(tmp_path)}).server == "https://one:6443"


WRONG: dict[str, tuple[Any, str]] = {
    "no YAML": ("a: [", "is no YAML"),
    "no mapping": ("[]\n- a", "is no YAML|is no mapping"),
    "a list": ("- a", "is no mapping"),
    "a word that is no boolean": ("a: !!bool x", "is no YAML"),
    "a moment that is none": ("a: !!timestamp x", "is no YAML"),
    "a number without digits": ("a: !!int ''", "is no YAML"),
    "a thing inside itself": ("a: &a [*a]", "is no YAML"),
    "no current context": (a_config(**{"current-context": ""}), "no current-context"),
    "no such context": (a_config(**{"current-context": "x"}), "no context 'x'"),
    "no such cluster": (a_config(clusters=[]), "no cluster 'c'"),
    "no such user": (a_config(users=[]), "no user 'u'"),
    "no server": (a_cluster(server=""), "names no server"),
    "no base64": (a_cluster(**{"certificate-authority-data": "a"}), "is no base64"),
    "no such file": (a_cluster(**{"certificate-authority": "gone"}), "gone"),
    "a certificate without key": (
        a_user(**{"client-certificate-data": b64("c")}),
        "come together",
    ),
    "trust nobody and everybody": (
        a_cluster(**{"certificate-authority-data": b64("c"), "insecure-skip-tls-verify": True}),
        "excludes an authority",
    ),
    "a plugin of another time": (
        a_user(exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}),
        "needs a command and an apiVersion",
    ),
    "a provider that is gone": (a_user(**{"auth-provider": {"name": "oidc"}}), "use exec"),
}


@pytest.mark.parametrize(("config", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_used_is_refused_by_name(path: Path, config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read([write(path, config)])


def an_exec(**more: Any) -> dict[str, Any]:
    return a_user(
        exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1"} | more,
    )


# What is wrong, and the place in the file that the message has to name.
SHAPES: dict[str, tuple[Any, str]] = {
    "current-context is a number": (a_config(**{"current-context": 5}), "current-context"),
    "clusters is a number": (a_config(clusters=3), "clusters"),
    "users is a mapping": (a_config(users={"u": {}}), "users"),
    "a context is a word": (a_config(contexts=["x"]), "contexts[0]"),
    "the second context is a list": (
        a_config(contexts=[{"name": "here"}, {"name": "there", "context": []}]),
        "contexts[1].context",
    ),
    "an entry without a name": (a_config(users=[{"user": {}}]), "users[0]"),
    "a name that is a number": (a_config(users=[{"name": 1}]), "users[0].name"),
    "a token that is a number": (a_user(token=7), "users[0].user.token"),
    "a switch that is a word": (
        a_cluster(**{"insecure-skip-tls-verify": "false"}),
        "clusters[0].cluster.insecure-skip-tls-verify",
    ),
    "extensions is a word": (a_cluster(extensions="x"), "clusters[0].cluster.extensions"),
    "exec is a word": (a_user(exec="x"), "users[0].user.exec"),
    "args is a number": (an_exec(args=3), "users[0].user.exec.args"),
    "args is a word": (an_exec(args="abc"), "users[0].user.exec.args"),
    "env has a word": (an_exec(env=["x"]), "users[0].user.exec.env[0]"),
    "env without a name": (an_exec(env=[{"value": "x"}]), "users[0].user.exec.env[0]"),
    "as-groups is a number": (a_user(**{"as-groups": 3}), "users[0].user.as-groups"),
    "as-user-extra is a list": (a_user(**{"as-user-extra": ["a"]}), "users[0].user.as-user-extra"),
    "as-user-extra has a word": (
        a_user(**{"as-user-extra": {"k": "v"}}),
        "users[0].user.as-user-extra[...]",
    ),
}


@pytest.mark.parametrize(("config", "place"), SHAPES.values(), ids=SHAPES)
def test_a_wrong_shape_is_named_with_its_file_and_place(
    path: Path, config: Any, place: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(f'{path}: {place}: ')}"):
        read([write(path, config)])


def test_null_is_the_same_as_not_given(path: Path) -> None:
    config = an_exec(args=None, env=[{"name": "A", "value": None}], installHint=None)
    config["users"][0]["user"] |= {"token": None, "as-groups": None, "as-user-extra": {"k": None}}
    config["contexts"] = [{"name": "here", "context": {"cluster": "c", "user": "u"}}]
    config["contexts"][0]["context"]["namespace"] = None
    access = read([write(path, config | {"extensions": None, "preferences": None})])
    assert access == Access("https://one:6443", "default", "u", plugin=Plugin("x", env={"A": ""}))
    assert read([write(path, a_config(users=[{"name": "u", "user": None}]))]).token == ""


def test_what_kubectl_does_not_know_is_ignored(path: Path) -> None:
    config = a_user(token="t", more={"a": [1]}) | {"colors": True, 1: 2}
    config["clusters"][0]["cluster"]["weight"] = 3
    assert read([write(path, config)]).token == "t"


def test_a_plugin_is_told_what_the_cluster_has_for_it(path: Path) -> None:
    config = an_exec(provideClusterInfo=True)
    config["clusters"][0]["cluster"] |= {
        "insecure-skip-tls-verify": True,
        "extensions": [
            {"name": "other", "extension": 3},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
        ],
    }
    plugin = read([write(path, config)]).plugin
    assert plugin is not None
    assert plugin.cluster == {
        "server": "https://one:6443",
        "insecure-skip-tls-verify": True,
        "config": {"audience": "x"},
    }


def test_a_kubeconfig_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no kubeconfig"):
        find(str(tmp_path / "missing"))


def test_without_any_configuration_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.kube/config"):
        find(env={"HOME": str(tmp_path)})


@pytest.fixture
def account(tmp_path: Path) -> Path:
    write(tmp_path / "token", "secret")
    write(tmp_path / "ca.crt", "ca")
    write(tmp_path / "namespace", "vms\n")
    return tmp_path


@pytest.mark.parametrize(("host", "server"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
def test_in_a_pod_the_service_account_is_used(account: Path, host: str, server: str) -> None:
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
    access = in_cluster(env, account)
    assert (access.server, access.namespace) == (f"https://{server}:6443", "vms")
    assert access.tls == Tls(authority=b"ca")
    assert access.token_file == account / "token"


def test_a_pod_without_a_service_account_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="service account cannot be read"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    with pytest.raises(ConfigError, match="not in a pod"):
        in_cluster({}, tmp_path)


def test_secrets_do_not_show_when_an_access_is_printed(path: Path) -> None:
    assert "secret" not in repr(read([write(path, a_config())]))

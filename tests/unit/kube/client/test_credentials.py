"""Credentials are asked for when needed, kept while good, and asked for again when refused."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.client.access import Access, Plugin
from livevirt.kube.client.credentials import Credentials, ask, issued_of
from livevirt.kube.client.errors import ConfigError

V1 = "client.authentication.k8s.io/v1"
NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def printed(**status: Any) -> bytes:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}).encode()


def a_plugin(code: str, **more: Any) -> Plugin:
    return Plugin(sys.executable, ("-c", code), **more)


def counting(calls: Path, expires: datetime | None = None) -> Plugin:
    """Return a plugin that notes each call and prints the number of it as the token."""
    status = f', "expirationTimestamp": "{expires.isoformat()}"' if expires else ""
    return a_plugin(
        f"""
calls = open({str(calls)!r}, "a+")
calls.write("x")
calls.seek(0)
print('{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": '
      '{{"token": "%d"{status}}}}}' % len(calls.read()))
"""
    )


FIXED = {
    "nothing": (Access("https://x"), ""),
    "a token": (Access("https://x", token="t"), "Bearer t"),
    "a password": (Access("https://x", username="me", password="pw"), "Basic bWU6cHc="),
}


@pytest.mark.parametrize(("access", "header"), FIXED.values(), ids=FIXED)
async def test_fixed_credentials(access: Access, header: str) -> None:
    credentials = Credentials(access)
    issued = await credentials.current()
    assert issued.authorization == header
    assert not credentials.refused(issued)


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = Credentials(Access("https://x", token_file=file))
    assert (await credentials.current()).authorization == "Bearer one"
    new = tmp_path / "new"
    new.write_text("two\n")
    os.replace(new, file)
    assert (await credentials.current()).authorization == "Bearer two"
    file.unlink()
    assert (await credentials.current()).authorization == "Bearer two"  # better than nothing


async def test_a_token_file_that_never_was_is_an_error(tmp_path: Path) -> None:
    credentials = Credentials(Access("https://x", token_file=tmp_path / "token"))
    with pytest.raises(ConfigError, match="token cannot be read"):
        await credentials.current()


async def test_a_token_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff")
    credentials = Credentials(Access("https://x", token_file=tmp_path / "token"))
    with pytest.raises(ConfigError, match="token cannot be read"):
        await credentials.current()


async def test_a_token_file_that_cannot_exist_is_an_error() -> None:
    credentials = Credentials(Access("https://x", token_file=Path("a\0b")))
    with pytest.raises(ConfigError, match="the token cannot be read"):
        await credentials.current()


async def test_a_plugin_is_asked_once_while_its_answer_is_good(tmp_path: Path) -> None:
    plugin = counting(tmp_path / "calls", NOON + timedelta(hours=1))
    time = NOON
    credentials = Credentials(Access("https://x", plugin=plugin), lambda: time)
    for _ in range(3):
        assert (await credentials.current()).authorization == "Bearer 1"
    time = NOON + timedelta(hours=1)
    assert (await credentials.current()).authorization == "Bearer 2"


async def test_a_plugin_is_asked_again_when_the_server_refuses_its_answer(tmp_path: Path) -> None:
    credentials = Credentials(Access("https://x", plugin=counting(tmp_path / "calls")))
    first = await credentials.current()
    assert credentials.refused(first)
    second = await credentials.current()
    assert second.authorization == "Bearer 2"
    assert credentials.refused(first)  # an old request comes back late: no reason to ask again
    assert await credentials.current() is second


async def test_a_plugin_is_told_about_itself_and_the_cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = f"""
import os, sys
sys.stderr.write(os.environ["KUBERNETES_EXEC_INFO"] + os.environ["REGION"])
print('{printed(token="t").decode()}')
"""
    plugin = a_plugin(code, env={"REGION": "north"}, cluster={"server": "https://x"})
    assert (await ask(plugin)).authorization == "Bearer t"
    told = capfd.readouterr().err
    assert told.endswith("north")
    assert json.loads(told.removesuffix("north")) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://x"}},
    }


def test_a_certificate_may_be_printed_instead_of_a_token() -> None:
    output = printed(
        clientCertificateData="c", clientKeyData="k", expirationTimestamp="2026-06-01T12:00:00Z"
    )
    issued = issued_of(Plugin("login"), output)
    assert (issued.certificate, issued.key, issued.expires) == (b"c", b"k", NOON)


WRONG = {
    "no JSON": (b"hello", "printed no ExecCredential"),
    "no status": (b'{"apiVersion": "v1", "kind": "Pod"}', "printed no ExecCredential"),
    "another version": (printed(token="t").replace(b"/v1", b"/v1beta1"), "printed .*v1beta1"),
    "nothing": (printed(), "neither a token nor a certificate"),
    "half a pair": (printed(clientKeyData="k"), "without the other"),
}


@pytest.mark.parametrize(("output", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_credential_is_refused(output: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        issued_of(Plugin("login"), output)


FAILING = {
    "it is not there": (Plugin("/no/such/login", hint="get it"), "cannot run .*\nget it"),
    "it fails": (a_plugin("raise SystemExit(3)"), "exit status 3"),
    "it cannot exist": (Plugin("a\0b"), r"cannot run 'a\\x00b'"),
    "its environment cannot exist": (Plugin("true", env={"A=B": ""}), "cannot run 'true': "),
    "it needs a terminal": (a_plugin("", interactive="Always"), "no terminal"),
}


@pytest.mark.parametrize(("plugin", "message"), FAILING.values(), ids=FAILING)
async def test_a_plugin_that_cannot_answer_is_an_error(plugin: Plugin, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await ask(plugin)

"""Certificates and tokens: made once, readable by their owner only, worth nothing when forged."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.server import pki
from livevirt.kube.server.authenticate import Tokens, user_of
from livevirt.kube.server.responses import choose, media_type

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
HERE = ("127.0.0.1", "::1")
ROBOT = {"metadata": {"name": "robot", "namespace": "team", "uid": "u-1"}}


def test_certificates_are_made_once_and_again_only_for_a_new_address(tmp_path: Path) -> None:
    keys = pki.ensure(tmp_path / "pki", HERE, NOON)
    first = keys.server.read_bytes(), keys.ca.read_bytes()
    pki.ensure(tmp_path / "pki", HERE, NOON)
    assert (keys.server.read_bytes(), keys.ca.read_bytes()) == first
    pki.ensure(tmp_path / "pki", (*HERE, "10.1.2.3"), NOON)
    assert keys.server.read_bytes() != first[0]
    assert keys.ca.read_bytes() == first[1]
    ssl.create_default_context(cafile=str(keys.ca)).load_cert_chain(keys.admin)


def test_every_key_is_its_owners_only(tmp_path: Path) -> None:
    keys = pki.ensure(tmp_path / "pki", HERE, NOON)
    pki.write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", keys)
    for path in (*keys.folder.iterdir(), tmp_path / "kubeconfig"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_token_speaks_for_its_account(tmp_path: Path) -> None:
    keys = pki.ensure(tmp_path / "pki", HERE, NOON)
    token = Tokens(keys.token_key).issue(ROBOT, ["api"], NOON, 600)
    claims = Tokens(keys.token_key).read(token)
    assert claims is not None
    assert claims["exp"] == NOON.timestamp() + 600
    user = user_of(claims)
    assert (user.name, user.uid) == ("system:serviceaccount:team:robot", "u-1")
    other = pki.ensure(tmp_path / "other", HERE, NOON)
    assert Tokens(other.token_key).read(token) is None


def test_a_changed_token_is_worth_nothing(tmp_path_factory) -> None:
    keys = pki.ensure(tmp_path_factory.mktemp("k") / "pki", HERE, NOON)
    tokens = Tokens(keys.token_key)
    token = tokens.issue(ROBOT, ["api"], NOON, 600)

    @given(st.integers(0, len(token) - 1), st.sampled_from("Aa0_.é"))
    def change(at: int, letter: str) -> None:
        forged = token[:at] + letter + token[at + 1 :]
        # The last letter of base64 has bits that mean nothing.
        if forged != token and at != len(token) - 1:
            assert tokens.read(forged) is None

    change()


@given(st.text(max_size=60))
def test_any_text_is_no_token(text: str) -> None:
    assert Tokens(Path("/nonexistent")).read(text) is None


def test_the_first_form_we_can_make_is_chosen() -> None:
    wide = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    assert choose(wide, ("Table",)).as_ == "Table"
    assert choose(wide, ()).as_ == ""
    assert choose("application/vnd.kubernetes.protobuf, */*", ()).media == "application/json"
    assert media_type("Application/JSON; charset=utf-8") == "application/json"

import base64
import io

import pycdlib
import pytest

from livevirt.node import scratch

META = {"instance-id": "1", "local-hostname": "web"}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SOURCES = {
    "plain": ({"userData": "#!/bin/sh"}, b"#!/bin/sh"),
    "base64": ({"userDataBase64": encoded("#!/bin/sh")}, b"#!/bin/sh"),
    "secret": ({"secretRef": {"name": "seed"}}, b"from a secret"),
    "none": ({"networkData": "version: 2"}, b""),
}


@pytest.mark.parametrize(("source", "data"), SOURCES.values(), ids=SOURCES)
def test_user_data_comes_from_where_the_volume_says(source: dict, data: bytes) -> None:
    secrets = {"seed": {"data": {"userdata": encoded("from a secret")}}}
    assert scratch.files(source, META, secrets)["user-data"] == data


def test_network_data_is_a_file_only_when_given() -> None:
    assert "network-config" not in scratch.files({"userData": "x"}, META, {})
    files = scratch.files({"networkDataBase64": encoded("version: 2")}, META, {})
    assert files["network-config"] == b"version: 2"


@pytest.mark.parametrize(
    "source", [{"userDataBase64": "%"}, {"secretRef": {"name": "empty"}}], ids=["base64", "secret"]
)
def test_what_cannot_be_read_is_refused(source: dict) -> None:
    with pytest.raises(scratch.BadCloudInit):
        scratch.files(source, META, {"empty": {"data": {}}})


def test_the_disc_has_its_label_and_its_files_under_their_own_names() -> None:
    data = scratch.iso("cidata", {"user-data": b"#!/bin/sh\n", "meta-data": b"{}"})
    disc = pycdlib.PyCdlib()
    disc.open_fp(io.BytesIO(data))
    try:
        assert disc.pvd.volume_identifier.decode().strip() == "cidata"
        for path in ({"rr_path": "/user-data"}, {"joliet_path": "/user-data"}):
            content = io.BytesIO()
            disc.get_file_from_iso_fp(content, **path)
            assert content.getvalue() == b"#!/bin/sh\n"
    finally:
        disc.close()

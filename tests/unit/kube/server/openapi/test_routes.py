"""Which form of `/openapi/v2` a client gets."""

from __future__ import annotations

import pytest

from livevirt.errors import NotAcceptable
from livevirt.kube.server.openapi.routes import swagger_form

JSON = "application/json"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
KUBECTL = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

FORMS = {
    "": JSON,
    "*/*": JSON,
    "application/json, */*": JSON,
    "text/html, application/xml;q=0.9, */*;q=0.8": JSON,
    KUBECTL: PROTOBUF,
    PROTOBUF: PROTOBUF,
    f"{KUBECTL}, application/json": PROTOBUF,
    f"application/json;q=0.9,{KUBECTL}": JSON,
}


@pytest.mark.parametrize(("accept", "form"), FORMS.items())
def test_the_first_form_named_that_there_is(accept: str, form: str) -> None:
    assert swagger_form(accept) == form


def test_given_no_form_that_there_is_then_406_names_those() -> None:
    with pytest.raises(NotAcceptable, match="application/json, application/com"):
        swagger_form("application/com.github.proto-openapi.spec.v3@v1.0+protobuf")

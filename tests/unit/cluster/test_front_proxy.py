"""Who a request is from, behind a front proxy, and what is asked about them."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from livevirt.cluster.front_proxy import FrontProxy, access_review
from livevirt.kube.objects.request import ActionPath, User

PROXY = FrontProxy("PEM", ("front-proxy-client",))
CERTIFICATE = {"subject": ((("commonName", "front-proxy-client"),),)}
OTHER = {"subject": ((("commonName", "kubernetes-admin"),),)}
NAMED = CIMultiDict({"X-Remote-User": "jane"})
JANE = User("jane", ("system:authenticated",))
ANONYMOUS = CIMultiDict(
    {"X-Remote-User": "system:anonymous", "X-Remote-Group": "system:unauthenticated"}
)
FULL = CIMultiDict(
    [
        ("X-Remote-User", "jane"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "team"),
        ("X-Remote-Group", "system:authenticated"),
        ("X-Remote-Extra-Acme.com%2Fproject", "web"),
        ("X-Remote-Extra-Acme.com%2Fproject", "db"),
    ]
)

USERS: dict[str, tuple[FrontProxy, Any, CIMultiDict[str], User | None]] = {
    "the proxy's certificate": (PROXY, CERTIFICATE, NAMED, JANE),
    "no certificate": (PROXY, None, NAMED, None),
    "a certificate without a subject": (PROXY, {}, NAMED, None),
    "a certificate of another client": (PROXY, OTHER, NAMED, None),
    "any name of the proxy's authority": (FrontProxy("PEM"), OTHER, NAMED, JANE),
    "a cluster without a front proxy": (FrontProxy(""), CERTIFICATE, NAMED, None),
    "the proxy names nobody": (PROXY, CERTIFICATE, CIMultiDict(), None),
    "an anonymous user": (
        PROXY,
        CERTIFICATE,
        ANONYMOUS,
        User("system:anonymous", ("system:unauthenticated",)),
    ),
    "all there is about a user": (
        PROXY,
        CERTIFICATE,
        FULL,
        User("jane", ("team", "system:authenticated"), "7", {"acme.com/project": ("web", "db")}),
    ),
}


@pytest.mark.parametrize(("proxy", "certificate", "headers", "user"), USERS.values(), ids=USERS)
def test_user(
    proxy: FrontProxy, certificate: Any, headers: CIMultiDict[str], user: User | None
) -> None:
    assert proxy.user(certificate, headers) == user


def test_given_a_config_map_then_its_headers_and_names_are_used() -> None:
    data = {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["proxy"]',
        "requestheader-username-headers": '["X-User"]',
        "requestheader-group-headers": '["X-Group"]',
        "requestheader-extra-headers-prefix": '["X-Extra-"]',
        "client-ca-file": "another PEM",
    }
    read = FrontProxy.read({"data": data})
    assert read == FrontProxy(
        "PEM", ("proxy",), ("X-User",), ("X-Remote-Uid",), ("X-Group",), ("X-Extra-",)
    )
    certificate = {"subject": ((("commonName", "proxy"),),)}
    assert read.user(certificate, NAMED) is None  # another header than the one it uses


def test_given_no_config_then_nobody_is_trusted() -> None:
    assert FrontProxy.read({}).user(CERTIFICATE, NAMED) is None


ROOT = "/apis/subresources.kubevirt.io/v1/"
START = ActionPath("virtualmachines", "team", "web", "start")
FORWARD = ActionPath("virtualmachineinstances", "team", "web", "portforward/22/tcp")
EXPAND = ActionPath("", "team", "", "expand-vm-spec")
VERSION = ActionPath("", "", "", "version")
GROUP = {"group": "subresources.kubevirt.io", "version": "v1"}
REVIEWS: dict[str, tuple[ActionPath | None, str, str, dict[str, Any]]] = {
    "an action on an object": (
        START,
        "PUT",
        f"{ROOT}namespaces/team/virtualmachines/web/start",
        {
            "resourceAttributes": {
                **GROUP, "verb": "update", "namespace": "team", "resource": "virtualmachines",
                "subresource": "start", "name": "web",
            }
        },
    ),
    "an action with arguments in its path": (
        FORWARD,
        "GET",
        f"{ROOT}namespaces/team/virtualmachineinstances/web/portforward/22/tcp",
        {
            "resourceAttributes": {
                **GROUP, "verb": "get", "namespace": "team", "name": "web",
                "resource": "virtualmachineinstances", "subresource": "portforward",
            }
        },
    ),
    "an action on a namespace": (
        EXPAND,
        "PUT",
        f"{ROOT}namespaces/team/expand-vm-spec",
        {
            "resourceAttributes": {
                **GROUP, "verb": "update", "namespace": "team", "resource": "expand-vm-spec",
            }
        },
    ),
    "an action of the cluster": (
        VERSION,
        "GET",
        f"{ROOT}version",
        {"resourceAttributes": {**GROUP, "verb": "list", "resource": "version"}},
    ),
    "a document": (
        None,
        "GET",
        "/openapi/v3",
        {"nonResourceAttributes": {"verb": "get", "path": "/openapi/v3"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("target", "method", "path", "asked"), REVIEWS.values(), ids=REVIEWS)
def test_access_review(
    target: ActionPath | None, method: str, path: str, asked: dict[str, Any]
) -> None:
    user = User("jane", ("team",), "7", {"project": ("web",)})
    spec = access_review(user, method, path, target)["spec"]
    who = {"user": "jane", "groups": ["team"], "uid": "7", "extra": {"project": ["web"]}}
    assert spec == {**who, **asked}

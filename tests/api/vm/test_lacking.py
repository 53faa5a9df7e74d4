"""What KubeVirt and Kubernetes have and livevirt has not is refused in words, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from livevirt.errors import ApiError, Forbidden, NotFound
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.kubeconfig import impersonation
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects import core

from .served import serving
from .vm_world import World

GROUP = "/apis/subresources.kubevirt.io/v1/namespaces/default"
LACKING = {
    "vsock": (f"{GROUP}/virtualmachineinstances/web/vsock", "livevirt does not serve vsock"),
    "a memory dump": (
        f"{GROUP}/virtualmachines/web/memorydump", "livevirt does not serve memory dumps",
    ),
}  # fmt: skip


@pytest.fixture
async def admin(quiet: World, tmp_path: Path) -> AsyncIterator[RemoteClient]:
    async with serving(quiet, tmp_path) as served:
        client = RemoteClient(kubeconfig.find(str(served.data.kubeconfig)))
        yield client
        await client.close()


@pytest.mark.parametrize(("path", "message"), LACKING.values(), ids=LACKING)
async def test_what_is_not_served_says_so(admin: RemoteClient, path: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        await admin.raw("GET", path)
    assert (refused.value.status_code, refused.value.status_reason) == (501, "NotImplemented")
    with pytest.raises(ApiError) as refused:
        await admin.websocket(path, protocols=("plain.kubevirt.io",))
    assert refused.value.status_code == 501
    with pytest.raises(NotFound):
        await admin.raw("GET", f"{GROUP}/virtualmachineinstances/web/dance")


AS_OTHERS = {
    "a user": list(impersonation("bob")),
    "a group": [("Impersonate-Group", "staff")],
    "a uid": [("Impersonate-Uid", "1")],
    "more": [("impersonate-extra-scopes", "view")],
}


@pytest.mark.parametrize("headers", AS_OTHERS.values(), ids=AS_OTHERS)
async def test_nobody_acts_as_somebody_else(
    admin: RemoteClient, headers: list[tuple[str, str]]
) -> None:
    assert await admin.get(core.NAMESPACE, "default")
    other = RemoteClient(replace(admin.access, impersonate=tuple(headers)))
    try:
        for path in ("/api/v1/namespaces/default", "/api", LACKING["vsock"][0]):
            with pytest.raises(Forbidden, match=r'User ".+" cannot impersonate: .* --as'):
                await other.raw("GET", path)
    finally:
        await other.close()

"""The recording of server-side apply is what a real kube-apiserver answers."""

from __future__ import annotations

import functools

import pytest

from .. import apply_requests
from .cluster import KubernetesCluster, eventually
from .webhook_process import livevirt

pytestmark = pytest.mark.kubernetes


@pytest.fixture(scope="module")
def api(control_plane: KubernetesCluster) -> apply_requests.Api:
    """A cluster that serves our kinds."""
    control_plane.kubectl("apply", "--server-side", "-f", "-", text=livevirt("crds"))
    kind = "virtualmachineinstancetypes.v1beta2.instancetype.kubevirt.io"
    served = functools.partial(control_plane.run_kubectl, "get", kind)
    assert eventually(lambda: served().returncode == 0)
    return apply_requests.Api.of_kubeconfig(control_plane.kubeconfig)


@pytest.mark.parametrize("name", apply_requests.SEQUENCES)
def test_the_recording_is_true(api: apply_requests.Api, name: str) -> None:
    answers = apply_requests.play(api, apply_requests.SEQUENCES[name])
    assert answers == apply_requests.recorded()[name]

"""The recorded cases pass on a real kube-apiserver with our definitions and our webhook."""

from __future__ import annotations

import base64
import functools
from pathlib import Path

import pytest
import yaml

from .. import golden
from .cluster import KubernetesCluster, eventually
from .webhook_process import WebhookProcess

pytestmark = pytest.mark.kubernetes

#: Cases that fail for a reason, by topic and name.
EXCEPTIONS: dict[str, str] = {}


@pytest.fixture
def server(control_plane: KubernetesCluster, webhook: WebhookProcess) -> dict[str, str]:
    """The cluster of the kubeconfig, once it serves our kinds with the webhook's certificate."""
    for kind in ("vm", "vmi", "virtualmachineinstancetypes.instancetype.kubevirt.io"):
        served = functools.partial(control_plane.run_kubectl, "get", kind)
        assert eventually(lambda served=served: served().returncode == 0)
    config = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    found: dict[str, str] = config["clusters"][0]["cluster"]
    return found


@pytest.fixture
def token(control_plane: KubernetesCluster) -> str:
    """A token of an administrator."""
    control_plane.kubectl("create", "serviceaccount", "golden")
    role = ("--clusterrole=cluster-admin", "--serviceaccount=default:golden")
    control_plane.kubectl("create", "clusterrolebinding", "golden", *role)
    return control_plane.kubectl("create", "token", "golden").strip()


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # one case must
async def test_recorded_cases_pass_with_our_webhook(
    server: dict[str, str], token: str, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(base64.b64decode(server["certificate-authority-data"]))
    results = await golden.replayer().replay(
        server["server"], token, ca=str(ca), without={"bare"}, jobs=4
    )
    found = golden.by_outcome(results)
    assert found["failed"] == set(EXCEPTIONS), golden.problems(results, set(EXCEPTIONS))
    assert len(found["passed"]) > len(found["failed"]) + len(found["skipped"])

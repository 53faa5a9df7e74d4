"""The world of VMs: a server with its controllers, and a node that is only played."""

from ..vm.conftest import cluster_for_vms, node, quiet, world

__all__ = ["cluster_for_vms", "node", "quiet", "world"]

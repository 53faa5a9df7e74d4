"""The world of VMs: a server with its controllers, and a node that is only played."""

from ..vm.conftest import node, quiet, world

__all__ = ["node", "quiet", "world"]

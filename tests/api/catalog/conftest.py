"""The world of the tests of VMs, here with the catalog in it."""

from __future__ import annotations

from ..vm.conftest import quiet

__all__ = ["quiet"]

"""The huge pages this machine has set aside."""

from __future__ import annotations

import contextlib
from pathlib import Path

from livevirt.kube.objects.quantity import Format, Quantity

RESOURCE = "hugepages-"  # followed by the size of one page
_FOLDERS = Path("/sys/kernel/mm/hugepages")


def resources(folders: Path = _FOLDERS) -> dict[str, tuple[int, int]]:
    """Return the bytes of one page and the number of pages, by resource; sizes without pages too.

    Kubernetes names a size as a quantity: 2048kB is `hugepages-2Mi`.
    """
    found = {}
    for folder in sorted(folders.glob("hugepages-*kB")):
        size = int(folder.name.removeprefix(RESOURCE).removesuffix("kB")) * 1024
        with contextlib.suppress(OSError):
            pages = int((folder / "nr_hugepages").read_text())
            found[f"{RESOURCE}{Quantity.from_int(size, Format.BINARY_SI)}"] = (size, pages)
    return found

from pathlib import Path

from livevirt.node.host import resources


def test_pages_are_named_as_kubernetes_names_them(tmp_path: Path) -> None:
    for size, pages in (("2048", 7), ("1048576", 0)):
        folder = tmp_path / f"hugepages-{size}kB"
        folder.mkdir()
        (folder / "nr_hugepages").write_text(f"{pages}\n")
    assert resources(tmp_path) == {
        "hugepages-2Mi": (2 * 2**20, 7),
        "hugepages-1Gi": (2**30, 0),
    }


def test_a_kernel_without_them_has_none(tmp_path: Path) -> None:
    assert resources(tmp_path / "nowhere") == {}

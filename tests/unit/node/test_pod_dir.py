import shutil
from pathlib import Path

import pytest

from livevirt.node import exit_record, intent
from livevirt.node.intent import CgroupDir, Intent, Limits, UnknownIntent
from livevirt.node.pod_dir import PodDir, all_in
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Cpu, Machine, Memory

INTENT = Intent(
    boot_id="b",
    node="n1",
    namespace="ns",
    pod="p",
    pod_uid="u",
    vmi="web",
    vmi_uid="v",
    argv=("qemu", "-S"),
    machine=Machine(
        name="web",
        uuid="00000000-0000-0000-0000-000000000001",
        accelerator="tcg",
        cpu=Cpu(model="max"),
        memory=Memory(boot=1 << 20, max=1 << 20),
        run_dir="/run/1",
        serial_log="/log",
        disks=(Disk(id="ua-root", image=Image("/a", "qcow2", backing=Image("/b"))),),
    ),
    cgroups=(CgroupDir("/sys/fs/cgroup/x", ("cpu", "memory"), 2),),
    limits=Limits(100, None, 1 << 30),
    created="2026-01-01T12:00:00Z",
)


@pytest.fixture
def folder(tmp_path: Path) -> PodDir:
    found = PodDir(tmp_path / "nodes" / "n1" / "pods", tmp_path / "run", "some-uid")
    found.create(None)
    return found


def test_what_was_intended_and_what_came_of_it_is_read_back(folder: PodDir) -> None:
    assert folder.read_intent() is None
    assert folder.read_ending() is None
    folder.write_intent(INTENT)
    folder.write_ending(exit_record.destroyed("2026-01-01T12:00:00Z"))
    assert folder.read_intent() == INTENT
    assert folder.read_ending() == exit_record.destroyed("2026-01-01T12:00:00Z")
    assert [each.uid for each in all_in(folder.root.parent, folder.run.parent)] == ["some-uid"]


@pytest.mark.parametrize("data", [b"", b"{", b'{"version": 2}', b'{"version": 1}'])
def test_an_intent_that_is_not_understood_is_not_acted_upon(data: bytes) -> None:
    with pytest.raises(UnknownIntent):
        intent.decode(data)


def test_removing_leaves_nothing(folder: PodDir) -> None:
    folder.create_run(None)
    (folder.run / "qmp.sock").touch()
    folder.write_intent(INTENT)
    folder.remove()
    assert not folder.root.exists()
    assert not folder.run.exists()
    folder.remove()


def test_given_a_kill_while_it_is_removed_then_no_intent_is_left_without_its_notes(
    folder: PodDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_intent(INTENT)
    folder.migration.write_left()

    def killed(*_: object, **__: object) -> None:
        (folder.root / "left").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "remove_run", lambda: None)
    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.remove()
    assert folder.read_intent() is None


def test_others_pass_through_and_see_nothing(folder: PodDir) -> None:
    folder.create_run(None)
    modes = {path: path.stat().st_mode & 0o777 for path in (folder.root, folder.run, folder.stderr)}
    assert list(modes.values()) == [0o711, 0o700, 0o600]


@pytest.mark.parametrize("uid", ["", "..", "a/b", ".hidden"])
def test_a_uid_is_never_a_path(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="is not a uid"):
        PodDir(tmp_path, tmp_path, uid)


def test_the_end_of_a_long_log_is_shown(folder: PodDir) -> None:
    folder.stderr.write_text("x" * 10_000 + " the end\n")
    assert folder.complaint().endswith("the end")
    assert len(folder.complaint()) <= 2000

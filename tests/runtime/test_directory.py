from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from folkmoot.kernel.errors import StoreError
from folkmoot.runtime import directory
from folkmoot.runtime.directory import FORMAT, DataFolder, stored_node_id

HOLD = """
import sys
from pathlib import Path
from folkmoot.runtime.directory import DataFolder, stored_node_id
folder = DataFolder(Path(sys.argv[1]), "n1", 8)
print("held", flush=True)
sys.stdin.read()
"""


def established(path: Path) -> None:
    folder = DataFolder(path, "n1", 8)
    assert folder.fresh
    folder.store.mkdir()
    folder.established()
    folder.close()


def test_a_folder_is_made_once_and_recognised_later(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    established(path)
    folder = DataFolder(path, "n1", 8)
    assert not folder.fresh
    assert json.loads((path / "format").read_text()) == {"format": FORMAT, "node": "n1", "partitions": 8}
    assert folder.free_bytes() > 0
    folder.close()


def test_a_start_that_ended_before_the_store_was_made_may_be_repeated(tmp_path: Path) -> None:
    DataFolder(tmp_path, "n1", 8).close()
    folder = DataFolder(tmp_path, "n1", 8)
    assert folder.fresh
    folder.store.mkdir()
    (folder.store / "CURRENT").touch()
    folder.close()
    folder = DataFolder(tmp_path, "n1", 8)
    assert folder.fresh
    folder.close()


def test_two_processes_never_have_the_same_folder(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    with pytest.raises(StoreError, match=rf"in use by process {child.pid}.*--data"):
        DataFolder(tmp_path, "n1", 8)
    child.kill()  # the lock ends with the process, however it ends
    child.communicate()
    DataFolder(tmp_path, "n1", 8).close()


def test_who_has_the_lock_of_the_process_before_knows_that_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("one\n")
    monkeypatch.setattr(directory, "BOOT_ID", boot)

    def succeeds(name: str) -> bool:
        folder = DataFolder(tmp_path / name, "n1", 8)
        folder.close()
        return folder.succeeds

    assert not succeeds("data"), "there was none"
    assert succeeds("data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert not succeeds("copy"), "another process may have the folder that it is a copy of"
    (tmp_path / "data").rename(tmp_path / "away")
    (tmp_path / "copy").rename(tmp_path / "data")
    assert succeeds("data"), "a folder that was moved is the same one"
    boot.write_text("two\n")
    assert not succeeds("data"), "it may have run on another machine"
    assert succeeds("data")
    (tmp_path / "data" / "holder").write_bytes(b"\xff")
    assert not succeeds("data")
    boot.unlink()
    assert not succeeds("data"), "nothing is known of this system"


@pytest.mark.parametrize(
    ("node", "partitions", "text"),
    [("n2", 8, "belongs to the node 'n1'.*--node-id n1"), ("n1", 9, "made with 8 partitions.*partitions = 8")],
)
def test_another_node_is_refused(tmp_path: Path, node: str, partitions: int, text: str) -> None:
    established(tmp_path)
    with pytest.raises(StoreError, match=text):
        DataFolder(tmp_path, node, partitions)
    DataFolder(tmp_path, "n1", 8).close()  # and the lock was let go


def test_data_of_another_format_is_refused(tmp_path: Path) -> None:
    established(tmp_path)
    (tmp_path / "format").write_text(json.dumps({"format": FORMAT + 1, "node": "n1", "partitions": 8}))
    with pytest.raises(StoreError, match=f"format {FORMAT + 1}, this program reads format {FORMAT}"):
        DataFolder(tmp_path, "n1", 8)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": "x", "node": "n1", "partitions": 8}'])
def test_a_damaged_format_file_is_named(tmp_path: Path, text: str) -> None:
    established(tmp_path)
    (tmp_path / "format").write_text(text)
    with pytest.raises(StoreError, match=r"format is damaged: restore"):
        DataFolder(tmp_path, "n1", 8)


def test_a_store_without_its_format_file_is_not_taken_for_new(tmp_path: Path) -> None:
    established(tmp_path)
    (tmp_path / "store" / "CURRENT").touch()
    (tmp_path / "format").unlink()
    with pytest.raises(StoreError, match="no file 'format'"):
        DataFolder(tmp_path, "n1", 8)


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot use the data folder .*--data"):
        DataFolder(tmp_path / "file" / "data", "n1", 8)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_tells_whose_it_is(tmp_path: Path) -> None:
    assert stored_node_id(tmp_path / "data") == ""
    folder = DataFolder(tmp_path / "data", "n7", 8)
    assert stored_node_id(tmp_path / "data") == "", "it is nobody's until it has a store"
    folder.established()
    folder.close()
    assert stored_node_id(tmp_path / "data") == "n7"
    for text in ("{", "[]", '{"nod": 1}'):
        (tmp_path / "data" / "format").write_text(text, encoding="utf-8")
        assert stored_node_id(tmp_path / "data") == ""


def test_what_waited_for_no_disk_may_be_lost_when_the_machine_went_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot"
    boot.write_text("first\n")
    monkeypatch.setattr(directory, "BOOT_ID", boot)
    established(tmp_path / "data")
    folder = DataFolder(tmp_path / "data", "n1", 8)
    assert not folder.lost()
    folder.begin(forced=False)
    assert not folder.lost(), "a killed process loses nothing: the kernel has what it wrote"
    boot.write_text("second\n")
    assert folder.lost()
    assert folder.lost(), "until the node has written down what it knows of it"
    folder.begin(forced=False)
    assert not folder.lost()
    folder.end()
    boot.write_text("third\n")
    assert not folder.lost(), "it ended in good order"
    folder.begin(forced=False)
    boot.write_text("fourth\n")
    folder.begin(forced=True)
    boot.write_text("fifth\n")
    assert not folder.lost(), "from now on every write waits for the disk"
    folder.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_a_new_folder_is_for_one_user_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        DataFolder(tmp_path / "data", "n1", 8).close()
    finally:
        os.umask(before)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "lock").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("mode", "later"), [(0o755, 0o700), (0o777, 0o700), (0o701, 0o700), (0o700, 0o700), (0o750, 0o750), (0o770, 0o770)]
)
def test_a_folder_that_every_user_can_read_is_closed_and_a_group_keeps_its_access(
    tmp_path: Path, mode: int, later: int
) -> None:
    path = tmp_path / "data"
    established(path)
    path.chmod(mode)
    folder = DataFolder(path, "n1", 8)
    folder.close()
    assert path.stat().st_mode & 0o777 == later
    assert folder.closed_to_others == (mode != later)
    assert folder.open_to_others == ""


def test_of_a_folder_of_another_user_the_store_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the root of a volume that is mounted for a group."""
    path = tmp_path / "data"
    established(path)
    path.chmod(0o777)
    (path / "store").chmod(0o755)
    owner = os.geteuid()
    stat = Path.stat

    def of_another(self: Path, **options: bool) -> os.stat_result:
        found = list(stat(self, **options))
        found[4] = owner + 1 if self == path else owner
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", of_another)
    folder = DataFolder(path, "n1", 8)
    folder.close()
    assert "chmod o-rwx" in folder.open_to_others
    assert (path / "store").stat().st_mode & 0o777 == 0o700

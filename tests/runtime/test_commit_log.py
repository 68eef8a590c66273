"""The commit log on files: what a crash may leave behind, what is damage, what a failed write leaves."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.runtime import commit_log
from folkmoot.runtime.commit_log import CommitLog
from folkmoot.runtime.directory import sync_folder
from folkmoot.store.batch import Batch
from folkmoot.store.segment import encode_frame


def batch_of(number: int, size: int = 40) -> Batch:
    batch = Batch(number)
    batch.put(b"k%06d" % number, bytes([number % 256]) * size)
    return batch


def created(folder: Path, sync: bool = True) -> CommitLog:
    log = CommitLog(folder, sync, False)
    log.create()
    return log


def opened(folder: Path, applied: int = 0, sync: bool = True, salvage: bool = False) -> tuple[CommitLog, list[int]]:
    """The log, and the numbers of the batches that it has from a position on."""
    log = CommitLog(folder, sync, salvage)
    numbers = [int(key[1:]) for ops, _position in log.replay(applied) for _kind, key, _value in ops]
    return log, numbers


def filled(folder: Path, count: int, sync: bool = True) -> list[int]:
    """Write batches 1 to `count`; return where each begins, and the end."""
    log = created(folder, sync)
    ends = [log.end]
    for number in range(1, count + 1):
        log.append([batch_of(number)])
        ends.append(log.end)
    log.close()
    return ends


def newest(folder: Path) -> Path:
    return max(folder.glob("*.seg"))


def test_a_start_begins_one_segment(tmp_path: Path) -> None:
    """More of them would have tables made of few rows."""
    folder = tmp_path / "log"
    for number in range(3):
        log = CommitLog(folder, True, False)
        if not number:
            log.create()
        assert [len(ops) for ops, _position in log.replay(0)] == [1] * number
        log.append([batch_of(number)])
        assert log.segments == 1
        log.close()


def test_what_was_written_is_read_again_from_any_position(tmp_path: Path) -> None:
    ends = filled(tmp_path / "log", 5)
    for number, position in enumerate(ends):
        log, numbers = opened(tmp_path / "log", position)
        assert numbers == list(range(number + 1, 6))
        assert log.end == ends[-1]
        assert log.torn_bytes == 0


def test_each_start_goes_on_in_a_segment_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    filled(folder, 2)
    for number in range(3, 6):
        log, numbers = opened(folder)
        assert numbers == list(range(1, number))
        log.append([batch_of(number)])
        log.close()
    assert len(list(folder.glob("*.seg"))) == 4
    assert opened(folder)[1] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["short", "zeros", "garbage", "hole"])
def test_a_torn_tail_is_no_part_of_the_log(tmp_path: Path, kind: str) -> None:
    """After a loss of power, any blocks of the last write may be there."""
    folder = tmp_path / "log"
    ends = filled(folder, 3)
    rng = random.Random(kind)
    name = newest(folder).name
    whole = newest(folder).read_bytes()
    for cut in range(ends[2], ends[3]):
        shutil.rmtree(folder)
        folder.mkdir()
        tail = len(whole) - cut
        torn = {
            "short": whole[:cut],
            "zeros": whole[:cut] + bytes(tail),
            "garbage": whole[:cut] + rng.randbytes(tail),
            "hole": whole[: ends[2]] + bytes(cut - ends[2]) + whole[cut:],
        }[kind]
        (folder / name).write_bytes(torn)
        log, numbers = opened(folder)
        if torn == whole:
            assert numbers == [1, 2, 3]
            continue
        assert numbers == [1, 2]
        assert log.end == ends[2]
        assert log.torn_bytes == len(torn) - ends[2]
    log.append([batch_of(4)])
    log.close()
    assert opened(folder)[1] == [1, 2, 4], "what the crash has left is not read again"


def test_every_changed_byte_in_front_of_a_frame_that_was_synced_later_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    ends = filled(folder, 3)
    path = newest(folder)
    whole = path.read_bytes()
    for at in range(ends[2]):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        begin = max(end for end in ends if end <= at)
        with pytest.raises(CorruptStore, match=rf"{path.name} is damaged at byte {begin}; nothing was changed.*backup"):
            opened(folder)
        assert path.read_bytes()[at] != whole[at], "and so it is"


def test_a_sealed_log_tells_damage_to_its_last_write(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = created(folder)
    log.append([batch_of(1)])
    begin = log.end
    log.append([batch_of(2)])
    log.seal()
    log.close()
    path = newest(folder)
    assert opened(folder)[1] == [1, 2]
    data = bytearray(path.read_bytes())
    data[begin + 30] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptStore, match=f"damaged at byte {begin};"):
        opened(folder)


def test_a_log_without_sync_claims_nothing(tmp_path: Path) -> None:
    """The kernel writes blocks in any order: a frame behind a hole says nothing of what is in front of it."""
    folder = tmp_path / "log"
    ends = filled(folder, 3, sync=False)
    path = newest(folder)
    data = path.read_bytes()
    path.write_bytes(data[: ends[1]] + bytes(ends[2] - ends[1]) + data[ends[2] :])
    log, numbers = opened(folder, sync=False)
    assert numbers == [1]
    assert log.torn_bytes == ends[3] - ends[1]


def test_salvage_reads_up_to_the_damage_and_drops_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "log"
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 150)
    ends = filled(folder, 9)
    starts = sorted(folder.glob("*.seg"))
    assert len(starts) > 3
    second = starts[1]
    data = bytearray(second.read_bytes())
    data[40] ^= 1
    second.write_bytes(data)
    with pytest.raises(CorruptStore, match=second.name):
        opened(folder)
    kept = ends.index(int(second.stem, 16))
    log, numbers = opened(folder, salvage=True)
    assert numbers == list(range(1, kept + 1))
    log.append([batch_of(10)])
    log.close()
    assert opened(folder)[1] == [*range(1, kept + 1), 10], "from then on the log is sound"


def test_missing_files_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 150)
    folder = tmp_path / "log"
    ends = filled(folder, 9)
    count = len(list(folder.glob("*.seg")))
    for number in range(count):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        gone = sorted(copy.glob("*.seg"))[number]
        gone.unlink()
        with pytest.raises(CorruptStore, match="backup"):
            opened(copy, ends[-1] if number == count - 1 else 0)
    for path in folder.glob("*.seg"):
        path.unlink()
    with pytest.raises(CorruptStore, match="lost its segments"):
        opened(folder)


def test_a_log_that_is_shorter_than_what_was_applied_has_lost_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    ends = filled(folder, 3)
    os.truncate(newest(folder), ends[2])
    with pytest.raises(CorruptStore, match=f"damaged at byte {ends[2]};"):
        opened(folder, ends[3])
    log, numbers = opened(folder, ends[3], sync=False)
    assert numbers == []
    log.append([batch_of(4)])
    log.close()
    assert opened(folder, ends[3], sync=False)[1] == [4]


def test_segments_are_removed_when_nothing_of_them_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 150)
    folder = tmp_path / "log"
    ends = filled(folder, 9)
    log, _numbers = opened(folder)
    before = log.size_bytes()
    for number, position in enumerate(ends):
        log.trim(position)
        assert opened(folder, position)[1] == list(range(number + 1, 10))
    log.trim(ends[-1])
    assert len(list(folder.glob("*.seg"))) == 1
    assert log.size_bytes() < before


def numbers_of(log: CommitLog, bytes_max: int = 1 << 20) -> list[int]:
    return [int(ops[0][1][1:]) for ops in log.newest(bytes_max)]


def test_the_newest_groups_can_be_read_whatever_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 150)
    folder = tmp_path / "log"
    ends = filled(folder, 9)
    for applied in ends:
        log, _numbers = opened(folder, applied)
        assert numbers_of(log) == list(range(1, 10))
        for number, position in enumerate(ends):
            assert numbers_of(log, ends[-1] - position) == list(range(number + 1, 10))
            assert numbers_of(log, max(0, ends[-1] - position - 1)) == list(range(min(number + 2, 10), 10))
        log.close()


def test_the_newest_groups_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage in what nobody needs any more is no reason to refuse a start, but what is before it does not count."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 150)
    folder = tmp_path / "log"
    ends = filled(folder, 9)
    paths = sorted(folder.glob("*.seg"))
    assert len(paths) == 5
    data = bytearray(paths[1].read_bytes())
    data[-1] ^= 1
    paths[1].write_bytes(data)
    log, numbers = opened(folder, ends[8])
    assert numbers == [9]
    assert numbers_of(log) == [5, 6, 7, 8, 9]
    log.close()


def test_the_newest_groups_end_where_the_log_does(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    ends = filled(folder, 3)
    with newest(folder).open("ab") as file:
        file.write(encode_frame([batch_of(4)], ends[-1], ends[-1])[:-1])
    log, numbers = opened(folder, ends[1])
    assert numbers == [2, 3]
    assert numbers_of(log) == [1, 2, 3]
    log.append([batch_of(4)])
    log.close()
    assert numbers_of(opened(folder, log.end)[0]) == [1, 2, 3, 4]


def test_some_segments_stay_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 150)
    folder = tmp_path / "log"
    ends = filled(folder, 60)
    log, _numbers = opened(folder, ends[-1])
    log.trim(ends[-1], ends[-1] - ends[51])
    assert numbers_of(log) in ([*range(51, 61)], [*range(52, 61)])
    log.close()
    folder = tmp_path / "other"
    ends = filled(folder, 60)
    log, _numbers = opened(folder, ends[-1])
    log.trim(ends[-1], 1 << 30)
    assert len(list(folder.glob("*.seg"))) <= 17
    log.close()


class Disk:
    """Stands before the calls of the system that write, and fails as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1  # bytes until the disk is full; -1: it has room
        self.sync_fails = False
        self.synced: list[int] = []
        self.write = os.write
        self.fdatasync = os.fdatasync
        monkeypatch.setattr(os, "write", self._write)
        monkeypatch.setattr(os, "fdatasync", self._fdatasync)
        monkeypatch.setattr(commit_log, "sync_folder", lambda _path: None)
        monkeypatch.setattr(os, "fsync", self._fdatasync)

    def _write(self, descriptor: int, data: Any) -> int:
        if self.left < 0:
            return self.write(descriptor, data)
        if not self.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.write(descriptor, data[: self.left])
        self.left -= written
        return written

    def _fdatasync(self, descriptor: int) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        self.fdatasync(descriptor)
        self.synced.append(descriptor)


@pytest.mark.parametrize("fault", ["full", "sync"])
@pytest.mark.parametrize("first", [True, False])
def test_nothing_of_a_failed_write_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, first: bool
) -> None:
    folder = tmp_path / "log"
    disk = Disk(monkeypatch)
    log = created(folder)
    if not first:
        log.append([batch_of(1)])
    for _ in range(3):
        disk.left = 20 if fault == "full" else -1
        disk.sync_fails = fault == "sync"
        with pytest.raises(OSError, match=r"No space|Input/output"):
            log.append([batch_of(2)])
    disk.left, disk.sync_fails = -1, False
    log.append([batch_of(3)])
    log.append([batch_of(4)])
    log.close()
    assert opened(folder)[1] == ([] if first else [1]) + [3, 4]


def test_a_seal_that_a_failed_sync_has_lost_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may drop what it could not write, and report that once: no later sync brings it to the disk."""
    folder = tmp_path / "log"
    disk = Disk(monkeypatch)
    log = created(folder)
    log.append([batch_of(1)])
    durable = log.durable
    log.seal()
    first = newest(folder)
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        log.append([batch_of(2)])
    disk.sync_fails = False
    log.append([batch_of(3)])
    log.close()
    os.truncate(first, durable)
    assert opened(folder)[1] == [1, 3]


def test_a_write_returns_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    log = created(tmp_path / "log")
    for number in range(1, 4):
        log.append([batch_of(number)])
        assert len(disk.synced) == number
        assert log.durable == log.end
    lazy = created(tmp_path / "lazy", sync=False)
    disk.synced.clear()
    lazy.append([batch_of(1)])
    assert (len(disk.synced), lazy.durable) == (0, 0)
    lazy.sync()
    assert (len(disk.synced), lazy.durable) == (1, lazy.end)
    lazy.sync()
    assert len(disk.synced) == 1, "there was nothing to wait for"


def test_the_folder_of_a_new_log_is_durable_before_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(commit_log, "sync_folder", synced.append)
    created(tmp_path / "log")
    assert synced == [tmp_path, tmp_path / "log"]


def test_after_a_failed_write_a_sync_still_waits_for_what_was_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    log = created(tmp_path / "log", sync=False)
    log.append([batch_of(1)])
    disk.left = 20
    with pytest.raises(OSError, match="No space"):
        log.append([batch_of(2)])
    disk.left, disk.sync_fails = -1, True
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    assert log.durable < log.end


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_loss_of_power_leaves_all_that_was_durable_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Writes, starts and losses of power at random; of bytes that were not synced, any blocks may be gone."""
    rng = random.Random(seed)
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", rng.choice((200, 2000, 100_000)))
    folder = tmp_path / "log"
    sync = rng.random() < 0.7
    log = created(folder, sync)
    written: list[tuple[int, int]] = []  # (number, end) of what the log has, in order
    number = 0
    survived = 0
    for _ in range(30):
        for _ in range(rng.randint(0, 6)):
            number += 1
            log.append([batch_of(number, rng.choice((1, 60, 5000)))])
            written.append((number, log.end))
            if rng.random() < 0.2:
                log.seal()
            if rng.random() < 0.2:
                log.sync()
        durable = max(log.durable, survived)
        log.close()
        path = newest(folder)
        start = int(path.stem, 16)
        data = bytearray(path.read_bytes())
        for block in range(max(0, durable - start), len(data), 512):
            if rng.random() < 0.5:
                data[block : block + 512] = bytes(len(data[block : block + 512]))
        keep = rng.randint(min(max(0, durable - start), len(data)), len(data))
        path.write_bytes(data[:keep])
        log, numbers = opened(folder, sync=sync)
        least = [one for one, end in written if end <= durable]
        assert numbers[: len(least)] == least
        assert numbers == [one for one, _end in written[: len(numbers)]]
        written = written[: len(numbers)]
        assert log.durable == log.end, "what is applied to rows must not be lost with the next loss of power"
        survived = log.end
    assert number > 30
    log.close()


def lose(descriptor: int, size: int) -> None:
    """The power fails: of what the kernel had not written, nothing is there, whatever name the file has by now."""
    os.ftruncate(descriptor, size)
    os.close(descriptor)


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_what_a_failed_sync_has_left_in_memory_is_written_again_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, writes: bool, sync: bool
) -> None:
    """The kernel takes it for clean and still shows it, so a sync succeeds and does nothing."""
    folder = tmp_path / "log"
    disk = Disk(monkeypatch)
    log = created(folder, sync)
    for number in range(before):
        log.append([batch_of(number)])
    log.sync()
    durable = log.durable
    disk.sync_fails = True
    if not sync:
        log.append([batch_of(before)])
    with pytest.raises(OSError, match="Input/output"):
        log.append([batch_of(before)]) if sync else log.sync()
    disk.sync_fails = False
    log.close()
    failed = os.open(newest(folder), os.O_RDWR)
    size = durable - int(newest(folder).stem, 16)
    log, numbers = opened(folder, sync=sync)
    assert numbers == list(range(before + 1))
    assert log.durable == log.end
    if writes:
        log.append([batch_of(before + 1)])
        log.sync()
        numbers.append(before + 1)
    log.close()
    lose(failed, size)
    for _ in range(2):
        log, again = opened(folder, sync=sync)
        assert again == numbers
        log.close()


def test_what_was_applied_needs_no_log_even_if_a_failed_sync_has_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "log"
    disk = Disk(monkeypatch)
    log = created(folder)
    log.append([batch_of(1)])
    durable = log.durable
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        log.append([batch_of(2)])
    disk.sync_fails = False
    log.close()
    failed = os.open(newest(folder), os.O_RDWR)
    end = os.fstat(failed).st_size
    log, numbers = opened(folder, end)
    assert (numbers, log.end, log.durable) == ([], end, end)
    log.close()
    lose(failed, durable)
    log, numbers = opened(folder, end)
    assert (numbers, log.end, log.torn_bytes) == ([], end, 0)


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("step", range(6))
def test_a_crash_while_frames_are_written_again_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, step: int
) -> None:
    folder = tmp_path / "log"
    filled(folder, before + 1)
    with newest(folder).open("ab") as file:
        file.write(b"torn")
    left = [step]

    def counted(call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            if not left[0]:
                raise Crash
            left[0] -= 1
            return call(*arguments)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data, write=os.write: write(descriptor, data[:50]))
        for name in ("write", "fdatasync", "rename"):
            patch.setattr(os, name, counted(getattr(os, name)))
        patch.setattr(commit_log, "sync_folder", counted(sync_folder))
        if step < 5:
            with pytest.raises(Crash):
                opened(folder)
        else:
            opened(folder)
    for number in range(2):
        log, numbers = opened(folder)
        assert numbers == list(range(1, before + 2 + number))
        log.append([batch_of(before + 2 + number)])
        log.close()


def test_frames_that_cannot_be_written_again_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "log"
    filled(folder, 2)
    names = sorted(folder.iterdir())
    disk = Disk(monkeypatch)
    disk.left = 20
    with pytest.raises(OSError, match="No space"):
        opened(folder)
    assert sorted(folder.iterdir()) == names
    disk.left = -1
    assert opened(folder)[1] == [1, 2]


def test_after_a_failed_sync_no_later_one_makes_it_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports what it could not write once: the next sync would succeed."""
    folder = tmp_path / "log"
    disk = Disk(monkeypatch)
    log = created(folder, sync=False)
    log.append([batch_of(1)])
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    disk.sync_fails = False
    with pytest.raises(OSError, match="earlier sync"):
        log.sync()
    with pytest.raises(OSError, match="earlier sync"):
        log.append([batch_of(2)])
    log.close()
    assert [int(key[1:]) for ops, _position in log.replay(0) for _kind, key, _value in ops] == [1]
    log.append([batch_of(2)])
    log.sync()
    log.close()
    assert opened(folder, sync=False)[1] == [1, 2]

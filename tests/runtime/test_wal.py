from __future__ import annotations

import struct
from pathlib import Path

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.runtime.wal import BLOCK, crc32c, cut_torn_tail, find_damage, newest_log


def record(kind: int, payload: bytes) -> bytes:
    """A record as RocksDB writes it."""
    crc = crc32c(bytes([kind]) + payload)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), kind) + payload


def log_of(*payloads: bytes) -> bytes:
    """A log with one write per payload, cut into blocks as the format demands."""
    out = bytearray()
    for payload in payloads:
        first = True
        while True:
            room = BLOCK - len(out) % BLOCK
            if room < 7:
                out += bytes(room)
                room = BLOCK
            piece, payload = payload[: room - 7], payload[room - 7 :]
            kind = (1 if first else 4) if not payload else (2 if first else 3)
            out += record(kind, piece)
            first = False
            if not payload:
                break
    return bytes(out)


def test_the_checksum_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789")


def test_the_newest_log_has_the_highest_number(tmp_path: Path) -> None:
    assert newest_log(tmp_path) is None
    for name in ("000009.log", "000010.log", "LOG", "000011.sst", "old.log"):
        (tmp_path / name).touch()
    assert newest_log(tmp_path) == tmp_path / "000010.log"


@pytest.mark.parametrize(
    "payloads",
    [
        [b"a" * 20, b"b" * 30, b"c" * 40],
        [b"a" * 20, b"b" * (2 * BLOCK), b"c"],  # a write over three blocks
        [b"a" * (BLOCK - 7 - 10), b"b" * 20],  # 10 bytes left in the block: a piece of 3
        [b"a" * (BLOCK - 7 - 3), b"b" * 20],  # 3 bytes left: padding
        [b"a" * (BLOCK - 7), b"b"],  # nothing left
    ],
    ids=["small", "fragments", "piece", "padding", "exact"],
)
def test_what_a_killed_process_left_is_cut_to_the_last_complete_write(tmp_path: Path, payloads: list[bytes]) -> None:
    data = log_of(*payloads)
    ends = [len(log_of(*payloads[:count])) for count in range(len(payloads) + 1)]
    path = tmp_path / "1.log"
    lengths = {
        *range(0, len(data), 4999),
        *(end + more for end in ends for more in (-9, -8, -7, -6, -1, 0, 1, 6, 7, 8)),
        len(data),
    }
    for length in sorted(length for length in lengths if 0 <= length <= len(data)):
        path.write_bytes(data[:length])
        removed = cut_torn_tail(path)
        kept = path.stat().st_size
        complete = max(end for end in ends if end <= length)
        assert kept + removed == length
        assert path.read_bytes().rstrip(b"\0") == data[:complete].rstrip(b"\0"), f"log cut at {length}"


def test_zeros_of_a_file_that_was_made_longer_before_the_write_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    data = log_of(b"a" * 20, b"b" * 20)
    path.write_bytes(data + bytes(5000))
    assert cut_torn_tail(path) == 5000
    assert path.read_bytes() == data


def test_a_complete_record_whose_length_is_damaged_is_named_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    data = bytearray(log_of(b"a" * 20, b"b" * 20, b"c" * 20))
    for write in range(3):
        position = write * 27
        broken = bytearray(data)
        broken[position + 5] ^= 0x40  # the length's upper byte: the record seems to go on beyond the end
        path.write_bytes(broken)
        with pytest.raises(CorruptStore, match=rf"1\.log is damaged at byte {position};.*--salvage"):
            cut_torn_tail(path)
        assert path.read_bytes() == broken


def test_damage_is_found_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    data = log_of(b"a" * 20, b"b" * 40_000, b"c" * 20)
    path.write_bytes(data)
    assert find_damage(path) == -1
    broken = bytearray(data)
    broken[35_000] ^= 1
    path.write_bytes(broken)
    assert find_damage(path) == BLOCK
    broken = bytearray(data)
    broken[30] ^= 1
    path.write_bytes(broken)
    assert find_damage(path) == 27

"""The tail of RocksDB's write-ahead log: tells an unfinished write from a damaged record.

RocksDB tolerates either every incomplete record at the end of a log or none. Tolerating every one is unsafe: a damaged
length makes complete records look incomplete, and they are dropped silently. So the store is opened in the strict
mode, and this module first removes what a killed process left behind: a prefix of its last write, and nothing else.

The format (RocksDB wiki, "Write Ahead Log File Format"): blocks of 32 KiB; a record has a header of 7 bytes, namely a
masked CRC-32C of type and payload (4, little-endian), the length of the payload (2) and the type: 1 whole, 2 first,
3 middle, 4 last. A record never crosses a block; fewer than 7 bytes at the end of a block are zero.
This module never changes a log that it does not understand: RocksDB then refuses it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import CorruptStore

__all__ = ["crc32c", "cut_torn_tail", "damaged", "find_damage", "newest_log"]

BLOCK: Final = 32_768
HEADER: Final = 7
WHOLE: Final = 1
FIRST: Final = 2
MIDDLE: Final = 3
LAST: Final = 4
_POLYNOMIAL: Final = 0x82F63B78


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE: Final = _table()


def crc32c(data: bytes, value: int = 0) -> int:
    """Return the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `data`, continuing from `value`."""
    value ^= 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def unmask(masked: int) -> int:
    """Return the checksum that RocksDB stores as `masked` (rotated and shifted, so that a CRC of CRCs is not weak)."""
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def newest_log(folder: Path) -> Path | None:
    """Return the log with the highest number, the one that was being written; None without any."""
    logs = [path for path in folder.glob("*.log") if path.stem.isdigit()]
    return max(logs, key=lambda path: int(path.stem), default=None)


def cut_torn_tail(path: Path) -> int:
    """Remove an unfinished write from the end of a log; return the number of bytes removed.

    Raises CorruptStore if the incomplete record was once complete: then its header is damaged.
    """
    data = path.read_bytes()
    keep = complete_end(data, path)
    if keep < len(data):
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, keep)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return len(data) - keep


def complete_end(data: bytes, path: Path) -> int:
    """Return where the last complete write ends; searches block by block from the end of the log."""
    if not data:
        return 0
    start = (len(data) - 1) // BLOCK * BLOCK
    last, stop = walk(data, start)
    if stop == len(data) and last == stop:
        return stop
    if stop < len(data):
        check_unfinished(data, stop, path)
    while last < 0 and start > 0:
        start -= BLOCK
        last, _ = walk(data, start)
    return max(last, 0)


def walk(data: bytes, start: int) -> tuple[int, int]:
    """Follow the headers of the block at `start`; return the end of the last write in it (-1: none) and where to stop.

    The walk stops at the end of the block or of the data, or at the first incomplete record.
    """
    end = min(start + BLOCK, len(data))
    pos = start
    last = -1
    while end - pos >= HEADER:
        length = data[pos + 4] | data[pos + 5] << 8
        kind = data[pos + 6]
        if pos + HEADER + length > end or (kind == 0 and length == 0):
            return last, pos
        pos += HEADER + length
        if kind in (WHOLE, LAST):
            last = pos
    if end == start + BLOCK:
        # There is no room for a header: the rest of the block is padding, written with the record that follows.
        return (end if last == pos else last), end
    return last, pos


def check_unfinished(data: bytes, pos: int, path: Path) -> None:
    """Raise CorruptStore if the record at `pos`, incomplete by its header, has a checksum that matches what follows.

    If the payload is complete, the record was written completely and its length is damaged: RocksDB would drop it and
    all that follows. A torn record has only a part of its payload, so that its checksum matches nothing.
    """
    rest = data[pos : pos + BLOCK]
    if len(rest) < HEADER or not any(rest):
        return
    wanted = unmask(int.from_bytes(rest[:4], "little"))
    value = crc32c(rest[6:7])
    for end in range(HEADER, len(rest) + 1):
        if value == wanted:
            raise damaged(path, pos)
        if end < len(rest):
            value = crc32c(rest[end : end + 1], value)


def find_damage(path: Path) -> int:
    """Return the position of the first record whose checksum is wrong, or -1; takes about a second per 10 MB."""
    data = path.read_bytes()
    pos = 0
    while pos < len(data):
        if BLOCK - pos % BLOCK < HEADER:
            pos += BLOCK - pos % BLOCK
            continue
        length = int.from_bytes(data[pos + 4 : pos + 6], "little")
        body = data[pos + 6 : pos + HEADER + length]
        if len(body) <= length or crc32c(body) != unmask(int.from_bytes(data[pos : pos + 4], "little")):
            return pos
        pos += HEADER + length
    return -1


def damaged(path: Path, pos: int) -> CorruptStore:
    """Return the error that names a damaged log and what to do about it."""
    return CorruptStore(
        f"the log {path} is damaged at byte {pos}; nothing was changed. Restore the data folder from a backup or a "
        "replica. To go on with what was written before the damage, and lose the rest, start once with --salvage"
    )

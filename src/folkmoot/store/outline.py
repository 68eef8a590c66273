"""Outlines: which operations of a batch make which changes, stored with the batch, so that a start finds the changes.

The commit log keeps what a turn has done, and not where one change ends and the next begins: changes of other nodes
follow each other in a batch, a removal has no version, and pages of a copy are no changes at all. So each batch with
changes ends with a row of the node that says it, always the same one: the tables have the newest, which nobody reads.

What an outline does not name is no part of a change. It also names the partitions whose changes so far do not lead to
what is there now: a copy begins, goes back, or is removed.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, U16, get_u16, get_u64, get_varint, u64, varint
from folkmoot.store.batch import PUT, Batch, encode_ops
from folkmoot.store.key import META, kind_of, outline_key, partition_of_key

__all__ = ["Outline", "Outlined", "outlined", "own_ops"]

_FORMAT: Final = 1
_VERSION_BYTES: Final = 16

_BREAK: Final = 0  # what comes later does not follow
_FOLLOWED: Final = 1  # a change of another node: a range of `Writer.raw`
_OWN: Final = 2  # a change of this node: all operations on its partition outside of these ranges


class Outline:
    """What one turn does, in order."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def broken(self, partition: int) -> None:
        """The changes of a partition so far are not followed by the next ones."""
        self._entries.append(BYTE[_BREAK] + U16[partition])

    def followed(self, partition: int, before: tuple[int, int], after: tuple[int, int], number: int) -> None:
        """A change of another node leads from one position to the next; number: of its range in the batch."""
        head = BYTE[_FOLLOWED] + U16[partition] + _encode_positions(before, after)
        self._entries.append(head + varint(number))

    def own(self, partition: int, before: tuple[int, int], after: tuple[int, int]) -> None:
        """The turn's own change of a partition leads from one position to the next."""
        self._entries.append(BYTE[_OWN] + U16[partition] + _encode_positions(before, after))

    def write(self, batch: Batch, raw_ranges: list[int]) -> None:
        """Put the outline behind all other operations of its batch, if there is anything to say; then begin anew."""
        if not self._entries:
            return
        parts = [bytes(_VERSION_BYTES), BYTE[_FORMAT], varint(len(batch.ops)), varint(len(raw_ranges) // 2)]
        parts.extend([varint(bound) for bound in raw_ranges])
        batch.put(outline_key(), b"".join([*parts, *self._entries]))
        self._entries = []


def _encode_positions(before: tuple[int, int], after: tuple[int, int]) -> bytes:
    """Return two positions; most have the same epoch."""
    head = u64(before[0]) + varint(before[1]) + varint(after[1])
    return head + (BYTE[0] if before[0] == after[0] else BYTE[1] + u64(after[0]))


class Outlined:
    """A change from position (prev_epoch, prev_seq) to (epoch, seq); `body`: its operations, as `encode_ops` has them.

    is_break: no change, but the end of those that follow each other.
    """

    def __init__(self, partition: int, is_break: bool) -> None:
        self.partition = partition
        self.is_break = is_break
        self.prev_epoch = 0
        self.prev_seq = 0
        self.epoch = 0
        self.seq = 0
        self.body = b""


def outlined(ops: list[tuple[int, bytes, bytes]]) -> list[Outlined]:
    """Return the changes in a frame of the commit log, in order; raises ValueError if an outline does not fit it."""
    found: list[Outlined] = []
    wanted = outline_key()
    for index, (kind, key, value) in enumerate(ops):
        if kind == PUT and key == wanted:
            try:
                _read(ops, index, value, found)
            except IndexError:
                raise ValueError("an outline ends too early") from None
    return found


def _read(ops: list[tuple[int, bytes, bytes]], index: int, value: bytes, found: list[Outlined]) -> None:
    if value[_VERSION_BYTES] != _FORMAT:
        raise ValueError(f"an outline has format {value[_VERSION_BYTES]}")
    size, pos = get_varint(value, _VERSION_BYTES + 1)
    count, pos = get_varint(value, pos)
    if size > index:
        raise ValueError("an outline is of operations that are not in its frame")
    batch = ops[index - size : index]
    bounds: list[int] = []
    for _ in range(2 * count):
        bound, pos = get_varint(value, pos)
        if bound > size or (bounds and bound < bounds[-1]):
            raise ValueError("an outline has a range that is not in its batch")
        bounds.append(bound)
    own = own_ops(batch, bounds)
    while pos < len(value):
        kind = value[pos]
        one = Outlined(get_u16(value, pos + 1), kind == _BREAK)
        pos += 3
        if kind != _BREAK:
            pos = _read_positions(one, value, pos)
            ops_of = own.get(one.partition, [])
            if kind == _FOLLOWED:
                number, pos = get_varint(value, pos)
                if number >= count:
                    raise ValueError("an outline names a range that it does not have")
                ops_of = batch[bounds[2 * number] : bounds[2 * number + 1]]
            elif kind != _OWN:
                raise ValueError(f"an outline has an entry {kind}")
            one.body = encode_ops(ops_of)
        found.append(one)
    if pos > len(value):
        raise ValueError("an outline ends too early")


def _read_positions(one: Outlined, value: bytes, pos: int) -> int:
    one.prev_epoch = one.epoch = get_u64(value, pos)
    one.prev_seq, pos = get_varint(value, pos + 8)
    one.seq, pos = get_varint(value, pos)
    if value[pos]:
        one.epoch = get_u64(value, pos + 1)
        pos += 8
    if one.seq <= one.prev_seq:
        raise ValueError("an outline has a change that does not lead forward")
    return pos + 1


def own_ops(ops: list[tuple[int, bytes, bytes]], raw_ranges: list[int]) -> dict[int, list[tuple[int, bytes, bytes]]]:
    """Return the operations of a batch that are this node's own changes, by partition, in order."""
    own: dict[int, list[tuple[int, bytes, bytes]]] = {}
    bounds = [0, *raw_ranges, len(ops)]
    for number in range(0, len(bounds), 2):
        for index in range(bounds[number], bounds[number + 1]):
            key = ops[index][1]
            if kind_of(key) == META:
                continue
            partition = partition_of_key(key)
            group = own.get(partition)
            if group is None:
                own[partition] = [ops[index]]
            else:
                group.append(ops[index])
    return own

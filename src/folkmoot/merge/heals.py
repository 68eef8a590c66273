"""The summaries of heals that a node knows: its own and those of all others, so that each can tell of all.

A node that has merged tells all that are connected; to one that connects it tells all that it knows. Owns the list and
its bytes, on the wire and in the store.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import varint
from folkmoot.peer.cursor import Cursor, put_text

__all__ = ["HEALS_MAX", "Heals", "decode_heals", "encode_heals"]

HEALS_MAX: Final = 64  # the newest
_FIELDS_MAX: Final = 64
_ITEMS_MAX: Final = 256
_NUMBER: Final = 0
_TEXT: Final = 1
_NAMES: Final = 2
_COUNTS: Final = 3


class Heals:
    """All summaries that are known, oldest first; `changed`: since the last look, so that they are to be stored."""

    def __init__(self, node_id: str) -> None:
        self.known: list[dict[str, object]] = []
        self.changed = False
        self.fresh: list[dict[str, object]] = []  # own ones that the others have not been told of
        self._node_id = node_id

    def note(self, own: list[dict[str, object]]) -> None:
        """Take the summaries of this node that are not known yet."""
        for fields in own[-HEALS_MAX:]:
            named = {**fields, "node": self._node_id}
            if self._add(named):
                self.fresh.append(named)

    def learn(self, data: bytes) -> None:
        """Take summaries from another node or from the store; raises ValueError."""
        for fields in decode_heals(data):
            self._add(fields)

    def _add(self, fields: dict[str, object]) -> bool:
        name = _name_of(fields)
        for other in self.known:
            if _name_of(other) == name:
                return False
        if len(self.known) >= HEALS_MAX and name < _name_of(self.known[0]):
            return False  # older than all that are kept
        self.known.append(fields)
        self.known.sort(key=_name_of)
        del self.known[:-HEALS_MAX]
        self.changed = True
        return True


def _name_of(fields: dict[str, object]) -> tuple[int, str]:
    """Return what no two summaries have in common: when, and at which node."""
    time_us = fields.get("time_us", 0)
    return (time_us if isinstance(time_us, int) else 0, str(fields.get("node", "")))


def encode_heals(heals: list[dict[str, object]]) -> bytes:
    """Return summaries as bytes; values are numbers, texts, lists of texts, and numbers by name."""
    parts: list[bytes] = [varint(len(heals))]
    for fields in heals:
        parts.append(varint(len(fields)))
        for name, value in fields.items():
            parts.append(put_text(name))
            if isinstance(value, int):
                parts.append(bytes([_NUMBER]) + varint(value))
            elif isinstance(value, list):
                parts.append(bytes([_NAMES]) + varint(len(value)))
                parts.extend([put_text(str(item)) for item in value])
            elif isinstance(value, dict):
                parts.append(bytes([_COUNTS]) + varint(len(value)))
                parts.extend([put_text(str(item)) + varint(value[item]) for item in value])
            else:
                parts.append(bytes([_TEXT]) + put_text(str(value)))
    return b"".join(parts)


def decode_heals(data: bytes) -> list[dict[str, object]]:
    """Read what `encode_heals` wrote; raises ValueError."""
    cursor = Cursor(data, "a list of heals")
    heals: list[dict[str, object]] = []
    for _ in range(cursor.count(HEALS_MAX)):
        fields: dict[str, object] = {}
        for _ in range(cursor.count(_FIELDS_MAX)):
            name = cursor.text()
            fields[name] = _value(cursor)
        heals.append(fields)
    return heals


def _value(cursor: Cursor) -> object:
    kind = cursor.byte()
    if kind == _NUMBER:
        return cursor.integer()
    if kind == _TEXT:
        return cursor.text()
    if kind == _NAMES:
        return [cursor.text() for _ in range(cursor.count(_ITEMS_MAX))]
    if kind != _COUNTS:
        raise ValueError(f"the summary of a heal has a value of kind {kind}")
    counts: dict[str, int] = {}
    for _ in range(cursor.count(_ITEMS_MAX)):
        name = cursor.text()
        counts[name] = cursor.integer()
    return counts

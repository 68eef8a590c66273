"""The settings of the whole cluster: a small key space that every member has, and who changed it last.

Each value has a *number*, the index of the entry that put it. A change names the number that it expects, so that of two
changes that know the same value one is refused (compare-and-set).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint
from folkmoot.membership.cluster_member import take_id
from folkmoot.peer.cursor import Cursor, put_bytes, put_text

__all__ = [
    "ABSENT",
    "ANY",
    "AUTHOR_BYTES_MAX",
    "CHANGES_MAX",
    "KEYS_MAX",
    "KEY_BYTES_MAX",
    "TOTAL_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "ClusterSettings",
    "Setting",
    "SettingChange",
    "SettingNews",
    "take_settings",
]

ANY: Final = -1  # expected: whatever there is
ABSENT: Final = 0  # expected: nothing; no entry has index 0

KEY_BYTES_MAX: Final = 512
VALUE_BYTES_MAX: Final = 64 << 10
AUTHOR_BYTES_MAX: Final = 256
KEYS_MAX: Final = 65_536
TOTAL_BYTES_MAX: Final = 16 << 20  # of keys and values: every snapshot has them
CHANGES_MAX: Final = 1024  # the newest changes that are kept


class Setting:
    """A value, its number and its author; immutable."""

    def __init__(self, value: bytes, number: int, author: str) -> None:
        assert number > 0, "the number of a value is an index"
        self.value = value
        self.number = number
        self.author = author


class SettingChange:
    """One change, for an audit; immutable."""

    def __init__(self, number: int, author: str, key: str, deleted: bool) -> None:
        self.number = number
        self.author = author
        self.key = key
        self.deleted = deleted

    def __repr__(self) -> str:
        return f"{self.number} {'delete' if self.deleted else 'put'} {self.key!r} by {self.author!r}"


class SettingNews:
    """What has changed behind a number: keys, and the number up to which that is said.

    is_whole: more has changed than is remembered, so `keys` has all that there are, and any other may be gone.
    """

    def __init__(self, number: int, keys: list[str], is_whole: bool) -> None:
        self.number = number
        self.lineage: int = 0  # of the log of which that is a number
        self.keys = keys
        self.is_whole = is_whole


class ClusterSettings:
    """All values by their keys, and the newest changes, oldest first."""

    def __init__(self) -> None:
        self.values: dict[str, Setting] = {}
        self.changes: list[SettingChange] = []
        self.total_bytes: int = 0

    def number(self, key: str) -> int:
        """Return the number of a value, or ABSENT."""
        found = self.values.get(key)
        return ABSENT if found is None else found.number

    def expects(self, key: str, expected: int) -> bool:
        """Tell whether a change that expects this number fits."""
        return expected in (ANY, self.number(key))

    def has_room(self, key: str, value: bytes) -> bool:
        """Tell whether a value fits in, in place of the one that it replaces."""
        found = self.values.get(key)
        if found is None:
            return len(self.values) < KEYS_MAX and self.total_bytes + _cost(key, value) <= TOTAL_BYTES_MAX
        return self.total_bytes - len(found.value) + len(value) <= TOTAL_BYTES_MAX

    def since(self, number: int) -> SettingNews:
        """Return which keys have changed behind a number; 0: all that there are."""
        newest = self.changes[-1].number if self.changes else 0
        if number == 0 or (len(self.changes) == CHANGES_MAX and self.changes[0].number > number + 1):
            return SettingNews(newest, sorted(self.values), True)
        keys = {change.key for change in self.changes if change.number > number}
        return SettingNews(max(newest, number), sorted(keys), False)

    def put(self, key: str, value: bytes, number: int, author: str) -> None:
        """Set a value."""
        assert self.has_room(key, value), "there is room for the value"
        found = self.values.get(key)
        if found is not None:
            self.total_bytes -= _cost(key, found.value)
        self.values[key] = Setting(value, number, author)
        self.total_bytes += _cost(key, value)
        self._note(SettingChange(number, author, key, False))

    def delete(self, key: str, number: int, author: str) -> None:
        """Remove a value that is there."""
        self.total_bytes -= _cost(key, self.values[key].value)
        del self.values[key]
        assert self.total_bytes >= 0, "no value is removed twice"
        self._note(SettingChange(number, author, key, True))

    def _note(self, change: SettingChange) -> None:
        assert not self.changes or self.changes[-1].number < change.number, "changes are noted in their order"
        self.changes.append(change)
        if len(self.changes) > CHANGES_MAX:
            del self.changes[0]

    def encoded(self) -> bytes:
        """Return everything as bytes, the same for equal settings."""
        parts = [varint(len(self.values))]
        for key in sorted(self.values):
            found = self.values[key]
            parts.append(put_text(key) + put_bytes(found.value) + varint(found.number) + put_text(found.author))
        parts.append(varint(len(self.changes)))
        for change in self.changes:
            head = varint(change.number) + put_text(change.author) + put_text(change.key)
            parts.append(head + BYTE[change.deleted])
        return b"".join(parts)


def _cost(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)


def take_settings(cursor: Cursor) -> ClusterSettings:
    """Read what `ClusterSettings.encoded` wrote; raises ValueError."""
    settings = ClusterSettings()
    for _ in range(cursor.count(KEYS_MAX)):
        key = cursor.text()
        value = cursor.bytes_()
        number = take_id(cursor, 1, "number of a value")
        if len(value) > VALUE_BYTES_MAX:
            raise ValueError(f"the setting {key!r} has {len(value)} bytes")
        settings.values[key] = Setting(value, number, cursor.text())
        settings.total_bytes += _cost(key, value)
    if settings.total_bytes > TOTAL_BYTES_MAX:
        raise ValueError(f"the settings have {settings.total_bytes} bytes")
    last = 0
    for _ in range(cursor.count(CHANGES_MAX)):
        number = take_id(cursor, last + 1, "number of a later change")
        author = cursor.text()
        key = cursor.text()
        deleted = cursor.byte()
        if deleted > 1:
            raise ValueError(f"a change of {key!r} is neither a put nor a delete")
        settings.changes.append(SettingChange(number, author, key, deleted == 1))
        last = number
    return settings

"""The settings of the whole cluster: a small key space that every member has, and who changed it last.

Each value has a *number*, the index of the entry that put it. A change names the number that it expects, so that of two
changes that know the same value one is refused (compare-and-set).

A process asks again when it got no answer, so a request may become an entry twice. It has a *request id*, and what was
judged is remembered until the process has said that it needs no answer any more: a repetition gets the answer of the
first one and changes nothing (Ongaro's dissertation, section 6.3).
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
    "JUDGED_MAX",
    "KEYS_MAX",
    "KEY_BYTES_MAX",
    "TOTAL_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "ClusterSettings",
    "RequestId",
    "Setting",
    "SettingChange",
    "SettingNews",
    "dropped_keys",
    "is_possible",
    "take_request",
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
JUDGED_MAX: Final = 1024  # requests of one process whose answers are remembered
_PROCESSES_MAX: Final = 4096  # one of each member


def is_possible(key: str, author: str, size: int) -> bool:
    """Tell whether a change fits in at all: a key without control characters, an author, a value of this size."""
    try:
        key_bytes, author_bytes = len(key.encode()), len(author.encode())
    except UnicodeEncodeError:
        return False
    for character in key:
        if character < " " or character == "\x7f":
            return False
    return 0 < key_bytes <= KEY_BYTES_MAX and 0 < author_bytes <= AUTHOR_BYTES_MAX and size <= VALUE_BYTES_MAX


class RequestId:
    """Which request a change is for; immutable.

    Args:
        disk: Of the process that asks, a member.
        incarnation: Of the process.
        number: Of the request; each has another one.
        done: The process has the answers to all requests with lower numbers, or waits for them no more.
    """

    def __init__(self, disk: int, incarnation: int, number: int, done: int) -> None:
        assert 0 < done <= number, "this one is not answered"
        self.disk = disk
        self.incarnation = incarnation
        self.number = number
        self.done = done


class _Judged:
    """The requests of one process that were judged, and that it may make again: their entries and how they were."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.done: int = 1
        self.found: dict[int, tuple[int, int]] = {}  # by number


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
        self._judged: dict[int, _Judged] = {}  # by disk

    def is_over(self, request: RequestId) -> bool:
        """Tell whether nobody waits for the answer to a request any more: its process has ended, or has the answer."""
        known = self._judged.get(request.disk)
        if known is None or request.incarnation > known.incarnation:
            return False
        return request.incarnation < known.incarnation or request.number < known.done

    def first(self, request: RequestId) -> tuple[int, int] | None:
        """Return the entry that was for the same request, and how it was judged; None: there was none."""
        known = self._judged.get(request.disk)
        if known is None or request.incarnation != known.incarnation:
            return None
        return known.found.get(request.number)

    def judge(self, request: RequestId, index: int, refused: int) -> None:
        """Remember how a request was judged."""
        assert not self.is_over(request), "somebody waits for it"
        known = self._judged.get(request.disk)
        if known is None or request.incarnation > known.incarnation:
            known = self._judged[request.disk] = _Judged(request.incarnation)
        if request.done > known.done:
            known.done = request.done
            for number in [number for number in known.found if number < request.done]:
                del known.found[number]
        known.found[request.number] = (index, refused)

    def has_room_for(self, request: RequestId) -> bool:
        """Tell whether a process has not too many requests of which it does not say that it has the answers."""
        known = self._judged.get(request.disk)
        if known is None or request.incarnation > known.incarnation:
            return True
        return len([number for number in known.found if number >= request.done]) < JUDGED_MAX

    def forget_requests(self, disk: int) -> None:
        """Forget what a disk has asked for: it is no member any more."""
        self._judged.pop(disk, None)

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
        if self._judged:  # settings without requests end here, as those of earlier builds
            parts.append(varint(len(self._judged)))
            for disk in sorted(self._judged):
                known = self._judged[disk]
                parts.append(varint(disk) + varint(known.incarnation) + varint(known.done) + varint(len(known.found)))
                for number in sorted(known.found):
                    index, refused = known.found[number]
                    parts.append(varint(number) + varint(index) + BYTE[refused])
        return b"".join(parts)

    def take_judged(self, cursor: Cursor) -> None:
        """Read the requests that `encoded` wrote; raises ValueError."""
        for _ in range(cursor.count(_PROCESSES_MAX)):
            disk = take_id(cursor, 1, "identity of a disk")
            known = self._judged[disk] = _Judged(take_id(cursor, 1, "incarnation"))
            known.done = take_id(cursor, 1, "number of a request")
            for _ in range(cursor.count(JUDGED_MAX)):
                number = take_id(cursor, known.done, "number of a request")
                index = take_id(cursor, 1, "index")
                known.found[number] = (index, cursor.byte())


def _cost(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)


def dropped_keys(before: ClusterSettings, now: ClusterSettings, shared: int) -> list[str]:
    """Return the keys, sorted, that were changed in one lineage only, and have other values in the one that goes on.

    Both have the same changes up to where they parted. Where more has changed since than is remembered, that is not
    known, and every value that is another one counts. shared: up to this number they certainly have the same.
    """
    known = {change.number: change for change in now.changes}
    for change in before.changes:
        other = known.get(change.number)
        same = other is not None and other.key == change.key and other.author == change.author
        if other is not None and same and other.deleted == change.deleted:
            shared = max(shared, change.number)
    found: dict[str, bool] = {}
    for change in before.changes:
        if change.number > shared and _value(before, change.key) != _value(now, change.key):
            found[change.key] = True
    return sorted(found)


def _value(settings: ClusterSettings, key: str) -> bytes | None:
    found = settings.values.get(key)
    return None if found is None else found.value


def take_request(cursor: Cursor) -> RequestId:
    """Read a request id; raises ValueError."""
    disk = take_id(cursor, 1, "identity of a disk")
    incarnation = take_id(cursor, 1, "incarnation")
    number = take_id(cursor, 1, "number of a request")
    done = take_id(cursor, 1, "number of a request")
    if done > number:
        raise ValueError("a request is answered before it is made")
    return RequestId(disk, incarnation, number, done)


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
    if not cursor.done():
        settings.take_judged(cursor)
    return settings

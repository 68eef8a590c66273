"""The log of a node: one line per event on stderr, as text for people or as JSON for machines.

Owns the format. Events that are too frequent are counted instead of written, so that an attack cannot fill the disk
(`folkmoot.runtime.loglimit`). Values are written unchanged: the code that creates an event keeps secrets out of it.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from folkmoot.kernel.event import Event
from folkmoot.runtime.address import host_of, limit_key
from folkmoot.runtime.loglimit import LineLimits

__all__ = ["Log", "json_line", "plain"]

LEVELS: Final = {"debug": 0, "info": 1, "warning": 2, "error": 3}
VALUE_CHARACTERS_MAX: Final = 400
ITEMS_MAX: Final = 100
# Limits of characters per text and items per list, tried in order until a line of JSON fits in a pipe.
SHORTER: Final = ((VALUE_CHARACTERS_MAX, ITEMS_MAX), (60, 10), (16, 3))
# What a pipe that polls as writable accepts without blocking (PIPE_BUF on Linux).
PIPE_BYTES: Final = 4096


class Log:
    """Writes events of at least `level` in `form` ("text" or "json") to `stream`."""

    def __init__(self, level: str, form: str, stream: TextIO | None = None) -> None:
        self._least = LEVELS[level]
        self._json = form == "json"
        self._stream = sys.stderr if stream is None else stream
        self._limits = LineLimits()
        self.also: Callable[[Iterable[Event], int], None] | None = (
            None  # gets all events, whatever their level and rate
        )
        self._readers = reader_watch(self._stream)
        self._lost = 0  # lines dropped because the reader had stopped

    def write_all(self, events: Iterable[Event], now: int) -> None:
        """Write the events of one turn that happened at `now` (microseconds since 1970)."""
        if self.also is not None:
            self.also(events, now)
        lines = [line for event in events if (line := self._line(event, now)) is not None]
        if lines:
            self._put(lines, now)

    def say(self, level: str, kind: str, now: int, /, **fields: object) -> None:
        """Write one event of the driver."""
        self.write_all([Event(level, kind, fields)], now)

    @property
    def suppressed(self) -> int:
        """Return how many events were counted instead of written."""
        return self._limits.suppressed

    def report_suppressed(self, now: int, all_of_them: bool = False) -> None:
        """Write what was suppressed some time ago and has had no line since; to be called regularly, and at the end."""
        for found in self._limits.summaries(now, all_of_them):
            fields: dict[str, object] = {"what": found.kind, "lines": found.lines}
            if found.addresses:
                fields.update(addresses=found.addresses, most=found.most)
            self._put([self._format(Event("warning", "log_suppressed", fields), fields, now)], now)

    def _put(self, lines: list[str], now: int) -> None:
        try:
            if self._readers is None:
                self._stream.write("".join(lines))
                self._stream.flush()
                return
            for line in lines:
                self._put_one(self._readers, line, now)
        except (OSError, ValueError):
            # The reader of the log is gone, or its disk is full: neither may stop the broker.
            return

    def _put_one(self, readers: select.poll, line: str, now: int) -> None:
        """Write a line to a pipe or terminal, unless its reader has stopped: a blocking write would stop the node."""
        if not readers.poll(0):
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self._stream.write(self._format(Event("warning", "log_lost", {"lines": lost}), {"lines": lost}, now))
            self._stream.flush()
            self._put_one(readers, line, now)
            return
        data = line.encode("utf-8", "replace")
        if len(data) > PIPE_BYTES:
            line = data[: PIPE_BYTES - 4].decode("utf-8", "ignore") + "...\n"
        self._stream.write(line)
        self._stream.flush()

    def _line(self, event: Event, now: int) -> str | None:
        if LEVELS[event.level] < self._least:
            return None
        address = event.fields.get("address")
        skipped = self._limits.take(event.kind, limit_key(host_of(str(address))) if address else "", now)
        if skipped < 0:
            return None
        fields = dict(event.fields)
        if skipped:
            fields["skipped"] = skipped
        return self._format(event, fields, now)

    def _format(self, event: Event, fields: dict[str, object], now: int) -> str:
        time = datetime.fromtimestamp(now / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return self._as_json(time, event, fields) if self._json else self._as_text(time, event, fields)

    def _as_json(self, time: str, event: Event, fields: dict[str, object]) -> str:
        head = {"time": time, "level": event.level, "event": event.kind}
        data = b""
        for characters, items in SHORTER:
            short = {name: plain(value, characters, items) for name, value in fields.items()}
            data = json_line({**short, **head})
            if len(data) < PIPE_BYTES:
                break
        return data.decode()

    def _as_text(self, time: str, event: Event, fields: dict[str, object]) -> str:
        words = [time, event.level.upper().ljust(7), event.kind]
        words += [f"{name}={quoted(words_of(plain(value)))}" for name, value in fields.items()]
        return " ".join(words) + "\n"


def reader_watch(stream: TextIO) -> select.poll | None:
    """Return a poll object that tells whether a pipe, socket or terminal is writable; None for a regular file."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(mode) or not hasattr(select, "poll"):
        return None
    readers = select.poll()
    readers.register(descriptor, select.POLLOUT)
    return readers


def plain(value: object, characters: int = VALUE_CHARACTERS_MAX, items: int = ITEMS_MAX) -> object:
    """Return a value as JSON can hold it, shortened to fit in a line; what is no number, list or object becomes text.

    characters, items: the maximum length of a text and of a list; "..." stands for the rest.
    """
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        more = ["..."] if len(value) > items else []
        return [plain(item, characters, items) for item in value[:items]] + more
    if isinstance(value, dict):
        return {str(name): plain(value[name], characters, items) for name in list(value)[:items]}
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= characters else text[:characters] + "..."


def json_line(fields: dict[str, object]) -> bytes:
    """Return a line of JSON, in which what a terminal or a reader of lines would obey is escaped.

    JSON escapes less: U+009B begins a control sequence, and for many programs U+0085, U+2028 and U+2029 end a line.
    """
    text = msgspec.json.encode(fields).decode()
    if not text.isprintable():
        text = "".join([one if one.isprintable() else json.dumps(one)[1:-1] for one in text])
    return text.encode() + b"\n"


def words_of(value: object) -> str:
    """Return a value of `plain` as text: items separated by commas, booleans as yes and no, None as none."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join([words_of(item) for item in value]) or "none"
    if isinstance(value, dict):
        return ", ".join([f"{name} {words_of(item)}" for name, item in value.items()]) or "none"
    return str(value)


def quoted(text: str) -> str:
    """Return text that cannot be mistaken for another field or line: quoted and escaped unless it is a single word."""
    if text.isprintable() and text and not any(character in text for character in ' "=\\'):
        return text
    return msgspec.json.encode(text).decode() if text.isprintable() else ascii(text)

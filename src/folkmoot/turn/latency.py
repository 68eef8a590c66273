"""How long publishers wait for acknowledgements, and messages for delivery, by the first levels of their topics.

Owns the figures of the current interval. Measures only while they are read (`on`), and by turn or run where that gives
the same result: all messages of a turn came at the same time, and their acknowledgements leave together.

publish-to-ack: from the turn that read a PUBLISH of QoS 1 or 2 to the end of the turn in which its acknowledgement
leaves. publish-to-deliver: from when a node took the message to the end of the turn in which it is handed to the
connection of a subscriber; of single messages one in SAMPLE is timed and counts for so many. Not timed: messages that
waited for their client to connect, and QoS 0 messages and runs of other nodes, which carry no time.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.limits import Limits
from folkmoot.metrics.sketch import Sketch
from folkmoot.session.connection import Connection
from folkmoot.store.message import Message

__all__ = ["OTHERS", "SAMPLE", "Figures", "Meter"]

SAMPLE: Final = 8
OTHERS: Final = "(others)"
"""The name of what has no place of its own; no topic level has this one by chance: then it is counted with them."""

_TOPICS_MAX: Final = 8192  # whose prefixes are remembered
_TURNS_MAX: Final = 65_536  # that wait; reached only on a node that serves no client


class Figures:
    """The figures of one prefix in this interval."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.taken = 0
        self.failed = 0
        self.ack = Sketch()
        self.deliver = Sketch()

    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self.taken or self.failed or self.ack.count or self.deliver.count)


class _Turn:
    """Messages that came in a turn and wait for their acknowledgements, by the number of their prefix."""

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.counts: dict[int, int] = {}

    def add(self, number: int, times: int) -> None:
        """Count messages."""
        self.counts[number] = self.counts.get(number, 0) + times


class Meter:
    """Measures while `on`."""

    def __init__(self, limits: Limits) -> None:
        self.on = False
        self.limits = limits
        self.since_us = 0  # of the interval
        self.shift_us = 0  # the time in messages less `now`
        self.figures: list[Figures] = []
        self._numbers: dict[str, int] = {}  # of prefixes
        self._topics: dict[bytes, int] = {}
        self._turns: dict[int, list[_Turn]] = {}  # by the token that they wait for, in order
        self._leaving: list[_Turn] = []  # whose acknowledgements leave in this turn
        self._now: _Turn | None = None  # messages that are acknowledged in the turn in which they came
        self._sent: list[tuple[int, int, int]] = []  # in this turn: prefix, since when, how many
        self._tick = 0

    def start(self, now: int) -> None:
        """Start to measure."""
        self.on = True
        self.since_us = now

    def stop(self) -> None:
        """Stop measuring, and forget."""
        self.on = False
        self.forget()
        self._turns = {}
        self._leaving = []
        self._now = None
        self._sent = []

    def forget(self) -> None:
        """Start a new interval; messages that wait stay."""
        old = self.figures
        self.figures = []
        self._numbers = {}
        self._topics = {}
        turns = list(self._leaving)
        for waiting in self._turns.values():
            turns.extend(waiting)
        if self._now is not None:
            turns.append(self._now)
        for turn in turns:
            counts = turn.counts
            turn.counts = {}
            for number, times in counts.items():
                turn.add(self._number(old[number].prefix), times)
        self._sent = [(self._number(old[number].prefix), since, times) for number, since, times in self._sent]

    def _number_of(self, topic: bytes) -> int:
        known = self._topics.get(topic)
        if known is not None:
            return known
        if len(self._topics) >= _TOPICS_MAX:
            self._topics = {}
        levels = topic.split(b"/", self.limits.events_prefix_levels)
        number = self._number(b"/".join(levels[: self.limits.events_prefix_levels]).decode())
        self._topics[topic] = number
        return number

    def _number(self, prefix: str) -> int:
        number = self._numbers.get(prefix)
        if number is None:
            if len(self._numbers) >= self.limits.events_prefixes_max and prefix != OTHERS:
                return self._number(OTHERS)
            number = len(self.figures)
            self._numbers[prefix] = number
            self.figures.append(Figures(prefix))
        return number

    # -- publish to acknowledgement -----------------------------------------------------------------------------------

    def taken(self, topic: bytes, connection: Connection, now: int) -> None:
        """Note a message of QoS 1 or 2; its acknowledgement waits, as the newest of its connection, or leaves."""
        if not self.on:
            return
        token = connection.held_token if connection.held else 0
        number = self._number_of(topic)
        self.figures[number].taken += 1
        if not token:
            if self._now is None:
                self._now = _Turn(now)
            self._now.add(number, 1)
            return
        turns = self._turns.get(token)
        if turns is None:
            if len(self._turns) >= _TURNS_MAX:
                self._turns = {}
            turns = []
            self._turns[token] = turns
        if not turns or turns[-1].since_us != now:  # the last entry may be of an earlier turn
            turns.append(_Turn(now))
        turns[-1].add(number, 1)

    def released(self, token: int, failed: bool) -> None:
        """A turn is complete: its acknowledgements leave in this turn, or never."""
        if not self._turns:
            return
        turns = self._turns.pop(token, None)
        if turns is None:
            return
        if not failed:
            self._leaving.extend(turns)
            return
        for turn in turns:
            for number, times in turn.counts.items():
                self.figures[number].failed += times

    # -- publish to delivery ------------------------------------------------------------------------------------------

    def live(self, topic: bytes, acknowledged: int, delivered: int, now: int) -> None:
        """Note a run of messages that was taken, acknowledged (QoS 0 excepted) and delivered in one turn."""
        number = self._number_of(topic)
        if acknowledged:
            self.figures[number].taken += acknowledged
            if self._now is None:
                self._now = _Turn(now)
            self._now.add(number, acknowledged)
        if delivered:
            self._sent.append((number, now, delivered))

    def sent(self, message: Message, opened_us: int) -> None:
        """Note a message that is handed to a connection; opened_us: when that was opened."""
        self._tick += 1
        if self._tick % SAMPLE or message.created_us - self.shift_us < opened_us or message.topic[0] == 36:  # b"$"
            return
        self._sent.append((self._number_of(message.topic), message.created_us - self.shift_us, SAMPLE))

    # -- ends ---------------------------------------------------------------------------------------------------------

    def turn_end(self, now: int) -> None:
        """Count what leaves in this turn."""
        objective_us = self.limits.events_objective_us
        if self._now is not None:
            self._leaving.append(self._now)
            self._now = None
        if self._leaving:
            for turn in self._leaving:
                for number, times in turn.counts.items():
                    self.figures[number].ack.add(now - turn.since_us, times, objective_us)
            self._leaving.clear()
        if self._sent:
            for number, since_us, times in self._sent:
                self.figures[number].deliver.add(max(now - since_us, 0), times, objective_us)
            self._sent.clear()

    def waiting(self) -> tuple[list[int], list[int]]:
        """Return by prefix how many messages wait for their acknowledgement, and since when the oldest one (0: none).

        To be called between turns.
        """
        counts = [0] * len(self.figures)
        oldest = [0] * len(self.figures)
        for turns in self._turns.values():
            for turn in turns:
                for number, times in turn.counts.items():
                    counts[number] += times
                    if not oldest[number] or turn.since_us < oldest[number]:
                        oldest[number] = turn.since_us
        return counts, oldest

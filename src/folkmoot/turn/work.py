"""The work of a turn, counted in steps, and the clients whose input waits for their turn (A13).

A step is about a quarter of a microsecond of compiled code. A turn ends when its steps are spent; the rest of the input
waits. So no client can hold up the others for longer than a turn, and the client that causes work waits for it:

- Each client may spend a quantum of steps per turn at once. Input beyond that waits in a list, whose clients get a
  quantum each, in rounds, as long as the turn has steps left (deficit round robin: Shreedhar and Varghese, 1995).
- One packet is never divided, with two exceptions: the look-up of its topic, and a SUBSCRIBE or UNSUBSCRIBE with many
  filters. What a packet costs beyond the quantum is a debt, for which its client misses rounds.
- A client that has no input waiting is served before the others (as new flows in FQ-CoDel, RFC 8290, section 4).

Nothing depends on a clock, so the same calls have the same effects. Owns the count and the list, and no input.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.session.connection import Connection
from folkmoot.store.writer import Writer

__all__ = [
    "DELIVERY_STEPS",
    "FILTER_BYTES_PER_STEP",
    "LOOKUP_STEPS",
    "PACKET_STEPS",
    "READ_STEPS",
    "ROW_STEPS",
    "RULE_STEPS",
    "RUN_BYTES_MAX",
    "SUBSCRIPTION_STEPS",
    "WAITING_BYTES_MAX",
    "Work",
]

PACKET_STEPS: Final = 8
DELIVERY_STEPS: Final = 4  # of one message to one session in memory
FILTER_BYTES_PER_STEP: Final = 4  # of a filter of SUBSCRIBE, refused or not: its check, its pattern, its size
LOOKUP_STEPS: Final = 16  # of a topic whose route is not cached, beside the branches and values that it leads to
READ_STEPS: Final = 8  # of a row that is read
ROW_STEPS: Final = 24  # of one that is written
RULE_STEPS: Final = 2  # of one access rule, for a topic or a filter
SUBSCRIPTION_STEPS: Final = 64  # to add or remove one: its tree, its row, the routes that it changes

WAITING_BYTES_MAX: Final = 64 << 10
"""Input of one client that waits before its socket is not read."""

RUN_BYTES_MAX: Final = 4 << 20
"""Bytes that one run of packets may make in the output of all its recipients together; a longer run is divided."""

_NO_END: Final = 1 << 60
_QUANTA: Final = 8  # per turn


class Work:
    """The steps of the current turn, and the clients whose input waits.

    steps: spent in this turn, rows excepted, which `writer` counts; stop: where the client that is being served must
    stop; turn: the number of the turn; served: the steps spent for clients and other nodes in this turn.
    """

    def __init__(self, writer: Writer, turn_steps: int) -> None:
        self.writer = writer
        self.turn_steps = turn_steps
        self.quantum = max(turn_steps // _QUANTA, 1)
        self.steps = 0
        self.stop = turn_steps
        self.turn = 1
        self.served = 0
        self.last_served = 0  # by the turn before, for tests and figures
        self.waits = 0  # how often a client has been put on the waiting list
        self.endless = False  # a planted bug: no turn ends before its input does
        self._limit = turn_steps
        self._begun = 0  # where the client that is being served began
        self._outer_stop = turn_steps
        self._part = -1  # where the node that is being served began; -1: none is
        self._fresh: deque[Connection] = deque()
        self._fresh_next = False
        self._waiting: deque[Connection] = deque()

    def done(self) -> int:
        """Return the steps of this turn."""
        return self.steps + ROW_STEPS * self.writer.rows

    def is_spent(self) -> bool:
        """Whether the client that is being served must stop here."""
        return self.steps + ROW_STEPS * self.writer.rows >= self.stop

    def is_over(self) -> bool:
        """Whether the steps of the turn are spent, whoever is being served."""
        return self.done() >= self._limit and not self.endless

    def left(self) -> int:
        """Return the steps that the client that is being served may still spend."""
        return self.stop - self.done()

    def begin(self, connection: Connection) -> bool:
        """Begin to serve a client; False: its input must wait. Every True is followed by `end`."""
        done = self.done()
        if connection.credit_turn != self.turn:
            connection.credit_turn = self.turn
            connection.credit = min(connection.credit + self.quantum, self.quantum)
        if (connection.credit <= 0 or done >= self._limit) and not self.endless:
            return False
        self._begun = done
        self._outer_stop = self.stop
        self.stop = _NO_END if self.endless else min(done + connection.credit, self._limit)
        return True

    def end(self, connection: Connection) -> None:
        """The client has been served: subtract what that cost from its credit."""
        spent = self.done() - self._begun
        if self._part < 0:
            self.served += spent
        connection.credit -= spent
        self.stop = self._outer_stop

    def begin_part(self, steps: int) -> None:
        """Begin to serve another node, for about this many steps; `end_part` follows. Clients may be served in it."""
        assert self._part < 0, "parts are not nested"
        self._part = self.done()
        self.stop = _NO_END if self.endless else self._part + steps

    def end_part(self) -> int:
        """End what `begin_part` began; return the steps that it took."""
        spent = self.done() - self._part
        self._part = -1
        self.served += spent
        self.stop = self._limit
        return spent

    def begin_all(self) -> int:
        """Begin something that must be finished in this turn; `end_all` takes what this returns."""
        stop = self.stop
        self.stop = _NO_END
        return stop

    def end_all(self, stop: int) -> None:
        """End what `begin_all` began."""
        self.stop = stop

    def wait(self, connection: Connection) -> None:
        """Put a client on the waiting list, if it is not there; one that has credit left comes first.

        One whose task sleeps is set aside instead: it takes no steps until `wake`.
        """
        if not connection.queued:
            connection.queued = True
            task = connection.task
            if task is not None and task.asleep:
                connection.aside = True
                return
            self.waits += 1
            if connection.credit > 0 and connection.credit_turn == self.turn:
                self._fresh.append(connection)
            else:
                self._waiting.append(connection)

    def wake(self, connection: Connection) -> None:
        """Have the task of a client go on, if it sleeps."""
        if connection.task is not None:
            connection.task.asleep = False
        if connection.aside:
            connection.aside = False
            connection.queued = False
            self.wait(connection)

    def give_up(self, connection: Connection) -> None:
        """The client has gone: its task waits for nothing any more, and neither does what comes behind one."""
        if connection.task is not None:
            connection.task.given_up = True
        self.wake(connection)

    def begin_rounds(self) -> None:
        """Begin the rounds of this turn: half of its steps are for clients whose input waits, whatever came before."""
        self._limit = max(self.turn_steps, self.done() + self.turn_steps // 2)
        self.stop = self._limit

    def next(self) -> Connection | None:
        """Take the next client off the list; None: none waits, or the turn is spent."""
        while self._waiting or self._fresh:
            if self.done() >= self._limit and not self.endless:
                return None
            self._fresh_next = not self._fresh_next  # in turns, so that neither of the two has to wait for ever
            if self._fresh and (self._fresh_next or not self._waiting):
                connection = self._fresh.popleft()
            else:
                connection = self._waiting.popleft()
                connection.credit = min(connection.credit + self.quantum, self.quantum)
            connection.credit_turn = self.turn
            if connection.credit > 0 or self.endless:
                connection.queued = False
                return connection
            self.steps += 1
            self._waiting.append(connection)
        return None

    def is_waiting(self) -> bool:
        """Whether input of a client waits."""
        return bool(self._waiting) or bool(self._fresh)

    def end_turn(self) -> None:
        """The turn ends: the next one has all its steps."""
        self.last_served = self.served
        self.served = 0
        self.steps = 0
        self.writer.rows = 0
        self.turn += 1
        self._limit = self.turn_steps
        self.stop = self.turn_steps

    def __len__(self) -> int:
        return len(self._waiting) + len(self._fresh)

    def __repr__(self) -> str:
        return f"Work(turn={self.turn} steps={self.done()} waiting={len(self)})"

"""The order of effects: what must be durable before which message leaves.

A *token* numbers a write; writes become durable in their order. A message speaks its term, so it waits for the write
with the newest hard state; one that confirms entries waits for the write with these entries. Nothing else waits: a
leader sends entries to others while it writes them itself (dissertation, 10.2.1).

A disk may stand still for hours. Meanwhile the same is asked and answered with every heartbeat, so a message takes the
place of an earlier one that waits for the same write and says no more.
"""

from __future__ import annotations

from folkmoot.raft.message import (
    APPEND_RESPONSE,
    CHUNK_REQUEST,
    FETCH,
    GRANTED,
    HEARTBEAT_RESPONSE,
    PRE_VOTE,
    PRE_VOTE_RESPONSE,
    VOTE,
    VOTE_RESPONSE,
    Message,
)

__all__ = ["Outbox"]


class Outbox:
    """Messages that may leave, and messages that wait for a token."""

    def __init__(self) -> None:
        self.next_token: int = 1  # the token of the next write
        self.durable_token: int = 0
        self.hard_token: int = 0  # the newest write with a hard state
        self.log_token: int = 0  # the newest write with entries or a snapshot
        self.hard_dirty: bool = False  # the hard state has changed since
        self.log_dirty: bool = False  # the log has changed since
        self._ready: list[Message] = []
        self._held: list[tuple[int, Message]] = []

    def send(self, message: Message, confirms: bool) -> None:
        """Queue a message.

        Args:
            message: What to send.
            confirms: Whether it says that entries or a snapshot are durable here which may not be so yet.
        """
        token = self.next_token if self.hard_dirty else self.hard_token
        if confirms:
            token = max(token, self.next_token if self.log_dirty else self.log_token)
        assert token <= self.next_token, "a message waits for a write that is under way, or the next"
        if token <= self.durable_token:
            self._ready.append(message)
        else:
            self._hold(token, message)

    def _hold(self, token: int, message: Message) -> None:
        """Keep a message back, in place of an earlier one that says no more."""
        held = self._held
        for at in range(len(held) - 1, -1, -1):
            if held[at][0] == token and _says_as_much(message, held[at][1]):
                message.round = max(message.round, held[at][1].round)
                held[at] = (token, message)
                return
        held.append((token, message))

    def send_now(self, message: Message) -> None:
        """Queue a message that waits for nothing."""
        self._ready.append(message)

    def is_hard_durable(self) -> bool:
        """Tell whether the newest hard state is durable."""
        return not self.hard_dirty and self.hard_token <= self.durable_token

    def take(self) -> list[Message]:
        """Return the messages that may leave now."""
        assert self.durable_token < self.next_token, "what is durable was written"
        messages = self._ready
        self._ready = []  # the caller's list gets none of those that are released later
        return messages

    def begin_write(self) -> int:
        """Return the token of a write of everything that has changed."""
        token = self.next_token
        if self.hard_dirty:
            self.hard_token = token
        if self.log_dirty:
            self.log_token = token
        self.hard_dirty = False
        self.log_dirty = False
        self.next_token = token + 1
        assert self.hard_token <= token, "tokens grow"
        assert self.log_token <= token, "tokens grow"
        return token

    def release(self, token: int) -> None:
        """Let go of what waits for writes up to `token`."""
        assert self.durable_token <= token < self.next_token, (
            "writes become durable in their order, after they are taken"
        )
        self.durable_token = token
        held: list[tuple[int, Message]] = []
        for waits_for, message in self._held:
            if waits_for <= token:
                self._ready.append(message)
            else:
                held.append((waits_for, message))
        self._held = held


def _says_as_much(message: Message, earlier: Message) -> bool:
    """Tell whether a message says what an earlier one of the same member has said, so that this one need not arrive."""
    kind = message.kind
    if kind != earlier.kind or message.to != earlier.to or message.term != earlier.term:
        return False
    if message.verdict != earlier.verdict:
        return False
    if kind == APPEND_RESPONSE:
        if message.verdict == GRANTED:
            return message.index >= earlier.index  # within a term, what has matched goes on to match
        return message.commit == earlier.commit
    if kind == CHUNK_REQUEST:
        return message.index == earlier.index and message.log_term == earlier.log_term
    return kind in (HEARTBEAT_RESPONSE, PRE_VOTE, PRE_VOTE_RESPONSE, VOTE, VOTE_RESPONSE, FETCH)

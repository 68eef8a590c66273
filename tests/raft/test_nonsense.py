"""No message raises, whatever it says: a member ignores what no correct member sends."""

from __future__ import annotations

import pytest

from folkmoot.raft.configuration import CHANGES, Change, Configuration, encode_change
from folkmoot.raft.entry import CHANGE, DATA, NOOP, Entry, HardState, Snapshot, encode_snapshot, founding
from folkmoot.raft.message import (
    BEHIND,
    FETCH_RESPONSE,
    FIELDS,
    GRANTED,
    KINDS,
    PRE_VOTE_RESPONSE,
    VERDICTS,
    VOTE_RESPONSE,
    Message,
    decode_message,
    encode_message,
)
from folkmoot.raft.option import Options
from folkmoot.raft.raft import Raft
from folkmoot.raft.recovery import Persisted
from folkmoot.raft.role import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE
from tests.raft.world import Dice


def change(dice: Dice) -> Change:
    """A change to any configuration, with or without the member itself."""
    members = [peer for peer in range(1, 5) if dice.chance(1, 2)] or [1 + dice.below(4)]
    voters = members[: 1 + dice.below(len(members))]
    learners = members[len(voters) :]
    return Change(sorted(CHANGES)[dice.below(len(CHANGES))], 1 + dice.below(4), Configuration(voters, learners), b"")


def nonsense(dice: Dice, term: int) -> Message:
    """A message of a kind, with small numbers that often fit, and often do not."""
    message = Message(1 + dice.below(len(KINDS)), 2 + dice.below(3), 1, term + dice.below(2))
    if dice.chance(1, 8):
        message.term = 1 + dice.below(6)
    message.verdict = sorted(VERDICTS)[dice.below(len(VERDICTS))]
    message.index = dice.below(9)
    message.log_term = min(message.term, dice.below(5))
    message.commit = dice.below(9)
    message.round = dice.below(5)
    message.size = dice.below(40)
    if FIELDS[message.kind] & 16:
        term = max(1, message.log_term)
        for at in range(dice.below(4)):
            term = min(message.term, term + dice.below(2))
            kind = (DATA, NOOP, CHANGE)[dice.below(3)]
            data = encode_change(change(dice)) if kind == CHANGE else b""
            message.entries.append(Entry(message.index + 1 + at, term, kind, data))
    snapshot = Snapshot(max(1, message.index), max(1, message.log_term), change(dice).configuration, b"")
    message.data = encode_snapshot(snapshot) if dice.chance(1, 2) else b"x"
    return decode_message(encode_message(message))


def elect(raft: Raft) -> int:
    """Let the member win an election; return the time."""
    now = raft.deadline()
    raft.wake(now)
    for kind in (PRE_VOTE_RESPONSE, VOTE_RESPONSE):
        answer = Message(kind, 2, 1, raft.term if kind == VOTE_RESPONSE else raft.term + 1)
        answer.verdict = GRANTED
        raft.step(answer, now)
        write = raft.ready().write
        if write is not None:
            raft.persisted(write.token, now)
    assert raft.role == LEADER
    return now


def source(dice: Dice, raft: Raft) -> Message:
    """What a voter says to a candidate: that its log is longer; then what that log has, which may be less."""
    if raft.role == CANDIDATE:
        message = Message((VOTE_RESPONSE, FETCH_RESPONSE)[dice.below(2)], 2 + dice.below(2), 1, raft.term)
    else:
        message = Message(PRE_VOTE_RESPONSE, 2 + dice.below(2), 1, raft.term + 1)
    message.log_term = min(message.term, 1 + dice.below(3))
    message.index = 1 + dice.below(9)
    message.verdict = BEHIND
    if message.kind == FETCH_RESPONSE:
        message.verdict = GRANTED
        message.index = min(raft.log.last_index(), 1 + dice.below(3))
        message.log_term = max(0, raft.log.term_at(message.index))
        for at in range(dice.below(3)):
            message.entries.append(Entry(message.index + 1 + at, max(1, message.log_term), NOOP, b""))
        message.commit = message.index + len(message.entries) + dice.below(2)
    return decode_message(encode_message(message))


@pytest.mark.parametrize("part", range(8))
def test_nonsense_raises_nothing(part: int) -> None:
    roles: set[int] = set()
    for seed in range(part * 60, part * 60 + 60):
        dice = Dice(seed)
        options = Options()
        entries = [Entry(2, 1, NOOP, b""), Entry(3, 2, NOOP, b"")]
        persisted = Persisted(HardState(2, 0, 1), founding([1, 2, 3]), entries)
        raft = Raft(1, options, persisted, 0, seed, 0, [])
        now = elect(raft) if seed % 2 else 0
        for _ in range(60):
            if dice.chance(1, 6):
                now = max(now, raft.deadline())
                raft.wake(now)
                raft.propose(b"x", now)
                raft.read_index(dice.below(10), now)
            elif raft.role in (PRE_CANDIDATE, CANDIDATE) and dice.chance(3, 4):
                raft.step(source(dice, raft), now)
            else:
                raft.step(nonsense(dice, raft.term), now)
            ready = raft.ready()
            if ready.write is not None and dice.chance(3, 4):
                raft.persisted(ready.write.token, now)
            roles.add(raft.role)
    assert {FOLLOWER, CANDIDATE, LEADER} <= roles

"""What a node has in memory is what another one makes of its rows: nothing is missing, no row belongs to nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.kernel.clock import NEVER
from folkmoot.node import Node
from folkmoot.session.session import Session
from folkmoot.store import key as keys
from folkmoot.store.key import kind_of
from folkmoot.store.memory import MemoryStore
from folkmoot.turn.state import TIMER_LEVEL, TIMER_RETENTION, TIMER_SESSION, TIMER_SWEEP, TIMER_SYS
from tests.node.script import SLOTS, Author, Player, whole


def told(session: Session) -> dict[str, object]:
    """What must survive of a session."""
    return {
        "expiry": (session.expiry_s, session.ends_us),
        "version": session.version,
        "username": session.username,
        "subscriptions": {name: (one.options, one.identifier) for name, one in session.subscriptions.items()},
        "queue": (session.queue_count, session.queue_bytes, session.special_rows, session.queue_floor),
        "released": session.released or {},
        "received": session.received or {},
        "will": None if session.will is None else (session.will.due_us, session.will.message.payload),
        "feeds": session.feeds,
    }


def state_of(node: Node) -> dict[str, object]:
    """What must survive of a node."""
    state, broker = node._state, node._broker
    counters = state.counters
    return {
        "sessions": {one.client_id: told(one) for one in state.sessions.values() if one.persistent},
        "retained": (
            [one.retained for one in broker.partition.led],
            counters.retained_messages,
            counters.retained_bytes,
        ),
        "queued": (counters.queue_messages, counters.queue_bytes),
        "subscriptions": (counters.subscriptions_persistent, len(state.tree)),
        "persistent": counters.sessions_persistent,
        "wills": counters.wills_pending,
        "bodies": [one.bodies for one in broker.partition.led],
        "groups": {name: len(group.members) for name, group in broker.delivery.routes.groups.items()},
        "streams": [(log.oldest, log.next_offset, log.bytes) for stream in node.streams.streams for log in stream.logs],
    }


def rows_of(store: MemoryStore) -> dict[int, int]:
    counts = dict.fromkeys(range(14), 0)
    for row in store.items():
        counts[kind_of(row[0])] += 1
    return counts


def check_rows(node: Node, store: MemoryStore) -> None:
    """Every row belongs to something that the node knows of."""
    rows = rows_of(store)
    sessions = [session for session in node._state.sessions.values() if session.persistent]
    assert rows[keys.SESSION] == len(sessions)
    assert rows[keys.SUBSCRIPTION] == sum([len(session.subscriptions) for session in sessions])
    assert rows[keys.QUEUE] == sum([session.queue_count for session in sessions])
    assert rows[keys.BODY] == len(node._broker.partition.bodies)
    assert rows[keys.RELEASED] == sum([len(session.released or {}) for session in sessions])
    assert rows[keys.RECEIVED] == sum([len(session.received or {}) for session in sessions])
    assert rows[keys.RETAINED] == node.counters.retained_messages
    assert rows[keys.WILL] == sum([session.will is not None for session in node._state.sessions.values()])
    assert rows[keys.CURSOR] == sum([session.feeds for session in sessions])
    assert rows[keys.SENT] <= len(sessions)


def check_idle(node: Node) -> None:
    """Nothing is kept of what has passed: connections, commits, purges, changes on their way."""
    state, broker = node._state, node._broker
    assert len(state.connections) == node.counters.connections == 0
    assert node.counters.clients_connected == node.counters.publishers_paused == 0
    assert len(broker.turn.commits._turns) == 0
    assert broker.turn.throttle.backlog_bytes == 0
    assert (
        len(broker.turn.throttle.paused)
        == len(broker.delivery.purges.active)
        == len(broker.delivery.purges._floors)
        == 0
    )
    assert len(broker.partition.retained._fresh) == len(broker.partition.retained._changes) == 0
    assert all(session.persistent for session in state.sessions.values())
    for (kind, subject), slot in state.timers._slots.items():
        if slot.due_us < NEVER and kind not in (TIMER_SYS, TIMER_RETENTION, TIMER_LEVEL, TIMER_SWEEP):
            assert isinstance(subject, str), "no deadline of a connection that is gone"
            session = state.sessions[subject]
            assert slot.due_us == session.ends_us if kind == TIMER_SESSION else session.will is not None
    assert len(broker.feed.feeds) == sum([session.feeds for session in state.sessions.values()])
    for session in state.sessions.values():
        assert (session.inflight, session.waiting, session.ready_bytes) == ({}, 0, 0)


class Mortal(Player):
    """A player whose node can be killed, and end its life in peace."""

    def crash(self) -> None:
        """Everything that is not on disk is lost, and with it the connections."""
        self.pending.clear()
        self.slots = [None] * SLOTS
        self.tables = self.store.copy()
        self.node = Node(self.node.config, self.tables, 1)
        self.node.open(self.now)
        self.turn()

    def rest(self) -> None:
        """All clients are gone and everything is written."""
        for slot in range(SLOTS):
            self.lose(slot)
        self.play([], whole)


@settings(max_examples=150)
@given(st.integers(0, 2**64), st.lists(st.integers(0, 60), min_size=1, max_size=4))
def test_rows_and_memory_agree_after_any_life(seed: int, lives: list[int]) -> None:
    """Several lives, each ended by a crash, the last in peace."""
    author, player = Author(seed), Mortal()
    for number, length in enumerate(lives):
        if number:
            player.crash()
        for step in author.script(length):
            player.step(step, whole)
    player.rest()
    check_idle(player.node)
    check_rows(player.node, player.store)
    node = Node(player.node.config, player.store.copy(), 1)
    node.open(player.now)
    assert state_of(node) == state_of(player.node)


@settings(max_examples=50)
@given(st.integers(0, 2**64), st.integers(0, 100))
def test_nothing_is_left_when_all_sessions_have_expired(seed: int, length: int) -> None:
    player = Mortal()
    for step in Author(seed).script(length):
        player.step(step, whole)
    player.rest()
    for session in player.node._state.sessions.values():
        session.ends_us = min(session.ends_us, player.now)
        player.node._state.timers.set(player.now, TIMER_SESSION, session.client_id)
    player.rest()
    check_idle(player.node)
    state = player.node._state
    assert len(state.sessions) == len(state.tree) == 0
    rows = rows_of(player.store)
    stays = {keys.META, keys.RETAINED, keys.CHUNK, keys.STREAM, keys.PRODUCER}
    assert {kind: count for kind, count in rows.items() if count and kind not in stays} == {}

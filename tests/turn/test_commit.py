"""Acknowledgements against a model: in order per connection, none before its batch, all in the end; queues follow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.auth.access import Access
from folkmoot.auth.policy import Policy
from folkmoot.kernel.limits import Limits
from folkmoot.kernel.rng import Rng
from folkmoot.session.connection import CLOSED, OPEN, Connection, PeerInfo
from folkmoot.session.relay import Remote
from folkmoot.session.session import Session
from folkmoot.store.batch import PUT
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import encode_record
from folkmoot.store.writer import Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.table import Streams
from folkmoot.turn.commit import _HELD_BYTES, Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.receipt import Receipt, Receipts
from folkmoot.turn.state import Identity, State
from folkmoot.turn.throttle import FOR_BACKLOG, FOR_HANDSHAKE, FOR_RATE, Throttle

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.just(0)),
        st.tuples(st.just("record"), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 2)),
        st.tuples(st.just("ack"), st.integers(0, 2)),
        st.tuples(st.just("now"), st.integers(0, 2)),
        st.tuples(st.just("queue"), st.integers(0, 1)),
        st.tuples(st.just("seal"), st.just(0)),
        st.tuples(st.just("written"), st.integers(1, 2)),
        st.tuples(st.just("close"), st.integers(0, 2)),
    ),
    max_size=60,
)
WAITING_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["own", "own", "own", "ack", "now", "close", "drop"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["ask", "answer"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["row", "record", "seal", "seal"]), st.just(0)),
        st.tuples(st.just("written"), st.integers(1, 2)),
    ),
    max_size=100,
)
PAUSES = st.lists(st.tuples(st.sampled_from([FOR_BACKLOG, FOR_RATE, FOR_HANDSHAKE]), st.booleans()), max_size=20)


class Desk:
    """Commits with three connections and two sessions, driven as the broker drives them."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.streams = Streams([StreamConfig("s", b"#", 1)], 2, store)
        self.streams.open()
        self.state = State(Identity(), Limits(), Access(Policy([], True)), 2, store, Writer(2, 1), Rng(1))
        self.commits = Commits(
            self.state, self.streams, Receipts(self.state, Fabric("n", 4, True)), Throttle(self.state)
        )
        info = PeerInfo("tcp", "192.0.2.1:1")
        self.connections = [Connection(number, None, info, 0, self.state.outputs) for number in range(3)]
        for connection in self.connections:
            connection.state = OPEN
        self.sessions = [Session(f"c{number}", 0, True) for number in range(2)]
        self.sealed: list[int] = []
        self.dirty = False
        self.number = 0
        # Per connection: (what is owed, the batch that it needs); what came; per batch: the ends of the queues.
        self.owed: list[list[tuple[bytes, int]]] = [[], [], []]
        self.came: list[bytes] = [b"", b"", b""]
        self.ends: dict[int, dict[int, int]] = {}

    def token(self) -> int:
        """The batch that has all that was changed until now."""
        return self.state.writer.token if self.dirty else self.state.writer.token - 1

    def step(self, what: str, number: int) -> None:
        if what == "row":
            self.state.writer.put(0, b"key", b"value")
            self.dirty = True
        elif what == "record":
            self.streams.streams[0].logs[0].append(encode_record(b"t", b"", 1, False, b"", b""), 1)
            self.dirty = True
        elif what in ("ack", "now"):
            self.number += 1
            ack = b"\x40\x02" + self.number.to_bytes(2, "big")
            if self.connections[number].state == OPEN:
                self.owed[number].append((ack, self.token() if what == "ack" else 0))
                self.commits.acknowledge(self.connections[number], ack, what == "ack")
        elif what == "queue":
            self.sessions[number].queue_next += 1
            self.step("row", 0)
            self.commits.touch(self.sessions[number])
        elif what == "close":
            self.connections[number].state = CLOSED
            self.owed[number] = []
        elif what == "seal":
            self.seal()
        elif what == "written" and self.sealed:
            self.written(self.sealed[min(number, len(self.sealed)) - 1])

    def seal(self) -> None:
        self.streams.flush(self.state.writer)
        batch = self.state.writer.take()
        if batch is not None:
            self.commits.seal(batch)
            self.sealed.append(batch.token)
            self.ends[batch.token] = {n: session.queue_next for n, session in enumerate(self.sessions)}
        self.dirty = False

    def written(self, token: int) -> None:
        self.streams.written(token)
        self.commits.durable_through(token)
        for turn in self.commits.commit_through(token):
            for i, session in enumerate(turn.sessions):
                assert turn.committed_next[i] == self.ends[turn.token][self.sessions.index(session)]
        self.go_on()
        self.sealed = [left for left in self.sealed if left > token]

    def go_on(self) -> None:
        for turn in self.commits.complete():
            self.commits.release(turn)
        for turn in self.commits.ahead():
            self.commits.release_ahead(turn)

    def check(self) -> None:
        for number, connection in enumerate(self.connections):
            came = connection.take_output()
            if connection.state != OPEN:
                continue
            self.came[number] += came
            # What must have come: all that need no batch that is not durable, up to the first that does.
            expected = b""
            for ack, token in self.owed[number]:
                if token > self.commits.complete_token:
                    break
                expected += ack
            assert self.came[number] == expected
            waiting = len(self.owed[number]) - len(expected) // 4
            assert (connection.held, connection.held_pubacks) == (waiting, waiting)


class WaitingDesk(Desk):
    """The same, with turns that wait for other nodes, so that later ones get ahead of them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, int] = {}  # by token of a turn that waits for an answer: the bytes that it asked with
        self.row_bytes: dict[int, int] = {}  # by token of a batch that is not committed
        # Per connection: what it waits for, the turn, and whether that turn alone is enough
        self.line: list[list[tuple[bytes, int, bool]]] = [[], [], []]

    def step(self, what: str, number: int) -> None:
        commits, line = self.commits, self.line[number % 3]
        if what == "ask":
            token = self.state.writer.token
            size = 100 * (number + 1)
            commits.ask(1, size)
            self.asked[token] = self.asked.get(token, 0) + size
            self.dirty = True
        elif what == "answer" and self.asked:
            token = list(self.asked)[number % len(self.asked)]
            if token < self.state.writer.token:
                count = commits._owed[token]
                commits.answered(token, count, self.asked.pop(token))
                self.go_on()
        elif what == "own":
            Desk.step(self, "row", 0)
            self.owe(number, True, True)
        elif what in ("ack", "now"):
            self.owe(number, what == "ack", False)
        elif what == "drop" and line:
            wanted = line[0][0][2:4]
            self.line[number] = [one for one in line if one[0][2:4] != wanted]
            commits.drop_releases(self.connections[number], [wanted])
        elif what not in ("answer", "drop"):
            super().step(what, number)

    def owe(self, number: int, wait: bool, own: bool) -> None:
        """Acknowledge with a PUBREL, which can be dropped."""
        self.number += 1
        connection, line = self.connections[number], self.line[number]
        if connection.state != OPEN:
            return
        ack = b"\x62\x02" + self.number.to_bytes(2, "big")
        token = self.token() if wait else 0
        if own and wait and token < self.state.writer.token:  # this turn has changed nothing
            token = 0 if token <= self.commits.committed_token else self.state.writer.token
        line.append((ack, max(token, line[-1][1] if line else 0), own or not wait))
        self.commits.acknowledge(connection, ack, wait, own=own)

    def token(self) -> int:
        return self.commits.newest_token()

    def seal(self) -> None:
        token = self.state.writer.token
        self.streams.flush(self.state.writer)
        self.row_bytes[token] = self.state.writer.batch.bytes if self.state.writer.dirty else 0
        before = len(self.sealed)
        super().seal()
        if len(self.sealed) == before and self.commits.asked:
            self.state.writer.skip()
        self.commits.asked = False

    def check(self) -> None:
        commits = self.commits
        for number, connection in enumerate(self.connections):
            came = connection.take_output()
            line = self.line[number]
            certain = possible = 0
            while certain < len(line) and line[certain][1] <= commits.complete_token:
                certain += 1
            while possible < len(line) and (
                line[possible][1] <= commits.complete_token or self.is_ahead(line[possible])
            ):
                possible += 1
            count = len(came) // 4
            if connection.state == OPEN:
                assert came == b"".join([ack for ack, _, _ in line[:count]])
                assert certain <= count <= possible
                del line[:count]
            else:
                del line[: len(line) - connection.held]
            assert connection.held == len(line)
        uncommitted = sum([size for token, size in self.row_bytes.items() if token > commits.committed_token])
        acks = [one for line in self.line for one in line]
        waiting = uncommitted + sum(self.asked.values()) + (4 + _HELD_BYTES) * len(acks)
        assert commits.throttle.backlog_bytes == waiting

    def is_ahead(self, owed: tuple[bytes, int, bool]) -> bool:
        _, token, alone = owed
        return alone and token <= self.commits.committed_token and token not in self.asked


@given(STEPS)
def test_acknowledgements_leave_in_order_and_not_before_their_batch(steps: list[tuple[str, int]]) -> None:
    desk = Desk()
    for what, number in steps:
        desk.step(what, number)
        desk.check()
    desk.seal()
    desk.written(desk.state.writer.token - 1)
    desk.check()
    assert desk.commits.throttle.backlog_bytes == 0
    assert len(desk.commits._turns) == 0
    assert all(connection.held == 0 for connection in desk.connections)


@given(WAITING_STEPS, st.booleans())
def test_what_waits_counts_until_it_leaves_and_once(steps: list[tuple[str, int]], forgets: bool) -> None:
    """forgets: records of which nothing waits are dropped as soon as possible."""
    desk = WaitingDesk()
    for what, number in steps:
        if forgets:
            desk.commits._records_max = 0
        desk.step(what, number)
        desk.check()
    desk.seal()
    desk.written(desk.state.writer.token - 1)
    desk.check()
    while desk.asked:
        desk.step("answer", 0)
        desk.check()
    assert desk.commits.throttle.backlog_bytes == 0
    assert len(desk.commits._turns) == 0
    assert all(connection.held == 0 for connection in desk.connections)


def test_an_acknowledgement_that_leaves_ahead_is_taken_off_the_backlog_once() -> None:
    desk = WaitingDesk()
    desk.step("ask", 0)
    desk.seal()
    desk.step("own", 0)
    desk.seal()
    desk.written(2)
    assert desk.connections[0].held == 0
    assert desk.commits.throttle.backlog_bytes == sum(desk.asked.values())


def behind_an_old_turn() -> WaitingDesk:
    """Return a desk whose first turn waits for another node."""
    desk = WaitingDesk()
    desk.step("ask", 0)
    desk.seal()
    return desk


def answer_one(desk: WaitingDesk, number: int) -> None:
    """Acknowledge something that is committed in a turn of its own."""
    desk.step("own", number)
    desk.seal()
    desk.written(desk.state.writer.token - 1)


def kept(desk: WaitingDesk) -> int:
    """Return how many records, acknowledgements and handled packets are in memory."""
    turns = desk.commits._turns.values()
    return sum(1 + len(turn.acks) + len(turn.sessions) + len(turn.handled) for turn in turns)


def test_while_an_old_turn_waits_nothing_is_kept_of_what_has_left() -> None:
    """[A13] nobody bounds how long it waits."""
    desk = behind_an_old_turn()
    desk.step("ack", 2)  # waits for the old turn
    for _ in range(1_000):
        desk.step("queue", 0)
        answer_one(desk, 0)
        desk.check()
        assert kept(desk) < 100
    assert desk.connections[0].held == 0
    assert desk.connections[2].held == 1
    desk.step("answer", 0)
    desk.check()
    assert kept(desk) == 0


def test_of_a_turn_of_which_one_acknowledgement_waits_the_others_are_not_kept() -> None:
    desk = behind_an_old_turn()
    for _ in range(40):
        for _ in range(20):
            desk.step("own", 0)
        desk.step("ack", 1)  # as that of SUBSCRIBE, it waits for all turns before
        answer_one(desk, 0)
        desk.check()
    assert kept(desk) < 2 * 40 + 20 * 22, "a record and an acknowledgement each, but for those that came last"
    desk.step("answer", 0)
    desk.check()
    assert desk.connections[1].held == 0


def handle(desk: WaitingDesk, connection: Connection, packet: int) -> None:
    """Handle a packet of a client of another node that has no answer, in a turn of its own."""
    assert connection.remote is not None
    connection.remote.received_seq = packet
    desk.step("row", 0)
    desk.commits.current().handled.append(connection)
    desk.commits.current().handled_packets.append(packet)
    desk.seal()
    desk.written(desk.state.writer.token - 1)


def test_while_an_old_turn_waits_packets_of_other_nodes_are_not_kept_that_are_reported() -> None:
    desk = behind_an_old_turn()
    connection = desk.connections[0]
    connection.remote = remote = Remote("other", 1, 1)
    for number in range(1, 1_001, 2):
        handle(desk, connection, number)
        remote.received_seq = number + 1
        answer_one(desk, 0)
        assert remote.handled_seq == number + 1, "it is reported with the answer, and the one before it too"
        assert kept(desk) < 100
    handle(desk, connection, 1_001)
    for _ in range(100):
        answer_one(desk, 1)
    assert [turn.handled_packets for turn in desk.commits._turns.values() if turn.handled] == [[1_001]]
    remote.gone = True
    for _ in range(100):
        answer_one(desk, 1)
    assert not [turn for turn in desk.commits._turns.values() if turn.handled]


def test_receipts_and_packets_keep_to_their_acknowledgements_when_earlier_ones_are_forgotten() -> None:
    desk = behind_an_old_turn()
    other = desk.connections[1]
    other.remote = remote = Remote("other", 1, 1)
    remote.received_seq = 1
    receipt = Receipt()
    receipt.silent = True
    receipt.packet_id = 0x1234
    for number in (0, 1):
        desk.step("own", number)
    desk.step("ask", 0)  # that turn waits too, and holds back what the two get in the next one
    desk.seal()
    desk.step("own", 2)
    desk.commits.acknowledge(desk.connections[0], b"\x40\x02\x00\x00", True, receipt, own=True)
    remote.received_seq = 2
    answer_one(desk, 1)
    token = desk.state.writer.token - 1
    for _ in range(100):
        answer_one(desk, 2)
    assert len(desk.commits._turns[token].acks) == 2, "that of the third connection has left"
    assert remote.handled_seq == 0
    desk.step("answer", 1)
    assert remote.handled_seq == 2
    assert desk.connections[0].take_output()[-4:] == b"\x40\x02\x12\x34"


def test_an_acknowledgement_of_a_turn_that_changes_nothing_leaves_in_its_place() -> None:
    """[MQTT-4.6.0-2] behind an earlier one of its connection, and not later than that."""
    desk = behind_an_old_turn()
    desk.step("ask", 0)
    desk.step("own", 0)
    desk.seal()
    for _ in range(100):
        answer_one(desk, 1)
    desk.commits._records_max = 0
    desk.go_on()
    desk.owe(0, True, True)
    desk.owe(1, True, True)
    assert [connection.held for connection in desk.connections] == [2, 0, 0]
    desk.check()
    desk.step("answer", 1)
    desk.check()
    assert desk.connections[0].held == 0


def test_no_answer_overtakes_the_packet_that_marks_what_a_former_leader_had_under_way() -> None:
    desk = behind_an_old_turn()
    remote = Remote("other", 1, 1)
    desk.connections[0].remote = remote
    remote.received_seq = remote.marked_seq = 1
    remote.received_seq = 2
    answer_one(desk, 0)
    assert desk.connections[0].held == 1
    assert remote.handled_seq == 0
    desk.step("answer", 0)
    assert desk.connections[0].held == 0


def test_how_long_the_oldest_turn_waits_does_not_depend_on_what_else_it_has_to_do() -> None:
    desk = behind_an_old_turn()
    since_us = desk.state.now
    for _ in range(100):
        desk.state.now += 1_000
        answer_one(desk, 0)
    assert desk.commits.oldest_us() == since_us
    desk.step("answer", 0)
    assert desk.commits.oldest_us() == desk.state.now


def test_rows_that_others_lead_wait_for_this_disk_alone() -> None:
    desk = Desk()
    desk.step("row", 0)
    desk.seal()
    own_bytes = desk.commits.throttle.backlog_bytes
    assert own_bytes > 0
    for _ in range(2):
        desk.state.writer.raw([(PUT, b"another key", b"another value")], 24)
        desk.seal()
    assert desk.commits.throttle.backlog_bytes == own_bytes + 2 * 24
    desk.commits.durable_through(2)
    assert desk.commits.throttle.backlog_bytes == own_bytes + 24
    desk.commits.durable_through(3)
    assert desk.commits.throttle.backlog_bytes == own_bytes
    desk.written(3)
    assert desk.commits.throttle.backlog_bytes == 0


@given(PAUSES)
def test_a_connection_is_read_when_no_reason_is_left(steps: list[tuple[int, bool]]) -> None:
    desk = Desk()
    connection, reasons = desk.connections[0], set[int]()
    read = True
    for why, on in steps:
        if on:
            reasons.add(why)
            desk.commits.throttle.pause(connection, why)
        elif why == FOR_BACKLOG:
            reasons.discard(why)
            desk.commits.throttle.resume()
        else:
            reasons.discard(why)
            desk.commits.throttle.unpause(connection, why)
        assert bool(connection.paused) is bool(reasons)
        assert desk.state.counters.publishers_paused == bool(reasons)
        told = [True] * len(desk.state.resumes) + [False] * len(desk.state.pauses)
        assert told == ([] if read is not bool(reasons) else [not reasons])
        read = not reasons
        desk.state.resumes.clear()
        desk.state.pauses.clear()
    desk.commits.throttle.forget(connection)
    assert desk.state.counters.publishers_paused == len(desk.commits.throttle.paused) == 0

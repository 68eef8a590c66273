"""The rules of a merge, case by case: two sides that went on from the same rows, and what is left when they meet."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.kernel.pack import get_u64, u16, u64
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.merge.merge import Merge
from folkmoot.merge.merge_session import STEP_ROWS
from folkmoot.merge.merged import TakenBranch
from folkmoot.merge.side import Side
from folkmoot.merge.stamp import STAMPS_MAX, Stamp, encode_stamp
from folkmoot.store.absorbed import ORIGIN_BYTES, Origin, Span, absorbed_key, encode_origin, encode_span
from folkmoot.store.batch import DELETE, PUT
from folkmoot.store.chunk import decode_chunk, encode_chunk
from folkmoot.store.epoch import make_epoch, tag_of
from folkmoot.store.key import (
    ABSORBED,
    BODY,
    CHUNK,
    CURSOR,
    LEFTOVER,
    MARK,
    PRODUCER,
    QUEUE,
    RECEIVED,
    RELEASED,
    RETAINED,
    SENT,
    SESSION,
    STAMP,
    SUBSCRIPTION,
    WILL,
    body_key,
    chunk_key,
    is_of_trunk,
    leftover_key,
    log_of_chunk,
    name_prefix,
    numbered_key,
    of_no_trunk,
    outbox_key,
    plain_key,
    stamp_key,
)
from folkmoot.store.mark_row import encode_mark
from folkmoot.store.message import Message, encode_message
from folkmoot.store.origin import (
    NUMBER_BITS,
    WILL_NUMBER,
    is_node,
    origin_of,
    packet_name,
    partition_name,
    transaction_name,
    will_name,
)
from folkmoot.store.producer_row import NUMBER_BYTES, RECENT_MAX, add_number, has_number
from folkmoot.store.record import Record
from folkmoot.store.row import (
    CursorRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    WillRow,
    decode_cursor,
    decode_queue,
    decode_sent,
    decode_session,
    encode_cursor,
    encode_queue,
    encode_sent,
    encode_session,
    encode_subscription,
    encode_will,
    origin_in,
    with_origin,
)

OLD, MINE, THEIRS = 1, 2, 3
FORK = 100
NEVER = 0xFFFFFFFF
SEQUENCE = st.integers(1, 6)


def message(text: str, created_us: int = 5, properties: bytes = b"") -> Message:
    return Message(b"a/b", text.encode(), 1, False, properties, "p", created_us, 0)


def queued(text: str, body: int = 0, created_us: int = 5, properties: bytes = b"", qos: int = 1) -> bytes:
    whole = message(text, created_us, properties)
    return encode_queue(QueueRow(qos, False, False, b"", b"", body, whole.size, None if body else whole))


def requested(text: str, asker: bytes, number: int, qos: int = 1, group: bytes = b"") -> bytes:
    whole = message(text)
    whole.origin = origin_of(asker, number)
    return encode_queue(QueueRow(qos, False, False, b"", group, 0, whole.size, whole))


def session(ends_us: int, expiry_s: int = NEVER, floor: int = 0, token: int = 0) -> bytes:
    return encode_session(SessionRow(5, expiry_s, ends_us, floor, "user", token))


class Fork:
    """Rows that both sides had, then what each has put and removed; time passes with every change."""

    def __init__(self) -> None:
        self.rows: list[dict[bytes, bytes]] = [{}, {}]
        self.taken: list[list[Holding]] = [[], []]  # branches that a side has merged
        self.stamps: list[dict[bytes, Stamp]] = [{}, {}]
        self.clock = 1000
        self.seqs = [FORK, FORK]
        self.common = -1

    def old(self, key: bytes, body: bytes) -> None:
        for rows in self.rows:
            rows[key] = u64(OLD) + u64(50) + body

    def put(self, side: int, key: bytes, body: bytes, stamped: bool = True) -> None:
        number = side - MINE
        self.seqs[number] += 1
        self.clock += 10
        self.rows[number][key] = u64(side) + u64(self.seqs[number]) + body
        rests = key[2] == SESSION and decode_session(body).ends_us > 0
        if stamped and not rests and key[2] in (SESSION, SUBSCRIPTION, WILL, RETAINED):
            self.stamps[number].setdefault(key, Stamp(0, 0)).put_us = self.clock

    def drop(self, side: int, key: bytes, stamped: bool = True) -> None:
        number = side - MINE
        self.seqs[number] += 1
        self.clock += 10
        self.rows[number].pop(key, None)
        if stamped and key[2] in (SESSION, SUBSCRIPTION, WILL, RETAINED):
            self.stamps[number].setdefault(key, Stamp(0, 0)).gone_us = self.clock

    def side(self, number: int) -> Side:
        rows = dict(self.rows[number])
        epoch = MINE + number
        for key, stamp in self.stamps[number].items():
            rows[stamp_key(key)] = u64(epoch) + u64(FORK + 1) + encode_stamp(stamp)
        own = Holding(COMPLETE, OLD, FORK, [(OLD, 0)])
        if self.seqs[number] > FORK or self.stamps[number]:
            own = Holding(COMPLETE, epoch, self.seqs[number] + 1, [(OLD, 0), (epoch, FORK)])
        return Side(rows, [own, *self.taken[number]], self.common)

    def merge(self, they_live: bool = True) -> tuple[dict[bytes, bytes], Merge]:
        """Return the rows of the side that goes on afterwards, without versions and stamps, and the merge."""
        mine = self.side(0)
        merge = Merge(0, mine, self.side(1), Holding(COMPLETE, THEIRS, 9000, []))
        merge.they_live = they_live
        for _ in merge.steps():
            pass
        after = {key: value[16:] for key, value in mine.rows.items() if key[2] != STAMP}
        for unit in merge.units:
            for kind, key, body in unit.ops:
                if kind == PUT:
                    after[key] = body
                else:
                    del after[key]
        return {key: body for key, body in after.items() if key[2] != STAMP}, merge


S = plain_key(0, SESSION, b"c")
W = plain_key(0, WILL, b"c")
SUB = name_prefix(0, SUBSCRIPTION, b"c") + b"a/#"
FEED = name_prefix(0, CURSOR, b"c") + b"$stream/s/earliest/#"
FEEDER = name_prefix(0, SUBSCRIPTION, b"c") + b"$stream/s/earliest/#"
OPTIONS = encode_subscription(SubscriptionRow(1, 0))
OTHER_OPTIONS = encode_subscription(SubscriptionRow(2, 0))
TOPIC = plain_key(0, RETAINED, b"a/b")


def q(sequence: int) -> bytes:
    return numbered_key(name_prefix(0, QUEUE, b"c"), sequence)


def texts(rows: dict[bytes, bytes]) -> list[str]:
    """The queue of client c in order; a body that is shared is looked up."""
    found = []
    for key in sorted(rows):
        if key[2] == QUEUE:
            row = decode_queue(rows[key])
            if row.message is None:
                found.append(rows[body_key(0, row.body)].decode(errors="replace").rpartition("\0")[2])
            else:
                found.append(row.message.payload.decode())
    return found


def fork_of_a_session(ends_us: int = 9) -> Fork:
    fork = Fork()
    fork.old(S, session(ends_us))
    fork.old(SUB, OPTIONS)
    fork.old(q(1), queued("one"))
    fork.old(q(2), queued("two"))
    return fork


# Queues


def test_what_the_other_side_queued_comes_behind_the_queue_and_what_it_removed_goes() -> None:
    fork = fork_of_a_session()
    fork.drop(THEIRS, q(1))  # acknowledged there
    fork.drop(MINE, q(2))  # acknowledged here
    fork.put(MINE, q(3), queued("mine"))
    fork.put(THEIRS, q(3), queued("theirs"))
    rows, merge = fork.merge()
    assert texts(rows) == ["mine", "theirs"]
    assert merge.summary.messages == 1
    assert merge.summary.acknowledged == 1


def test_the_side_where_the_client_is_connected_keeps_its_sequences() -> None:
    fork = fork_of_a_session()
    fork.put(MINE, S, session(77))  # its node is away: taken for gone, and later
    fork.put(THEIRS, S, session(0))
    fork.put(MINE, S, session(78))
    fork.put(MINE, q(3), queued("mine"))
    fork.put(THEIRS, q(3), queued("theirs"))
    released = numbered_key(name_prefix(0, RELEASED, b"c"), 9)
    received = name_prefix(0, RECEIVED, b"c") + u16(7)
    fork.put(THEIRS, released, b"")
    fork.put(MINE, received, b"\0")
    rows, merge = fork.merge()
    assert texts(rows) == ["one", "two", "theirs", "mine"]
    assert decode_queue(rows[q(3)]).message.payload == b"theirs"  # type: ignore[union-attr]
    assert q(10) in rows, "behind all that the other side has used, released flows included"
    assert released in rows
    assert received not in rows
    assert merge.homes == {b"c": True}


def test_of_two_connections_that_which_was_made_in_knowledge_of_the_other_counts_whatever_the_clocks_say() -> None:
    fork = fork_of_a_session(ends_us=0)
    fork.stamps[1][S] = Stamp(5000, 0)  # both know of that connection; its clock was ahead
    fork.put(MINE, S, session(0))
    fork.put(MINE, q(3), queued("mine"))
    fork.put(THEIRS, q(3), queued("theirs"))
    rows, merge = fork.merge()
    assert texts(rows) == ["one", "two", "mine", "theirs"]
    assert merge.homes == {b"c": False}


@pytest.mark.parametrize("side", [MINE, THEIRS])
@pytest.mark.parametrize("left", [False, True])
def test_a_client_that_has_connected_since_the_fork_at_one_side_is_not_at_the_other(side: int, left: bool) -> None:
    """The other side may not have led the session since the fork: it still says that the client is connected."""
    fork = Fork()
    fork.old(S, session(0, token=7))
    received = name_prefix(0, RECEIVED, b"c") + u16(7)
    fork.old(received, b"\0")
    fork.put(side, S, session(0, token=8))
    fork.drop(side, received)  # the client has repeated the message there, and ended its flow
    if left:
        fork.put(side, S, session(77, token=8))
    rows, merge = fork.merge()
    assert received not in rows, "the next message with this packet id would be taken for a repetition"
    assert decode_session(rows[S]).token == 8
    assert merge.summary.sessions_taken == (1 if side == THEIRS else 0)


@pytest.mark.parametrize("side", [MINE, THEIRS])
@pytest.mark.parametrize("kind", [SENT, RECEIVED, RELEASED, SUBSCRIPTION])
@pytest.mark.parametrize("they_live", [True, False])
def test_a_client_that_no_side_has_seen_leave_was_where_it_was_served(side: int, kind: int, they_live: bool) -> None:
    fork = Fork()
    fork.old(S, session(0, token=7))
    fork.old(SUB, OPTIONS)
    fork.old(q(1), queued("one", qos=2))
    served = {
        SENT: (plain_key(0, SENT, b"c"), encode_sent(2, 2)),
        RECEIVED: (name_prefix(0, RECEIVED, b"c") + u16(7), b"\0"),
        RELEASED: (numbered_key(name_prefix(0, RELEASED, b"c"), 1), b""),
        SUBSCRIPTION: (SUB, OTHER_OPTIONS),
    }
    key, body = served[kind]
    if kind in (RECEIVED, RELEASED):
        fork.old(key, body)
        fork.drop(side, key)  # PUBREL or PUBCOMP came there
    else:
        fork.put(side, key, body)
    rows, merge = fork.merge(they_live)
    assert (key in rows) is (kind in (SENT, SUBSCRIPTION))
    assert merge.summary.sessions_taken == (1 if side == THEIRS else 0)


@pytest.mark.parametrize("side", [MINE, THEIRS])
@pytest.mark.parametrize("served", ["since the fork", "by the last common leader", ""])
def test_of_two_ends_of_one_connection_that_counts_where_the_client_was_served(served: str, side: int) -> None:
    """The other one has taken it for dead; a leader that does so writes SENT in the same turn."""
    fork = Fork()
    if served == "by the last common leader":
        fork.common = MINE  # it could not commit this, and the next leader has handled it again
    fork.old(S, session(0, token=7))
    fork.old(q(1), queued("one", qos=2))
    received = name_prefix(0, RECEIVED, b"c") + u16(7)
    other = MINE + THEIRS - side
    if served:
        fork.put(side, received, b"\0")
    fork.put(side, S, session(77, token=7))
    fork.put(other, S, session(99, token=7))
    fork.put(other, plain_key(0, SENT, b"c"), encode_sent(2, 2))
    rows, merge = fork.merge()
    taken = served == "since the fork" and side == THEIRS
    assert (received in rows) is (taken or (bool(served) and side == MINE))
    assert merge.summary.sessions_taken == int(taken)


@pytest.mark.parametrize("base", [MINE, THEIRS])
@pytest.mark.parametrize("again", [False, True])
def test_a_flow_that_the_client_has_ended_at_the_other_side_is_over(again: bool, base: int) -> None:
    """Else its next message with that packet id would be taken for a repetition."""
    fork = fork_of_a_session()
    received = name_prefix(0, RECEIVED, b"c") + u16(7)
    fork.old(received, b"\0")
    fork.drop(MINE + THEIRS - base, received)
    fork.put(base, S, session(0))
    if again:
        fork.put(base, received, b"\x10")  # of another message since
    assert (received in fork.merge()[0]) is again


@pytest.mark.parametrize(("token", "stays"), [(7, True), (8, False)])
def test_a_side_that_has_only_taken_a_client_for_dead_does_not_go_before_the_one_where_it_was(
    token: int, stays: bool
) -> None:
    fork = Fork()
    fork.old(S, session(0, token=7))
    received = name_prefix(0, RECEIVED, b"c") + u16(7)
    fork.put(MINE, received, b"\0")
    fork.put(MINE, S, session(77, token=7))
    if token != 7:
        fork.put(THEIRS, S, session(0, token=token))  # its client came there
    fork.put(THEIRS, S, session(99, token=token))
    rows, _merge = fork.merge()
    assert (received in rows) is stays


def test_what_may_have_been_sent_at_the_other_side_says_so() -> None:
    fork = fork_of_a_session()
    fork.put(MINE, S, session(0))
    fork.put(THEIRS, q(5), queued("sent"))
    fork.put(THEIRS, q(6), queued("waits"))
    fork.put(THEIRS, plain_key(0, SENT, b"c"), encode_sent(6, 6))
    rows, merge = fork.merge()
    assert [decode_queue(rows[key]).sent for key in sorted(rows) if key[2] == QUEUE] == [False, False, True, False]
    assert merge.homes == {b"c": False}


def test_a_flow_of_qos_2_that_gets_another_packet_id_ends_under_the_old_one() -> None:
    fork = fork_of_a_session()
    fork.put(MINE, S, session(0))
    fork.put(MINE, q(7), queued("another message has its packet id"))
    fork.put(THEIRS, q(5), queued("the client may have it", qos=2))
    fork.put(THEIRS, q(6), queued("no flow to end", qos=1))
    fork.put(THEIRS, q(7), queued("of no use", qos=2))
    fork.put(THEIRS, q(8), queued("waits", qos=2))
    fork.put(THEIRS, plain_key(0, SENT, b"c"), encode_sent(8, 8))
    rows, _merge = fork.merge()
    assert [key for key in sorted(rows) if key[2] == RELEASED] == [r(5)]
    assert texts(rows)[-1] == "waits", "all four have got new ids"


def test_a_shared_body_of_the_other_side_goes_into_the_row_and_one_that_nobody_names_goes_away() -> None:
    fork = fork_of_a_session()
    fork.old(body_key(0, 1), encode_message(message("shared")))
    fork.old(q(3), queued("shared", body=1))
    fork.drop(THEIRS, q(3))
    fork.drop(THEIRS, body_key(0, 1))
    fork.put(THEIRS, body_key(0, 2), encode_message(message("other body")))
    fork.put(THEIRS, q(4), queued("other body", body=2))
    rows, _merge = fork.merge()
    assert texts(rows) == ["one", "two", "other body"]
    assert not [key for key in rows if key[2] == BODY]


def test_a_row_whose_body_is_missing_is_counted() -> None:
    fork = fork_of_a_session()
    fork.put(THEIRS, q(4), queued("gone", body=2))
    rows, merge = fork.merge()
    assert texts(rows) == ["one", "two"]
    assert list(merge.summary.dropped.values()) == [1]


# Sessions


def test_a_session_that_its_client_ended_at_the_other_side_ends() -> None:
    fork = fork_of_a_session()
    fork.put(MINE, S, session(77))
    for key in (S, SUB, q(1), q(2)):
        fork.drop(THEIRS, key)
    rows, merge = fork.merge()
    assert rows == {}
    assert merge.summary.sessions_ended == 1


@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_flow_that_was_begun_before_the_fork_ends_where_only_the_other_side_has_seen_pubrec(base: int) -> None:
    """The client has the message, and waits for PUBREL: here it still waits for PUBREC."""
    fork = fork_of_a_session()
    other = THEIRS if base == MINE else MINE
    fork.old(q(7), queued("begun", qos=2))
    fork.put(base, S, session(0))
    fork.drop(other, q(7))
    fork.put(other, r(7), b"")
    rows, _merge = fork.merge()
    assert "begun" not in texts(rows)
    assert r(7) in rows


@pytest.mark.parametrize("said", ["by the row", "by SENT", "no"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_no_message_gets_the_packet_id_of_one_that_was_acknowledged_at_the_other_side(
    base: int, qos: int, said: str
) -> None:
    """The client may hold the id of a QoS 2 message, and drop the next one with it; or acknowledge late."""
    fork = fork_of_a_session()
    other = THEIRS if base == MINE else MINE
    body = queued("the last one", qos=qos)
    fork.old(q(7), body[:1] + bytes([body[1] | 8]) + body[2:] if said == "by the row" else body)
    fork.put(base, S, session(0))
    if said == "by SENT":
        fork.put(base, plain_key(0, SENT, b"c"), encode_sent(8, 3))
    fork.drop(other, q(7))
    fork.put(other, plain_key(0, SENT, b"c"), encode_sent(8, 8))
    rows, _merge = fork.merge()
    assert texts(rows) == ["one", "two"]
    assert decode_sent(rows[plain_key(0, SENT, b"c")]) == (8 if said == "by SENT" else 0, 8)
    assert (r(7) in rows) == (qos == 2 and said != "no"), "its flow ends with PUBREL, if it may have begun"


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("base", [MINE, THEIRS])
@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_the_other_side_has_from_here_does_not_come_back_as_another_message(
    by: int, base: int, acknowledged: bool
) -> None:
    """It had merged a copy of this side, and written its messages under sequences of its own."""
    fork = fork_of_a_session()
    fork.put(base, S, session(0))
    fork.put(MINE, q(3), queued("mine"))
    seen, foreign = fork.rows[0][q(3)][:16], u64(9) + u64(7)
    if acknowledged:
        fork.drop(MINE, q(3))
    fork.put(THEIRS, q(5), with_origin(queued("mine"), [seen + u64(3) + foreign, foreign + u64(3) + seen][by]))
    fork.put(THEIRS, q(6), with_origin(queued("another's"), foreign + u64(6) + foreign))
    rows, _merge = fork.merge()
    expected = ["another's", "one", "two"] if acknowledged else ["another's", "mine", "one", "two"]
    assert sorted(texts(rows)) == expected


@pytest.mark.parametrize("base", [MINE, THEIRS])
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_message_that_one_side_has_as_it_was_and_the_other_one_by_a_merge_comes_once(
    base: int, acknowledged: bool
) -> None:
    """The client is connected where it is as it was queued; the other side knows that change, as it has merged it."""
    fork = fork_of_a_session()
    merged = 1 - (base - MINE)
    fork.put(base, q(3), queued("both"))
    version, seq = fork.rows[base - MINE][q(3)][:16], fork.seqs[base - MINE]
    fork.taken[merged].append(Holding(COMPLETE, base, seq, [(OLD, 0), (base, FORK)]))
    fork.put(merged + MINE, q(4), queued("own"))
    fork.put(merged + MINE, q(5), with_origin(queued("both"), version + u64(3) + u64(base) + u64(seq)))
    if acknowledged:
        fork.drop(base, q(3))
    fork.put(base, S, session(0))
    rows, _merge = fork.merge()
    assert sorted(texts(rows)) == (["one", "own", "two"] if acknowledged else ["both", "one", "own", "two"])


@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_request_that_came_to_both_sides_and_from_a_third_one_stays(base: int) -> None:
    """One side has merged the third one and taken its message; the other one has dropped it as a repetition."""
    fork = fork_of_a_session()
    asker = partition_name(3, 7)
    third = Holding(COMPLETE, 9, 110, [(OLD, 0), (9, FORK)])
    fork.taken = [[third], [third]]
    origin = u64(9) + u64(107) + u64(8) + u64(9) + u64(110)
    fork.put(MINE, q(5), with_origin(requested("m", asker, 5), origin))
    fork.put(THEIRS, q(4), requested("m", asker, 5))
    for side in (MINE, THEIRS):
        fork.put(side, plain_key(0, MARK, asker), u64(5))
    fork.put(base, S, session(0))
    rows, _merge = fork.merge()
    assert sorted(texts(rows)) == ["m", "one", "two"]


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_shared_message_that_a_merge_has_written_is_looked_up_at_its_own_side(base: int, damaged: bool) -> None:
    """At the other side the same number names another message; and what cannot be read was not acknowledged."""
    fork = fork_of_a_session()
    other = THEIRS if base == MINE else MINE
    asker = partition_name(3, 7)
    third = Holding(COMPLETE, 9, 110, [(OLD, 0), (9, FORK)])
    fork.taken = [[third], [third]]
    shared = message("m")
    shared.origin = origin_of(asker, 5)
    fork.put(base, body_key(0, 3), encode_message(shared)[: 9 if damaged else 1000])
    fork.put(other, body_key(0, 3), encode_message(message("another")))
    fork.put(base, q(5), with_origin(queued("m", body=3), u64(9) + u64(107) + u64(8) + u64(9) + u64(110)))
    fork.put(other, q(4), requested("m", asker, 5))
    for side in (MINE, THEIRS):
        fork.put(side, plain_key(0, MARK, asker), u64(5))
    fork.put(base, S, session(0))
    rows, merge = fork.merge()
    assert merge.summary.acknowledged == 0
    if not damaged:
        assert [text[-1] for text in texts(rows)] == ["e", "o", "m"], "one, two, and m once"


def test_a_message_that_a_merge_writes_keeps_where_it_came_from() -> None:
    fork = fork_of_a_session()
    fork.put(MINE, S, session(0))
    fork.put(THEIRS, q(3), queued("theirs"))
    version = fork.rows[1][q(3)][:16]
    rows, _merge = fork.merge()
    found = [origin_in(body) for key, body in rows.items() if key[2] == QUEUE and origin_in(body)]
    assert found == [version + u64(3) + u64(THEIRS) + u64(9000)]


@pytest.mark.parametrize("they_live", [True, False])
def test_nobody_is_connected_at_a_side_whose_process_was_started_since(they_live: bool) -> None:
    fork = fork_of_a_session()
    fork.put(THEIRS, S, session(0))
    fork.put(MINE, S, session(0))
    fork.put(MINE, S, session(77))  # its client was here last, and is gone
    _rows, merge = fork.merge(they_live)
    assert merge.summary.sessions_taken == (1 if they_live else 0)


@pytest.mark.parametrize("used", [True, False])
def test_a_session_that_its_client_uses_here_later_stays(used: bool) -> None:
    """Its connection ends here later, and not by its client, who has ended the session at the other side."""
    fork = fork_of_a_session()
    for key in (S, SUB, q(1), q(2)):
        fork.drop(THEIRS, key)
    if used:
        fork.put(MINE, S, session(0))
    fork.put(MINE, S, session(77))
    rows, _merge = fork.merge()
    assert texts(rows) == (["one", "two"] if used else [])
    assert (SUB in rows) is used


@pytest.mark.parametrize("expiry_s", [60, NEVER])
@pytest.mark.parametrize("side", [MINE, THEIRS])
@pytest.mark.parametrize("expired", [True, False])
def test_a_session_that_expired_where_its_client_was_not_seen_stays_and_one_that_it_ended_goes(
    expired: bool, side: int, expiry_s: int
) -> None:
    """The other side has only lost the connection, which was made before the split."""
    fork = Fork()
    fork.old(S, session(0, expiry_s=60))
    fork.put(side, S, session(90, expiry_s=expiry_s), stamped=False)
    fork.drop(MINE + THEIRS - side, S, stamped=not expired)
    assert (S in fork.merge()[0]) is expired


def test_a_connected_session_comes_back_with_all_its_rows() -> None:
    fork = fork_of_a_session(ends_us=0)
    for key in (S, SUB, q(1), q(2)):
        fork.drop(MINE, key, stamped=False)
    fork.put(THEIRS, q(3), queued("three"))
    fork.old(W, encode_will(WillRow(0, 0, message("will"), 0)))
    fork.drop(MINE, W)
    rows, merge = fork.merge()
    assert texts(rows) == ["one", "two", "three"]
    assert SUB in rows
    assert W in rows
    assert merge.homes == {b"c": True}


def test_a_session_that_only_the_other_side_has_comes_along() -> None:
    fork = Fork()
    fork.put(THEIRS, S, session(9))
    fork.put(THEIRS, SUB, OPTIONS)
    fork.put(THEIRS, q(1), queued("one"))
    rows, merge = fork.merge()
    assert texts(rows) == ["one"]
    assert SUB in rows
    assert merge.summary.sessions_taken == 1


def test_a_session_that_was_begun_anew_ends_the_one_of_the_other_side() -> None:
    fork = fork_of_a_session()
    for key in (S, SUB, q(1), q(2)):
        fork.drop(THEIRS, key)
    fork.put(THEIRS, S, session(9, floor=3))
    fork.put(THEIRS, q(3), queued("new"))
    rows, _merge = fork.merge()
    assert texts(rows) == ["new"]
    assert SUB not in rows


@pytest.mark.parametrize("base", [MINE, THEIRS])
@pytest.mark.parametrize("connects", ["later", "earlier", "once"])
def test_a_session_that_was_begun_anew_without_knowledge_of_the_other_ends_what_was_before(
    base: int, connects: str
) -> None:
    """A clean start leaves when it was, though there was nothing to end; one CONNECT may have come to both sides."""
    other = MINE + THEIRS - base
    fork = Fork()
    for side in [base, other] if connects == "earlier" else [other, base]:
        fork.drop(side, S)
        fork.put(side, S, session(0, token=1 if connects == "once" else side))
        fork.put(side, q(1), queued(f"{side}"))
    rows, _merge = fork.merge()
    both = {MINE: ["2", "3"], THEIRS: ["3", "2"]}
    assert texts(rows) == {"later": [f"{base}"], "earlier": [f"{other}"], "once": both[base]}[connects]


# Subscriptions


def test_an_unsubscribe_is_not_undone_by_the_side_that_did_not_hear_of_it() -> None:
    for side in (MINE, THEIRS):
        fork = fork_of_a_session()
        fork.drop(side, SUB, stamped=False)
        assert SUB not in fork.merge()[0]


def test_of_two_changes_of_a_subscription_the_later_wins() -> None:
    for first, second in ((MINE, THEIRS), (THEIRS, MINE)):
        fork = fork_of_a_session()
        fork.put(first, SUB, OTHER_OPTIONS)
        fork.drop(second, SUB)
        assert SUB not in fork.merge()[0]
        fork.put(first, SUB, OTHER_OPTIONS)
        assert fork.merge()[0][SUB] == OTHER_OPTIONS
        fork.put(second, SUB, OPTIONS)
        assert fork.merge()[0][SUB] == OPTIONS


def record(offset: int) -> bytes:
    """What the replay of a stream queues."""
    properties = b""
    for name, value in (("partition", "0"), ("offset", str(offset)), ("time", str(offset))):
        text = f"folkmoot-{name}".encode()
        properties += b"\x26" + u16(len(text)) + text + u16(len(value)) + value.encode()
    return queued(f"r{offset}", created_us=offset, properties=properties)


def test_a_replay_goes_on_from_the_later_position_and_gives_nothing_twice() -> None:
    fork = fork_of_a_session()
    fork.old(FEEDER, OPTIONS)
    fork.old(FEED, encode_cursor(CursorRow(1, [3, 0], b"")))
    fork.put(MINE, S, session(0))
    fork.put(MINE, q(3), record(3))
    fork.put(MINE, FEED, encode_cursor(CursorRow(1, [4, 1 << 62], b"")))
    for number, offset in enumerate((3, 4, 5)):
        fork.put(THEIRS, q(3 + number), record(offset))
    fork.put(THEIRS, q(6), queued("not of the replay"))
    fork.put(THEIRS, FEED, encode_cursor(CursorRow(1, [6, 2], b"")))
    rows, _merge = fork.merge()
    assert texts(rows) == ["one", "two", "r3", "r4", "r5", "not of the replay"]
    assert decode_cursor(rows[FEED]).positions == [6, 2]


def test_a_subscription_that_a_merge_has_written_again_takes_no_position_with_it() -> None:
    """The other side has merged an older copy from here: the row is one of its own, with the same content."""
    fork = fork_of_a_session()
    fork.old(FEEDER, OPTIONS)
    fork.put(MINE, S, session(0))
    fork.put(MINE, FEED, encode_cursor(CursorRow(1, [9], b"")))
    fork.put(THEIRS, FEEDER, OPTIONS, stamped=False)
    fork.put(THEIRS, FEED, encode_cursor(CursorRow(1, [2], b"")))
    rows, _merge = fork.merge()
    assert decode_cursor(rows[FEED]).positions == [9]


def test_a_replay_that_only_the_other_side_knows_keeps_what_it_has_queued() -> None:
    fork = fork_of_a_session()
    fork.put(THEIRS, S, session(0))
    fork.put(MINE, FEEDER, OPTIONS)
    fork.put(MINE, q(3), record(3))
    fork.put(MINE, FEED, encode_cursor(CursorRow(1, [4, 0], b"")))
    rows, _merge = fork.merge()
    assert texts(rows) == ["one", "two", "r3"]
    assert decode_cursor(rows[FEED]).positions == [4, 0]


# Wills


def test_the_will_of_a_transient_client_stays_where_it_is_connected() -> None:
    connected = encode_will(WillRow(5, 0, message("will"), 0))
    for side in (MINE, THEIRS):
        fork = Fork()
        fork.old(W, connected)
        fork.drop(side, W)  # published there: its node is away
        assert fork.merge()[0] == {W: connected}


def test_a_will_that_waits_goes_when_one_side_has_published_it() -> None:
    for side in (MINE, THEIRS):
        fork = Fork()
        fork.old(W, encode_will(WillRow(5, 99, message("will"), 0)))
        fork.drop(side, W)
        assert fork.merge()[0] == {}


def will(text: str, token: int, delay_s: int = 0) -> bytes:
    return encode_will(WillRow(delay_s, 0, message(text), token))


@pytest.mark.parametrize("side", [MINE, THEIRS])
@pytest.mark.parametrize("stamped", [True, False])  # the first one may be older than the split
def test_of_two_wills_of_a_transient_client_the_later_stays_and_the_other_is_due(side: int, stamped: bool) -> None:
    fork = Fork()
    fork.put(side, W, will("left", 0xAB), stamped)
    fork.put(MINE + THEIRS - side, W, will("connected", 0xCD))
    assert fork.merge()[0] == {W: will("connected", 0xCD), W + b"\0ab": will("left", 0xAB)}


@pytest.mark.parametrize("side", [MINE, THEIRS])
def test_a_will_that_the_other_side_has_settled_is_not_due(side: int) -> None:
    fork = Fork()
    fork.old(W, will("left", 0xAB))
    fork.drop(side, W)  # published there
    fork.put(side, W, will("connected", 0xCD))
    assert fork.merge()[0] == {W: will("connected", 0xCD)}


def test_a_connection_that_has_asked_leaders_of_both_sides_has_one_will() -> None:
    fork = Fork()
    for side in (MINE, THEIRS):
        fork.put(side, W, will("one", 0xAB))
    assert fork.merge()[0] == {W: will("one", 0xAB)}
    for side in (MINE, THEIRS):
        fork.put(side, S, session(0))
    assert fork.merge()[0] == {S: session(0), W: will("one", 0xAB)}


@pytest.mark.parametrize("side", [MINE, THEIRS])
@pytest.mark.parametrize("delay_s", [0, 5])
@pytest.mark.parametrize("session_of_the_other", ["the same", "none", "begun anew", "begun without knowing of it"])
def test_the_will_of_a_connection_whose_client_goes_on_at_the_other_side_is_due(
    side: int, delay_s: int, session_of_the_other: str
) -> None:
    base = MINE + THEIRS - side
    fork = Fork()
    if session_of_the_other == "the same":
        fork.put(side, S, session(0))
    elif session_of_the_other == "begun anew":
        fork.old(S, session(9))
        fork.drop(base, S)
    elif session_of_the_other == "begun without knowing of it":
        fork.put(side, S, session(0))
    fork.put(side, W, will("left", 0xAB, delay_s))
    if session_of_the_other == "begun without knowing of it":
        fork.drop(base, S)  # what a clean start leaves
    fork.put(base, S, session(0))
    fork.put(base, W, will("connected", 0xCD))
    expected = {S: session(0), W: will("connected", 0xCD)}
    if not delay_s or session_of_the_other != "the same":  # a delay ends when the client is back in its session
        expected[W + b"\0ab"] = will("left", 0xAB, delay_s)
    assert fork.merge()[0] == expected


@pytest.mark.parametrize("side", [MINE, THEIRS])
def test_a_will_that_was_left_and_that_one_side_of_another_split_has_published_is_not_due(side: int) -> None:
    fork = Fork()
    fork.old(W + b"\0ab", will("left", 0xAB))
    fork.drop(side, W + b"\0ab")
    assert fork.merge()[0] == {}


# Other rows


def test_the_later_retained_message_wins_and_a_clear_counts() -> None:
    fork = Fork()  # without stamps for messages: there may be too many
    fork.put(MINE, TOPIC, encode_message(message("mine", 2000)), stamped=False)
    fork.put(THEIRS, TOPIC, encode_message(message("theirs", 2001)), stamped=False)
    assert fork.merge()[0][TOPIC] == encode_message(message("theirs", 2001))
    fork.put(MINE, TOPIC, encode_message(message("mine", 2002)), stamped=False)
    rows, merge = fork.merge()
    assert rows[TOPIC] == encode_message(message("mine", 2002))
    assert list(merge.summary.dropped.values()) == [1]
    fork.clock = 3000
    fork.drop(THEIRS, TOPIC)
    assert fork.merge()[0] == {}


def test_of_retained_messages_that_is_later_which_was_kept_later_whatever_the_clock_where_it_came_in() -> None:
    behind, ahead = encode_message(message("later", 100)), encode_message(message("earlier", 5_000))
    for first, second in ((MINE, THEIRS), (THEIRS, MINE)):
        fork = Fork()
        fork.put(first, TOPIC, ahead)
        fork.put(second, TOPIC, behind)
        assert fork.merge()[0][TOPIC] == behind
        fork.put(first, TOPIC, ahead)
        fork.put(first, TOPIC, behind)  # on one side, after its own clear
        fork.drop(second, TOPIC)
        fork.put(first, TOPIC, behind)
        assert fork.merge()[0][TOPIC] == behind


def test_a_clear_is_not_undone_by_the_side_that_did_not_hear_of_it() -> None:
    for side in (MINE, THEIRS):
        fork = Fork()
        fork.old(TOPIC, encode_message(message("old")))
        fork.drop(side, TOPIC, stamped=False)
        assert fork.merge()[0] == {}


def test_marks_and_producers_keep_the_greater_number() -> None:
    producer, node = plain_key(0, PRODUCER, b"p"), plain_key(0, MARK, b"n1")
    partition = plain_key(0, MARK, partition_name(1, OLD))
    for mine, theirs in ((5, 7), (7, 5)):
        fork = Fork()
        for key in (producer, node, partition):
            fork.put(MINE, key, u64(mine))
            fork.put(THEIRS, key, u64(theirs))
        rows, _merge = fork.merge()
        assert (rows[producer], rows[node], rows[partition]) == (u64(7), u64(7), u64(7))


def test_marks_of_apps_keep_the_greater_number_and_the_later_use() -> None:
    app = plain_key(0, MARK, transaction_name(b"app"))
    for mine, theirs, merged in (
        (encode_mark(5, 90), encode_mark(7, 80), encode_mark(7, 90)),
        (encode_mark(7, 80), encode_mark(5, 90), encode_mark(7, 90)),
        (encode_mark(7, 90), encode_mark(5, 80), encode_mark(7, 90)),
        (u64(5), encode_mark(4, 80), encode_mark(5, 80)),
        (encode_mark(4, 80), u64(5), encode_mark(5, 80)),
        (b"", encode_mark(4, 80), encode_mark(4, 80)),
    ):
        fork = Fork()
        if mine:
            fork.put(MINE, app, mine)
        fork.put(THEIRS, app, theirs)
        assert fork.merge()[0][app] == merged


def test_the_last_numbers_of_a_producer_at_both_sides_are_known_afterwards() -> None:
    producer = plain_key(0, PRODUCER, b"p")
    for sides in ((MINE, THEIRS), (THEIRS, MINE)):
        fork = Fork()
        fork.put(sides[0], producer, add_number(add_number(u64(4), 5), 9))
        fork.put(sides[1], producer, add_number(add_number(u64(4), 6), 7))
        row = fork.merge()[0][producer]
        assert get_u64(row, 0) == 9
        assert [number for number in range(12) if has_number(row, number)] == [4, 5, 6, 7, 9]


def test_only_the_last_numbers_of_a_producer_are_kept() -> None:
    row = b""
    for number in range(2 * RECENT_MAX):
        row = add_number(row, number)
    assert len(row) == (1 + RECENT_MAX) * NUMBER_BYTES
    known = [number for number in range(2 * RECENT_MAX) if has_number(row, number)]
    assert known == list(range(RECENT_MAX, 2 * RECENT_MAX))


def test_what_was_done_for_an_outbox_is_counted_by_lineage() -> None:
    fork = Fork()
    ours, others = plain_key(0, MARK, partition_name(1, MINE)), plain_key(0, MARK, partition_name(1, THEIRS))
    fork.put(MINE, ours, u64(9))
    fork.put(THEIRS, others, u64(5))
    rows, _merge = fork.merge()
    assert (rows[ours], rows[others]) == (u64(9), u64(5))


def test_promises_of_both_sides_are_kept_under_their_numbers() -> None:
    fork = Fork()
    before, done = outbox_key(0, 1, OLD), outbox_key(0, 2, OLD)
    fork.old(before, b"kept here, done there")
    fork.drop(THEIRS, before)
    fork.old(done, b"done here, kept there")
    fork.drop(MINE, done)
    fork.put(MINE, outbox_key(0, 3, MINE), b"mine")
    fork.put(THEIRS, outbox_key(0, 3, THEIRS), b"theirs")
    rows, merge = fork.merge()
    assert rows == {
        before: b"kept here, done there",
        outbox_key(0, 3, MINE): b"mine",
        outbox_key(0, 3, THEIRS): b"theirs",
    }
    assert merge.summary.outbox == 1


def chunk_of(texts: list[str], first: int) -> bytes:
    records = [Record(b"t", text.encode(), 0, b"p", b"") for text in texts]
    return encode_chunk(first, 0, [1 + first + place for place in range(len(texts))], records)


def records_of(chunk: bytes) -> str:
    """Return offset and text of the records of a chunk."""
    return " ".join([f"{entry.offset} {entry.record.payload.decode()}" for entry in decode_chunk(chunk)])


def test_chunks_of_the_other_side_are_left_over_and_none_of_before_the_fork() -> None:
    fork = Fork()
    fork.old(chunk_key(0, b"s", 0, 0), chunk_of(["old"], 0))
    fork.put(MINE, chunk_key(0, b"s", 0, 8), chunk_of(["mine"], 8))
    fork.put(THEIRS, chunk_key(0, b"s", 0, 8), chunk_of(["theirs"], 8))
    rows, _merge = fork.merge()
    assert [records_of(body) for key, body in rows.items() if key[2] == CHUNK] == ["0 old", "8 mine"]
    assert [records_of(body[ORIGIN_BYTES:]) for key, body in rows.items() if key[2] == LEFTOVER] == ["8 theirs"]


# Properties


@settings(max_examples=300, deadline=None)
@given(
    old=st.sets(SEQUENCE),
    changes=st.lists(st.tuples(st.sampled_from([MINE, THEIRS]), st.booleans(), SEQUENCE), max_size=20),
    connected=st.sampled_from([0, MINE, THEIRS]),
)
def test_nothing_that_nobody_removed_is_lost_and_nothing_comes_twice(
    old: set[int], changes: list[tuple[int, bool, int]], connected: int
) -> None:
    fork = Fork()
    fork.old(S, session(9))
    expected: set[str] = set()
    for sequence in old:
        fork.old(q(sequence), queued(f"old {sequence}"))
        expected.add(f"old {sequence}")
    ends = {MINE: 10, THEIRS: 10}
    for number, (side, puts, sequence) in enumerate(changes):
        rows = fork.rows[side - MINE]
        if puts:
            fork.put(side, q(ends[side]), queued(f"new {number}"))
            ends[side] += 1
            expected.add(f"new {number}")
        elif q(sequence) in rows:
            expected.discard(decode_queue(rows[q(sequence)][16:]).message.payload.decode())  # type: ignore[union-attr]
            fork.drop(side, q(sequence))
    if connected:
        fork.put(connected, S, session(0))
    rows, merge = fork.merge()
    found = texts(rows)
    assert sorted(found) == sorted(expected)
    for side in (MINE, THEIRS):
        # Each side's messages keep their order.
        order = [decode_queue(fork.rows[side - MINE][q(number)][16:]).message for number in range(10, ends[side])]
        mine = [one.payload.decode() for one in order if one is not None]
        assert [text for text in found if text in mine] == mine
    base = THEIRS if connected == THEIRS else MINE
    for sequence in range(10, ends[base]):
        assert q(sequence) in rows, "the base keeps its packet ids"
    assert len({unit.name for unit in merge.units}) == len(merge.units)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from([MINE, THEIRS]), st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_each_subscription_is_what_was_said_last(steps: list[tuple[int, int, int]]) -> None:
    fork = Fork()
    fork.old(S, session(9))
    keys = [name_prefix(0, SUBSCRIPTION, b"c") + bytes([97 + number]) for number in range(3)]
    for key in keys[:2]:
        fork.old(key, OPTIONS)
    last: dict[bytes, bytes | None] = {keys[0]: OPTIONS, keys[1]: OPTIONS, keys[2]: None}
    for side, number, what in steps:
        key = keys[number]
        if what:
            body = encode_subscription(SubscriptionRow(what, fork.clock))
            fork.put(side, key, body)
            last[key] = body
        elif key in fork.rows[side - MINE]:
            fork.drop(side, key)
            last[key] = None
    rows, _merge = fork.merge()
    assert {key: rows.get(key) for key in keys} == last


SEVENTH = (5 << NUMBER_BITS) + 7  # the seventh request that was made in the fifth view


@pytest.mark.parametrize(
    ("mark", "common", "kept"),
    [
        (SEVENTH, 5, False),  # the other side has applied the same request
        (SEVENTH + 20, 6, False),  # and later ones
        (SEVENTH - 1, 5, True),  # it has not
        (0, 5, True),  # it knows nothing of who asked
        (SEVENTH + 20, 4, True),  # it was made on one side, after the fork: numbers of the two sides tell nothing
        (SEVENTH, -1, True),  # nobody knows when they parted: twice rather than never
    ],
)
@pytest.mark.parametrize("asker", [b"n1", partition_name(7, OLD), transaction_name(b"app")], ids=["n", "p", "t"])
@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_message_comes_once_if_both_sides_have_applied_its_request(
    mark: int, common: int, kept: bool, asker: bytes, base: int
) -> None:
    if not is_node(asker):
        kept = mark < SEVENTH  # its name tells the lineage, or is that of an app: no matter when they parted
    fork = Fork()
    fork.common = common
    fork.old(S, session(0))
    other = THEIRS if base == MINE else MINE
    fork.put(other, S, session(1 << 60))  # not connected there
    fork.put(base, S, session(0))
    fork.put(other, q(1), requested("m", asker, SEVENTH))
    if mark:
        fork.put(base, plain_key(0, MARK, asker), u64(mark))
    rows, _merge = fork.merge()
    assert texts(rows) == (["m"] if kept else [])


@pytest.mark.parametrize(
    ("case", "kept"),
    [
        ("acknowledged", False),
        ("qos 1", True),  # twice rather than never
        ("not applied", True),
        ("it waits there", True),
        ("subscribed since", True),  # nobody knows whether the other side had the subscription when it applied this
        ("of a group", True),  # the other side may have chosen another member
        ("nobody was there", True),  # its queue may have been full there
        ("its leader died", True),  # the next one did not find the client, and did not know what had been sent
        ("dropped", True),  # when a later message found no room
        ("a third side", True),  # nor whether the mark is that of the other side, or of one that it has merged
    ],
)
@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_message_with_qos_2_that_the_other_side_has_delivered_goes(base: int, case: str, kept: bool) -> None:
    """A request for all partitions was in the outbox when the sides parted, and each side has applied it."""
    asker = partition_name(7, OLD)
    qos = 1 if case == "qos 1" else 2
    fork = Fork()
    fork.old(S, session(0))
    other = THEIRS if base == MINE else MINE
    if case != "subscribed since":
        fork.old(SUB, OPTIONS)
    sent = plain_key(0, SENT, b"c")
    if case not in ("nobody was there", "dropped"):
        fork.put(other, sent, encode_sent(2, 2))
    if case == "its leader died":
        fork.seqs[other - MINE] -= 1  # both rows are of one turn
    fork.put(other, S, session(1 << 60))  # not connected there any more
    if case == "dropped":
        fork.put(other, sent, encode_sent(2, 300))
    fork.put(base, S, session(0))
    if case == "subscribed since":
        fork.put(base, SUB, OPTIONS)
    fork.put(base, q(1), requested("m", asker, SEVENTH, qos, b"$share/g/#" if case == "of a group" else b""))
    fork.put(base, plain_key(0, MARK, asker), u64(SEVENTH))
    fork.put(other, plain_key(0, MARK, asker), u64(SEVENTH - (1 if case == "not applied" else 0)))
    if case == "it waits there":
        fork.put(other, q(1), requested("m", asker, SEVENTH, qos))
    if case == "a third side":
        fork.taken[other - MINE].append(Holding(COMPLETE, 9, 5, []))
    rows, merge = fork.merge()
    assert texts(rows) == (["m"] if kept else [])
    assert merge.summary.acknowledged == (0 if kept else 1)


@pytest.mark.parametrize("side", [MINE, THEIRS])
def test_what_a_client_has_got_where_it_came_and_went_does_not_come_again(side: int) -> None:
    asker = partition_name(7, OLD)
    fork = Fork()
    fork.old(S, session(0))
    other = MINE + THEIRS - side
    fork.put(side, S, session(0, token=5))
    fork.put(side, S, session(1 << 60, token=5))
    fork.put(side, plain_key(0, SENT, b"c"), encode_sent(2, 300))
    fork.put(other, q(1), requested("m", asker, SEVENTH, 2))
    for one in (side, other):
        fork.put(one, plain_key(0, MARK, asker), u64(SEVENTH))
    rows, merge = fork.merge()
    assert texts(rows) == []
    assert merge.summary.messages == 0


@pytest.mark.parametrize("at", ["base", "other"])
@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_message_that_cannot_be_read_takes_no_other_one_with_it(base: int, at: str) -> None:
    """One that is damaged at the other side may be any that the base has; one of the base is not acknowledged."""
    asker = partition_name(7, OLD)
    fork = Fork()
    other = THEIRS if base == MINE else MINE
    fork.old(S, session(0))
    fork.old(SUB, OPTIONS)
    fork.put(other, plain_key(0, SENT, b"c"), encode_sent(2, 2))
    fork.put(other, S, session(1 << 60))  # the client has been there
    fork.put(base, S, session(0))
    fork.put(base, q(1), requested("m", asker, SEVENTH, 2))
    for side in (base, other):
        fork.put(side, plain_key(0, MARK, asker), u64(SEVENTH))
    damaged = base if at == "base" else other
    fork.put(damaged, body_key(0, 3), encode_message(message("x"))[:9])
    fork.put(damaged, q(4), queued("damaged", body=3, qos=2))
    if at == "base":  # what came by a packet is looked for among the base's
        whole = message("from a packet")
        whole.source = u64(77) + u64(3)
        fork.put(other, q(5), encode_queue(QueueRow(2, False, False, b"", b"", 0, whole.size, whole)))
    rows, merge = fork.merge()
    found = [decode_queue(rows[key]) for key in sorted(rows) if key[2] == QUEUE]
    read = [row.message.payload for row in found if row.message is not None]
    assert read == ([b"from a packet"] if at == "base" else [b"m"])
    assert merge.summary.acknowledged == (1 if at == "base" else 0)
    assert len(found) - len(read) == (1 if damaged == MINE else 0), (
        "who leads on finds what is damaged in its own store"
    )


@pytest.mark.parametrize("known", [0, 5, 6])
@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_will_comes_once_if_both_sides_have_published_it(known: int, base: int) -> None:
    fork = Fork()
    fork.old(S, session(0))
    other = THEIRS if base == MINE else MINE
    fork.put(other, S, session(1 << 60))
    fork.put(base, S, session(0))
    fork.put(other, q(1), requested("m", will_name(5), WILL_NUMBER))
    if known:
        fork.put(base, plain_key(0, PRODUCER, will_name(known)), u64(WILL_NUMBER))
    rows, _merge = fork.merge()
    assert texts(rows) == ([] if known == 5 else ["m"])


@pytest.mark.parametrize("knows", ["mark", "id", "row", "mark of another", "nothing"])
@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_message_comes_once_if_leaders_at_both_sides_have_got_its_packet(knows: str, base: int) -> None:
    """The first leader has the id of the packet, as PUBREL went to the next one; the next one has marked it.

    In another partition than the publisher's, the first side may only have the row itself.
    """
    fork = Fork()
    fork.old(S, session(0))
    other = THEIRS if base == MINE else MINE
    fork.put(other, S, session(1 << 60))  # not connected there
    fork.put(base, S, session(0))
    source = u64(77) + u64(3)
    whole = message("m")
    whole.origin = origin_of(partition_name(3, 7), 5)
    whole.source = source
    fork.put(other, q(1), encode_queue(QueueRow(2, False, False, b"", b"", 0, whole.size, whole)))
    if knows == "mark":
        fork.put(base, plain_key(0, MARK, packet_name(source)), u64(1))
    elif knows == "mark of another":
        fork.put(base, plain_key(0, MARK, packet_name(u64(77) + u64(4))), u64(1))
    elif knows == "id":
        fork.put(base, name_prefix(0, RECEIVED, b"publisher") + u16(9), b"\0" + source)
    elif knows == "row":
        whole.origin = b""
        fork.put(base, q(2), encode_queue(QueueRow(2, False, False, b"", b"", 0, whole.size, whole)))
    rows, _merge = fork.merge()
    assert texts(rows) == ([] if knows in ("mark", "id") else ["m"])


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize(("end", "left"), [(0, "5 a 6 b 7 c"), (5, "5 a 6 b 7 c"), (7, "7 c"), (8, "")])
def test_records_that_a_shorter_copy_of_the_branch_has_brought_are_not_appended_twice(
    end: int, left: str, goes_on: bool
) -> None:
    """A later chunk of the longer copy begins with them: small chunks are rewritten together with what follows.

    goes_on: the shorter copy has got other records in another lineage, behind those that both have.
    """
    fork = Fork()
    key = chunk_key(0, b"s", 0, 5)
    fork.put(THEIRS, key, chunk_of(["a", "b", "c"], 5))
    merge = Merge(0, fork.side(0), fork.side(1), Holding(COMPLETE, THEIRS, 9000, [(OLD, 0), (THEIRS, FORK)]))
    shorter = Holding(COMPLETE, THEIRS, FORK + 1, [(OLD, 0), (THEIRS, FORK)])
    if goes_on:
        shorter = Holding(COMPLETE, 77, FORK + 2, [*shorter.history, (77, FORK + 1)])
    merge.taken = [TakenBranch(shorter, b"")]
    merge.taken[0].ends = {log_of_chunk(key): [(FORK, end), *([(FORK + 2, end + 2)] if goes_on else [])]}
    merge.taken.append(TakenBranch(shorter, b""))  # which knows less of it
    merge.taken[1].ends = {log_of_chunk(key): [(FORK + 1, 0)]}
    for _ in merge.steps():
        pass
    found = [records_of(body[ORIGIN_BYTES:]) for unit in merge.units for _kind, _key, body in unit.ops]
    assert found == ([left] if left else [])


def test_records_that_another_fork_has_of_the_trunk_keep_their_offsets() -> None:
    """That fork has gone on from a newer copy of the trunk than this one: those that it has written have no offsets."""
    fork = Fork()
    trunk, theirs = chunk_key(0, b"s", 0, 5), chunk_key(0, b"s", 0, 7)
    fork.rows[1][trunk] = u64(make_epoch(9, "trunk")) + u64(FORK + 1) + chunk_of(["a", "b"], 5)
    fork.put(THEIRS, theirs, chunk_of(["c"], 7))
    merge = Merge(0, fork.side(0), fork.side(1), Holding(COMPLETE, THEIRS, 9000, []))
    merge.trunk = tag_of(make_epoch(9, "trunk"))
    for _ in merge.steps():
        pass
    found = [
        (is_of_trunk(key), records_of(body[ORIGIN_BYTES:])) for unit in merge.units for _kind, key, body in unit.ops
    ]
    assert found == [(True, "5 a 6 b"), (False, "7 c")]


def trunk_at(counter: int) -> int:
    return make_epoch(counter, "trunk")


def left_over(merge: Merge) -> list[tuple[bool, str]]:
    """Return what a plan leaves over, and whether its offsets count as given out."""
    merge.trunk = tag_of(trunk_at(9))
    for _ in merge.steps():
        pass
    return [
        (is_of_trunk(key), records_of(body[ORIGIN_BYTES:])) for unit in merge.units for _kind, key, body in unit.ops
    ]


@pytest.mark.parametrize("direct", [False, True], ids=["by a fork", "direct"])
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize(("seen", "kept"), [(8, True), (9, True), (10, False)])
def test_the_end_of_a_copy_that_the_trunk_has_gone_on_without_has_no_offsets(
    seen: int, kept: bool, taken: bool, direct: bool
) -> None:
    """Later leaders in the trunk have all that was committed there, and this side has seen what they did."""
    fork = Fork()
    fork.rows[1][chunk_key(0, b"s", 0, 5)] = u64(trunk_at(9)) + u64(FORK + 1) + chunk_of(["a", "b"], 5)
    mine = fork.side(0)
    if taken:
        mine.seen.append(Holding(COMPLETE, 77, FORK + 9, [(OLD, 0), (trunk_at(seen), FORK - 1), (77, FORK)]))
    else:
        mine.seen[0].history = [(OLD, 0), (trunk_at(seen), FORK - 1), (MINE, FORK)]
    epoch = trunk_at(9) if direct else THEIRS
    assert left_over(Merge(0, mine, fork.side(1), Holding(COMPLETE, epoch, 9000, []))) == [(kept, "5 a 6 b")]


def test_an_epoch_that_begins_behind_a_copy_was_not_seen() -> None:
    holding = Holding(COMPLETE, MINE, FORK, [(OLD, 0), (MINE, FORK - 1), (trunk_at(9), FORK)])
    assert Side({}, [holding]).newest_epoch(tag_of(trunk_at(9))) == 0
    holding.seq += 1
    assert Side({}, [holding]).newest_epoch(tag_of(trunk_at(9))) == trunk_at(9)


@pytest.mark.parametrize(("seen", "kept"), [(9, True), (10, False)])
def test_what_the_other_side_has_kept_of_a_third_one_is_judged_by_what_is_known_here(seen: int, kept: bool) -> None:
    fork = Fork()
    key = leftover_key(chunk_key(0, b"s", 0, 5), 8, of_trunk=True)
    origin = Origin(u64(8) + u64(77), u64(8) + u64(99), 0, u64(trunk_at(9)) + u64(FORK + 1))
    fork.put(THEIRS, key, encode_origin(origin) + chunk_of(["a"], 5))
    mine = fork.side(0)
    mine.seen[0].history = [(OLD, 0), (trunk_at(seen), FORK - 1), (MINE, FORK)]
    assert left_over(Merge(0, mine, fork.side(1), Holding(COMPLETE, THEIRS, 9000, []))) == [(kept, "5 a")]
    mine.rows[key if kept else of_no_trunk(key)] = fork.rows[1][key]
    assert left_over(Merge(0, mine, fork.side(1), Holding(COMPLETE, THEIRS, 9000, []))) == []


@pytest.mark.parametrize(("here", "there", "taken"), [(["a"], ["a", "b"], ["5 a 6 b"]), (["a", "b"], ["a"], [])])
def test_of_two_copies_of_a_third_branch_the_records_of_the_longer_one_are_kept(
    here: list[str], there: list[str], taken: list[str]
) -> None:
    fork = Fork()
    key = leftover_key(chunk_key(0, b"s", 0, 5), 8, of_trunk=False)
    for side, texts in ((MINE, here), (THEIRS, there)):
        origin = Origin(u64(8) + u64(len(texts)), u64(8) + u64(len(texts)), 5, u64(8) + u64(len(texts)))
        fork.put(side, key, encode_origin(origin) + chunk_of(texts, 5))
    mine = fork.side(0)
    found = left_over(Merge(0, mine, fork.side(1), Holding(COMPLETE, THEIRS, 9000, [])))
    assert [records for _of_trunk, records in found] == taken


def test_what_the_other_side_has_kept_of_this_one_does_not_come_back() -> None:
    fork = Fork()
    key = leftover_key(chunk_key(0, b"s", 0, 5), MINE, of_trunk=False)
    fork.put(MINE, chunk_key(0, b"s", 0, 5), chunk_of(["mine"], 5))
    seen = u64(MINE) + u64(fork.seqs[0])
    fork.put(THEIRS, key, encode_origin(Origin(seen, u64(8) + u64(99), 5, seen)) + chunk_of(["mine"], 5))
    rows, _merge = fork.merge()
    assert [row for row in rows if row[2] == LEFTOVER] == []


@pytest.mark.parametrize("by", [0, 1])
def test_records_that_the_other_side_has_from_here_do_not_come_back(by: int) -> None:
    """It had merged a copy of this side, and appended its records at offsets of its own, in chunks of its own."""
    fork = Fork()
    key = chunk_key(0, b"s", 0, 5)
    fork.put(MINE, key, chunk_of(["mine"], 5))
    seen, foreign = u64(MINE) + u64(fork.seqs[0]), u64(9) + u64(7)
    fork.put(THEIRS, key, chunk_of(["a", "b", "mine", "c", "d"], 5))
    # By the change that wrote them, or because all of a copy was seen.
    known = Origin(seen, foreign, 30, b"") if by == 0 else Origin(foreign, seen, 30, b"")
    fork.put(THEIRS, absorbed_key(0, log_of_chunk(key), 7), encode_span(Span(7, 8, known)))
    other = Origin(foreign, foreign, 40, b"")
    fork.put(THEIRS, absorbed_key(0, log_of_chunk(key), 8), encode_span(Span(8, 20, other)))
    rows, _merge = fork.merge()
    version, branch = u64(THEIRS) + u64(FORK + 1), u64(THEIRS) + u64(9000)
    found = [(body[:ORIGIN_BYTES], records_of(body[ORIGIN_BYTES:])) for row, body in rows.items() if row[2] == LEFTOVER]
    assert found == [
        (encode_origin(Origin(version, branch, 5, version)), "5 a 6 b"),
        (encode_origin(Origin(foreign, foreign, 40, version)), "8 c 9 d"),
    ]
    assert [row for row in rows if row[2] == ABSORBED] == []


def test_the_plan_for_a_long_queue_is_made_in_steps() -> None:
    fork = Fork()
    fork.old(S, session(0))
    count = 3 * STEP_ROWS
    for number in range(1, count + 1):
        fork.rows[0][q(number)] = u64(MINE) + u64(FORK + number) + queued("mine")
        fork.rows[1][q(number)] = u64(THEIRS) + u64(FORK + number) + queued("theirs")
    fork.seqs = [FORK + count, FORK + count]
    merge = Merge(0, fork.side(0), fork.side(1), Holding(COMPLETE, THEIRS, 9000, []))
    # Every row of the base, every row of the other side, and every row of the result.
    assert len([None for _ in merge.steps()]) >= 4 * count // STEP_ROWS - 3
    assert [unit.name for unit in merge.units] == [b"0c"]
    assert len(merge.units[0].ops) == count


@pytest.mark.parametrize("base", [MINE, THEIRS])
def test_a_flow_that_the_client_has_begun_at_the_other_side_ends_after_the_merge(base: int) -> None:
    fork = Fork()
    fork.old(S, session(0))
    other = THEIRS if base == MINE else MINE
    fork.put(other, S, session(1 << 60))  # not connected there
    fork.put(base, S, session(0))
    begun, taken, mine = r(40), r(3), r(4)
    fork.put(other, begun, b"")
    fork.put(other, taken, b"")
    fork.put(base, q(3), queued("another message has its packet id"))
    fork.put(base, mine, b"")
    rows, _merge = fork.merge()
    assert begun in rows
    assert mine in rows
    assert taken not in rows


def r(sequence: int) -> bytes:
    return numbered_key(name_prefix(0, RELEASED, b"c"), sequence)


@pytest.mark.parametrize("interrupted", [False, True])
def test_of_the_stamps_of_both_sides_the_newest_stay_as_many_as_there_may_be(interrupted: bool) -> None:
    """Who has none counts as older than who has one. interrupted: another leader plans the rest anew."""
    half = STAMPS_MAX // 2
    keys = [plain_key(0, RETAINED, b"%05d" % number) for number in range(3 * half)]
    version = u64(MINE) + u64(FORK + 1)
    started = stamp_key(keys[0])[:3]  # that a side was begun from nothing
    sides: list[dict[bytes, bytes]] = [{started: version + encode_stamp(Stamp(0, 1))}, {}]
    for number, key in enumerate(keys):  # of a third of them only one side has stamps, of a third the other one
        for side in (0, 1):
            if side * half <= number < (side + 2) * half:
                sides[side][stamp_key(key)] = version + encode_stamp(Stamp(10_000 + 7 * number % 3_001, side))

    def merged(rows: dict[bytes, bytes], units_max: int) -> dict[bytes, bytes]:
        here = Holding(COMPLETE, MINE, FORK + 1, [(OLD, 0), (MINE, FORK)])
        branch = Holding(COMPLETE, THEIRS, FORK + 1, [(OLD, 0), (THEIRS, FORK)])
        merge = Merge(0, Side(rows, [here], FORK), Side(sides[1], [branch], FORK), branch)
        for _ in merge.steps():
            pass
        found = dict(rows)
        for unit in merge.units[:units_max]:
            for kind, key, body in unit.ops:
                if kind == DELETE:
                    del found[key]
                else:
                    found[key] = version + body
        return found

    begun = merged(sides[0], 1_000) if interrupted else sides[0]
    found = merged(begun, 1 << 20)
    every = sorted(range(3 * half), key=lambda number: (10_000 + 7 * number % 3_001, keys[number]))
    newest = [stamp_key(keys[number]) for number in every[half:]]
    assert sorted(found) == sorted([started, *newest])
    both = stamp_key(keys[every[-1]])
    assert body_of_stamp(found[both])[0] == 10_000 + 7 * every[-1] % 3_001


def body_of_stamp(value: bytes) -> tuple[int, int]:
    return get_u64(value, 16), get_u64(value, 24)

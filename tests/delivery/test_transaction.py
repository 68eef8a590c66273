"""Transactions at a node alone: staged, committed, published once, over crashes between any two writes."""

from __future__ import annotations

import msgspec
import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.partition.app import CHUNK_BYTES
from folkmoot.query.question import CONFLICT, FOUND, NO_ROOM, STAGE, TOO_LARGE, UNKNOWN, Answer
from folkmoot.report.order import encode_chunk
from folkmoot.store.batch import Batch
from folkmoot.store.key import COMMITTED, PACKETS, STAGED, end_of, kind_prefix
from folkmoot.store.transaction import PUBLISHER_PREFIX, committed_key, encode_parts
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.desk import Desk, packet
from tests.harness.peer import EVER, Peer, properties

PARTITIONS = 8


def box_with(**arguments: object) -> Box:
    return Box(partitions=PARTITIONS, **arguments)  # type: ignore[arg-type]


def reader_of(box: Box, topic_filter: str = "t/#", qos: int = 2) -> Peer:
    reader = box.client("reader")
    reader.connect(clean_start=False, session_expiry=EVER)
    reader.subscribe(topic_filter, qos=qos)
    return reader


def payloads(reader: Peer) -> list[bytes]:
    return [publish.payload for publish in reader.publishes()]


def row(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def status(answer: Answer | None) -> int:
    assert answer is not None
    return answer.status


def figures(desk: Desk) -> list[int]:
    answer = desk.list()
    assert answer is not None
    name, numbers = msgspec.msgpack.decode(answer.chunks[0], type=tuple[bytes, list[int]])
    assert name == desk.app
    return numbers


def test_what_is_committed_is_published_in_the_order_of_its_parts() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    assert status(desk.stage(0, "b", 0, "t/x", row(3, 10))) == FOUND
    desk.stage(0, "a", 1, "t/x", row(2, 3))
    desk.stage(0, "a", 0, "t/x", row(3))
    desk.stage(0, "loser", 0, "t/x", [b"never"])
    assert payloads(reader) == []
    assert status(desk.commit(0, ("a", 2), ("b", 1))) == FOUND
    assert payloads(reader) == [*row(5), *row(3, 10)]
    assert figures(desk)[:4] == [0, box.now, 8, 0]
    assert figures(desk)[6:8] == [0, 0]  # what did not win is gone


def test_a_commit_that_is_repeated_publishes_nothing() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(4, "a", 0, "t/x", row(2))
    first, second = desk.commit(4, ("a", 1)), desk.commit(4, ("a", 1))
    assert first is not None
    assert second is not None
    assert (first.numbers, second.numbers) == ([0], [1])
    older = desk.commit(3, ("a", 1))
    assert older is not None
    assert older.numbers == [1]
    late = desk.stage(4, "a", 0, "t/x", row(2))
    assert late is not None
    assert late.numbers == [1]
    assert payloads(reader) == row(2)
    assert box.node.counters.transactions_repeated == 2


def test_a_chunk_that_is_not_there_is_named_and_nothing_happens() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(0, "a", 0, "t/x", row(1))
    refused = desk.commit(0, ("a", 2), ("z", 1))
    assert refused is not None
    assert refused.status == CONFLICT
    assert "a/1, z/0" in refused.text
    desk.stage(0, "a", 1, "t/x", row(1, 1))
    assert status(desk.commit(0, ("a", 2))) == FOUND
    assert payloads(reader) == row(2)


def test_an_empty_transaction_counts() -> None:
    box = box_with()
    desk = Desk(box, "alerts", PARTITIONS)
    assert status(desk.commit(7)) == FOUND
    assert figures(desk)[0] == 7
    box.restart()
    again = Desk(box, "alerts", PARTITIONS).commit(7)
    assert again is not None
    assert again.numbers == [1]


def test_abort_drops_only_what_is_not_committed() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(0, "a", 0, "t/x", row(2))
    desk.abort(0, "a")
    assert status(desk.commit(0, ("a", 1))) == CONFLICT
    desk.stage(0, "a", 0, "t/x", row(2))
    box.hold_writes()
    desk.commit(0, ("a", 1))
    desk.abort(0, "a")
    box.release_writes()
    assert payloads(reader) == row(2)


@pytest.mark.parametrize("durable", range(12))
def test_each_message_comes_once_over_a_crash_between_any_two_writes(durable: int) -> None:
    box = box_with(streams=[StreamConfig("s", b"t/#", 2)])
    reader = reader_of(box)
    reader.disconnect()
    desk = Desk(box, "alerts", PARTITIONS)
    for number in range(2):
        for chunk in range(3):
            desk.stage(number, "a", chunk, f"t/{chunk}", row(4, 12 * number + 4 * chunk))
    box.hold_writes()
    for number in range(2):
        desk.commit(number, ("a", 3))
    box.crash(durable)
    for number in range(2):
        desk.commit(number, ("a", 3))  # nobody was told: the writer asks again
    reader.connect(clean_start=False, session_expiry=EVER)
    assert payloads(reader) == row(24)
    assert sum(log.readable_end for log in box.node.streams.streams[0].logs) == 24
    assert figures(desk)[2] == 24


def test_its_publisher_has_a_name_that_no_client_can_have() -> None:
    box = box_with(streams=[StreamConfig("s", b"t/#", 1)])
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(0, "a", 0, "t/x", row(1))
    desk.commit(0, ("a", 1))
    page = box.node.streams.streams[0].logs[0].read(0, 1, 1 << 20)
    assert (PUBLISHER_PREFIX + "alerts").encode() in page.chunks[0]  # type: ignore[union-attr]
    impostor = box.client(PUBLISHER_PREFIX + "alerts")
    impostor.connect(code=reason.CLIENT_IDENTIFIER_NOT_VALID)


def test_qos_retain_and_properties_are_those_of_the_packet() -> None:
    box = box_with()
    desk = Desk(box, "alerts", PARTITIONS)
    described = properties(content_type="text/plain", user_properties=[("a", "b")], message_expiry=60)
    staged = packet("t/0", b"zero", 0) + packet("t/2", b"two", 2, True, described)
    desk.order(STAGE, [0, 0, 2], encode_chunk(b"p", staged))
    reader = reader_of(box)
    desk.commit(0, ("p", 1))
    zero, two = reader.publishes()
    assert (zero.qos, zero.payload, two.qos, two.payload) == (0, b"zero", 2, b"two")
    assert two.properties is not None
    assert two.properties.content_type == "text/plain"
    assert two.properties.user_properties == [("a", "b")]
    later = box.client("later")
    later.connect()
    later.subscribe("t/#", qos=1)
    kept = later.publishes()
    assert [(publish.payload, publish.retain) for publish in kept] == [(b"two", True)]


def test_what_is_never_committed_expires() -> None:
    box = box_with(limits={"transaction_expiry_us": 60 * SECOND})
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(0, "a", 0, "t/x", row(2))
    box.advance(40 * SECOND)
    desk.stage(0, "b", 0, "t/x", row(2))  # whoever stages is alive: all of the transaction stays
    box.advance(40 * SECOND)
    assert status(desk.commit(0, ("a", 1), ("b", 1))) == FOUND
    desk.stage(1, "a", 0, "t/x", row(2))
    box.advance(80 * SECOND)
    assert status(desk.commit(1, ("a", 1))) == CONFLICT
    assert "transaction_expired" in box.kinds()
    assert figures(desk)[6:8] == [0, 0]
    assert box.node.counters.transaction_bytes == 0


def test_an_app_may_stage_only_so_much() -> None:
    box = box_with(limits={"transaction_bytes_max": 1000 + CHUNK_BYTES})
    desk = Desk(box, "alerts", PARTITIONS)
    assert status(desk.stage(0, "a", 0, "t/x", [bytes(600)])) == FOUND
    assert status(desk.stage(0, "a", 0, "t/x", [bytes(700)])) == FOUND  # instead of the first
    assert status(desk.stage(0, "a", 1, "t/x", [bytes(600)])) == TOO_LARGE
    assert status(desk.stage(1, "a", 0, "t/x", [bytes(600)])) == NO_ROOM
    desk.abort(0, "a")
    assert status(desk.stage(1, "a", 0, "t/x", [bytes(600)])) == FOUND


def test_a_chunk_counts_for_its_place_in_memory_however_little_is_in_it() -> None:
    """Or a writer of tiny chunks takes many times the limit. They count alike when they were read from the rows."""
    box = box_with(limits={"transaction_bytes_max": 10 * (CHUNK_BYTES + 100)})
    desk = Desk(box, "alerts", PARTITIONS)
    answers = [status(desk.stage(0, "a", number, "t/x", [b""])) for number in range(20)]
    room = answers.count(FOUND)
    assert 10 <= room <= 11
    assert answers == [FOUND] * room + [TOO_LARGE] * (20 - room)
    counted = box.node.counters.transaction_bytes
    assert counted > room * CHUNK_BYTES
    box.restart()
    assert box.node.counters.transaction_bytes == counted
    desk = Desk(box, "alerts", PARTITIONS)
    assert status(desk.commit(0, ("a", room))) == FOUND
    assert figures(desk)[2] == room
    assert box.node.counters.transaction_bytes == 0


def test_nothing_is_published_while_the_disk_is_full() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(0, "a", 0, "t/x", row(2))
    box.hold_writes()
    desk.commit(0, ("a", 1))
    box.storage(True)
    assert status(desk.stage(1, "a", 0, "t/x", row(2))) == NO_ROOM
    box.storage(False)
    box.release_writes()
    assert payloads(reader) == row(2)


def test_an_app_is_forgotten_when_nothing_of_it_waits() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    assert status(desk.forget()) == UNKNOWN
    desk.stage(0, "a", 0, "t/x", row(2))
    desk.commit(0, ("a", 1))
    desk.stage(1, "a", 0, "t/x", row(2))
    assert status(desk.forget()) == FOUND
    assert status(desk.list()) == UNKNOWN
    box.restart()
    reader.connect(clean_start=False, session_expiry=EVER)
    desk.stage(0, "a", 0, "t/x", row(2))
    assert status(desk.commit(0, ("a", 1))) == FOUND
    assert payloads(reader) == row(2)  # its numbers begin anew


def damage(box: Box, kind: int, body: bytes | None) -> None:
    """Change what the first row of a kind has behind its version, or remove it."""
    for partition in range(PARTITIONS):
        prefix = kind_prefix(partition, kind)
        for key, value in box.store.scan(prefix, end_of(prefix), 1):
            batch = Batch(0)
            if body is None:
                batch.delete(key)
            else:
                batch.put(key, value[:VERSION_BYTES] + body)
            box.alter(batch)
            return
    raise AssertionError("there is no such row")


def test_a_chunk_that_cannot_be_read_stops_its_app_and_no_other() -> None:
    box = box_with()
    reader = reader_of(box)
    broken, sound = Desk(box, "broken", PARTITIONS), Desk(box, "sound", PARTITIONS)
    broken.stage(0, "a", 0, "t/x", row(2))
    damage(box, PACKETS, b"\xff\xff")
    broken.commit(0, ("a", 1))
    assert "unreadable" in box.kinds()
    sound.stage(0, "a", 0, "t/x", row(2))
    assert status(sound.commit(0, ("a", 1))) == FOUND
    assert payloads(reader) == row(2)
    assert figures(broken)[3] == 1  # it still waits, for somebody to look
    assert box.kinds().count("unreadable") == 1


def test_a_chunk_that_is_gone_is_told_and_the_rest_is_published() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(0, "a", 0, "t/x", row(2))
    desk.stage(0, "a", 1, "t/x", row(2, 2))
    box.hold_writes()
    desk.commit(0, ("a", 2))
    box.crash(1)  # the commit is durable, and nothing that it published
    reader.resume()
    assert payloads(reader) == row(4)
    desk.stage(1, "a", 0, "t/x", row(2))
    desk.stage(1, "a", 1, "t/x", row(2, 2))
    box.hold_writes()
    desk.commit(1, ("a", 2))
    for batch in box._unwritten[:1]:
        box.store.apply(batch)
    damage(box, STAGED, None)
    box.crash()
    reader.resume()
    assert payloads(reader) == row(2, 2)
    assert "transaction_incomplete" in box.kinds()


def commits(box: Box, desk: Desk) -> int:
    """Return how many transactions are stored as not completely published."""
    prefix = kind_prefix(desk.home, COMMITTED)
    return len(box.store.scan(prefix, end_of(prefix), 9))


def test_a_transaction_that_ends_with_a_chunk_that_is_gone_is_over() -> None:
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(1, "a", 0, "t/x", row(2))
    box.hold_writes()
    desk.commit(1, ("a", 1))
    for batch in box._unwritten[:1]:
        box.store.apply(batch)
    damage(box, STAGED, None)
    box.crash()
    assert "transaction_incomplete" in box.kinds()
    assert commits(box, desk) == 0
    desk.stage(2, "a", 0, "t/x", row(2))
    desk.stage(2, "b", 0, "t/x", row(2, 2))
    box.hold_writes()
    desk.commit(2, ("a", 1), ("b", 1))
    box.crash(2)  # its first part is published, and its second one not
    reader.resume()
    assert payloads(reader) == row(4)
    assert commits(box, desk) == 0


@pytest.mark.parametrize("waits", [False, True])
def test_a_transaction_that_an_earlier_version_left_behind_is_dropped(waits: bool) -> None:
    """waits: a later one is not completely published; the row of the app says which part of it comes next."""
    box = box_with()
    reader = reader_of(box)
    desk = Desk(box, "alerts", PARTITIONS)
    desk.stage(2, "a", 0, "t/x", row(2))
    desk.stage(2, "b", 0, "t/x", row(2, 2))
    if waits:
        box.hold_writes()
    desk.commit(2, ("a", 1), ("b", 1))
    left = Batch(1)
    left.put(committed_key(desk.home, desk.app, 1), bytes(VERSION_BYTES) + encode_parts(5, [(b"a", 1)]))
    box.store.apply(left)
    box.crash(2)
    reader.resume()
    assert payloads(reader)[-2:] == row(2, 2)
    assert commits(box, desk) == 0
    assert figures(desk)[2:4] == [4, 0]
    assert box.node.counters.transactions_waiting == 0

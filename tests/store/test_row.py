"""Values of rows: what was written is read; what was damaged is named CorruptStore and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.row import (
    CursorRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    WillRow,
    decode_cursor,
    decode_queue,
    decode_session,
    decode_subscription,
    decode_will,
    encode_cursor,
    encode_queue,
    encode_session,
    encode_subscription,
    encode_will,
)
from tests.store.strategy import cursors, damages, messages, queue_rows, sessions, subscriptions, wills

Damage = list[tuple[str, int, bytes]]

MESSAGE_FIELDS = ["topic", "payload", "qos", "retain", "properties", "publisher", "created_us", "expires_us"]
CODECS: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "session": (sessions, encode_session, decode_session),
    "subscription": (subscriptions, encode_subscription, decode_subscription),
    "queue": (queue_rows, encode_queue, decode_queue),
    "will": (wills, encode_will, decode_will),
    "cursor": (cursors, encode_cursor, decode_cursor),
    "message": (messages, encode_message, lambda data: decode_message(data, 0)),
}


def told(message: Message | None) -> list[object] | None:
    return None if message is None else [getattr(message, name) for name in MESSAGE_FIELDS]


def damaged(data: bytes, damage: Damage) -> bytes:
    for what, number, extra in damage:
        at = number % (len(data) + 1)
        if what == "cut":
            data = data[:at]
        elif what == "drop":
            data = data[:at] + data[at + 1 :]
        else:
            data = data[:at] + extra + data[at + (what == "set") :]
    return data


@given(messages, st.binary(max_size=20))
def test_messages_are_read_as_they_were_written(message: Message, before: bytes) -> None:
    copy = decode_message(before + encode_message(message), len(before))
    assert told(copy) == told(message)
    assert copy.size == len(message.topic) + len(message.payload) + len(message.properties)


@given(sessions)
def test_session_rows_are_read_as_they_were_written(row: SessionRow) -> None:
    copy = decode_session(encode_session(row))
    for name in ("version", "expiry_s", "ends_us", "queue_floor", "username", "token", "begun"):
        assert getattr(copy, name) == getattr(row, name)


def test_a_session_row_of_format_1_names_no_connection() -> None:
    for name, proved in (("user", True), ("user", False), ("", True)):
        row = decode_session(encode_session(SessionRow(5, 60, 7, 9, name, 11, proved=proved)))
        assert (row.username, row.proved) == (name, proved)
    data = encode_session(SessionRow(5, 60, 7, 9, "user", 11))
    row = decode_session(b"\x01" + data[1:22] + data[30:])
    assert (row.version, row.expiry_s, row.ends_us, row.queue_floor, row.username, row.token) == (
        5,
        60,
        7,
        9,
        "user",
        0,
    )


@given(subscriptions)
def test_subscription_rows_are_read_as_they_were_written(row: SubscriptionRow) -> None:
    copy = decode_subscription(encode_subscription(row))
    assert (copy.options, copy.identifier) == (row.options, row.identifier)


@given(queue_rows)
def test_queue_rows_are_read_as_they_were_written(row: QueueRow) -> None:
    copy = decode_queue(encode_queue(row))
    expected = (row.qos, row.retain, row.sent, row.identifiers, row.group, row.body, row.size)
    assert (copy.qos, copy.retain, copy.sent, copy.identifiers, copy.group, copy.body, copy.size) == expected
    assert told(copy.message) == told(row.message)


def test_a_queue_row_has_the_identifiers_of_ten_thousand_subscriptions() -> None:
    identifiers = b"\x0b\xff\xff\xff\x7f" * 10_000
    message = Message(b"t", b"m", 1, False, b"", "p", 1, 0)
    row = QueueRow(1, False, False, identifiers, b"", 0, message.size, message)
    assert decode_queue(encode_queue(row)).identifiers == identifiers


@given(wills)
def test_will_rows_are_read_as_they_were_written(row: WillRow) -> None:
    copy = decode_will(encode_will(row))
    assert (copy.delay_s, copy.due_us) == (row.delay_s, row.due_us)
    assert told(copy.message) == told(row.message)


@given(cursors)
def test_cursor_rows_are_read_as_they_were_written(row: CursorRow) -> None:
    copy = decode_cursor(encode_cursor(row))
    assert (copy.kind, copy.positions, copy.key) == (row.kind, row.positions, row.key)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_a_damaged_row_is_corrupt_or_another_row(codec: str, data: st.DataObject) -> None:
    """A changed byte may make another valid row (the store's own checksums are for that), but never another error."""
    strategy, encode, decode = CODECS[codec]
    bad = damaged(encode(data.draw(strategy)), data.draw(damages))
    try:
        row = decode(bad)
    except CorruptStore:
        return
    assert encode(row) == bad or codec in ("queue", "cursor")  # varints may be longer than they need be
    assert getattr(row, "qos", 0) < 3


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=80))
def test_random_bytes_are_corrupt_or_a_row(codec: str, data: bytes) -> None:
    _, encode, decode = CODECS[codec]
    try:
        row = decode(data)
    except CorruptStore:
        return
    encode(row)  # what could be read can be written again


@pytest.mark.parametrize("codec", ["session", "subscription", "will", "cursor"])
@given(data=st.data())
def test_a_row_that_ends_too_early_is_corrupt(codec: str, data: st.DataObject) -> None:
    """Only the last field may be shorter: user name, payload, key."""
    strategy, encode, decode = CODECS[codec]
    row = data.draw(strategy)
    whole = encode(row)
    last = 0
    if codec == "session":
        last = len(row.username.encode())
    elif codec == "will":
        last = len(row.message.payload)
    elif codec == "cursor":
        last = len(row.key)
    for cut in range(len(whole) - last):
        with pytest.raises(CorruptStore):
            decode(whole[:cut])


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "message"])
@given(data=st.data(), version=st.integers(0, 255).filter(lambda version: version not in (1, 2)))
def test_a_format_of_the_future_is_named(codec: str, data: st.DataObject, version: int) -> None:
    strategy, encode, decode = CODECS[codec]
    whole = encode(data.draw(strategy))
    with pytest.raises(CorruptStore, match=f"format {version} "):
        decode(bytes([version]) + whole[1:])


def test_a_queue_row_without_message_and_body_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="body"):
        encode_queue(QueueRow(1, False, False, b"", b"", 0, 1, None))


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5), st.binary(max_size=9))
def test_a_scan_remembers_what_was_delivered_live(live: list[bytes], key: bytes) -> None:
    row = CursorRow(0, [3, 200], key)
    row.live = live
    data = encode_cursor(row)
    again = decode_cursor(data)
    assert (again.kind, again.positions, again.key, again.live) == (0, [3, 200], key, live)
    with pytest.raises(CorruptStore):
        decode_cursor(data[: len(data) - len(key) - 1])

"""Messages survive their encoding; whatever else arrives is refused with a typed error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.raft.codec import INTEGER_MAX
from folkmoot.raft.configuration import PROMOTE, Change, Configuration, encode_change
from folkmoot.raft.entry import (
    CHANGE,
    DATA,
    NOOP,
    Entry,
    HardState,
    Snapshot,
    decode_entry,
    decode_hard_state,
    decode_snapshot,
    encode_entry,
    encode_hard_state,
    encode_snapshot,
)
from folkmoot.raft.error import Malformed
from folkmoot.raft.message import (
    APPEND,
    FIELDS,
    KINDS,
    VERDICTS,
    Message,
    decode_message,
    encode_message,
)

INTEGERS = st.one_of(st.integers(0, 300), st.integers(0, INTEGER_MAX))
CONFIGURATION = Configuration([1, 2, 5], [3, 9])


def entry(index: int, term: int, what: int) -> Entry:
    """One of the kinds of entries."""
    if what == 0:
        return Entry(index, term, NOOP, b"")
    if what == 1:
        return Entry(index, term, CHANGE, encode_change(Change(PROMOTE, 5, CONFIGURATION, b"context")))
    return Entry(index, term, DATA, b"x" * what)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Messages of all kinds with all their fields."""
    message = Message(draw(st.sampled_from(sorted(KINDS))), draw(st.integers(1, 400)), 401, 0)
    message.term = draw(st.integers(1, INTEGER_MAX))
    fields = FIELDS[message.kind]
    if fields & 1:
        message.verdict = draw(st.sampled_from(sorted(VERDICTS)))
    if fields & 2:
        message.index = draw(st.integers(0, INTEGER_MAX - 10))
        message.log_term = draw(st.integers(0, message.term))
    if fields & 4:
        message.commit = draw(INTEGERS)
    if fields & 8:
        message.round = draw(INTEGERS)
    if fields & 16:
        term = max(1, message.log_term)
        for at in range(draw(st.integers(0, 4))):
            message.entries.append(entry(message.index + 1 + at, term, draw(st.integers(0, 40))))
            term = draw(st.integers(term, message.term))
    if fields & 32:
        message.size = draw(INTEGERS)
    if fields & 128:
        message.promise = draw(INTEGERS)
    if fields & 64:
        message.data = draw(st.binary(max_size=50))
    return message


@given(messages())
def test_a_message_comes_out_as_it_went_in(message: Message) -> None:
    encoded = encode_message(message)
    found = decode_message(encoded)
    assert encode_message(found) == encoded
    assert repr(found) == repr(message)
    assert [one.same(other) for one, other in zip(found.entries, message.entries, strict=True)] == [True] * len(
        message.entries
    )


@given(messages(), st.data())
def test_a_part_of_a_message_is_refused(message: Message, data: st.DataObject) -> None:
    encoded = encode_message(message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(Malformed):
        decode_message(encoded[:cut])
    with pytest.raises(Malformed, match="goes on"):
        decode_message(encoded + b"\0")


@given(messages(), st.data())
def test_a_changed_message_is_refused_or_another_message(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode_message(message))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_message(bytes(encoded))
    except Malformed:
        return
    assert encode_message(found) == bytes(encoded), "nothing has two encodings"


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_a_message(data: bytes) -> None:
    try:
        found = decode_message(data)
    except Malformed:
        return
    assert encode_message(found) == data


def append(index: int, log_term: int, term: int, entries: list[Entry]) -> bytes:
    """An append as bytes, whatever is wrong with it."""
    message = Message(APPEND, 1, 2, term)
    message.index = index
    message.log_term = log_term
    message.entries = entries
    return encode_message(message)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "too early"),
        (b"\x01\x05\x01\x02\x01", "format 1"),
        (b"\x02\x63\x01\x02\x01", "no kind"),
        (b"\x02\x0e\x01\x01\x01", "from 1 to 1"),
        (b"\x02\x0e\x00\x01\x01", "from 0 to 1"),
        (b"\x02\x0e\x01\x02\x00", "term is missing"),
        (b"\x02\x0e\x01\x02\x81\x00", "longer than it needs"),
        (b"\x02\x0e\x01\x02" + b"\xff" * 9, "too long"),
        (append(3, 5, 4, []), "newer than the term of its sender"),
        (append(3, 3, 4, [Entry(4, 2, DATA, b"")]), "behind an entry of term 3"),
        (append(3, 3, 4, [Entry(4, 5, DATA, b"")]), "behind an entry of term 3"),
        (append(0, 0, 1, [Entry(1, 1, 7, b"")]), "no kind of entry"),
        (append(0, 0, 1, [Entry(1, 1, NOOP, b"x")]), "has data"),
        (append(0, 0, 1, [Entry(1, 1, CHANGE, b"\x02\x09")]), "too early"),
    ],
)
def test_what_no_member_sends(data: bytes, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        decode_message(data)


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40), st.integers(0, 40), st.data())
def test_sealed_things(index: int, term: int, what: int, data: st.DataObject) -> None:
    thing = entry(index, term, what)
    assert decode_entry(encode_entry(thing)).same(thing)
    state = HardState(term, index, index, index)
    assert repr(decode_hard_state(encode_hard_state(state))) == repr(state)
    snapshot = Snapshot(index, term, CONFIGURATION, b"state")
    assert decode_snapshot(encode_snapshot(snapshot)).data == b"state"
    for encoded, decode in (
        (encode_entry(thing), decode_entry),
        (encode_hard_state(state), decode_hard_state),
        (encode_snapshot(snapshot), decode_snapshot),
    ):
        changed = bytearray(encoded)
        changed[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
        with pytest.raises(Malformed):
            decode(bytes(changed))
        with pytest.raises(Malformed):
            decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])

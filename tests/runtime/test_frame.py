from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from folkmoot.runtime.frame import BINARY, CLOSE, PONG, Deframer, close_frame, frame

MAX = 1000
MANY = 1 << 30


def masked(opcode: int, data: bytes = b"", fin: bool = True) -> bytes:
    """A frame of a client, made by another implementation."""
    return Frame(Opcode(opcode), data, fin).serialize(mask=True)


def fed(data: bytes, step: int = 0) -> Deframer:
    deframer = Deframer(MAX)
    for at in range(0, len(data), step or len(data) or 1):
        assert deframer.feed(data[at : at + (step or len(data))], MANY) == b""
        assert deframer.held_bytes() < 14 + 125
    return deframer


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=300)), max_size=6), st.integers(1, 40))
def test_payload_is_the_same_whole_and_in_pieces(parts: list[tuple[int, bytes]], step: int) -> None:
    data = b""
    expected = b""
    newest = None
    within = False
    for shape, payload in parts:
        if shape == 3:
            newest = payload[:125]
            data += masked(9, newest)
            continue
        if within and len(payload) > 0:
            fin = shape == 1
            data += masked(0, payload[:100], fin)
            expected += payload[:100]
            within = not fin
        elif not within:
            fin = shape == 1
            data += masked(2, payload[:100], fin)
            expected += payload[:100]
            within = not fin
    for one in (fed(data), fed(data, step), fed(data, 1)):
        assert b"".join(one.payload) == expected
        assert one.ping == newest
        assert (one.fault, one.closed) == (None, None)


def test_payload_is_passed_on_before_its_frame_is_complete() -> None:
    deframer = Deframer(1 << 20)
    whole = masked(2, bytes(range(256)) * 3000)
    deframer.feed(whole[:1000], MANY)
    assert b"".join(deframer.payload) == (bytes(range(256)) * 4)[: 1000 - 14]
    assert deframer.held_bytes() == 0


def test_a_frame_that_announces_too_much_is_refused_by_its_header() -> None:
    deframer = Deframer(MAX)
    deframer.feed(b"\x82\xff" + (1 << 40).to_bytes(8, "big"), MANY)
    assert deframer.fault is not None
    assert deframer.fault[0] == 1009


def test_a_message_of_many_fragments_is_counted_as_a_whole() -> None:
    deframer = fed(masked(2, bytes(600), fin=False) + masked(0, bytes(401)))
    assert deframer.fault is not None
    assert deframer.fault[0] == 1009
    assert len(b"".join(deframer.payload)) == 600
    assert fed((masked(2, bytes(600), fin=False) + masked(0, bytes(400))) * 3).fault is None


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x02hi", 1002),  # not masked
        (b"\xc2\x80\0\0\0\0", 1002),  # a reserved bit
        (b"\x83\x80\0\0\0\0", 1002),  # an unknown kind
        (b"\x8b\x80\0\0\0\0", 1002),
        (b"\x80\x80\0\0\0\0", 1002),  # a continuation of nothing
        (b"\x02\x80\0\0\0\0\x82\x80\0\0\0\0", 1002),  # a message within a message
        (b"\x09\x80\0\0\0\0", 1002),  # a control frame in fragments
        (b"\x89\xfe\0\x7e\0\0\0\0", 1002),  # and one of 126 bytes
        (b"\x81\x80\0\0\0\0", 1003),  # text
        (b"\x88\x81\0\0\0\0\x03", 1002),  # half a code
        (b"\x88\x82\0\0\0\0\x03\xec", 1002),  # 1004 is reserved
        (b"\x88\x82\0\0\0\0\x03\xed", 1002),  # 1005 stands for none
        (b"\x88\x82\0\0\0\0\x03\xe7", 1002),  # 999
        (b"\x88\x82\0\0\0\0\x13\x88", 1002),  # 5000
        (b"\x88\x83\0\0\0\0\x03\xe8\xff", 1007),
    ],
)
def test_violations_have_their_code(data: bytes, code: int) -> None:
    for step in (0, 1, 3):
        deframer = fed(masked(2, b"before") + data + masked(2, b"after"), step)
        assert deframer.fault is not None
        assert deframer.fault[0] == code
        assert b"".join(deframer.payload) == b"before"


@pytest.mark.parametrize("body", [b"", b"\x03\xe8", b"\x03\xe8bye", b"\x0f\xa0mine"])
def test_what_follows_close_is_ignored(body: bytes) -> None:
    deframer = fed(masked(8, body) + masked(2, b"after"), 5)
    assert deframer.closed == body
    assert deframer.payload == []


def test_only_so_many_frames_are_taken_at_a_time() -> None:
    deframer = Deframer(MAX)
    data = masked(2, b"x") * 10 + masked(9, b"ping") * 10
    rest = deframer.feed(data, 12)
    assert len(b"".join(deframer.payload)) == 10
    assert len(rest) == 8 * len(masked(9, b"ping"))
    assert deframer.feed(rest, 8) == b""


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_are_those_of_another_implementation(size: int) -> None:
    assert frame(BINARY, bytes(size)) == Frame(Opcode.BINARY, bytes(size)).serialize(mask=False)
    assert frame(PONG, b"x") == Frame(Opcode.PONG, b"x").serialize(mask=False)
    assert close_frame(1008, "why") == Frame(Opcode.CLOSE, b"\x03\xf0why").serialize(mask=False)
    assert frame(CLOSE, b"") == b"\x88\0"


@given(st.binary(max_size=200), st.integers(1, 7))
def test_no_bytes_raise_and_pieces_make_no_difference(data: bytes, step: int) -> None:
    one, other = fed(data), fed(data, step)
    assert b"".join(one.payload) == b"".join(other.payload)
    assert (one.fault, one.closed, one.ping) == (other.fault, other.closed, other.ping)

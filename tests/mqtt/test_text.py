from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.text import check_utf8, decode_text, has_discouraged, has_wildcard, well_formed

BAD = [
    b"\x80",
    b"\xc3",
    b"\xc3\x28",
    b"\xc0\x80",  # overlong U+0000
    b"\xc1\xbf",
    b"\xe0\x80\xaf",
    b"\xed\xa0\x80",  # U+D800
    b"\xed\xbf\xbf",  # U+DFFF
    b"\xf0\x80\x80\xaf",
    b"\xf4\x90\x80\x80",  # U+110000
    b"\xf8\x88\x80\x80\x80",
    b"\xff",
    b"\xfe",
]
GOOD = [b"", b"a/b", b"\x7f", b"\x01", "ä€😀".encode(), b"\xef\xbb\xbf", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf"]


@pytest.mark.parametrize("data", BAD)
def test_ill_formed(data: bytes) -> None:
    assert not check_utf8(b"a" + data)
    assert not well_formed(data)
    with pytest.raises(MalformedPacket) as caught:
        decode_text(data)
    assert caught.value.code == 0x81


@pytest.mark.parametrize("data", GOOD)
def test_well_formed(data: bytes) -> None:
    assert check_utf8(data)
    assert well_formed(data)
    assert decode_text(data).encode() == data


def test_the_null_character_only_in_payloads() -> None:
    assert well_formed(b"a\x00")
    for data in (b"\x00", b"a\x00b", "ä\0".encode()):
        assert not check_utf8(data)
        with pytest.raises(MalformedPacket):
            decode_text(data)


@given(st.binary(max_size=8))
def test_all_checks_agree(data: bytes) -> None:
    try:
        text = decode_text(data)
    except MalformedPacket:
        assert not check_utf8(data)
    else:
        assert check_utf8(data)
        assert text.encode() == data


@pytest.mark.parametrize(
    ("topic", "found"), [(b"a/b", False), (b"", False), (b"+", True), (b"a/#", True), ("ä+".encode(), True)]
)
def test_wildcards(topic: bytes, found: bool) -> None:
    assert has_wildcard(topic) is found


@pytest.mark.parametrize("text", ["\x01", "\x1f", "\x7f", "\x9f", "\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0010ffff"])
def test_discouraged_characters(text: str) -> None:
    assert has_discouraged("a" + text)


@pytest.mark.parametrize("text", ["", "a b", "\xa0", "\ufdcf", "\ufdf0", "\ufffd", "\ufeff", "\U0010fffd"])
def test_welcome_characters(text: str) -> None:
    assert not has_discouraged(text)

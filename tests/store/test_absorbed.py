"""Where records came from: rows ABSORBED, and the beginning of rows LEFTOVER."""

from __future__ import annotations

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import u64
from folkmoot.store.absorbed import Origin, Span, absorbed_key, decode_origin, decode_span, encode_span, origin_at

ORIGIN = Origin(u64(5) + u64(10), u64(7) + u64(30), 12, u64(8) + u64(40))


@pytest.mark.parametrize("given", [b"", ORIGIN.given])
def test_a_row_tells_what_was_written(given: bytes) -> None:
    origin = ORIGIN.given_by(given)
    span = decode_span(absorbed_key(0, b"log", 3), bytes(16) + encode_span(Span(3, 9, origin)))
    assert (span.first, span.end) == (3, 9)
    assert span.origin.is_behind(origin, 0)


@pytest.mark.parametrize("extra", [-17, -1, 1])
def test_a_row_of_another_length_is_refused(extra: int) -> None:
    value = bytes(16) + encode_span(Span(3, 9, ORIGIN))
    with pytest.raises(CorruptStore):
        decode_span(absorbed_key(0, b"log", 3), (value + b"?")[: len(value) + extra])


def test_an_origin_that_is_cut_short_is_refused() -> None:
    with pytest.raises(CorruptStore):
        decode_origin(bytes(55), 0)


def test_records_follow_each_other_if_they_did_where_they_came_from() -> None:
    assert ORIGIN.behind(3).is_behind(ORIGIN, 3)
    assert not ORIGIN.behind(3).is_behind(ORIGIN, 2)
    assert not ORIGIN.behind(3).given_by(b"").is_behind(ORIGIN, 3)
    for other in (
        Origin(bytes(16), ORIGIN.branch, 15, ORIGIN.given),
        Origin(ORIGIN.version, bytes(16), 15, ORIGIN.given),
    ):
        assert not other.is_behind(ORIGIN, 3)


def test_the_origin_of_each_record_in_a_span_is_known() -> None:
    spans = [Span(3, 9, ORIGIN), Span(11, 12, ORIGIN.behind(20))]
    found = [origin_at(spans, offset) for offset in (2, 3, 8, 9, 11, 12)]
    assert [None if origin is None else origin.first for origin in found] == [None, 12, 17, None, 32, None]

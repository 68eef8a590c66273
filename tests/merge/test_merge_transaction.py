"""Transactions in a merge: what the sides have committed, published and staged, case by case."""

from __future__ import annotations

from folkmoot.merge.merge_transaction import merge_rows
from folkmoot.store.key import PACKETS, STAGED, TRANSACTION, plain_key
from folkmoot.store.transaction import (
    StagedRow,
    TransactionRow,
    committed_key,
    decode_transaction,
    encode_parts,
    encode_staged,
    encode_transaction,
    staged_key,
)
from tests.merge.test_merge import MINE, THEIRS, Fork

APP = b"alerts"
BASE = 1_700_000_000_000_000
HEAD = plain_key(0, TRANSACTION, APP)


def row(last: int, published: int, at: int = -1, part: int = 0, chunk: int = 0) -> TransactionRow:
    made = TransactionRow()
    made.last, made.published, made.at, made.part, made.chunk = last, published, at, part, chunk
    made.base = BASE
    return made


def head(last: int, published: int, at: int = -1, part: int = 0, chunk: int = 0) -> bytes:
    return encode_transaction(row(last, published, at, part, chunk))


def chunk_rows(number: int, part: bytes, chunk: int) -> dict[bytes, bytes]:
    return {
        staged_key(0, STAGED, APP, number, part, chunk): encode_staged(StagedRow(5, 1, 3)),
        staged_key(0, PACKETS, APP, number, part, chunk): b"xyz",
    }


def begun() -> Fork:
    """Transaction 4 of two parts with two chunks each waits, nothing of it is published."""
    fork = Fork()
    fork.old(HEAD, head(4, 10, 4))
    fork.old(committed_key(0, APP, 4), encode_parts(7, [(b"p", 2), (b"q", 2)]))
    for part in (b"p", b"q"):
        for chunk in range(2):
            for key, body in chunk_rows(4, part, chunk).items():
                fork.old(key, body)
    return fork


def publish(fork: Fork, side: int, part: bytes, chunk: int, after: bytes) -> None:
    for key in chunk_rows(4, part, chunk):
        fork.drop(side, key)
    fork.put(side, HEAD, after)


def chunks_of(rows: dict[bytes, bytes], number: int) -> list[tuple[bytes, int]]:
    return [
        (part, chunk)
        for part in (b"p", b"q", b"r")
        for chunk in range(3)
        if staged_key(0, PACKETS, APP, number, part, chunk) in rows
    ]


def test_what_one_side_has_published_stays_published() -> None:
    for side in (MINE, THEIRS):
        fork = begun()
        publish(fork, side, b"p", 0, head(4, 13, 4, 0, 1))
        publish(fork, side, b"p", 1, head(4, 15, 4, 1, 0))
        rows, _ = fork.merge()
        found = decode_transaction(rows[HEAD])
        assert (found.last, found.published, found.at, found.part, found.chunk) == (4, 15, 4, 1, 0)
        assert found.base == BASE, "with a lower one all that follows would be taken for repetitions"
        assert chunks_of(rows, 4) == [(b"q", 0), (b"q", 1)]


def test_what_was_taken_back_at_the_other_side_is_not_published_again() -> None:
    fork = begun()
    publish(fork, MINE, b"p", 0, head(4, 13, 4, 0, 1))
    for key, body in chunk_rows(4, b"p", 0).items():
        fork.put(THEIRS, key, body)  # it has removed it, found itself apart, and put it back
    fork.put(THEIRS, HEAD, head(4, 10, 4))
    fork.put(THEIRS, committed_key(0, APP, 4), encode_parts(7, [(b"p", 2), (b"q", 2)]))
    rows, _ = fork.merge()
    assert chunks_of(rows, 4) == [(b"p", 1), (b"q", 0), (b"q", 1)]
    assert decode_transaction(rows[HEAD]).published == 13


def test_nothing_is_lost_that_was_taken_back_and_not_published() -> None:
    for side in (MINE, THEIRS):
        fork = begun()
        for key, body in chunk_rows(4, b"p", 0).items():
            fork.put(side, key, body)
        fork.put(side, HEAD, head(4, 10, 4))
        rows, _ = fork.merge()
        assert len(chunks_of(rows, 4)) == 4


def test_a_number_that_only_the_other_side_has_committed_is_published() -> None:
    fork = begun()
    publish(fork, MINE, b"p", 0, head(4, 13, 4, 0, 1))
    fork.put(THEIRS, HEAD, head(5, 10, 4))
    fork.put(THEIRS, committed_key(0, APP, 5), encode_parts(9, [(b"r", 1)]))
    for key, body in chunk_rows(5, b"r", 0).items():
        fork.put(THEIRS, key, body)
    rows, _ = fork.merge()
    found = decode_transaction(rows[HEAD])
    assert (found.last, found.at, found.chunk) == (5, 4, 1)
    assert committed_key(0, APP, 5) in rows
    assert chunks_of(rows, 5) == [(b"r", 0)]
    assert chunks_of(rows, 4) == [(b"p", 1), (b"q", 0), (b"q", 1)]


def test_a_transaction_that_is_published_whole_leaves_nothing() -> None:
    fork = begun()
    for place, (part, chunk) in enumerate([(b"p", 0), (b"p", 1), (b"q", 0), (b"q", 1)]):
        publish(fork, MINE, part, chunk, head(4, 11 + place))
    fork.drop(MINE, committed_key(0, APP, 4))
    fork.put(THEIRS, HEAD, head(4, 10, 4))
    rows, _ = fork.merge()
    assert list(rows) == [HEAD]


def test_what_is_staged_at_either_side_is_kept_unless_it_was_removed() -> None:
    fork = Fork()
    fork.old(HEAD, head(4, 10))
    for key, body in chunk_rows(5, b"p", 0).items():
        fork.old(key, body)
        fork.drop(MINE, key)  # aborted
    for key, body in chunk_rows(5, b"q", 0).items():
        fork.put(THEIRS, key, body)
    for key, body in chunk_rows(5, b"r", 0).items():
        fork.put(MINE, key, body)
    rows, _ = fork.merge()
    assert chunks_of(rows, 5) == [(b"q", 0), (b"r", 0)]


def test_an_app_that_only_the_other_side_knows_is_taken_over() -> None:
    fork = Fork()
    fork.put(THEIRS, HEAD, head(0, 0, 0))
    fork.put(THEIRS, committed_key(0, APP, 0), encode_parts(9, [(b"p", 1)]))
    for key, body in chunk_rows(0, b"p", 0).items():
        fork.put(THEIRS, key, body)
    rows, _ = fork.merge()
    assert chunks_of(rows, 0) == [(b"p", 0)]
    assert decode_transaction(rows[HEAD]).at == 0


def test_the_position_is_that_of_the_side_that_is_ahead() -> None:
    merged, waiting = merge_rows(row(6, 20, 5, 1, 2), [5, 6], row(8, 15, 4, 0, 1), [4, 5, 6, 7, 8])
    assert waiting == [5, 6, 7, 8]
    assert (merged.last, merged.published, merged.at, merged.part, merged.chunk) == (8, 20, 5, 1, 2)
    merged, waiting = merge_rows(row(6, 20), [], row(7, 15, 6, 0, 1), [6, 7])
    assert waiting == [7]
    assert (merged.at, merged.part, merged.chunk) == (7, 0, 0)

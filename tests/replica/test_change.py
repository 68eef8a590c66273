"""Changes as bytes, the memory of recent ones, histories and notices: there and back, and nothing strange accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import u64
from folkmoot.membership.history import encode_history, put_history, read_history, take_history
from folkmoot.membership.holding import Holding
from folkmoot.peer.cursor import Cursor
from folkmoot.peer.kind import DURABLE, READY
from folkmoot.replica.change import Change, decode_changes, decode_ops, encode_change, size_of
from folkmoot.replica.early import Early
from folkmoot.replica.notice import (
    CompareNotice,
    CopyNotice,
    PageNotice,
    PullNotice,
    Report,
    decode_compare,
    decode_copy,
    decode_page,
    decode_pull,
    decode_report,
    decode_sequences,
    encode_compare,
    encode_copy,
    encode_page,
    encode_pull,
    encode_report,
    encode_sequences,
    epoch_of,
)
from folkmoot.replica.pending import Pending, Uncommitted
from folkmoot.replica.recent import Recent, RecentBudget
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch, encode_ops
from folkmoot.store.key import history_key, partition_end, partition_start
from folkmoot.store.memory import MemoryStore

P = 5
KEYS = st.binary(max_size=200).map(lambda rest: b"\0\5\3" + rest)
VALUES = st.binary(min_size=16, max_size=300)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just(PUT), KEYS, VALUES),
        st.tuples(st.just(DELETE), KEYS, st.just(b"")),
        st.tuples(KEYS, KEYS).map(lambda keys: (DELETE_RANGE, min(keys), max(keys))),
    ),
    max_size=8,
)
NUMBERS = st.integers(0, (1 << 63) - 1)
HISTORIES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40)


@given(OPS)
def test_operations_there_and_back(ops: list[tuple[int, bytes, bytes]]) -> None:
    data = encode_ops(ops)
    assert decode_ops(P, data) == ops
    assert size_of(ops) == sum(len(key) + len(value) for _kind, key, value in ops)
    if ops:
        with pytest.raises(ValueError, match="of another partition"):
            decode_ops(P + 1, data)


@given(OPS.filter(bool), st.data())
def test_cut_or_changed_operations_never_raise_anything_else(
    ops: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    encoded = bytearray(encode_ops(ops))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(encoded), bytes(encoded)[:cut]):
        try:
            found = decode_ops(P, damaged)
        except ValueError:
            continue
        assert all(key[:2] == b"\0\5" and key[2] for _kind, key, _value in found)


def test_what_a_node_keeps_for_itself_is_not_written_by_others() -> None:
    for ops in (
        [(PUT, b"\0\5\0birth", b"v" * 16)],
        [(PUT, b"\0\5\3k", b"short")],
        [(DELETE_RANGE, b"\0\5\3k", b"\0\6\3k")],
        [(DELETE_RANGE, b"\0\5\3k", b"\0\5\3a")],
    ):
        with pytest.raises(ValueError, match="a change has a r"):
            decode_ops(P, encode_ops(ops))
    with pytest.raises(ValueError, match="operation 9"):
        decode_ops(P, b"\x09\x04\0\5\3k")


@given(st.lists(st.tuples(st.integers(0, 7), NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=50)), max_size=5))
def test_frames_of_changes_there_and_back(found: list[tuple[int, int, int, int, bytes]]) -> None:
    changes = [(p, Change(a, b, c, b + 1, body)) for p, a, b, c, body in found]
    frame = u64(3) + b"".join([encode_change(p, change) for p, change in changes])
    assert [(p, repr(change), change.body) for p, change in decode_changes(frame, 8, 8)] == [
        (p, repr(change), change.body) for p, change in changes
    ]
    if changes:
        with pytest.raises(ValueError, match="frame of changes"):
            decode_changes(frame[:-1], 8, 8)
        with pytest.raises(ValueError, match="frame of changes"):
            decode_changes(frame, 8, changes[0][0])


def test_a_change_leads_forward() -> None:
    with pytest.raises(ValueError, match="forward"):
        decode_changes(encode_change(0, Change(1, 5, 1, 5, b"")), 0, 1)


def change(seq: int, size: int = 0) -> Change:
    return Change(1, seq - 1, 1, seq, b"x" * size)


def test_recent_changes_are_found_from_a_position_on() -> None:
    budget = RecentBudget(10_000)
    recent = Recent(budget)
    for seq in range(5, 9):
        recent.add(change(seq))
    assert [found.seq for found in recent.after(6) or []] == [7, 8]
    assert [found.seq for found in recent.after(4) or []] == [5, 6, 7, 8]
    assert recent.after(3) is None
    assert recent.after(8) is None
    assert Recent(budget).after(0) is None
    recent.clear()
    assert recent.after(6) is None
    recent.add(change(20))
    assert [found.seq for found in recent.after(19) or []] == [20]


def test_a_position_within_a_change_is_no_place_to_go_on() -> None:
    recent = Recent(RecentBudget(10_000))
    recent.add(Change(1, 2, 1, 5, b""))
    assert recent.after(3) is None


def test_recent_changes_take_no_more_than_their_bytes() -> None:
    budget = RecentBudget(10_000)
    even, odd = Recent(budget), Recent(budget)
    for seq in range(1, 200):
        one = Change(1, seq - 2, 1, seq, b"x" * 100) if seq > 2 else change(seq, 100)
        (odd if seq % 2 else even).add(one)
        assert budget.bytes <= 10_000
    assert even.after(196) is not None
    assert even.after(100) is None
    even.clear()
    for seq in range(200, 300):
        odd.add(Change(1, seq - 1, 1, seq, b"x" * 100))
        assert budget.bytes <= 10_000
    assert len(odd.after(290) or []) == 9
    odd.drop()
    budget.clear()
    assert budget.bytes == 0


def test_what_replicas_of_a_partition_that_is_led_here_may_lack_stays_whatever_it_takes() -> None:
    budget = RecentBudget(1_000)
    recent, other = Recent(budget), Recent(budget)
    recent.lead()
    for seq in range(1, 21):
        recent.add(change(seq, 100))
        other.add(change(seq, 100))
    assert len(recent.after(0) or []) == 20
    assert other.after(16) is None, "of what others lead only the newest"
    recent.hold(15)
    recent.hold(12)  # nothing that was known is forgotten
    assert recent.after(14) is None
    assert [found.seq for found in recent.after(15) or []] == [16, 17, 18, 19, 20]
    recent.lead()  # in the next view as well
    recent.add(change(21, 100))
    assert [found.seq for found in recent.after(15) or []] == [16, 17, 18, 19, 20, 21]
    recent.free()
    assert budget.bytes <= 1_000
    assert recent.after(15) is None


def test_what_is_held_of_a_copy_that_is_overwritten_goes() -> None:
    for everything in (False, True):
        budget = RecentBudget(1_000)
        recent = Recent(budget)
        recent.lead()
        for seq in range(1, 21):
            recent.add(change(seq, 100))
        if everything:
            recent.drop()
            budget.clear()
        else:
            recent.clear()
        assert recent.after(0) is None
        for seq in range(40, 45):
            recent.add(change(seq, 100))
        recent.hold(44)
        assert budget.bytes <= 1_000


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add"] * 12 + ["lead", "hold", "hold", "hold", "free", "clear", "clear_all"]),
        st.integers(0, 2),
        st.integers(0, 900),
    ),
    max_size=120,
)


@given(STEPS, st.sampled_from([0, 500, 1_500, 5_000]))
def test_recent_changes_are_those_of_a_simple_model(steps: list[tuple[str, int, int]], bytes_max: int) -> None:
    """In the model all changes stand in one list, in their order, and a byte count is a sum."""
    budget = RecentBudget(bytes_max)
    recents = [Recent(budget) for _ in range(3)]
    kept: list[tuple[int, Change]] = []  # may go when there are too many
    held: list[tuple[int, Change]] = []
    cleared: list[tuple[int, Change]] = []  # count until they would go
    floors: list[int | None] = [None] * 3
    seqs = [0] * 3

    def size_of(changes: list[tuple[int, Change]]) -> int:
        return sum(len(one.body) + 200 for _, one in changes)

    for step, partition, number in steps:
        if step == "add":
            seqs[partition] += 1
            kept.append((partition, change(seqs[partition], number)))
            recents[partition].add(kept[-1][1])
            while size_of(kept) > bytes_max:
                at, oldest = kept.pop(0)
                floor = floors[at]
                if (at, oldest) in cleared:
                    cleared.remove((at, oldest))
                elif floor is not None and oldest.seq > floor:
                    held.append((at, oldest))
        elif step == "lead":
            recents[partition].lead()
            floors[partition] = floors[partition] or 0
        elif step == "hold" and floors[partition] is not None:
            seq = number * (seqs[partition] + 1) // 900
            recents[partition].hold(seq)
            floors[partition] = max(floors[partition] or 0, seq)
            held = [one for one in held if one[0] != partition or one[1].seq > seq]
        elif step == "free":
            recents[partition].free()
            floors[partition] = None
            held = [one for one in held if one[0] != partition]
        elif step == "clear":
            recents[partition].clear()
            held = [one for one in held if one[0] != partition]
            cleared += [one for one in kept if one[0] == partition and one not in cleared]
        elif step == "clear_all":
            for recent in recents:
                recent.drop()
            budget.clear()
            kept, held, cleared = [], [], []
        assert budget.held_bytes == size_of(held)
        assert budget.bytes == size_of(kept) + size_of(held)
        for at in range(3):
            here = [one for of, one in held + kept if of == at and (of, one) not in cleared]
            for seq in range(seqs[at] + 2):
                found = [one for one in here if one.seq > seq]
                expected = found if found and found[0].prev_seq == seq else None
                assert recents[at].after(seq) == expected


@given(HISTORIES)
def test_histories_there_and_back(history: list[tuple[int, int]]) -> None:
    assert take_history(Cursor(put_history(history), "x")) == history
    store, batch = MemoryStore(), Batch(1)
    batch.put(history_key(P), b"v" * 16 + encode_history(history))
    store.apply(batch)
    assert read_history(store, P) == history
    assert read_history(store, P + 1) == []


@pytest.mark.parametrize("body", [b"", b"\2\0", b"\1\3\1", b"\1\xff\xff"])
def test_a_damaged_history_is_named(body: bytes) -> None:
    store, batch = MemoryStore(), Batch(1)
    batch.put(history_key(P), b"v" * 16 + body)
    store.apply(batch)
    with pytest.raises(CorruptStore, match="partition 5 is damaged"):
        read_history(store, P)


@given(st.integers(0, 7), st.integers(0, 3), NUMBERS, NUMBERS, st.integers(-1, 1 << 40), HISTORIES)
def test_notices_there_and_back(
    p: int, state: int, epoch: int, seq: int, durable: int, history: list[tuple[int, int]]
) -> None:
    body = u64(epoch) + encode_report(Report(p, Holding(state, epoch, seq, history), durable)) * 2
    assert epoch_of(body) == epoch
    for report in decode_report(body, 8):
        assert (report.partition, report.durable_seq, repr(report.holding)) == (
            p,
            durable,
            repr(Holding(state, epoch, seq, history)),
        )
    entries = [(p, seq), (7, 0)]
    assert decode_sequences(encode_sequences(epoch, entries), 8) == entries
    copy = decode_copy(encode_copy(epoch, CopyNotice(p, bool(state & 1), epoch, seq, history)), 8)
    assert (copy.partition, copy.resume, copy.epoch, copy.seq, copy.history) == (
        p,
        bool(state & 1),
        epoch,
        seq,
        history,
    )
    start, end = partition_start(p), partition_end(p)
    pull = decode_pull(encode_pull(epoch, PullNotice(p, start, end, b"digest")), 8)
    assert (pull.partition, pull.start, pull.end, pull.digest) == (p, start, end, b"digest")
    rows = [(start + b"a", b"v" * 20), (start + b"b", b"w" * 16)]
    page = decode_page(encode_page(epoch, PageNotice(p, start, end, False, rows)), 8)
    assert (page.partition, page.start, page.end, page.equal, page.rows) == (p, start, end, False, rows)
    notice = decode_compare(encode_compare(epoch, CompareNotice(state, p, start, end, seq, b"d")), 8)
    assert (notice.what, notice.partition, notice.start, notice.end, notice.seq, notice.digest) == (
        state,
        p,
        start,
        end,
        seq,
        b"d",
    )


def test_notices_stay_within_their_partition() -> None:
    start, end = partition_start(3), partition_end(3)
    for low, high in ((b"\0\3\0", end), (start, b"\0\4\1"), (end, start), (b"", b"\xff")):
        with pytest.raises(ValueError, match="outside partition 3"):
            decode_pull(encode_pull(1, PullNotice(3, low, high, b"")), 8)
        with pytest.raises(ValueError, match="outside partition 3"):
            decode_compare(encode_compare(1, CompareNotice(0, 3, low, high, 1, b"")), 8)
        with pytest.raises(ValueError, match="outside partition 3"):
            decode_page(encode_page(1, PageNotice(3, low, high, True, [])), 8)
    with pytest.raises(ValueError, match="outside its range"):
        decode_page(encode_page(1, PageNotice(3, start, end, False, [(b"\0\4\3x", b"v" * 16)])), 8)
    for body in (encode_sequences(1, [(8, 1)]), u64(1) + encode_report(Report(8, Holding(0, 0, 0, []), 0))):
        with pytest.raises(ValueError, match="partition 8"):
            decode_sequences(body, 8) if len(body) == 18 else decode_report(body, 8)
    with pytest.raises(ValueError, match="before its epoch"):
        epoch_of(b"1234567")


def test_turns_are_committed_in_order() -> None:
    pending = Pending()
    parts = [Uncommitted(number, pending) for number in range(3)]
    pending.add(1, [(parts[0], 1), (parts[1], 1)], 0)
    pending.add(3, [(parts[1], 2)], 1_000)
    pending.written_token = 3
    pending.advance(2_000)
    assert pending.committed_token == 0
    parts[1].replicated(2)
    pending.advance(2_000)
    assert pending.committed_token == 0
    parts[0].replicated(1)
    pending.advance(9_000)
    assert pending.committed_token == 3
    assert pending.latency_us > 0
    pending.written_token = 7
    pending.advance(9_000)
    assert pending.committed_token == 7  # turns that only followed others


def test_what_is_not_written_here_is_not_committed() -> None:
    pending = Pending()
    parts = [Uncommitted(number, pending) for number in range(1)]
    pending.add(2, [(parts[0], 1)], 0)
    pending.written_token = 1
    parts[0].replicated(5)
    pending.advance(0)
    assert pending.committed_token == 1


def test_abandoned_changes_are_told_before_their_turn_counts() -> None:
    pending = Pending()
    parts = [Uncommitted(number, pending) for number in range(2)]
    pending.add(1, [(parts[0], 4), (parts[1], 1)], 0)
    pending.add(2, [(parts[0], 5)], 0)
    pending.written_token = 2
    parts[0].abandon()
    assert pending.abandoned == [(1, 0), (2, 0)]
    pending.advance(0)
    assert pending.committed_token == 0
    parts[1].replicated(1)
    pending.advance(0)
    assert pending.committed_token == 2
    assert not parts[0]


def test_messages_of_a_later_view_wait_for_it() -> None:
    early = Early()
    early.keep("a", READY, 5, b"old")
    early.keep("a", READY, 7, b"one")
    early.keep("a", DURABLE, 7, b"two")
    early.keep("a", DURABLE, 6, b"late")
    early.keep("b", READY, 9, b"far")
    early.keep("c", READY, 4, b"gone")
    assert early.take(7) == [("a", READY, b"one"), ("a", DURABLE, b"two")]
    assert early.take(8) == []
    assert early.take(9) == [("b", READY, b"far")]

"""What a comparison of two copies leaves out because it was changed meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.replica.change import Change
from folkmoot.replica.recent import Recent, RecentBudget
from folkmoot.replica.window import Window, page_sum, row_sum, sum_bytes, window_of
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, encode_ops

VERSION = bytes(16)


def key(number: int) -> bytes:
    return b"\0\0\x09" + bytes([number])


def remembered(bytes_max: int = 1 << 20) -> Recent:
    """Changes 1 to 4: a put of row 1, a removal of row 2, a removal of rows 5 to 7, a put of row 9."""
    recent = Recent(RecentBudget(bytes_max))
    groups = [(PUT, key(1), VERSION), (DELETE, key(2), b""), (DELETE_RANGE, key(5), key(8)), (PUT, key(9), VERSION)]
    for seq, op in enumerate(groups, 1):
        recent.add(Change(1, seq - 1, 1, seq, encode_ops([op])))
    return recent


def touched(window: Window | None) -> list[int]:
    assert window is not None
    return [number for number in range(12) if window.has(key(number))]


def test_it_has_what_was_put_and_removed_between_two_positions() -> None:
    recent = remembered()
    assert touched(window_of(recent, 0, 0, 4)) == [1, 2, 5, 6, 7, 9]
    assert touched(window_of(recent, 0, 1, 3)) == [2, 5, 6, 7]
    assert touched(window_of(recent, 0, 3, 4)) == [9]


def test_between_equal_positions_nothing_was_changed() -> None:
    window = window_of(Recent(RecentBudget(0)), 0, 7, 7)
    assert window is not None
    assert window.empty()


def test_what_is_not_remembered_is_not_known() -> None:
    assert window_of(remembered(), 0, 2, 5) is None, "it has not come yet"
    assert window_of(remembered(bytes_max=200), 0, 0, 4) is None, "it was forgotten"
    assert window_of(Recent(RecentBudget(0)), 0, 1, 2) is None


rows = st.dictionaries(st.binary(min_size=3, max_size=5), st.binary(min_size=16, max_size=20), max_size=12)


@given(rows, st.data())
def test_what_is_left_out_can_be_taken_off_later(content: dict[bytes, bytes], data: st.DataObject) -> None:
    page = sorted(content.items())
    out = data.draw(st.sets(st.sampled_from(sorted(content)) if content else st.nothing()))
    window = Window()
    window.keys = dict.fromkeys(sorted(out), True)
    taken_off = page_sum(page, Window()) - sum([row_sum(name, content[name]) for name in sorted(out)])
    assert sum_bytes(taken_off) == sum_bytes(page_sum(page, window))


def test_a_flipped_bit_changes_the_sum() -> None:
    page = [(key(number), VERSION + b"row") for number in range(3)]
    for at in range(3):
        name, value = page[at]
        for changed in ((name, value[:-1] + b"x"), (name + b"\0", value), (name, b"\1" + value[1:])):
            assert page_sum([*page[:at], changed, *page[at + 1 :]], Window()) != page_sum(page, Window())

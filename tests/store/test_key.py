"""Keys: they sort as promised, hold their parts, and no name reaches into the rows of another."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from folkmoot.store import key as keys
from folkmoot.store.key import (
    CHUNK,
    body_key,
    chunk_key,
    end_of,
    kind_of,
    kind_prefix,
    name_of,
    name_prefix,
    numbered_key,
    plain_key,
    plain_name_of,
    sequence_of,
)

# Names that try to look like something else: lengths, ends, zeros, the highest bytes.
HOSTILE = [
    b"",
    b"\0",
    b"\0\0",
    b"\xff",
    b"\xff\xff",
    b"\0\x01a",
    b"a",
    b"a\0",
    b"a\xff",
    b"aa",
    bytes(range(256)),
    b"\xff" * 65_535,
    b"x" * 255,
    b"x" * 256,
    b"x" * 65_535,
]
NAMES = st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=6))
PARTITIONS = st.integers(0, 65_535)
KINDS = st.integers(0, 13)
NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))


@given(PARTITIONS, KINDS, NAMES, NUMBERS)
def test_a_key_holds_its_parts(partition: int, kind: int, name: bytes, number: int) -> None:
    plain = plain_key(partition, kind, name)
    assert (kind_of(plain), plain_name_of(plain)) == (kind, name)
    numbered = numbered_key(name_prefix(partition, kind, name), number)
    assert (kind_of(numbered), name_of(numbered), sequence_of(numbered)) == (kind, name, number)
    assert name_of(name_prefix(partition, kind, name) + b"any filter") == name
    assert sequence_of(body_key(partition, number)) == number
    assert sequence_of(chunk_key(partition, name, partition, number)) == number
    assert name_of(chunk_key(partition, name, partition, number)) == name
    assert chunk_key(partition, name, 7, number).startswith(name_prefix(partition, CHUNK, name))


@given(PARTITIONS, KINDS, NAMES, NAMES, NUMBERS, NUMBERS)
def test_rows_of_a_name_are_its_range_and_only_they(
    partition: int, kind: int, name: bytes, other: bytes, number: int, rest: int
) -> None:
    prefix = name_prefix(partition, kind, name)
    key = numbered_key(name_prefix(partition, kind, other), number)
    assert (prefix <= key < end_of(prefix)) is (name == other)
    with_tail = name_prefix(partition, kind, other) + name  # a subscription to a filter that is made of names
    assert (prefix <= with_tail < end_of(prefix)) is (name == other)


@given(PARTITIONS, PARTITIONS, KINDS, KINDS, NAMES)
def test_partitions_and_kinds_are_ranges(partition: int, other: int, kind: int, other_kind: int, name: bytes) -> None:
    prefix = kind_prefix(partition, kind)
    inside = (partition, kind) == (other, other_kind)
    for key in (plain_key(other, other_kind, name), name_prefix(other, other_kind, name)):
        assert (prefix <= key < end_of(prefix)) is inside
        if partition != other:
            assert (prefix < key) is (partition < other)


@given(PARTITIONS, KINDS, NAMES, st.lists(NUMBERS, max_size=10))
def test_numbered_rows_sort_by_number(partition: int, kind: int, name: bytes, numbers: list[int]) -> None:
    prefix = name_prefix(partition, kind, name)
    made = [numbered_key(prefix, number) for number in numbers]
    assert [sequence_of(key) for key in sorted(made)] == sorted(numbers)
    assert sorted(body_key(partition, n) for n in numbers) == [body_key(partition, n) for n in sorted(numbers)]


@given(PARTITIONS, KINDS, st.lists(NAMES, max_size=10), NAMES)
def test_plain_rows_sort_by_name_and_keep_prefixes(
    partition: int, kind: int, names: list[bytes], prefix: bytes
) -> None:
    made = sorted(plain_key(partition, kind, name) for name in names)
    assert [plain_name_of(key) for key in made] == sorted(names)
    start = plain_key(partition, kind, prefix)
    found = [plain_name_of(key) for key in made if start <= key < end_of(start)]
    assert found == [name for name in sorted(names) if name.startswith(prefix)]


@given(st.binary(min_size=1, max_size=8).filter(lambda data: data.strip(b"\xff")), st.binary(max_size=4))
@example(b"a\xff\xff", b"\xff")
@example(b"\xfe\xff", b"")
def test_the_end_of_a_prefix_is_the_least_key_behind_it(prefix: bytes, tail: bytes) -> None:
    end = end_of(prefix)
    assert prefix + tail < end
    assert not end.startswith(prefix)
    # Nothing lies between: whatever is below the end and not below the prefix starts with it.
    below = end[:-1] + bytes([end[-1] - 1]) + b"\xff" * 9 if end[-1] else end[:-1]
    assert below < prefix or below.startswith(prefix)


def test_every_kind_has_a_number_of_its_own() -> None:
    kinds = [getattr(keys, name) for name in keys.__all__ if name.isupper()]
    assert len(set(kinds)) == len(kinds)
    assert all(0 <= kind < 256 for kind in kinds)

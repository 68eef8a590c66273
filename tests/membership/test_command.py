"""Commands and configurations as bytes: round trips, and garbage that is refused with a clear error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.pack import varint
from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_member import DATA, ID_MAX, WITNESS, ClusterMember, Process
from folkmoot.membership.cluster_settings import ABSENT, ANY
from folkmoot.membership.command import (
    AWAY_REASONS,
    KINDS,
    REMOVE_REASONS,
    Activate,
    AlterIsr,
    Command,
    Delete,
    Evict,
    Features,
    Found,
    IsrItem,
    Join,
    Lead,
    Leave,
    MarkAway,
    Place,
    PlaceItem,
    Prune,
    Put,
    Remove,
    Renew,
    Stay,
    Strain,
    UnknownCommand,
    Withdraw,
    decode_command,
    encode_command,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.lifecycle import LEAVING
from folkmoot.membership.transition import Transition
from folkmoot.store.epoch import COUNTER_MAX
from tests.membership.reference import Drawer, founded

PROCESS = Process(ID_MAX, "[2001:db8::1]:1884", "Zürich", "host-1", 3, 65_535, "0.2.0", ID_MAX)
MEMBER = ClusterMember(ID_MAX, "nœud", WITNESS, PROCESS, LEAVING, True, 5, ID_MAX, ID_MAX - 1, ID_MAX - 2, 255, True)
SMALL = ClusterMember(1, "a", DATA, Process(1, "", "", ""))

COMMANDS: list[Command] = [
    Found(ID_MAX, 1, 2, 3, [MEMBER, SMALL], 256, 3),
    Join(MEMBER),
    Activate(ID_MAX, ID_MAX, PROCESS, ID_MAX, [0, 7, 65_535]),
    Activate(1, 0, PROCESS),
    MarkAway(1, 2, 3, 4),
    MarkAway(1, 2, 3, 4, [MarkAway(300, 5, 6, 1), MarkAway(2, 5, 6, 4)]),
    Leave(1, 2),
    Stay(1, 2),
    Evict(1, 2),
    Remove(1, 2, 3, True),
    Remove(1, 2, 3, False),
    Place([PlaceItem(255, 7, [ID_MAX, 1, 300]), PlaceItem(0, 0, []), PlaceItem(1, 1, [1])]),
    Place([]),
    AlterIsr(2, [IsrItem(1, 3, 4, [2, 5], True), IsrItem(7, 9, 0, [ID_MAX])], {5: ID_MAX, 2: 1, ID_MAX: 6}),
    AlterIsr(2, [], {}),
    Lead(1, 2, 3),
    Strain(1, 2, 3, True, False),
    Strain(1, 2, 3, False, True),
    Put("access/rules", bytes(range(256)), ANY, "root"),
    Put("k", b"", ABSENT, ""),
    Delete("k", ID_MAX - 1, "é"),
    Features(ID_MAX),
    Withdraw(3, 2, [0, 255], []),
    Withdraw(3, 2, [], [(0, 0), (255, 300)]),
    Withdraw(3, 2, [], []),
    Renew(ID_MAX, 7),
    Prune(ID_MAX),
]


def fields(value: object) -> object:
    """Everything that a command has, as plain values."""
    if isinstance(value, list):
        return [fields(one) for one in value]
    if isinstance(value, (int, str, bytes, dict)):
        return value
    names = [name for name in dir(value) if not name.startswith("_")]
    found = {name: getattr(value, name) for name in names}
    return {name: fields(one) for name, one in found.items() if not callable(one)}


@pytest.mark.parametrize("command", COMMANDS, ids=[KINDS[command.kind] for command in COMMANDS])
def test_a_command_is_read_as_it_was_written(command: Command) -> None:
    data = encode_command(command)
    found = decode_command(data)
    assert type(found) is type(command)
    assert fields(found) == fields(command)
    assert encode_command(found) == data
    assert KINDS[command.kind] in repr(found) or isinstance(command, Found)


def test_every_kind_is_tested() -> None:
    assert {command.kind for command in COMMANDS} == set(KINDS)
    assert len(AWAY_REASONS) == 5
    assert len(REMOVE_REASONS) == 3


def test_bytes_that_must_never_change() -> None:
    # Logs and snapshots have them: format 1, kind 4, disk 300, incarnation 2, version 3, why 1.
    assert encode_command(MarkAway(300, 2, 3, 1)) == bytes([1, 4, 0xAC, 0x02, 2, 3, 1])
    assert encode_command(Place([PlaceItem(5, 1, [9, 7])])) == bytes([1, 9, 2, 7, 9, 1, 5, 1, 2, 1, 0])
    alter = AlterIsr(9, [IsrItem(5, 4, 1, [9, 7])], {9: 2, 7: 3})
    assert encode_command(alter) == bytes([1, 10, 9, 2, 7, 3, 9, 2, 1, 5, 4, 1, 0, 2, 1, 0])
    assert encode_command(Put("k", b"v", ANY, "a")) == bytes([1, 13, 1, 107, 1, 118, 0, 1, 97])


@pytest.mark.parametrize("data", [b"\x02\x04", b"\x01\x20", b"\x01\x00", b"\x01\xff"])
def test_what_a_newer_build_wrote_is_told_apart(data: bytes) -> None:
    with pytest.raises(UnknownCommand, match="newer build"):
        decode_command(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x05\x00\x01",  # disk 0
        b"\x01\x05" + varint(ID_MAX + 1) + b"\x01",
        b"\x01\x05\x81\x00\x01",  # a longer encoding of 1
        b"\x01\x05\x01\x01\x01",  # more than a leave
        b"\x01\x08\x01\x01\x01\x02",  # force is neither yes nor no
        b"\x01\x09\x01\x07\x01\x05\x01\x01\x01",  # row 1 of one disk
        b"\x01\x09\x02\x07\x07\x01\x05\x01\x01\x00",  # a disk listed twice
        b"\x01\x0a\x09\x01\x09\x01\x01\x05\x01\x01\x01\x01",  # row 1 of one disk
        b"\x01\x0a\x09\x02\x07\x01\x09\x01\x01\x05\x01\x01\x01\x01",  # a disk that is in no ISR
        b"\x01\x0a\x09\x02\x09\x01\x09\x01\x01\x05\x01\x01\x01\x01",  # a disk listed twice
        b"\x01\x0a\x09\x01\x09\x01\x01\x05\x00\x01\x01\x00",  # a leadership without a number
        b"\x01\x0e\x02\xff\xff\x00\x00",  # a key that is not UTF-8
    ],
)
def test_what_is_no_command_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_command(data)


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(ValueError, match="1025 bytes"):
        encode_command(Delete("k" * 1025, ANY, "a"))


@given(st.binary(max_size=60))
def test_garbage_is_a_value_error(data: bytes) -> None:
    for head in (b"", b"\x01", *[bytes([1, kind]) for kind in KINDS]):
        try:
            command = decode_command(head + data)
        except ValueError:
            continue
        assert encode_command(command) == head + data


def large() -> ClusterConfiguration:
    """A configuration with something of everything."""
    drawer = Drawer(3)
    transition = Transition(ClusterConfiguration())
    transition.apply_command(1, founded([10, 11, 12], 6, witnesses=[13]))
    for index in range(2, 400):
        transition.apply_command(index, drawer.draw(transition.configuration))
    configuration = transition.configuration
    assert configuration.removed
    assert configuration.settings.changes
    assert configuration.branches
    assert [state for state in configuration.partitions if state.isr]
    return configuration


def test_a_configuration_is_read_as_it_was_written() -> None:
    data = encode_configuration(large())
    assert encode_configuration(decode_configuration(data)) == data
    empty = encode_configuration(ClusterConfiguration())
    assert encode_configuration(decode_configuration(empty)) == empty


def test_a_damaged_configuration_is_a_value_error() -> None:
    data = encode_configuration(large())
    rng = Rng(1)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(1 + rng.below(3)):
            damaged[rng.below(len(damaged))] = rng.below(256)
        if rng.chance(1, 4):
            del damaged[rng.below(len(damaged)) :]
        try:
            found = decode_configuration(bytes(damaged))
        except ValueError:
            refused += 1
            continue
        found.check()
        assert encode_configuration(found) == bytes(damaged)
    assert refused > 1000


def tampered(what: str) -> ClusterConfiguration:
    """A configuration that breaks one rule."""
    transition = Transition(ClusterConfiguration())
    transition.apply_command(1, founded([10, 11, 12], 4))
    transition.apply_command(2, Place([PlaceItem(number, 0, [10, 11, 12]) for number in range(4)]))
    transition.apply_command(3, MarkAway(12, 1, 1, 2))
    found = transition.configuration
    up = found.members[10]
    away = found.members[12]
    if what == "base":
        found.base = COUNTER_MAX
    elif what == "changed":
        found.changed += 1
    elif what == "started":
        up.started = found.changed + 1
    elif what == "away":
        away.away = found.changed + 1
    elif what == "never up":
        up.started = 0
    elif what == "no reason":
        away.why = 0
    elif what == "no branch":
        found.branches[0] = []
    elif what == "a branch in sync":
        found.branches[0] = [10, 12]
    elif what == "a reason":
        up.why = 1
    return found


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("base", "numbers are left"),
        ("changed", "changed by an entry"),
        ("started", "comes and goes"),
        ("away", "comes and goes"),
        ("never up", "has come up"),
        ("no reason", "for a reason"),
        ("no branch", "without branches"),
        ("a branch in sync", "not in sync"),
        ("a reason", "for a reason"),
    ],
)
def test_a_configuration_that_breaks_a_rule_is_a_value_error(what: str, rule: str) -> None:
    decode_configuration(encode_configuration(tampered("")))
    with pytest.raises(ValueError, match=rule):
        decode_configuration(encode_configuration(tampered(what)))


@pytest.mark.parametrize(
    ("ancestors", "parent", "strength", "rule"),
    [
        ([(1, 1), (2, 2)], 2, 0, "descend from itself"),
        ([(2, 1), (2, 2)], 2, 0, "descend from itself"),
        ([(3, 2), (2, 2)], 2, 0, "behind what it shares"),
        ([(2, 3)], 2, 0, "behind what it shares"),
        ([(3, 2)], 2, 0, "newest ancestor"),
        ([(2, 2)], 2, 5, "one leader"),
        ([], 0, 1, "no fork"),
    ],
)
def test_a_configuration_with_an_impossible_descent_is_a_value_error(
    ancestors: list[tuple[int, int]], parent: int, strength: int, rule: str
) -> None:
    found = tampered("")
    found.ancestors = ancestors
    found.parent = parent
    found.strength = strength
    with pytest.raises(ValueError, match=rule):
        decode_configuration(encode_configuration(found))


def test_a_configuration_of_a_newer_build_is_refused() -> None:
    data = encode_configuration(ClusterConfiguration())
    with pytest.raises(ValueError, match="format 4"):
        decode_configuration(b"\x04" + data[1:])

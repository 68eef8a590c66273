"""The configuration: drawn logs against a naive reference, equal bytes at all members, and single rules."""

from __future__ import annotations

import pytest

from folkmoot.kernel.feature import TOGETHER_BIT
from folkmoot.membership.cluster_member import WITNESS, ClusterMember
from folkmoot.membership.cluster_settings import (
    ABSENT,
    ANY,
    CHANGES_MAX,
    KEY_BYTES_MAX,
    TOTAL_BYTES_MAX,
    VALUE_BYTES_MAX,
)
from folkmoot.membership.command import (
    ALTER_ISR,
    ENDED,
    EVICTED,
    FORGOTTEN,
    KINDS,
    LEFT,
    PRUNE,
    REMOVE,
    REPLACED,
    REPLICAS_MAX,
    SILENT,
    WITHDRAW,
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
    Put,
    Remove,
    Renew,
    Stay,
    Strain,
    Withdraw,
    encode_command,
)
from folkmoot.membership.configuration import REMOVALS_MAX, ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.lifecycle import ACTIVE, AWAY, AWAY_LEAVING, JOINING, LEAVING, STATES
from folkmoot.membership.transition import (
    ACCEPTED,
    FOUNDED,
    HOLDS_COPIES,
    INELIGIBLE,
    INVALID,
    KNOWN_DISK,
    LACKS_FEATURES,
    LAST_COPY,
    NAME_TAKEN,
    NO_ROOM,
    NOT_FOUNDED,
    NOT_IN_SYNC,
    OLD_INCARNATION,
    OLD_VERSION,
    OTHER_LEADER,
    OTHER_NUMBER,
    UNCHANGED,
    UNKNOWN_DISK,
    UNKNOWN_PARTITION,
    UNMERGED,
    WAS_EVICTED,
    WRONG_STATE,
    Result,
    Transition,
)
from folkmoot.store.epoch import COUNTER_MAX
from tests.membership.reference import ALL_FEATURES, Drawer, LosingDrawer, Reference, founded, member, process

LARGE = (1 << 62) - 1 - 200  # disks with identities that need all bytes


class Log:
    """A configuration and the next index; members and partitions are asked for by short names."""

    def __init__(self, disks: list[int], partitions: int = 1, copies: int = 3) -> None:
        self.transition = Transition(ClusterConfiguration())
        self.next = 2  # 1 is the founding snapshot of Raft
        self.do(founded(disks, partitions, copies))
        self.do(Features(TOGETHER_BIT))
        self.place(*[disks[:copies] for _ in range(partitions)])

    @property
    def configuration(self) -> ClusterConfiguration:
        return self.transition.configuration

    def apply(self, command: Command) -> Result:
        result = self.transition.apply(self.next, encode_command(command))
        self.next += 1
        self.configuration.check()
        return result

    def do(self, command: Command) -> Result:
        result = self.apply(command)
        assert result.refused == ACCEPTED, result
        return result

    def refused(self, command: Command) -> int:
        before = encode_configuration(self.configuration)
        result = self.apply(command)
        assert result.refused != ACCEPTED
        assert len(result.text()) > 5
        index = self.configuration.index
        self.configuration.index = decode_configuration(before).index
        assert encode_configuration(self.configuration) == before, "a refused command has changed something"
        self.configuration.index = index
        return result.refused

    def place(self, *replicas: list[int]) -> Result:
        items = [PlaceItem(number, self.version(number), disks) for number, disks in enumerate(replicas)]
        return self.do(Place(items))

    def version(self, partition: int = 0) -> int:
        return self.configuration.partitions[partition].version

    def of(self, disk: int) -> ClusterMember:
        return self.configuration.members[disk]

    def away(self, disk: int) -> Result:
        return self.do(MarkAway(disk, self.of(disk).incarnation, self.of(disk).version, ENDED))

    def start(self, disk: int) -> Result:
        return self.do(Activate(disk, self.of(disk).version, process(self.of(disk).incarnation + 1, disk)))

    def leave(self, disk: int) -> Result:
        return self.do(Leave(disk, self.of(disk).version))

    def join(self, disk: int) -> None:
        self.do(Join(member(disk)))
        self.do(Activate(disk, self.of(disk).version, process(1, disk)))

    def isr(self, disks: list[int], partition: int = 0) -> AlterIsr:
        state = self.configuration.partitions[partition]
        started = {disk: self.of(disk).started for disk in disks}
        return AlterIsr(state.leader, [IsrItem(partition, state.leader_epoch, state.version, disks)], started)

    def shows(self, partition: int = 0) -> tuple[list[int], list[int], int, int]:
        state = self.configuration.partitions[partition]
        return state.replicas, state.isr, state.leader, state.leader_epoch


# Drawn logs


@pytest.mark.parametrize("part", range(4))
def test_drawn_commands_do_what_the_reference_says(part: int) -> None:
    kinds = [kind for kind in KINDS if kind != PRUNE]  # of a lineage with ancestors: `test_ancestors` draws that
    accepted: dict[int, int] = dict.fromkeys(kinds, 0)
    refused: dict[int, int] = dict.fromkeys(kinds, 0)
    for seed in range(part * 10, part * 10 + 10):
        drawer = Drawer(seed)
        transition = Transition(ClusterConfiguration())
        reference = Reference()
        for index in range(1, 300):
            command = founded([10, 11, 12], 3) if index == 2 else drawer.draw(transition.configuration)
            if index == 1:
                command = Leave(10, 0)
            if transition.configuration.is_founded() or isinstance(command, Found):
                wanted = reference.apply(index, command)
            else:
                wanted = False
            result = transition.apply(index, encode_command(command))
            assert result.is_accepted() == wanted, result
            transition.configuration.check()
            reference.compare(transition.configuration)
            (accepted if wanted else refused)[command.kind] += 1
    # Were commands of a kind always refused, or always accepted, its rules would not be compared.
    assert min(accepted.values()) > 0, accepted
    assert min(refused.values()) > 0, refused


def test_what_is_left_of_lost_partitions_recovers_as_the_reference_says() -> None:
    """Recoveries are rare among commands of all kinds, so these logs lose last copies most of the time."""
    begun = 0
    ends: dict[int, int] = {}
    waits = 0
    for seed in range(40):
        drawer = LosingDrawer(seed)
        transition = Transition(ClusterConfiguration())
        configuration = transition.configuration
        reference = Reference()
        for index in range(2, 300):
            command = founded([10, 11, 12, 13], 3) if index == 2 else drawer.draw(configuration)
            before = dict(configuration.recovering)
            wanted = reference.apply(index, command)
            result = transition.apply(index, encode_command(command))
            assert result.is_accepted() == wanted, result
            configuration.check()
            reference.compare(configuration)
            again = decode_configuration(encode_configuration(configuration))
            assert again.recovering == configuration.recovering
            begun += len([number for number in configuration.recovering if number not in before])
            waits += len([number for number in configuration.recovering if not configuration.partitions[number].leader])
            if [number for number in before if number not in configuration.recovering]:
                ends[command.kind] = ends.get(command.kind, 0) + 1
    assert begun > 40
    assert waits > 40
    assert min(ends.get(kind, 0) for kind in (ALTER_ISR, WITHDRAW, REMOVE)) > 0, ends


@pytest.mark.parametrize("seed", range(100, 110))
def test_members_that_apply_the_same_log_are_equal_also_by_a_snapshot(seed: int) -> None:
    drawer = Drawer(seed)
    first = Transition(ClusterConfiguration())
    second = Transition(ClusterConfiguration())
    for index in range(2, 250):
        command = founded([10, 11, 12], 3) if index == 2 else drawer.draw(first.configuration)
        data = encode_command(command)
        told = first.apply(index, data)
        also_told = second.apply(index, data)
        assert (told.refused, told.disks, told.partitions) == (also_told.refused, also_told.disks, also_told.partitions)
        if index % 20 == 0:
            second = Transition(decode_configuration(encode_configuration(second.configuration)))
        assert encode_configuration(first.configuration) == encode_configuration(second.configuration)


def test_what_a_result_lists_is_exactly_what_has_changed() -> None:
    for seed in range(200, 210):
        drawer = Drawer(seed)
        transition = Transition(ClusterConfiguration())
        transition.apply(1, encode_command(founded([10, 11, 12], 3)))
        configuration = transition.configuration
        for index in range(2, 250):
            members = dict(configuration.members)
            partitions = list(configuration.partitions)
            values = dict(configuration.settings.values)
            result = transition.apply_command(index, drawer.draw(configuration))
            either = sorted(set(members) | set(configuration.members))
            changed = [disk for disk in either if members.get(disk) is not configuration.members.get(disk)]
            assert result.disks == changed
            now = configuration.partitions
            assert result.partitions == [n for n in range(len(now)) if now[n] is not partitions[n]]
            keys = sorted(set(values) | set(configuration.settings.values))
            assert result.keys == [k for k in keys if values.get(k) is not configuration.settings.values.get(k)]


def test_versions_and_epochs_only_grow() -> None:
    for seed in range(300, 310):
        drawer = Drawer(seed)
        transition = Transition(ClusterConfiguration())
        transition.apply(1, encode_command(founded([10, 11, 12], 3)))
        leaders: dict[tuple[int, int], int] = {}
        for index in range(2, 300):
            before = list(transition.configuration.partitions)
            transition.apply_command(index, drawer.draw(transition.configuration))
            for number, state in enumerate(transition.configuration.partitions):
                assert state is before[number] or state.succeeds(before[number])
                if state.leader:
                    assert leaders.setdefault((number, state.leader_epoch), state.leader) == state.leader


# The foundation


def test_a_log_begins_with_its_foundation_and_has_one() -> None:
    transition = Transition(ClusterConfiguration())
    assert transition.apply_command(2, Features(1)).refused == NOT_FOUNDED
    result = transition.apply_command(3, founded([1, 2], 5))
    assert (result.refused, result.founded, result.disks) == (ACCEPTED, True, [1, 2])
    assert transition.apply_command(4, founded([3])).refused == FOUNDED
    assert len(transition.configuration.partitions) == 5
    assert [transition.configuration.members[disk].state for disk in (1, 2)] == [ACTIVE, ACTIVE]


@pytest.mark.parametrize(
    "command",
    [
        founded([]),
        founded([1, 1]),
        founded([], witnesses=[1]),
        founded([1], partitions=0),
        founded([1], partitions=65_537),
        founded([1], copies=0),
        founded([1], copies=17),
        Found(1, 1, 0, 0, [member(1, name="a"), member(2, name="a")], 1, 1),
    ],
)
def test_a_foundation_that_makes_no_sense_is_refused(command: Found) -> None:
    assert Transition(ClusterConfiguration()).apply_command(1, command).refused == INVALID


def test_the_first_placement_puts_all_in_sync() -> None:
    log = Log([1, 2, 3])
    assert log.shows() == ([1, 2, 3], [1, 2, 3], 1, 1)


# Members


def test_a_member_joins_starts_dies_and_comes_back() -> None:
    log = Log([1, 2, 3])
    log.do(Join(member(4)))
    assert log.of(4).state == JOINING
    assert log.refused(Place([PlaceItem(0, log.version(), [1, 2, 3, 4])])) == INELIGIBLE, "it has not started"
    log.do(Activate(4, log.of(4).version, process(1, 4)))
    log.place([1, 2, 3, 4])
    assert log.shows() == ([1, 2, 3, 4], [1, 2, 3], 1, 1)
    log.do(log.isr([4, 2, 1, 3]))
    assert log.shows()[1] == [1, 2, 3, 4]
    result = log.away(1)
    assert log.shows() == ([1, 2, 3, 4], [2, 3, 4], 2, 2)
    assert (result.disks, result.partitions) == ([1], [0])
    log.start(1)
    assert log.shows() == ([1, 2, 3, 4], [2, 3, 4], 2, 2), "it learns, and is in sync when its leader says so"


def test_a_name_belongs_to_one_disk() -> None:
    log = Log([1, 2])
    assert log.refused(Join(member(3, name="node1"))) == NAME_TAKEN
    assert log.refused(Join(member(1))) == KNOWN_DISK
    log.away(1)
    log.do(Remove(1, log.of(1).version, REPLACED, False))
    log.do(Join(member(3, name="node1")))
    assert log.of(3).node_id == "node1"


def test_starts_are_fenced() -> None:
    log = Log([1, 2, 3])
    assert log.refused(Activate(1, 0, process(1, 1))) == UNCHANGED, "it is up with this incarnation"
    version = log.of(1).version
    log.do(Activate(1, 0, process(5, 1)))
    assert log.refused(Activate(1, version, process(4, 1))) == OLD_INCARNATION
    assert log.refused(Activate(9, 0, process(1, 9))) == UNKNOWN_DISK
    version = log.of(1).version
    log.away(1)
    assert log.refused(Activate(1, version, process(5, 1))) == OLD_VERSION, "asked for before it was away"
    log.do(Activate(1, log.of(1).version, process(5, 1)))
    assert log.of(1).state == ACTIVE, "the same process was cut off, and is there again"


def test_counters_grow_above_what_a_member_has_seen() -> None:
    log = Log([1, 2, 3])
    configuration = log.configuration
    assert configuration.counter() == configuration.index
    log.do(Activate(1, 0, process(2, 1), configuration.counter()))
    assert configuration.base == 0, "this entry has a higher counter anyway"
    seen = configuration.counter() + 1
    result = log.do(Activate(2, 0, process(2, 2), seen))
    assert (configuration.base, configuration.counter()) == (1, seen + 1)
    assert log.of(2).started == seen + 1 == configuration.counter_at(result.index)
    started = [log.of(disk).started for disk in (1, 2, 3)]
    log.do(Activate(3, 0, process(2, 3), seen + 1000))
    assert configuration.counter() == seen + 1001
    assert [log.of(disk).started for disk in (1, 2)] == started[:2], "they compare with epochs of then"
    log.do(Activate(1, 0, process(3, 1), seen))
    assert configuration.counter() == seen + 1002, "a counter that is known already raises nothing"


def test_a_counter_far_ahead_is_refused() -> None:
    log = Log([1, 2, 3])
    far = log.next + (1 << 22)
    assert log.refused(Activate(1, 0, process(2, 1), far + 1)) == INVALID
    far += 1  # the refusal was an entry
    log.do(Activate(1, 0, process(2, 1), far))
    assert log.configuration.counter() == far + 1
    log.next = COUNTER_MAX - log.configuration.base - 9
    last = Activate(2, 0, process(2, 2), COUNTER_MAX - 1)
    assert log.refused(Activate(2, 0, process(2, 2), COUNTER_MAX)) == INVALID, "no number would be left"
    log.do(last)
    assert log.configuration.counter() == COUNTER_MAX


def test_what_changes_no_role_is_no_change() -> None:
    log = Log([1, 2, 3])
    configuration = log.configuration
    assert configuration.changed == configuration.counter()
    changed = configuration.changed
    log.do(Put("k", b"v", ANY, "a"))
    log.do(Delete("k", ANY, "a"))
    log.do(Features(2))
    assert log.refused(log.isr([1, 2, 3])) == UNCHANGED
    assert configuration.changed == changed < configuration.counter()
    for command in (log.isr([1, 2]), Strain(3, 1, log.of(3).version, True, False), Renew(1, 1)):
        log.do(command)
        assert configuration.changed == configuration.counter(), command


def test_a_leader_that_starts_again_gets_another_epoch() -> None:
    log = Log([1, 2, 3])
    log.start(1)
    assert log.shows() == ([1, 2, 3], [1, 2, 3], 1, 2)
    log.start(2)
    assert log.shows() == ([1, 2, 3], [1, 2, 3], 1, 2), "a follower that starts again changes nothing"


def test_after_a_loss_of_all_power_every_copy_in_sync_counts() -> None:
    log = Log([1, 2, 3])
    log.start(1)
    log.start(2)
    log.away(3)  # it never comes back
    assert log.shows()[1:3] == ([1, 2], 1)


def test_the_last_in_sync_stays_and_leads_again_when_it_is_back() -> None:
    log = Log([1, 2, 3])
    for disk in (1, 2, 3):
        log.away(disk)
    assert log.shows() == ([1, 2, 3], [3], 0, 3)
    log.start(1)
    log.start(2)
    assert log.shows() == ([1, 2, 3], [3], 0, 3), "neither has what 3 may have committed alone"
    log.start(3)
    assert log.shows() == ([1, 2, 3], [3], 3, 4)


def test_the_last_in_sync_leads_no_more_when_its_copy_is_damaged_until_it_starts_again() -> None:
    log = Log([1, 2, 3])
    assert log.refused(Withdraw(1, 1, [0], [(7, 0)])) == UNKNOWN_PARTITION
    log.do(Withdraw(1, 1, [], [(0, 0)]))  # another one leads, so the version does not matter
    log.do(Withdraw(2, 1, [0], []))
    assert log.shows() == ([1, 2, 3], [3], 3, 3)
    assert log.refused(Withdraw(3, 1, [0], [])) == LAST_COPY, "one that is behind has all that was committed"
    assert log.refused(Withdraw(3, 1, [], [(0, log.version() - 1)])) == LAST_COPY, "it may have been filled since"
    log.do(Withdraw(3, 1, [], [(0, log.version())]))
    assert log.shows() == ([1, 2, 3], [3], 0, 3), "nothing else has what was committed"
    assert log.refused(Withdraw(3, 1, [], [(0, log.version())])) == LAST_COPY
    assert log.refused(Lead(0, log.version(), 3)) == INELIGIBLE
    log.place([3, 2, 1])
    log.away(3)
    assert log.shows() == ([3, 2, 1], [3], 0, 3)
    assert log.configuration.damaged == {0: 3}
    assert decode_configuration(encode_configuration(log.configuration)).damaged == {0: 3}
    log.start(3)
    assert log.shows() == ([3, 2, 1], [3], 3, 4), "it was repaired, or is tried again"
    assert log.configuration.damaged == {}


def test_a_damaged_copy_is_given_up_by_force() -> None:
    log = Log([1, 2], copies=2)
    log.away(2)
    log.do(Withdraw(1, 1, [], [(0, log.version())]))
    log.start(2)
    log.away(1)
    assert log.refused(Remove(1, log.of(1).version, FORGOTTEN, False)) == LAST_COPY
    result = log.do(Remove(1, log.of(1).version, FORGOTTEN, True))
    assert (log.configuration.damaged, log.configuration.lost) == ({}, {0: result.index})
    log.place([2])
    assert log.shows() == ([2], [2], 2, 2)


def test_deaths_are_fenced() -> None:
    log = Log([1, 2, 3])
    old = MarkAway(1, 1, log.of(1).version, ENDED)
    log.start(1)
    assert log.refused(old) == OLD_INCARNATION
    log.away(1)
    current = MarkAway(1, 2, log.of(1).version, ENDED)
    assert log.refused(current) == WRONG_STATE, "it is away"
    log.do(Activate(1, log.of(1).version, process(2, 1)))
    assert log.refused(current) == OLD_VERSION, "it has come back since"
    assert log.refused(MarkAway(9, 1, 1, ENDED)) == UNKNOWN_DISK


def test_a_member_remembers_when_and_why_it_went_away() -> None:
    log = Log([1, 2, 3])
    assert (log.of(1).away, log.of(1).why) == (0, 0)
    log.do(Activate(2, 0, process(2, 2), log.next + 100))
    assert log.refused(MarkAway(1, 1, log.of(1).version, 0)) == INVALID, "nobody goes for no reason"
    log.do(MarkAway(1, 1, log.of(1).version, SILENT))
    away = log.configuration.counter()
    assert away > log.configuration.index
    assert (log.of(1).away, log.of(1).why) == (away, SILENT)
    log.leave(1)
    log.do(Evict(1, 1))
    assert (log.of(1).away, log.of(1).why) == (away, EVICTED), "it was away before"
    log.start(1)
    assert (log.of(1).away, log.of(1).why) == (away, 0), "it is up, and had been away"
    log.do(Evict(1, 2))
    assert (log.of(1).away, log.of(1).why) == (log.configuration.counter(), EVICTED)


def test_who_never_was_up_has_never_gone_away() -> None:
    log = Log([1])
    log.do(Join(member(4)))
    log.leave(4)
    assert (log.of(4).state, log.of(4).away, log.of(4).why) == (AWAY_LEAVING, 0, 0)
    log.do(Evict(4, 1))
    assert (log.of(4).away, log.of(4).why) == (log.configuration.counter(), EVICTED)


def test_a_full_member_leads_only_what_no_other_can() -> None:
    log = Log([1, 2, 3])
    log.do(Strain(2, 1, log.of(2).version, True, False))
    assert log.refused(Strain(2, 1, log.of(2).version, True, False)) == UNCHANGED
    assert log.refused(Strain(2, 2, log.of(2).version, False, False)) == OLD_INCARNATION
    log.away(1)
    assert log.shows()[2] == 3
    log.away(3)
    assert log.shows()[2] == 2
    log.do(Strain(2, 1, log.of(2).version, False, False))
    assert not log.of(2).full


def test_a_slow_member_leads_only_what_no_other_can() -> None:
    log = Log([1, 2, 3])
    log.do(Strain(2, 1, log.of(2).version, False, True))
    assert log.refused(Strain(2, 1, log.of(2).version, False, True)) == UNCHANGED
    assert log.refused(Strain(2, 1, 1, True, True)) == OLD_VERSION
    log.away(1)
    assert log.shows()[2] == 3
    log.do(Strain(3, 1, log.of(3).version, True, False))
    log.start(1)
    log.do(log.isr([1, 2, 3]))
    log.away(3)
    assert log.shows()[2] == 1
    log.away(1)
    assert log.shows()[2] == 2
    log.start(2)
    assert (log.of(2).full, log.of(2).slow) == (False, True), "a new process may have the same disk to wait for"
    log.do(Strain(2, 2, log.of(2).version, True, True))
    log.do(Strain(2, 2, log.of(2).version, True, False))
    assert (log.of(2).full, log.of(2).slow) == (True, False)


def test_a_leave_hands_over_and_can_be_taken_back() -> None:
    log = Log([1, 2, 3])
    log.leave(1)
    assert log.of(1).state == LEAVING
    assert log.shows()[2] == 1, "it leads until it has handed over"
    assert log.refused(Leave(1, log.of(1).version)) == WRONG_STATE
    assert log.refused(Remove(1, log.of(1).version, LEFT, True)) == HOLDS_COPIES
    log.do(Stay(1, log.of(1).version))
    assert log.of(1).state == ACTIVE
    old = Leave(1, log.of(1).version)
    log.leave(1)
    log.do(Stay(1, log.of(1).version))
    assert log.refused(old) == OLD_VERSION, "a repetition of what was taken back"
    log.leave(1)
    log.place([2, 3])
    log.do(Remove(1, log.of(1).version, LEFT, False))
    assert 1 not in log.configuration.members


def test_a_leave_survives_the_end_of_the_process() -> None:
    log = Log([1, 2, 3])
    log.leave(1)
    log.away(1)
    assert log.of(1).state == AWAY_LEAVING
    log.start(1)
    assert log.of(1).state == LEAVING
    log.away(1)
    log.do(Stay(1, log.of(1).version))
    assert log.of(1).state == AWAY


def test_one_that_never_started_has_nothing_to_hand_over() -> None:
    log = Log([1, 2, 3])
    log.do(Join(member(4)))
    log.leave(4)
    assert log.of(4).state == AWAY_LEAVING
    log.do(Remove(4, log.of(4).version, LEFT, False))


def test_an_evicted_process_does_not_come_back_but_the_next_one_does() -> None:
    log = Log([1, 2, 3])
    assert log.refused(Evict(1, 2)) == OLD_INCARNATION
    log.do(Evict(1, 1))
    assert log.shows()[1:3] == ([2, 3], 2)
    assert log.refused(Activate(1, log.of(1).version, process(1, 1))) == WAS_EVICTED
    assert log.refused(Evict(1, 1)) == UNCHANGED
    log.start(1)
    assert log.of(1).state == ACTIVE


def test_a_process_that_is_away_can_be_evicted() -> None:
    log = Log([1, 2, 3])
    log.away(1)
    log.do(Evict(1, 1))
    assert log.refused(Activate(1, log.of(1).version, process(1, 1))) == WAS_EVICTED


def test_a_removed_disk_joins_only_with_a_new_start() -> None:
    log = Log([1, 2, 3])
    log.away(1)
    log.do(Remove(1, log.of(1).version, FORGOTTEN, False))
    assert log.shows() == ([2, 3], [2, 3], 2, 2)
    assert log.refused(Join(member(1))) == WAS_EVICTED
    log.do(Join(member(1, incarnation=2)))


def test_an_active_member_is_not_removed() -> None:
    log = Log([1, 2, 3])
    assert log.refused(Remove(1, log.of(1).version, FORGOTTEN, True)) == WRONG_STATE
    assert log.refused(Remove(1, 0, FORGOTTEN, True)) == OLD_VERSION


def test_the_last_copy_goes_only_by_force_and_is_listed() -> None:
    log = Log([1, 2, 3], copies=2)
    log.away(1)
    log.away(2)
    assert log.shows() == ([1, 2], [2], 0, 2)
    assert log.refused(Remove(2, log.of(2).version, FORGOTTEN, False)) == LAST_COPY
    result = log.do(Remove(2, log.of(2).version, FORGOTTEN, True))
    assert log.configuration.lost == {0: result.index}
    assert log.shows() == ([1], [], 0, 2)
    assert log.refused(Place([PlaceItem(0, log.version(), [1])])) == INELIGIBLE, "nobody there is up"
    log.start(1)
    assert log.shows() == ([1], [], 0, 2), "nobody is in sync"
    log.place([1, 3])
    assert log.shows() == ([1, 3], [1], 1, 3), "the copy that is left leads, the other learns from it"
    assert log.configuration.lost == {0: result.index}


def test_the_newest_removals_are_remembered() -> None:
    log = Log([1])
    for disk in range(10, 10 + REMOVALS_MAX + 5):
        log.transition.apply_command(log.next, Join(member(disk)))
        log.transition.apply_command(log.next + 1, Remove(disk, log.next, FORGOTTEN, False))
        log.next += 2
    assert len(log.configuration.removed) == REMOVALS_MAX
    assert log.refused(Join(member(15))) == WAS_EVICTED
    log.do(Join(member(14)))


def test_a_witness_holds_nothing() -> None:
    log = Log([1, 2])
    log.do(Join(member(3, kind=WITNESS)))
    log.start(3)
    assert log.refused(Place([PlaceItem(0, log.version(), [1, 2, 3])])) == INELIGIBLE


# Branches


def branched(log: Log, disk: int, branches: list[int]) -> Result:
    """Let a member come back from another lineage."""
    return log.do(Activate(disk, log.of(disk).version, process(log.of(disk).incarnation + 1, disk), 0, branches))


def test_a_copy_from_another_lineage_leaves_the_isr_and_is_a_branch() -> None:
    log = Log([1, 2, 3, 4], partitions=3)
    assert branched(log, 1, [0, 2]).partitions == [0, 1, 2]
    assert log.configuration.branches == {0: [1], 2: [1]}
    assert [log.shows(number) for number in (0, 1)] == [([1, 2, 3], [2, 3], 2, 2), ([1, 2, 3], [1, 2, 3], 1, 2)]
    branched(log, 4, [0, 1])
    assert log.shows(0) == ([1, 2, 3, 4], [2, 3], 2, 3), "it becomes a replica, and the same leader begins anew"
    assert log.configuration.branches == {0: [1, 4], 1: [4], 2: [1]}


def test_the_only_copy_in_sync_is_the_partition_whatever_it_has() -> None:
    log = Log([1, 2, 3], copies=2)
    log.away(1)
    log.away(2)
    branched(log, 1, [0])
    assert (log.shows()[1:3], log.configuration.branches) == (([2], 0), {0: [1]}), "2 is away, and alone in sync"
    branched(log, 2, [0])
    assert (log.shows()[1:3], log.configuration.branches) == (([2], 2), {0: [1]})
    epoch = log.shows()[3]
    branched(log, 2, [0])
    assert log.shows()[1:] == ([2], 2, epoch + 1)


def test_what_nobody_has_in_sync_begins_with_a_copy_from_another_lineage() -> None:
    log = Log([1, 2, 3], copies=1)
    log.away(1)
    log.do(Remove(1, log.of(1).version, FORGOTTEN, True))
    assert log.shows() == ([], [], 0, 1)
    branched(log, 2, [0])
    assert (log.shows(), log.configuration.branches) == (([2], [2], 2, 2), {})
    branched(log, 3, [0])
    assert log.configuration.branches == {0: [3]}


def test_a_branch_ends_when_it_is_in_sync() -> None:
    log = Log([1, 2, 3])
    for disk in (2, 3):
        branched(log, disk, [0])
    log.do(log.isr([1, 2]))
    assert log.configuration.branches == {0: [3]}
    log.do(log.isr([1, 2, 3]))
    assert log.configuration.branches == {}


def test_a_branch_ends_with_its_replica() -> None:
    log = Log([1, 2, 3])
    for disk in (2, 3):
        branched(log, disk, [0])
    log.place([3, 1])
    assert (log.shows()[0], log.configuration.branches) == ([3, 1], {0: [3]})
    log.leave(3)
    assert log.refused(Remove(3, log.of(3).version, LEFT, True)) == HOLDS_COPIES
    log.away(3)
    assert log.refused(Remove(3, log.of(3).version, LEFT, False)) == UNMERGED
    log.do(Remove(3, log.of(3).version, LEFT, True))
    assert (log.shows()[0], log.configuration.branches) == ([1], {})


@pytest.mark.parametrize("incarnation", [1, 2])
def test_if_one_of_several_has_changed_none_is_marked_as_away(incarnation: int) -> None:
    """What was known of 2 when this was proposed is outdated, but not that it is dead: 1 must not leave it in sync."""
    log = Log([1, 2, 3], copies=2)
    stale = MarkAway(2, incarnation, log.of(2).version, ENDED)
    log.do(Strain(2, 1, log.of(2).version, True, False))
    together = MarkAway(1, 1, log.of(1).version, ENDED, [stale])
    assert log.refused(together) == (OLD_VERSION if incarnation == 1 else OLD_INCARNATION)
    assert log.shows() == ([1, 2], [1, 2], 1, 1)
    together = MarkAway(1, 1, log.of(1).version, ENDED, [MarkAway(2, 1, log.of(2).version, ENDED)])
    log.do(together)
    assert log.shows() == ([1, 2], [1, 2], 0, 1)


def recovering() -> Log:
    """2, then 3 and then 1 went away; 1 was forgotten, and 2 and 3, of which 3 has more, are placed together."""
    log = Log([1, 2, 3, 4])
    for disk in (2, 3, 1):
        log.away(disk)
    log.start(2)
    log.do(Remove(1, log.of(1).version, FORGOTTEN, True))
    assert log.refused(Place([PlaceItem(0, log.version(), [2, 3])])) == INELIGIBLE, "3 may have more, and is away"
    log.start(3)
    assert log.refused(Place([PlaceItem(0, log.version(), [2, 4])])) == INELIGIBLE, "3 may have more"
    log.place([2, 3, 4])
    assert log.shows() == ([2, 3, 4], [2, 3], 2, 2), "4 has nothing"
    return log


def test_what_is_left_of_a_lost_partition_waits_for_each_other_until_it_was_compared() -> None:
    """If 2 went on while 3 is away, it would overwrite what was acknowledged while 3 was in sync, and 2 was not."""
    log = recovering()
    log.away(3)
    assert log.shows() == ([2, 3, 4], [2, 3], 0, 2)
    assert log.refused(Lead(0, log.version(), 2)) == INELIGIBLE
    log.away(2)
    log.start(2)
    assert log.shows() == ([2, 3, 4], [2, 3], 0, 2)
    log.start(3)
    assert log.shows() == ([2, 3, 4], [2, 3], 2, 3), "now it is compared"


def test_a_recovery_ends_with_the_word_of_the_leader() -> None:
    log = recovering()
    assert log.refused(Place([PlaceItem(0, log.version(), [2, 4])])) == INELIGIBLE
    log.do(log.isr([2, 3]))
    assert log.configuration.recovering == {}
    assert log.refused(log.isr([2, 3])) == UNCHANGED
    log.away(3)
    assert log.shows() == ([2, 3, 4], [2], 2, 2)


def test_a_recovery_goes_on_without_a_copy_that_is_unfit_or_forgotten() -> None:
    log = recovering()
    log.do(Withdraw(2, log.of(2).incarnation, [0], []))
    assert log.shows() == ([2, 3, 4], [3], 3, 3), "2 has seen that it is behind"
    log = recovering()
    log.away(3)
    assert log.refused(Remove(3, log.of(3).version, FORGOTTEN, False)) == LAST_COPY, "3 may have more"
    log.do(Remove(3, log.of(3).version, FORGOTTEN, True))
    assert log.shows() == ([2, 4], [2], 2, 3)


def test_a_member_that_begins_anew_while_it_leads_a_recovery_leads_it_on() -> None:
    log = recovering()
    log.start(2)
    assert log.shows() == ([2, 3, 4], [2, 3], 2, 3)
    log.start(3)
    assert log.shows() == ([2, 3, 4], [2, 3], 2, 3)
    assert list(log.configuration.recovering) == [0]


def test_a_lost_partition_that_begins_with_a_branch_has_merged_it() -> None:
    log = Log([1, 2, 3], copies=2)
    log.away(2)
    branched(log, 3, [0])
    branched(log, 2, [0])
    log.away(1)
    log.do(Remove(1, log.of(1).version, FORGOTTEN, True))
    assert (log.shows()[:2], log.configuration.branches) == (([2, 3], []), {0: [2, 3]})
    log.place([3, 2])
    assert (log.shows()[:3], log.configuration.branches) == (([3, 2], [3], 3), {0: [2]})


def test_a_branch_of_a_lost_partition_does_not_replace_what_is_left_of_it() -> None:
    """1 and 2 have what was acknowledged here, 4 what was acknowledged at another side; 3 was the last in sync."""
    log = Log([1, 2, 3, 4])
    for disk in (1, 2, 3):
        log.away(disk)
    log.do(Remove(3, log.of(3).version, FORGOTTEN, True))
    log.start(1)
    branched(log, 4, [0])
    assert log.shows()[:3] == ([1, 2, 4], [], 0), (
        "2 is away: what it has may be the newest of what was acknowledged here"
    )
    log.start(2)
    log.place([1, 2, 4])
    assert (log.shows()[:3], log.configuration.branches) == (([1, 2, 4], [1, 2], 1), {0: [4]})


def test_a_branch_leads_where_what_is_left_of_a_lost_partition_was_never_filled() -> None:
    """1 was the last in sync, and 3 was to be filled from it; 2 had all, and has gone on at another side."""
    log = Log([1, 2, 3], copies=2)
    log.away(2)
    log.place([1, 3])
    log.away(1)
    log.do(Remove(1, log.of(1).version, FORGOTTEN, True))
    log.place([3])
    nothing = Withdraw(3, 1, [0], [])
    assert log.refused(nothing) == LAST_COPY, "nobody else has anything"
    branched(log, 2, [0])
    assert (log.shows(), log.configuration.branches) == (([3, 2], [3], 3, 3), {0: [2]})
    log.away(2)
    assert log.refused(nothing) == LAST_COPY, "it is out of reach"
    log.start(2)
    log.do(nothing)
    assert (log.shows(), log.configuration.branches) == (([3, 2], [2], 2, 4), {})


def test_a_last_copy_in_sync_is_not_replaced_by_a_branch() -> None:
    log = Log([1, 2, 3], copies=2)
    log.away(2)
    branched(log, 2, [0])
    log.away(3)
    assert log.shows()[:3] == ([1, 2], [1], 1)
    assert log.refused(Withdraw(1, 1, [0], [])) == LAST_COPY, "it was filled, and was never given up"


def test_a_branch_outlives_the_processes_of_its_member() -> None:
    log = Log([1, 2, 3])
    branched(log, 3, [0])
    version = log.version()
    log.away(3)
    log.start(3)
    assert (log.configuration.branches, log.version()) == ({0: [3]}, version)
    repeated = Activate(3, log.of(3).version, process(log.of(3).incarnation, 3), 0, [0])
    assert log.refused(repeated) == UNCHANGED


def test_nobody_is_added_to_an_isr_who_has_branched_since() -> None:
    log = Log([1, 2, 3])
    log.away(3)
    log.start(3)
    for _ in range(2):
        seen = log.isr([1, 2, 3])
        log.away(3)  # it is cut off, and acknowledges writes in another lineage
        log.do(Activate(3, log.of(3).version, process(log.of(3).incarnation, 3), 0, [0]))
        assert log.refused(seen) == OTHER_LEADER, "the same process, but its copy has changed"


def test_a_start_with_branches_that_make_no_sense_is_refused() -> None:
    disks = list(range(1, 67))
    log = Log(disks, partitions=2, copies=3)
    log.do(Join(member(70, kind=WITNESS)))
    assert log.refused(Activate(70, 0, process(2, 70), 0, [0])) == INVALID
    assert log.refused(Activate(1, 0, process(2, 1), 0, [1, 0])) == INVALID
    assert log.refused(Activate(1, 0, process(2, 1), 0, [1, 1])) == INVALID
    assert log.refused(Activate(1, 0, process(2, 1), 99, [0, 2])) == UNKNOWN_PARTITION
    log.do(Place([PlaceItem(1, log.version(1), disks[:REPLICAS_MAX])]))
    assert log.refused(Activate(66, 0, process(2, 66), 99, [0, 1])) == NO_ROOM
    log.do(Activate(64, 0, process(2, 64), 0, [0, 1]))
    assert log.configuration.branches == {0: [64], 1: [64]}


# Partitions


def test_placements_are_judged_one_by_one() -> None:
    log = Log([1, 2, 3], partitions=3, copies=2)
    log.do(Lead(1, log.version(1), 2))
    items = [PlaceItem(0, 1, [1, 2, 3]), PlaceItem(1, 1, [1, 2, 3]), PlaceItem(7, 1, [1]), PlaceItem(2, 1, [1, 2])]
    result = log.do(Place(items))
    assert result.partitions == [0]
    assert result.skipped == [(1, OLD_VERSION), (7, UNKNOWN_PARTITION), (2, UNCHANGED)]
    assert log.refused(Place([])) == UNCHANGED


@pytest.mark.parametrize(
    ("replicas", "reason"), [([], INVALID), ([1, 1], INVALID), ([1, 9], UNKNOWN_DISK), ([3], LAST_COPY)]
)
def test_a_placement_that_makes_no_sense_is_refused(replicas: list[int], reason: int) -> None:
    log = Log([1, 2, 3], copies=2)
    assert log.refused(Place([PlaceItem(0, log.version(), replicas)])) == reason


def test_a_placement_without_the_leader_moves_the_leadership() -> None:
    log = Log([1, 2, 3])
    log.place([3, 2])
    assert log.shows() == ([3, 2], [3, 2], 3, 2)


def test_a_placement_in_another_order_keeps_the_leader() -> None:
    log = Log([1, 2, 3])
    log.place([3, 2, 1])
    assert log.shows() == ([3, 2, 1], [3, 2, 1], 1, 1)


def test_the_isr_is_changed_by_its_leader_alone() -> None:
    log = Log([1, 2, 3])
    old = log.isr([1, 2])
    log.do(log.isr([1, 3]))
    assert log.refused(old) == OLD_VERSION
    wrong = log.isr([1, 2, 3])
    wrong.leader = 3
    assert log.refused(wrong) == OTHER_LEADER
    wrong = log.isr([1, 2, 3])
    wrong.items[0].leader_epoch += 1
    assert log.refused(wrong) == OTHER_LEADER
    assert log.refused(log.isr([3])) == INVALID, "without its leader"
    assert log.refused(log.isr([1, 3, 3])) == INVALID
    assert log.refused(log.isr([3, 1])) == UNCHANGED
    wrong = log.isr([1, 3])
    wrong.items[0].partition = 5
    assert log.refused(wrong) == UNKNOWN_PARTITION


def test_isrs_are_judged_one_by_one() -> None:
    log = Log([1, 2, 3], partitions=4)
    log.do(Lead(3, log.version(3), 2))
    items = [log.isr(disks, number).items[0] for number, disks in enumerate([[1], [1, 2], [1, 2, 3], [1, 2]])]
    items += [IsrItem(9, 1, 1, [1]), items[0], IsrItem(1, 1, log.version(1), [1, 3])]
    result = log.do(AlterIsr(1, items, {1: 2, 2: 2, 3: 2}))
    assert result.partitions == [0, 1]
    assert result.skipped == [
        (2, UNCHANGED),
        (3, OTHER_LEADER),
        (9, UNKNOWN_PARTITION),
        (0, OLD_VERSION),
        (1, OLD_VERSION),
    ]
    assert [log.shows(number)[1] for number in range(4)] == [[1], [1, 2], [1, 2, 3], [1, 2, 3]]
    assert log.refused(AlterIsr(1, items[4:6], {1: 2})) == UNKNOWN_PARTITION, "the first reason"
    assert log.refused(AlterIsr(1, [], {})) == UNCHANGED


def test_all_isrs_of_a_leader_are_one_small_entry() -> None:
    disks = [LARGE + number for number in range(200)]
    log = Log(disks, partitions=256)
    items = [log.isr(disks[:2], number).items[0] for number in range(256)]
    command = AlterIsr(disks[0], items, dict.fromkeys(disks[:2], 1))
    assert len(encode_command(command)) <= 256 * 8 + 64
    assert log.do(command).partitions == list(range(256))


def test_only_what_is_up_is_added_to_the_isr() -> None:
    log = Log([1, 2, 3])
    log.join(4)
    assert log.refused(log.isr([1, 2, 3, 4])) == INELIGIBLE, "it is no replica"
    log.away(3)
    assert log.refused(log.isr([1, 2, 3])) == INELIGIBLE, "it is away"
    seen = log.isr([1, 2, 3])
    log.start(3)
    assert log.refused(seen) == INELIGIBLE, "it has started again since it caught up"
    log.away(3)
    seen = log.isr([1, 2])
    seen.started[3] = log.of(3).started
    seen.items[0].isr = [1, 2, 3]
    log.do(Activate(3, log.of(3).version, log.of(3).process))
    assert log.refused(seen) == INELIGIBLE, "it was away since it caught up, with the same process"
    log.leave(3)
    log.do(log.isr([1, 2, 3]))


def test_leadership_goes_to_a_member_in_sync() -> None:
    log = Log([1, 2, 3])
    log.do(log.isr([1, 3]))
    assert log.refused(Lead(0, log.version(), 2)) == NOT_IN_SYNC
    assert log.refused(Lead(0, log.version(), 1)) == UNCHANGED
    assert log.refused(Lead(0, 1, 3)) == OLD_VERSION
    assert log.refused(Lead(4, 1, 3)) == UNKNOWN_PARTITION
    log.do(Lead(0, log.version(), 3))
    assert log.shows() == ([1, 2, 3], [1, 3], 3, 2)


# The size of a death


def test_a_death_is_one_small_entry() -> None:
    disks = [LARGE + number for number in range(200)]
    log = Log(disks, partitions=256)
    leader = log.of(disks[0])
    command = MarkAway(leader.disk, leader.incarnation, leader.version, ENDED)
    assert len(encode_command(command)) <= 32
    assert {log.shows(number)[2] for number in range(256)} == {leader.disk}, "the worst case: it led everything"
    result = log.do(command)
    assert result.partitions == list(range(256))
    assert {log.shows(number)[2] for number in range(256)} == {disks[1]}


# Settings and features


def test_a_setting_is_changed_by_one_that_knows_it() -> None:
    log = Log([1])
    first = log.do(Put("users/a", b"1", ABSENT, "root"))
    assert first.keys == ["users/a"]
    assert log.refused(Put("users/a", b"2", ABSENT, "root")) == OTHER_NUMBER
    second = log.do(Put("users/a", b"2", first.index, "eve"))
    assert log.refused(Put("users/a", b"3", first.index, "root")) == OTHER_NUMBER
    assert log.refused(Delete("users/a", first.index, "root")) == OTHER_NUMBER
    third = log.do(Put("users/a", b"3", ANY, "root"))
    last = log.do(Delete("users/a", third.index, "root"))
    assert log.refused(Delete("users/a", ANY, "root")) == UNCHANGED
    assert [(c.number, c.author, c.deleted) for c in log.configuration.settings.changes] == [
        (first.index, "root", False),
        (second.index, "eve", False),
        (third.index, "root", False),
        (last.index, "root", True),
    ]
    assert log.configuration.settings.total_bytes == 0


def test_settings_are_bounded() -> None:
    log = Log([1])
    assert log.refused(Put("", b"", ANY, "a")) == INVALID
    assert log.refused(Put("k" * (KEY_BYTES_MAX + 1), b"", ANY, "a")) == INVALID
    assert log.refused(Put("k", bytes(VALUE_BYTES_MAX + 1), ANY, "a")) == INVALID
    assert log.refused(Put("k", b"", ANY, "a" * 257)) == INVALID
    fit = TOTAL_BYTES_MAX // (VALUE_BYTES_MAX + 3)
    for number in range(fit):
        result = log.transition.apply_command(log.next, Put(f"{number:03}", bytes(VALUE_BYTES_MAX), ABSENT, "a"))
        assert result.is_accepted()
        log.next += 1
    last = Put("999", bytes(VALUE_BYTES_MAX), ABSENT, "a")
    assert log.transition.apply_command(log.next, last).refused == NO_ROOM
    smaller = Put("000", b"", ANY, "a")
    assert log.transition.apply_command(log.next + 1, smaller).is_accepted()
    assert log.transition.apply_command(log.next + 2, last).is_accepted(), "what was freed can be used"


def test_the_newest_changes_of_settings_are_kept() -> None:
    log = Log([1])
    for number in range(CHANGES_MAX + 3):
        log.transition.apply_command(log.next, Put("k", b"", ANY, f"author{number}"))
        log.next += 1
    changes = log.configuration.settings.changes
    assert (len(changes), changes[0].author) == (CHANGES_MAX, "author3")


def test_features_need_all_members_and_stay() -> None:
    log = Log([1, 2])
    log.do(Features(2))
    assert log.refused(Features(2)) == UNCHANGED
    assert log.refused(Features(8)) == LACKS_FEATURES
    log.do(Features(4))
    assert log.configuration.features == TOGETHER_BIT + 2 + 4
    old = ClusterMember(5, "old", 0, process(1, 5, features=1))
    assert log.refused(Join(old)) == LACKS_FEATURES
    assert log.refused(Activate(1, 0, process(2, 1, features=ALL_FEATURES - 2))) == LACKS_FEATURES
    assert STATES[log.of(1).state] == "active"

"""Views of configurations: drawn logs against the reference, and each field by itself."""

from __future__ import annotations

import pytest

from folkmoot.membership.cluster_member import WITNESS
from folkmoot.membership.command import (
    CUT_OFF,
    ENDED,
    FORGOTTEN,
    SILENT,
    Activate,
    AlterIsr,
    Command,
    IsrItem,
    Join,
    Lead,
    Leave,
    MarkAway,
    Place,
    PlaceItem,
    Put,
    Remove,
    Strain,
    encode_command,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.fork import fork_of
from folkmoot.membership.holding import COMPLETE, NONE, PARTIAL, Holding
from folkmoot.membership.projection import branches_of, epoch_of, view_of
from folkmoot.membership.transition import ACCEPTED, Transition
from folkmoot.membership.view import View
from folkmoot.merge.side import last_shared_counter
from folkmoot.peer.member import ACTIVE, LEAVING, Member
from folkmoot.store.epoch import counter_of, tag_of
from tests.membership.reference import Drawer, Reference, founded, member, process


class Story:
    """A configuration to which commands are applied."""

    def __init__(self, configuration: ClusterConfiguration | None = None) -> None:
        self.transition = Transition(configuration or ClusterConfiguration())

    @property
    def configuration(self) -> ClusterConfiguration:
        return self.transition.configuration

    def apply(self, command: Command) -> int:
        return self.transition.apply(self.configuration.index + 1, encode_command(command)).refused

    def do(self, command: Command) -> View:
        assert self.apply(command) == ACCEPTED
        return self.view()

    def view(self) -> View:
        return view_of(self.configuration)

    def place(self, replicas: list[int], partition: int = 0) -> View:
        return self.do(Place([PlaceItem(partition, self.configuration.partitions[partition].version, replicas)]))

    def away(self, disk: int, why: int = ENDED) -> View:
        one = self.configuration.members[disk]
        return self.do(MarkAway(disk, one.incarnation, one.version, why))

    def start(self, disk: int, seen: int = 0, branches: list[int] | None = None) -> View:
        one = self.configuration.members[disk]
        return self.do(Activate(disk, one.version, process(one.incarnation + 1, disk), seen, branches))

    def isr(self, disks: list[int], partition: int = 0) -> View:
        state = self.configuration.partitions[partition]
        started = {disk: self.configuration.members[disk].started for disk in disks}
        return self.do(AlterIsr(state.leader, [IsrItem(partition, state.leader_epoch, state.version, disks)], started))


def story(disks: list[int], partitions: int = 1) -> Story:
    found = Story()
    found.do(founded(disks, partitions))
    for number in range(partitions):
        found.place(disks[:3], number)
    return found


# Drawn logs


def known_of(members: list[Member]) -> list[object]:
    """Everything that views say about members."""
    found: list[object] = []
    for one in members:
        found += [one.node_id, one.incarnation, one.address, one.zone, one.state, one.wire_min, one.wire_max]
        found += [one.software, one.disk, one.host, one.witness]
    return found


def fields(view: View) -> list[object]:
    """All fields of a view."""
    found = [view.epoch, known_of(view.members), view.replicas, view.learners, view.known, known_of(view.absent)]
    found += [view.branches, view.bases, view.lineage, view.lasts, repr(view.losses), view.crowded]
    return [*found, view.leader_epochs, view.is_trunk]


def check(view: View, reference: Reference) -> None:
    """Compare the roles with the reference's."""
    data = {one["name"]: disk for disk, one in reference.members.items() if one["kind"] == 0 and one["started"]}
    assert [one.node_id for one in view.members] == sorted(name for name in data if reference.up(data[name]))
    assert view.known == sorted(data)
    assert [one.node_id for one in view.absent] == sorted(name for name in data if not reference.up(data[name]))
    for number, partition in enumerate(reference.partitions):
        replicas = [data[name] for name in view.replicas[number]]
        learners = [data[name] for name in view.learners[number]]
        apart = [data[name] for name in view.branches.get(number, [])]
        if not partition["leader"]:
            assert (replicas, learners, apart) == ([], [], [])
            isr = sorted(reference.members[disk]["name"] for disk in partition["isr"])
            assert view.losses.holders(number) == isr
            assert (number in view.losses.damaged) == partition["damaged"]
            continue
        assert number not in view.losses.missing
        assert replicas[0] == partition["leader"]
        assert set(replicas) == partition["isr"]
        assert set(learners) == {disk for disk in partition["replicas"] if reference.up(disk)} - partition["isr"]
        assert set(apart) == {disk for disk in partition["branches"] if reference.up(disk)}
        assert learners[: len(apart)] == apart, "what has to be merged comes first"
        assert len(set(replicas + learners)) == len(replicas + learners)


@pytest.mark.parametrize("part", range(4))
def test_roles_are_those_of_the_reference_and_change_only_with_the_epoch(part: int) -> None:
    led = merged = 0
    for seed in range(part * 6, part * 6 + 6):
        drawer, reference = Drawer(seed), Reference()
        told = Story()
        begin = founded(drawer.disks[:5])
        told.do(begin)
        reference.apply(1, begin)
        before = told.view()
        for _ in range(250):
            command = drawer.draw(told.configuration)
            accepted = told.apply(command) == ACCEPTED
            assert reference.apply(told.configuration.index, command) == accepted
            view = told.view()
            assert view.epoch == epoch_of(told.configuration)
            if told.configuration.changed == counter_of(before.epoch):
                assert fields(view) == fields(before), "without another epoch nothing has changed"
            else:
                assert counter_of(view.epoch) > counter_of(before.epoch)
            check(view, reference)
            led += len([replicas for replicas in view.replicas if replicas])
            merged += len(view.branches)
            before = view
    assert led > 1000
    assert merged > 100


def test_a_setting_changes_no_role() -> None:
    found = story([1, 2, 3])
    before = found.view()
    after = found.do(Put("key", b"value", -1, "root"))
    assert fields(after) == fields(before)
    assert found.configuration.index > counter_of(after.epoch)
    later = found.away(3)
    assert counter_of(later.epoch) == found.configuration.changed > counter_of(after.epoch)
    assert tag_of(later.epoch) == tag_of(after.epoch), "epochs of one lineage are ordered"


# Fields


def test_a_partition_is_led_by_its_leader_and_kept_by_its_isr() -> None:
    found = story([1, 2, 3, 4], partitions=2)
    assert found.view().replicas == [["node1", "node2", "node3"]] * 2
    found.isr([1, 3])
    view = found.do(Lead(0, found.configuration.partitions[0].version, 3))
    assert (view.replicas[0], view.learners[0]) == (["node3", "node1"], ["node2"])
    assert found.away(2).learners[0] == [], "who is away learns nothing"
    assert view.branches == {}


def test_a_leader_that_comes_back_learns_until_it_is_asked_for() -> None:
    found = story([2, 1, 3])
    assert found.view().leader_of(0) == "node2"
    assert found.away(2).replicas[0] == ["node1", "node3"]
    view = found.start(2)
    assert (view.replicas[0], view.learners[0]) == (["node1", "node3"], ["node2"])
    view = found.isr([1, 2, 3])
    assert (view.replicas[0], view.learners[0]) == (["node1", "node2", "node3"], [])


def test_a_partition_without_a_leader_is_absent() -> None:
    found = story([1, 2, 3], partitions=2)
    found.isr([1])
    view = found.away(1)
    assert (view.replicas, view.learners) == ([[], ["node2", "node3"]], [[], []])
    assert view.leader_of(0) == ""
    assert view.losses.missing == {0: ["node1"]}
    assert not view.is_whole()
    assert view.anchors() == view.lasts["node1"]
    assert found.start(1).losses.missing == {}


def test_a_partition_that_was_given_up_is_told() -> None:
    found = story([1, 2, 3], partitions=2)
    found.isr([1])
    found.isr([1], 1)
    found.away(1)
    view = found.do(Remove(1, found.configuration.members[1].version, FORGOTTEN, True))
    assert [loss.partitions for loss in view.losses.past] == [2]
    assert view.losses.missing == {}
    assert view.known == ["node2", "node3"], "who is no member comes back as another one"


def test_members_are_those_with_data_that_are_up() -> None:
    found = Story()
    found.do(founded([1, 2], witnesses=[7]))
    found.do(Join(member(3)))
    assert [one.node_id for one in found.view().members] == ["node1", "node2"]
    assert found.view().known == ["node1", "node2"], "who has never been up has nothing"
    view = found.start(3)
    assert [one.node_id for one in view.members] == ["node1", "node2", "node3"]
    last, started = view.members[2], found.configuration.members[3].process
    assert (last.incarnation, last.disk) == (2, 3)
    assert (last.address, last.zone, last.host) == (started.address, started.zone, started.host)
    assert (last.wire_min, last.wire_max, last.software) == (started.wire_min, started.wire_max, started.build)
    assert view.is_whole()
    assert found.configuration.members[7].kind == WITNESS


def test_a_member_that_leaves_is_a_leaving_one_also_when_it_is_away() -> None:
    found = story([1, 2, 3])
    found.do(Join(member(4)))
    found.start(4)
    one = found.configuration.members[2]
    view = found.do(Leave(2, one.version))
    assert [m.state for m in view.members] == [ACTIVE, LEAVING, ACTIVE, ACTIVE]
    view = found.away(2)
    assert [(m.node_id, m.state) for m in view.absent] == [("node2", LEAVING)]


def test_who_has_come_up_since_a_view_is_new_to_it_with_the_same_process_too() -> None:
    found = story([1, 2, 3])
    before = found.view()
    found.away(2, SILENT)
    one = found.configuration.members[2]
    view = found.do(Activate(2, one.version, one.process))
    assert view.bases["node1"] == before.bases["node1"] < before.epoch < view.bases["node2"] == view.epoch
    again, past = view.member("node2"), before.member("node2")
    assert again is not None
    assert past is not None
    assert again.incarnation == past.incarnation


def test_an_anchor_is_the_last_epoch_before_a_member_went_away() -> None:
    found = story([1, 2, 3])
    before = found.view()
    view = found.away(2)
    assert view.anchors() == [before.epoch], "nothing else had changed"
    found.away(3)
    assert found.view().lasts == {"node2": [before.epoch], "node3": [view.epoch]}


def test_who_is_strained_is_crowded() -> None:
    found = story([1, 2, 3])
    assert found.do(Strain(3, 1, found.configuration.members[3].version, False, True)).crowded == ["node3"]
    assert found.do(Strain(2, 1, found.configuration.members[2].version, True, False)).crowded == ["node2", "node3"]
    assert found.away(3).crowded == ["node2"]


def test_the_trunk_is_the_lineage_that_is_no_fork() -> None:
    found = story([1, 2, 3])
    found.away(2)
    assert found.away(3).is_trunk, "voters and not members make a majority"
    fork = view_of(fork_of(story([1, 2, 3]).configuration, 99, [(3, 1)]))
    assert not fork.is_trunk, "its two members are no quorum of the voters, or it would be no fork"


# Lineages


def test_epochs_of_lineages_differ_and_shared_ones_are_equal() -> None:
    found = story([1, 2, 3])
    found.away(3)
    fork = fork_of(found.configuration, 99, [(2, 1)])
    trunk = found.view()
    view = view_of(fork)
    assert tag_of(view.epoch) != tag_of(trunk.epoch)
    assert view.lineage == [trunk.epoch]
    assert view.lasts["node3"] == trunk.lasts["node3"], "it went away before"
    assert view.lasts["node2"] == [trunk.epoch], "it was in the last shared one"
    assert view.bases["node1"] == trunk.bases["node1"]
    second = view_of(fork_of(fork, 100, []))
    assert second.lineage == [view.epoch, trunk.epoch]
    assert second.lasts == view.lasts


def test_sides_of_a_split_share_what_was_before_the_fork() -> None:
    found = story([1, 2, 3])
    before = found.view()
    view = view_of(fork_of(found.configuration, 99, [(1, 1)]))
    found.away(2)
    trunk = found.away(3)
    assert view.epoch > before.epoch
    assert last_shared_counter(trunk, view.ancestry()) == counter_of(before.epoch)
    assert last_shared_counter(view, trunk.ancestry()) == counter_of(before.epoch)


def held(view: View, seq: int = 1, state: int = COMPLETE) -> Holding:
    return Holding(state, view.epoch, seq, [(view.epoch, 0)])


def test_what_another_lineage_has_changed_is_a_branch() -> None:
    found = story([1, 2, 3], partitions=6)
    shared = found.view()
    fork = Story(fork_of(found.configuration, 99, [(2, 1), (3, 1)]))
    apart = fork.view()
    found.away(1, CUT_OFF)
    trunk = found.view()
    copies = [held(apart), held(shared), held(trunk), held(apart, 0), held(apart, 3, PARTIAL), Holding(NONE, 0, 0, [])]
    assert branches_of(copies, found.configuration) == [0]
    assert branches_of(copies, fork.configuration) == [2], "the trunk has gone on after the fork"
    assert branches_of([held(apart)], fork_of(fork.configuration, 100, [])) == []
    other = view_of(fork_of(found.configuration, 101, []))
    assert branches_of([held(shared), held(other)], found.configuration) == [1], "of a lineage that is unknown here"
    assert branches_of([held(shared), held(other)], fork.configuration) == [1]
    view = found.start(1, counter_of(apart.epoch), branches_of(copies, found.configuration))
    assert view.branches == {0: ["node1"]}
    assert view.learners[0] == ["node1"]
    assert [now - then for now, then in zip(view.leader_epochs, trunk.leader_epochs, strict=True)] == [1, 0, 0, 0, 0, 0]
    assert view.epoch > apart.epoch

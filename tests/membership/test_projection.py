"""Views of configurations: what each field of a view says of the members and partitions of the log."""

from __future__ import annotations

from folkmoot.membership.cluster_member import DATA, WITNESS, ClusterMember, Process
from folkmoot.membership.command import (
    SILENT,
    Activate,
    AlterIsr,
    Command,
    Evict,
    Found,
    IsrItem,
    Join,
    Leave,
    MarkAway,
    Place,
    PlaceItem,
    Put,
    Strain,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.fork import fork_of
from folkmoot.membership.holding import COMPLETE, NONE, Holding
from folkmoot.membership.projection import branches_of, epoch_of, view_of
from folkmoot.membership.transition import Transition
from folkmoot.membership.view import View
from folkmoot.merge.side import fork_of as shared_counter
from folkmoot.peer.member import ACTIVE, LEAVING
from folkmoot.store.epoch import counter_of, tag_of

TRUNK = 1000


def process(disk: int, incarnation: int = 1) -> Process:
    """A process as it starts."""
    return Process(incarnation, f"n{disk}:7883", f"z{disk}", f"h{disk}", 1, 2, "1.0")


def member(disk: int, kind: int = DATA) -> ClusterMember:
    """A member as it joins."""
    return ClusterMember(disk, f"n{disk}", kind, process(disk))


class Log:
    """A configuration to which commands are applied."""

    def __init__(self, count: int, partitions: int = 2) -> None:
        self.configuration = ClusterConfiguration()
        members = [member(disk) for disk in range(1, count + 1)]
        self.apply(Found(7, TRUNK, 0, 0, members, partitions, 3))

    def apply(self, command: Command) -> None:
        """Apply a command, which must be accepted."""
        result = Transition(self.configuration).apply_command(self.configuration.index + 1, command)
        assert result.is_accepted(), result

    def place(self, number: int, replicas: list[int]) -> None:
        """Place a partition."""
        version = self.configuration.partitions[number].version
        self.apply(Place([PlaceItem(number, version, replicas)]))

    def away(self, disk: int) -> None:
        """Take a member for away."""
        one = self.configuration.members[disk]
        self.apply(MarkAway(disk, one.incarnation, one.version, SILENT))

    def view(self) -> View:
        """Return the view."""
        return view_of(self.configuration)


def test_members_are_those_that_are_up_and_hold_data() -> None:
    log = Log(3)
    log.apply(Join(member(4)))
    log.apply(Join(member(5, WITNESS)))
    witness = log.configuration.members[5]
    log.apply(Activate(5, witness.version, process(5)))
    log.apply(Leave(2, log.configuration.members[2].version))
    view = log.view()
    assert [one.node_id for one in view.members] == ["n1", "n2", "n3"]
    assert [one.state for one in view.members] == [ACTIVE, LEAVING, ACTIVE]
    first = view.members[0]
    assert (first.address, first.zone, first.host, first.wire_max, first.software, first.disk) == (
        "n1:7883",
        "z1",
        "h1",
        2,
        "1.0",
        1,
    )
    assert view.known == ["n1", "n2", "n3"]
    assert view.is_whole()
    assert view.has_majority()
    assert view.has_majority_or_tie()


def test_replicas_are_in_sync_and_the_leader_is_the_first() -> None:
    log = Log(3)
    log.place(0, [2, 1, 3])
    log.away(2)
    log.apply(Activate(2, log.configuration.members[2].version, process(2, 2)))
    view = log.view()
    assert view.replicas == [["n1", "n3"], []]
    assert view.learners == [["n2"], []]
    state = log.configuration.partitions[0]
    item = IsrItem(0, state.leader_epoch, state.version, [1, 2, 3])
    starts = {disk: log.configuration.members[disk].started for disk in (1, 2, 3)}
    log.apply(AlterIsr(1, [item], starts))
    view = log.view()
    assert view.replicas[0] == ["n1", "n2", "n3"]
    assert view.learners[0] == []


def test_a_partition_whose_copies_in_sync_are_away_is_absent() -> None:
    log = Log(3)
    log.place(0, [2])
    log.place(1, [1, 3])
    log.away(2)
    view = log.view()
    assert view.replicas == [[], ["n1", "n3"]]
    assert view.leader_of(0) == ""
    assert view.losses.missing == {0: ["n2"]}
    assert [one.node_id for one in view.absent] == ["n2"]
    assert not view.is_whole()


def test_the_epoch_grows_with_roles_and_not_with_settings() -> None:
    log = Log(2)
    before = log.view()
    log.apply(Put("key", b"value", -1, "test"))
    assert log.view().epoch == before.epoch
    log.place(0, [1, 2])
    after = log.view()
    assert after.epoch > before.epoch
    assert tag_of(after.epoch) == tag_of(before.epoch)
    assert counter_of(after.epoch) == log.configuration.changed


def test_a_member_that_came_up_again_is_new_to_all() -> None:
    log = Log(2)
    before = log.view()
    log.away(2)
    log.apply(Activate(2, log.configuration.members[2].version, process(2)))
    view = log.view()
    assert view.bases["n2"] > before.epoch
    assert view.bases["n1"] <= before.epoch


def test_an_anchor_is_before_the_end_of_a_member() -> None:
    log = Log(2)
    log.place(0, [1, 2])
    before = log.view()
    log.away(2)
    view = log.view()
    assert view.lasts == {"n2": [before.epoch]}
    assert view.anchors() == [before.epoch]


def test_strain_and_evictions() -> None:
    log = Log(3)
    one = log.configuration.members[1]
    log.apply(Strain(1, 1, one.version, True, False))
    two = log.configuration.members[2]
    log.apply(Strain(2, 1, two.version, False, True))
    log.apply(Evict(3, 1))
    view = log.view()
    assert view.crowded == ["n1", "n2"]
    assert view.refused == [("n3", 1)]


def test_a_fork_is_no_trunk_and_knows_what_it_shares() -> None:
    log = Log(3)
    log.place(0, [1, 2, 3])
    trunk = log.view()
    fork = fork_of(log.configuration, TRUNK + 1, [(1, 1)])
    view = view_of(fork)
    assert view.has_majority()
    assert not view.has_majority_or_tie()
    assert view.epoch > trunk.epoch
    assert tag_of(view.epoch) != tag_of(trunk.epoch)
    log.away(2)
    log.away(3)
    later = log.view()
    assert shared_counter(later, view.ancestry()) == counter_of(trunk.epoch)
    assert shared_counter(view, later.ancestry()) == counter_of(trunk.epoch)


def test_changes_of_another_lineage_are_branches() -> None:
    log = Log(3, 5)
    fork = fork_of(log.configuration, TRUNK + 1, [(1, 1)])
    shared = fork.ancestors[0][1]
    own = epoch_of(shared + 3, TRUNK)
    holdings = [
        Holding(COMPLETE, epoch_of(shared + 5, TRUNK + 1), 4, []),
        Holding(COMPLETE, own, 4, []),
        Holding(COMPLETE, epoch_of(shared, TRUNK), 4, []),
        Holding(NONE, 0, 0, []),
        Holding(COMPLETE, epoch_of(shared + 5, TRUNK + 9), 4, []),
    ]
    assert branches_of(holdings, log.configuration) == [0, 4]
    assert branches_of(holdings, fork) == [1, 4]


def test_branches_are_learners_that_are_named() -> None:
    log = Log(3)
    log.place(0, [1, 2])
    log.away(2)
    again = Activate(2, log.configuration.members[2].version, process(2), 0, [0])
    log.apply(again)
    view = log.view()
    assert view.replicas[0] == ["n1"]
    assert view.learners[0] == ["n2"]
    assert view.branches == {0: ["n2"]}

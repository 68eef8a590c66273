"""Wrong rules of the configuration: the reference, which states each rule a second time, finds every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from folkmoot.cli.version import is_compiled
from folkmoot.membership import transition as module
from folkmoot.membership.cluster_member import ClusterMember
from folkmoot.membership.command import AlterIsr, Found, MarkAway, PlaceItem, encode_command
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.lifecycle import ACTIVE
from folkmoot.membership.loss import Cost, cost_of
from folkmoot.membership.transition import Result, Transition
from tests.membership.reference import Drawer, LosingDrawer, Reference, founded

pytestmark = pytest.mark.skipif(
    is_compiled(), reason="methods of compiled classes cannot be replaced: the interpreted tests have this"
)

Patch = Callable[[pytest.MonkeyPatch], None]


def joins_beside(patch: pytest.MonkeyPatch) -> None:
    """A disk takes a name that another disk has, which votes and counts under it."""
    patch.setattr(ClusterConfiguration, "named", lambda self, node_id: None)


def votes_at_once(patch: pytest.MonkeyPatch) -> None:
    """A new disk is a member like any other before it has said that it has started."""
    put = Transition._put_member

    def put_active(self: Transition, member: ClusterMember, state: int, result: Result) -> None:
        put(self, member, ACTIVE, result)

    patch.setattr(Transition, "_put_member", put_active)


def elects_any_copy(patch: pytest.MonkeyPatch) -> None:
    """Any replica can lead, in sync or not: a stale copy wins over newer ones."""
    elect = ClusterConfiguration.elect
    patch.setattr(
        ClusterConfiguration, "elect", lambda self, number, replicas, isr: elect(self, number, replicas, replicas)
    )


def begins_empty(patch: pytest.MonkeyPatch) -> None:
    """A partition whose last copy in sync is away begins anew with the replicas that are up."""

    def first_isr(self: Transition, number: int, replicas: list[int], left: list[int]) -> list[int]:
        return self.configuration.able(replicas)

    def place_one(self: Transition, item: PlaceItem) -> int:
        before = self.configuration.partitions[item.partition]
        if before.isr and not self.configuration.able(before.isr):
            self.configuration.partitions[item.partition].isr = []
        return placed(self, item)

    placed = Transition._place_one
    patch.setattr(Transition, "_first_isr", first_isr)
    patch.setattr(Transition, "_place_one", place_one)


def shrinks_to_nothing(patch: pytest.MonkeyPatch) -> None:
    """The last member leaves the ISR when it is away."""
    withdraw = Transition._withdraw

    def withdraw_all(self: Transition, disks: list[int]) -> None:
        withdraw(self, disks)
        for number, partition in enumerate(self.configuration.partitions):
            if partition.isr and all(disk in disks for disk in partition.isr):
                self._put_partition(number, partition.replicas, [], 0, False)

    patch.setattr(Transition, "_withdraw", withdraw_all)


def grows_by_any_leader(patch: pytest.MonkeyPatch) -> None:
    """The ISR grows by the word of a leader that leads no more."""
    alter = Transition._alter_one

    def alter_one(self: Transition, command: AlterIsr, item: Any) -> int:
        command.leader = self.configuration.partitions[item.partition].leader or command.leader
        item.leader_epoch = self.configuration.partitions[item.partition].leader_epoch
        return alter(self, command, item)

    patch.setattr(Transition, "_alter_one", alter_one)


def forgets_versions(patch: pytest.MonkeyPatch) -> None:
    """An order about a member counts although the member has changed since."""
    turn = Transition._turn

    def turn_any(self: Transition, disk: int, version: int, event: int, result: Result) -> int:
        member = self.configuration.members.get(disk)
        return turn(self, disk, version if member is None else member.version, event, result)

    patch.setattr(Transition, "_turn", turn_any)


def returns_from_eviction(patch: pytest.MonkeyPatch) -> None:
    """A process that was put out comes back under the number that was put out."""
    start = Transition._start

    def start_any(self: Transition, command: Any, result: Result) -> int:
        member = self.configuration.members.get(command.disk)
        evicted = 0
        if member is not None:
            evicted, member.evicted = member.evicted, 0
        found = start(self, command, result)
        if member is not None and found != module.ACCEPTED:
            member.evicted = evicted
        return found

    patch.setattr(Transition, "_start", start_any)


def starts_without_features(patch: pytest.MonkeyPatch) -> None:
    """A process starts although it does not know what all others use."""
    start = Transition._start

    def start_any(self: Transition, command: Any, result: Result) -> int:
        command.process.features |= self.configuration.features
        return start(self, command, result)

    patch.setattr(Transition, "_start", start_any)


def gives_up_copies(patch: pytest.MonkeyPatch) -> None:
    """A member is removed without force although nobody else has what it has."""
    patch.setattr(module, "cost_of", lambda configuration, disk: Cost())


def gives_up_branches(patch: pytest.MonkeyPatch) -> None:
    """Changes of another side of a split that are not merged count for nothing when a member is removed."""

    def cost(configuration: ClusterConfiguration, disk: int) -> Cost:
        found = cost_of(configuration, disk)
        found.branches.clear()
        return found

    patch.setattr(module, "cost_of", cost)


def marks_in_part(patch: pytest.MonkeyPatch) -> None:
    """Of members that go together those are marked as away that have not changed since that was proposed."""
    judge = Transition._judge_away

    def judge_away(self: Transition, command: MarkAway) -> int:
        reason = judge(self, command)
        return module.WRONG_STATE if reason in (module.OLD_VERSION, module.OLD_INCARNATION) else reason

    patch.setattr(Transition, "_judge_away", judge_away)


def leftovers_leave(patch: pytest.MonkeyPatch) -> None:
    """What is left of a lost partition leaves the ISR when it is away, also before it was compared with the others."""
    patch.setattr(ClusterConfiguration, "remaining", lambda self, number, isr: self.able(isr))


def leads_uncompared(patch: pytest.MonkeyPatch) -> None:
    """One copy of those that are left leads while another one is away, which may be the newest."""
    patch.setattr(ClusterConfiguration, "is_compared", lambda self, number, isr: True)


def begins_without_one(patch: pytest.MonkeyPatch) -> None:
    """A lost partition begins with those of its copies that are up."""
    leftovers = Transition._leftovers

    def those_up(self: Transition, number: int) -> list[int]:
        return self.configuration.able(leftovers(self, number))

    patch.setattr(Transition, "_leftovers", those_up)


def differs(seed: int, loses: bool) -> bool:
    """Whether a drawn log shows a difference from the reference, or breaks an assertion; loses: a `LosingDrawer`'s."""
    drawer = LosingDrawer(seed) if loses else Drawer(seed)
    changed, reference = Transition(ClusterConfiguration()), Reference()
    try:
        for index in range(2, 300):
            command = founded([10, 11, 12], 3) if index == 2 else drawer.draw(changed.configuration)
            if not changed.configuration.is_founded() and not isinstance(command, Found):
                continue
            wanted = reference.apply(index, command)
            if changed.apply(index, encode_command(command)).is_accepted() != wanted:
                return True
            changed.configuration.check()
            reference.compare(changed.configuration)
    except (AssertionError, KeyError, IndexError):
        return True
    return False


def serves_on(patch: pytest.MonkeyPatch) -> None:
    """A leader that has taken nothing for want of copies goes on in the same leadership."""
    alter = Transition._alter_one

    def alter_one(self: Transition, command: AlterIsr, item: Any) -> int:
        item.anew = False
        return alter(self, command, item)

    patch.setattr(Transition, "_alter_one", alter_one)


PLANTED: dict[Patch, int] = {
    joins_beside: 2,
    votes_at_once: 1,
    elects_any_copy: 1,
    begins_empty: 1,
    shrinks_to_nothing: 1,
    grows_by_any_leader: 1,
    serves_on: 1,
    forgets_versions: 2,
    returns_from_eviction: 1,
    starts_without_features: 2,
    gives_up_copies: 3,
    gives_up_branches: 5,
    marks_in_part: 4,
    leftovers_leave: 1,
    leads_uncompared: 1,
    begins_without_one: 9,
}
"""Within how many seeds each is found."""

LOSING: list[Patch] = [marks_in_part, leftovers_leave, leads_uncompared, begins_without_one]
"""Those that logs find in which last copies are lost."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_wrong_rule_is_found(plant: Patch) -> None:
    seeds = range(PLANTED[plant])
    loses = plant in LOSING
    assert not any(differs(seed, loses) for seed in seeds)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        assert any(differs(seed, loses) for seed in seeds)

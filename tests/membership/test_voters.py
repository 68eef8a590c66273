"""The choice of voters: how many, which, one change after another, and none that is not needed."""

from __future__ import annotations

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_member import DATA, WITNESS, ClusterMember, Process
from folkmoot.membership.command import STOPPED
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.lifecycle import ACTIVE, AWAY, AWAY_LEAVING, JOINING, LEAVING, is_up
from folkmoot.membership.voters import next_change, voters_wanted
from folkmoot.raft.configuration import ADD_LEARNER, DEMOTE, PROMOTE, REMOVE, Configuration


class Cluster:
    """Members by their disks, and Raft's configuration, which takes every change."""

    def __init__(self, voters: list[int], learners: list[int] | None = None) -> None:
        self.configuration = ClusterConfiguration()
        self.raft = Configuration(voters, learners or [])
        self.gone: list[int] = []
        self.stopping: list[int] = []
        self.unheard: list[int] = []
        self.linked: list[int] = []  # members that are away, and whose processes answer all the same
        self.behind: list[int] = []
        self.stops_cost = False
        self.leader = voters[0]
        self.changes: list[tuple[int, int]] = []

    def put(self, disk: int, state: int = ACTIVE, kind: int = DATA, zone: str = "", host: str = "") -> None:
        process = Process(1, "", zone or f"zone{disk}", host or f"host{disk}")
        self.configuration.members[disk] = ClusterMember(disk, f"node{disk}", kind, process, state)

    def turn(self, disk: int, state: int) -> None:
        before = self.configuration.members[disk]
        self.put(disk, state, before.kind, before.process.zone, before.process.host)

    def stop(self, disk: int) -> None:
        """It is away, and has not ended yet."""
        self.turn(disk, AWAY)
        self.configuration.members[disk].why = STOPPED
        self.linked.append(disk)
        self.stopping = [*[other for other in self.stopping if other != disk], disk]

    def end(self, disk: int) -> None:
        self.linked.remove(disk)
        self.stopping.remove(disk)

    def up(self) -> list[int]:
        members = self.configuration.members
        up = [disk for disk in self.raft.voters if disk in members and is_up(members[disk].state)]
        return up + [disk for disk in self.raft.voters if disk in self.linked]

    def step(self) -> bool:
        """Take the next change; False if there is none."""
        raft = self.raft
        had_quorum = raft.is_quorum(self.up())
        if self.leader not in raft.voters:
            self.leader = (self.up() or raft.voters)[0]
        change = next_change(
            self.configuration,
            raft.voters,
            raft.learners,
            self.leader,
            self.gone,
            self.behind,
            self.stopping,
            [*self.unheard, *[disk for disk in raft.voters if disk not in self.up()]],
            self.stops_cost,
        )
        if change is None:
            return False
        after = raft.after(*change)
        assert after is not None, "the change fits"
        self.raft = after
        self.changes.append(change)
        assert not had_quorum or after.is_quorum(self.up()), "a change has ended the quorum"
        return True

    def settle(self) -> list[int]:
        for _ in range(2000):
            if not self.step():
                return self.raft.voters
        raise AssertionError(f"no end: {self.changes[-10:]}")


def cluster(size: int, voters: int = 1) -> Cluster:
    found = Cluster(list(range(1, voters + 1)))
    for disk in range(1, size + 1):
        found.put(disk)
    return found


def test_how_many_vote() -> None:
    wanted = {0: 1, 1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 49: 5, 50: 7, 200: 7}
    assert {members: voters_wanted(members) for members in wanted} == wanted


@pytest.mark.parametrize(("size", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (50, 7)])
def test_a_cluster_grows_to_its_voters_and_the_others_learn(size: int, voters: int) -> None:
    found = cluster(size)
    assert len(found.settle()) == voters
    assert len(found.raft.learners) == size - voters
    assert [kind for kind, _disk in found.changes] == [ADD_LEARNER] * (size - 1) + [PROMOTE] * (voters - 1)


def test_members_that_join_learn_and_do_not_vote() -> None:
    found = cluster(3)
    found.turn(3, JOINING)
    assert found.settle() == [1]
    assert found.raft.learners == [2, 3]
    found.turn(3, ACTIVE)
    assert found.settle() == [1, 2, 3]


@pytest.mark.parametrize("size", [3, 4, 5, 6, 7])
def test_a_member_that_is_stopped_and_started_again_keeps_its_vote(size: int) -> None:
    found = cluster(size)
    voters = found.settle()
    found.changes.clear()
    for disk in range(1, size + 1):
        found.stopping = [disk]
        assert found.settle() == voters
        found.stop(disk)
        assert found.settle() == voters, "its process has not ended"
        found.end(disk)
        assert found.settle() == voters
        found.turn(disk, ACTIVE)
        assert found.settle() == voters
    assert found.changes == []


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 9, 51])
def test_of_members_that_are_stopped_one_after_the_other_the_last_one_votes_alone(size: int) -> None:
    for last in (1, size):
        found = cluster(size)
        found.settle()
        running = [disk for disk in range(1, size + 1) if disk != last] + [last]
        while len(running) > 1:
            disk = running.pop(0)
            found.stopping = [disk]
            found.settle()
            found.stop(disk)
            voters = found.settle()
            found.end(disk)
            assert found.settle() == voters, "who has ended changes nothing"
            assert found.raft.is_quorum(running), "those that run on decide"
            assert len(voters) % 2 == 1
        assert found.raft.voters == [last]


def test_votes_end_when_too_few_run_on_and_the_newest_stopped_ones_keep_theirs() -> None:
    found = cluster(5)
    found.settle()
    for disk, voters in ((5, [1, 2, 3, 4, 5]), (4, [1, 2, 3, 4, 5]), (3, [1, 2, 3]), (2, [1])):
        found.stop(disk)
        assert found.settle() == voters
        found.end(disk)
    assert found.changes[-4:] == [(DEMOTE, 4), (DEMOTE, 5), (DEMOTE, 3), (DEMOTE, 2)]


def test_a_learner_takes_the_vote_over_when_too_few_run_on() -> None:
    found = cluster(4)
    assert found.settle() == [1, 2, 3]
    found.stop(2)
    assert found.settle() == [1, 2, 3], "nobody takes the vote of one that comes back"
    found.end(2)
    found.changes.clear()
    found.stop(3)
    assert found.settle() == [1, 3, 4]
    assert found.changes == [(PROMOTE, 4), (DEMOTE, 2)]


def test_one_that_was_stopped_and_is_gone_is_replaced() -> None:
    found = cluster(4)
    found.settle()
    found.stop(3)
    found.end(3)
    found.changes.clear()
    assert found.settle() == [1, 2, 3]
    found.gone = [3]
    assert found.settle() == [1, 2, 4]
    assert found.changes == [(PROMOTE, 4), (DEMOTE, 3)]


def test_a_stop_after_a_death_leaves_those_that_run_on_as_a_quorum() -> None:
    found = cluster(3)
    found.settle()
    found.turn(3, AWAY)
    found.stop(2)
    assert found.settle() == [1]
    found = cluster(5)
    found.settle()
    found.turn(4, AWAY)
    found.turn(5, AWAY)
    found.stop(3)
    assert found.settle() == [1, 2, 3], "one that was stopped comes back sooner than one that died"


def test_a_stop_while_another_voter_is_not_heard_for_a_moment_ends_the_vote_that_has_to_end() -> None:
    found = cluster(3)
    found.settle()
    found.unheard = [3]
    found.stopping = [2]
    assert found.settle() == [1], "the one that stops cannot wait for the other one"
    found.unheard = []
    found.stopping = []
    assert found.settle() == [1, 2, 3]


def test_a_process_that_is_back_and_not_up_yet_runs() -> None:
    found = cluster(3)
    found.settle()
    found.stop(3)
    found.stopping = []  # what is linked is its next process
    found.stop(2)
    assert found.settle() == [1, 2, 3]


def test_votes_stay_when_nobody_with_data_runs_on() -> None:
    found = cluster(2)
    found.put(3, kind=WITNESS)
    assert found.settle() == [1, 2, 3]
    found.leader = 3
    found.stop(1)
    assert found.settle() == [1, 2, 3]
    found.end(1)
    found.stop(2)
    assert found.settle() == [1, 2, 3]
    found = cluster(3)
    found.settle()
    for disk in (1, 2, 3):
        found.stop(disk)
    assert found.settle() == [1, 2, 3]


def test_a_witness_that_is_stopped_last_leaves_the_member_with_data_as_the_only_voter() -> None:
    found = cluster(2)
    found.put(3, kind=WITNESS)
    found.settle()
    found.leader = 2
    found.stop(1)
    found.end(1)
    found.stop(3)
    assert found.settle() == [2]
    found.end(3)
    found.turn(3, ACTIVE)
    assert found.settle() == [2], "two voters would be worse"
    found.turn(1, ACTIVE)
    assert found.settle() == [1, 2, 3]


@pytest.mark.parametrize("part", range(4))
def test_drawn_stops_and_deaths_keep_a_quorum_and_settle(part: int) -> None:
    """A stop that waits for its changes never ends a quorum, and changes nothing as long as enough run on."""
    kept = 0
    for seed in range(part * 50, part * 50 + 50):
        rng = Rng(1000 + seed)
        size = 2 + rng.below(7)
        found = cluster(size)
        if rng.chance(1, 3):
            found.put(size + 1, kind=WITNESS)
        found.settle()
        for _ in range(20):
            members = found.configuration.members
            up = [disk for disk in sorted(members) if members[disk].state == ACTIVE]
            away = [disk for disk in sorted(members) if members[disk].state == AWAY]
            if away and rng.chance(1, 2):
                found.turn(away[rng.below(len(away))], ACTIVE)
                found.settle()
                continue
            disk = up[rng.below(len(up))]
            left = [other for other in up if other != disk]
            if not [other for other in left if members[other].kind == DATA]:
                continue
            if rng.chance(1, 4):
                if found.raft.is_quorum([other for other in left if other in found.raft.voters]):
                    found.turn(disk, AWAY)
                    found.settle()
                continue
            before = found.raft.voters
            enough = found.raft.is_quorum([other for other in left if other in before])
            found.stop(disk)
            if found.leader == disk:
                found.leader = next((other for other in left if other in before), disk)
            voters = found.settle()
            assert found.raft.is_quorum([other for other in left if other in voters]), (seed, voters)
            if enough and disk in before:
                assert voters == before, (seed, before, voters)
                kept += 1
            found.end(disk)
            assert found.settle() == voters, (seed, voters)
    assert kept > 30


def test_a_bug_of_tests_ends_the_vote_of_who_is_stopped() -> None:
    found = cluster(3)
    found.settle()
    found.stops_cost = True
    found.stop(3)
    assert found.settle() == [1]


def test_two_members_and_a_witness_vote_all_three() -> None:
    found = cluster(2)
    assert found.settle() == [1]
    found.put(3, kind=WITNESS)
    assert found.settle() == [1, 2, 3]


def test_the_member_that_came_up_last_votes_last() -> None:
    """A member whose disk was replaced twice in a row must not be the second of two voters when it goes."""
    for latest in (2, 3):
        found = Cluster([1], [2, 3])
        for disk, kind in ((1, DATA), (2, DATA), (3, WITNESS)):
            found.put(disk, ACTIVE, kind)
            found.configuration.members[disk].started = 10 if disk == latest else 5
        found.settle()
        assert found.changes == [(PROMOTE, 5 - latest), (PROMOTE, latest)]


def test_a_witness_beside_one_member_waits_for_another() -> None:
    found = cluster(1)
    found.put(2, kind=WITNESS)
    assert found.settle() == [1]


def test_a_witness_always_votes() -> None:
    found = cluster(4, voters=1)
    assert found.settle() == [1, 2, 3]
    found.put(9, kind=WITNESS, zone="zone1", host="host1")
    found.put(8, state=LEAVING)
    assert 9 in found.settle()
    assert len(found.raft.voters) == 5


def test_all_witnesses_vote_and_at_least_one_with_data() -> None:
    found = cluster(4)
    for disk in (7, 8, 9):
        found.put(disk, kind=WITNESS)
    voters = found.settle()
    assert {7, 8, 9} <= set(voters)
    assert len(voters) == 5
    found.put(6, kind=WITNESS)
    found.put(5, kind=WITNESS)
    assert {5, 6, 7, 8, 9} <= set(found.settle())
    assert len(found.raft.voters) == 7
    only = cluster(1)
    for disk in (7, 8, 9):
        only.put(disk, kind=WITNESS)
    assert 1 in only.settle(), "one member has data, and votes"
    assert len(only.raft.voters) == 3


def test_voters_are_spread_over_zones_then_over_hosts() -> None:
    found = Cluster([1, 2, 3])
    for disk in range(1, 10):
        found.put(disk, zone=("a", "a", "a", "a", "b", "b", "c", "c", "c")[disk - 1], host=f"h{disk // 2}")
    for disk in range(10, 60):
        found.put(disk, zone="a", host="h1")
    voters = found.settle()
    members = found.configuration.members
    assert {members[disk].process.zone for disk in voters} == {"a", "b", "c"}
    # Hosts: a has h0, h1, h2; b h2, h3; c h3, h4: seven in all, and seven vote.
    assert len({(members[disk].process.zone, members[disk].process.host) for disk in voters}) == 7


def test_a_better_zone_replaces_a_voter_by_promotion_first() -> None:
    found = Cluster([1, 2, 3])
    for disk, zone in ((1, "a"), (2, "a"), (3, "b")):
        found.put(disk, zone=zone)
    assert found.settle() == [1, 2, 3]
    found.put(4, zone="c")
    assert found.settle() == [1, 3, 4], "the leader stays, of equals"
    assert found.changes == [(ADD_LEARNER, 4), (PROMOTE, 4), (DEMOTE, 2)]
    found.put(5, zone="d", state=JOINING)
    assert found.settle() == [1, 3, 4], "nothing is better"


def test_a_death_changes_nothing_until_the_member_is_gone() -> None:
    found = cluster(4, voters=1)
    found.settle()
    found.changes = []
    found.turn(3, AWAY)
    assert found.settle() == [1, 2, 3]
    found.gone = [3]
    assert found.settle() == [1, 2, 4]
    assert found.changes == [(PROMOTE, 4), (DEMOTE, 3)]
    found.turn(3, ACTIVE)
    found.gone = []
    assert found.settle() == [1, 2, 4]
    assert len(found.changes) == 2, "it learns when it is back"


def test_one_that_is_gone_votes_on_if_nobody_can_replace_it() -> None:
    found = cluster(3)
    found.settle()
    found.changes = []
    found.turn(3, AWAY)
    found.gone = [3]
    assert found.settle() == [1, 2, 3]
    assert found.changes == []


def test_deaths_do_not_shrink_the_number_and_removals_do() -> None:
    found = cluster(5)
    found.settle()
    found.changes = []
    found.turn(4, AWAY)
    found.turn(5, AWAY)
    assert found.settle() == [1, 2, 3, 4, 5]
    assert found.changes == []
    del found.configuration.members[5]
    assert found.settle() == [1, 2, 3]
    assert found.changes == [(REMOVE, 5), (DEMOTE, 4)]


def test_a_member_that_leaves_is_replaced_first() -> None:
    found = cluster(4)
    found.settle()
    found.changes = []
    found.turn(1, LEAVING)
    assert found.settle() == [2, 3, 4]
    assert found.changes == [(PROMOTE, 4), (DEMOTE, 1)]


def test_the_only_voter_can_leave() -> None:
    found = cluster(2)
    found.settle()
    found.turn(1, LEAVING)
    assert found.settle() == [2]


def test_three_become_two_become_one() -> None:
    found = cluster(3)
    found.settle()
    found.turn(3, LEAVING)
    assert found.settle() == [1]
    del found.configuration.members[3]
    found.turn(2, LEAVING)
    assert found.settle() == [1]
    assert found.raft.learners == [2]


def test_a_leaver_keeps_its_vote_while_the_rest_would_be_no_quorum() -> None:
    found = cluster(3)
    found.settle()
    found.turn(3, AWAY)
    found.turn(2, LEAVING)
    found.changes = []
    assert found.settle() == [1]
    assert found.changes == [(DEMOTE, 3), (DEMOTE, 2)], "first the one that is away"


def test_no_vote_ends_while_one_that_would_be_left_is_not_heard() -> None:
    """Two voters have to agree both: one of them that has just died would leave no quorum, for ever."""
    for lost in (2, 3):
        found = cluster(3)
        found.settle()
        found.turn(1, LEAVING)
        found.unheard = [lost]
        found.changes = []
        assert found.settle() == [5 - lost]
        assert found.changes == [(DEMOTE, lost), (DEMOTE, 1)]
    found = cluster(3)
    found.settle()
    found.turn(1, LEAVING)
    found.unheard = [2, 3]
    assert found.settle() == [1, 2, 3]


def test_a_vote_ends_only_if_members_are_a_quorum_without_it() -> None:
    """A disk that was removed votes until its process takes another identity, which it does as soon as it is told."""
    found = cluster(3)
    found.settle()
    del found.configuration.members[2]
    found.linked = [2]
    found.unheard = [3]
    found.changes = []
    assert found.settle() == [1, 2, 3], "the voters that are members are a quorum when the third one is back"
    found.unheard = []
    assert found.settle() == [1]
    assert found.changes == [(REMOVE, 2), (DEMOTE, 3)]


@pytest.mark.parametrize("size", [3, 5, 7])
def test_members_that_were_stopped_together_give_their_votes_away_while_they_run(size: int) -> None:
    """They are away before they have ended, and agree to that. When they have ended, it is too late."""
    found = cluster(size)
    voters = found.settle()
    for disk in voters[1:]:
        found.stop(disk)
    for disk in [disk for disk in found.configuration.members if disk not in voters]:
        del found.configuration.members[disk]
    assert found.settle() == [1]
    for disk in voters[1:]:
        assert (DEMOTE, disk) in found.changes


def test_a_replaced_disk_is_a_new_voter() -> None:
    found = cluster(3)
    found.settle()
    found.changes = []
    del found.configuration.members[3]
    found.put(9, state=JOINING)
    found.step()
    assert found.changes == [(ADD_LEARNER, 9)]
    found.turn(9, ACTIVE)
    assert found.settle() == [1, 2, 9]
    assert found.changes[1:] == [(PROMOTE, 9), (REMOVE, 3)]


def test_a_learner_that_lags_is_passed_over() -> None:
    found = cluster(5, voters=3)
    found.put(6)
    found.behind = [4]
    assert found.settle() == [1, 2, 3, 5, 6]
    found.turn(1, LEAVING)
    assert found.settle() == [2, 3, 5, 6], "one that leaves does not wait"
    found.behind = []
    assert found.settle() == [2, 3, 4, 5, 6]


def test_all_leave() -> None:
    found = cluster(3)
    found.settle()
    for disk in (1, 2, 3):
        found.turn(disk, LEAVING)
    assert found.settle() == [1], "the leader is the last"


@pytest.mark.parametrize("part", range(4))
def test_drawn_clusters_settle_and_stay(part: int) -> None:
    states = [ACTIVE, ACTIVE, ACTIVE, ACTIVE, ACTIVE, AWAY, AWAY, LEAVING, JOINING, AWAY_LEAVING]
    promotions = 0
    for seed in range(part * 60, part * 60 + 60):
        rng = Rng(seed)
        found = Cluster([1])
        found.put(1)
        zones = 1 + rng.below(6)
        fresh = 2
        for _ in range(25):
            members = found.configuration.members
            disks = sorted(members)
            disk = disks[rng.below(len(disks))]
            what = rng.below(6)
            if what < 2 and len(members) < 12:
                kind = WITNESS if rng.chance(1, 6) else DATA
                state = ACTIVE if rng.chance(2, 3) else JOINING
                found.put(fresh, state, kind, f"z{rng.below(zones)}", f"h{rng.below(2 * zones)}")
                fresh += 1
            elif what == 2 and len(members) > 1 and members[disk].state != ACTIVE:
                del members[disk]
            elif what == 3 and members[disk].state == AWAY:
                found.gone.append(disk)
            else:
                found.turn(disk, states[rng.below(len(states))])
            found.gone = [disk for disk in found.gone if disk in members and members[disk].state == AWAY]
            if rng.chance(1, 3):
                found.step()  # the next event comes in the middle
                continue
            voters = found.settle()
            assert sorted([*voters, *found.raft.learners]) == sorted({*members, *voters})
            if not found.raft.is_quorum(found.up()):
                continue
            counted = [disk for disk in members if members[disk].state in (ACTIVE, AWAY)]
            up = [disk for disk in counted if members[disk].state == ACTIVE]
            witnesses = [disk for disk in up if members[disk].kind == WITNESS]
            data = [disk for disk in up if members[disk].kind == DATA]
            if len(up) < len(counted) or not data or 2 * len(witnesses) > len(up):
                continue
            # Everybody is up: the voters are as many, as well chosen and as far apart as they can be.
            assert len(voters) == max(voters_wanted(len(up)), (len(witnesses) + 1) | 1 if len(up) > 2 else 1), voters
            assert set(voters) <= set(up)
            if len(up) > 2:
                assert set(witnesses) <= set(voters)
                spread = {members[disk].process.zone for disk in up}
                chosen = {members[disk].process.zone for disk in voters}
                assert len(chosen) >= min(len(spread), len(voters) - len(witnesses)), (seed, voters)
            else:
                assert members[voters[0]].kind == DATA
        promotions += len([kind for kind, _disk in found.changes if kind == PROMOTE])
    assert promotions > 60

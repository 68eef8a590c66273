"""A cluster's control: founding, joining, losing and letting up members, and what operators ask for."""

from __future__ import annotations

from functools import partial

import pytest

from folkmoot.kernel.pack import u64
from folkmoot.membership.control import Control
from folkmoot.membership.control_message import GREETING, REQUEST, STRANGER, Beat, Greeting, decode_greeting, kind_of
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.controller import SETTINGS_COUNTER_MAX
from folkmoot.membership.fork import lineage_in, trunk_of
from folkmoot.membership.lifecycle import is_leaving, is_up
from folkmoot.membership.log_rows import is_retired, read_current, retire_lineage
from folkmoot.membership.planted import PlantedControl
from folkmoot.membership.transition import NO_NUMBERS, OTHER_NUMBER
from folkmoot.peer.kind import CONTROL
from folkmoot.store.key import META, end_of, plain_key
from folkmoot.store.writer import Writer
from tests.membership.control_faults import successor
from tests.membership.simulated_control import MS, Cluster, Machine, S, Violation


def control(machine: Machine) -> Control:
    """Return the control of a machine that runs."""
    assert machine.control is not None
    return machine.control


def begun(seed: int, count: int, forks: bool = True, planted: list[str] | None = None, witnesses: int = 0) -> Cluster:
    """Return a cluster of so many members, all of them up; the last ones are witnesses."""

    def tune(options: ControlOptions) -> None:
        options.forks = forks

    cluster = Cluster(seed, count, tune)
    cluster.planted = planted or []
    for number, machine in enumerate(cluster.machines):
        machine.witness = number >= count - witnesses
        cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    return cluster


def controller(cluster: Cluster) -> Machine:
    """Return the machine that leads the log."""
    found = [one for one in cluster.machines if one.control is not None and one.control.controller is not None]
    assert len(found) == 1
    return found[0]


def follower(cluster: Cluster) -> Machine:
    """Return a machine that does not lead the log."""
    return next(one for one in cluster.machines if one is not controller(cluster))


def served(cluster: Cluster, without: Machine) -> bool:
    """Tell whether all partitions are led under leases by other machines."""
    led: dict[int, bool] = {}
    for machine in cluster.machines:
        if machine is not without:
            led.update({number: True for _lineage, number in cluster.leads(machine)})
    return len(led) == 8


def index_of(machine: Machine) -> int:
    """Return the last entry that a machine has applied."""
    log = control(machine).log
    return 0 if log is None else log.index


def voters_of(machine: Machine) -> list[int]:
    """Return the disks that vote, as far as a machine knows."""
    log = control(machine).log
    return [] if log is None else log.voters


# What others send


def test_of_addresses_that_others_name_the_newest_are_tried_for_a_while() -> None:
    cluster = begun(1, 2)
    first = control(cluster.machines[0])
    for number in range(4):
        greeting = Greeting(first.cluster, first.lineage)
        greeting.addresses = [f"host-{number}-{at}" for at in range(4000)]
        first.receive("n2", CONTROL, greeting.encoded(), cluster.machines[0].clock(cluster.now))
    wanted = first.wants(cluster.machines[0].clock(cluster.now))
    assert len(wanted) < 5000
    assert "host-3-0" in wanted
    assert "host-0-0" not in wanted
    assert first.addresses.dropped >= 3 * 4000 - 96 - 10
    greeting = Greeting(first.cluster, first.lineage)
    first.receive("n2", CONTROL, greeting.encoded(), cluster.machines[0].clock(cluster.now) + 31 * S)
    assert not first.addresses._until, "they are forgotten when they are tried no more"


# Founding


@pytest.mark.parametrize("seed", range(20))
def test_processes_that_start_at_any_time_are_one_cluster(seed: int) -> None:
    cluster = Cluster(seed, 5)
    for machine in cluster.machines:
        cluster.at(cluster.rng.below(6 * S), lambda machine=machine: cluster.start(machine))  # type: ignore[misc]
    cluster.run(7 * S)
    cluster.until(cluster.is_whole, 10 * S)
    assert len({control(machine).cluster for machine in cluster.machines}) == 1
    assert len([1 for machine in cluster.machines if "cluster_founded" in machine.events]) == 1


@pytest.mark.parametrize("seed", range(10))
def test_an_expected_number_founds_together(seed: int) -> None:
    def tune(options: ControlOptions) -> None:
        options.expect = 4

    cluster = Cluster(seed, 4, tune)
    for machine in cluster.machines[:3]:
        cluster.start(machine)
    cluster.run(20 * S)
    assert [machine.control for machine in cluster.machines[:3] if control(machine).cluster] == []
    cluster.start(cluster.machines[3])
    cluster.until(cluster.is_whole, 10 * S)
    assert len([1 for machine in cluster.machines if "cluster_founded" in machine.events]) == 1


@pytest.mark.parametrize("seed", range(5))
def test_expected_nodes_that_reach_a_seed_late_join_its_cluster(seed: int) -> None:
    """Two nodes come to a cluster of two at once: they are as many as founded it, and reach each other first."""

    def tune(options: ControlOptions) -> None:
        options.expect = 2

    cluster = Cluster(seed, 4, tune)
    members, others = cluster.machines[:2], cluster.machines[2:]
    for machine in cluster.machines:
        machine.seeds = ["n1", "n2"]
    for machine in members:
        cluster.start(machine)
    cluster.run(5 * S)
    for machine in others:
        cluster.isolate(machine, members, True)
        cluster.start(machine)
    cluster.run(S // 2)
    for machine in others:
        cluster.isolate(machine, members, False)
    cluster.until(cluster.is_whole, 10 * S)
    assert len(founders(cluster)) == 1


def mute(cluster: Cluster, machine: Machine) -> None:
    """Let a machine have a link to a process that never says anything: the last one of the cluster."""
    cluster._up(machine, cluster.member(cluster.machines[-1]))


@pytest.mark.parametrize("expect", [0, 3])
def test_a_process_that_never_greets_keeps_nobody_from_founding(expect: int) -> None:
    def tune(options: ControlOptions) -> None:
        options.expect = expect

    cluster = Cluster(3, 4, tune)
    cluster.machines[-1].incarnation = 1
    for machine in cluster.machines[:3]:
        cluster.start(machine)
        mute(cluster, machine)
    cluster.run(5 * S)
    assert founders(cluster) == [], "it may be about to say that there is a cluster"
    cluster.until(cluster.is_whole, 15 * S)
    assert len(founders(cluster)) == 1


def test_a_process_that_never_greets_keeps_nobody_from_forking() -> None:
    cluster = begun(3, 3)
    first = cluster.machines[0]
    for machine in cluster.machines[1:]:
        cluster.kill(machine)
    cluster.add().incarnation = 1
    mute(cluster, first)
    cluster.until(lambda: "cluster_forked" in first.events, 20 * S)
    cluster.until(lambda: first.is_live(cluster.now), 5 * S)


def test_a_founder_that_is_cut_off_before_others_know_is_the_only_one() -> None:
    def tune(options: ControlOptions) -> None:
        options.expect = 3

    cluster = Cluster(5, 4, tune)
    first = cluster.machines[0]
    for machine in cluster.machines[:3]:
        cluster.start(machine)
    for machine in cluster.machines[1:]:
        cluster.link(first, machine).lag = [10 * S, 10 * S]  # what it says from now on is lost with the link
    cluster.machines[3].seeds = ["n1", "n2", "n3"]
    cluster.run(200 * MS)
    for machine in cluster.machines[1:]:
        cluster.link(first, machine).lag[cluster.way(machine, first)] = 0
    cluster.until(lambda: "cluster_founded" in first.events, 30 * S)
    for machine in cluster.machines[1:]:
        cluster.cut(first, machine, True)
        cluster.cut(machine, first, True)
    cluster.start(cluster.machines[3])
    cluster.run(40 * S)
    assert founders(cluster) == ["n1"]


def test_others_than_the_first_seed_wait_for_it() -> None:
    cluster = Cluster(3, 3)
    cluster.start(cluster.machines[1])
    cluster.start(cluster.machines[2])
    cluster.run(30 * S)
    assert "waits_for_cluster" in cluster.machines[1].events
    assert control(cluster.machines[1]).cluster == 0
    cluster.start(cluster.machines[0])
    cluster.until(cluster.is_whole, 10 * S)


def test_an_empty_first_seed_founds_nothing_beside_a_cluster_that_it_has_heard_of() -> None:
    cluster = begun(3, 3)
    first, second = cluster.machines[:2]
    for machine in cluster.machines:
        cluster.kill(machine)
    cluster.wipe(first)
    first.events.clear()
    cluster.start(first)
    cluster.start(second)
    cluster.run(2 * S)
    cluster.kill(second)
    cluster.run(60 * S)
    assert "cluster_founded" not in first.events
    assert control(first).cluster == 0
    cluster.wipe(second)
    cluster.start(second)
    cluster.until(lambda: control(first).is_up and control(second).is_up, 30 * S)


def founders(cluster: Cluster) -> list[str]:
    """Return the machines that have founded a cluster."""
    return [machine.name for machine in cluster.machines if "cluster_founded" in machine.events]


@pytest.mark.parametrize("seed", range(10))
def test_of_lists_that_name_only_the_others_the_lowest_address_founds(seed: int) -> None:
    cluster = Cluster(seed, 3)
    for machine in cluster.machines:
        machine.seeds = [other.name for other in reversed(cluster.machines) if other is not machine]
        cluster.at(cluster.rng.below(2 * S), lambda machine=machine: cluster.start(machine))  # type: ignore[misc]
    cluster.run(2 * S)
    cluster.until(cluster.is_whole, 5 * S)
    assert founders(cluster) == ["n1"]


def test_a_list_that_names_only_the_others_waits_for_all_of_them() -> None:
    cluster = Cluster(4, 3)
    for machine in cluster.machines:
        machine.seeds = [other.name for other in cluster.machines if other is not machine]
    for machine in cluster.machines[:2]:
        cluster.start(machine)
    cluster.run(10 * S)
    assert founders(cluster) == []
    told = [line for line in cluster.log if "waits_for_cluster" in line and "n1" in line]
    assert "nobody answers at n3" in told[0]
    cluster.start(cluster.machines[2])
    cluster.until(cluster.is_whole, 5 * S)


@pytest.mark.parametrize("seed", range(10))
def test_lists_that_differ_make_one_cluster_or_none(seed: int) -> None:
    """Some name all, in any order, some only others, some not all."""
    cluster = Cluster(seed, 4)
    for machine in cluster.machines:
        others = [other.name for other in cluster.machines if other is not machine]
        listed = cluster.rng.chance(1, 2)
        names = [machine.name, *others] if listed else others
        machine.seeds = sorted(names, key=lambda _name: cluster.rng.below(1000))[: 2 + cluster.rng.below(3)]
        cluster.start(machine)
    cluster.run(20 * S)
    assert len(founders(cluster)) <= 1
    if not founders(cluster):
        assert [line for line in cluster.log if "waits_for_cluster" in line]


def test_a_new_node_with_the_lowest_address_joins_the_cluster_that_its_seed_is_in() -> None:
    cluster = begun(4, 4)
    first = cluster.machines[0]
    cluster.kill(first)
    cluster.wipe(first)
    first.seeds = ["n2"]
    cluster.cut(first, cluster.machines[1], True)
    for other in cluster.machines[2:]:
        cluster.cut(first, other, True)
    cluster.start(first)
    cluster.run(20 * S)
    assert founders(cluster) == ["n1"], "as at first"
    assert control(first).cluster == 0


def test_nobody_founds_while_it_does_not_know_where_others_are() -> None:
    cluster = Cluster(3, 1)
    machine = cluster.machines[0]
    machine.seeds = []
    machine.seeds_unknown = True
    cluster.start(machine)
    cluster.run(10 * S)
    assert control(machine).cluster == 0
    control(machine).seeds_unknown = False
    cluster.until(cluster.is_whole, 10 * S)


def test_a_new_node_says_that_the_cluster_is_gone_of_which_it_has_heard_first() -> None:
    """It may be a member there by now, so it does not join another one before it is started again."""
    cluster = Cluster(5, 3)
    gone, there, new = cluster.machines
    gone.seeds, there.seeds, new.seeds = [gone.name], [there.name], [there.name]
    for one in cluster.machines:
        cluster.isolate(one, cluster.machines, True)
    cluster.start(gone)
    cluster.start(there)
    cluster.run(5 * S)
    cluster.isolate(gone, [new], False)
    cluster.start(new)
    cluster.until(lambda: control(new)._founding.cluster == control(gone).cluster, 10 * S)
    cluster.kill(gone)
    cluster.isolate(there, [new], False)
    cluster.run(30 * S)
    assert control(new).configuration is None
    assert new.events.count("waits_for_cluster") > 1
    assert [line for line in cluster.log if f"{there.name} is of another cluster" in line]
    cluster.kill(new)
    cluster.start(new)
    cluster.until(lambda: control(new).is_up, 20 * S)
    assert control(new).cluster == control(there).cluster


def test_a_process_with_other_partitions_does_not_join() -> None:
    cluster = begun(5, 2)
    machine = cluster.add()
    machine.options.partitions = 16
    cluster.start(machine)
    cluster.run(5 * S)
    assert "node_refused" in machine.events
    assert len(control(controller(cluster)).log.configuration.members) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(5))
def test_many_join_at_once(seed: int) -> None:
    cluster = begun(seed, 3)
    for _ in range(5):
        cluster.start(cluster.add())
    cluster.until(cluster.is_whole, 20 * S)
    log = control(controller(cluster)).log
    assert log is not None
    assert len(log.configuration.members) == 8
    cluster.until(lambda: len(control(controller(cluster)).log.voters) == 5, 10 * S)  # type: ignore[union-attr]


# Losing members


@pytest.mark.parametrize("seed", range(4))
def test_who_joins_asks_once_and_once_more_in_the_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request is sent before it has the log, and one by a process that follows it."""
    cluster = begun(seed, 3)
    cluster.run(2 * S)
    requests: list[int] = []
    carry = cluster.carry

    def count(sender: Machine, to: Machine, kind: int, body: bytes) -> None:
        if kind == CONTROL and kind_of(body) == REQUEST:
            requests.append(sender.disk)
        carry(sender, to, kind, body)

    monkeypatch.setattr(cluster, "carry", count)
    machine = cluster.add()
    cluster.start(machine)
    cluster.until(cluster.is_whole, 5 * S)
    assert requests == [machine.disk] * 2


@pytest.mark.parametrize("leads", [False, True])
def test_a_process_that_ended_is_replaced_at_once(leads: bool) -> None:
    pauses = []
    for seed in range(30):
        cluster = begun(seed, 3)
        cluster.run(S)
        machine = controller(cluster) if leads else follower(cluster)
        cluster.kill(machine)
        pauses.append(cluster.until(lambda: served(cluster, machine), 5 * S))  # noqa: B023
    pauses.sort()
    assert pauses[15] <= 60 * MS
    assert pauses[-1] <= 120 * MS


@pytest.mark.parametrize("leads", [False, True])
def test_a_process_that_hangs_is_replaced_when_its_lease_is_over(leads: bool) -> None:
    for seed in range(30):
        cluster = begun(seed, 3)
        cluster.run(S)
        machine = controller(cluster) if leads else follower(cluster)
        cluster.stop(machine, 20 * S)
        pause = cluster.until(lambda: served(cluster, machine), 5 * S)  # noqa: B023
        assert 900 * MS <= pause <= 2500 * MS


@pytest.mark.parametrize("forks", [False, True])
def test_others_serve_when_the_disk_of_a_controller_stands_still_as_soon_as_it_is_elected(forks: bool) -> None:
    # The others answer its heartbeats, so it keeps the leadership of the log. But it applies no entry of its term, and
    # answers no heartbeat of a member: nobody would have a lease for as long as its disk stands still.
    for seed in range(5):
        cluster = begun(seed, 3, forks)
        former = controller(cluster)
        cluster.kill(former)
        cluster.until(lambda: successor(cluster) is not None, S)  # noqa: B023
        stalled = successor(cluster)
        assert stalled is not None
        stalled.disk_stalled = True
        cluster.start(former)
        cluster.until(lambda: served(cluster, stalled), 6 * S)  # noqa: B023
        stalled.disk_stalled = False
        cluster.until(cluster.is_whole, 10 * S)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_is_elected_while_each_write_takes_many_heartbeats(seed: int) -> None:
    def tune(options: ControlOptions) -> None:
        options.forks = False
        options.heartbeat_ns = options.raft.heartbeat_ns = 20 * MS
        options.raft.election_ns = 4 * options.heartbeat_ns

    cluster = Cluster(seed, 3, tune)
    for machine in cluster.machines:
        cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    for machine in cluster.machines:
        machine.disk_lag = 400 * MS
    gone = controller(cluster)
    cluster.kill(gone)
    cluster.until(lambda: served(cluster, gone), 8 * S)


def test_a_process_that_hung_comes_back_by_itself() -> None:
    cluster = begun(7, 3)
    machine = follower(cluster)
    cluster.stop(machine, 5 * S)
    cluster.run(4 * S)
    assert not machine.control.is_live(machine.clock(cluster.now))  # type: ignore[union-attr]
    cluster.run(2 * S)
    cluster.until(cluster.is_whole, 5 * S)


@pytest.mark.parametrize("late", [0, 3])
def test_after_a_loss_of_all_power_those_who_are_back_stay_in_sync_without_one_that_is_late(late: int) -> None:
    cluster = begun(1, 5)
    for machine in cluster.machines:
        cluster.kill(machine)
    back = [machine for number, machine in enumerate(cluster.machines) if number != late]
    for machine in back:
        cluster.start(machine)
    cluster.until(lambda: all(machine.is_live(cluster.now) for machine in back), 10 * S)
    configuration = control(back[0]).configuration
    assert configuration is not None
    gone = [configuration.members[disk].node_id for disk in configuration.disks() if configuration.members[disk].away]
    assert gone == [cluster.machines[late].name]


@pytest.mark.parametrize("seed", range(5))
def test_the_only_voter_that_was_taken_for_a_second_process_puts_nobody_out(seed: int) -> None:
    """The other member has not noticed that the process before it has ended, and refuses it for a moment."""
    cluster = begun(seed, 2)
    cluster.run(S)
    machine, other = controller(cluster), follower(cluster)
    assert voters_of(machine) == [machine.disk]
    cluster.kill(machine)
    cluster.start(machine)
    cluster.until(lambda: control(machine).controller is not None, S)
    control(machine).twin_ns = machine.clock(cluster.now)
    for _ in range(100):
        cluster.run(50 * MS)
        configuration = control(machine).configuration
        assert configuration is not None
        assert all(other.disk in state.isr for state in configuration.partitions)
    assert cluster.is_whole()


@pytest.mark.parametrize("leads", [False, True])
def test_a_link_that_only_one_side_has_seen_end_carries_the_log_all_the_same(leads: bool) -> None:
    cluster = begun(3, 3)
    cluster.run(S)
    one = controller(cluster) if leads else follower(cluster)
    other, third = [machine for machine in cluster.machines if machine is not one]
    member = cluster.member(other)
    control(one).down(member.node_id, member.incarnation, member.disk, False, one.clock(cluster.now))
    control(one).up(member, 0, one.clock(cluster.now))
    cluster.turn(one)
    cluster.run(S)
    cluster.kill(third)
    assert cluster.until(lambda: served(cluster, third), 5 * S) <= 300 * MS


def test_a_link_between_two_members_costs_one_of_them_its_place() -> None:
    cluster = begun(11, 4)
    lead = controller(cluster)
    one, other = [machine for machine in cluster.machines if machine is not lead][:2]
    cluster.cut(one, other, True)
    cluster.run(6 * S)
    states = [control(machine).is_live(machine.clock(cluster.now)) for machine in (one, other)]
    assert sorted(states) == [False, True]
    assert served(cluster, one if not states[0] else other)
    cluster.cut(one, other, False)
    cluster.until(cluster.is_whole, 30 * S)


def are_live(cluster: Cluster, machines: list[Machine]) -> bool:
    """Tell whether all of some machines have leases."""
    return all(control(machine).is_live(machine.clock(cluster.now)) for machine in machines)


def bridged(seed: int, planted: list[str]) -> tuple[Cluster, list[Machine]]:
    """Leave a single link between three and two, of which one leads the log; return the three."""
    cluster = begun(seed, 5, forks=False, planted=planted)
    cluster.run(2 * S)
    lead = controller(cluster)
    beside, hub, one, other = [machine for machine in cluster.machines if machine is not lead]
    cluster.isolate(lead, [one, other], True)
    cluster.isolate(beside, [hub, one, other], True)
    cluster.until(lambda: not are_live(cluster, [hub, one, other]), 4 * S)
    return cluster, [hub, one, other]


@pytest.mark.parametrize("seed", range(4))
def test_members_go_on_where_most_are_linked_to_each_other(seed: int) -> None:
    """The leader of the log reaches a quorum by the one link, and yet only two could be up with it."""
    cluster, most = bridged(seed, [])
    assert cluster.until(lambda: are_live(cluster, most), 15 * S) <= 8 * S
    for _ in range(20):
        cluster.run(S)
        assert are_live(cluster, most), "they stay"


def test_a_member_that_could_not_win_gets_the_log_from_nobody() -> None:
    """It reaches more members, but few voters: the former leader would win again each time, and grant no leases."""
    cluster = begun(0, 7, forks=False)
    cluster.run(2 * S)
    lead = controller(cluster)
    voters = voters_of(lead)
    near, far, *lost = [machine for machine in cluster.machines if machine.disk in voters and machine is not lead]
    learners = [machine for machine in cluster.machines if machine.disk not in voters]
    assert (len(lost), len(learners)) == (2, 2)
    for machine in lost:
        cluster.isolate(machine, cluster.machines, True)
    for machine in learners:
        cluster.isolate(machine, [lead, far], True)
    cluster.isolate(near, [far], True)
    cluster.until(lambda: not any(are_live(cluster, [machine]) for machine in [*lost, *learners]), 8 * S)
    cluster.run(2 * S)
    log = control(lead).log
    assert log is not None
    term = log.term
    for _ in range(10):
        cluster.run(S)
        assert (controller(cluster), log.term) == (lead, term)


def test_whoever_is_up_first_would_keep_most_waiting() -> None:
    cluster, most = bridged(0, ["keeps_few"])
    with pytest.raises(Violation, match="not so after"):
        cluster.until(lambda: are_live(cluster, most), 60 * S)


@pytest.mark.parametrize("count", [5, 7])
def test_nobody_gives_way_to_a_group_that_is_no_larger(count: int) -> None:
    """In a star, the hub is up with one other member, whoever that is."""
    cluster = begun(3, count, forks=False)
    cluster.run(2 * S)
    hub = controller(cluster)
    spokes = [machine for machine in cluster.machines if machine is not hub]
    for machine in spokes:
        cluster.isolate(machine, spokes, True)
    cluster.run(15 * S)
    live = [machine for machine in spokes if are_live(cluster, [machine])]
    assert len(live) == 1
    for _ in range(40):
        cluster.run(S)
        assert are_live(cluster, [hub, *live]), "they stay"


def test_a_firewall_that_resets_ends_nobody() -> None:
    cluster = begun(13, 3)
    lead = controller(cluster)
    one, other = [machine for machine in cluster.machines if machine is not lead]
    control(one).down(other.name, other.incarnation, other.disk, True, one.clock(cluster.now))
    cluster.turn(one)
    cluster.run(400 * MS)
    configuration = control(lead).configuration
    assert configuration is not None
    assert is_up(configuration.members[other.disk].state)


def behind_two_firewalls(seed: int, delay: int, planted: list[str]) -> None:
    """Put two firewalls that answer with resets before a member that the controller reaches, until that link ends, too.

    Raises Violation if two members lead a partition under valid leases.
    """
    cluster = begun(seed, 4, planted=planted)
    cluster.run(S)
    lead = controller(cluster)
    machine = follower(cluster)
    for other in cluster.machines:
        if other not in (lead, machine):
            cluster.reset(machine, other)
    cluster.run(delay)
    link = cluster.link(lead, machine)
    if link.up:
        cluster.close(lead, machine, link)
    cluster.run(3 * S)


@pytest.mark.parametrize("delay", [1, 5, 50, 200, 700, 1300])
def test_a_heartbeat_refutes_those_who_have_seen_its_process_end(delay: int) -> None:
    # The two witnesses go on to tell what they have seen. But the member has given its lease back since, and the
    # controller, which it reaches, has given it another one: that one has to be over before others lead.
    for seed in range(5):
        behind_two_firewalls(seed, delay * MS, [])


def test_two_leaders_would_speak_if_claims_were_believed_that_a_heartbeat_has_refuted() -> None:
    with pytest.raises(Violation, match="lead"):
        behind_two_firewalls(0, 200 * MS, ["keeps_claims"])


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_with_longer_times_than_its_voters_grants_no_longer_than_they_have_promised(seed: int) -> None:
    cluster = Cluster(seed, 3)
    for machine in cluster.machines:
        machine.options.raft.election_ns = (1000 if machine.number == 1 else 200) * MS
        cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    old = controller(cluster)
    assert old.number == 1
    cluster.isolate(old, cluster.machines, True)
    cluster.run(4 * S)  # two that lead one partition under leases are found
    assert served(cluster, old)


def led_twice(seed: int, planted: list[str], both: bool) -> list[tuple[int, int]]:
    """Put a controller behind a firewall that answers with resets; return what is led beside a member that it reaches.

    Of the old controller itself the resets are a proof that it has ended, which is wrong: it is not looked at. both: it
    gets resets, too.
    """
    cluster = begun(seed, 5)
    cluster.run(2 * S)
    cluster.planted = planted
    for machine in cluster.machines:
        control(machine)._planted = PlantedControl(planted)
    cluster.check_leaders = lambda: None  # type: ignore[method-assign]
    old = controller(cluster)
    member = follower(cluster)
    others = [one for one in cluster.machines if one not in (old, member)]
    cluster.isolate(member, others, True)
    for one in others:
        cluster.reset(old, one, both)
    until = cluster.now + 4 * S
    while cluster.now < until:
        cluster.run(5 * MS)
        led = [place for one in others for place in cluster.leads(one)]
        twice = [place for place in cluster.leads(member) if place in led]
        if twice:
            return twice
    return []


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_member_that_only_an_old_controller_reaches_keeps_its_lease_until_it_is_over(seed: int, both: bool) -> None:
    assert led_twice(seed, [], both) == []


def test_a_leader_that_trusts_the_proof_of_an_end_would_give_its_leaderships_away() -> None:
    assert led_twice(0, ["trusts_proofs"], False)


@pytest.mark.parametrize("planted", [[], ["drops_early"]])
def test_copies_move_when_all_have_installed_the_last_roles(planted: list[str]) -> None:
    cluster = begun(43, 3, planted=planted)
    machine = follower(cluster)
    machine.is_frozen = True
    added = cluster.add()
    cluster.start(added)
    cluster.run(5 * S)
    configuration = control(controller(cluster)).configuration
    assert configuration is not None
    assert is_up(configuration.members[added.disk].state)
    assert configuration.holds(added.disk) == (len(planted) > 0)
    machine.is_frozen = False
    cluster.until(cluster.is_whole, 20 * S)


def test_settings_without_end_do_not_keep_copies_from_their_places() -> None:
    cluster = begun(44, 3)
    leads = controller(cluster).control
    assert leads is not None
    assert leads.controller is not None
    leads.controller._asked[1 << 40] = (leads.me.disk, 1)  # one is always on its way
    added = cluster.add()
    cluster.start(added)
    cluster.run(5 * S)
    configuration = control(controller(cluster)).configuration
    assert configuration is not None
    assert configuration.holds(added.disk)


def test_settings_leave_numbers_for_changes_of_roles() -> None:
    cluster = begun(45, 3)
    leads = controller(cluster)
    configuration = control(leads).configuration
    assert configuration is not None
    kept = configuration.base
    configuration.base = SETTINGS_COUNTER_MAX - configuration.index
    ticket = control(leads).requests.put("k", b"v", -1, "test")
    before = configuration.index
    control(leads).step(leads.clock(cluster.now))
    control(leads).collect(leads.writer, leads.clock(cluster.now))
    answers = {answer.ticket: answer.refused for answer in control(leads).requests.answers}
    assert answers == {ticket: NO_NUMBERS}
    assert [event.kind for event in control(leads).events] == ["configuration_numbers_short"]
    configuration.base = kept
    cluster.run(S)
    assert configuration.index == before, "a refusal takes no number"


def test_a_process_whose_disk_needs_another_identity_says_at_once_that_it_has_no_lease() -> None:
    cluster = begun(46, 3)
    machine = follower(cluster)
    cluster.run(S)
    one = control(machine)
    one._set_back("a test says so")
    one.out.clear()
    one.step(machine.clock(cluster.now))
    told = [decode_greeting(body) for _node, kind, body in one.out if kind == CONTROL and kind_of(body) == GREETING]
    assert [greeting.live for greeting in told] == [False, False]


# What operators ask for


def test_a_member_leaves_and_is_none_any_more() -> None:
    cluster = begun(17, 4)
    machine = follower(cluster)
    control(machine).leaving = True
    cluster.turn(machine)
    cluster.until(lambda: control(machine).has_left, 20 * S)
    configuration = control(controller(cluster)).configuration
    assert configuration is not None
    assert machine.disk not in configuration.members
    cluster.kill(machine)
    cluster.until(cluster.is_whole, 10 * S)


def test_the_controller_leaves() -> None:
    cluster = begun(19, 4)
    machine = controller(cluster)
    control(machine).leaving = True
    cluster.turn(machine)
    cluster.until(lambda: control(machine).has_left, 30 * S)
    cluster.kill(machine)
    cluster.until(cluster.is_whole, 10 * S)


def test_a_late_word_of_an_earlier_leader_does_not_set_the_only_voter_back() -> None:
    """The leader of the log was told to leave, and left the vote to the last one; then comes what a link had held.

    That it is set back would be the end of the cluster: nobody else has a vote (191143).
    """
    cluster = begun(19, 2)
    leaver, last = controller(cluster), follower(cluster)
    lineage = control(leaver).lineage
    late = Greeting(control(leaver).cluster, lineage)
    log = control(leaver).log
    assert log is not None
    late.live, late.leader, late.term = True, leaver.disk, log.term
    control(leaver).leaving = True
    cluster.turn(leaver)
    cluster.until(lambda: voters_of(last) == [last.disk], 30 * S)
    assert control(last).leader() == last.disk
    control(last).receive(leaver.name, CONTROL, late.encoded(), last.clock(cluster.now))
    assert not control(last).renewal
    cluster.until(lambda: control(leaver).has_left, 30 * S)
    late.leader, late.term = leaver.disk, 99  # elected later, which is only possible by entries that are not here
    control(last).receive(leaver.name, CONTROL, late.encoded(), last.clock(cluster.now))
    assert control(last).renewal


def test_a_leave_that_was_ordered_in_a_fork_holds_when_it_is_merged() -> None:
    cluster = begun(23, 4)
    machine = follower(cluster)
    others = [one for one in cluster.machines if one is not machine]
    cluster.isolate(machine, others, True)
    cluster.until(lambda: "cluster_forked" in machine.events and control(machine).is_up, 30 * S)
    control(machine).leave(machine.name)
    cluster.run(5 * S)
    assert not control(machine).has_left, "nobody could take over what it has"
    cluster.kill(machine)
    cluster.isolate(machine, others, False)
    cluster.start(machine)
    cluster.until(lambda: control(machine).has_left, 60 * S)
    assert "lineage_left" in machine.events


def test_who_waits_for_its_leave_in_a_fork_and_was_forgotten_by_the_trunk_brings_what_it_has() -> None:
    """It may be the only one that has changes of the fork: it joins as another disk, and they are merged."""
    cluster = begun(1, 5)
    cluster.run(5 * S)
    trunk = controller(cluster)
    leaver, near = [machine for machine in cluster.machines if machine is not trunk][:2]
    others = [machine for machine in cluster.machines if machine not in (leaver, near)]
    before = control(trunk).lineage
    for machine in (leaver, near):
        cluster.isolate(machine, others, True)
    cluster.until(lambda: has_forked(cluster, leaver, before) and has_forked(cluster, near, before), 30 * S)
    disk = leaver.disk
    control(leaver).leaving = True
    cluster.turn(leaver)
    cluster.run(3 * S)
    assert not control(leaver).has_left
    control(trunk).forget(leaver.name, trunk.clock(cluster.now))
    cluster.run(S)
    configuration = control(trunk).configuration
    assert configuration is not None
    assert disk not in configuration.members
    merged: dict[int, bool] = {}

    def comes() -> bool:
        assert not control(leaver).has_left
        found = control(trunk).configuration
        assert found is not None
        merged.update({number: True for number, disks in found.branches.items() if leaver.disk in disks})
        return leaver.disk != disk and cluster.is_whole()

    for machine in (leaver, near):
        cluster.isolate(machine, others, False)
    cluster.until(comes, 60 * S)
    assert merged


def test_who_waits_for_its_leave_goes_over_with_the_others() -> None:
    """It has handed over and asked to be away, and then nobody leads its lineage: in a fork it waits for all."""
    cluster = begun(23, 5)
    leaver = follower(cluster)
    others = [machine for machine in cluster.machines if machine is not leaver]
    cluster.isolate(leaver, others, True)
    control(leaver).leaving = control(leaver).stopping = True
    for other in others[:2]:
        cluster.kill(other)
    cluster.until(lambda: all("cluster_forked" in one.events or has_come_over(one) for one in others[2:]), 60 * S)
    for other in others[2:]:
        cluster.cut(leaver, other, False)
        cluster.cut(other, leaver, False)
    cluster.until(lambda: "lineage_left" in leaver.events, 60 * S)
    assert not control(leaver).stopping
    cluster.run(20 * S)
    assert not control(leaver).has_left
    cluster.isolate(leaver, others, False)
    for other in others[:2]:
        cluster.start(other)
    cluster.until(lambda: control(leaver).has_left, 60 * S)


def has_come_over(machine: Machine) -> bool:
    return "lineage_left" in machine.events and control(machine).is_up


def left_by_one(cluster: Cluster, forks: int) -> tuple[list[Machine], list[Machine], int]:
    """Have members fork, each alone; of the other side one leaves, and then all of it fail.

    Return the forked ones, those who stay of the other side, and the disk that has left.
    """
    cluster.run(5 * S)
    *lones, leaver = [machine for machine in cluster.machines if machine is not controller(cluster)][: forks + 1]
    others = [machine for machine in cluster.machines if machine not in lones]
    for lone in lones:
        cluster.isolate(lone, cluster.machines, True)
    cluster.until(lambda: all("cluster_forked" in lone.events and control(lone).is_up for lone in lones), 30 * S)
    control(leaver).leaving = True
    cluster.turn(leaver)
    cluster.until(lambda: control(leaver).has_left, 30 * S)
    disk = leaver.disk
    for other in others:
        cluster.kill(other)
    others.remove(leaver)
    return lones, others, disk


def test_who_has_left_one_side_is_not_expected_back_by_the_other() -> None:
    """The side on which it left fails, and its members come back one by one: each goes over to the other side."""
    cluster = begun(23, 4)
    (lone,), others, disk = left_by_one(cluster, 1)
    cluster.isolate(lone, others, False)
    for other in others:
        cluster.start(other)
        cluster.until(partial(has_come_over, other), 60 * S)
    configuration = control(lone).configuration
    assert configuration is not None
    assert [control(other).lineage for other in others] == [configuration.lineage] * 2
    cluster.until(lambda: disk not in configuration.members, 20 * S)


@pytest.mark.parametrize("is_known", [False, True])
def test_who_has_left_one_side_is_not_expected_back_by_the_side_after_the_next(is_known: bool) -> None:
    """A member goes over to a fork, and before it is up there, to a stronger one: neither knows who has left.

    is_known: the first fork has sent its configuration.
    """
    cluster = begun(23, 6)
    lones, others, disk = left_by_one(cluster, 2)
    forks = {control(lone).lineage: control(lone).configuration for lone in lones}
    last = trunk_of([lineage_in(fork) for fork in forks.values() if fork is not None]).lineage
    weak, strong = sorted(lones, key=lambda lone: control(lone).lineage == last)
    comer = others[0]
    cluster.isolate(comer, [weak], False)
    cluster.start(comer)
    cluster.until(lambda: "lineage_left" in comer.events, 60 * S)
    if is_known:
        cluster.until(lambda: control(comer).configuration is not None, 5 * S)
        assert control(comer).lineage == control(weak).lineage
    assert not control(comer).is_up
    cluster.isolate(comer, [weak], True)
    cluster.isolate(comer, [strong], False)
    cluster.until(lambda: control(comer).lineage == last and control(comer).is_up, 60 * S)
    configuration = control(strong).configuration
    assert configuration is not None
    cluster.until(lambda: disk not in configuration.members or is_leaving(configuration.members[disk].state), 20 * S)


def test_who_has_left_one_side_is_not_expected_back_though_the_last_that_knows_starts_again() -> None:
    """It goes over to the other side, whose configuration has reached its disk, and ends before it is up there."""
    cluster = begun(23, 4)
    (lone,), others, disk = left_by_one(cluster, 1)
    comer = others[0]
    cluster.isolate(lone, others, False)
    cluster.start(comer)
    lineage = control(lone).lineage
    cluster.until(lambda: is_named(comer, lineage), 60 * S)
    assert not control(comer).is_up
    cluster.kill(comer)
    cluster.start(comer)
    cluster.until(lambda: control(comer).lineage == lineage and control(comer).is_up, 60 * S)
    configuration = control(lone).configuration
    assert configuration is not None
    cluster.until(lambda: disk not in configuration.members or is_leaving(configuration.members[disk].state), 20 * S)


def is_named(machine: Machine, lineage: int) -> bool:
    """Tell whether the disk of a machine names a lineage as the one in which it takes part."""
    current = read_current(machine.store)
    return current is not None and current.lineage == lineage


def test_who_was_forgotten_by_one_side_and_lives_on_the_other_stays_when_it_stops_later() -> None:
    """The order was about a node that does not come back; this one was there when the sides met."""
    cluster = begun(31, 5)
    cluster.run(5 * S)
    trunk = controller(cluster)
    living, *fork = [machine for machine in cluster.machines if machine is not trunk][:3]
    others = [machine for machine in cluster.machines if machine not in fork]
    before = control(trunk).lineage
    for machine in fork:
        cluster.isolate(machine, others, True)
    cluster.until(lambda: all(has_forked(cluster, machine, before) for machine in fork), 30 * S)
    for machine in fork:
        control(machine).forget(living.name, machine.clock(cluster.now))
    cluster.run(3 * S)
    configuration = control(fork[0]).configuration
    assert configuration is not None
    assert living.disk not in configuration.members
    for machine in fork:
        cluster.isolate(machine, others, False)
    cluster.until(cluster.is_whole, 60 * S)
    cluster.run(10 * S)
    disk = living.disk
    control(living).stopping = True
    cluster.until(lambda: control(living).is_away, 20 * S)
    cluster.kill(living)
    cluster.run(5 * S)
    configuration = control(trunk).configuration
    assert configuration is not None
    assert not is_leaving(configuration.members[disk].state)


def with_newcomer() -> tuple[Cluster, list[Machine], Machine]:
    """Return a cluster, its five first members, and a sixth one that has just come up, and holds nothing."""
    cluster = Cluster(29, 6)
    *members, newcomer = cluster.machines
    for machine in members:
        cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    cluster.start(newcomer)
    cluster.until(lambda: control(newcomer).is_up, 10 * S)
    return cluster, members, newcomer


def test_who_holds_nothing_leaves_a_fork_when_the_others_are_back() -> None:
    """It is up until then: a fork becomes the trunk when all are up, and removes nobody before."""
    cluster, members, newcomer = with_newcomer()
    lost = members[:3]
    for machine in lost:
        cluster.kill(machine)
    left = [*members[3:], newcomer]
    before = control(newcomer).lineage
    cluster.until(lambda: all(control(one).is_up and control(one).lineage != before for one in left), 60 * S)
    configuration = control(newcomer).configuration
    assert configuration is not None
    assert configuration.trunk != configuration.lineage
    assert not configuration.holds(newcomer.disk)
    control(newcomer).leaving = True
    cluster.turn(newcomer)
    cluster.run(5 * S)
    assert not control(newcomer).has_left
    for machine in lost:
        cluster.start(machine)
        cluster.until(partial(has_come_over, machine), 60 * S)
    cluster.until(lambda: control(newcomer).has_left, 60 * S)
    configuration = control(members[0]).configuration
    assert configuration is not None
    assert configuration.trunk == configuration.lineage


@pytest.mark.parametrize("is_merged", [False, True])
def test_who_left_the_trunk_waits_until_a_fork_that_counts_it_is_over(is_merged: bool) -> None:
    """It was up in the fork, which removes nobody who was, and knows nothing of the trunk when that one fails (446353).

    is_merged: the trunk does not fail.
    """
    cluster, members, leaver = with_newcomer()
    before = control(leaver).lineage
    trunk = controller(cluster)
    near = next(machine for machine in members if machine is not trunk)
    others = [machine for machine in members if machine is not near]
    for machine in (leaver, near):
        cluster.isolate(machine, others, True)
    control(leaver).leaving = True  # so it is given no copies in the fork
    cluster.until(lambda: has_forked(cluster, leaver, before) and has_forked(cluster, near, before), 30 * S)
    cluster.until(lambda: not is_member(trunk, leaver) or not is_up_at(trunk, leaver), 10 * S)
    control(trunk).forget(leaver.name, trunk.clock(cluster.now))
    cluster.until(lambda: not is_member(trunk, leaver), 10 * S)
    assert is_up_at(near, leaver)
    cluster.isolate(leaver, others, False)
    cluster.until(lambda: control(leaver).lineage == before and control(leaver).verdict == STRANGER, 30 * S)
    assert near.is_live(cluster.now)
    assert not control(leaver).has_left
    if is_merged:
        cluster.isolate(near, others, False)
        cluster.until(lambda: control(leaver).has_left, 60 * S)
        assert control(near).lineage == before
        return

    def is_back() -> bool:
        assert not control(leaver).has_left
        return control(leaver).lineage == control(near).lineage and control(leaver).is_up

    for other in others:
        cluster.kill(other)
    cluster.until(is_back, 60 * S)
    cluster.isolate(near, others, False)
    for other in others:
        cluster.start(other)
        cluster.until(partial(has_come_over, other), 60 * S)
    cluster.until(lambda: control(leaver).has_left, 60 * S)
    assert not is_member(near, leaver)


def is_member(machine: Machine, other: Machine) -> bool:
    """Tell whether another machine is a member, as a machine knows."""
    configuration = control(machine).configuration
    assert configuration is not None
    return other.disk in configuration.members


def is_up_at(machine: Machine, other: Machine) -> bool:
    """Tell whether another machine, which is a member, is up, as a machine knows."""
    configuration = control(machine).configuration
    assert configuration is not None
    return is_up(configuration.members[other.disk].state)


@pytest.mark.parametrize("takes_back", [False, True])
def test_an_order_about_a_member_that_has_just_changed_is_given_again(takes_back: bool) -> None:
    cluster = begun(1, 4)
    cluster.run(5 * S)
    first = controller(cluster)
    machine, other = [one for one in cluster.machines if one is not first][:2]
    link = cluster.link(first, other)
    link.lag[cluster.way(first, other)] = 300 * MS
    disk = machine.disk
    control(machine).slow = True
    cluster.run(200 * MS)
    control(other).leave(machine.name)
    cluster.run(200 * MS)
    if takes_back:
        control(other).stay(machine.name)
    link.lag[cluster.way(first, other)] = 0
    control(machine).slow = False
    cluster.run(10 * S)
    configuration = control(first).configuration
    assert configuration is not None
    assert (disk in configuration.members) == takes_back


def test_a_leave_is_taken_back() -> None:
    cluster = begun(23, 3)
    machine, other = follower(cluster), controller(cluster)
    control(other).leave(machine.name)
    cluster.run(50 * MS)
    configuration = control(other).configuration
    assert configuration is not None
    assert configuration.members[machine.disk].state == 3
    control(other).stay(machine.name)
    cluster.until(cluster.is_whole, 10 * S)


def test_a_process_that_was_put_out_stays_out_until_it_is_started_again() -> None:
    cluster = begun(29, 3)
    machine = follower(cluster)
    other = next(one for one in cluster.machines if one is not machine and one is not controller(cluster))
    control(other).evict(machine.name)
    cluster.run(4 * S)
    assert "operator" in control(machine).fault
    cluster.run(10 * S)
    assert not control(machine).is_up
    cluster.kill(machine)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)


@pytest.mark.parametrize("count", [3, 2, 1])
def test_the_controller_is_put_out(count: int) -> None:
    """A successor does it; where nobody else votes, there is none, and the controller does it."""
    cluster = begun(31, count)
    machine = controller(cluster)
    control(machine).evict(machine.name)
    cluster.until(lambda: control(machine).fault != "", 10 * S)
    cluster.kill(machine)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_several_are_put_out_and_the_controller_is_one_of_them(count: int) -> None:
    """They do not hand over to each other again and again: nobody would get a lease, or be put out."""
    cluster = begun(31, count)
    cluster.run(2 * S)
    machine, other = controller(cluster), follower(cluster)
    asked = cluster.machines[-1]
    for out in (other, machine):
        control(asked).evict(out.name)
    cluster.turn(asked)
    cluster.until(lambda: control(machine).fault != "" and control(other).fault != "", 10 * S)
    for out in (machine, other):
        cluster.kill(out)
        cluster.start(out)
    cluster.until(cluster.is_whole, 20 * S)


def test_the_only_member_with_data_is_put_out_beside_a_witness() -> None:
    """A witness gets no vote where one member votes alone, so nobody else will do it."""
    cluster = begun(31, 2, witnesses=1)
    machine = cluster.machines[0]
    assert voters_of(machine) == [machine.disk]
    control(machine).evict(machine.name)
    cluster.until(lambda: control(machine).fault != "", 10 * S)
    cluster.kill(machine)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)


def test_the_controller_is_put_out_while_the_only_other_member_leaves() -> None:
    """Whoever leaves gets no vote, so nobody else will do it."""
    cluster = begun(31, 3)
    cluster.run(2 * S)
    machine = controller(cluster)
    lost, leaver = [other for other in cluster.machines if other is not machine]
    cluster.kill(lost)
    control(leaver).leaving = True
    cluster.turn(leaver)
    cluster.until(lambda: voters_of(machine) == [machine.disk], 60 * S)
    control(machine).evict(machine.name)
    cluster.until(lambda: control(machine).fault != "", 5 * S)


def test_who_was_away_goes_on_beside_an_only_voter_that_was_put_out() -> None:
    """Its process still runs, and greets."""
    cluster = begun(31, 2)
    cluster.run(2 * S)
    machine, other = controller(cluster), follower(cluster)
    cluster.kill(other)
    cluster.run(10 * S)
    control(machine).evict(machine.name)
    cluster.until(lambda: control(machine).fault != "", 10 * S)
    cluster.start(other)
    cluster.until(lambda: bool(cluster.leads(other)), 20 * S)
    cluster.kill(machine)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 20 * S)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_left_without_a_quorum_goes_on_when_the_lost_are_forgotten(seed: int) -> None:
    """All five vote. Three are lost; the two that are left are a quorum of themselves, and one gets the orders."""
    cluster = begun(seed, 5, False)
    cluster.run(2 * S)
    log = control(controller(cluster)).log
    assert log is not None
    assert len(log.voters) == 5
    left = [machine for machine in cluster.machines if machine is not controller(cluster)][:2]
    lost = [machine for machine in cluster.machines if machine not in left]
    for machine in lost:
        cluster.kill(machine)
    cluster.run(10 * S)
    assert not [machine for machine in left if cluster.leads(machine)], "a minority does not fork by itself"
    best = max(left, key=index_of)
    before = {machine.name: machine.disk for machine in lost}
    for machine in lost[:2]:
        control(best).forget(machine.name, best.clock(cluster.now), True)
        cluster.run(10 * S)
        led = [number for one in left for _lineage, number in cluster.leads(one)]
        assert (len(led) > 0) == (machine is lost[1]), "two of three voters are a quorum"
    for machine in left:
        configuration = control(machine).configuration
        assert configuration is not None
        assert configuration.ancestors
        known = set(configuration.members)
        assert not known & {before[machine.name] for machine in lost[:2]}
        assert before[lost[2].name] in known, "it was not named, and is expected back"
    for machine in lost[1:]:
        cluster.start(machine)
    cluster.run(5 * S)
    cluster.start(lost[0])
    cluster.until(cluster.is_whole, 40 * S)
    assert {control(machine).lineage for machine in cluster.machines} == {control(best).lineage}


def test_an_order_ends_with_the_silence() -> None:
    cluster = begun(5, 3, False)
    machine = follower(cluster)
    others = [one for one in cluster.machines if one is not machine]
    for other in others:
        cluster.kill(other)
    cluster.run(5 * S)
    control(machine).forget(others[0].name, machine.clock(cluster.now), True)
    cluster.run(5 * S)
    assert not cluster.leads(machine), "one of two voters is no quorum"
    cluster.start(others[0])
    cluster.until(lambda: len(cluster.leads(machine)) > 0, 20 * S)
    cluster.kill(others[0])
    cluster.run(20 * S)
    assert not cluster.leads(machine), "the order was about another time"
    lineages = {control(one).lineage for one in cluster.machines if one.control is not None}
    cluster.start(others[0])
    cluster.start(others[1])
    cluster.until(cluster.is_whole, 20 * S)
    assert {control(one).lineage for one in cluster.machines} == lineages


def test_a_member_that_is_forgotten_comes_back_as_another() -> None:
    cluster = begun(37, 4)
    machine = follower(cluster)
    before = machine.disk
    cluster.kill(machine)
    cluster.run(S)
    control(controller(cluster)).forget(machine.name, cluster.now)
    cluster.run(S)
    configuration = control(controller(cluster)).configuration
    assert configuration is not None
    assert before not in configuration.members
    cluster.start(machine)
    cluster.until(cluster.is_whole, 20 * S)
    assert machine.disk != before


@pytest.mark.parametrize("seed", range(5))
def test_no_member_loses_its_vote_to_one_that_is_forgotten(seed: int) -> None:
    """The vote of a forgotten disk commits that it is forgotten: it runs, and is about to take another identity."""
    cluster = begun(seed, 3, forks=False)
    cluster.run(3 * S)
    boss = controller(cluster)
    forgotten, other = [machine for machine in cluster.machines if machine is not boss]
    cluster.kill(forgotten)
    cluster.run(S)
    control(boss).forget(forgotten.name, boss.clock(cluster.now))
    cluster.turn(boss)
    cluster.kill(other)
    forgotten.disk_lag = 20 * MS
    cluster.start(forgotten)
    cluster.run(2 * S)
    cluster.start(other)
    cluster.until(cluster.is_whole, 10 * S)
    assert "disk_renewed" in forgotten.events


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [3, 7])
def test_an_even_number_of_voters_does_not_last(count: int, seed: int) -> None:
    """Its two halves can be cut apart, and then none elects a leader, though one may be linked to most members."""
    cluster = Cluster(seed, count)
    for machine in cluster.machines:
        cluster.start(machine)
    even_ms = 0
    while not cluster.is_whole():
        cluster.run(MS)
        logs = [one.control.log for one in cluster.machines if one.control is not None and one.control.controller]
        even_ms += any(log is not None and len(log.voters) % 2 == 0 for log in logs)
    assert 0 < even_ms <= 50 * (count // 3), "what links and disks of the model take"


def lag(cluster: Cluster, sender: Machine, to: Machine, length: int) -> None:
    """Let bytes in one direction take longer."""
    cluster.link(sender, to).lag[cluster.way(sender, to)] = length


def led_by(boss: Machine, machine: Machine) -> int:
    """Return how many partitions a machine leads, as another one knows."""
    configuration = control(boss).configuration
    assert configuration is not None
    return len([state for state in configuration.partitions if state.leader == machine.disk])


def answered_late(seed: int, count: int, length: int, planted: list[str]) -> tuple[int, int]:
    """Answers to one member take longer; return for how long it led partitions then, and how long after that it did."""
    cluster = begun(seed, count, forks=False, planted=planted)
    cluster.run(3 * S)
    boss, slow = controller(cluster), follower(cluster)
    assert led_by(boss, slow)
    lag(cluster, boss, slow, length)
    began = cluster.now
    led = 0
    while cluster.now - began < 20 * S:
        cluster.run(50 * MS)
        led += 50 * MS if led_by(boss, slow) else 0
        assert boss is controller(cluster), "the others have their leases"
        others = [machine for machine in cluster.machines if machine is not slow]
        assert all(machine.is_live(cluster.now) for machine in others)
    lag(cluster, boss, slow, 0)
    return led, cluster.until(cluster.is_whole, 60 * S)


@pytest.mark.parametrize(("count", "length"), [(2, 1100), (3, 950), (3, 3000), (5, 1100)])
def test_a_member_that_is_heard_and_answered_too_late_leads_nothing_until_it_is_not(count: int, length: int) -> None:
    led, back = answered_late(count, count, length * MS, [])
    assert led < 8 * S
    assert back < 20 * S


def test_a_member_that_is_answered_late_and_in_time_stays() -> None:
    led, _back = answered_late(1, 3, 700 * MS, [])
    assert led == 20 * S


def test_a_member_that_is_answered_too_late_would_lead_for_ever() -> None:
    led, _back = answered_late(1, 3, 1100 * MS, ["keeps_unleased"])
    assert led == 20 * S


def test_heartbeats_that_come_together_tell_of_one_moment() -> None:
    """They waited for a way that is open again: in time or not, none of them says that the next one will be late."""
    cluster = begun(1, 3, forks=False)
    cluster.run(3 * S)
    boss, well = controller(cluster), follower(cluster)
    judge = control(boss).controller
    configuration = control(boss).configuration
    assert judge is not None
    assert configuration is not None
    member = configuration.members[well.disk]
    beat = Beat(control(boss).lineage, 0, 0)
    beat.lapsed = True
    for _ in range(12):
        judge._note_lapse(member.disk, member.incarnation, beat, boss.clock(cluster.now))
    for _ in range(60):
        cluster.run(50 * MS)
        assert led_by(boss, well)


@pytest.mark.parametrize("count", [3, 5])
def test_a_controller_that_answers_most_too_late_takes_nothing_from_them_and_hands_over(count: int) -> None:
    cluster = begun(count, count, forks=False)
    cluster.run(3 * S)
    boss = controller(cluster)
    others = [machine for machine in cluster.machines if machine is not boss]
    for machine in others:
        lag(cluster, boss, machine, 1100 * MS)
    versions = [version_of(boss, machine) for machine in others]
    cluster.run(10 * S)
    assert controller(cluster) is not boss
    assert all(machine.is_live(cluster.now) for machine in others)
    assert [version_of(others[0], machine) for machine in others] == versions, "none of them was away"
    assert served(cluster, boss), "its heartbeats come as late as its answers: it is away"


@pytest.mark.parametrize("length", [950, 1300])
def test_the_log_does_not_go_to_and_fro_between_voters_that_are_all_on_the_bad_side(length: int) -> None:
    """Three of five voters are on it, and most members on the other: no voter there would be answered by a quorum."""
    cluster = begun(1, 7, forks=False)
    cluster.run(3 * S)
    boss = controller(cluster)
    voters = [machine for machine in cluster.machines if machine.disk in voters_of(boss) and machine is not boss]
    here = [boss, *voters[:2]]
    there = [machine for machine in cluster.machines if machine not in here]
    for part in range(1, 11):  # slowly, as queues grow: else the log has no leader for a moment
        for one in here:
            for other in there:
                lag(cluster, one, other, length * part // 10 * MS)
        cluster.run(500 * MS)
    cluster.run(10 * S)
    keeps = controller(cluster)
    assert keeps in here
    told = len(cluster.log)
    for _ in range(200):
        cluster.run(200 * MS)
        assert all(machine.is_live(cluster.now) for machine in here)
    assert not [line for line in cluster.log[told:] if "Event(info controller" in line]
    assert not [machine for machine in there if led_by(keeps, machine)]
    for one in here:
        for other in there:
            lag(cluster, one, other, 0)
    cluster.until(cluster.is_whole, 20 * S)


def version_of(boss: Machine, machine: Machine) -> int:
    """Return the last entry that has changed a member."""
    configuration = control(boss).configuration
    assert configuration is not None
    return configuration.members[machine.disk].version


@pytest.mark.parametrize("seed", range(10))
def test_members_stop_one_after_the_other_and_the_last_one_goes_on(seed: int) -> None:
    cluster = begun(seed, 3)
    order = list(cluster.machines)
    cluster.rng.below(2)
    for machine in order[seed % 3 :] + order[: seed % 3]:
        if len([one for one in cluster.machines if one.control is not None]) == 1:
            break
        cluster.run(2 * S)
        control(machine).stopping = True
        cluster.turn(machine)
        cluster.until(lambda: control(machine).is_away, 5 * S)  # noqa: B023
        cluster.kill(machine)
    last = next(machine for machine in cluster.machines if machine.control is not None)
    cluster.run(S)
    assert control(last).is_live(last.clock(cluster.now))
    assert len(cluster.leads(last)) == 8
    for machine in cluster.machines:
        if machine.control is None:
            cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    assert len({control(machine).lineage for machine in cluster.machines}) == 1


def stop(cluster: Cluster, machine: Machine) -> int:
    """Stop a process in order, as the driver does; return how long it took."""
    began = cluster.now
    control(machine).stopping = True
    cluster.turn(machine)
    cluster.until(lambda: control(machine).is_away, 2 * S)
    cluster.kill(machine)
    return cluster.now - began


def serves_without(seed: int, leads: bool, lost: bool, planted: list[str]) -> bool:
    """Tell whether two of three serve after one was stopped, and another one was lost before that is back.

    leads: the controller is stopped. lost: the controller of then is lost, or else the third member.
    """
    cluster = begun(seed, 3, forks=False, planted=planted)
    cluster.run(3 * S)
    stopped = controller(cluster) if leads else follower(cluster)
    assert stop(cluster, stopped) < 500 * MS
    cluster.run(5 * S)
    boss = controller(cluster)
    other = next(machine for machine in cluster.machines if machine not in (stopped, boss))
    assert control(boss).is_live(boss.clock(cluster.now))
    assert control(other).is_live(other.clock(cluster.now))
    gone, left = (boss, other) if lost else (other, boss)
    cluster.isolate(gone, cluster.machines, True)
    cluster.kill(gone)
    cluster.run(2 * S)
    cluster.start(stopped)
    cluster.run(20 * S)
    return all(machine.is_live(cluster.now) for machine in (stopped, left))


@pytest.mark.parametrize("lost", [True, False], ids=["loses-controller", "loses-other"])
@pytest.mark.parametrize("leads", [True, False], ids=["stops-controller", "stops-other"])
def test_three_members_of_which_one_is_stopped_survive_the_loss_of_another(leads: bool, lost: bool) -> None:
    for seed in range(3):
        assert serves_without(seed, leads, lost, [])


def test_the_loss_of_one_ends_service_where_a_stop_costs_the_votes_of_two() -> None:
    assert not serves_without(0, False, True, ["stops_cost_votes"])


@pytest.mark.parametrize("pause", [0, 300, 3000])
@pytest.mark.parametrize(("count", "witnesses"), [(2, 0), (3, 1), (3, 0), (4, 0), (5, 1), (7, 0)])
def test_members_that_are_stopped_in_any_order_end_soon_and_the_last_one_serves(
    count: int, witnesses: int, pause: int
) -> None:
    for seed in range(3):
        cluster = begun(seed, count, forks=False, witnesses=witnesses)
        cluster.run(3 * S)
        running = list(cluster.machines)
        while len(running) > 1:
            data = [machine for machine in running if not machine.witness]
            machine = running[cluster.rng.below(len(running))]
            if data == [machine]:
                continue
            running.remove(machine)
            assert stop(cluster, machine) < 500 * MS
            cluster.run(
                (1200, 3000)[cluster.rng.below(2)] * MS
            )  # a new controller waits for leases that it may not know
        cluster.run(S)
        last = running[0]
        assert last.is_live(cluster.now)
        assert voters_of(last) == [last.disk]
        for machine in cluster.machines:
            if machine.control is None:
                cluster.start(machine)
        cluster.until(cluster.is_whole, 20 * S)


def test_a_rolling_restart_changes_no_voters() -> None:
    cluster = begun(2, 5, forks=False)
    cluster.run(3 * S)
    voters = voters_of(controller(cluster))
    for machine in list(cluster.machines):
        assert stop(cluster, machine) < 500 * MS
        assert voters_of(controller(cluster)) == voters
        cluster.run(S)
        cluster.start(machine)
        cluster.until(cluster.is_whole, 20 * S)
        assert voters_of(controller(cluster)) == voters


def test_an_evicted_member_keeps_its_vote_and_one_that_is_forgotten_does_not() -> None:
    cluster = begun(3, 3, forks=False)
    cluster.run(3 * S)
    boss = controller(cluster)
    out = follower(cluster)
    control(boss).evict(out.name)
    cluster.turn(boss)
    cluster.until(lambda: bool(control(out).fault), 10 * S)
    cluster.kill(out)
    cluster.run(2 * S)
    assert len(voters_of(boss)) == 3
    control(boss).forget(out.name, boss.clock(cluster.now))
    cluster.turn(boss)
    cluster.run(5 * S)
    assert len(voters_of(boss)) == 1


def test_a_stopped_member_that_is_told_to_leave_votes_no_more() -> None:
    cluster = begun(3, 3, forks=False)
    cluster.run(3 * S)
    boss = controller(cluster)
    stopped = follower(cluster)
    stop(cluster, stopped)
    cluster.run(2 * S)
    assert len(voters_of(boss)) == 3
    control(boss).leave(stopped.name)
    cluster.turn(boss)
    cluster.run(5 * S)
    assert len(voters_of(boss)) == 1
    assert len([machine for machine in cluster.machines if machine.is_live(cluster.now)]) == 2


@pytest.mark.parametrize(("count", "stopped"), [(5, 3), (5, 4), (7, 5), (7, 6)])
def test_of_members_that_stop_together_a_majority_can_serve_again(count: int, stopped: int) -> None:
    """Those that are left vote alone: else most voters would be members that have ended, and nobody could change it."""
    cluster = begun(1, count, forks=False)
    cluster.run(3 * S)
    boss = controller(cluster)
    ending = [machine for machine in cluster.machines if machine is not boss][:stopped]
    for machine in ending:
        control(machine).stopping = True
    end = cluster.now + S  # then the driver waits no longer
    while cluster.now < end:
        cluster.run(20 * MS)
        for machine in ending:
            if machine.control is not None and machine.control.is_away:
                cluster.kill(machine)
    assert not [machine for machine in ending if machine.control is not None], "each has stopped in time"
    cluster.run(5 * S)
    running = [machine for machine in cluster.machines if machine.control is not None]
    assert all(machine.is_live(cluster.now) for machine in running)
    for machine in ending[: count // 2 + 1 - len(running)]:
        cluster.start(machine)
        running.append(machine)
    cluster.run(20 * S)
    assert all(machine.is_live(cluster.now) for machine in running)


@pytest.mark.parametrize("seed", range(3))
def test_a_stop_beside_a_member_that_is_answered_too_late_leaves_the_controller_as_the_only_voter(seed: int) -> None:
    """The late one is linked and votes, but so late that the controller would not lead with it alone."""
    cluster = begun(seed, 3, forks=False)
    cluster.run(3 * S)
    boss = controller(cluster)
    late, other = [machine for machine in cluster.machines if machine is not boss]
    lag(cluster, boss, late, 1100 * MS)
    cluster.until(lambda: not control(late).is_up, 10 * S)
    cluster.run(S)
    assert len(voters_of(boss)) == 3
    assert stop(cluster, other) < 500 * MS
    cluster.run(S)
    assert boss.is_live(cluster.now)
    assert voters_of(boss) == [boss.disk]
    lag(cluster, boss, late, 0)
    cluster.start(other)
    cluster.until(cluster.is_whole, 20 * S)
    assert len(voters_of(boss)) == 3


@pytest.mark.parametrize("pause", [20, 130, 210])
def test_the_last_of_three_serves_when_one_that_was_cut_off_stops_just_before_another(pause: int) -> None:
    """The one that was cut off is away already, so no entry says that it stops; its process ends a second later."""
    for seed in range(3):
        cluster = begun(seed, 3, forks=False)
        cluster.run(3 * S)
        boss = controller(cluster)
        cut_off, other = [machine for machine in cluster.machines if machine is not boss]
        lag(cluster, boss, cut_off, 1100 * MS)
        cluster.until(lambda: not control(cut_off).is_up, 10 * S)  # noqa: B023
        cluster.run(S)
        control(cut_off).stopping = True
        cluster.turn(cut_off)
        assert control(cut_off).is_away
        cluster.at(S, partial(cluster.kill, cut_off))
        cluster.run(pause * MS)
        stop(cluster, other)
        cluster.run(3 * S)
        assert boss.is_live(cluster.now)
        assert voters_of(boss) == [boss.disk]


def test_a_setting_reaches_every_member() -> None:
    cluster = begun(41, 3)
    machine = follower(cluster)
    first = control(machine).requests.put("colour", b"red", 0, "somebody")
    cluster.turn(machine)
    cluster.run(500 * MS)
    second = control(machine).requests.put("colour", b"blue", 0, "somebody else")
    cluster.turn(machine)
    cluster.run(500 * MS)
    answers = {answer.ticket: answer.refused for answer in control(machine).requests.answers}
    assert answers == {first: 0, second: OTHER_NUMBER}
    for one in cluster.machines:
        configuration = control(one).configuration
        assert configuration is not None
        assert configuration.settings.values["colour"].value == b"red"


def test_a_feature_is_on_when_every_member_has_it_and_stays_on() -> None:
    cluster = Cluster(47, 3)
    for number, machine in enumerate(cluster.machines):
        machine.features = 3 if number else 1
        cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    cluster.run(S)
    configuration = control(controller(cluster)).configuration
    assert configuration is not None
    assert configuration.features == 1
    old = cluster.machines[0]
    cluster.kill(old)
    old.features = 7
    cluster.start(old)
    cluster.until(cluster.is_whole, 10 * S)
    cluster.run(S)
    for machine in cluster.machines:
        configuration = control(machine).configuration
        assert configuration is not None
        assert configuration.features == 3


def test_a_slow_member_hands_its_leaderships_over_and_gets_them_back() -> None:
    cluster = begun(53, 3)
    machine = follower(cluster)
    assert cluster.leads(machine)
    control(machine).slow = True
    cluster.until(lambda: not cluster.leads(machine), 10 * S)
    cluster.run(S)
    assert served(cluster, machine)
    control(machine).slow = False
    cluster.until(lambda: len(cluster.leads(machine)) >= 2, 10 * S)


def test_a_witness_that_joins_with_data_is_found() -> None:
    with pytest.raises(Violation, match="is a witness and holds data"):
        begun(59, 3, planted=["keeps_data"], witnesses=1)


def test_a_witness_votes_and_holds_nothing() -> None:
    cluster = begun(59, 3, witnesses=1)
    witness = cluster.machines[2]
    cluster.until(lambda: len(control(controller(cluster)).log.voters) == 3, 10 * S)  # type: ignore[union-attr]
    configuration = control(controller(cluster)).configuration
    assert configuration is not None
    assert not configuration.holds(witness.disk)
    other = next(one for one in cluster.machines[:2] if one is not controller(cluster))
    cluster.kill(other)
    cluster.until(lambda: served(cluster, other), 5 * S)
    assert "cluster_forked" not in [kind for one in cluster.machines for kind in one.events]


def told_to_go_on_alone(planted: list[str]) -> list[str]:
    """Let a witness be all that is left, and be told to forget the others; return what it tells of that."""
    cluster = begun(59, 3, planted=planted, witnesses=1)
    witness = cluster.machines[2]
    cluster.until(lambda: len(control(controller(cluster)).log.voters) == 3, 10 * S)  # type: ignore[union-attr]
    for other in cluster.machines[:2]:
        cluster.kill(other)
    cluster.run(5 * S)
    for other in cluster.machines[:2]:
        control(witness).forget(other.name, witness.clock(cluster.now), True)
    cluster.run(5 * S)
    assert "cluster_forked" not in witness.events
    return [kind for kind in witness.events if kind.startswith("forget_")]


def test_a_witness_refuses_an_order_to_go_on_alone() -> None:
    assert told_to_go_on_alone([]) == ["forget_refused"] * 2


def test_a_witness_that_takes_an_order_which_it_cannot_carry_out_is_found() -> None:
    assert told_to_go_on_alone(["orders_witness"]) == ["forget_ordered"] * 2


# Forks


@pytest.mark.parametrize("count", [2, 4])
def test_who_was_only_away_follows_those_that_have_gone_on(count: int) -> None:
    cluster = begun(count, count)
    first = controller(cluster)
    assert first.control is not None
    assert first.control.log is not None
    lineage = first.control.lineage
    voters = list(first.control.log.voters)
    away = [one for one in cluster.machines if one.disk in voters][: len(voters) // 2 + 1]
    for one in away:
        cluster.kill(one)
    left = [one for one in cluster.machines if one not in away]
    cluster.until(lambda: control(left[0]).lineage != lineage and served(cluster, away[0]), 15 * S)
    forked = control(left[0]).lineage
    assert [control(one).lineage for one in left] == [forked] * len(left)
    for one in away:
        cluster.start(one)
    cluster.until(cluster.is_whole, 20 * S)
    assert [control(one).lineage for one in cluster.machines] == [forked] * count
    kinds = [kind for one in cluster.machines for kind in one.events]
    assert kinds.count("cluster_forked") == 1


@pytest.mark.parametrize("seed", [1, 3])
def test_what_members_of_a_fork_tell_each_other_brings_nobody_back_to_it(seed: int) -> None:
    """One of three reaches the trunk, and goes over; the others have not told it that theirs descends from that."""
    cluster = begun(seed, 7)
    rest = [machine for machine in cluster.machines if machine is not controller(cluster)]
    trunk = [controller(cluster), *rest[:3]]
    fork = rest[3:]
    before = control(trunk[0]).lineage
    for machine in fork:
        cluster.isolate(machine, trunk, True)
    cluster.until(lambda: all(has_forked(cluster, machine, before) for machine in fork), 30 * S)
    lone = next(machine for machine in fork if control(machine).controller is None)
    lone.events.clear()
    cluster.isolate(lone, trunk, False)
    cluster.run(10 * S)
    assert control(lone).lineage == before
    assert lone.events.count("lineage_left") == 1


def test_a_disk_keeps_no_log_of_the_forks_in_which_it_was_alone() -> None:
    cluster = begun(3, 3)
    cluster.run(3 * S)
    lone = follower(cluster)
    before = control(lone).lineage
    forks: list[int] = []
    for _ in range(4):
        cluster.isolate(lone, cluster.machines, True)
        cluster.until(partial(has_forked, cluster, lone, before), 30 * S)
        forks.append(control(lone).lineage)
        cluster.isolate(lone, cluster.machines, False)
        cluster.until(cluster.is_whole, 60 * S)
        cluster.run(S)
        assert control(lone).lineage == before
    for fork in forks:
        start = plain_key(0, META, b"raft" + u64(fork))
        rows = lone.store.scan(start, end_of(start), 100)
        assert len(rows) == 1, "nothing but that there was one"
    assert [is_retired(lone.store, fork) for fork in forks] == [True] * 4
    assert not is_retired(lone.store, before)
    cluster.kill(lone)
    cluster.start(lone)
    cluster.until(cluster.is_whole, 20 * S)


def test_a_disk_comes_back_to_a_lineage_in_which_it_has_given_up_its_vote_as_another_one() -> None:
    cluster = begun(3, 3)
    cluster.run(3 * S)
    lone = follower(cluster)
    before = control(lone).lineage
    cluster.isolate(lone, cluster.machines, True)
    cluster.until(partial(has_forked, cluster, lone, before), 30 * S)
    disk = lone.disk
    writer = Writer(8, 1)
    retire_lineage(writer, before)
    batch = writer.take()
    assert batch is not None
    lone.store.apply(batch)
    cluster.isolate(lone, cluster.machines, False)
    cluster.until(lambda: lone.disk != disk and cluster.is_whole(), 60 * S)
    assert control(lone).lineage == before


def has_forked(cluster: Cluster, machine: Machine, before: int) -> bool:
    return control(machine).lineage not in (0, before) and machine.is_live(cluster.now)


@pytest.mark.parametrize("seed", range(100, 110))
def test_nobody_forks_whose_log_has_a_leader(seed: int) -> None:
    """The network is whole again when nobody has had a lease for about three seconds.

    Those who have just elected a leader have no lease yet, and the leader has not greeted them yet.
    """
    cluster = begun(seed, 3)
    led: dict[str, int] = {}  # the leaders that the machines know, before something happens

    def look() -> None:
        for machine in cluster.machines:
            machine.events.clear()
            log = control(machine).log
            led[machine.name] = 0 if log is None else log.leader

    def is_whole() -> bool:
        forks = [machine.name for machine in cluster.machines if "cluster_forked" in machine.events]
        assert not [name for name in forks if led[name]], "it has a leader, and forks"
        look()
        return cluster.is_whole()

    for length in range(3300, 4100, 50):
        for machine in cluster.machines:
            cluster.isolate(machine, cluster.machines, True)
        cluster.run(length * MS)
        look()
        for machine in cluster.machines:
            cluster.isolate(machine, cluster.machines, False)
        cluster.until(is_whole, 60 * S)


@pytest.mark.parametrize("seed", [103, 108, 110])
def test_nobody_forks_who_reaches_a_quorum_that_is_about_to_elect_a_leader(seed: int) -> None:
    """The network is whole again shortly before a side may fork."""
    cluster = begun(seed, 3)
    before = control(cluster.machines[0]).lineage
    for length in range(2500, 3760, 60):
        for machine in cluster.machines:
            cluster.isolate(machine, cluster.machines, True)
        cluster.run(length * MS)
        for machine in cluster.machines:
            cluster.isolate(machine, cluster.machines, False)
        cluster.until(cluster.is_whole, 60 * S)
        assert {control(machine).lineage for machine in cluster.machines} == {before}, f"after {length} ms"


# Disks


@pytest.mark.parametrize("seed", range(10))
def test_an_empty_disk_under_a_known_name_is_another_member(seed: int) -> None:
    cluster = begun(seed, 3)
    machine = cluster.machines[seed % 3]
    before = machine.disk
    cluster.kill(machine)
    if seed % 2:
        cluster.run(3 * S)
    cluster.wipe(machine)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 20 * S)
    configuration = control(machine).configuration
    assert configuration is not None
    assert before not in configuration.members
    assert "disk_replaced" in [kind for one in cluster.machines for kind in one.events]


@pytest.mark.parametrize("seed", range(10))
def test_a_restored_folder_is_another_member(seed: int) -> None:
    cluster = begun(seed, 3)
    machine = cluster.machines[seed % 3]
    old = cluster.copy(machine)
    for _ in range(3):
        cluster.kill(machine)
        cluster.run(S)
        cluster.start(machine)
        cluster.until(cluster.is_whole, 20 * S)
    cluster.kill(machine)
    cluster.restore(machine, old)
    cluster.start(machine)
    cluster.run(S)
    cluster.until(cluster.is_whole, 20 * S)
    assert "disk_renewed" in machine.events
    assert machine.disk != old[1]


def restored_twice(seed: int, planted: list[str]) -> tuple[Machine, int]:
    """Start a machine twice on one copy of its folder, and another controller in between; return it, and that disk."""
    cluster = begun(seed, 3)
    machine = follower(cluster)
    cluster.planted = planted
    old = cluster.copy(machine)
    for again in range(2):
        cluster.kill(machine)
        cluster.run(S)
        if again:
            for other in [one for one in cluster.machines if one is not machine]:
                cluster.kill(other)
                cluster.run(2 * S)
                cluster.start(other)
                cluster.run(5 * S)
            cluster.restore(machine, old)
        cluster.start(machine)
        cluster.until(cluster.is_whole, 20 * S)
        assert again or machine.disk == old[1]
    cluster.run(S)
    cluster.until(cluster.is_whole, 20 * S)
    return machine, old[1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("all_at_once", [False, True], ids=["alone", "all at once"])
def test_a_folder_of_the_time_when_it_decided_alone_disturbs_nobody(seed: int, all_at_once: bool) -> None:
    """By its log it is the only voter, and needs nobody's vote; and if all start, nobody has a leader to tell it of."""
    cluster = Cluster(seed, 3)
    first, *others = cluster.machines
    cluster.start(first)
    cluster.until(lambda: cluster.leads(first) != [], 10 * S)
    old = cluster.copy(first)
    for machine in others:
        cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    cluster.run(S)
    disks = [machine.disk for machine in others]
    killed = cluster.machines if all_at_once else [first]
    for machine in killed:
        cluster.kill(machine)
    cluster.run(3 * S)
    cluster.restore(first, old)
    for machine in killed:
        cluster.start(machine)
    cluster.run(S)
    cluster.until(cluster.is_whole, 20 * S)
    assert "disk_renewed" in first.events
    assert first.disk != old[1]
    assert [machine.disk for machine in others] == disks


@pytest.mark.parametrize("seed", range(5))
def test_two_starts_on_one_copy_of_a_folder_are_told_apart(seed: int) -> None:
    machine, disk = restored_twice(seed, [])
    assert "disk_renewed" in machine.events
    assert machine.disk != disk


@pytest.mark.parametrize("seed", range(5))
def test_a_start_number_alone_would_not_tell_them_apart(seed: int) -> None:
    machine, disk = restored_twice(seed, ["trusts_numbers"])
    assert machine.disk == disk


def test_figures_of_a_member_that_has_left_are_told_to_nobody() -> None:
    cluster = begun(61, 4)
    machine, other = [one for one in cluster.machines if one is not controller(cluster)][:2]
    control(machine).set_load({"sessions": 7})
    cluster.until(lambda: control(other).loads.get(machine.disk) == {"sessions": 7}, 5 * S)
    disk = machine.disk
    control(machine).leave(machine.name)
    cluster.until(lambda: disk not in control(controller(cluster)).configuration.members, 30 * S)  # type: ignore[union-attr]
    cluster.kill(machine)
    cluster.kill(other)
    cluster.start(other)
    cluster.until(cluster.is_whole, 10 * S)
    cluster.run(S)
    assert disk not in control(other).loads


def test_nobody_remembers_what_a_disk_that_is_no_member_any_more_has_said() -> None:
    cluster = begun(61, 4)
    machine, other = [one for one in cluster.machines if one is not controller(cluster)][:2]
    control(machine).set_load({"sessions": 7})
    cluster.until(lambda: control(other).loads.get(machine.disk) == {"sessions": 7}, 5 * S)
    disk = machine.disk
    cluster.kill(machine)
    cluster.wipe(machine)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 30 * S)
    cluster.run(2 * S)
    leads = control(controller(cluster)).controller
    assert leads is not None
    members = {one.disk for one in cluster.machines}
    assert disk not in members
    assert set(leads._reports) == members
    for one in cluster.machines:
        assert disk not in control(one).loads


@pytest.mark.parametrize("leads", [False, True])
def test_a_member_behind_a_firewall_that_answers_with_resets_is_silent_when_others_lead(leads: bool) -> None:
    """leads: it leads the configuration log, too, so that it answers its own heartbeats."""
    cluster, machine = behind_firewall([], leads)
    assert not machine.is_live(cluster.now)


@pytest.mark.parametrize(
    ("planted", "leads"), [("keeps_lease", False), ("keeps_lease", True), ("keeps_promises", True)]
)
def test_two_leaders_would_speak_if_it_kept_its_lease(planted: str, leads: bool) -> None:
    with pytest.raises(Violation, match="lead"):
        behind_firewall([planted], leads)


def behind_firewall(planted: list[str], leads: bool) -> tuple[Cluster, Machine]:
    """Return a cluster in which others lead what a machine led that they take for ended, and that machine."""
    cluster = begun(71, 3, planted=planted)
    machine = controller(cluster) if leads else follower(cluster)
    assert cluster.leads(machine)
    for other in cluster.machines:
        if other is not machine:
            cluster.reset(machine, other)
    cluster.until(lambda: served(cluster, machine), 5 * S)
    return cluster, machine


@pytest.mark.parametrize(
    ("lineage", "ancestors"), [(12345, [12345]), (12345, [1, 12345, 2]), (12345, [7, 8, 7]), (0, [0])]
)
def test_a_greeting_whose_lineage_descends_from_itself_is_refused(lineage: int, ancestors: list[int]) -> None:
    cluster = begun(5, 3)
    machine = cluster.machines[0]
    greeting = Greeting(control(machine).cluster, lineage)
    greeting.live = True
    greeting.ancestors = ancestors
    greeting.shared = [1] * len(ancestors)
    with pytest.raises(ValueError, match="descends"):
        control(machine).receive("n2", CONTROL, greeting.encoded(), machine.clock(cluster.now))


@pytest.mark.parametrize("late", [0, 1200 * MS])
@pytest.mark.parametrize("seed", range(3))
def test_a_member_that_only_had_its_answers_late_does_not_fork_before_its_log_was_silent(seed: int, late: int) -> None:
    """It had no lease for long, and heard the controller all that time; then it is cut off for less than `fork_ns`."""
    cluster = begun(seed, 3)
    member, other = follower(cluster), controller(cluster)
    cluster.link(member, other).lag[cluster.way(other, member)] = late
    cluster.run(6 * S)
    log = control(member).log
    assert log is not None
    assert log.leader == other.disk
    assert member.is_live(cluster.now) == (late == 0)
    cluster.isolate(member, cluster.machines, True)
    cluster.run(2800 * MS)
    cluster.isolate(member, cluster.machines, False)
    cluster.link(member, other).lag[cluster.way(other, member)] = 0
    cluster.until(cluster.is_whole, 60 * S)
    assert "cluster_forked" not in member.events

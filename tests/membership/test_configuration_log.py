"""The configuration log at its members: any order of events keeps its promises, and what a caller sees of it."""

from __future__ import annotations

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import varint
from folkmoot.membership.cluster_member import WITNESS, ClusterMember, Process
from folkmoot.membership.command import CUT_OFF, Found, Join, Put, encode_command
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.configuration_log import SNAPSHOT_ENTRIES, ConfigurationLog, Fate, lineage_of
from folkmoot.membership.fork import fork_of
from folkmoot.membership.lifecycle import ACTIVE
from folkmoot.membership.log_rows import CurrentLineage, put_current, put_founding, read_lineage
from folkmoot.membership.transition import KNOWN_DISK
from folkmoot.raft.configuration import DEMOTE, REMOVE
from folkmoot.raft.entry import DATA, Entry, HardState, Snapshot, encode_snapshot
from folkmoot.raft.message import (
    APPEND,
    APPEND_RESPONSE,
    CHUNK,
    GRANTED,
    OFFER,
    PRE_VOTE,
    REFUSED,
    VOTE,
    VOTE_RESPONSE,
    Message,
    decode_message,
    encode_message,
)
from folkmoot.raft.option import Options
from folkmoot.raft.ready import ACCEPTED, COMMITTED, INVALID, LOST, NOT_LEADER, UNCONFIRMED, UNKNOWN
from folkmoot.raft.recovery import Persisted
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer
from tests.membership.simulated_log import CLUSTER, ELECTION, TRUNK, Group, Machine, Violation, founding, member

EVENTS = 1200


def test_any_order_of_events() -> None:
    """Crashes between any two batches, late messages, snapshots, other lineages: the promises hold."""
    restores = forks = crashes = commands = 0
    for seed in range(12):
        group = Group(seed, [])
        group.run(EVENTS)
        restores += group.restores
        forks += group.forks
        crashes += group.crashes
        commands += group.commands
    # The runs have what they are for.
    assert restores > 25
    assert forks > 10
    assert crashes > 100
    assert commands > 700


@pytest.mark.soak("the first 12 seeds draw all kinds of events; these go further")
@pytest.mark.slow
def test_many_orders_of_events() -> None:
    for seed in range(12, 500):
        Group(seed, []).run(EVENTS)


def is_found(seed: int, planted: list[str], forgets: bool, early: bool) -> bool:
    """Tell whether a run ends with a broken promise."""
    try:
        Group(seed, planted, forgets, early).run(EVENTS)
    except (Violation, AssertionError):
        return True
    return False


@pytest.mark.parametrize(
    ("planted", "forgets", "early", "seeds"),
    [
        (["vote_unsaved"], False, False, 5),  # speaks before its term and vote are durable
        (["append_unsaved"], False, False, 5),  # confirms before its entries are durable
        ([], False, True, 5),  # takes a batch for durable when the one before it is
        ([], True, False, 45),  # begins without the vote that it has given
    ],
)
def test_a_planted_bug_is_found(planted: list[str], forgets: bool, early: bool, seeds: int) -> None:
    assert any(is_found(seed, planted, forgets, early) for seed in range(seeds))


# What a caller sees


def calm(seed: int) -> Group:
    """Three voters, led by the first, that all have everything."""
    group = Group(seed, [], size=3)
    group.voters = 0
    leader = group.machines[0].log_of()
    group.steady(
        lambda: not leader.is_changing and all(one.log_of().commit == leader.last_index for one in group.machines)
    )
    assert leader.voters == [1, 2, 3]
    assert not leader.is_changing
    return group


def alone(options: Options | None = None) -> tuple[Machine, ConfigurationLog]:
    """The founder of a cluster, which leads."""
    machine = Machine(1, options or Options(), [], False, False)
    put_founding(machine.writer, TRUNK, founding(1))
    put_current(machine.writer, CurrentLineage(CLUSTER, TRUNK))
    machine.commit_rows()
    machine.begin(0)
    settle(machine, 0)
    log = machine.log_of()
    log.wake(log.deadline())
    settle(machine, 0)
    assert log.is_leader
    return machine, log


def settle(machine: Machine, now: int) -> None:
    """End turns until nothing is under way."""
    log = machine.log_of()
    while True:
        log.collect(machine.writer, now)
        batch = machine.writer.take()
        if batch is None:
            return
        machine.store.apply(batch)
        log.written(batch.token, now)


def test_a_founder_leads_alone() -> None:
    _machine, log = alone()
    assert log.voters == [1]
    assert log.learners == []
    assert log.configuration.lineage == TRUNK
    assert log.configuration.disks() == [1]
    assert log.term == 2
    assert log.index == log.commit == log.last_index == 2
    assert log.out == []


def test_a_cluster_is_not_founded_by_nonsense() -> None:
    witness = ClusterMember(1, "n1", WITNESS, Process(1, "", "", ""))
    with pytest.raises(ValueError, match="no cluster is founded"):
        ConfigurationLog.found(Found(CLUSTER, TRUNK, 0, 0, [witness], 4, 3), 1)


def test_a_command_comes_back_with_its_result() -> None:
    machine, log = alone()
    first = log.propose(Put("key", b"value", -1, "author"), 0)
    second = log.propose(Join(member(1)), 0)
    settle(machine, 0)
    assert [repr(result.command) for result in log.results][-1] == repr(Join(member(1)))
    accepted, refused = log.fates
    assert (accepted.handle, accepted.outcome, accepted.index) == (first.handle, COMMITTED, first.index)
    assert accepted.is_accepted()
    assert accepted.result is not None
    assert accepted.result.keys == ["key"]
    assert (refused.handle, refused.outcome) == (second.handle, COMMITTED)
    assert refused.result is not None
    assert refused.result.refused == KNOWN_DISK
    assert not refused.is_accepted()
    assert log.configuration.settings.values["key"].value == b"value"


def test_nothing_is_applied_before_it_is_durable() -> None:
    machine, log = alone()
    for number in range(3):
        log.propose(Put(f"k{number}", b"", -1, "a"), 0)
        log.collect(machine.writer, 0)
        batch = machine.writer.take()
        assert batch is not None
        machine.pending.append(batch)
    assert log.results == []
    # The second batch, and with it the first.
    log.written(machine.pending[1].token, 0)
    log.collect(machine.writer, 0)
    assert [result.keys for result in log.results] == [["k0"], ["k1"]]
    log.written(machine.pending[2].token, 0)
    log.collect(machine.writer, 0)
    assert [result.keys for result in log.results] == [["k0"], ["k1"], ["k2"]]


def test_a_turn_without_news_costs_nothing() -> None:
    machine, log = alone()
    log._raft.propose(b"behind its back", 0)
    log.collect(machine.writer, 0)
    assert machine.writer.take() is None, "Raft is not asked for effects"


def test_a_change_of_voters_has_no_result() -> None:
    machine, log = alone()
    assert log.propose_change(DEMOTE, 1, 0).refused == INVALID
    assert log.propose_change(1, 2, 0).refused == ACCEPTED
    assert log.is_changing
    settle(machine, 0)
    assert not log.is_changing
    assert log.learners == [2]
    (fate,) = log.fates
    assert (fate.outcome, fate.result, fate.is_accepted()) == (COMMITTED, None, True)


def test_the_rows_of_a_single_voter_stay_few() -> None:
    machine, log = alone()
    most = 0
    for number in range(5 * SNAPSHOT_ENTRIES):
        log.propose(Put(f"k{number % 10}", b"v" * 100, -1, "a"), 0)
        if number % 10 == 0:
            settle(machine, 0)
            most = max(most, len(machine.store.items()))
    assert most <= 2 * SNAPSHOT_ENTRIES + Options().kept_entries
    entries = len(log._raft.log.entries)
    assert entries <= SNAPSHOT_ENTRIES + Options().kept_entries + 10
    again = Machine(1, Options(), [], False, False)
    again.store = machine.store
    again.begin(0)
    log = again.log_of()
    log.wake(log.deadline())
    settle(again, 0)
    assert encode_configuration(log.configuration) == encode_configuration(machine.log_of().configuration)


def test_large_settings_are_compacted_by_their_bytes() -> None:
    machine, log = alone()
    for number in range(200):
        log.propose(Put("k", b"%d" % number * 20_000, -1, "a"), 0)
        settle(machine, 0)
    size = sum(len(value) for _key, value in machine.store.items())
    # What is kept, what comes before the next snapshot, and the snapshot.
    assert size < Options().kept_bytes + 2 * (1 << 20)


def deliver(group: Group, dead: list[int], steps: int) -> None:
    """Let time pass; members that are dead hear and say nothing."""
    for _ in range(steps):
        group.now += 50
        group.wake()
        for machine in group.machines:
            while machine.pending:
                group.persist(machine)
        pool = group.pool
        group.pool = []
        for sender, to, data in pool:
            if sender not in dead and to not in dead:
                group.arrive(sender, to, data)


@pytest.mark.parametrize(("kind", "disk"), [(DEMOTE, 1), (DEMOTE, 2), (REMOVE, 3)])
@pytest.mark.parametrize("dead", [2, 3])
def test_no_voter_goes_if_those_that_stay_have_just_lost_their_quorum(kind: int, disk: int, dead: int) -> None:
    """The leader does not know yet that one has died; its disk may be lost, so nothing that needs it may be begun."""
    group = calm(1)
    leader = group.machines[0].log_of()
    leader.propose_change(kind, disk, group.now)
    deliver(group, [dead], 4)
    stay = [one for one in leader.voters if one != dead]
    assert 2 * len(stay) > len(leader.voters), "those that live are a quorum"
    if disk == dead:
        assert disk not in leader.voters
    else:
        assert leader.voters == [1, 2, 3]
    deliver(group, [dead], 40)
    assert not leader.is_changing


def test_a_change_of_voters_takes_one_more_round() -> None:
    group = calm(1)
    leader = group.machines[0].log_of()
    assert leader.propose_change(DEMOTE, 3, group.now).refused == UNCONFIRMED
    assert leader.is_changing
    assert leader.voters == [1, 2, 3]
    deliver(group, [], 2)
    assert leader.voters == [1, 2]
    deliver(group, [], 4)
    assert not leader.is_changing


def test_a_new_member_gets_the_configuration() -> None:
    group = calm(1)
    leader = group.machines[0].log_of()
    expected = encode_configuration(leader.configuration)
    newcomer = Machine(7, group.machines[0].options, [], False, False)
    log = ConfigurationLog(7, TRUNK, newcomer.options, Persisted.nothing(), 1, group.now)
    newcomer.log = log
    assert not log.configuration.is_founded()
    assert leader.propose_change(1, 7, group.now).refused == ACCEPTED
    for _ in range(40):
        group.now += 50
        group.wake()
        for machine in group.machines:
            while machine.pending:
                group.persist(machine)
        pool = group.pool
        group.pool = []
        for sender, to, data in pool:
            if to == 7:
                log.step(sender, data, group.now)
            else:
                group.arrive(sender, to, data)
        settle(newcomer, group.now)
        group.pool.extend([(7, to, data) for to, data in log.out])
        log.out.clear()
    assert log.restored
    assert encode_configuration(log.configuration) == expected
    assert log.leader == 1
    assert log.index == leader.index
    assert leader.acknowledged(7) == leader.last_index


# Messages


def a_message(kind: int, sender: int, to: int, term: int, lineage: int = TRUNK) -> bytes:
    """A message as it travels."""
    message = Message(kind, sender, to, term)
    if kind == VOTE:
        message.verdict = 0
    message.index, message.log_term = 9, 1
    return varint(lineage) + encode_message(message)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 20, varint(TRUNK), varint(TRUNK) + b"\1\77"])
def test_what_no_member_sends_is_said(data: bytes) -> None:
    _machine, log = alone()
    with pytest.raises(ValueError, match=r"."):
        log.step(2, data, 0)


def test_a_member_speaks_for_itself() -> None:
    _machine, log = alone()
    with pytest.raises(ValueError, match="the member 3 sends a message of 2"):
        log.step(3, a_message(PRE_VOTE, 2, 1, 3), 0)


def test_messages_of_another_lineage_are_ignored() -> None:
    machine, log = alone()
    data = a_message(APPEND, 2, 1, 99, TRUNK + 1)
    assert lineage_of(data) == TRUNK + 1
    log.step(2, data, 0)
    settle(machine, 0)
    assert (log.term, log.is_leader) == (2, True)


def test_the_vote_of_a_lineage_survives_another_one() -> None:
    """A member that votes, founds a lineage of its own and comes back does not vote for another candidate."""
    machine = Machine(2, Options(), [], False, False)
    configuration = decode_configuration(founding(1).snapshot.data)
    configuration.members[2] = member(2).in_state(ACTIVE, 1)
    configuration.members[2].started = 1
    voters = ConfigurationLog.fork(configuration, 1).snapshot.configuration
    for other in (2, 3):
        following = voters.after(1, other)
        assert following is not None
        promoted = following.after(2, other)
        assert promoted is not None
        voters = promoted
    snapshot = Snapshot(1, 1, voters, encode_configuration(configuration))
    put_founding(machine.writer, TRUNK, Persisted.founder(snapshot))
    put_current(machine.writer, CurrentLineage(CLUSTER, TRUNK))
    machine.commit_rows()
    machine.begin(0)
    now = 10 * machine.options.election_ns

    def verdict(candidate: int) -> int:
        machine.log_of().step(candidate, a_message(VOTE, candidate, 2, 5), now)
        settle(machine, now)
        answers = [decode_message(data[len(varint(TRUNK)) :]) for _to, data in machine.log_of().out]
        machine.log_of().out.clear()
        (answer,) = [one for one in answers if one.kind == VOTE_RESPONSE]
        return answer.verdict

    assert verdict(1) == GRANTED
    fork = ConfigurationLog.fork(fork_of(configuration, TRUNK + 1, [(1, 1)]), 2)
    put_founding(machine.writer, TRUNK + 1, fork)
    put_current(machine.writer, CurrentLineage(CLUSTER, TRUNK + 1))
    machine.commit_rows()
    machine.begin(now)
    settle(machine, now)
    log = machine.log_of()
    log.wake(now)
    settle(machine, now)
    assert log.is_leader
    assert log.index == 3
    assert (log.configuration.parent, log.configuration.parent_index) == (TRUNK, 1)
    assert log.configuration.members[1].why == CUT_OFF
    put_current(machine.writer, CurrentLineage(CLUSTER, TRUNK))
    machine.commit_rows()
    machine.begin(now)
    now += 2 * machine.options.election_ns
    assert read_lineage(machine.store, TRUNK).hard_state.term == 5
    assert verdict(3) == REFUSED
    assert verdict(1) == GRANTED


# What a member cannot read


def test_an_entry_of_a_newer_build_stops_the_member() -> None:
    """It says why, sends nothing more, and stops again when it is started again."""
    machine, log = alone()
    log._raft.propose(b"\x63\x63", 0)
    log._is_due = True
    settle(machine, 0)
    assert "entry 3" in log.fault
    assert not log.is_leader
    assert log.leader == 0
    assert not log.may_grant(0)
    log.wake(log.deadline())
    settle(machine, log.deadline())
    assert log.out == []
    machine.begin(0)
    log = machine.log_of()
    log.wake(log.deadline())
    settle(machine, 0)
    assert "entry 3" in log.fault


@pytest.mark.parametrize("lineage", [TRUNK + 1, 1])
def test_a_configuration_of_another_lineage_is_refused(lineage: int) -> None:
    with pytest.raises(CorruptStore, match="not of"):
        ConfigurationLog(1, lineage, Options(), founding(1), 1, 0)


def test_a_configuration_that_nobody_wrote_is_refused() -> None:
    persisted = founding(1)
    persisted.snapshot.data = persisted.snapshot.data[:-1]
    with pytest.raises(CorruptStore, match="lineage 1000"):
        ConfigurationLog(1, TRUNK, Options(), persisted, 1, 0)


# Leases and leaders


def test_leases_are_granted_after_everything_earlier_is_applied() -> None:
    machine = Machine(1, Options(), [], False, False)
    persisted = founding(1)
    put = encode_command(Put("k", b"", -1, "a"))
    persisted = Persisted(HardState(1, 1, 1), persisted.snapshot, [Entry(2, 1, DATA, put)])
    log = ConfigurationLog(1, TRUNK, machine.options, persisted, 1, 0)
    machine.log = log
    log.wake(0)
    log.collect(machine.writer, 0)
    batch = machine.writer.take()
    assert batch is not None
    assert not log.may_grant(0)
    log.written(batch.token, 0)  # the vote
    log.collect(machine.writer, 0)
    assert log.is_leader
    assert not log.may_grant(0)
    assert log.index == 1
    settle(machine, 0)
    assert log.index == 3
    assert "k" in log.configuration.settings.values
    assert log.may_grant(0)
    end = log.lease_ns()
    assert end == machine.options.election_ns * 99 // 100
    assert not log.may_grant(end)


def test_a_leader_hands_over_and_its_end_is_noticed_at_once() -> None:
    group = calm(1)
    first = group.machines[0].log_of()
    assert first.propose_change(REMOVE, 9, group.now).refused == INVALID
    assert first.transfer(2, group.now) == ACCEPTED
    group.turn(group.machines[0])
    second = group.machines[1].log_of()
    group.steady(lambda: second.is_leader)
    assert second.is_leader
    assert first.propose(Put("k", b"", -1, "a"), group.now).refused == NOT_LEADER
    group.steady(lambda: all(machine.log_of().leader == 2 for machine in group.machines))
    group.cut = [2]
    before = group.now
    for machine in group.machines:
        machine.log_of().ended(2, group.now)
        group.turn(machine)
    pool = group.pool
    group.pool = [one for one in pool if 2 not in one[:2]]
    group.machines[1].log = None
    leaders = [group.machines[0], group.machines[2]]
    for _ in range(ELECTION // 10):
        group.now += 5
        for machine in leaders:
            machine.log_of().wake(group.now)
            group.turn(machine)
            while machine.pending:
                group.persist(machine)
        pool = group.pool
        group.pool = []
        for sender, to, data in pool:
            if to != 2:
                group.arrive(sender, to, data)
        if any(machine.log_of().is_leader for machine in leaders):
            break
    assert any(machine.log_of().is_leader for machine in leaders)
    assert group.now - before < ELECTION // 4


def test_a_proposal_of_a_leader_that_is_cut_off_is_lost_and_said_so() -> None:
    group = calm(2)
    first = group.machines[0].log_of()
    handle = first.propose(Put("lost", b"", -1, "a"), group.now).handle
    assert handle
    group.turn(group.machines[0])
    group.pool.clear()
    found: list[Fate] = []
    # Nothing of the leader arrives until another one has committed something.
    for _ in range(200):
        group.now += 50
        group.wake()
        for machine in group.machines:
            while machine.pending:
                group.persist(machine)
        pool = group.pool
        group.pool = []
        for sender, to, data in pool:
            if 1 not in (sender, to):
                group.arrive(sender, to, data)
        others = [machine.log_of() for machine in group.machines[1:]]
        leader = [log for log in others if log.is_leader]
        if leader and leader[0].index > first.index:
            break
    assert not first.is_leader  # no quorum answers it
    turn = group.turn

    def watched(machine: Machine) -> None:
        log = machine.log_of()
        log.collect(machine.writer, group.now)
        found.extend([fate for fate in log.fates if fate.handle == handle])
        turn(machine)

    group.__dict__["turn"] = watched
    group.steady(lambda: bool(found))
    assert [(fate.handle, fate.outcome in (LOST, UNKNOWN), fate.is_accepted()) for fate in found] == [
        (handle, True, False)
    ]
    assert "lost" not in first.configuration.settings.values


def test_a_commit_index_from_a_heartbeat_counts() -> None:
    group = calm(3)
    leader, follower = group.machines[0].log_of(), group.machines[1].log_of()
    leader.propose(Put("k", b"", -1, "a"), group.now)
    group.turn(group.machines[0])
    # The entry arrives everywhere, the news that it is committed does not.
    for _ in range(4):
        for machine in group.machines:
            while machine.pending:
                group.persist(machine)
        pool = group.pool
        group.pool = []
        for sender, to, data in pool:
            message = decode_message(data[len(varint(TRUNK)) :])
            if message.kind == APPEND_RESPONSE or message.entries:
                group.arrive(sender, to, data)
    assert leader.commit > follower.commit
    follower.learn_commit(leader.term, leader.commit, group.now)
    group.turn(group.machines[1])
    assert follower.index == leader.index
    assert "k" in follower.configuration.settings.values


def test_rows_are_written_by_one_batch_of_a_turn() -> None:
    """What the log and others write in one turn is one batch."""
    machine, log = alone()
    log.propose(Put("k", b"", -1, "a"), 0)
    machine.writer.put(0, b"\0\0\1other", b"row")
    log.collect(machine.writer, 0)
    batch = machine.writer.take()
    assert batch is not None
    store = MemoryStore()
    store.apply(batch)
    assert len(store.items()) == 3
    assert Writer(4, 1).take() is None


def test_a_snapshot_that_comes_when_one_is_due_here_replaces_it() -> None:
    """The disk of a follower was slow: its many entries become durable right before a snapshot of its leader comes."""
    configuration = decode_configuration(founding(2).snapshot.data)
    voters = founding(2).snapshot.configuration.after(1, 7)
    assert voters is not None
    machine = Machine(7, Options(), [], False, False)
    snapshot = Snapshot(1, 1, voters, encode_configuration(configuration))
    put_founding(machine.writer, TRUNK, Persisted.founder(snapshot))
    put_current(machine.writer, CurrentLineage(CLUSTER, TRUNK))
    machine.commit_rows()
    machine.begin(0)
    log = machine.log_of()

    def step(kind: int, index: int, term: int, entries: list[Entry], data: bytes = b"", size: int = 0) -> None:
        message = Message(kind, 2, 7, 2)
        message.index, message.log_term, message.entries = index, term, entries
        message.commit = index + len(entries)
        message.data, message.size = data, size
        log.step(2, varint(TRUNK) + encode_message(message), 0)

    last = 1 + SNAPSHOT_ENTRIES
    put = encode_command(Put("k", b"", -1, "a"))
    step(APPEND, 1, 1, [Entry(index, 2, DATA, put) for index in range(2, last + 1)])
    log.collect(machine.writer, 0)
    batch = machine.writer.take()
    assert batch is not None
    assert log.index == 1
    configuration.index = 3 * last
    encoded = encode_snapshot(Snapshot(3 * last, 2, voters, encode_configuration(configuration)))
    step(OFFER, 3 * last, 2, [], size=len(encoded))
    log.collect(machine.writer, 0)
    log.written(batch.token, 0)
    log.collect(machine.writer, 0)
    assert log.index == last
    step(CHUNK, 3 * last, 2, [], encoded)
    settle(machine, 0)
    assert log.restored
    assert log.index == log.configuration.index == 3 * last
    assert read_lineage(machine.store, TRUNK).snapshot.index == 3 * last

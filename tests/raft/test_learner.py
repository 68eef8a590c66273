"""Members that only learn: what is new at once, few heartbeats otherwise, and nothing lost for longer than one."""

from __future__ import annotations

import pytest

from folkmoot.raft.configuration import ADD_LEARNER, PROMOTE, Configuration
from folkmoot.raft.entry import DATA, Entry, Snapshot, founding
from folkmoot.raft.log import Log
from folkmoot.raft.message import HEARTBEAT, TIMEOUT_NOW, Message
from folkmoot.raft.option import Options
from folkmoot.raft.raft import Raft
from folkmoot.raft.ready import ACCEPTED, NO_QUORUM
from folkmoot.raft.recovery import Persisted
from tests.raft.scenario import Scenario

IDLE = 2000
HEARTBEAT_NS = 100


def cluster(voters: int, learners: int) -> Scenario:
    """A cluster led by 1 whose other members learn; everything is confirmed."""
    scenario = Scenario()
    scenario.options.learner_heartbeat_ns = IDLE
    scenario.do(f"cluster {voters} spare {learners} led 1")
    for learner in range(voters + 1, voters + learners + 1):
        assert scenario.nodes[1].raft.propose_change(ADD_LEARNER, learner, b"", scenario.now).refused == ACCEPTED
        scenario.turn(scenario.nodes[1])
        scenario.do("settle")
    scenario.do(f"run {4 * HEARTBEAT_NS}")
    return scenario


def sent(scenario: Scenario, to: int, time: int) -> list[Message]:
    """What the leader sends to a member in a time, when everything arrives."""
    found: list[Message] = []
    deliver = scenario.do_deliver

    def watched(words: list[str]) -> None:
        found.extend(scenario.links.get((1, to), []))
        deliver(words)

    scenario.__dict__["do_deliver"] = watched
    scenario.do(f"run {time}")
    del scenario.__dict__["do_deliver"]
    return found


def test_an_idle_learner_gets_few_heartbeats() -> None:
    scenario = cluster(3, 1)
    to_learner = sent(scenario, 4, 5 * IDLE)
    assert {message.kind for message in to_learner} == {HEARTBEAT}
    assert len(to_learner) == 5
    # One heartbeat in each interval of a voter.
    assert len(sent(scenario, 2, 5 * IDLE)) == 5 * IDLE // HEARTBEAT_NS


def test_many_learners_cost_few_messages() -> None:
    options = Options()
    snapshot = Snapshot(1, 1, Configuration([1], list(range(2, 202))), b"")
    raft = Raft(1, options, Persisted.founder(snapshot), 0, 1, 0, [])
    now = raft.deadline()
    raft.wake(now)
    learners: dict[int, Raft] = {me: Raft(me, options, Persisted.nothing(), 0, me, 0, []) for me in range(2, 202)}

    def settle() -> int:
        count = 0
        moved = True
        while moved:
            moved = False
            for one in [raft, *learners.values()]:
                ready = one.ready()
                moved = moved or ready.write is not None or bool(ready.messages)
                if ready.write is not None:
                    one.persisted(ready.write.token, now)
                for message in ready.messages:
                    count += 1
                    (raft if message.to == 1 else learners[message.to]).step(message, now)
        return count

    settle()
    assert [raft.acknowledged(me) for me in learners] == [raft.log.last_index()] * 200

    def messages_in(end: int) -> int:
        nonlocal now
        count = 0
        while True:
            now = min(one.deadline() for one in [raft, *learners.values()])
            if now > end:
                return count
            for one in [raft, *learners.values()]:
                if one.deadline() <= now:
                    one.wake(now)
            count += settle()

    second = 1_000_000_000
    messages_in(now + second)
    # A heartbeat and its answer for each learner, three times.
    assert messages_in(now + 3 * second) <= 3 * 2 * 200
    assert {learner.leader for learner in learners.values()} == {1}
    # What is new needs no heartbeat: entry, answer, commit index, answer.
    before = now
    raft.propose(b"x", now)
    assert settle() <= 4 * 200
    assert {learner.log.commit for learner in learners.values()} == {raft.log.last_index()}
    assert now == before


def test_a_learner_knows_its_leader_between_heartbeats() -> None:
    scenario = cluster(3, 1)
    for _ in range(20):
        scenario.do(f"run {IDLE // 5}")
        assert scenario.nodes[4].raft.leader == 1


def test_a_voter_that_only_learns_from_now_on_knows_its_leader_too() -> None:
    scenario = cluster(4, 0)
    scenario.do("change 1 demote 4")
    scenario.do("settle")
    told: list[str] = []
    for _ in range(40):
        scenario.do(f"run {IDLE // 10}")
        told += [line for line in scenario.lines if "pre-candidate" in line]
        assert scenario.nodes[4].raft.leader == 1
    assert told == []


@pytest.mark.parametrize("lost", ["entry", "commit"])
def test_what_a_learner_misses_comes_with_the_next_heartbeat(lost: str) -> None:
    scenario = cluster(3, 1)
    if lost == "entry":
        scenario.do("cut 1->4")
    scenario.do("propose 1 x")
    if lost == "commit":
        scenario.do("persist 1")
        scenario.do("deliver 1->4")
        scenario.do("persist 4")
        scenario.do("deliver 4->1")
        scenario.do("cut 1->4")
    scenario.do("settle")
    learner = scenario.nodes[4].raft
    index = scenario.nodes[1].raft.log.commit
    assert learner.log.commit < index
    scenario.do("connect")
    scenario.do(f"run {IDLE + HEARTBEAT_NS}")
    assert learner.log.commit == index


def test_an_entry_under_way_is_followed_by_a_heartbeat_soon() -> None:
    scenario = cluster(3, 1)
    scenario.do("cut 1->4")
    scenario.do("propose 1 x")
    scenario.do("settle")
    scenario.do("connect")
    scenario.do(f"run {2 * HEARTBEAT_NS}")
    assert scenario.nodes[4].raft.log.commit == scenario.nodes[1].raft.log.commit


def test_a_learner_that_does_not_answer_gets_few_heartbeats_too() -> None:
    scenario = cluster(3, 1)
    scenario.do("crash 4")
    scenario.do("propose 1 x")
    scenario.do(f"run {2 * IDLE}")
    assert len(sent(scenario, 4, 5 * IDLE)) <= 5


def test_a_member_that_is_connected_again_is_asked_at_once() -> None:
    scenario = cluster(3, 1)
    scenario.do("crash 4")
    scenario.do("propose 1 x")
    scenario.do(f"run {2 * IDLE}")
    scenario.do("restart 4")
    leader = scenario.nodes[1].raft
    leader.attend(4, scenario.now)
    assert leader.deadline() <= scenario.now
    scenario.do(f"run {2 * HEARTBEAT_NS}")
    assert scenario.nodes[4].raft.log.commit == leader.log.commit


def test_a_silent_learner_is_made_a_voter_at_the_second_attempt() -> None:
    scenario = cluster(1, 1)
    leader = scenario.nodes[1].raft
    election_ns = scenario.options.election_ns
    for _ in range(IDLE // HEARTBEAT_NS):
        if scenario.now - leader.contact_ns(2) > election_ns:
            break
        scenario.do(f"run {HEARTBEAT_NS}")
    assert leader.propose_change(PROMOTE, 2, b"", scenario.now).refused == NO_QUORUM
    scenario.do(f"run {HEARTBEAT_NS}")
    assert leader.propose_change(PROMOTE, 2, b"", scenario.now).refused == ACCEPTED


def behind() -> tuple[Scenario, int]:
    """A cluster whose learner has an entry and does not know that it is committed."""
    scenario = cluster(3, 1)
    scenario.do("propose 1 x")
    scenario.do("persist 1")
    scenario.do("deliver 1->4")
    scenario.do("persist 4")
    scenario.do("deliver 4->1")
    scenario.do("cut 1->4")
    scenario.do("settle")
    index = scenario.nodes[1].raft.log.commit
    assert scenario.nodes[4].raft.log.commit == index - 1
    return scenario, index


def test_a_commit_index_may_come_another_way() -> None:
    scenario, index = behind()
    learner = scenario.nodes[4].raft
    learner.learn_commit(learner.term - 1, index, scenario.now)
    learner.learn_commit(learner.term + 1, index, scenario.now)
    assert learner.log.commit == index - 1
    learner.learn_commit(learner.term, index, scenario.now)
    assert learner.log.commit == index


def test_a_commit_index_counts_as_far_as_the_log_matches() -> None:
    """An entry that this leader has not confirmed to be the same stays uncommitted."""
    log_end = Entry(2, 2, DATA, b"of an earlier leader")
    persisted = Persisted.founder(founding([1, 2, 3]))
    persisted.hard_state.term = 2
    persisted.entries.append(log_end)
    raft = Raft(2, Options(), persisted, 1, 1, 0, [])
    heartbeat = Message(HEARTBEAT, 1, 2, 3)
    heartbeat.round = 1
    raft.step(heartbeat, 1)
    raft.learn_commit(3, 2, 1)
    assert raft.log.commit == 1


def test_a_member_that_learns_of_entries_it_lacks_asks_for_them() -> None:
    scenario = cluster(3, 1)
    scenario.do("cut 1->4")
    scenario.do("propose 1 x")
    scenario.do("settle")
    scenario.do("connect")
    leader, learner = scenario.nodes[1].raft, scenario.nodes[4].raft
    learner.learn_commit(leader.term, leader.log.commit, scenario.now)
    scenario.turn(scenario.nodes[4])
    scenario.do("settle")
    assert learner.log.commit == leader.log.commit


def test_a_loser_of_an_election_confirms_to_the_winner() -> None:
    """Rounds belong to a leader: a candidate that loses in its own term answers none of an earlier leader."""
    scenario = Scenario()
    scenario.do("cluster 5 led 1")
    scenario.do(f"run {100 * HEARTBEAT_NS}")
    scenario.do("crash 1")
    term = scenario.nodes[2].raft.term
    for me in (2, 3):
        scenario.nodes[me].raft.step(Message(TIMEOUT_NOW, 1, me, term), scenario.now)
        scenario.turn(scenario.nodes[me])
    scenario.do("persist 2 3")
    scenario.do("deliver 2->4 2->5")
    scenario.do("settle")
    assert scenario.nodes[2].raft.leader == 2
    assert scenario.nodes[3].raft.term == scenario.nodes[2].raft.term
    scenario.do("propose 2 x")
    scenario.do(f"run {4 * HEARTBEAT_NS}")
    assert scenario.nodes[2].raft.acknowledged(3) == scenario.nodes[2].raft.log.last_index()


@pytest.mark.parametrize(
    ("entries_max", "bytes_max", "kept"), [(0, 1 << 20, 0), (3, 1 << 20, 3), (100, 1 << 20, 9), (9, 75, 2), (9, 0, 0)]
)
def test_what_is_kept_before_a_snapshot_is_bounded(entries_max: int, bytes_max: int, kept: int) -> None:
    entries = [Entry(index, 1, DATA, b"x" * 10) for index in range(1, 11)]
    log = Log(Persisted.nothing().snapshot, entries, 9, 9)
    assert entries[0].cost() == 34
    assert log.first_kept(9, entries_max, bytes_max) == 10 - kept

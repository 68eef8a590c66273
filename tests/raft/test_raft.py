"""What a caller sees of one member: refusals, outcomes, leases, heartbeats."""

from __future__ import annotations

import pytest

from folkmoot.raft.configuration import ADD_LEARNER, PROMOTE, REMOVE
from folkmoot.raft.entry import Entry
from folkmoot.raft.message import (
    APPEND,
    APPEND_RESPONSE,
    GRANTED,
    HEARTBEAT,
    HEARTBEAT_RESPONSE,
    OFFER,
    Message,
)
from folkmoot.raft.option import Options
from folkmoot.raft.ready import (
    ACCEPTED,
    BUSY,
    COMMITTED,
    INVALID,
    LOST,
    NO_QUORUM,
    NOT_LEADER,
    TOO_LARGE,
    TRANSFERRING,
    Outcome,
    Ready,
)
from folkmoot.raft.role import FOLLOWER, LEADER
from tests.raft.scenario import Scenario

SECOND = 1000


def cluster(command: str, **options: int) -> Scenario:
    """A cluster as scenarios have them."""
    scenario = Scenario()
    for name, value in options.items():
        setattr(scenario.options, name, value)
    assert "Error" not in " ".join(scenario.do(f"cluster {command}"))
    return scenario


def test_a_follower_says_who_leads() -> None:
    scenario = cluster("3 led 1")
    proposal = scenario.nodes[2].raft.propose(b"x", scenario.now)
    assert (proposal.handle, proposal.refused, proposal.leader) == (0, NOT_LEADER, 1)
    assert scenario.nodes[2].raft.transfer(3, scenario.now) == NOT_LEADER


def test_proposals_have_limits() -> None:
    raft = cluster("3 led 1", proposal_bytes=100, uncommitted_bytes=300).nodes[1].raft
    assert raft.propose(b"x" * 101, 0).refused == TOO_LARGE
    assert [raft.propose(b"x" * 100, 0).refused for _ in range(4)] == [ACCEPTED, ACCEPTED, BUSY, BUSY]


def test_room_comes_back_with_the_commit() -> None:
    scenario = cluster("3 led 1", proposal_bytes=100, uncommitted_bytes=300)
    raft = scenario.nodes[1].raft
    for _ in range(5):
        assert raft.propose(b"x" * 100, scenario.now).refused == ACCEPTED
        assert raft.propose(b"x" * 100, scenario.now).refused == ACCEPTED
        assert raft.propose(b"x" * 100, scenario.now).refused == BUSY
        scenario.turn(scenario.nodes[1])
        scenario.do("settle")


def test_proposals_are_refused_during_a_handover() -> None:
    scenario = cluster("3 led 1")
    raft = scenario.nodes[1].raft
    assert raft.transfer(1, scenario.now) == INVALID
    assert raft.transfer(9, scenario.now) == INVALID
    assert raft.transfer(2, scenario.now) == ACCEPTED
    assert raft.transfer(3, scenario.now) == TRANSFERRING
    assert raft.propose(b"x", scenario.now).refused == TRANSFERRING


def outcomes(ready: Ready) -> list[tuple[int, int]]:
    """What became of proposals."""
    found: list[Outcome] = ready.outcomes
    return [(outcome.handle, outcome.result) for outcome in found]


def test_a_committed_proposal() -> None:
    scenario = cluster("1 led 1")
    raft = scenario.nodes[1].raft
    handle = raft.propose(b"x", scenario.now).handle
    ready = raft.ready()
    assert outcomes(ready) == []
    assert ready.write is not None
    raft.persisted(ready.write.token, scenario.now)
    assert outcomes(raft.ready()) == [(handle, COMMITTED)]


def test_what_the_state_machine_has_applied_is_known_as_committed_after_a_restart() -> None:
    scenario = cluster("3 led 1")
    scenario.do("propose 1 x")
    scenario.do("settle")
    for node in scenario.nodes.values():
        assert node.disk.persisted().hard_state.commit == node.raft.log.applied == 3


def test_a_proposal_that_another_entry_replaced() -> None:
    scenario = cluster("3 led 1")
    scenario.do("cut 1-2 1-3")
    raft = scenario.nodes[1].raft
    handle = raft.propose(b"x", scenario.now).handle
    scenario.nodes[1].handles[handle] = b"x"
    scenario.checker.proposed[b"x"] = 0
    scenario.turn(scenario.nodes[1])
    scenario.do("run 4000")
    scenario.do("connect")
    scenario.do("run 1000")
    assert scenario.checker.proposed[b"x"] == LOST


def test_a_leader_that_is_elected_again_hears_of_its_new_proposals() -> None:
    """Those of its former term, which were to stand behind them, are not decided as long as nothing stands there."""
    scenario = cluster("3 led 1")
    scenario.do("cut 1-2 1-3")
    node = scenario.nodes[1]
    for text in (b"a", b"b", b"c", b"d"):
        node.handles[node.raft.propose(text, scenario.now).handle] = text
        scenario.checker.proposed[text] = 0
    scenario.turn(node)
    scenario.do("run 4000")
    scenario.do("connect")
    scenario.do("run 1000")
    scenario.do(f"transfer {node.raft.leader} 1")
    scenario.do("settle")
    assert node.raft.role == LEADER
    assert node.raft.log.last_index() == 4
    node.handles[node.raft.propose(b"new", scenario.now).handle] = b"new"
    scenario.checker.proposed[b"new"] = 0
    scenario.turn(node)
    scenario.do("settle")
    assert scenario.checker.proposed == {b"a": LOST, b"b": LOST, b"c": LOST, b"d": 0, b"new": COMMITTED}


def pump(scenario: Scenario) -> None:
    """Deliver and persist, but nothing on the disk of 2."""
    for _ in range(4):
        scenario.do("deliver")
        for me in (1, 3):
            while scenario.nodes[me].disk.queue:
                scenario.do(f"persist {me}")


@pytest.mark.parametrize("knows_term", [True, False])
def test_what_waits_for_a_disk_that_stands_still_has_a_limit(knows_term: bool) -> None:
    """A disk may be full for hours. The answers to all heartbeats of that time would arrive at once."""
    scenario = cluster("3 led 1" if knows_term else "3")
    raft = scenario.nodes[1].raft
    if not knows_term:
        scenario.do("campaign 1")
        pump(scenario)
    scenario.do("propose 1 x")
    for _ in range(100):
        scenario.do("wake 1")
        pump(scenario)
    assert raft.role == LEADER
    assert raft.log.commit == raft.log.last_index()
    scenario.do("persist")
    assert 0 < len(scenario.links[(2, 1)]) < 10
    scenario.do("settle")
    assert raft.acknowledged(2) == raft.log.last_index()


def test_a_read_fails_when_nobody_answers() -> None:
    scenario = cluster("3 led 1")
    scenario.do("cut 1-2 1-3 2-3")
    now = scenario.now
    leader, follower = scenario.nodes[1].raft, scenario.nodes[2].raft
    assert leader.read_index(1, now) == ACCEPTED
    assert follower.read_index(2, now) == ACCEPTED
    follower.ready()
    leader.ready()
    for raft in (leader, follower):
        raft.wake(now + SECOND)
        raft.wake(now + 2 * SECOND)
        assert [(state.context, state.done) for state in raft.ready().reads] in ([(1, False)], [(2, False)])
    assert leader.role == FOLLOWER
    assert follower.read_index(3, now + 2 * SECOND) == NOT_LEADER


def test_reads_have_a_limit() -> None:
    scenario = cluster("3 led 1", reads=2)
    for me in (1, 2):
        raft = scenario.nodes[me].raft
        assert [raft.read_index(context, scenario.now) for context in range(3)] == [ACCEPTED, ACCEPTED, BUSY]


def test_reads_of_a_turn_share_a_round() -> None:
    scenario = cluster("3 led 1")
    raft = scenario.nodes[1].raft
    for context in range(50):
        raft.read_index(context, scenario.now)
    beats = [message for message in raft.ready().messages if message.kind == HEARTBEAT]
    assert [message.to for message in beats] == [2, 3]
    assert beats[0].round == beats[1].round
    answer = Message(HEARTBEAT_RESPONSE, 2, 1, raft.term)
    answer.round = beats[0].round
    raft.step(answer, scenario.now)
    assert [state.context for state in raft.ready().reads] == list(range(50))


def test_an_idle_leader_sends_one_message_per_follower_and_heartbeat() -> None:
    scenario = cluster("5 led 1")
    raft = scenario.nodes[1].raft
    sent = 0
    for _ in range(100):
        scenario.now = raft.deadline()
        raft.wake(scenario.now)
        for message in raft.ready().messages:
            assert message.kind == HEARTBEAT
            sent += 1
            scenario.nodes[message.to].raft.step(message, scenario.now)
            answers = scenario.nodes[message.to].raft.ready().messages
            assert [answer.kind for answer in answers] == [HEARTBEAT_RESPONSE]
            raft.step(answers[0], scenario.now)
        assert raft.ready().messages == []
    assert sent == 100 * 4


def test_a_proposal_costs_three_messages_per_follower() -> None:
    scenario = cluster("3 led 1")
    scenario.nodes[1].raft.propose(b"x", scenario.now)
    scenario.turn(scenario.nodes[1])
    arrived = scenario.do("settle")
    # The entry, its confirmation, the commit index with its confirmation: the fourth one is the price of a lease.
    assert len([line for line in arrived if line.startswith("1->2")]) == 2
    assert len([line for line in arrived if line.startswith("2->1")]) == 2


def test_a_lease_ends_before_another_can_be_elected() -> None:
    scenario = cluster("3 led 1")
    raft = scenario.nodes[1].raft
    scenario.do("run 500")
    lease = raft.lease_ns()
    contact = max(raft.contact_ns(2), raft.contact_ns(3))
    assert lease == contact + 1000 - 10
    scenario.do("cut 1-2 1-3")
    for _ in range(9):
        scenario.now += 100
        raft.wake(scenario.now)
        raft.ready()
    assert raft.lease_ns() == lease, "nobody answers"
    assert raft.role == LEADER


def test_there_is_no_lease_after_a_handover_has_begun() -> None:
    scenario = cluster("3 led 1")
    raft = scenario.nodes[1].raft
    assert raft.lease_ns() > 0
    scenario.do("cut 1->2")
    raft.transfer(2, scenario.now)
    assert raft.lease_ns() == 0
    scenario.do("run 900")
    assert raft.lease_ns() == 0, "the member that was told may still campaign"
    scenario.do("run 200")
    assert raft.propose(b"x", scenario.now).refused == ACCEPTED, "the handover was given up"
    assert raft.lease_ns() > scenario.now, "in a term of which nobody was told to campaign"


def test_a_handover_that_is_given_up_before_the_successor_was_told_keeps_term_and_lease() -> None:
    scenario = cluster("3 led 1")
    raft = scenario.nodes[1].raft
    scenario.do("cut 1-2")
    raft.propose(b"x", scenario.now)
    scenario.do("settle")
    term = raft.term
    raft.transfer(2, scenario.now)
    scenario.do("run 1100")
    assert raft.lease_ns() > scenario.now
    assert raft.term == term


def test_a_change_needs_a_quorum_in_contact() -> None:
    scenario = cluster("3 led 1")
    raft = scenario.nodes[1].raft
    scenario.do("run 500")
    scenario.do("cut 1-3 2-3")
    scenario.do("run 1500")
    assert raft.propose_change(REMOVE, 2, b"", scenario.now).refused == NO_QUORUM
    assert raft.propose_change(REMOVE, 3, b"", scenario.now).refused == ACCEPTED


def test_a_member_that_lost_what_it_confirmed_is_silent() -> None:
    scenario = cluster("3 led 1")
    follower = scenario.nodes[2].raft
    assert scenario.nodes[1].raft.acknowledged(2) == 2
    heartbeat = Message(HEARTBEAT, 1, 2, follower.term)
    heartbeat.commit = 7  # as the leader of this term would say of a member that has confirmed 7
    follower.step(heartbeat, scenario.now)
    assert follower.lost_suffix
    assert follower.ready().messages == []
    follower.wake(follower.deadline())
    assert follower.ready().messages == []


def test_a_leader_that_a_follower_is_ahead_of_has_lost_what_it_had() -> None:
    """As the only voter it was elected by itself, with a folder that was set back."""
    raft = cluster("3 led 1").nodes[1].raft
    answer = Message(APPEND_RESPONSE, 2, 1, raft.term)
    answer.verdict = GRANTED
    answer.index = raft.log.last_index() + 1
    raft.step(answer, 0)
    assert raft.lost_suffix


def test_a_follower_takes_nothing_from_a_leader_that_lacks_what_is_committed() -> None:
    scenario = cluster("3 led 1")
    scenario.do("propose 1 a")
    scenario.do("settle")
    raft = scenario.nodes[2].raft
    before = (raft.log.commit, raft.log.last_index())
    assert before[0] > 1
    append = Message(APPEND, 1, 2, raft.term)
    append.index = before[0] - 1
    append.log_term = raft.log.term_at(append.index)
    append.entries = [Entry(before[0], raft.term + 1, 0, b"other")]
    append.round = 1 << 20
    raft.step(append, scenario.now)
    assert raft.outdated_leader == 1
    assert (raft.log.commit, raft.log.last_index()) == before
    assert raft.ready().messages == []


def test_a_learner_is_asked_nothing() -> None:
    scenario = cluster("3 spare 1 led 1")
    scenario.do("change 1 add-learner 4")
    scenario.do("settle")
    learner = scenario.nodes[4].raft
    scenario.now += 10_000
    learner.wake(scenario.now)
    assert learner.role == FOLLOWER
    assert learner.ready().messages == []


def test_a_promotion_waits_for_the_log() -> None:
    scenario = cluster("3 spare 1 led 1")
    raft = scenario.nodes[1].raft
    assert raft.propose_change(ADD_LEARNER, 4, b"address", scenario.now).refused == ACCEPTED
    scenario.turn(scenario.nodes[1])
    scenario.do("cut 1-4")
    scenario.do("settle")
    assert raft.propose_change(PROMOTE, 4, b"", scenario.now).refused != ACCEPTED
    scenario.do("connect")
    scenario.do("run 300")
    assert raft.propose_change(PROMOTE, 4, b"", scenario.now).refused == ACCEPTED


def test_messages_and_windows_are_bounded() -> None:
    scenario = cluster("3 led 1", message_bytes=200, inflight_messages=3)
    raft = scenario.nodes[1].raft
    for _ in range(40):
        raft.propose(b"x" * 76, scenario.now)
    appends = [message for message in raft.ready().messages if message.kind == APPEND]
    assert [len(message.entries) for message in appends] == [2, 2, 2] * 2
    assert raft.ready().messages == []


def test_what_is_applied_is_bounded() -> None:
    scenario = cluster("1 led 1", apply_bytes=50)
    raft = scenario.nodes[1].raft
    for _ in range(3):
        raft.propose(b"x" * 40, scenario.now)
    ready = raft.ready()
    assert ready.write is not None
    raft.persisted(ready.write.token, scenario.now)
    found: list[list[Entry]] = []
    more = True
    while more:
        ready = raft.ready()
        found.append(ready.apply)
        more = ready.more
    assert [len(page) for page in found] == [1, 1, 1]


def test_too_large_a_snapshot_is_not_read() -> None:
    scenario = cluster("3 led 1")
    follower = scenario.nodes[2].raft
    offer = Message(OFFER, 1, 2, follower.term)
    offer.index, offer.log_term, offer.size = 9, 2, scenario.options.snapshot_bytes + 1
    follower.step(offer, scenario.now)
    assert follower.ready().messages == []
    assert follower.refused_snapshot_bytes == offer.size


def test_settings_that_do_not_fit() -> None:
    options = Options()
    options.election_ns = 3 * options.heartbeat_ns
    with pytest.raises(AssertionError, match="ends no leadership"):
        options.check()

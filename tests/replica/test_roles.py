"""Roles from a configuration log, at one node: each rule by itself. `test_logged` draws whole runs."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import u64
from folkmoot.kernel.planted import Planted
from folkmoot.membership.holding import COMPLETE, NONE, PARTIAL, Holding
from folkmoot.membership.view import View
from folkmoot.merge.side import last_shared_counter
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import ASK_OFFER, COPY, DURABLE, FETCH, FILLED, OFFER, OPENED, PAGE, PULL, READY, SETTLED, SHIP
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.replica.change import Change, encode_change
from folkmoot.replica.notice import (
    CopyNotice,
    PageNotice,
    Report,
    decode_pull,
    decode_sequences,
    encode_copy,
    encode_page,
    encode_report,
    encode_sequences,
)
from folkmoot.replica.offer import AskNotice, decode_offer, encode_ask
from folkmoot.replica.phase import IDLE, MERGING, OPEN, TAKING
from folkmoot.replica.replication import Replication
from folkmoot.store.batch import PUT, encode_ops
from folkmoot.store.epoch import make_epoch
from folkmoot.store.key import QUEUE, kind_prefix, partition_end, partition_start
from folkmoot.store.memory import MemoryStore
from folkmoot.store.overlay import Overlay
from folkmoot.store.writer import Writer


def epoch_at(counter: int, lineage: str = "trunk") -> int:
    return make_epoch(counter, lineage)


def view_at(
    counter: int, replicas: list[str], learners: list[str], branches: list[str] | None = None, leader_epoch: int = 1
) -> View:
    """A view from the log, of one partition; everybody has come up at 1."""
    members = [Member(node_id, 1, "", node_id, ACTIVE) for node_id in ("n0", "n1", "n2")]
    named = {0: branches} if branches else {}
    bases = {one.node_id: epoch_at(1) for one in members}
    view = View(epoch_at(counter), members, [replicas], [learners], branches=named, bases=bases)
    view.leader_epochs = [leader_epoch]
    return view


def alone_at(counter: int) -> View:
    """The same, with n0 as the only member."""
    return View(epoch_at(counter), [Member("n0", 1, "", "n0", ACTIVE)], [["n0"]], [[]], bases={"n0": epoch_at(1)})


class Node:
    """One node, with a change in its copy of the partition."""

    def __init__(self, node_id: str) -> None:
        self.store = MemoryStore()
        self.writer = Writer(1, 0)
        self.replication = Replication(node_id, 1, ClusterConfig(), self.store, self.writer)
        self.replication.open(0)
        self.replication.install(View(3, [Member(node_id, 1, "", node_id, ACTIVE)]), 0)
        self.turn()
        self.writer.put(0, kind_prefix(0, QUEUE) + b"k", b"body")
        self.turn()
        self.replica = self.replication.replicas[0]

    def turn(self) -> None:
        for partition in self.replication.ready:
            self.replication.start(partition, 0)
        self.replication.ready.clear()
        batch = self.writer.take()
        self.replication.seal(batch, 0)
        if batch is not None:
            self.store.apply(batch)
            self.replication.written(batch.token, 0)
        if self.replication.more():
            self.replication.wake(0)
            if self.replication.ready:
                self.turn()

    def install(self, view: View) -> None:
        self.replication.install(view, 0)
        self.turn()

    def told(self, kind: int) -> list[bytes]:
        found = [body for _node, sent, body in self.replication.out if sent == kind]
        self.replication.out.clear()
        return found


def copy_of(epoch: int, resume: bool = False) -> bytes:
    return encode_copy(epoch, CopyNotice(0, resume, epoch, 9, [(epoch, 0)]))


def test_a_copy_in_sync_leaves_the_isr_before_it_is_overwritten() -> None:
    node = Node("n1")
    view = view_at(5, ["n0", "n1"], [])
    node.install(view)
    before = node.writer.position(0)
    node.replication.receive("n0", COPY, copy_of(view.epoch), 0)
    assert node.replication.unfit == [0]
    assert node.writer.position(0) == before
    assert node.replica.state == COMPLETE
    learner = view_at(6, ["n0"], ["n1"])
    node.install(learner)
    node.replication.receive("n0", COPY, copy_of(learner.epoch), 0)
    assert node.replica.state == PARTIAL
    assert node.writer.position(0) == (learner.epoch, 9)


@pytest.mark.parametrize("missed", [False, True])
def test_a_copy_with_too_many_touched_keys_goes_on_where_it_was(missed: bool) -> None:
    """If it began at the first key each time, one under much load would never end (A12).

    But what it has is no part of a copy of a position that does not follow what came.
    """
    node = Node("n1")
    node.replication.copies.touched_max = 3
    epoch = epoch_at(6)
    node.install(view_at(6, ["n0"], ["n1"]))
    node.replication.receive("n0", COPY, encode_copy(epoch, CopyNotice(0, False, epoch, 9, [(epoch, 0)])), 0)
    node.turn()
    node.replication.wake(0)
    assert [decode_pull(body, 1).start for body in node.told(PULL)] == [partition_start(0)]
    middle = kind_prefix(0, QUEUE) + b"m"
    page = PageNotice(0, partition_start(0), middle, False, [(kind_prefix(0, QUEUE) + b"a", bytes(16))])
    node.replication.receive("n0", PAGE, encode_page(epoch, page), 0)
    node.turn()
    node.told(PULL)
    ops = [(PUT, middle + b"%d" % number, bytes(16)) for number in range(5)]
    change = encode_change(0, Change(epoch, 9, epoch, 10, encode_ops(ops)))
    node.replication.receive("n0", SHIP, u64(epoch) + change, 0)
    assert not node.replica.copying
    assert len(node.told(FETCH)) == 1
    again = CopyNotice(0, False, epoch, 12 if missed else 10, [(epoch, 0)])
    node.replication.receive("n0", COPY, encode_copy(epoch, again), 0)
    node.turn()
    node.replication.wake(0)
    starts = [decode_pull(body, 1).start for body in node.told(PULL)]
    assert starts == [partition_start(0) if missed else middle]
    end = PageNotice(0, starts[0], partition_end(0), False, [(key, value) for _kind, key, value in ops])
    node.replication.receive("n0", PAGE, encode_page(epoch, end), 0)
    node.turn()
    assert node.replica.state == COMPLETE
    assert (node.store.get(kind_prefix(0, QUEUE) + b"a") is not None) != missed
    assert [node.store.get(key) for _kind, key, _value in ops] == [bytes(16)] * 5


@pytest.mark.parametrize("taken", [False, True])
def test_a_damaged_copy_of_another_lineage_that_is_dropped_is_a_loss(taken: bool) -> None:
    """taken: the leader has merged another copy of that lineage."""
    node = Node("n1")
    one = Member("n1", 1, "", "n1", ACTIVE)
    node.install(View(epoch_at(4, "fork"), [one], [["n1"]], [[]], bases={"n1": epoch_at(1)}))
    node.writer.put(0, kind_prefix(0, QUEUE) + b"l", b"body")
    node.turn()
    node.replica.spoil("a block is damaged")
    node.turn()
    node.replication.context.config.replicas = 2
    view = view_at(6, ["n0", "n2"], [])
    node.install(view)
    for kind, number in ((OPENED, 9), (SETTLED, int(taken))):
        node.replication.receive("n0", kind, encode_sequences(view.epoch, [(0, number)]), 0)
    assert node.replication.drops.active
    node.replication.events.clear()
    node.replication.drops.step()
    kinds = [event.kind for event in node.replication.events]
    assert kinds == [*([] if taken else ["branch_lost"]), "replica_dropped"]


@pytest.mark.parametrize("planted", [False, True])
def test_in_a_fork_no_copy_is_dropped(planted: bool) -> None:
    """The node came over to the fork later, and is no replica there: the trunk counts on its copy."""
    node = Node("n1")
    context = node.replication.context
    context.config.replicas = 2
    context.planted = Planted(["drops_in_fork"] if planted else [])
    dropped: list[bool] = []
    for counter, is_trunk in ((5, False), (6, True)):
        view = view_at(counter, ["n0", "n2"], [])
        view.is_trunk = is_trunk
        node.install(view)
        for kind in (OPENED, SETTLED):
            node.replication.receive("n0", kind, encode_sequences(view.epoch, [(0, 1)]), 0)
        dropped.append(bool(node.replication.drops.active))
    assert dropped == [planted, True]


def test_a_copy_with_holes_must_not_be_in_sync() -> None:
    node = Node("n1")
    node.install(view_at(5, ["n0"], ["n1"]))
    node.replication.receive("n0", COPY, copy_of(epoch_at(5)), 0)
    assert node.replication.unfit == []
    node.install(view_at(6, ["n0", "n1"], []))
    assert node.replication.unfit == [0]


def test_a_copy_that_is_complete_is_told_to_a_leader_that_does_not_know_it() -> None:
    node = Node("n1")
    view = view_at(5, ["n0"], ["n1"])
    node.install(view)
    node.told(FILLED)
    node.replication.receive("n0", COPY, copy_of(view.epoch, resume=True), 0)
    seq = node.writer.position(0)[1]
    assert [decode_sequences(body, 1) for body in node.told(FILLED)] == [[(0, seq)]]


def test_a_copy_may_diverge_only_if_the_log_lists_it() -> None:
    node = Node("n1")
    node.install(view_at(5, ["n0"], ["n1"], ["n1"]))
    assert node.replica.report().may_diverge
    node.install(view_at(6, ["n0"], ["n1"], ["n2"]))
    assert not node.replica.report().may_diverge


def leading() -> Node:
    """A leader that serves, with n1 as a branch that it has merged."""
    node = Node("n0")
    node.install(view_at(5, ["n0"], ["n1", "n2"], ["n1"]))
    node.replica.phase = OPEN
    return node


def test_a_leader_that_has_merged_a_branch_goes_on_while_its_node_is_filled() -> None:
    node = leading()
    node.install(view_at(6, ["n0"], ["n1", "n2"], ["n1"]))
    assert node.replication.leads(0)
    assert node.replication.leader_open(0)
    back = view_at(7, ["n0"], ["n1", "n2"], ["n1"])
    back.bases["n1"] = back.epoch
    node.install(back)
    assert node.replication.leads(0), "its copy is no branch any more: another leadership would have begun"


def test_a_new_branch_is_merged_before_the_partition_is_served_again() -> None:
    """Each begins another leadership, also one from a node whose branch was merged before."""
    for branches in (["n1", "n2"], ["n1"]):
        node = leading()
        node.replication.install(view_at(6, ["n0"], ["n1", "n2"], branches, leader_epoch=2), 0)
        assert not node.replication.leads(0)
        assert node.replica.phase == TAKING


@pytest.mark.parametrize("restarted", [False, True])
def test_clients_of_a_branch_are_connected_only_to_the_process_that_made_it(restarted: bool) -> None:
    node = Node("n1")
    fork = View(epoch_at(4, "fork"), [Member("n1", 1, "", "n1", ACTIVE)], [["n1"]], [[]], bases={"n1": epoch_at(1)})
    node.install(fork)
    if restarted:  # and finds the trunk at once: the fork is what its disk had
        node.replication = Replication("n1", 1, ClusterConfig(), node.store, node.writer)
        node.replication.open(0)
        node.replication.context.lived = fork
    node.install(view_at(6, ["n0"], ["n1", "n2"], ["n1"]))
    ask = AskNotice(0, partition_start(0), [])
    node.replication.receive("n0", ASK_OFFER, encode_ask(epoch_at(6), ask), 0)
    offers = [decode_offer(body, 1) for _node_id, kind, body in node.replication.out if kind == OFFER]
    assert [(offer.lives, offer.side, offer.lineage[:1]) for offer in offers] == [(not restarted, ["n1"], [fork.epoch])]


def test_a_merge_does_not_go_on_from_what_is_taken_back() -> None:
    node = leading()
    view = view_at(6, ["n0"], ["n1", "n2"], ["n1", "n2"], leader_epoch=2)
    node.replication.install(view, 0)
    report = Report(0, Holding(COMPLETE, epoch_at(4, "fork"), 5, [(epoch_at(4, "fork"), 0)]), 1)
    report.may_diverge = True
    for node_id in ("n1", "n2"):
        node.replication.receive(node_id, READY, u64(view.epoch) + encode_report(report), 0)
    node.turn()
    assert node.replica.phase == MERGING
    node.replication.truncate(Overlay(node.store))
    node.turn()
    assert node.replica.phase == IDLE
    assert not node.replication.ready
    node.replication.install(view_at(7, ["n0"], ["n1", "n2"], ["n1", "n2"]), 0)
    assert node.replica.phase == TAKING


def test_a_branch_is_kept_until_what_was_merged_is_at_all_replicas() -> None:
    node = Node("n0")
    node.install(view_at(5, ["n0", "n2"], ["n1"], ["n1"]))
    node.replica.phase = OPEN
    assert not node.replica.settled
    report = Report(0, node.replica.holding(), 1)
    report.may_diverge = True
    lead = node.replication.lead
    lead.report(node.replica, "n1", report)
    follower = node.replica.follower("n1")
    assert follower is not None
    assert not follower.streaming
    lead._settle(node.replica)
    assert follower.streaming


def test_a_learner_that_has_come_up_again_does_not_count_any_more() -> None:
    node = leading()
    follower = node.replica.follower("n2")
    assert follower is not None
    follower.counts = True
    node.install(view_at(6, ["n0"], ["n1", "n2"], ["n1"]))
    follower = node.replica.follower("n2")
    assert follower is not None
    assert follower.counts
    back = view_at(7, ["n0"], ["n1", "n2"], ["n1"])
    back.bases["n2"] = back.epoch  # with the same process
    node.install(back)
    found = [one for one in node.replica.followers if one.node_id == "n2"]
    assert [one.counts for one in found] == [False]


def test_a_leader_that_was_away_takes_over_anew() -> None:
    node = Node("n0")
    node.install(view_at(5, ["n0"], ["n1", "n2"]))
    assert node.replication.leads(0)
    back = view_at(7, ["n0", "n1"], ["n2"])
    back.bases["n0"] = back.epoch  # with the same process
    node.replication.install(back, 0)
    assert not node.replication.leads(0), "another one may have led it"
    node.turn()
    assert node.replica.phase == TAKING
    node.replication.receive("n1", READY, u64(back.epoch) + encode_report(Report(0, node.replica.holding(), 2)), 0)
    assert node.replication.ready == [0]


def test_a_leader_that_was_away_and_is_alone_knows_what_is_on_its_disk() -> None:
    node = Node("n0")
    node.install(alone_at(5))
    node.writer.put(0, kind_prefix(0, QUEUE) + b"l", b"body")
    node.turn()
    assert node.replication.leads(0)
    back = alone_at(7)
    back.bases["n0"] = back.epoch
    node.install(back)
    assert node.replication.leads(0), "all that it takes over is on its disk"


@pytest.mark.parametrize("away", [False, True], ids=["goes on", "takes over"])
def test_a_leader_that_becomes_alone_knows_what_is_on_its_disk(away: bool) -> None:
    """The last other member is gone and then removed, in two views between two turns.

    What the first view has it write, the history of what is not committed, is the first change that it makes alone.
    """
    node = Node("n0")
    node.install(view_at(5, ["n0", "n1"], []))
    node.replication.receive("n1", READY, u64(epoch_at(5)) + encode_report(node.replica.report()), 0)
    node.turn()
    node.writer.put(0, kind_prefix(0, QUEUE) + b"l", b"body")
    node.turn()
    assert node.replica.uncommitted, "n1 has not confirmed it"
    gone = alone_at(7)
    gone.known = ["n0", "n1"]
    node.replication.install(gone, 0)
    removed = alone_at(8)
    if away:
        removed.bases["n0"] = removed.epoch
    node.install(removed)
    assert node.replica.sequence > node.replica.head_seq, "it has written"
    node.turn()
    assert node.replica.is_written()
    assert node.replication.leads(0)


def test_a_copy_that_was_being_filled_is_taken_over_where_it_is_the_only_one_in_sync() -> None:
    """In the lineage to which it has come back; what it had there is in a branch, of the one that filled it."""
    node = Node("n0")
    node.install(view_at(5, ["n1"], ["n0"]))
    node.replica.cut(epoch_at(5), 7, [(epoch_at(5), 1)])
    node.turn()
    assert node.replica.durable_seq < 0, "its pages are to come"
    node.install(view_at(7, ["n0"], ["n1"]))
    for _ in range(2):
        node.turn()
    assert node.replication.leads(0)


def test_a_takeover_that_waits_for_a_report_asks_for_another_configuration() -> None:
    node = Node("n0")
    node.install(view_at(5, ["n0", "n1"], []))
    node.replication.out.clear()
    while node.replication.next_wake() < 30 * SECOND and not node.replication.renew:
        node.replication.wake(node.replication.next_wake())
    assert node.replication.renew
    assert node.replication.unfit == [], "its copy is as good as before"
    node.replication.renew = False
    assert not node.replication.renew


def test_a_leader_makes_way_for_one_in_sync_to_which_a_later_leadership_has_written_without_it() -> None:
    node = Node("n0")
    view = view_at(5, ["n0", "n1"], [])
    node.install(view)
    node.replica.phase = TAKING
    node.replication.takeover.begin(node.replica, ["n0", "n1"])
    other = Report(0, Holding(COMPLETE, epoch_at(4), 7, [(epoch_at(4), 0)]), 7)
    body = u64(view.epoch) + encode_report(other)
    node.replication.receive("n1", READY, body, 0)
    assert node.replication.unfit == [0]
    assert node.replication.ready == []


def test_each_leadership_opens_for_itself_though_the_same_node_leads() -> None:
    """Another one has led in a view that this node has skipped; or nobody has served, with too few copies."""
    node = Node("n0")
    for counter, leader_epoch in ((5, 1), (7, 3)):
        view = view_at(counter, ["n1", "n0"], [], leader_epoch=leader_epoch)
        node.install(view)
        assert not node.replication.leader_open(0)
        node.replication.receive("n1", OPENED, encode_sequences(view.epoch, [(0, 0)]), 0)
        assert node.replication.leader_open(0)
    node.replication.closed(0)
    assert not node.replication.leader_open(0)


def test_what_a_follower_says_before_it_has_joined_is_not_forgotten() -> None:
    """Its last write was on the way to its disk when it reported: it says once that it is there."""
    node = Node("n0")
    view = view_at(5, ["n0", "n1", "n2"], [])
    node.install(view)
    node.replica.phase = TAKING
    node.replication.takeover.begin(node.replica, ["n0", "n1", "n2"])
    holding = node.replica.holding()
    report = Report(0, Holding(COMPLETE, holding.epoch, holding.seq, holding.history), holding.seq - 1)
    node.replication.receive("n1", READY, u64(view.epoch) + encode_report(report), 0)
    assert node.replica.follower("n1") is None
    node.replication.receive("n1", DURABLE, encode_sequences(view.epoch, [(0, holding.seq)]), 0)
    report = Report(0, report.holding, holding.seq)
    node.replication.receive("n2", READY, u64(view.epoch) + encode_report(report), 0)
    node.turn()
    follower = node.replica.follower("n1")
    assert follower is not None
    assert (follower.streaming, follower.acked_seq) == (True, holding.seq)


# Where lineages parted


def test_the_fork_is_the_newest_that_both_sides_have() -> None:
    view = view_at(90, ["n0"], [])
    view.lineage = [epoch_at(30, "old")]
    side = [epoch_at(80, "fork"), epoch_at(50), epoch_at(30, "old")]
    assert last_shared_counter(view, side) == 50
    assert last_shared_counter(view, [epoch_at(20, "old")]) == 20
    assert last_shared_counter(view, [epoch_at(80, "fork")]) == -1
    assert last_shared_counter(view, [epoch_at(95)]) == 90


def test_where_clients_of_a_merged_session_may_stay_is_known_until_its_partition_opens() -> None:
    """A view may come between the end of a merge and the opening; it plans nothing of that merge again."""
    for leader, known in (("n0", True), ("n1", False)):
        node = leading()
        homes = {"c": (False, ["n1"])}
        node.replication.merges._homes[node.replica] = homes
        others = [name for name in ("n0", "n1") if name != leader]
        node.replication.install(view_at(6, [leader], others), 0)
        assert node.replication.take_homes(0) == (homes if known else {})
        assert node.replication.take_homes(0) == {}


@pytest.mark.parametrize("recovers", [False, True])
def test_a_copy_that_was_never_filled_is_empty_unless_another_may_have_been(recovers: bool) -> None:
    """What is left of a partition is compared before one of them leads: nothing must not count as all that there is."""
    replication = Replication("n0", 1, ClusterConfig(), MemoryStore(), Writer(1, 0))
    replication.open(0)
    view = view_at(5, ["n1", "n0"], [])
    view.recovering = [0] if recovers else []
    replication.install(view, 0)
    assert replication.unfit == ([0] if recovers else [])
    assert replication.replicas[0].state == (NONE if recovers else COMPLETE)


@pytest.mark.parametrize("recovers", [False, True])
def test_a_copy_that_was_never_filled_makes_way_for_a_branch(recovers: bool) -> None:
    """Its leader does not merge the branch into nothing: offsets of streams would be given out again."""
    replication = Replication("n0", 1, ClusterConfig(), MemoryStore(), Writer(1, 0))
    replication.open(0)
    view = view_at(5, ["n0"], ["n1"], ["n1"])
    view.recovering = [0] if recovers else []
    replication.install(view, 0)
    own = Holding(COMPLETE, epoch_at(4, "fork"), 3, [(epoch_at(4, "fork"), 0)])
    replication.receive("n1", READY, u64(view.epoch) + encode_report(Report(0, own, 3)), 0)
    assert replication.unfit == ([0] if recovers else [])
    assert replication.replicas[0].phase == (TAKING if recovers else MERGING)

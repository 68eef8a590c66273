"""Membership: who belongs to the cluster, agreed on by its members; the entrance to this part for the node.

Owns the rhythm (heartbeats, looking at the evidence, deciding that a view is due). The evidence is the detector's, the
conclusions are the roster's, the agreement is the ballot's, the state is the seat's.
"""

from __future__ import annotations

from typing import Final

from folkmoot.cluster.agenda import Agenda
from folkmoot.cluster.ballot import Ballot, installed_epoch
from folkmoot.cluster.beat import Beater
from folkmoot.cluster.config import ClusterConfig
from folkmoot.cluster.detector import Detector, Peer
from folkmoot.cluster.heartbeat import (
    EVICT,
    FORGET,
    MEMBER,
    WAITING,
    Heartbeat,
    Request,
    decode_heartbeat,
)
from folkmoot.cluster.kind import COMMIT, HEARTBEAT, INSTALLED, PREPARE, PROMISE, REFUSE
from folkmoot.cluster.roster import Roster, Wish, unsatisfied
from folkmoot.cluster.seat import STATES, HoldingsSource, Seat
from folkmoot.cluster.view import Member, View
from folkmoot.kernel.event import INFO, WARNING, Event
from folkmoot.kernel.rng import Rng

__all__ = ["Membership"]

_COUNTER_MAX: Final = 1 << 39
_FEW: Final = 16
_KINDS: Final = (PREPARE, PROMISE, REFUSE, COMMIT)


class Membership:
    """One node's membership as a core: no call raises for what others send; `now` never goes back.

    out: (node id, kind, body) to be sent. installs: views to be installed in order, the newest to be stored with
    the writes of that turn, durably. events: facts for the log. The caller empties these lists in place.
    """

    def __init__(
        self,
        me: Member,
        config: ClusterConfig,
        partitions: int,
        rng: Rng,
        holdings: HoldingsSource,
        stored: View | None,
    ) -> None:
        """`stored`: the newest view that this node had installed before it was started again."""
        self._config = config
        self._seat = Seat(me, config, partitions, rng, holdings, stored)
        self._detector = Detector(me.node_id, config.silence_us)
        self._roster = Roster(me, self._detector, config.link_patience_us)
        self._agenda = Agenda(self._seat, self._detector, self._roster)
        self._ballot = Ballot(self._seat, self._detector)
        self._beater = Beater(self._seat, self._detector)
        self._wait_since_us: int = -1  # since when no member is in sight
        self._due_since_us: int = -1  # since when a planned change is due
        self._next_us: int = 0
        self._lower: list[str] = []  # whom evidence is sent to at once
        self._complained: dict[str, int] = {}
        self.out: list[tuple[str, int, bytes]] = self._seat.out
        self.installs: list[View] = self._seat.installs
        self.events: list[Event] = self._seat.events

    @property
    def view(self) -> View | None:
        """The view that is installed here, None = none yet since the start."""
        return None if self._seat.state == WAITING else self._seat.view

    @property
    def state(self) -> str:
        """Whether this node is "waiting" for a first view, a "member", or "excluded" from a view that it sees."""
        return STATES[self._seat.state]

    @property
    def writable(self) -> bool:
        """Whether writes may be taken here: false without a view, and in a minority under the policy "majority"."""
        return self._seat.writable()

    @property
    def left(self) -> bool:
        """Whether this node wanted to leave and is out."""
        return self._seat.leaving and self._seat.state != MEMBER

    @property
    def strangers(self) -> list[str]:
        """Members of views that were made without this node, to be taken: what was between them and it is void."""
        return self._seat.strangers

    @property
    def wants(self) -> list[str]:
        """The addresses that should be kept connected."""
        return self._beater.wants()

    def up(self, member: Member, now: int) -> None:
        """A peer is connected, again or for the first time."""
        if member.node_id == self._seat.me.node_id:
            return
        first = self._detector.up(member, now)
        if first:
            self._seat.event(INFO, "node_seen", {"node": member.node_id, "incarnation": member.incarnation})
        self._beater.greet(member.node_id, now)
        if self._matters():
            self._look(now)

    def down(self, node_id: str, incarnation: int, refused: bool, now: int) -> None:
        """A peer's connection is gone; refused: its host lives and nobody listens there, so its process is gone."""
        if self._detector.down(node_id, incarnation, refused, now):
            self._look(now)
            self._tell(now)

    def heard(self, node_id: str, at_us: int) -> None:
        """Bytes of any kind came from a peer."""
        self._detector.heard(node_id, at_us)

    def receive(self, node_id: str, kind: int, body: bytes, now: int) -> None:
        """A message of kinds 1 to 15 came; nonsense is counted as an event and dropped."""
        peer = self._detector.peers.get(node_id)
        if peer is None or peer.member is None:
            return
        self._detector.heard(node_id, now)
        try:
            if kind == HEARTBEAT:
                self._beat(peer, decode_heartbeat(body), now)
            elif kind == INSTALLED:
                epoch = installed_epoch(body)
                if peer.beat is not None and epoch == self._seat.epoch():
                    peer.beat.epoch = epoch
                    peer.beat.state = MEMBER
            elif kind in _KINDS:
                before = self._seat.epoch()
                self._ballot.receive(node_id, kind, body, now)
                if self._seat.epoch() != before:
                    self._installed(now)
        except ValueError as error:
            self._complain(node_id, f"sent what cannot be read: {error}", peer.incarnation())

    def wake(self, now: int) -> None:
        """A deadline of `next_wake` has come."""
        if now < self._next_us and now < self._retry():
            return
        if now >= self._next_us:
            if self._wait_since_us < 0:
                self._wait_since_us = now
            silent = self._detector.tick(now, self._beater.interval())
            self._next_us = now + self._beater.interval()
            self._beater.beat(now, self._patient(now))
            if silent:
                self._tell(now)
        self._ballot.late(now)
        self._look(now)

    def next_wake(self) -> int:
        """Return when `wake` is to be called at the latest, in microseconds."""
        return min(self._next_us, self._retry())

    def stalled(self, what: str, since_us: int) -> None:
        """The disk or the loop stands still since then; 0 = it goes on."""
        self._seat.stall(what, since_us)

    def filled(self, partition: int, node_id: str, now: int) -> None:
        """A learner of a partition that this node leads is complete; from now on the leader waits for it too."""
        if (partition, node_id) not in self._seat.filled:
            self._seat.filled.append((partition, node_id))
            self._look(now)

    def changed(self, now: int) -> None:
        """The holdings of this node call for a view: a copy was found to be damaged."""
        self._seat.news = True
        self._look(now)

    def leave(self, now: int) -> None:
        """Give away what this node keeps, then go for good; `left` says when."""
        self._seat.leaving = True
        self._look(now)

    def evict(self, node_id: str, now: int) -> None:
        """Put a node out of the view and keep it out until it is started again."""
        member = None if self._seat.view is None else self._seat.view.member(node_id)
        if member is not None:
            self._seat.requests.append(Request(EVICT, node_id, member.incarnation))
            self._look(now)

    def forget(self, node_id: str, now: int) -> None:
        """Expect a node that is gone no more: it counts in no majority, and nothing is kept for its return."""
        view = self._seat.view
        if view is not None and view.member(node_id) is None and node_id in view.known:
            self._seat.requests.append(Request(FORGET, node_id, 0))
            self._look(now)

    def suspects(self) -> list[str]:
        """Return the members that this node does not hear."""
        view = self._seat.view
        if view is None:
            return []
        hears = self._detector.hears
        return [member.node_id for member in view.members if not hears & self._detector.bit(member.node_id)]

    def reach(self) -> dict[str, list[str]]:
        """Return who hears whom, as far as this node knows."""
        return self._detector.matrix()

    def set_load(self, load: dict[str, int]) -> None:
        """Set the figures that all others shall see of this node; names of at most 1,024 bytes, 64 of them."""
        self._beater.set_load(load)

    def load_of(self, node_id: str) -> dict[str, int]:
        """Return the figures of a node, empty when it sent none."""
        if node_id == self._seat.me.node_id:
            return self._beater.load
        peer = self._detector.peers.get(node_id)
        return {} if peer is None else peer.load

    # Deciding

    def _retry(self) -> int:
        """Return when a proposal that had to wait may be made, or the next beat."""
        return self._ballot.retry_us if self._ballot.retry_us else self._next_us

    def _beat(self, peer: Peer, beat: Heartbeat, now: int) -> None:
        seat = self._seat
        if beat.partitions != seat.partitions:
            self._complain(peer.node_id, f"has {beat.partitions} partitions, not {seat.partitions}", beat.incarnation)
            return
        if beat.counter <= _COUNTER_MAX:
            seat.counter = max(seat.counter, beat.counter)
        old = peer.beat
        moved = self._detector.said(peer.node_id, beat, seat.view, now)
        self._beater.learn(beat.peers, now)
        if old is None or moved or old.epoch != beat.epoch or old.state != beat.state or old.stalled != beat.stalled:
            if seat.state == MEMBER and not beat.in_view and beat.epoch > seat.epoch():
                self._left_out()
            if self._matters():
                self._look(now)

    def _matters(self) -> bool:
        """Tell whether news are looked at before the next beat: in a crowd only by those who may have to propose."""
        return len(self._detector.peers) <= _FEW or (
            self._seat.state == MEMBER and self._seat.me.node_id in self._lower
        )

    def _left_out(self) -> None:
        """Notice that at least half of the view went on without this node."""
        view = self._seat.view
        assert view is not None, "a member has a view"
        moved = 0
        remain = 1
        for member in view.members:
            peer = self._detector.peers.get(member.node_id)
            if peer is None or peer.beat is None or peer.incarnation() != member.incarnation:
                continue
            if not self._detector.hears & peer.bit:
                continue
            if peer.serves() and peer.beat.epoch > view.epoch and not peer.beat.in_view:
                moved += 1
            elif peer.beat.epoch == view.epoch and peer.serves():
                remain += 1
        if moved and moved >= remain:
            self._seat.exclude(f"{moved} of {len(view.members)} went on without this node")

    def _installed(self, now: int) -> None:
        view = self._seat.view
        assert view is not None, "a view was installed"
        self._wait_since_us = now
        self._due_since_us = -1
        self._agenda.reset()
        self._seat.requests = unsatisfied(self._seat.requests, view)
        self._detector.prune([*[member.node_id for member in view.members], *view.known])
        if len(self._detector.peers) <= _FEW:
            self._beater.beat(now, False)  # many are told with the next beat, which must not come as a wave
            self._next_us = now + self._beater.interval()

    def _look(self, now: int) -> None:
        """Look at the evidence, and propose a view if one is due and this node is the one to do it."""
        if self._ballot.retry_us and now >= self._ballot.retry_us:
            self._ballot.retry_us = 0
        before = self._seat.epoch()
        if self._seat.state == MEMBER:
            self._look_as_member(now)
        elif not self._seat.leaving:
            self._look_from_outside(now)
        if self._seat.epoch() != before:
            self._installed(now)

    def _look_as_member(self, now: int) -> None:
        view = self._seat.view
        assert view is not None, "a member has a view"
        stalled = self._seat.stalled(now)
        requests = unsatisfied(self._agenda.requests(view), view)
        wish = self._roster.survey(view, stalled, requests, self._ballot.mute(now), now)
        self._lower = wish.ids[:3]
        self._agenda.plan(view, wish, requests, now)
        if not wish.reasons:
            self._due_since_us = -1
            return
        if self._due_since_us < 0:
            self._due_since_us = now
        if wish.proposer != self._seat.me.node_id or self._ballot.retry_us:
            return
        proposal = self._ballot.proposal
        if wish.urgent:
            if proposal is not None and not self._hopeless(wish):
                return
        else:
            settled = now - self._due_since_us >= self._config.heartbeat_us
            paused = now - self._seat.installed_us >= self._config.view_pause_us
            if proposal is not None or not settled or not paused:
                return
        self._ballot.requests = requests
        self._ballot.left = self._agenda.left
        self._ballot.leaving = self._agenda.leaving(view)
        self._seat.event(INFO, "view_due", {"reasons": wish.reasons, "urgent": wish.urgent})
        self._ballot.propose(wish.ids, now)

    def _hopeless(self, wish: Wish) -> bool:
        """Tell whether the proposal under way waits for somebody who is gone."""
        proposal = self._ballot.proposal
        if proposal is None:
            return False
        for node_id in proposal.missing():
            if node_id not in wish.ids:
                return True
        for member in proposal.members:
            peer = self._detector.peers.get(member.node_id)
            if peer is not None and peer.member is not None and peer.incarnation() != member.incarnation:
                return True
        return False

    def _patient(self, now: int) -> bool:
        """Tell whether this node still waits for more nodes before it makes a first view."""
        return self._seat.state != MEMBER and now - self._wait_since_us < self._config.join_wait_us

    def _look_from_outside(self, now: int) -> None:
        """Without a view: wait to be taken in; when no member is in sight, make a view with those that wait too."""
        seat = self._seat
        for peer in self._detector.peers.values():
            if self._detector.hears & peer.bit and peer.serves():
                self._wait_since_us = now
                return
        if self._wait_since_us < 0 or self._ballot.proposal is not None or self._ballot.retry_us:
            return
        if now - seat.promised_us < self._config.view_pause_us and seat.promised_us:
            return  # somebody is about to take this node in
        waited = not self._patient(now)
        ids = self._roster.pool(self._detector.mutual(), now, waited)
        if not ids or ids[0] != seat.me.node_id or seat.stalled(now):
            return
        if not waited and not self._all_here(ids):
            return
        if seat.config.split_policy == "majority" and not self._enough(ids):
            return
        self._ballot.requests = []
        self._ballot.leaving = []
        self._ballot.left = []
        self._ballot.propose(ids, now)

    def _all_here(self, ids: list[str]) -> bool:
        """Tell whether all that this node knows of are here and have waited enough: seeds, and members of old."""
        addresses = [self._config.peer_address]
        for node_id in ids:
            peer = self._detector.peers.get(node_id)
            if peer is not None and peer.member is not None:
                addresses.append(peer.member.address)
        for seed in self._config.seeds:
            if seed not in addresses:
                return False
        if self._seat.view is not None:
            for node_id in self._seat.view.known:
                if node_id not in ids:
                    return False
        return True

    def _enough(self, ids: list[str]) -> bool:
        """Tell whether a majority is here: of the last full membership, or of the seeds when there was none."""
        if self._seat.view is not None:
            known = self._seat.view.known
            here = [node_id for node_id in known if node_id in ids]
            return 2 * len(here) > len(known)
        expected = len({self._config.peer_address, *self._config.seeds})
        return 2 * len(ids) > expected

    def _tell(self, now: int) -> None:
        """Send evidence at once to those who may have to propose, others get it with the next beat."""
        self._beater.tell(self._lower, now)

    def _complain(self, node_id: str, why: str, incarnation: int) -> None:
        """Note a fault of a node, once per start of it."""
        if self._complained.get(node_id) != incarnation:
            self._complained[node_id] = incarnation
            self._seat.event(WARNING, "node_refused", {"node": node_id, "why": why})

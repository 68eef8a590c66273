"""Which nodes belong to the cluster, agreed on by its members; the interface of this package for the node.

Owns the times of heartbeats and of looking at the evidence. `detector` has the evidence; `watchdog` draws conclusions
as a member of a view, `bootstrap` without one; `ballot` agrees on views; `member_state` has the state.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import INFO, WARNING, Event
from folkmoot.kernel.rng import Rng
from folkmoot.membership.ballot import Ballot, installed_epoch
from folkmoot.membership.beat import Beater
from folkmoot.membership.bootstrap import Bootstrap
from folkmoot.membership.detector import NO_ROOM, Detector, Peer
from folkmoot.membership.heartbeat import (
    DEPART,
    EVICT,
    FORGET,
    LEAVE,
    MEMBER,
    WAITING,
    Heartbeat,
    Request,
    decode_heartbeat,
)
from folkmoot.membership.member_state import STATES, HoldingsSource, MemberState
from folkmoot.membership.planner import Planner, departs, drained, is_gone, unsatisfied
from folkmoot.membership.view import View
from folkmoot.membership.watchdog import Watchdog
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import COMMIT, HEARTBEAT, INSTALLED, PREPARE, PROMISE, REFUSE
from folkmoot.peer.member import Member
from folkmoot.store.epoch import is_sane

__all__ = ["Membership"]

_FEW: Final = 16
_KINDS: Final = (PREPARE, PROMISE, REFUSE, COMMIT)


class Membership:
    """One node's membership as a core: no call raises for what others send; `now` never runs back.

    out: (node id, kind, body) to be sent. installs: views to be installed in order, the newest of them to be stored
    with the writes of that turn. events: facts for the log. The caller empties these lists in place.
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
        """`stored`: the newest view that this node had installed before it was restarted."""
        self._config = config
        self._member_state = MemberState(me, config, partitions, rng, holdings, stored)
        self._detector = Detector(me.node_id, config.silence_us)
        planner = Planner(me, self._detector, config.link_patience_us, config.split_policy == "majority")
        self._ballot = Ballot(self._member_state, self._detector)
        self._beater = Beater(self._member_state, self._detector)
        self._watchdog = Watchdog(self._member_state, self._detector, planner, self._ballot, self._beater)
        self.bootstrap = Bootstrap(self._member_state, self._detector, planner, self._ballot)
        self._next_us: int = 0
        self._complained: dict[str, int] = {}
        self.out: list[tuple[str, int, bytes]] = self._member_state.out
        self.installs: list[View] = self._member_state.installs
        self.events: list[Event] = self._member_state.events

    @property
    def view(self) -> View | None:
        """The view that is installed here, None = none yet since the start."""
        return None if self._member_state.state == WAITING else self._member_state.view

    @property
    def seeks(self) -> bool:
        """Whether this node needs to know the ids of its seeds."""
        return self.view is None or self.view.minority_bootstrap

    def know_seeds(self, residents: dict[str, str]) -> None:
        """Learn the ids of the nodes that answer at addresses."""
        self._member_state.met = residents

    @property
    def state(self) -> str:
        """Whether this node is "waiting" for a first view, a "member", or "excluded": others continued without it."""
        return STATES[self._member_state.state]

    @property
    def may_write(self) -> bool:
        """Whether writes may be taken here: false without a view, and in a minority under the policy "majority"."""
        return self._member_state.may_write()

    def is_gone(self, node_id: str) -> bool:
        """Whether a node certainly does not serve beside this one: it has ended, or has announced its end."""
        peer = self._detector.peers.get(node_id)
        return peer is not None and is_gone(peer)

    @property
    def left(self) -> bool:
        """Whether this node has left: it handed over its copies, announced its end, and is in no view."""
        return self._member_state.leaving and self.departed

    @property
    def drained(self) -> bool:
        """Whether this node leaves and keeps nothing: it may `depart` as soon as it has no clients."""
        view = self._member_state.view
        return self._member_state.state == MEMBER and view is not None and drained(view, self._member_state.me.node_id)

    @property
    def departing(self) -> bool:
        """Whether this node has announced its end."""
        return self._member_state.departing

    @property
    def departed(self) -> bool:
        """Whether this node has announced its end, and the others continue without it, or there are none."""
        if not self._member_state.departing:
            return False
        view = self._member_state.view
        if self._member_state.state != MEMBER or view is None:
            return True
        for member in view.members:
            peer = self._detector.peers.get(member.node_id)
            if peer is not None and self._detector.hears & peer.bit and not departs(peer):
                return False
        return True

    @property
    def excluded_by(self) -> list[str]:
        """Members of views that were made without this node, for the caller to take: they start over with it."""
        return self._member_state.excluded_by

    @property
    def wants(self) -> list[str]:
        """The addresses to keep connected."""
        return self._beater.wants()

    def up(self, member: Member, now: int) -> None:
        """A peer is connected, again or for the first time."""
        if member.node_id == self._member_state.me.node_id:
            return
        first = self._detector.up(member, now)
        if first:
            self._member_state.event(INFO, "node_seen", {"node": member.node_id, "incarnation": member.incarnation})
        self._beater.greet(member.node_id, now)
        if self._matters():
            self._look(now)

    def renewed(self, node_id: str) -> None:
        """The link to a peer is a new one: messages over the former one may be lost."""
        self._ballot.ask_again(node_id)

    def down(self, node_id: str, incarnation: int, refused: bool, now: int) -> None:
        """A peer's connection has ended; refused: its host answers that nothing listens, so its process has ended."""
        if self._detector.down(node_id, incarnation, refused, now):
            self._look(now)
            self._tell(now)

    def heard(self, node_id: str, at_us: int) -> None:
        """Bytes of any kind came from a peer."""
        self._detector.heard(node_id, at_us)

    def receive(self, node_id: str, kind: int, body: bytes, now: int) -> None:
        """Take a message of the kinds 1 to 15; nonsense is reported as an event and dropped."""
        peer = self._detector.peers.get(node_id)
        if peer is None or peer.member is None:
            return
        self._detector.heard(node_id, now)
        try:
            if kind == HEARTBEAT:
                self._beat(peer, decode_heartbeat(body), now)
            elif kind == INSTALLED:
                epoch = installed_epoch(body)
                if peer.beat is not None and epoch == self._member_state.epoch():
                    peer.beat.epoch = epoch
                    peer.beat.state = MEMBER
            elif kind in _KINDS:
                before = self._member_state.epoch()
                self._ballot.receive(node_id, kind, body, now)
                if self._member_state.epoch() != before:
                    self._installed(now)
        except ValueError as error:
            self._complain(node_id, f"sent what cannot be read: {error}", peer.incarnation())

    def wake(self, now: int) -> None:
        """A deadline of `next_wake` has come."""
        if now < self._next_us and now < self._retry():
            return
        if now >= self._next_us:
            self.bootstrap.begin(now)
            self._see_room(now)
            silent = self._detector.tick(now, self._beater.interval())
            self._next_us = now + self._beater.interval()
            self._beater.beat(now, self.bootstrap.patient(now))
            if silent:
                self._tell(now)
        self._ballot.late(now)
        self._look(now)

    def next_wake(self) -> int:
        """Return when `wake` must be called at the latest, in microseconds."""
        return min(self._next_us, self._retry())

    def stalled(self, what: str, since_us: int) -> None:
        """Something that this node needs, its disk, has stalled since then; 0 = it works again."""
        self._member_state.stall(what, since_us)

    def set_full(self, full: bool, now: int) -> None:
        """The disk has room or not; without room, for long or before a first view, others lead instead."""
        self._member_state.room.full = full
        self._see_room(now)

    def _see_room(self, now: int) -> None:
        if self._member_state.room.look(now):
            self.set_load(self._beater.load)

    def filled(self, partition: int, node_id: str, now: int) -> None:
        """A learner of a partition that this node leads is filled; from now on the leader waits for it too."""
        if (partition, node_id) not in self._member_state.filled:
            self._member_state.filled.append((partition, node_id))
            self._look(now)

    def changed(self, now: int) -> None:
        """The holdings of this node need another view: a copy is damaged."""
        self._member_state.news = True
        self._look(now)

    def leave(self, now: int) -> None:
        """Hand over what this node keeps, then leave for good: `drained`, then `depart`, then `left`."""
        self._member_state.leaving = True
        self._look(now)

    def dismiss(self, node_id: str, now: int) -> None:
        """Have another member leave."""
        member = None if self._member_state.view is None else self._member_state.view.member(node_id)
        if node_id == self._member_state.me.node_id:
            self.leave(now)
        elif member is not None:
            self._member_state.requests.append(Request(LEAVE, node_id, member.incarnation))
            self._look(now)

    def depart(self, now: int) -> None:
        """Announce the end: have a view made without this node (expected back, unless it leaves); then `departed`."""
        if not self._member_state.departing:
            self._member_state.departing = True
            self._member_state.requests.append(
                Request(DEPART, self._member_state.me.node_id, self._member_state.me.incarnation)
            )
            self._look(now)
            self._tell(now)

    def evict(self, node_id: str, now: int) -> None:
        """Put a node out of the view until it is restarted."""
        member = None if self._member_state.view is None else self._member_state.view.member(node_id)
        if member is not None:
            self._member_state.requests.append(Request(EVICT, node_id, member.incarnation))
            self._look(now)

    def forget(self, node_id: str, now: int) -> None:
        """Stop expecting an absent node: it counts in no majority, and nothing is kept for its return."""
        view = self._member_state.view
        if view is not None and view.member(node_id) is None and node_id in view.known:
            self._member_state.requests.append(Request(FORGET, node_id, 0))
            self._look(now)

    def suspects(self) -> list[str]:
        """Return the members that this node does not hear."""
        view = self._member_state.view
        if view is None:
            return []
        hears = self._detector.hears
        return [member.node_id for member in view.members if not hears & self._detector.bit(member.node_id)]

    def reach(self) -> dict[str, list[str]]:
        """Return by id which nodes each node hears, as far as this node knows."""
        return self._detector.matrix()

    def set_load(self, load: dict[str, int]) -> None:
        """Set the figures that others see of this node: at most 62, with names of up to 1 KiB."""
        lacks = int(self._member_state.room.lacks)
        self._beater.set_load({**load, "replicas": self._config.replicas, NO_ROOM: lacks})

    def load_of(self, node_id: str) -> dict[str, int]:
        """Return the figures of a node, empty when it sent none."""
        if node_id == self._member_state.me.node_id:
            return self._beater.load
        peer = self._detector.peers.get(node_id)
        return {} if peer is None else peer.load

    # Looking

    def _retry(self) -> int:
        """Return when a delayed proposal may be made, or the next beat."""
        return self._ballot.retry_us if self._ballot.retry_us else self._next_us

    def _beat(self, peer: Peer, beat: Heartbeat, now: int) -> None:
        member_state = self._member_state
        if beat.partitions != member_state.partitions:
            self._complain(
                peer.node_id, f"has {beat.partitions} partitions, not {member_state.partitions}", beat.incarnation
            )
            return
        if is_sane(beat.counter, member_state.counter):
            member_state.counter = max(member_state.counter, beat.counter)
        old = peer.beat
        moved = self._detector.said(peer.node_id, beat, member_state.view, now)
        self._beater.learn(beat.peers, now)
        for request in beat.requests:
            if request.kind == LEAVE and request.node_id == member_state.me.node_id:
                member_state.leaving = member_state.leaving or request.incarnation == member_state.me.incarnation
        if old is None or moved or old.epoch != beat.epoch or old.state != beat.state or old.stalled != beat.stalled:
            if member_state.state == MEMBER and not beat.in_view and beat.epoch > member_state.epoch():
                self._watchdog.see_left_out()
            if self._matters():
                self._look(now)

    def _matters(self) -> bool:
        """Tell whether to look before the next beat: in a big cluster only on nodes that may have to propose."""
        return len(self._detector.peers) <= _FEW or (
            self._member_state.state == MEMBER and self._member_state.me.node_id in self._watchdog.proposers
        )

    def _installed(self, now: int) -> None:
        view = self._member_state.view
        assert view is not None, "a view was installed"
        self.bootstrap.again(now)
        self._member_state.requests = unsatisfied(self._member_state.requests, view)
        self._watchdog.installed(view)
        self._detector.prune([*[member.node_id for member in view.members], *view.known])
        if len(self._detector.peers) <= _FEW:
            self._beater.beat(now, False)  # with the next beat, so that a big cluster sends no burst
            self._next_us = now + self._beater.interval()

    def _look(self, now: int) -> None:
        """Look at the evidence, and propose a view if one is due and this node is the one to do it."""
        if self._ballot.retry_us and now >= self._ballot.retry_us:
            self._ballot.retry_us = 0
        before = self._member_state.epoch()
        if self._member_state.state == MEMBER:
            self._watchdog.look(now)
        elif not self._member_state.departing:
            self.bootstrap.look(now)
        if self._member_state.epoch() != before:
            self._installed(now)

    def _tell(self, now: int) -> None:
        """Send evidence at once to nodes that may have to propose; others get it with the next beat."""
        self._beater.tell(self._watchdog.proposers, now)

    def _complain(self, node_id: str, why: str, incarnation: int) -> None:
        """Report a fault of a node, once per start of that node."""
        if self._complained.get(node_id) != incarnation:
            self._complained[node_id] = incarnation
            self._member_state.event(WARNING, "node_refused", {"node": node_id, "why": why})

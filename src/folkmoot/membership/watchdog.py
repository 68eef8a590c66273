"""A member of a view: it watches whether that is as it should be, and has another one made when it is not.

Owns since when a change is due. What is wrong with the view is said by the roster (who belongs to it) and the agenda
(all else); what is proposed then is the ballot's.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import INFO, WARNING
from folkmoot.membership.ballot import Ballot
from folkmoot.membership.beat import Beater
from folkmoot.membership.deferred import DeferredChanges
from folkmoot.membership.detector import Detector
from folkmoot.membership.member_state import MemberState
from folkmoot.membership.planner import Planner, departs, unsatisfied
from folkmoot.membership.view import View
from folkmoot.peer.member import LEAVING

__all__ = ["Watchdog"]

_PROPOSERS: Final = 3  # nodes that get evidence at once; all others get it with the next beat


class Watchdog:
    """The watch of one node over the view in which it is; proposers: ids of those who may have to propose the next."""

    def __init__(
        self, member_state: MemberState, detector: Detector, planner: Planner, ballot: Ballot, beater: Beater
    ) -> None:
        self._member_state = member_state
        self._detector = detector
        self._planner = planner
        self._deferred = DeferredChanges(member_state, detector)
        self._ballot = ballot
        self._beater = beater
        self._due_since_us: int = -1  # since when a planned change is due
        self.proposers: list[str] = []

    def installed(self, view: View) -> None:
        """Begin anew with a new view."""
        self._due_since_us = -1
        self._deferred.reset()
        self._stay_if_last(view)

    def _stay_if_last(self, view: View) -> None:
        """When all members are to leave, the one with the lowest id has nobody to give anything to, and stays.

        Whoever is away may never come back, and until then nobody would be ready for clients.
        """
        if view.members[0].node_id == self._member_state.me.node_id and all(
            one.state == LEAVING for one in view.members
        ):
            self._member_state.leaving = False
            self._member_state.event(WARNING, "leave_refused", {"why": "nobody would be left"})

    def look(self, now: int) -> None:
        """Look at the evidence, and propose a view if one is due and this node is the one to do it."""
        view = self._member_state.view
        assert view is not None, "a member has a view"
        stalled = self._member_state.stalled(now)
        requests = unsatisfied(self._deferred.requests(view), view)
        self._planner.lacks_room = self._member_state.room.lacks
        wish = self._planner.survey(
            view, stalled, requests, self._ballot.unresponsive_ids(now), self._beater.doubt_us(), now
        )
        self.proposers = wish.ids[:_PROPOSERS]
        self._deferred.plan(view, wish, requests, now)
        if not wish.reasons:
            self._due_since_us = -1
            return
        if self._due_since_us < 0:
            self._due_since_us = now
        if wish.proposer != self._member_state.me.node_id or self._ballot.retry_us:
            return
        proposal = self._ballot.proposal
        if wish.urgent:
            if proposal is not None and not self._ballot.is_hopeless(wish.ids):
                return
        else:
            settled = now - self._due_since_us >= self._member_state.config.heartbeat_us
            paused = now - self._member_state.installed_us >= self._member_state.config.view_pause_us
            if proposal is not None or not settled or not paused:
                return
        self._ballot.requests = requests
        self._ballot.left = self._deferred.left
        self._ballot.crowded = self._deferred.crowded
        self._ballot.leaving = self._deferred.leaving(view)
        self._member_state.event(INFO, "view_due", {"reasons": wish.reasons, "urgent": wish.urgent})
        self._ballot.propose(wish.ids, now)

    def see_left_out(self) -> None:
        """Notice that at least half of the view went on without this node."""
        view = self._member_state.view
        assert view is not None, "a member has a view"
        moved: list[str] = []
        remain = 0 if self._member_state.departing else 1
        for member in view.members:
            peer = self._detector.peers.get(member.node_id)
            if peer is None or peer.beat is None or peer.incarnation() != member.incarnation:
                continue
            if not self._detector.hears & peer.bit:
                continue
            if peer.serves() and peer.beat.epoch > view.epoch and not peer.beat.in_view:
                moved.append(member.node_id)
            elif peer.beat.epoch == view.epoch and peer.serves() and not departs(peer):
                remain += 1
        if moved and len(moved) >= remain:
            self._member_state.exclude(f"{' and '.join(moved)} went on without this node")

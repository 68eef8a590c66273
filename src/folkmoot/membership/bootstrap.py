"""A node without a view: it waits to be taken in, and when no member is in sight it makes a first view with others.

Owns since when it waits. What it makes is a proposal like any other: the ballot's.
"""

from __future__ import annotations

from folkmoot.membership.ballot import Ballot
from folkmoot.membership.detector import Detector
from folkmoot.membership.heartbeat import MEMBER
from folkmoot.membership.member_state import MemberState
from folkmoot.membership.planner import Planner

__all__ = ["Bootstrap"]


class Bootstrap:
    """The patience of one node that has no view."""

    def __init__(self, member_state: MemberState, detector: Detector, planner: Planner, ballot: Ballot) -> None:
        self._member_state = member_state
        self._detector = detector
        self._planner = planner
        self._ballot = ballot
        self._since_us: int = -1  # since when no member is in sight
        self._seen_us: int = 0  # when this was looked at last
        self.refused_us: int = 0  # when another node and this one last did not want each other

    def begin(self, now: int) -> None:
        """Begin to wait, unless it does already."""
        if self._since_us < 0:
            self._since_us = now
        self._pass(now)

    def _pass(self, now: int) -> None:
        """Let time pass; while this process stood still, or when its clock was set, nobody had time to come."""
        if self._seen_us and now - self._seen_us > self._member_state.config.silence_us // 2:
            self._since_us += now - self._seen_us
        self._seen_us = now

    def again(self, now: int) -> None:
        """Begin to wait anew: there is a view, or somebody who has one."""
        self._since_us = now

    def patient(self, now: int) -> bool:
        """Tell whether this node still waits for more nodes before it makes a first view."""
        return self._member_state.state != MEMBER and now - self._since_us < self._member_state.config.join_wait_us

    def expected(self) -> list[str]:
        """Return the ids of the last full membership, of the view that was stored as long as there is no other."""
        return [] if self._member_state.view is None else self._member_state.view.known

    def look(self, now: int) -> None:
        """Wait to be taken in; when no member is in sight, make a view with those that wait too."""
        self._pass(now)
        member_state = self._member_state
        for peer in self._detector.peers.values():
            if self._detector.hears & peer.bit and peer.serves():
                self._since_us = now
                return
        if member_state.config.seeds_unknown and member_state.view is None:
            return
        if self._since_us < 0 or self._ballot.proposal is not None or self._ballot.retry_us:
            return
        if now - member_state.promised_us < member_state.config.view_pause_us and member_state.promised_us:
            return  # somebody is about to take this node in
        waited = not self.patient(now)
        ids = self._planner.pool(self._detector.mutual(), now, waited)
        if not ids or ids[0] != member_state.me.node_id or member_state.stalled(now):
            return
        if not waited and not self._all_here(ids):
            return
        if len(ids) == 1 and self.refused_us and now - self.refused_us < member_state.config.refusal_us:
            return  # it has a wrong secret, name or id: there is a cluster, and this node would form another one
        if member_state.config.split_policy == "majority" and not self._enough(ids):
            return
        self._ballot.requests = []
        self._ballot.leaving = []
        self._ballot.left = []
        self._ballot.crowded = []
        self._ballot.propose(ids, now)

    def _all_here(self, ids: list[str]) -> bool:
        """Tell whether all that this node knows of are here and have waited enough: seeds, and members of old."""
        config = self._member_state.config
        addresses = [config.peer_address]
        for node_id in ids:
            peer = self._detector.peers.get(node_id)
            if peer is not None and peer.member is not None:
                addresses.append(peer.member.address)
        for seed in config.seeds:
            if seed not in addresses:
                return False
        if self._member_state.view is not None:
            for node_id in self._member_state.view.known:
                if node_id not in ids:
                    return False
        return True

    def _enough(self, ids: list[str]) -> bool:
        """Tell whether a majority is here: of the last full membership, or of the seeds when there was none."""
        if self._member_state.view is not None:
            known = self._member_state.view.known
            here = [node_id for node_id in known if node_id in ids]
            return 2 * len(here) > len(known)
        return not self._member_state.is_few(self._ballot.members(ids))

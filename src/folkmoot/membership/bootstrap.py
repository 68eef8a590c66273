"""A node without a view: it waits to be taken in, and makes a first view with others when it hears no member.

Owns the waiting time. The first view is a proposal like any other (`ballot`).
"""

from __future__ import annotations

from folkmoot.membership.ballot import Ballot
from folkmoot.membership.detector import Detector
from folkmoot.membership.heartbeat import MEMBER
from folkmoot.membership.member_state import MemberState
from folkmoot.membership.planner import Planner

__all__ = ["Bootstrap"]


class Bootstrap:
    """The waiting of one node that has no view."""

    def __init__(self, member_state: MemberState, detector: Detector, planner: Planner, ballot: Ballot) -> None:
        self._member_state = member_state
        self._detector = detector
        self._planner = planner
        self._ballot = ballot
        self._since_us: int = -1  # since when no member is heard
        self._seen_us: int = 0  # when this was looked at last
        self.refused_us: int = 0  # when this node and another one last refused each other

    def begin(self, now: int) -> None:
        """Start to wait, unless it does already."""
        if self._since_us < 0:
            self._since_us = now
        self._pass(now)

    def _pass(self, now: int) -> None:
        """Advance the time. A pause of this process, or a step of its clock, is not counted as waiting."""
        if self._seen_us and now - self._seen_us > self._member_state.config.silence_us // 2:
            self._since_us += now - self._seen_us
        self._seen_us = now

    def again(self, now: int) -> None:
        """Start to wait anew: there is a view, or a node that has one."""
        self._since_us = now

    def patient(self, now: int) -> bool:
        """Tell whether this node still waits for more nodes before it makes a first view."""
        return self._member_state.state != MEMBER and now - self._since_us < self._member_state.config.join_wait_us

    def expected(self) -> list[str]:
        """Return the ids of the last full membership, from the stored view until there is another one."""
        return [] if self._member_state.view is None else self._member_state.view.known

    def look(self, now: int) -> None:
        """Wait to be taken in; if no member is heard, make a view with others that wait too."""
        self._pass(now)
        member_state = self._member_state
        # A member is heard: its view takes this node in. A view beside it would be a second cluster.
        for peer in self._detector.peers.values():
            if self._detector.hears & peer.bit and peer.serves():
                self._since_us = now
                return
        # The addresses of other nodes are not known yet: they may exist although none is heard.
        if member_state.config.seeds_unknown and member_state.view is None:
            return
        if self._since_us < 0 or self._ballot.proposal is not None or self._ballot.retry_us:
            return
        if now - member_state.promised_us < member_state.config.view_pause_us and member_state.promised_us:
            return  # a proposer is about to take this node in
        waited = not self.patient(now)
        ids = self._planner.pool(self._detector.mutual(), now, waited)
        # The lowest id proposes: two proposals at once would refuse each other.
        if not ids or ids[0] != member_state.me.node_id or member_state.stalled(now):
            return
        # All that are expected are here: no reason to wait any longer.
        if not waited and not self._all_here(ids):
            return
        if len(ids) == 1 and self.refused_us and now - self.refused_us < member_state.config.refusal_us:
            return  # it has a wrong secret, name or id: a cluster exists, and this node would serve beside it
        if member_state.config.split_policy == "majority" and not self._enough(ids):
            return
        self._ballot.requests = []
        self._ballot.leaving = []
        self._ballot.left = []
        self._ballot.crowded = []
        self._ballot.propose(ids, now)

    def _all_here(self, ids: list[str]) -> bool:
        """Tell whether all expected nodes are among `ids`: the seeds, and the members of the stored view."""
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
        """Tell whether `ids` are a majority: of the last full membership, or of the seeds if there was none."""
        if self._member_state.view is not None:
            known = self._member_state.view.known
            here = [node_id for node_id in known if node_id in ids]
            return 2 * len(here) > len(known)
        return not self._member_state.is_few(self._ballot.members(ids))

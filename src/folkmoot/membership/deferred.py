"""What can wait: changes of the view that nobody's death calls for, and which are taken together.

Requests of operators, news of holdings, members that leave or are in another view. Owns how long members have been in
different views; never proposes anything.
"""

from __future__ import annotations

from folkmoot.membership.detector import Detector
from folkmoot.membership.heartbeat import EVICT, FORGET, LEAVE, MEMBER, Request
from folkmoot.membership.member_state import MemberState
from folkmoot.membership.planner import Wish, departs, drained, strayed
from folkmoot.membership.view import View
from folkmoot.peer.member import LEAVING, Member

__all__ = ["DeferredChanges"]


class DeferredChanges:
    """What one member would bring into the next view beside who belongs to it.

    left: who has gone with nothing left. crowded: whose disks have no room.
    """

    def __init__(self, member_state: MemberState, detector: Detector) -> None:
        self.left: list[str] = []
        self.crowded: list[str] = []
        self._member_state = member_state
        self._detector = detector
        self._astray_since_us: int = -1

    def reset(self) -> None:
        """Begin anew with a new view."""
        self._astray_since_us = -1

    def requests(self, view: View) -> list[Request]:
        """Return what operators asked for, here and at other members."""
        requests = list(self._member_state.requests)
        for member in view.members:
            peer = self._detector.peers.get(member.node_id)
            if peer is not None and peer.beat is not None:
                requests.extend(peer.beat.requests)
        return requests

    def leaving(self, view: View) -> list[str]:
        """Return the ids of members that want to go, or are to go."""
        asked = [(one.node_id, one.incarnation) for one in self.requests(view) if one.kind == LEAVE]
        return [
            member.node_id
            for member in view.members
            if self._leaves(view, member) or (member.node_id, member.incarnation) in asked
        ]

    def _leaves(self, view: View, member: Member) -> bool:
        """Tell whether a member wants to go; one that goes already and was started again has not heard of it yet."""
        if member.node_id == self._member_state.me.node_id:
            return self._member_state.leaving
        peer = self._detector.peers.get(member.node_id)
        if peer is None or peer.beat is None:
            return member.state == LEAVING
        if peer.beat.leaving:
            return True
        knows = peer.beat.state == MEMBER and peer.beat.epoch == view.epoch and peer.incarnation() == member.incarnation
        return member.state == LEAVING and not knows

    def plan(self, view: View, wish: Wish, requests: list[Request], now: int) -> None:
        """Add what can wait to the wish: requests, news of holdings, members that leave or are in another view."""
        self.left = [member.node_id for member in view.members if self._has_left(view, member)]
        for request in requests:
            if request.kind == EVICT or request.kind == FORGET:
                wish.reasons.append(f"{'evict' if request.kind == EVICT else 'forget'} {request.node_id}")
        leaving = self.leaving(view)
        self._see_disks(view, wish)
        for member in view.members:
            if member.node_id in leaving and member.state != LEAVING:
                wish.reasons.append(f"{member.node_id} leaves")
            elif member.node_id not in leaving and member.state == LEAVING:
                wish.reasons.append(f"{member.node_id} stays")
        if self._member_state.filled or self._member_state.news:
            wish.reasons.append(f"{self._member_state.me.node_id} has news")
        if (
            view.minority_bootstrap
            and wish.proposer == self._member_state.me.node_id
            and not self._member_state.is_few(view.members)
        ):
            wish.reasons.append("its seeds are found")
        astray = False
        for node_id in wish.ids:
            peer = self._detector.peers.get(node_id)
            here = view.member(node_id)
            if peer is None or peer.beat is None or here is None:
                continue
            if peer.beat.news:
                wish.reasons.append(f"{node_id} has news")
            if strayed(peer, here, view):
                astray = True
                if peer.serves() and peer.beat.epoch > view.epoch and not peer.beat.in_view:
                    wish.reasons.append(f"{node_id} went on in another view")
        self._wait_for_strays(astray, wish, now)

    def _see_disks(self, view: View, wish: Wish) -> None:
        """Have others lead what a member without room leads, and give it back when it has room."""
        self.crowded = []
        for node_id in wish.ids:
            peer = self._detector.peers.get(node_id)
            own = node_id == self._member_state.me.node_id
            lacks = self._member_state.room.lacks if own else peer is not None and peer.lacks_room()
            if lacks:
                self.crowded.append(node_id)
            if view.member(node_id) is not None and lacks != (node_id in view.crowded):
                wish.reasons.append(f"{node_id} has {'no room on its disk' if lacks else 'room on its disk again'}")

    def _has_left(self, view: View, member: Member) -> bool:
        """Tell whether a member has given away all that it had, and has said goodbye."""
        peer = self._detector.peers.get(member.node_id)
        return peer is not None and departs(peer) and drained(view, member.node_id)

    def _wait_for_strays(self, astray: bool, wish: Wish, now: int) -> None:
        """Give members time to install the view before another one is made for their sake."""
        if not astray:
            self._astray_since_us = -1
            return
        if self._astray_since_us < 0:
            self._astray_since_us = now
        if now - self._astray_since_us >= self._member_state.config.silence_us:
            wish.reasons.append("members are in different views")

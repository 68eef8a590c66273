"""Who should be in the next view, and who proposes it: conclusions from who hears whom, the same at every node.

A member goes at once when none of those that this node hears is in touch with it any more (each observer has a veto, so
one bad link evicts nobody), when it was started again, or when it says that it stands still. Members of a view must be
connected pairwise, for any of them may lead what another keeps: a link that stays bad while both ends live costs one of
them its place, after a patience of its own. Others are taken in when they are in touch with everybody.

Who is silent for some beats is no suspect yet. But when somebody else is known to be dead, it is not waited for: it has
no veto, and as it could not promise the next view either, it is left out, if those who stay have all the data.

Owns the ages of bad links; never sends anything.
"""

from __future__ import annotations

from folkmoot.membership.detector import Detector, Peer
from folkmoot.membership.heartbeat import DEPART, EVICT, EXCLUDED, FORGET, LEAVE, WAITING, Request
from folkmoot.membership.quorum import has_majority
from folkmoot.membership.view import View
from folkmoot.peer.member import LEAVING, Member

__all__ = ["Planner", "Wish", "departs", "drained", "ended", "is_gone", "strayed", "unsatisfied"]


class Wish:
    """The next view as this node would have it.

    ids: of its members, sorted. proposer: who is to propose it. urgent: somebody is dead. proved: so much is known, not
    only suspected. reasons: in words, empty when the view is as it should be.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.proposer: str = ""
        self.urgent: bool = False
        self.proved: bool = False
        self.reasons: list[str] = []
        self.gone: list[str] = []
        self.come: list[str] = []


class Planner:
    """Looks at the evidence for one node."""

    def __init__(self, me: Member, detector: Detector, patience_us: int, needs_majority: bool = False) -> None:
        self._me = me
        self._needs_majority = needs_majority  # by the split policy: a side without one serves nobody
        self._detector = detector
        self._patience_us = patience_us
        self.lacks_room = False  # this node's own disk
        self._bad_since: dict[int, int] = {}  # by the two bits of the link
        self._bad_now: dict[int, int] = {}

    def survey(
        self, view: View, stalled: bool, requests: list[Request], unresponsive: list[str], doubt_us: int, now: int
    ) -> Wish:
        """Return the wish of a member of `view`.

        muted: who does not answer though it is heard; doubt_us: after such a silence a node is not waited for.
        """
        wish = Wish()
        self._bad_now = {}
        touch = self._detector.mutual()
        for node_id in unresponsive:
            touch &= ~self._detector.bit(node_id)
        quiet = self._detector.quiet(now - doubt_us)
        stay = self._stay(view, stalled, requests, unresponsive, touch, quiet, wish)
        if wish.proved and quiet & stay:
            stay = self._without_quiet(view, stay, quiet, wish)
        stay = self._without_bad_links(stay, now, wish)
        wish.urgent = len(wish.gone) > 0
        here = stay
        if not wish.urgent:
            here = self._joined(view, stay, touch, requests, now, wish)
        else:
            here = self._restarted(view, stay, touch, requests, wish)
        self._bad_since = self._bad_now
        wish.ids = self._detector.ids(here)
        wish.proposer = "" if self._cut_off(wish, stay) else self.proposer(wish.ids, stalled)
        return wish

    def _cut_off(self, wish: Wish, stay: int) -> bool:
        """Tell whether it is rather this side that the others do not hear: it hears as many of them as it has left.

        They are about to go on without it, and it would only make a view beside theirs.
        """
        heard = 0
        for node_id in wish.gone:
            peer = self._detector.peers.get(node_id)
            if peer is not None and self._detector.hears & peer.bit and peer.row and not peer.row & self._detector.me:
                heard += 1
        return heard > 0 and heard >= len(self._detector.ids(stay))

    def pool(self, touch: int, now: int, lasting: bool) -> list[str]:
        """Return with whom a node without a view can make one, its own id included; [] while links are still coming.

        lasting: it has waited for long enough to go without those that are not in touch with everybody.
        """
        here = self._detector.me
        for peer in self._candidates(touch, [], now, self._needs_majority):
            if peer.beat is None or peer.serves() or not self._compatible(peer, None):
                continue
            if self._all_in_touch(peer, here):
                here |= peer.bit
            elif not lasting:
                return []
        return self._detector.ids(here)

    def _stay(
        self,
        view: View,
        stalled: bool,
        requests: list[Request],
        unresponsive: list[str],
        touch: int,
        quiet: int,
        wish: Wish,
    ) -> int:
        """Return the members that live; a node that stands still is out, also for itself."""
        stay = 0
        for member in view.members:
            why = ""
            if member.node_id == self._me.node_id:
                bit = self._detector.me
                why = "stalled" if stalled else ""
            else:
                peer = self._detector.peer(member.node_id)
                bit = peer.bit
                proved = peer.proved_dead or (peer.member is not None and peer.incarnation() != member.incarnation)
                vouchers = touch & ~quiet if proved else touch
                why = "does not answer" if member.node_id in unresponsive else self._fault(member, peer, vouchers)
                wish.proved = wish.proved or (proved and why != "")
            if not why and _asked(DEPART, requests, member):
                why = "stops"
            if not why and _asked(EVICT, requests, member):
                why = "evicted"
            if why:
                wish.gone.append(member.node_id)
                wish.reasons.append(f"{member.node_id} {why}")
            else:
                stay |= bit
        return stay

    def _fault(self, member: Member, peer: Peer, touch: int) -> str:
        if peer.member is not None and peer.incarnation() != member.incarnation:
            return "restarted"
        if peer.beat is not None and peer.beat.stalled and self._detector.hears & peer.bit:
            return "stalled"
        if touch & peer.bit or self._vouched(peer, touch):
            return ""
        return "gone"

    def _vouched(self, peer: Peer, touch: int) -> bool:
        """Tell whether another observer is in touch with a node that this one is not in touch with."""
        said = self._detector.row_of(peer.node_id)
        for observer in self._detector.peers.values():
            if not touch & observer.bit or observer is peer or not observer.row & peer.bit:
                continue
            if said == 0 or said & observer.bit:
                return True
        return False

    def _without_quiet(self, view: View, stay: int, quiet: int, wish: Wish) -> int:
        """Take out who is silent while another is dead for certain: only with a majority, and a copy of everything."""
        ids = self._detector.ids(stay & ~quiet)
        kept = dict.fromkeys(ids, True)
        if not has_majority(view.known, kept):
            return stay
        for replicas in view.replicas:
            if replicas and not [node_id for node_id in replicas if node_id in kept]:
                return stay
        for node_id in self._detector.ids(stay & quiet):
            wish.gone.append(node_id)
            wish.reasons.append(f"{node_id} silent")
        return stay & ~quiet

    def _note(self, bits: int, now: int) -> bool:
        """Note a bad link; tell whether it has been bad for longer than the patience."""
        since = self._bad_since.get(bits, now)
        self._bad_now[bits] = since
        return now - since >= self._patience_us

    def _without_bad_links(self, stay: int, now: int, wish: Wish) -> int:
        """Take out, one after another, the member with most lasting bad links; ties: the higher id."""
        links: list[tuple[str, str]] = []
        for node_id in self._detector.ids(stay):
            row = self._detector.row_of(node_id)
            missing = stay & ~row & ~self._detector.bit(node_id)
            if row == 0 or not missing:
                continue
            for other in self._detector.ids(missing):
                pair = (node_id, other) if node_id < other else (other, node_id)
                if self._note(self._detector.bit(node_id) | self._detector.bit(other), now) and pair not in links:
                    links.append(pair)
        while links:
            worst: dict[str, int] = {}
            for one, other in links:
                worst[one] = worst.get(one, 0) + 1
                worst[other] = worst.get(other, 0) + 1
            out = ""
            for node_id in sorted(worst):
                if not out or worst[node_id] >= worst[out]:
                    out = node_id
            wish.gone.append(out)
            wish.reasons.append(f"{out} has bad links")
            stay &= ~self._detector.bit(out)
            links = [pair for pair in links if out not in pair]
        return stay

    def _candidates(self, touch: int, requests: list[Request], now: int, eager: bool) -> list[Peer]:
        """Return those that this node is in touch with and that could be members, sorted by id.

        eager: nobody is served here before they come, so that who comes and goes costs nothing.
        """
        found: list[Peer] = []
        for node_id in sorted(self._detector.peers):
            peer = self._detector.peers[node_id]
            if not touch & peer.bit or peer.beat is None or peer.member is None:
                continue
            if peer.beat.stalled or departs(peer) or _asked(EVICT, requests, peer.member):
                continue
            if not eager and not peer.calm(now):
                continue
            found.append(peer)
        return found

    def _compatible(self, peer: Peer, view: View | None) -> bool:
        """Tell whether a node speaks a wire version that all members speak too."""
        low = self._me.wire_min
        high = self._me.wire_max
        for member in [] if view is None else view.members:
            low = max(low, member.wire_min)
            high = min(high, member.wire_max)
        found = peer.member
        assert found is not None, "candidates have introduced themselves"
        return max(low, found.wire_min) <= min(high, found.wire_max)

    def _all_in_touch(self, peer: Peer, here: int) -> bool:
        """Tell whether a node and all of a set hear each other."""
        if here & ~peer.row:
            return False
        for node_id in self._detector.ids(here):
            if not self._detector.row_of(node_id) & peer.bit:
                return False
        return True

    def _restarted(self, view: View, stay: int, touch: int, requests: list[Request], wish: Wish) -> int:
        """Take in at once, with an urgent change, members that are back already as another incarnation."""
        for node_id in wish.gone:
            peer = self._detector.peers.get(node_id)
            if peer is None or peer.member is None or peer.beat is None or not touch & peer.bit:
                continue
            member = view.member(node_id)
            old = member is not None and member.incarnation == peer.incarnation()
            if old or peer.beat.stalled or departs(peer):
                continue
            if _asked(EVICT, requests, peer.member) or _refused(view, peer.member):
                continue
            if peer.losses < 3 and self._all_in_touch(peer, stay):
                stay |= peer.bit
                wish.come.append(node_id)
        return stay

    def _joined(self, view: View, stay: int, touch: int, requests: list[Request], now: int, wish: Wish) -> int:
        """Add those that want to be members: nodes without a view one by one, other components as a whole."""
        here = stay
        groups: dict[int, list[Peer]] = {}
        eager = self._needs_majority and not has_majority(view.known, self._detector.ids(stay))
        for peer in self._candidates(touch & ~stay, requests, now, eager):
            assert peer.beat is not None, "candidates have sent a heartbeat"
            assert peer.member is not None, "candidates have introduced themselves"
            if _refused(view, peer.member) or not self._compatible(peer, view) or self._barred(peer, view, stay):
                continue
            if peer.serves():
                groups.setdefault(peer.beat.epoch, []).append(peer)
            elif self._all_in_touch(peer, here):
                here |= peer.bit
                wish.come.append(peer.node_id)
                wish.reasons.append(f"{peer.node_id} joins")
        for epoch in sorted(groups):
            here = self._merged(groups[epoch], here, stay, touch, now, wish)
        return here

    def _barred(self, peer: Peer, view: View, stay: int) -> bool:
        """Tell whether a node stays outside until its disk has room: it would have to be filled, and be out again soon.

        Unless nobody else has room either, a majority depends on it, it comes with data of its own, or it was started:
        then it has what it had, and is given nothing new.
        """
        if peer.serves() or not peer.lacks_room() or (peer.beat is not None and peer.beat.state == WAITING):
            return False
        ids = self._detector.ids(stay)
        roomy = [one for one in ids if one in self._detector.peers and not self._detector.peers[one].lacks_room()]
        if not roomy and self.lacks_room:
            return False
        return has_majority(view.known, ids)

    def _merged(self, group: list[Peer], here: int, stay: int, touch: int, now: int, wish: Wish) -> int:
        """Add a component that has a view of its own: all of it, or after the patience those that are in touch."""
        bits = 0
        theirs = 0
        for peer in group:
            bits |= peer.bit
            theirs |= peer.row
        waiting = False
        # Whom they hear and this node does not may be of them: the links of a heal do not come all at once.
        unseen = theirs & ~bits & ~here & ~touch
        if unseen and not self._note(bits | unseen, now):
            waiting = True
        target = here
        good: list[Peer] = []
        for peer in group:
            if self._all_in_touch(peer, target):
                target |= peer.bit
                good.append(peer)
            elif not self._note(peer.bit | stay, now):
                waiting = True
        if waiting:
            return here
        for peer in good:
            wish.come.append(peer.node_id)
            wish.reasons.append(f"{peer.node_id} merges")
        return target

    def proposer(self, ids: list[str], stalled: bool) -> str:
        """Return the lowest id that can propose: in a view, and not standing still."""
        for node_id in ids:
            if node_id == self._me.node_id:
                if not stalled:
                    return node_id
            elif self._detector.peers[node_id].serves():
                return node_id
        return ""


def unsatisfied(requests: list[Request], view: View) -> list[Request]:
    """Return the requests that a view does not fulfil."""
    left: list[Request] = []
    for request in requests:
        member = view.member(request.node_id)
        here = member is not None and member.incarnation == request.incarnation
        open_ = here and request.kind in (EVICT, DEPART)
        if request.kind == LEAVE:
            open_ = here and member is not None and member.state != LEAVING
        elif request.kind == FORGET:
            open_ = member is None and request.node_id in view.known
        if open_:
            left.append(request)
    return left


def strayed(peer: Peer, member: Member, view: View) -> bool:
    """Tell whether a living member of `view` is not where the view is: it has another epoch, or serves nothing."""
    beat = peer.beat
    if beat is None or peer.incarnation() != member.incarnation:
        return False
    return beat.epoch != view.epoch or beat.state == EXCLUDED


def drained(view: View, node_id: str) -> bool:
    """Tell whether a leaving member keeps nothing any more."""
    member = view.member(node_id)
    if member is None or member.state != LEAVING:
        return False
    for partition, replicas in enumerate(view.replicas):
        if node_id in replicas or node_id in view.learners[partition]:
            return False
    return True


def departs(peer: Peer) -> bool:
    """Tell whether a node has said that it ends, and no view is to have it."""
    return peer.beat is not None and peer.member is not None and _asked(DEPART, peer.beat.requests, peer.member)


def is_gone(peer: Peer) -> bool:
    """Tell whether the process of a node is proved dead, or has said goodbye."""
    return peer.proved_dead or departs(peer)


def ended(peer: Peer | None, lost: Member) -> bool:
    """Tell whether who was lost certainly does not go on beside others: its process is dead, or it has said goodbye."""
    if peer is None:
        return False
    return is_gone(peer) or (peer.member is not None and peer.incarnation() != lost.incarnation)


def _asked(kind: int, requests: list[Request], member: Member) -> bool:
    """Tell whether this is asked for this start of a node."""
    for request in requests:
        if request.kind == kind and request.node_id == member.node_id and request.incarnation == member.incarnation:
            return True
    return False


def _refused(view: View, member: Member) -> bool:
    return (member.node_id, member.incarnation) in view.refused

"""The agreement on a view: this node as proposer, and as a member that is asked.

Owns the proposal under way. Never decides that a view is due (`watchdog` and `bootstrap`), nor its members (`planner`).
The order of messages is part of the agreement: a node promises before it knows anything of the new view, and takes a
commit only for the epoch that it has promised last.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.event import ERROR, INFO, WARNING
from folkmoot.kernel.pack import varint
from folkmoot.membership.compose import chain_for, compose
from folkmoot.membership.detector import Detector
from folkmoot.membership.heartbeat import Request
from folkmoot.membership.member_state import MemberState
from folkmoot.membership.planner import departs, ended
from folkmoot.membership.proposal import (
    Prepare,
    Promise,
    Proposal,
    decode_commit,
    decode_prepare,
    decode_promise,
    decode_refuse,
    encode_commit,
    encode_prepare,
    encode_promise,
    encode_refuse,
    promised_epoch,
)
from folkmoot.membership.quorum import count_of, is_majority
from folkmoot.membership.view import View
from folkmoot.peer.cursor import Cursor
from folkmoot.peer.kind import COMMIT, INSTALLED, PREPARE, PROMISE, REFUSE
from folkmoot.peer.member import Member
from folkmoot.store.epoch import COUNTER_MAX, counter_of, is_sane, make_epoch

__all__ = ["Ballot", "installed_epoch"]

_RETRY_US: Final = 20 * MILLISECOND
_KEPT: Final = "it serves in a view with a majority: "
_UNRESPONSIVE_US: Final = 10 * SECOND


class Ballot:
    """One node's part in the agreement."""

    def __init__(self, member_state: MemberState, detector: Detector) -> None:
        self.proposal: Proposal | None = None
        self.retry_us: int = 0  # no proposal before this time
        self.unresponsive: dict[str, int] = {}  # who did not answer, though heard: left out until then
        self.requests: list[Request] = []  # of operators, at all members, for the proposal under way
        self.leaving: list[str] = []
        self.left: list[str] = []
        self.crowded: list[str] = []
        self._told_end = False
        self._member_state = member_state
        self._detector = detector

    def propose(self, ids: list[str], now: int) -> None:
        """Propose a view with these nodes, this one included, as members."""
        member_state = self._member_state
        if member_state.counter >= COUNTER_MAX:
            self._exhausted()
            return
        members = self.members(ids)
        member_state.counter += 1
        epoch = make_epoch(member_state.counter, member_state.proposer)
        member_state.promised = epoch  # the proposer is bound like everybody: it follows no older proposal from now on
        member_state.promised_us = now
        self.proposal = Proposal(epoch, members, now)
        self.proposal.crowded = [member.node_id for member in members if member.node_id in self.crowded]
        self.proposal.few = member_state.is_few(members)
        body = self._prepare(self.proposal)
        for member in members:
            if member.node_id != member_state.me.node_id:
                member_state.out.append((member.node_id, PREPARE, body))
        member_state.event(INFO, "view_proposed", {"view": member_state.counter, "epoch": epoch, "members": ids})
        self._promised(member_state.me.node_id, self._promise(epoch), now)

    def ask_again(self, node_id: str) -> None:
        """Ask a node again for its promise: PREPARE or PROMISE may be lost with the former link.

        If it was PROMISE, the node refuses now, and another view is proposed soon.
        """
        if self.proposal is not None and node_id in self.proposal.missing():
            self._member_state.out.append((node_id, PREPARE, self._prepare(self.proposal)))

    def _prepare(self, proposal: Proposal) -> bytes:
        base = 0 if self._member_state.base is None else self._member_state.base.epoch
        members = [(member.node_id, member.incarnation) for member in proposal.members]
        return encode_prepare(Prepare(proposal.epoch, base, members))

    def members(self, ids: list[str]) -> list[Member]:
        """Return these nodes as members, without those of which nothing is known."""
        found: list[Member] = []
        for node_id in ids:
            member = self._member(node_id)
            if member is not None:
                found.append(member)
        return found

    def _exhausted(self) -> None:
        if not self._told_end:
            self._told_end = True
            self._member_state.event(
                ERROR, "views_exhausted", {"why": f"{COUNTER_MAX:,} views were made, no number is left"}
            )

    def receive(self, node_id: str, kind: int, body: bytes, now: int) -> None:
        """Take a message of this protocol; raises ValueError if it is malformed."""
        if kind == PREPARE:
            self._asked(node_id, decode_prepare(body), now)
        elif kind == PROMISE:
            # A late one may refer to a view that this node has replaced meanwhile: it could not be read.
            epoch = promised_epoch(body)
            if self.proposal is not None and epoch == self.proposal.epoch:
                self._promised(node_id, decode_promise(body, self._member_state.base), now)
        elif kind == REFUSE:
            epoch, counter, why = decode_refuse(body)
            self._refused(node_id, epoch, counter, why, now)
        elif kind == COMMIT:
            self._committed(node_id, body, now)

    def late(self, now: int) -> None:
        """Drop a proposal that a live node does not answer; leave that node out of the next one."""
        proposal = self.proposal
        if proposal is None or now - proposal.started_us < self._member_state.config.promise_us:
            return
        silent = proposal.missing()
        # Heartbeats come from them, and no promise: as members they would stop this view and every later one.
        for node_id in silent:
            self.unresponsive[node_id] = now + _UNRESPONSIVE_US
        self._member_state.event(WARNING, "view_unanswered", {"epoch": proposal.epoch, "silent": silent})
        self.proposal = None

    def unresponsive_ids(self, now: int) -> list[str]:
        """Return who is left out because it did not answer."""
        self.unresponsive = {node_id: until for node_id, until in self.unresponsive.items() if until > now}
        return sorted(self.unresponsive)

    def is_hopeless(self, ids: list[str]) -> bool:
        """Tell whether the proposal under way waits for a node that is gone; `ids`: the live ones."""
        proposal = self.proposal
        if proposal is None:
            return False
        for node_id in proposal.missing():
            if node_id not in ids:
                return True
        for member in proposal.members:
            peer = self._detector.peers.get(member.node_id)
            # It was started again: what its earlier start promised to hold may be gone with its disk.
            if peer is not None and peer.member is not None and peer.incarnation() != member.incarnation:
                return True
        return False

    def _member(self, node_id: str) -> Member | None:
        member_state = self._member_state
        if node_id == member_state.me.node_id:
            return member_state.me
        member = self._detector.peer(node_id).member
        if member is None and member_state.view is not None:
            return member_state.view.member(node_id)  # others hear it; the link to it is still to come
        return member

    def _promise(self, epoch: int) -> Promise:
        member_state = self._member_state
        return Promise(
            epoch,
            member_state.may_write(),
            member_state.base,
            member_state.holdings.holdings(),
            list(member_state.filled),
            member_state.config.replicas,
        )

    def _asked(self, node_id: str, prepare: Prepare, now: int) -> None:
        member_state = self._member_state
        why = ""
        if (member_state.me.node_id, member_state.me.incarnation) not in prepare.members:
            why = "it is for another start of this node"
        elif prepare.epoch <= member_state.promised:
            # The proposer of the later view was told what this node holds. What it commits under an older view
            # afterwards would be missing there.
            why = "a later view was promised"
        elif counter_of(prepare.epoch) <= counter_of(member_state.epoch()):
            # The same counter made elsewhere: a view with both would give numbers of requests a second time (ADR 8).
            why = "a view with this number is installed"
        elif not is_sane(counter_of(prepare.epoch), member_state.counter):
            # Numbers of views are limited. A wild one, taken over by all, would leave none for views to come.
            why = "nobody has made so many views"
        if not why:
            why = self._keeps(node_id, [one for one, _incarnation in prepare.members], now)
        if why:
            member_state.out.append((node_id, REFUSE, encode_refuse(prepare.epoch, member_state.counter, why)))
            return
        member_state.promised = prepare.epoch
        member_state.promised_us = now
        member_state.counter = max(member_state.counter, counter_of(prepare.epoch))
        if self.proposal is not None:
            self.proposal = None
            self._later(now)
        member_state.out.append((node_id, PROMISE, encode_promise(self._promise(prepare.epoch), prepare.base)))

    def _keeps(self, node_id: str, ids: list[str], now: int) -> str:
        """Return why this member of a majority's view does not follow a node of another view; "" if it does.

        The new view would leave out members that this node hears, and gain no more than they are; or it would take in
        an unstable node, which the lowest id of the present view judges. The proposer serves no client: it waits, and
        asks again. Without this rule a node with a bad link removed members from a working view, again and again,
        because a side without a majority takes in at once whichever node it hears.
        """
        member_state = self._member_state
        view = member_state.view
        if view is None or member_state.config.split_policy != "majority" or not member_state.may_write():
            return ""
        asker = view.member(node_id)
        if asker is not None and self._sees(asker, view):
            return ""  # a member of this view proposes: nodes that are lost, stop or are put out must go
        seen = [member for member in view.members if self._sees(member, view)]
        left = [member.node_id for member in seen if member.node_id not in ids]
        count = count_of(view.known, [member.node_id for member in seen])
        if not is_majority(count, len(view.known)):
            return ""
        if left and count_of(view.known, ids) <= count:
            return f"{_KEPT}{left[0]} would be left behind"
        if seen[0].node_id == member_state.me.node_id:
            for one in ids:
                peer = self._detector.peers.get(one)
                if view.member(one) is None and peer is not None and not peer.calm(now):
                    return f"{_KEPT}{one} comes and goes"
        return ""

    def _sees(self, member: Member, view: View) -> bool:
        """Tell whether a member of the view is heard and still in it: one that was cut off may not know it yet."""
        if member.node_id == self._member_state.me.node_id:
            return True
        peer = self._detector.peer(member.node_id)
        if not self._detector.hears & peer.bit or peer.incarnation() != member.incarnation or departs(peer):
            return False
        beat = peer.beat
        return beat is None or (peer.serves() and (beat.in_view or beat.epoch == view.epoch))

    def _later(self, now: int) -> None:
        """Delay the next proposal by a random time, so that two proposers do not collide again."""
        self.retry_us = now + _RETRY_US + self._member_state.rng.below(4 * _RETRY_US)

    def _refused(self, node_id: str, epoch: int, counter: int, why: str, now: int) -> None:
        if is_sane(counter, self._member_state.counter):
            self._member_state.counter = max(self._member_state.counter, counter)
        if self.proposal is None or epoch != self.proposal.epoch:
            return
        self._member_state.event(INFO, "view_refused", {"epoch": epoch, "node": node_id, "why": why})
        self.proposal = None
        self._later(now)
        if why.startswith(_KEPT):
            self.retry_us += self._member_state.config.view_pause_us

    def _copies(self, proposal: Proposal) -> int:
        """Return the number of replicas: the highest setting of all members, so that a wrong one removes no copies."""
        most = self._member_state.config.replicas
        for promise in proposal.promises.values():
            most = max(most, promise.copies)
        return most

    def _promised(self, node_id: str, promise: Promise, now: int) -> None:
        proposal = self.proposal
        assert proposal is not None, "a promise answers a proposal"
        if not proposal.has(node_id):
            return
        proposal.promises[node_id] = promise
        # All of them, not a majority: who leads what follows from what each member holds, and a member that has not
        # promised may still commit changes under the view before.
        if proposal.missing():
            return
        member_state = self._member_state
        view = compose(
            proposal, member_state.partitions, self._copies(proposal), self.requests, self.leaving, self.left
        )
        view.proposer = member_state.me.node_id
        peers = self._detector.peers
        # The proposer says which of the missing may live, so that all members judge alike whether their side begins
        # anew: one that did and one that did not would not agree on what was acknowledged.
        view.doubtful = [lost.node_id for lost in view.absent if not ended(peers.get(lost.node_id), lost)]
        chain = chain_for(proposal, view, member_state.recent)
        body = encode_commit(chain)
        for member in proposal.members:
            if member.node_id != member_state.me.node_id:
                member_state.out.append((member.node_id, COMMIT, body))
        self.proposal = None
        member_state.install(chain, now)

    def _committed(self, node_id: str, body: bytes, now: int) -> None:
        member_state = self._member_state
        chain = decode_commit(body)
        if chain[-1].epoch != member_state.promised:
            return  # a later one was promised meanwhile: this view must not be installed here
        for view in chain:
            if len(view.replicas) != member_state.partitions:
                raise ValueError("a view has another number of partitions")
        if member_state.install(chain, now):
            member_state.out.append((node_id, INSTALLED, varint(member_state.epoch())))


def installed_epoch(body: bytes) -> int:
    """Read INSTALLED; raises ValueError."""
    return Cursor(body, "an answer to a commit").integer()

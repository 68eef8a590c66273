"""Who hears whom: what this node hears, and what the heartbeats of others say about what they hear.

Owns the evidence (connections, silence, refusals, rows of the reach matrix); the planner draws the conclusions. A node
has a slot, and sets of nodes are integers with a bit per slot, so that looking at 200 nodes is a few operations.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.membership.heartbeat import MEMBER, Heartbeat
from folkmoot.membership.view import View
from folkmoot.peer.member import Member

__all__ = ["NO_ROOM", "Detector", "Peer"]

NO_ROOM: Final = "no_room"
"""The figure by which a node tells others that it should lead nothing, because its disk is full."""

# A link that was lost more than once lately must hold for a while before its node is taken in again.
_CALM_MIN_US = 250 * MILLISECOND
_CALM_MAX_US = 16 * SECOND
_FORGIVE_US = 30 * SECOND


class Peer:
    """What is known of another node.

    member: as its last connection introduced it. proved_dead: a redial was refused, or another incarnation came.
    row: slots of those that it says it hears (0 = nothing known). losses: how often it fell silent lately.
    """

    def __init__(self, node_id: str, slot: int) -> None:
        self.node_id = node_id
        self.slot = slot
        self.bit: int = 1 << slot
        self.member: Member | None = None
        self.connected: bool = False
        self.proved_dead: bool = False
        self.heard_us: int = 0
        self.since_us: int = 0  # heard without a break since
        self.losses: int = 0
        self.lost_us: int = 0
        self.beat: Heartbeat | None = None
        self.row: int = 0
        self.raw: tuple[int, int, list[str]] = (-1, -1, [])
        self.load: dict[str, int] = {}

    def incarnation(self) -> int:
        """Return the incarnation of its last connection, -1 = none yet."""
        return -1 if self.member is None else self.member.incarnation

    def serves(self) -> bool:
        """Tell whether it says that it is a member of a view."""
        return self.beat is not None and self.beat.state == MEMBER

    def lacks_room(self) -> bool:
        """Tell whether it says that its disk has been full for long."""
        return self.load.get(NO_ROOM, 0) > 0

    def calm(self, now: int) -> bool:
        """Tell whether its link has held for long enough to take it in again."""
        if self.losses < 2:
            return True
        return now - self.since_us >= min(_CALM_MAX_US, _CALM_MIN_US << min(self.losses, 10))


class Detector:
    """The evidence of one node."""

    def __init__(self, node_id: str, silence_us: int) -> None:
        self.me: int = 1  # the bit of this node
        self.hears: int = 1  # bits of those that this node hears, its own included
        self.peers: dict[str, Peer] = {}
        self.names: dict[int, str] = {0: node_id}
        self._node_id = node_id
        self._silence_us = silence_us
        self._free: list[int] = []
        self._tick_us: int = 0

    def peer(self, node_id: str) -> Peer:
        """Return the record of a node, made at the first mention; not of this node itself."""
        found = self.peers.get(node_id)
        if found is None:
            assert node_id != self._node_id, "a node is no peer of its own"
            slot = self._free.pop() if self._free else len(self.peers) + 1
            found = Peer(node_id, slot)
            self.peers[node_id] = found
            self.names[slot] = node_id
            for other in self.peers.values():
                other.raw = (-1, -1, [])  # rows that name the new one are read again
        return found

    def bit(self, node_id: str) -> int:
        """Return the bit of a node, 0 = never met."""
        if node_id == self._node_id:
            return self.me
        found = self.peers.get(node_id)
        return 0 if found is None else found.bit

    def ids(self, bits: int) -> list[str]:
        """Return the ids of a set, sorted."""
        found: list[str] = []
        slot = 0
        while bits:
            if bits & 1:
                found.append(self.names[slot])
            bits >>= 1
            slot += 1
        return sorted(found)

    def up(self, member: Member, now: int) -> bool:
        """Note a connection; tell whether it is the first of this incarnation."""
        peer = self.peer(member.node_id)
        fresh = peer.incarnation() != member.incarnation
        if fresh:
            peer.beat = None
            peer.row = 0
            peer.raw = (-1, -1, [])
            self._silent(peer, now)
        peer.member = member
        peer.connected = True
        peer.proved_dead = False
        self.heard(member.node_id, now)
        return fresh

    def down(self, node_id: str, incarnation: int, refused: bool, now: int) -> bool:
        """Note that a connection is gone; tell whether that proves that the process is."""
        peer = self.peers.get(node_id)
        if peer is None or peer.incarnation() != incarnation:
            return False
        peer.connected = False
        if refused:
            peer.proved_dead = True
            self._silent(peer, now)
        return refused

    def heard(self, node_id: str, at_us: int) -> None:
        """Note that bytes came from a node."""
        peer = self.peers.get(node_id)
        if peer is None or peer.proved_dead or peer.member is None:
            return
        if at_us > peer.heard_us:
            peer.heard_us = at_us
        if not self.hears & peer.bit and at_us + self._silence_us > self._tick_us:
            self.hears |= peer.bit
            peer.since_us = at_us

    def said(self, node_id: str, beat: Heartbeat, view: View | None, now: int) -> bool:
        """Note a heartbeat; `view` = the one that this node has installed. Tells whether its row has changed."""
        peer = self.peers.get(node_id)
        if peer is None or peer.incarnation() != beat.incarnation:
            return False
        self.heard(node_id, now)
        peer.beat = beat
        if beat.load is not None:
            peer.load = beat.load
        raw = (beat.hears, beat.epoch, beat.others)
        if raw == peer.raw:
            return False
        row = 0
        if beat.hears:
            if view is None or view.epoch != beat.epoch:
                return False  # it speaks of a view that this node has not: the next one will name everybody
            bits = beat.hears
            for member in view.members:
                if bits & 1:
                    row |= self.me if member.node_id == self._node_id else self.peer(member.node_id).bit
                bits >>= 1
        for other in beat.others:
            row |= self.bit(other)  # whom this node never met it cannot hear either
        peer.raw = raw
        changed = row != peer.row
        peer.row = row
        return changed

    def tick(self, now: int, interval_us: int) -> bool:
        """Look who has fallen silent; tells whether anybody has. To be called every `interval_us`.

        Time in which this node itself did not run is no silence of others: what they sent then still waits to be read.
        """
        gap = now - self._tick_us
        if self._tick_us and gap > 2 * interval_us:
            for peer in self.peers.values():
                peer.heard_us = min(now, peer.heard_us + gap - interval_us)
        self._tick_us = now
        before = self.hears
        for peer in self.peers.values():
            if self.hears & peer.bit and now - peer.heard_us > self._silence_us:
                self._silent(peer, now)
            elif peer.losses and now - peer.lost_us > _FORGIVE_US:
                peer.losses -= 1
                peer.lost_us = now
        return self.hears != before

    def _silent(self, peer: Peer, now: int) -> None:
        if self.hears & peer.bit:
            self.hears &= ~peer.bit
            peer.losses += 1
            peer.lost_us = now

    def quiet(self, since_us: int) -> int:
        """Return the bits of those that are no suspects yet, but from which nothing has come since then."""
        bits = 0
        for peer in self.peers.values():
            if self.hears & peer.bit and peer.heard_us < since_us:
                bits |= peer.bit
        return bits

    def mutual(self) -> int:
        """Return the bits of those that this node hears and that say that they hear it, itself included."""
        bits = self.me
        for peer in self.peers.values():
            if peer.row & self.me and self.hears & peer.bit:
                bits |= peer.bit
        return bits

    def row_of(self, node_id: str) -> int:
        """Return whom a node hears, as far as known: 0 = nothing is, for this node does not hear it."""
        if node_id == self._node_id:
            return self.hears
        peer = self.peers.get(node_id)
        if peer is None or not self.hears & peer.bit:
            return 0
        return peer.row

    def matrix(self) -> dict[str, list[str]]:
        """Return who hears whom, as far as known."""
        rows: dict[str, list[str]] = {self._node_id: self.ids(self.hears)}
        for node_id in sorted(self.peers):
            row = self.row_of(node_id)
            if row:
                rows[node_id] = self.ids(row)
        return rows

    def prune(self, keep: list[str]) -> None:
        """Forget nodes without a connection that are not in `keep`, so that those who come once cost nothing."""
        kept = dict.fromkeys(keep, True)
        gone = [peer for peer in self.peers.values() if not peer.connected and peer.node_id not in kept]
        for peer in gone:
            if self.hears & peer.bit:
                continue
            del self.peers[peer.node_id]
            del self.names[peer.slot]
            self._free.append(peer.slot)
            for other in self.peers.values():
                other.row &= ~peer.bit

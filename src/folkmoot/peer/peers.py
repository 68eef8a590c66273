"""All other nodes that this one talks to: reliable, ordered messages over any number of connections to each.

Owns the calls of drivers and of the cluster, and the time at which something is due; which connection of a link is
used is decided in `folkmoot.peer.switch`. Never decides who belongs to the cluster, and never looks into a message.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.event import INFO
from folkmoot.kernel.pack import u64
from folkmoot.peer.frame import DATA, MALFORMED, MESSAGE_BYTES_MAX, PING, frame
from folkmoot.peer.kind import KIND_END
from folkmoot.peer.link import ACK_BYTES, Link
from folkmoot.peer.peer import CLOSED, OPEN, PeerConnection
from folkmoot.peer.switch import Switch

__all__ = ["Peers"]


class Peers(Switch):
    """The links of this node: `Peers(me, config, rng)`.

    After each call, take from `changes` and `inbox` (and clear them), in this order: messages of a peer may come after
    the change that says it is down. What is in `dials`, `outputs`, `closes`, `events` is for the driver.
    """

    # For the driver

    def connected(self, handle: object, address: str, outgoing: bool, now: int) -> PeerConnection:
        """A TCP connection stands, dialled by us to `address` or accepted from it; `handle` is the driver's own."""
        self._tick(now)
        self._connections += 1
        peer = PeerConnection(self._connections, handle, address, outgoing, self._now, self.outputs)
        patience_us = self._config.handshake_us
        if outgoing:
            patience_us = min(patience_us, self._config.silence_us)
        peer.deadline_us = self._now + patience_us
        self._welcome(peer)
        return peer

    def received(self, peer: PeerConnection, data: bytes, now: int) -> None:
        """Bytes came, in chunks of any size; what follows a fault or the peer's CLOSE is ignored."""
        if peer.state == CLOSED:
            return
        self._tick(now)
        self.bytes_received += len(data)
        reader = peer.reader
        reader.feed(data)
        link = peer.link
        if link is not None and peer.state == OPEN:
            link.heard_us = self._now
        while True:
            pos = reader.next()
            if pos < 0:
                break
            if link is not None and peer.state == OPEN and reader.data[pos] == DATA:
                fault = link.take(reader.data, pos, reader.stop, self.inbox)
                if fault:
                    self._reject(peer, f"it sent {fault}")
                    return
                if link.unacked_bytes > 0:
                    self._owe(link)
                continue
            self._control(peer, reader.data[pos], reader.data[pos + 1 : reader.stop])
            if peer.state == CLOSED:
                return
            link = peer.link
        if pos == MALFORMED:
            self._reject(peer, "its bytes are not frames of Folkmoot, or longer than allowed")

    def lost(self, peer: PeerConnection, why: str, now: int) -> None:
        """A connection is gone, by whatever cause; may be called twice."""
        if peer.state == CLOSED:
            return
        self._tick(now)
        if peer.outgoing and peer.state != OPEN:
            self._unreachable(peer.address, why)
        self._gone(peer, why)

    def writable(self, peer: PeerConnection, flag: bool, now: int) -> None:
        """The network takes no more bytes for now (False), or takes them again (True)."""
        self._tick(now)
        peer.writable = flag
        link = peer.link
        if flag and link is not None and link.current is peer:
            if link.unacked_bytes > 0:
                link.acknowledge()
            self._pump(link)

    def dial_failed(self, address: str, why: str, refused: bool, now: int) -> None:
        """Nobody could be reached; `refused`: the host lives and nobody listens."""
        self._tick(now)
        entry = self._dials.ended(address, 0, self._now)
        if entry is None:
            return
        self._at(entry.due_us)
        link = self._links.get(entry.node_id)
        # Only the peer's own address tells of the peer: another may be one of a load balancer.
        if (
            link is not None
            and refused
            and link.member.address == address
            and link.current is None
            and not link.refused
        ):
            link.refused = True
            self._tell_down(link, why, True)
        self._unreachable(address, why)

    def wake(self, now: int) -> None:
        """A deadline of `next_wake` has come."""
        self._tick(now)
        if self._now < self._wake_us:
            return
        self._wake_us = NEVER
        for peer in list(self._handshakes.values()):
            if self._now >= peer.deadline_us:
                self._reject(peer, "it did not finish its handshake in time")
            else:
                self._at(peer.deadline_us)
        for link in list(self._links.values()):
            self._tend(link)
        connected: dict[str, bool] = {}
        for link in self._links.values():
            if link.current is not None or link.pending is not None:
                connected[link.node_id] = True
        self.dials += self._dials.take(connected, self._now)
        self._at(self._dials.next_due(connected))

    def next_wake(self) -> int:
        """Return when `wake` is to be called at the latest, in microseconds, or NEVER."""
        return self._wake_us

    # For the cluster

    def want(self, address: str) -> None:
        """Keep a connection to whoever lives at `address` ("HOST:PORT"); this node's own address is ignored."""
        if address and address != self.me.address:
            self._dials.want(address)
            for link in self._links.values():
                if link.member.address == address:
                    self._dials.met(address, link.node_id)
            self._at(self._now)

    def unwant(self, address: str) -> None:
        """Dial `address` no more; a connection that stands stays."""
        self._dials.unwant(address)

    def residents(self) -> dict[str, str]:
        """Return by wanted address the id of the node that has answered there last, this one included."""
        return self._dials.residents(self.me.node_id)

    def send(self, node_id: str, kind: int, body: bytes) -> None:
        """Send a message, with all others of this turn; dropped when no process of the node is known.

        When more than `link_buffer_bytes_max` wait for a peer, the link is given up at the end of the turn: what waits
        is dropped, the peer is told as down, and comes up again without `resumed`.
        """
        assert 0 < kind < KIND_END, kind
        assert len(body) <= MESSAGE_BYTES_MAX, len(body)
        link = self._links.get(node_id)
        if link is None or link.overflow or not link.was_up:
            self.messages_dropped += 1
            return
        waiting = link.queue_bytes + link.frames_bytes
        if waiting > self._config.link_buffer_bytes_max:
            link.overflow = True
        else:
            link.put(kind, body)
        if not link.dirty:
            link.dirty = True
            self._dirty.append(link)

    def flush(self, now: int) -> None:
        """End the turn: what was sent to a peer in it leaves as one frame."""
        self._tick(now)
        if not self._dirty:
            return
        for link in self._dirty:
            link.dirty = False
            if self._links.get(link.node_id) is not link:
                continue
            if link.overflow:
                self._give_up(link)
                continue
            link.seal()
            if link.unacked_bytes >= ACK_BYTES:
                link.acknowledge()
            self._pump(link)
        self._dirty.clear()

    def forget(self, node_id: str) -> None:
        """Drop what waits for a node and its connection; no change is told. It may come back, with nothing resumed."""
        link = self._links.get(node_id)
        if link is not None:
            link.up = False
            self._drop(link, "forgotten")

    def last_heard_us(self, node_id: str) -> int:
        """Return when the last byte came from a node, or 0."""
        link = self._links.get(node_id)
        return 0 if link is None else link.heard_us

    def backlog_bytes(self, node_id: str) -> int:
        """Return how many bytes were sent to a node that its link has not acknowledged."""
        link = self._links.get(node_id)
        return 0 if link is None else link.backlog_bytes()

    def round_trip_us(self, node_id: str) -> int:
        """Return the smoothed time from this node to another one and back, or 0 as long as it is unknown."""
        link = self._links.get(node_id)
        return 0 if link is None else link.round_trip_us

    def last_seen_us(self, node_id: str) -> int:
        """Return the same also when its link was given up long ago; 0 = not heard since the start."""
        return self.last_heard_us(node_id) or self._seen.get(node_id, 0)

    def up_ids(self) -> list[str]:
        """Return the ids of the nodes that can be reached, sorted."""
        return sorted([link.node_id for link in self._links.values() if link.up])

    def features(self) -> dict[str, list[str]]:
        """Return what each node that is known has said that it can do, by its id."""
        return {link.node_id: link.features for link in self._links.values()}

    def settings(self) -> dict[str, dict[str, str]]:
        """Return what each node that is known has said of its settings, by its id."""
        return {link.node_id: link.settings for link in self._links.values()}

    def links(self) -> list[Link]:
        """Return what is known of each peer, for status; not to be changed."""
        return list(self._links.values())

    # Inside

    def _unreachable(self, address: str, why: str) -> None:
        self._unanswered(address, why)
        self._say(INFO, "peer_unreachable", f"peer_unreachable {address}", {"address": address, "reason": why})

    def _owe(self, link: Link) -> None:
        """Messages came: acknowledge them with what goes to the peer next, or soon."""
        if link.unacked_bytes >= ACK_BYTES:
            if not link.dirty:
                link.dirty = True
                self._dirty.append(link)
        elif link.ack_due_us == NEVER:
            link.ack_due_us = self._now + self._config.ack_delay_us
            self._at(link.ack_due_us)

    def _tend(self, link: Link) -> None:
        """Do for a link what is due."""
        now = self._now
        peer = link.current
        if peer is None:
            if link.pending is None and now - link.idle_from_us >= self._config.link_keep_us:
                self._drop(link, "gone for too long")
            else:
                self._at(max(link.idle_from_us + self._config.link_keep_us, now + 1))
            return
        silent_from_us = max(link.heard_us, link.patience_from_us)
        if now - silent_from_us >= self._config.silence_us:
            self._close(peer, f"nothing heard for {self._config.silence_us / 1e6:g} s")
            return
        if now >= link.ping_due_us:
            # Four of them must stay unanswered before a peer that has nothing to say counts as silent.
            link.ping_due_us = now + self._config.silence_us // 4
            if peer.writable:
                link.ping_sent_us = now
                peer.put(frame(PING, u64(now)))
        if now >= link.ack_due_us:
            link.acknowledge()
        self._pump(link)
        self._at(min(link.ping_due_us, link.ack_due_us, silent_from_us + self._config.silence_us))

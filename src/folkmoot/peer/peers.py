"""All nodes that this one is linked to: reliable messages, ordered by class, over any number of connections to each.

Owns the interface for drivers and for the cluster, and the timed work of a link. `folkmoot.peer.switch` decides which
connection of a link is used. Never decides which nodes belong to the cluster, and never reads a message.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.pack import u64
from folkmoot.kernel.rng import Rng
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.frame import CONTROL_DATA, DATA, MALFORMED, MESSAGE_BYTES_MAX, PIECE, PING, PONG, frame
from folkmoot.peer.kind import KIND_END
from folkmoot.peer.link import ACK_BYTES, Link
from folkmoot.peer.member import Member
from folkmoot.peer.peer import CLOSED, OPEN, PeerConnection
from folkmoot.peer.switch import Switch

__all__ = ["HELD_BYTES", "Peers"]

HELD_BYTES: Final = 512 << 10  # of frames that have waited, which are read at once
_PINGS_EVERY: Final = 16  # quarters of the time after which a peer is silent, in which one is pinged that is not
_PROBED: Final = 4  # links


class Peers:
    """The links of this node: `Peers(me, config, rng)`.

    After each call, take from `changes` and `inbox` (and clear them), in this order: messages of a peer may be behind
    the change that reports it down. `dials`, `outputs`, `closes` and `events` are for the driver.
    """

    def __init__(self, me: Member, config: ClusterConfig, rng: Rng) -> None:
        switch = Switch(me, config, rng)
        self.me = me
        self.dials: list[str] = []
        self.outputs = switch.outputs
        self.closes = switch.closes
        self.events = switch.events
        self.changes = switch.changes
        self.inbox: list[tuple[str, int, bytes]] = []
        self.unanswered = switch.complaints.unanswered
        self.bytes_received = 0
        self.messages_dropped = 0  # sent to nodes without a link
        self._config = config
        self._switch = switch
        self._dirty: list[Link] = []
        self._owed: list[Link] = []

    @property
    def refused_us(self) -> int:
        """Return when this node and another one last refused each other; 0 = never."""
        return self._switch.refused_us

    @property
    def twin_us(self) -> int:
        """Return when a node last said, or showed, that there is another process with the id of this one; 0 = never."""
        return self._switch.twin_us

    @property
    def frames_unknown(self) -> int:
        """Return how many frames of unknown kinds came, which belong to a later version."""
        return self._switch.frames_unknown

    # For the driver

    def connected(self, handle: object, address: str, outgoing: bool, now: int) -> PeerConnection:
        """A TCP connection was made: dialled to `address`, or accepted from it; `handle` belongs to the driver."""
        self._switch.tick(now)
        return self._switch.accept(handle, address, outgoing)

    def received(self, peer: PeerConnection, data: bytes, now: int) -> None:
        """Take bytes, in chunks of any size; what follows a fault or the peer's CLOSE is ignored."""
        if peer.state == CLOSED:
            return
        self._switch.tick(now)
        self.bytes_received += len(data)
        peer.reader.feed(data)
        link = peer.link
        if link is not None and peer.state == OPEN:
            link.heard_us = self._switch.now
        self._read(peer)

    def set_full(self, node_id: str, full: bool) -> None:
        """So many messages of a node wait here that no more are read, or no longer.

        What is not read is not acknowledged, so the other node knows that it is too fast. Frames that have waited are
        read in portions: call it again whenever messages of the node were handled and few are left.
        """
        link = self._switch.links.get(node_id)
        if link is None:
            return
        link.is_full = full
        peer = link.current
        if not full and peer is not None and peer.held and peer.state == OPEN:
            self._read_held(peer, link)

    def _read(self, peer: PeerConnection) -> None:
        """Take the frames that have come completely; while too many messages wait, of the control alone."""
        reader = peer.reader
        while True:
            pos = reader.next()
            if pos < 0:
                break
            kind = reader.data[pos]
            link = peer.link
            if link is None or peer.state != OPEN or kind == PING or kind == PONG:
                self._switch.control(peer, kind, reader.data[pos + 1 : reader.stop])
            elif kind != CONTROL_DATA and (link.is_full or peer.held):
                peer.held.append(reader.data[pos : reader.stop])
            else:
                self._take(peer, link, reader.data, pos, reader.stop)
            if peer.state == CLOSED:
                return
        if pos == MALFORMED:
            self._switch.reject(peer, "its bytes are not frames of Folkmoot, or longer than allowed")

    def _read_held(self, peer: PeerConnection, link: Link) -> None:
        """Take frames that have waited, in their order, and at least one message: when that is handled it goes on here.

        All at once they could be as much as a link holds, which a change of the view would have handled in one turn.
        Those of a node without classes have its heartbeats among them, which must not wait.
        """
        held = peer.held
        before = len(self.inbox)
        left = HELD_BYTES
        while held and peer.state == OPEN:
            if left <= 0 and len(self.inbox) > before and link.has_classes:
                return
            data = held.popleft()
            left -= len(data)
            self._take(peer, link, data, 0, len(data))

    def _take(self, peer: PeerConnection, link: Link, data: bytes, pos: int, stop: int) -> None:
        """Take a frame of a connection that is open."""
        kind = data[pos]
        if kind in (DATA, CONTROL_DATA):
            fault = link.take(kind, data, pos, stop, self.inbox)
        elif kind == PIECE:
            fault = link.take_piece(peer, data[pos + 1 : stop], self.inbox)
        else:
            self._switch.control(peer, kind, data[pos + 1 : stop])
            return
        if fault:
            self._switch.reject(peer, f"it sent {fault}")
        elif link.owes():
            self._owe(link)

    def lost(self, peer: PeerConnection, why: str, now: int) -> None:
        """A connection has ended, for whatever reason; may be called twice."""
        if peer.state == CLOSED:
            return
        self._switch.tick(now)
        if peer.outgoing and peer.state != OPEN:
            self._switch.complaints.unreachable(peer.address, why, self._switch.now)
        self._switch.gone(peer, why)

    def writable(self, peer: PeerConnection, flag: bool, now: int) -> None:
        """The transport's buffer is full (False), or has room again (True)."""
        self._switch.tick(now)
        peer.writable = flag
        link = peer.link
        if link is not None and link.current is peer:
            link.writable(flag, self._switch.now)
            if flag:
                link.acknowledge()
                self._switch.pump(link)

    def dial_failed(self, address: str, why: str, refused: bool, now: int) -> None:
        """A dial has failed; `refused`: the host answers that nothing listens there."""
        self._switch.tick(now)
        entry = self._switch.entries.ended(address, 0, self._switch.now)
        if entry is None:
            return
        self._switch.at(entry.due_us)
        link = self._switch.links.get(entry.node_id)
        # Only the peer's own address is proof that it ended: another one may be that of a load balancer.
        if (
            link is not None
            and refused
            and link.member.address == address
            and link.current is None
            and not link.refused
        ):
            link.refused = True
            self._switch.tell_down(link, why, True)
            self._probe()
        self._switch.complaints.unreachable(address, why, self._switch.now)

    def wake(self, now: int) -> None:
        """A deadline of `next_wake` or `background_us` has come."""
        switch = self._switch
        switch.tick(now)
        if switch.now < switch.wake_us and switch.now < switch.background_us:
            return
        switch.wake_us = switch.background_us = NEVER
        for peer in list(switch.handshakes.values()):
            if switch.now >= peer.deadline_us:
                switch.reject(peer, "it did not finish its handshake in time")
            else:
                switch.at(peer.deadline_us)
        for link in list(switch.links.values()):
            self._tend(link)
        connected: dict[str, bool] = {}
        for link in switch.links.values():
            if link.current is not None or link.pending is not None:
                connected[link.node_id] = True
        self.dials += switch.entries.take(connected, switch.now)
        switch.at(switch.entries.next_due(connected))

    def next_wake(self) -> int:
        """Return when `wake` must be called at the latest, in microseconds, or NEVER."""
        return self._switch.wake_us

    @property
    def background_us(self) -> int:
        """Return from when on a turn should call `wake` for what can wait for it, such as acknowledgements."""
        return self._switch.background_us

    def replace_secrets(self, words: list[bytes], now: int) -> None:
        """Use other secrets of the cluster: the first to prove, all to accept.

        Connections that were proved by one that is not accepted any more end; their links go on over new ones.
        """
        switch = self._switch
        switch.tick(now)
        switch.greeter.replace_secrets(words)
        open_ones = [link.current for link in switch.links.values() if link.current is not None]
        for peer in [*switch.handshakes.values(), *open_ones]:
            if peer.secret and not switch.greeter.accepts(peer.secret):
                switch.close(peer, "the secret that it has proved is not accepted any more")

    # For the cluster

    def want(self, address: str) -> None:
        """Keep a connection to the node at `address` ("HOST:PORT"); this node's own address is ignored."""
        if address and address != self.me.address:
            self._switch.entries.want(address)
            for link in self._switch.links.values():
                if link.member.address == address:
                    self._switch.entries.met(address, link.node_id)
            self._switch.at(self._switch.now)

    def unwant(self, address: str) -> None:
        """Stop dialling `address`; a connection that exists stays."""
        self._switch.entries.unwant(address)

    def residents(self) -> dict[str, str]:
        """Return by wanted address the id of the node that answered there last, this one included."""
        return self._switch.entries.residents(self.me.node_id)

    def send(self, node_id: str, kind: int, body: bytes, since_us: int = NEVER) -> None:
        """Send a message at the end of the turn, with all others of the turn; dropped without a link to the node.

        since_us: since when it has waited for something else, if it has.

        Messages to a node arrive in their order, but those of the control overtake others (`folkmoot.peer.link`).
        When more than `link_buffer_bytes_max` wait for a peer, its link is dropped at the end of the turn with all that
        waits: the peer is reported down, and up again without `resumed`.
        """
        assert 0 < kind < KIND_END, kind
        assert len(body) <= MESSAGE_BYTES_MAX, len(body)
        link = self._switch.links.get(node_id)
        if link is None or link.overflow or not link.was_up:
            self.messages_dropped += 1
            return
        if link.backlog_bytes() > self._config.link_buffer_bytes_max:
            link.overflow = True
        else:
            link.put(kind, body, self._switch.now, since_us)
        if not link.dirty:
            link.dirty = True
            self._dirty.append(link)

    def overflow(self, node_id: str) -> None:
        """More than `link_buffer_bytes_max` wait for a peer elsewhere: treat its link as `send` does."""
        link = self._switch.links.get(node_id)
        if link is not None and link.was_up and not link.overflow:
            link.overflow = True
            if not link.dirty:
                link.dirty = True
                self._dirty.append(link)

    def flush(self, now: int) -> None:
        """End the turn: its messages to a peer leave together, those of the control first."""
        self._switch.tick(now)
        for link in self._dirty:
            link.dirty = False
            if self._switch.links.get(link.node_id) is not link:
                continue
            if link.overflow:
                self._switch.drop_slow(link)
                continue
            link.seal(self._switch.now)
            if link.data.unacked_bytes >= ACK_BYTES:
                link.acknowledge()
            self._switch.pump(link)
        self._dirty.clear()
        for link in self._owed:
            self._switch.about(link.ack_due_us)  # NEVER if a frame of this turn acknowledges
        self._owed.clear()

    def forget(self, node_id: str) -> None:
        """Drop a node's link and connection without a report. It may come back, with nothing resumed."""
        link = self._switch.links.get(node_id)
        if link is not None:
            link.up = False
            self._switch.drop(link, "forgotten")

    def last_heard_us(self, node_id: str) -> int:
        """Return when the last byte came from a node, or 0."""
        link = self._switch.links.get(node_id)
        return 0 if link is None else link.heard_us

    def backlog_bytes(self, node_id: str) -> int:
        """Return how many bytes were sent to a node that its link has not acknowledged."""
        link = self._switch.links.get(node_id)
        return 0 if link is None else link.backlog_bytes()

    def queue_us(self, node_id: str, now: int) -> int:
        """Return how long the oldest data for a node has waited for a connection that carries too little, or 0."""
        link = self._switch.links.get(node_id)
        return 0 if link is None else link.queue_us(now)

    def round_trip_us(self, node_id: str) -> int:
        """Return the smoothed round-trip time to a node, or 0 while it is unknown."""
        link = self._switch.links.get(node_id)
        return 0 if link is None else link.round_trip_us

    def last_seen_us(self, node_id: str) -> int:
        """Return the same also for a node whose link was dropped long ago; 0 = not heard since the start."""
        return self.last_heard_us(node_id) or self._switch.seen.get(node_id, 0)

    def up_ids(self) -> list[str]:
        """Return the ids of the nodes that can be reached, sorted."""
        return sorted([link.node_id for link in self._switch.links.values() if link.up])

    def features(self) -> dict[str, list[str]]:
        """Return the features of each linked node, by its id."""
        return {link.node_id: link.features for link in self._switch.links.values()}

    def settings(self) -> dict[str, dict[str, str]]:
        """Return the settings of each linked node, as it sent them, by its id."""
        return {link.node_id: link.settings for link in self._switch.links.values()}

    def links(self) -> list[Link]:
        """Return all links, for the status; not to be changed."""
        return list(self._switch.links.values())

    # Inside

    def _owe(self, link: Link) -> None:
        """Acknowledge received messages with the next frame to the peer, or after `ack_delay_us`."""
        if link.data.unacked_bytes >= ACK_BYTES:
            if not link.dirty:
                link.dirty = True
                self._dirty.append(link)
        elif link.ack_due_us == NEVER:
            link.ack_due_us = self._switch.now + self._config.ack_delay_us
            self._owed.append(link)

    def _ping(self, link: Link) -> None:
        """Ask whether a node is there, also on a full connection: a link that carries too little is full all the time.

        A long message is acknowledged as a whole, so nothing else may be heard while its pieces are on their way.
        """
        peer = link.current
        if peer is not None:
            link.ping_sent_us = self._switch.now
            peer.put(frame(PING, u64(self._switch.now)))

    def _probe(self) -> None:
        """Ping the links that have been silent for longest.

        A firewall that has answered one link with a reset may be in front of others, and answers only what is sent.
        """
        links = [link for link in self._switch.links.values() if link.current is not None]
        links.sort(key=_heard_us)
        for link in links[:_PROBED]:
            self._ping(link)

    def _tend(self, link: Link) -> None:
        """Do what is due for a link: acknowledge, ping, close a silent connection, drop an old link."""
        now = self._switch.now
        peer = link.current
        if peer is None:
            if link.pending is None and now - link.idle_from_us >= self._config.link_keep_us:
                self._switch.drop(link, "gone for too long")
            else:
                self._switch.at(max(link.idle_from_us + self._config.link_keep_us, now + 1))
            return
        silent_from_us = max(link.heard_us, link.patience_from_us)
        if now - silent_from_us >= self._config.silence_us:
            self._switch.close(peer, f"nothing heard for {self._config.silence_us / 1e6:g} s")
            return
        if now >= link.ping_due_us:
            # A peer counts as silent only after three unanswered pings; one that is not silent is rarely asked.
            pause_us = self._config.silence_us // 4
            is_heard = now - link.heard_us < pause_us and now - link.ping_sent_us < _PINGS_EVERY * pause_us
            link.ping_due_us = (link.heard_us if is_heard else now) + pause_us
            if not is_heard:
                self._ping(link)
        if now >= link.ack_due_us:
            link.acknowledge()
        self._switch.pump(link)
        self._switch.at(silent_from_us + self._config.silence_us)
        self._switch.about(min(link.ping_due_us, link.ack_due_us))


def _heard_us(link: Link) -> int:
    return link.heard_us

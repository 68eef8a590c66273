"""Which of several connections carries a link, from a connection's first byte to its end.

Owns links, connections and the time at which something is due for them. Never sends a message of its own, and does not
know what is due then: that is `folkmoot.peer.peers`.

When two nodes dial each other at once, both keep the connection that the lower id dialled. The dialling node sends
RESUME only if it wants to use the connection, and the listening node answers with its own. A process numbers its
RESUMEs. So the listening node can tell a RESUME that was sent before the connection in use was agreed on (both dialled:
the lower id decides) from one sent after it (the peer has lost that connection, and this node has not noticed yet).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.kernel.feature import CLASSES
from folkmoot.kernel.pack import get_u64
from folkmoot.kernel.rng import Rng
from folkmoot.peer.accord import disagreements
from folkmoot.peer.complaint import Complaints
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.dial import Dials
from folkmoot.peer.frame import CHALLENGE, CLOSE, FRAME_BYTES_MAX, HELLO, PING, PONG, PROOF, RESUME, WAITED, frame
from folkmoot.peer.handshake import ITSELF, SAME_ID, Greeter
from folkmoot.peer.link import Link, Resume, read_resume
from folkmoot.peer.member import Member
from folkmoot.peer.peer import (
    CHALLENGED,
    CLOSED,
    INTRODUCING,
    OPEN,
    PROVING,
    RESUMING,
    PeerChange,
    PeerConnection,
)

__all__ = ["HANDSHAKES_MAX", "LINKS_MAX", "Switch"]

HANDSHAKES_MAX: Final = 128  # accepted connections without a proof yet; beyond it the oldest is closed
LINKS_MAX: Final = 1024
REASON_BYTES_MAX: Final = 300

_QUIET: Final = 0  # codes of CLOSE: nothing is wrong
_REFUSED: Final = 1
_TWIN: Final = 2  # refused, because another process with this id is connected


class Switch:
    """Links and connections; the lists are those of `folkmoot.peer.peers.Peers`, and described there."""

    def __init__(self, me: Member, config: ClusterConfig, rng: Rng) -> None:
        self.me = me
        self.outputs: list[PeerConnection] = []
        self.closes: list[PeerConnection] = []
        self.events: list[Event] = []
        self.changes: list[PeerChange] = []
        self.frames_unknown = 0
        self.refused_us = 0  # when this node and another one last refused each other; 0 = never
        self.twin_us = 0  # when that was last because there is another process with the id of this one; 0 = never
        self.now = 0
        self.wake_us: int = NEVER
        self.background_us: int = NEVER
        self.links: dict[str, Link] = {}
        self.handshakes: dict[int, PeerConnection] = {}
        self.complaints = Complaints(self.events)
        self.greeter = Greeter(me, config, rng)
        self.entries = Dials(config, rng.fork())
        self.seen: dict[str, int] = {}  # when nodes without a link were last heard, the latest dropped last
        self._config = config
        self._connections = 0
        self._tags = 0
        self._serials = 0

    # Time

    def tick(self, now: int) -> None:
        """Advance the time; it never runs back."""
        if now <= self.now:
            return
        if now - self.now > self._config.silence_us // 2 and self.now > 0:
            # This process stood still or its clock was set: peers were not silent.
            for link in self.links.values():
                link.patience_from_us = now
        self.now = now

    def at(self, due_us: int) -> None:
        """Have `wake` called at `due_us` at the latest."""
        if due_us < self.wake_us:
            self.wake_us = due_us

    def about(self, due_us: int) -> None:
        """Have `wake` called in a turn soon after `due_us`, of which there may be one anyway."""
        if due_us < self.background_us:
            self.background_us = due_us

    # Handshake

    def accept(self, handle: object, address: str, outgoing: bool) -> PeerConnection:
        """Begin the handshake of a connection that has just been made."""
        self._connections += 1
        peer = PeerConnection(self._connections, handle, address, outgoing, self.now, self.outputs)
        patience_us = self._config.handshake_us
        if outgoing:
            patience_us = min(patience_us, self._config.silence_us)
        peer.deadline_us = self.now + patience_us
        self._make_room()
        self.handshakes[peer.id] = peer
        self.at(peer.deadline_us)
        self.greeter.begin(peer)
        return peer

    def _make_room(self) -> None:
        """Close the accepted connection that has been in its handshake for longest, when there are too many of them."""
        oldest: PeerConnection | None = None
        accepted = 0
        for other in self.handshakes.values():
            if not other.outgoing:
                accepted += 1
                if oldest is None:
                    oldest = other
        if oldest is not None and accepted >= HANDSHAKES_MAX:
            self.reject(oldest, "too many connections that do not finish their handshake")

    def control(self, peer: PeerConnection, kind: int, body: bytes) -> None:
        """Take a frame other than DATA."""
        state = peer.state
        if kind == CLOSE:
            self._closed_by_peer(peer, body)
        elif kind == CHALLENGE and state == CHALLENGED:
            fault = ITSELF if self._is_own(body) else self.greeter.challenged(peer, body)
            self._handle_fault(peer, fault)
        elif kind == PROOF and state == PROVING:
            self._handle_fault(peer, self.greeter.check(peer, body))
        elif kind == HELLO and state == INTRODUCING:
            self._handle_fault(peer, self.greeter.hear(peer, body))
            if peer.state == RESUMING and peer.outgoing:
                self._choose(peer)
        elif kind == RESUME and state == RESUMING:
            resume = read_resume(body, 0, len(body))
            if resume is None:
                self.reject(peer, "it sent a malformed RESUME")
            elif peer.outgoing:
                self._answered(peer, resume)
            else:
                self._asked(peer, resume)
        elif kind == PING and state == OPEN and len(body) == 8:
            peer.put(frame(PONG, body))
        elif kind == PONG and state == OPEN and len(body) == 8:
            self._measure(peer, get_u64(body, 0))
        elif kind == WAITED and state == OPEN and peer.link is not None and len(body) == 8:
            peer.link.waited_ms = get_u64(body, 0)
        elif state == OPEN and kind > CHALLENGE:
            self.frames_unknown += 1  # of a later version
        else:
            self.reject(peer, f"it sent a frame of kind {kind} at the wrong time")

    def _is_own(self, challenge: bytes) -> bool:
        """Whether a challenge is one of this node's own that wait for an answer: it would be made to answer itself."""
        for other in self.handshakes.values():
            if challenge.startswith(other.nonce):
                return True
        return False

    def _handle_fault(self, peer: PeerConnection, fault: str) -> None:
        if not fault:
            return
        if fault == ITSELF:
            # A seed list has this node's own address, perhaps in another form: it is not dialled again.
            entry = self.entries.entries.get(peer.address) if peer.outgoing else None
            if entry is not None:
                entry.itself = True
            self.close(peer, fault)
        else:
            self._note_refusal(peer)
            if fault == SAME_ID:
                self.twin_us = self.now
            self.reject(peer, fault, ERROR if fault == SAME_ID else WARNING)

    def _note_refusal(self, peer: PeerConnection) -> None:
        """Note that this node and another one refuse each other, if that one has proved that it knows the secret.

        This node founds no cluster then, and does not fork: nobody else must be able to keep it from that.
        """
        if peer.proved:
            self.refused_us = self.now

    def _measure(self, peer: PeerConnection, sent_us: int) -> None:
        link = peer.link
        if link is not None and sent_us == link.ping_sent_us:
            sample = self.now - sent_us
            link.round_trip_us = sample if link.round_trip_us == 0 else (7 * link.round_trip_us + sample) // 8

    # Which connection stays

    def _link_for(self, peer: PeerConnection) -> Link | None:
        """Return the link of a process that has proved itself, a new one if necessary; None if it was refused."""
        hello = peer.hello
        assert hello is not None, "no proof without a HELLO"
        link = self.links.get(hello.node_id)
        if link is not None and link.run != hello.run:
            # Another process with this id: it replaces one that is silent, and is refused beside one that is not.
            # Starts are counted per disk: those of two disks cannot be compared.
            alive = self.now - link.heard_us < self._config.silence_us
            is_older = hello.disk == link.member.disk and hello.incarnation <= link.member.incarnation
            if link.current is not None and (alive or is_older):
                other = link.member.address
                why = f"another node with its id {hello.node_id!r} is connected, at {other}: ids must differ"
                if hello.disk == link.member.disk and hello.disk:
                    why = (
                        f"another process is connected that runs on a copy of its data folder, at {other}: two cannot "
                        f"be {hello.node_id!r}, so end one of them"
                    )
                self.reject(peer, why, ERROR, _TWIN)
                return None
            self.drop(link, "it has been started again")
            link = None
        if link is None:
            if len(self.links) >= LINKS_MAX:
                self.reject(peer, f"this node knows {LINKS_MAX} others already")
                return None
            self._tags += 1
            link = Link(hello.member(), hello.run, self._tags, self.now)
            self.links[hello.node_id] = link
        link.wire = peer.wire
        link.features = hello.features
        link.has_classes = CLASSES in hello.features and CLASSES in self._config.features
        link.settings = hello.settings
        return link

    def _choose(self, peer: PeerConnection) -> None:
        """Decide whether to use a connection that this node dialled; RESUME tells the peer so."""
        link = self._link_for(peer)
        if link is None:
            return
        self.entries.met(peer.address, link.node_id)
        current = link.current
        if link.pending is not None or (current is not None and (current.outgoing or self.me.node_id > link.node_id)):
            self.close(peer, "there is another connection")
            return
        peer.link = link
        link.pending = peer
        self._send_resume(peer, link)

    def _answered(self, peer: PeerConnection, resume: Resume) -> None:
        """Take a RESUME on a connection that this node dialled."""
        link = peer.link
        assert link is not None, "a RESUME was sent for it"
        current = link.current
        if current is not None and self.me.node_id > link.node_id:
            self.close(peer, "there is another connection")
        else:
            self._use(peer, link, resume)

    def _asked(self, peer: PeerConnection, resume: Resume) -> None:
        """Take a RESUME on a connection that the peer dialled."""
        link = self._link_for(peer)
        if link is None:
            return
        current = link.current
        if current is not None and resume.serial < current.serial:
            if not current.outgoing or self.me.node_id < link.node_id:
                self.close(peer, "there is another connection")
                return
        peer.link = link
        self._use(peer, link, resume)

    def _use(self, peer: PeerConnection, link: Link, resume: Resume) -> None:
        """Carry the link over a connection from now on."""
        if resume.tag < link.peer_tag:
            self.close(peer, "overtaken")
            return
        if link.peer_tag != 0 and resume.tag != link.peer_tag:
            if link.up:
                self.tell_down(link, "it has dropped what was between us", False)
            link.begin_anew()
        known = resume.known == link.tag
        fault = link.resume(resume.received_seq if known else 0, resume.received_control_seq if known else 0)
        if fault:
            self.reject(peer, fault)
            return
        link.peer_tag = resume.tag
        previous = link.current
        link.current = peer
        if link.pending is peer:
            link.pending = None
        self.handshakes.pop(peer.id, None)
        peer.state = OPEN
        peer.serial = resume.serial
        peer.reader.bytes_max = FRAME_BYTES_MAX
        if not peer.outgoing:
            self._send_resume(peer, link)
        link.refused = False
        link.heard_us = link.patience_from_us = link.ping_due_us = self.now
        self.at(self.now)
        if previous is not None:
            self.close(previous, "there is another connection")
        if not link.up:
            self._tell_up(link)
        self.pump(link)

    def _send_resume(self, peer: PeerConnection, link: Link) -> None:
        self._serials += 1
        peer.put(link.resume_frame(self._serials))

    def pump(self, link: Link) -> None:
        """Send what waits in a link, as far as its connection takes it."""
        if link.pump(self.now):
            self.at(self.now)

    # Ends

    def reject(self, peer: PeerConnection, why: str, level: str = WARNING, code: int = _REFUSED) -> None:
        """Close a connection because of a fault, and report it here and to the peer."""
        if peer.outgoing:
            self.complaints.note(peer.address, f"this node refuses it: {why}")
        self.complaints.refused(level, "peer_refused", peer, why, self.now)
        self._end(peer, code, why)

    def close(self, peer: PeerConnection, why: str) -> None:
        """Close a connection that is not needed."""
        self._end(peer, _QUIET, why)

    def _end(self, peer: PeerConnection, code: int, why: str) -> None:
        if peer.state == CLOSED:
            return
        # Somebody who has sent no CHALLENGE is told nothing.
        if peer.writable and (peer.outgoing or peer.state != CHALLENGED):
            peer.put(frame(CLOSE, bytes([code]) + why.encode()[:REASON_BYTES_MAX]))
        self.closes.append(peer)
        self.gone(peer, why)

    def _closed_by_peer(self, peer: PeerConnection, body: bytes) -> None:
        reason = body[1 : 1 + REASON_BYTES_MAX].decode("utf-8", "replace")
        if body[:1] != bytes([_QUIET]):
            if peer.state != OPEN:
                self._note_refusal(peer)
            same = peer.hello is not None and peer.hello.node_id == self.me.node_id
            if body[:1] == bytes([_TWIN]) and peer.hello is not None:
                same = True
                self.twin_us = self.now
            if peer.outgoing:
                self.complaints.note(peer.address, f"it refuses this node: {reason}")
            self.complaints.refused(ERROR if same else WARNING, "peer_refuses", peer, f"it says: {reason}", self.now)
        self.closes.append(peer)
        self.gone(peer, f"closed by the peer: {reason}")

    def gone(self, peer: PeerConnection, why: str) -> None:
        """A connection has ended."""
        lived_us = 0 if peer.state != OPEN else self.now - peer.opened_us
        peer.state = CLOSED
        self.handshakes.pop(peer.id, None)
        link = peer.link
        if peer.outgoing:
            self.entries.ended(peer.address, lived_us, self.now)
        if link is None:
            self.at(self.now)
            return
        if link.pending is peer:
            link.pending = None
        if link.current is peer:
            link.current = None
        # While another connection is about to take over, the peer is not down.
        if link.current is None and link.pending is None:
            link.idle_from_us = self.now
            if link.up:
                self.tell_down(link, why, False)
            if lived_us >= self._config.dial_us_max:
                self.entries.hurry(link.node_id, self.now)
        self.at(self.now)

    def drop(self, link: Link, why: str) -> None:
        """Drop a link and all that waits in it."""
        self.links.pop(link.node_id, None)
        self.seen.pop(link.node_id, None)
        self.seen[link.node_id] = link.heard_us
        if len(self.seen) > LINKS_MAX:
            del self.seen[next(iter(self.seen))]
        if link.up:
            self.tell_down(link, why, False)
        for peer in (link.current, link.pending):
            if peer is not None:
                self.close(peer, why)

    def drop_slow(self, link: Link) -> None:
        """Drop a link in which more waits than may."""
        waiting = link.backlog_bytes()
        fields: dict[str, object] = {"node": link.node_id, "bytes": waiting}
        self.events.append(Event(WARNING, "peer_too_slow", fields))
        self.drop(link, f"more than {self._config.link_buffer_bytes_max} bytes wait for it")

    # What is told

    def _tell_up(self, link: Link) -> None:
        change = PeerChange(True, link.member, "")
        change.wire = link.wire
        change.features = link.features
        change.resumed = link.was_up
        link.up = True
        self.changes.append(change)
        fields: dict[str, object] = {"node": link.node_id, "incarnation": link.member.incarnation}
        fields["address"] = link.member.address
        self.events.append(Event(INFO, "peer_up", fields))
        if not link.was_up:  # once for each start of either node
            for found in disagreements(self.greeter.hello.settings, link.settings):
                self.events.append(Event(WARNING, "settings_differ", found.fields(link.node_id)))
        link.was_up = True
        for address in self.entries.entries:
            if address == link.member.address:
                self.entries.met(address, link.node_id)
        self.complaints.unanswered.pop(link.member.address, None)

    def tell_down(self, link: Link, why: str, refused: bool) -> None:
        """Report that a node can no longer be reached; refused: its process has ended."""
        change = PeerChange(False, link.member, why)
        change.refused = refused
        link.up = False
        self.changes.append(change)
        fields: dict[str, object] = {"node": link.node_id, "reason": why}
        # The end of its process is reported in addition to the end of its connection.
        self.events.append(Event(INFO, "peer_dead", fields) if refused else Event(WARNING, "peer_down", fields))

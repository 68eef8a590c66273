"""Which of several connections carries a link, from a connection's first byte to its end.

Owns links and connections. Never sends a message of its own, and does not know what is due when.

Which connection stays when two nodes dial each other at once: the one that was dialled by the lower id, on both sides.
Who dials sends RESUME only when it wants to use the connection, and who listens answers with its own. A process
numbers its RESUMEs, so the listener can tell a RESUME that was sent before the connection in use was agreed on (both
dialled: the lower id decides) from one sent after (the peer has lost that connection, though we may not know yet).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.kernel.pack import get_u64
from folkmoot.kernel.rng import Rng
from folkmoot.peer.accord import disagreements
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.dial import Dials
from folkmoot.peer.frame import CLOSE, FRAME_BYTES_MAX, HELLO, PING, PONG, PROOF, RESUME, frame
from folkmoot.peer.handshake import ITSELF, SAME_ID, Greeter
from folkmoot.peer.link import Link, Resume, read_resume
from folkmoot.peer.member import Member
from folkmoot.peer.peer import CLOSED, GREETING, OPEN, PROVING, RESUMING, PeerChange, PeerConnection

__all__ = ["COMPLAINTS_MAX", "COMPLAINT_US", "HANDSHAKES_MAX", "LINKS_MAX", "Switch"]

HANDSHAKES_MAX: Final = 256  # accepted connections that have not proved themselves; beyond it the oldest goes
LINKS_MAX: Final = 1024
COMPLAINTS_MAX: Final = 256
COMPLAINT_US: Final = 60 * SECOND  # what stays wrong is said again after this time, not at each attempt
REASON_BYTES_MAX: Final = 300

_QUIET: Final = 0  # codes of CLOSE: nothing is wrong
_REFUSED: Final = 1


class Switch:
    """Links and connections; what is public of it is described at `folkmoot.peer.peers.Peers`."""

    def __init__(self, me: Member, config: ClusterConfig, rng: Rng) -> None:
        self.me = me
        self.dials: list[str] = []
        self.outputs: list[PeerConnection] = []
        self.closes: list[PeerConnection] = []
        self.events: list[Event] = []
        self.changes: list[PeerChange] = []
        self.inbox: list[tuple[str, int, bytes]] = []
        self.bytes_received = 0
        self.messages_dropped = 0  # sent to nodes without a link
        self.frames_unknown = 0
        self.unanswered: dict[str, str] = {}  # addresses at which nobody is connected, and why
        self.refused_us = 0  # when another node and this one last did not want each other; 0 = never
        self._config = config
        self._now = 0
        self._wake_us: int = NEVER
        self._links: dict[str, Link] = {}
        self._seen: dict[str, int] = {}  # when those without a link were last heard, the newest last
        self._dirty: list[Link] = []
        self._handshakes: dict[int, PeerConnection] = {}
        self._connections = 0
        self._tags = 0
        self._serials = 0
        self._complaints: dict[str, int] = {}
        self._greeter = Greeter(me, config, rng)
        self._dials = Dials(config, rng.fork())

    # Time

    def _tick(self, now: int) -> None:
        if now <= self._now:
            return
        if now - self._now > self._config.silence_us // 2 and self._now > 0:
            # This process stood still or its clock was set: that is nobody else's silence.
            for link in self._links.values():
                link.patience_from_us = now
        self._now = now

    def _at(self, due_us: int) -> None:
        """Be woken at `due_us` or earlier."""
        if due_us < self._wake_us:
            self._wake_us = due_us

    # Handshake

    def _welcome(self, peer: PeerConnection) -> None:
        """Begin a handshake; when too many strangers are at it, the one that takes longest goes."""
        oldest: PeerConnection | None = None
        accepted = 0
        for other in self._handshakes.values():
            if not other.outgoing:
                accepted += 1
                if oldest is None:
                    oldest = other
        if oldest is not None and accepted >= HANDSHAKES_MAX:
            self._reject(oldest, "too many connections that do not finish their handshake")
        self._handshakes[peer.id] = peer
        self._at(peer.deadline_us)
        self._greeter.begin(peer)

    def _control(self, peer: PeerConnection, kind: int, body: bytes) -> None:
        """A frame came that is not data."""
        state = peer.state
        if kind == CLOSE:
            self._closed_by_peer(peer, body)
        elif kind == HELLO and state == GREETING:
            self._handle_fault(peer, self._greeter.hear(peer, body))
        elif kind == PROOF and state == PROVING:
            self._handle_fault(peer, self._greeter.check(peer, body))
            if peer.state == RESUMING and peer.outgoing:
                self._choose(peer)
        elif kind == RESUME and state == RESUMING:
            resume = read_resume(body, 0, len(body))
            if resume is None:
                self._reject(peer, "it sent a malformed RESUME")
            elif peer.outgoing:
                self._answered(peer, resume)
            else:
                self._asked(peer, resume)
        elif kind == PING and state == OPEN and len(body) == 8:
            peer.put(frame(PONG, body))
        elif kind == PONG and state == OPEN and len(body) == 8:
            self._measure(peer, get_u64(body, 0))
        elif state == OPEN and kind > CLOSE:
            self.frames_unknown += 1  # of a later version
        else:
            self._reject(peer, f"it sent a frame of kind {kind} at the wrong time")

    def _handle_fault(self, peer: PeerConnection, fault: str) -> None:
        if not fault:
            return
        if fault == ITSELF:
            # A seed list has this node's own address, perhaps in other words: not dialled again.
            entry = self._dials.entries.get(peer.address) if peer.outgoing else None
            if entry is not None:
                entry.itself = True
            self._close(peer, fault)
        else:
            self.refused_us = self._now
            self._reject(peer, fault, ERROR if fault == SAME_ID else WARNING)

    def _measure(self, peer: PeerConnection, sent_us: int) -> None:
        link = peer.link
        if link is not None and sent_us == link.ping_sent_us:
            sample = self._now - sent_us
            link.round_trip_us = sample if link.round_trip_us == 0 else (7 * link.round_trip_us + sample) // 8

    # Which connection stays

    def _link_for(self, peer: PeerConnection) -> Link | None:
        """Return the link of the process that has proved itself, a new one if need be; None when it was refused."""
        hello = peer.hello
        assert hello is not None, "no proof without a HELLO"
        link = self._links.get(hello.node_id)
        if link is not None and link.run != hello.run:
            # Another process of this id: the successor of one that is not heard any more, the double of one that is.
            alive = self._now - link.heard_us < self._config.silence_us
            if link.current is not None and (alive or hello.incarnation <= link.member.incarnation):
                other = link.member.address
                why = f"another node with its id {hello.node_id!r} is connected, at {other}: ids must differ"
                self._reject(peer, why, ERROR)
                return None
            self._drop(link, "it has been started again")
            link = None
        if link is None:
            if len(self._links) >= LINKS_MAX:
                self._reject(peer, f"this node knows {LINKS_MAX} others already")
                return None
            self._tags += 1
            link = Link(hello.member(), hello.run, self._tags, self._now)
            self._links[hello.node_id] = link
        link.wire = peer.wire
        link.features = hello.features
        link.settings = hello.settings
        return link

    def _choose(self, peer: PeerConnection) -> None:
        """Use a connection that we dialled, or not: RESUME says that we want to."""
        link = self._link_for(peer)
        if link is None:
            return
        self._dials.met(peer.address, link.node_id)
        current = link.current
        if link.pending is not None or (current is not None and (current.outgoing or self.me.node_id > link.node_id)):
            self._close(peer, "there is another connection")
            return
        peer.link = link
        link.pending = peer
        self._send_resume(peer, link)

    def _answered(self, peer: PeerConnection, resume: Resume) -> None:
        """RESUME came on a connection that we dialled."""
        link = peer.link
        assert link is not None, "a RESUME was sent for it"
        current = link.current
        if current is not None and self.me.node_id > link.node_id:
            self._close(peer, "there is another connection")
        else:
            self._use(peer, link, resume)

    def _asked(self, peer: PeerConnection, resume: Resume) -> None:
        """RESUME came on a connection that the peer dialled."""
        link = self._link_for(peer)
        if link is None:
            return
        current = link.current
        if current is not None and resume.serial < current.serial:
            if not current.outgoing or self.me.node_id < link.node_id:
                self._close(peer, "there is another connection")
                return
        peer.link = link
        self._use(peer, link, resume)

    def _use(self, peer: PeerConnection, link: Link, resume: Resume) -> None:
        """Carry the link over a connection from now on."""
        if resume.tag < link.peer_tag:
            self._close(peer, "overtaken")
            return
        if link.peer_tag != 0 and resume.tag != link.peer_tag:
            if link.up:
                self._tell_down(link, "it has dropped what was between us", False)
            link.begin_anew()
        received = resume.received_seq if resume.known == link.tag else 0
        if received > link.framed_seq:
            self._reject(peer, f"it has received {received} of {link.framed_seq} messages")
            return
        link.peer_tag = resume.tag
        previous = link.current
        link.current = peer
        if link.pending is peer:
            link.pending = None
        self._handshakes.pop(peer.id, None)
        peer.state = OPEN
        peer.serial = resume.serial
        peer.reader.bytes_max = FRAME_BYTES_MAX
        if not peer.outgoing:
            self._send_resume(peer, link)
        link.acknowledged(received)
        link.unsent_index = 0
        link.refused = False
        link.heard_us = link.patience_from_us = link.ping_due_us = self._now
        self._at(self._now)
        if previous is not None:
            self._close(previous, "there is another connection")
        if not link.up:
            self._tell_up(link)
        self._pump(link)

    def _send_resume(self, peer: PeerConnection, link: Link) -> None:
        self._serials += 1
        peer.put(link.resume_frame(self._serials))

    def _pump(self, link: Link) -> None:
        if link.pump():
            self._at(self._now)

    # Ends

    def _reject(self, peer: PeerConnection, why: str, level: str = WARNING) -> None:
        """Close a connection because of a fault, and say so here and there."""
        if peer.outgoing:
            self._unanswered(peer.address, f"this node refuses it: {why}")
        self._complain(level, "peer_refused", peer, why)
        self._end(peer, _REFUSED, why)

    def _close(self, peer: PeerConnection, why: str) -> None:
        """Close a connection that is not needed."""
        self._end(peer, _QUIET, why)

    def _end(self, peer: PeerConnection, code: int, why: str) -> None:
        if peer.state == CLOSED:
            return
        if peer.writable:
            peer.put(frame(CLOSE, bytes([code]) + why.encode()[:REASON_BYTES_MAX]))
        self.closes.append(peer)
        self._gone(peer, why)

    def _closed_by_peer(self, peer: PeerConnection, body: bytes) -> None:
        reason = body[1 : 1 + REASON_BYTES_MAX].decode("utf-8", "replace")
        if body[:1] != bytes([_QUIET]):
            if peer.state != OPEN:
                self.refused_us = self._now
            same = peer.hello is not None and peer.hello.node_id == self.me.node_id
            if peer.outgoing:
                self._unanswered(peer.address, f"it refuses this node: {reason}")
            self._complain(ERROR if same else WARNING, "peer_refuses", peer, f"it says: {reason}")
        self.closes.append(peer)
        self._gone(peer, f"closed by the peer: {reason}")

    def _gone(self, peer: PeerConnection, why: str) -> None:
        """A connection is no more."""
        lived_us = 0 if peer.state != OPEN else self._now - peer.opened_us
        peer.state = CLOSED
        self._handshakes.pop(peer.id, None)
        link = peer.link
        if peer.outgoing:
            self._dials.ended(peer.address, lived_us, self._now)
        if link is None:
            self._at(self._now)
            return
        if link.pending is peer:
            link.pending = None
        if link.current is peer:
            link.current = None
        # While another connection is about to take over, nobody is down.
        if link.current is None and link.pending is None:
            link.idle_from_us = self._now
            if link.up:
                self._tell_down(link, why, False)
            if lived_us >= self._config.dial_us_max:
                self._dials.hurry(link.node_id, self._now)
        self._at(self._now)

    def _drop(self, link: Link, why: str) -> None:
        """Give up a link and all that waits in it."""
        self._links.pop(link.node_id, None)
        self._seen.pop(link.node_id, None)
        self._seen[link.node_id] = link.heard_us
        if len(self._seen) > LINKS_MAX:
            del self._seen[next(iter(self._seen))]
        if link.up:
            self._tell_down(link, why, False)
        for peer in (link.current, link.pending):
            if peer is not None:
                self._close(peer, why)

    def _give_up(self, link: Link) -> None:
        waiting = link.backlog_bytes()
        fields: dict[str, object] = {"node": link.node_id, "bytes": waiting}
        self.events.append(Event(WARNING, "peer_too_slow", fields))
        self._drop(link, f"more than {self._config.link_buffer_bytes_max} bytes wait for it")

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
        if not link.was_up:  # once for each start of either
            for found in disagreements(self._greeter.hello.settings, link.settings):
                self.events.append(Event(WARNING, "settings_differ", found.fields(link.node_id)))
        link.was_up = True
        for address in self._dials.entries:
            if address == link.member.address:
                self._dials.met(address, link.node_id)
        self.unanswered.pop(link.member.address, None)

    def _tell_down(self, link: Link, why: str, refused: bool) -> None:
        change = PeerChange(False, link.member, why)
        change.refused = refused
        link.up = False
        self.changes.append(change)
        fields: dict[str, object] = {"node": link.node_id, "reason": why}
        # That its process is gone for certain is said beside that the connection is.
        self.events.append(Event(INFO, "peer_dead", fields) if refused else Event(WARNING, "peer_down", fields))

    def _unanswered(self, address: str, why: str) -> None:
        if len(self.unanswered) >= COMPLAINTS_MAX:
            self.unanswered.clear()
        self.unanswered[address] = why

    def _complain(self, level: str, kind: str, peer: PeerConnection, why: str) -> None:
        who = peer.address.rpartition(":")[0] if not peer.outgoing else peer.address
        fields: dict[str, object] = {"address": peer.address, "reason": why}
        if peer.hello is not None:
            who = peer.hello.node_id
            fields["node"] = who
        self._say(level, kind, f"{kind} {who} {why}", fields)

    def _say(self, level: str, kind: str, key: str, fields: dict[str, object]) -> None:
        """Add an event, unless the same was said a short while ago."""
        said_us = self._complaints.get(key, -COMPLAINT_US)
        if self._now - said_us < COMPLAINT_US:
            return
        if len(self._complaints) >= COMPLAINTS_MAX:
            self._complaints.clear()
        self._complaints[key] = self._now
        self.events.append(Event(level, kind, fields))

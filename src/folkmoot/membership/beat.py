"""Sending heartbeats, and knowing addresses: what this node says of itself, and whom it wants to be connected to.

Owns the rhythm's length, the figures of load, and the addresses that others told. A node sends one small message to
each other per beat; all who are in the same view get the same bytes.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.membership.detector import Detector, Peer
from folkmoot.membership.heartbeat import MEMBER, Heartbeat, encode_heartbeat
from folkmoot.membership.member_state import MemberState
from folkmoot.peer.kind import HEARTBEAT

__all__ = ["Beater"]

_NODES_PER_BEAT: Final = 40  # with more nodes beats come more rarely, so that their cost grows no further
_BEATS_PER_SILENCE: Final = 8  # but a silence is still a silence of so many
_DOUBT_HALF_BEATS: Final = 7  # a crash while another node hangs is noticed so much later; shorter leaves out busy nodes
_LOAD_BEATS: Final = 10  # figures that do not change are repeated this often
_LEARNED_US: Final = 30 * SECOND
_LEARNED_MAX: Final = 4096


class Beater:
    """The heart of one node."""

    def __init__(self, member_state: MemberState, detector: Detector) -> None:
        self.load: dict[str, int] = {}
        self._member_state = member_state
        self._detector = detector
        self._load_changed = False
        self._beats = 0
        self._learned: dict[str, int] = {}  # addresses that others told, and until when they are worth a try
        self._patient = True

    def interval(self) -> int:
        """Return the time between two beats, in microseconds."""
        config = self._member_state.config
        stretched = config.heartbeat_us * max(_NODES_PER_BEAT, len(self._detector.peers)) // _NODES_PER_BEAT
        return max(1, min(stretched, config.silence_us // _BEATS_PER_SILENCE))

    def doubt_us(self) -> int:
        """Return after which silence a node is not waited for when another has died: three beats and a half."""
        return self.interval() * _DOUBT_HALF_BEATS // 2

    def set_load(self, load: dict[str, int]) -> None:
        """Set the figures to be sent."""
        self._load_changed = self._load_changed or load != self.load
        self.load = load

    def beat(self, now: int, patient: bool) -> None:
        """Send a heartbeat to everybody who is connected."""
        self._patient = patient
        self._beats += 1
        if len(self._learned) > 0:
            self._learned = {address: until for address, until in self._learned.items() if until > now}
        load = self._load_changed or self._beats % _LOAD_BEATS == 0
        self._load_changed = False
        self._send(sorted(self._detector.peers), now, load)

    def tell(self, ids: list[str], now: int) -> None:
        """Send a heartbeat to these nodes at once."""
        self._send([node_id for node_id in ids if node_id in self._detector.peers], now, False)

    def greet(self, node_id: str, now: int) -> None:
        """Send everything to a node that has just come."""
        self._send([node_id], now, True)

    def learn(self, peers: list[tuple[str, str]], now: int) -> None:
        """Note addresses that another node told."""
        for _node_id, address in peers:
            if address in self._learned or len(self._learned) < _LEARNED_MAX:
                self._learned[address] = now + _LEARNED_US

    def wants(self) -> list[str]:
        """Return the addresses to be kept connected: seeds, members, those that are away, those that others see."""
        wanted: dict[str, bool] = dict.fromkeys(self._member_state.config.seeds, True)
        view = self._member_state.view
        if view is not None:
            for member in view.members:
                wanted[member.address] = True
            for member in view.absent:
                wanted[member.address] = True
        for address in self._learned:
            wanted[address] = True
        wanted.pop(self._member_state.me.address, None)
        wanted.pop(self._member_state.config.peer_address, None)
        wanted.pop("", None)
        return list(wanted)

    def _send(self, ids: list[str], now: int, load: bool) -> None:
        member_state = self._member_state
        same = b""
        behind = b""
        bootstrap = b""
        for node_id in ids:
            peer = self._detector.peers[node_id]
            if not peer.connected or peer.member is None:
                continue
            if not self._in_view(peer):
                bootstrap = bootstrap or self._body(False, False, now, load)
                member_state.out.append((node_id, HEARTBEAT, bootstrap))
            elif peer.beat is not None and peer.beat.epoch == member_state.epoch():
                same = same or self._body(True, True, now, load)
                member_state.out.append((node_id, HEARTBEAT, same))
            else:
                behind = behind or self._body(True, False, now, load)
                member_state.out.append((node_id, HEARTBEAT, behind))

    def _in_view(self, peer: Peer) -> bool:
        view = self._member_state.view
        if view is None or self._member_state.state != MEMBER:
            return False
        member = view.member(peer.node_id)
        return member is not None and member.incarnation == peer.incarnation()

    def _body(self, in_view: bool, same_epoch: bool, now: int, load: bool) -> bytes:
        member_state = self._member_state
        detector = self._detector
        beat = Heartbeat(
            member_state.state,
            member_state.me.incarnation,
            member_state.epoch(),
            member_state.counter,
            member_state.partitions,
        )
        beat.in_view = in_view
        beat.stalled = member_state.stalled(now)
        beat.patient = self._patient
        beat.news = member_state.news or len(member_state.filled) > 0
        beat.leaving = member_state.leaving
        beat.requests = member_state.requests[:64]
        beat.load = self.load if load else None
        rest = detector.hears & ~detector.me
        view = member_state.view
        if same_epoch and view is not None:
            for number, member in enumerate(view.members):
                bit = detector.bit(member.node_id)
                if detector.hears & bit:
                    beat.hears |= 1 << number
                    rest &= ~bit
        beat.others = detector.ids(rest)
        beat.peers = self._addresses(in_view)
        return encode_heartbeat(beat)

    def _addresses(self, in_view: bool) -> list[tuple[str, str]]:
        """Return nodes that the receiver may not know: for a member the non-members, for a non-member all."""
        view = self._member_state.view
        found: list[tuple[str, str]] = []
        for node_id in sorted(self._detector.peers):
            peer = self._detector.peers[node_id]
            if not self._detector.hears & peer.bit or peer.member is None:
                continue
            if in_view and view is not None and view.member(node_id) is not None:
                continue
            found.append((node_id, peer.member.address))
        return found

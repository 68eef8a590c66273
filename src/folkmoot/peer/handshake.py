"""How two nodes introduce themselves: the proof that both know the secret, then HELLO and the wire version.

Owns the bytes and the rules of CHALLENGE, PROOF and HELLO; `folkmoot.peer.peers` owns the connections.

    both        CHALLENGE   a nonce of 16 bytes
    dialler     PROOF       a MAC over both nonces
    listener    HELLO       its introduction, and a MAC over it and both nonces
    dialler     HELLO       the same of its own

So a stranger learns nothing of a node before it has proved that it knows the secret: 16 random bytes are all that it
gets. HELLO:

    magic     8 bytes, "folkmoot"
    wire      u16, u16: the lowest and the highest version that the node supports; the highest common one counts
    fields    each tag u8, length u16, value; unknown tags and what follows the known part of a value are ignored

A MAC is HMAC-SHA256 (RFC 2104, FIPS 180-4) under the secret; each of the three begins with a label of its own, so none
can be used for another. The MAC of a HELLO covers ids, versions and settings: none can be changed on the way. The node
that dialled proves itself first, so that an attacker who connects gets nothing to test guesses of the secret with.
Nonces depend on the secret: nobody without it can predict them and collect answers. A node refuses a nonce that is its
own, with which it could be made to answer itself. The MACs cover the start of a connection; only TLS protects what
follows from an attacker on the path.

Without a secret, which the configuration allows on loopback only, PROOF and the MACs are empty: every process on the
machine can be a peer, so there is nothing to prove.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from folkmoot.kernel.pack import get_u16, get_u32, get_u64, u16, u32, u64
from folkmoot.kernel.rng import Rng
from folkmoot.peer.accord import settings_of
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.frame import CHALLENGE, HELLO, PROOF, frame
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import INTRODUCING, PROVING, RESUMING, PeerConnection

__all__ = [
    "ITSELF",
    "SAME_ID",
    "WIRE_MAX",
    "WIRE_MIN",
    "Greeter",
    "Hello",
    "common_wire",
    "differs",
    "nonce",
    "proof",
    "read_hello",
]

WIRE_MIN: Final = 2
WIRE_MAX: Final = 2
"""The versions of the wire that this software speaks; what a node says is in its Member. Version 1 knew no leases."""

ITSELF: Final = "it is this node itself"
SAME_ID: Final = "it has the same node.id as this node: ids must differ"

ANOTHER: Final = "its secret is another one: cluster.secret_file must have the same content on all nodes"
NONE_THERE: Final = "it has no secret, and this cluster has one: set cluster.secret_file there"
NONE_HERE: Final = "it wants a secret, and this node has none: set cluster.secret_file here"

# Labels of the three MACs.
PROVES: Final = b"P"
DIALLER: Final = b"D"
LISTENER: Final = b"L"

_MAGIC: Final = b"folkmoot"
_NODE_ID: Final = 1
_PROCESS: Final = 2  # incarnation u64, run u64
_ADDRESS: Final = 3
_ZONE: Final = 4
_SOFTWARE: Final = 5
_FEATURE: Final = 6  # once for each
_CLUSTER: Final = 7  # partitions u32, then the name
_SETTING: Final = 10  # NAME=VALUE, once for each that should be equal on all nodes
_DISK: Final = 11  # u64: the identity of the data folder
_HOST: Final = 12
_WITNESS: Final = 13  # it holds no data

_NONCE_BYTES: Final = 16
_MAC_BYTES: Final = 32
_ID_CHARACTERS_MAX: Final = 64
_TEXT_CHARACTERS_MAX: Final = 255
_FEATURES_MAX: Final = 64
_SETTINGS_MAX: Final = 64
_ID_CHARACTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
_INCARNATION_MAX: Final = 1 << 62
_DISK_MAX: Final = (1 << 62) - 1


class Hello:
    """What a node sends of itself; `run` is a random number that distinguishes two processes with one id."""

    def __init__(self, node_id: str, incarnation: int, run: int) -> None:
        self.wire_min = 0
        self.wire_max = 0
        self.node_id = node_id
        self.incarnation = incarnation
        self.run = run
        self.address = ""
        self.zone = ""
        self.software = ""
        self.disk = 0  # 0: it does not say
        self.host = ""
        self.witness = False
        self.features: list[str] = []
        self.settings: dict[str, str] = {}
        self.cluster = ""
        self.partitions = 0

    def member(self) -> Member:
        """Return the node as a member; whether it is one, and leaves, the configuration says."""
        wire_min = self.wire_min
        member = Member(self.node_id, self.incarnation, self.address, self.zone, ACTIVE, wire_min, self.wire_max)
        member.software = self.software
        member.disk = self.disk
        member.host = self.host
        member.witness = self.witness
        return member

    def encode(self) -> bytes:
        """Return the body of the HELLO frame."""
        parts = [_MAGIC, u16(self.wire_min), u16(self.wire_max)]
        _put(parts, _NODE_ID, self.node_id.encode())
        _put(parts, _PROCESS, u64(self.incarnation) + u64(self.run))
        _put(parts, _ADDRESS, self.address.encode())
        _put(parts, _ZONE, self.zone.encode())
        _put(parts, _SOFTWARE, self.software.encode())
        if self.disk:
            _put(parts, _DISK, u64(self.disk))
        if self.host:
            _put(parts, _HOST, self.host.encode())
        if self.witness:
            _put(parts, _WITNESS, b"")
        for feature in self.features:
            _put(parts, _FEATURE, feature.encode())
        _put(parts, _CLUSTER, u32(self.partitions) + self.cluster.encode())
        for name, value in self.settings.items():
            _put(parts, _SETTING, f"{name}={value}".encode())
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"Hello({self.node_id!r} incarnation={self.incarnation} wire={self.wire_min}..{self.wire_max})"


def _put(parts: list[bytes], tag: int, value: bytes) -> None:
    parts.append(bytes([tag]) + u16(len(value)))
    parts.append(value)


def read_hello(data: bytes) -> Hello | str:
    """Read the body of a HELLO frame, or return what is wrong with it."""
    if data[:8] != _MAGIC or len(data) < 12:
        return "its first bytes are not those of a node of Folkmoot"
    hello = Hello("", 0, 0)
    hello.wire_min = get_u16(data, 8)
    hello.wire_max = get_u16(data, 10)
    pos = 12
    while pos < len(data):
        if pos + 3 > len(data) or pos + 3 + get_u16(data, pos + 1) > len(data):
            return "its HELLO ends in the middle of a field"
        stop = pos + 3 + get_u16(data, pos + 1)
        fault = _read_field(hello, data[pos], data[pos + 3 : stop])
        if fault:
            return fault
        pos = stop
    return _fault_of(hello) or hello


def _read_field(hello: Hello, tag: int, value: bytes) -> str:
    if tag == _PROCESS:
        if len(value) < 16:
            return "its HELLO has no incarnation"
        hello.incarnation = get_u64(value, 0)
        hello.run = get_u64(value, 8)
    elif tag == _CLUSTER:
        if len(value) < 4:
            return "its HELLO has no number of partitions"
        hello.partitions = get_u32(value, 0)
        return _read_text(hello, tag, value[4:])
    elif tag == _DISK:
        hello.disk = get_u64(value, 0) if len(value) >= 8 else 0
        if not 0 < hello.disk <= _DISK_MAX:
            return "its HELLO has no identity of a disk"
    elif tag == _WITNESS:
        hello.witness = True
    elif tag in (_NODE_ID, _ADDRESS, _ZONE, _HOST, _SOFTWARE, _FEATURE, _SETTING):
        return _read_text(hello, tag, value)
    return ""


def _read_text(hello: Hello, tag: int, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "its HELLO has text that is not UTF-8"
    if len(text) > _TEXT_CHARACTERS_MAX or not text.isprintable():
        return "its HELLO has text that is too long or not printable"
    if tag == _NODE_ID:
        hello.node_id = text
    elif tag == _ADDRESS:
        hello.address = text
    elif tag == _ZONE:
        hello.zone = text
    elif tag == _HOST:
        hello.host = text
    elif tag == _SOFTWARE:
        hello.software = text
    elif tag == _CLUSTER:
        hello.cluster = text
    elif tag == _SETTING:
        if len(hello.settings) < _SETTINGS_MAX:
            name, _equals, setting = text.partition("=")
            hello.settings[name] = setting
    elif len(hello.features) < _FEATURES_MAX:
        hello.features.append(text)
    return ""


def _fault_of(hello: Hello) -> str:
    if not 0 < len(hello.node_id) <= _ID_CHARACTERS_MAX:
        return "its HELLO has no node id of 1 to 64 characters"
    for character in hello.node_id:
        if character not in _ID_CHARACTERS:
            return "its node id has other characters than letters, digits, '.', '_', '-'"
    if not 0 < hello.incarnation < _INCARNATION_MAX:
        return "its HELLO has no incarnation"
    return ""


def common_wire(mine: Hello, theirs: Hello) -> int:
    """Return the highest wire version that both support, or 0."""
    wire = min(mine.wire_max, theirs.wire_max)
    return wire if wire >= mine.wire_min and wire >= theirs.wire_min else 0


def differs(mine: Hello, theirs: Hello) -> str:
    """Return why two nodes cannot be in one cluster, for the log of the first; "" if they can."""
    if mine.cluster != theirs.cluster:
        return f"it belongs to the cluster {theirs.cluster!r}, this node to {mine.cluster!r}"
    if mine.partitions != theirs.partitions:
        return f"its data has {theirs.partitions} partitions, this node's {mine.partitions}: node.partitions must agree"
    return ""


def nonce(secret: bytes, seed: bytes, count: int) -> bytes:
    """Return the nonce of connection number `count`; `seed` is random and never leaves the process."""
    return hmac.new(secret, seed + u64(count), hashlib.sha256).digest()[:_NONCE_BYTES]


def proof(secret: bytes, label: bytes, dialler_nonce: bytes, listener_nonce: bytes, hello: bytes = b"") -> bytes:
    """Return the MAC of one byte `label`, two nonces of equal length and a HELLO; empty without a secret."""
    if not secret:
        return b""
    text = [b"folkmoot peer 2 ", label, dialler_nonce, listener_nonce, hello]
    return hmac.new(secret, b"".join(text), hashlib.sha256).digest()


def _mac(peer: PeerConnection, label: bytes, hello: bytes = b"") -> bytes:
    """Return the MAC under the secret of this connection."""
    if peer.outgoing:
        return proof(peer.secret, label, peer.nonce, peer.peer_nonce, hello)
    return proof(peer.secret, label, peer.peer_nonce, peer.nonce, hello)


class Greeter:
    """Sends HELLO and PROOF on connections and checks those of the peers."""

    def __init__(self, me: Member, config: ClusterConfig, rng: Rng) -> None:
        self._secrets = [config.secret, *config.secrets_accepted]
        # Outputs of the generator must not leave the process: from one of them all later ones can be computed.
        self._seed = u64(rng.next64()) + u64(rng.next64())
        self._count = 0
        hello = Hello(me.node_id, me.incarnation, get_u64(nonce(b"run", self._seed, 0), 0))
        hello.address = me.address
        hello.zone = me.zone
        hello.software = me.software
        hello.disk = me.disk
        hello.host = me.host
        hello.witness = me.witness
        hello.wire_min = me.wire_min
        hello.wire_max = me.wire_max
        hello.features = config.features
        hello.settings = settings_of(config)
        hello.cluster = config.name
        hello.partitions = config.partitions
        self.hello = hello

    def replace_secrets(self, words: list[bytes]) -> None:
        """Use the first of these secrets from now on, and accept the others too; none stays none."""
        assert bool(words[0]) == bool(self._secrets[0]), "a secret is neither introduced nor given up while a node runs"
        self._secrets = list(words)

    def accepts(self, secret: bytes) -> bool:
        """Whether a connection that was proved by this secret may stay."""
        return secret in self._secrets

    def begin(self, peer: PeerConnection) -> None:
        """Send CHALLENGE."""
        self._count += 1
        peer.nonce = nonce(self._secrets[0], self._seed, self._count)
        peer.put(frame(CHALLENGE, peer.nonce))

    def challenged(self, peer: PeerConnection, body: bytes) -> str:
        """Take a CHALLENGE: return what is wrong with it, or "" after which the peer is PROVING or INTRODUCING."""
        if len(body) < _NONCE_BYTES:
            return "its CHALLENGE has no nonce of 16 bytes"
        peer.peer_nonce = body[:_NONCE_BYTES]
        if peer.outgoing:
            peer.state = INTRODUCING
            peer.secret = self._secrets[0]
            peer.put(frame(PROOF, _mac(peer, PROVES)))
        else:
            peer.state = PROVING
        return ""

    def check(self, peer: PeerConnection, body: bytes) -> str:
        """Take a PROOF: return what is wrong with it, or "" after which the peer is INTRODUCING."""
        for secret in self._secrets:
            peer.secret = secret  # the answer proves the same one: the dialler may not know the others
            if hmac.compare_digest(_mac(peer, PROVES), body):
                break
        else:
            peer.secret = b""
            return self._fault_of(body)
        peer.state = INTRODUCING
        peer.proved = True
        self._introduce(peer)
        return ""

    def hear(self, peer: PeerConnection, body: bytes) -> str:
        """Take a HELLO: return what is wrong with it or its node, or "" after which the peer is RESUMING."""
        size = len(body) - _MAC_BYTES if self._secrets[0] else len(body)
        text, mac = body[: max(size, 0)], body[max(size, 0) :]
        if not hmac.compare_digest(_mac(peer, LISTENER if peer.outgoing else DIALLER, text), mac):
            return self._fault_of(mac)
        peer.proved = True
        if peer.outgoing:
            self._introduce(peer)  # before anything is wrong with the other one: it says so too
        hello = read_hello(text)
        if isinstance(hello, str):
            return hello
        mine = self.hello
        if hello.run == mine.run:
            return ITSELF
        peer.wire = common_wire(mine, hello)
        if peer.wire == 0:
            theirs = f"it speaks the wire versions {hello.wire_min} to {hello.wire_max}"
            return f"{theirs}, this node {mine.wire_min} to {mine.wire_max}: update the older one"
        peer.hello = hello
        if hello.node_id == mine.node_id:
            return SAME_ID
        fault = differs(mine, hello)
        if not fault:
            peer.state = RESUMING
        return fault

    def _introduce(self, peer: PeerConnection) -> None:
        """Send HELLO to a node that has proved itself."""
        text = self.hello.encode()
        peer.put(frame(HELLO, text + _mac(peer, DIALLER if peer.outgoing else LISTENER, text)))

    def _fault_of(self, mac: bytes) -> str:
        """Return why a MAC is not the expected one."""
        if not self._secrets[0]:
            return NONE_HERE
        return ANOTHER if mac else NONE_THERE

"""Who may speak: versions, secrets, clusters, strangers, and what they can cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.kernel.clock import SECOND
from folkmoot.peer.frame import CHALLENGE, CLOSE, HELLO, PROOF, RESUME, frame
from folkmoot.peer.handshake import DIALLER, LISTENER, PROVES, Hello, common_wire, nonce, proof, read_hello
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import CHALLENGED, CLOSED, INTRODUCING, OPEN, PROVING, RESUMING
from folkmoot.peer.switch import HANDSHAKES_MAX
from tests.peer.lines import Line, Net, Site, config_of

NAMES = [("a", 11), ("b", 22)]
SECRET = b"correct horse battery staple"


def meet(a: Site, b: Site, net: Net) -> Line:
    line = net.connect(a, b.address)
    assert line is not None
    net.settle()
    return line


def strangers(first: bytes, second: bytes) -> tuple[Net, Site, Site]:
    net = Net()
    return net, net.start("a", config=config_of(first)), net.start("b", config=config_of(second))


def hello() -> Hello:
    made = Hello("node-1", 7, 0x1234)
    made.wire_min, made.wire_max = 1, 3
    made.address, made.zone, made.software = "10.0.0.1:7883", "rack ü", "0.1.0"
    made.disk, made.host, made.witness = (1 << 62) - 1, "host ü", True
    made.features = ["merge", "zip"]
    made.settings = {"cluster.replicas": "3", "streams": "a=b"}
    made.cluster, made.partitions = "folkmoot", 256
    return made


def test_a_hello_is_read_as_it_was_written() -> None:
    found = read_hello(hello().encode())
    assert isinstance(found, Hello)
    assert vars_of(found) == vars_of(hello())


def vars_of(one: Hello) -> list[object]:
    names = "wire_min wire_max node_id incarnation run address zone software disk host witness features"
    return [getattr(one, name) for name in [*names.split(), "settings", "cluster", "partitions"]]


def test_fields_of_later_versions_are_ignored() -> None:
    data = hello().encode() + bytes([200]) + (5).to_bytes(2, "big") + b"later"
    found = read_hello(data)
    assert isinstance(found, Hello)
    assert vars_of(found) == vars_of(hello())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda one: setattr(one, "node_id", ""), "node id"),
        (lambda one: setattr(one, "node_id", "n" * 65), "node id"),
        (lambda one: setattr(one, "node_id", "a b"), "other characters"),
        (lambda one: setattr(one, "incarnation", 0), "incarnation"),
        (lambda one: setattr(one, "zone", "line\nbreak"), "printable"),
        (lambda one: setattr(one, "software", "s" * 256), "too long"),
    ],
)
def test_a_hello_that_lacks_something_is_refused_with_the_reason(change: object, reason: str) -> None:
    made = hello()
    assert callable(change)
    change(made)
    found = read_hello(made.encode())
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.parametrize("disk", [bytes(8), b"\x40" + bytes(7), b"\xff" * 8, b"1234567", b""])
def test_what_is_no_disk_is_refused(disk: bytes) -> None:
    found = read_hello(hello().encode() + bytes([11]) + len(disk).to_bytes(2, "big") + disk)
    assert found == "its HELLO has no identity of a disk"


def test_an_older_node_says_nothing_of_its_disk() -> None:
    made = hello()
    made.disk, made.host, made.witness = 0, "", False
    found = read_hello(made.encode())
    assert isinstance(found, Hello)
    assert (found.disk, found.host, found.witness) == (0, "", False)


def test_nodes_learn_disk_host_and_kind_of_each_other() -> None:
    net = Net()
    net_members = [Member(name, 1, f"{name}:1", name, ACTIVE, 1, 1, "", disk, f"host-{name}") for name, disk in NAMES]
    net_members[1].witness = True
    a, b = [net.start(one.node_id, member=one) for one in net_members]
    meet(a, b, net)
    found = a.changes[0].member
    assert (found.disk, found.host, found.witness) == (22, "host-b", True)
    found = b.changes[0].member
    assert (found.disk, found.host, found.witness) == (11, "host-a", False)


@given(st.binary(max_size=80))
def test_no_hello_raises(data: bytes) -> None:
    assert isinstance(read_hello(data), str)
    assert isinstance(read_hello(b"folkmoot" + data), str | Hello)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_the_highest_common_version_is_spoken(low: int, more: int, other_low: int, other_more: int) -> None:
    one, two = hello(), hello()
    one.wire_min, one.wire_max = low, low + more
    two.wire_min, two.wire_max = other_low, other_low + other_more
    both = set(range(low, low + more + 1)) & set(range(other_low, other_low + other_more + 1))
    assert common_wire(one, two) == max(both, default=0)


def test_versions_without_overlap_are_said_on_both_sides() -> None:
    net = Net()
    a = net.start("a", member=Member("a", 1, "a:1", "a", ACTIVE, 1, 2))
    b = net.start("b", member=Member("b", 1, "b:1", "b", ACTIVE, 3, 4))
    meet(a, b, net)
    for site in (a, b):
        text = site.reasons("peer_refused")
        assert "speaks the wire versions" in text
        assert "update the older one" in text
        assert site.changes == []


def test_a_newer_node_speaks_the_common_version() -> None:
    net = Net()
    a = net.start("a", member=Member("a", 1, "a:1", "a", ACTIVE, 1, 2, "0.1"))
    b = net.start("b", member=Member("b", 1, "b:1", "b", ACTIVE, 2, 4, "0.3"))
    meet(a, b, net)
    assert [change.wire for change in a.changes + b.changes] == [2, 2]
    member = a.changes[0].member
    assert (member.wire_min, member.wire_max, member.software) == (2, 4, "0.3")


def test_equal_secrets_meet() -> None:
    net, a, b = strangers(SECRET, SECRET)
    line = meet(a, b, net)
    assert [end.peer.state for end in line.ends] == [OPEN, OPEN]


@pytest.mark.parametrize(("first", "second"), [(SECRET, b"another secret"), (SECRET, b""), (b"", SECRET)])
def test_other_secrets_are_said_on_both_sides_and_nothing_is_sent(first: bytes, second: bytes) -> None:
    net, a, b = strangers(first, second)
    line = meet(a, b, net)
    assert [end.peer.state for end in line.ends] == [CLOSED, CLOSED]
    for site in (a, b):
        assert site.changes == []
        assert site.peers.links() == []
        said = site.reasons("peer_refused") + site.reasons("peer_refuses")
        assert "cluster.secret_file" in said
    a.peers.want("b:1")
    net.run(3 * SECOND)
    assert a.peers.up_ids() == []
    assert len([kind for kind in a.kinds() if kind.startswith("peer_ref")]) <= 2, "not at each attempt"


@pytest.mark.parametrize(("name", "value", "word"), [("name", "other", "cluster"), ("partitions", 64, "partitions")])
def test_nodes_of_another_cluster_are_refused(name: str, value: object, word: str) -> None:
    net, a, b = strangers(SECRET, SECRET)
    other = config_of(SECRET)
    setattr(other, name, value)
    b = net.start("b", config=other)
    meet(a, b, net)
    assert word in b.reasons("peer_refused")
    assert word in a.reasons("peer_refused")
    assert a.changes == b.changes == []


TELLING = (b"folkmoot", b"n1-secret-id", b"rack", b"0.9.7", b"cluster.", b"b:1", b"majority")


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append((data[4], data[5 : 4 + size]))
        data = data[4 + size :]
    return found


def kind_at(data: bytes, position: int) -> int:
    """The kind of the frame in which a byte lies."""
    for kind, body in frames_of(data):
        if position < len(body) + 5:
            return kind
        position -= len(body) + 5
    raise AssertionError("behind the last frame")


NONCE = bytes(range(16))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x05",
        frame(HELLO, hello().encode()),
        frame(PROOF, bytes(32)),
        frame(RESUME, bytes(32)),
        frame(CLOSE, b"\1go away"),
        frame(CHALLENGE, b"short"),
        frame(CHALLENGE, NONCE),
        frame(CHALLENGE, NONCE) + frame(PROOF, bytes(32)),
        frame(CHALLENGE, NONCE) + frame(PROOF, b""),
        frame(CHALLENGE, NONCE) + frame(PROOF, proof(b"a guess of 16 bytes", PROVES, NONCE, NONCE)),
        frame(CHALLENGE, NONCE) + frame(HELLO, hello().encode() + bytes(32)),
        frame(CHALLENGE, NONCE) + frame(RESUME, bytes(32)),
        frame(CHALLENGE, NONCE) + frame(CHALLENGE, NONCE),
        frame(CHALLENGE, NONCE) + b"\xff" * 8,
    ],
)
def test_a_stranger_learns_nothing(sent: bytes) -> None:
    """Neither id, address, zone, version nor settings, whatever it sends; and if it sends no challenge, not a word."""
    net = Net()
    config = config_of(SECRET)
    config.split_policy = "majority"
    b = net.start("b", config=config, member=Member("n1-secret-id", 1, "b:1", "rack", ACTIVE, 1, 1, "0.9.7"))
    peer = b.peers.connected(None, "stranger:1", False, net.now)
    b.peers.received(peer, sent, net.now)
    net.now += b.config.handshake_us
    b.peers.wake(net.now)
    assert peer.state == CLOSED
    told = peer.take_output()
    first, *others = frames_of(told)
    assert first == (CHALLENGE, peer.nonce)
    assert len(peer.nonce) == 16
    assert [kind for kind, _ in others] in ([], [CLOSE])
    assert not others or sent.startswith(frame(CHALLENGE, NONCE))
    assert [word for word in TELLING if word in told and word != b"cluster."] == []
    for _, body in others:
        assert body[1:] in CLOSING_WORDS


CLOSING_WORDS = (
    b"its secret is another one: cluster.secret_file must have the same content on all nodes",
    b"it has no secret, and this cluster has one: set cluster.secret_file there",
    b"it did not finish its handshake in time",
    b"its bytes are not frames of Folkmoot, or longer than allowed",
    *[b"it sent a frame of kind %d at the wrong time" % kind for kind in (HELLO, RESUME, CHALLENGE)],
)


def test_a_listener_that_does_not_know_the_secret_learns_nothing() -> None:
    """A node dials what its seeds name: somebody else may answer there."""
    net, a, _b = strangers(SECRET, SECRET)
    peer = a.peers.connected(None, "seed:1", True, net.now)
    a.peers.received(peer, frame(CHALLENGE, NONCE), net.now)
    a.peers.received(peer, frame(HELLO, hello().encode() + bytes(32)), net.now)
    assert peer.state == CLOSED
    kinds = [kind for kind, _ in frames_of(peer.take_output())]
    assert kinds == [CHALLENGE, PROOF, CLOSE]
    net.turn(a)
    assert "cluster.secret_file" in a.reasons("peer_refused")


def test_a_proof_of_another_connection_is_worth_nothing() -> None:
    net, a, b = strangers(SECRET, SECRET)
    line = net.connect(a, "b:1")
    assert line is not None
    said = bytes(line.ends[1].coming)
    net.settle()
    here = line.ends[0].peer
    proofs = frame(PROOF, proof(SECRET, PROVES, here.nonce, here.peer_nonce))
    again = b.peers.connected(None, "thief:1", False, net.now)
    b.peers.received(again, said, net.now)
    assert again.state == PROVING
    b.peers.received(again, proofs, net.now)
    assert again.state == CLOSED, "the nonce was another one"


@pytest.mark.parametrize("dialled_first", [True, False])
def test_a_node_is_not_made_to_answer_itself(dialled_first: bool) -> None:
    """A seed's address that a stranger has taken over: it dials back, and lets the node compute the proof for it."""
    net, a, _b = strangers(SECRET, SECRET)
    dialled = a.peers.connected(None, "seed:1", True, net.now)
    accepted = a.peers.connected(None, "stranger:1", False, net.now)
    first, second = (dialled, accepted) if dialled_first else (accepted, dialled)
    a.peers.received(first, frame(CHALLENGE, second.nonce + b"more"), net.now)
    assert first.state == CLOSED
    a.peers.received(second, frame(CHALLENGE, first.nonce), net.now)
    for kind, body in frames_of(dialled.take_output()):
        if kind == PROOF:
            a.peers.received(accepted, frame(PROOF, body), net.now)
    assert HELLO not in [kind for kind, _ in frames_of(accepted.take_output())]


def test_a_mac_is_worth_nothing_in_another_place() -> None:
    one, two, text = bytes(16), NONCE, hello().encode()
    macs = [
        proof(SECRET, label, *nonces, text)
        for label in (PROVES, DIALLER, LISTENER)
        for nonces in ((one, two), (two, one))
    ]
    assert len(set(macs)) == 6
    # RFC 2104: HMAC-SHA256 of a text that is written down here, computed in another way.
    import hashlib

    key = SECRET.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + b"folkmoot peer 2 L" + one + two + text).digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key) + inner).digest()
    assert proof(SECRET, LISTENER, one, two, text) == outer


def test_without_a_secret_there_is_nothing_to_prove() -> None:
    net, a, b = strangers(b"", b"")
    line = meet(a, b, net)
    assert [end.peer.state for end in line.ends] == [OPEN, OPEN]
    assert proof(b"", PROVES, NONCE, NONCE) == b""


def test_a_stranger_does_not_keep_a_starting_node_waiting() -> None:
    net, _a, b = strangers(SECRET, SECRET)
    for data in (frame(CLOSE, b"\1no"), frame(CHALLENGE, NONCE) + frame(PROOF, bytes(32))):
        peer = b.peers.connected(None, "stranger:1", False, net.now)
        b.peers.received(peer, data, net.now)
        assert peer.state == CLOSED
    assert b.peers.refused_us == 0


def test_who_cannot_prove_that_it_knows_the_secret_keeps_nobody_waiting() -> None:
    net, a, b = strangers(SECRET, b"quite another secret")
    meet(a, b, net)
    meet(b, a, net)
    assert (a.peers.refused_us, b.peers.refused_us) == (0, 0)
    peer = a.peers.connected(None, "stranger:1", True, net.now)
    a.peers.received(peer, frame(CHALLENGE, NONCE) + frame(CLOSE, b"\2no"), net.now)
    assert peer.state == CLOSED
    assert (a.peers.refused_us, a.peers.twin_us) == (0, 0)


def test_nodes_that_know_the_secret_and_refuse_each_other_wait() -> None:
    net = Net()
    a = net.start("a", config=config_of(SECRET))
    b = net.start("b", config=config_of(SECRET))
    b.peers._switch.greeter.hello.cluster = "another"
    meet(a, b, net)
    assert a.peers.refused_us > 0
    assert b.peers.refused_us > 0


def test_an_echo_is_not_taken_for_a_node() -> None:
    net, a, _b = strangers(SECRET, SECRET)
    peer = a.peers.connected(None, "echo:1", False, net.now)
    a.peers.received(peer, peer.take_output(), net.now)
    assert peer.state == CLOSED
    net.turn(a)
    assert a.changes == []


def test_nonces_differ_and_depend_on_the_secret() -> None:
    seed = bytes(16)
    seen = {nonce(secret, seed, count) for secret in (SECRET, b"") for count in range(100)}
    assert len(seen) == 200
    net, a, _b = strangers(SECRET, SECRET)
    said = [a.peers.connected(None, "x:1", True, net.now).nonce for _ in range(3)]
    assert len(set(said)) == 3


def test_a_stranger_cannot_have_much_kept() -> None:
    net, _a, b = strangers(SECRET, SECRET)
    peer = b.peers.connected(None, "stranger:1", False, net.now)
    b.peers.received(peer, (4096).to_bytes(4, "big") + bytes([CHALLENGE]), net.now)
    for _ in range(4000):
        b.peers.received(peer, b"x", net.now)
        assert peer.reader.held_bytes() <= 4100
    assert peer.state != CLOSED
    big = b.peers.connected(None, "stranger:2", False, net.now)
    b.peers.received(big, (4097).to_bytes(4, "big"), net.now)
    assert big.state == CLOSED, "refused by its length, before the bytes come"
    net.turn(b)
    assert "longer than allowed" in b.reasons("peer_refused")


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\x10\x0c\x00\x04MQTT"]
)
def test_other_protocols_are_refused_at_their_first_bytes(data: bytes) -> None:
    net, _a, b = strangers(SECRET, SECRET)
    peer = b.peers.connected(None, "stranger:1", False, net.now)
    b.peers.received(peer, data, net.now)
    assert peer.state == CLOSED


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_handshake_that_takes_too_long_is_ended(stage: int) -> None:
    net, a, b = strangers(SECRET, SECRET)
    line = net.connect(a, "b:1")
    assert line is not None
    for _ in range(stage):
        net.deliver(line, 1, 1 << 20)
        net.deliver(line, 0, 1 << 20)
    peer = line.ends[1].peer
    assert peer.state == (CHALLENGED, PROVING, INTRODUCING)[stage]
    line.half_dead = True
    net.now += b.config.handshake_us - 1
    net.wake()
    assert peer.state != CLOSED
    net.now += 1
    net.wake()
    assert peer.state == CLOSED
    assert "in time" in b.reasons("peer_refused")


def test_too_many_strangers_push_out_their_oldest_and_no_known_peer() -> None:
    net, a, b = strangers(SECRET, SECRET)
    meet(a, b, net)
    waiting = [b.peers.connected(None, f"stranger:{number}", False, net.now) for number in range(HANDSHAKES_MAX)]
    net.turn(b)
    assert all(peer.state != CLOSED for peer in waiting)
    b.peers.connected(None, "stranger:last", False, net.now)
    net.turn(b)
    assert [peer.state == CLOSED for peer in waiting[:3]] == [True, False, False]
    assert b.peers.up_ids() == ["a"]


@settings(max_examples=300)
@given(st.integers(0, 600), st.integers(1, 255), st.booleans())
def test_a_changed_byte_never_lets_anybody_in(position: int, mask: int, to_listener: bool) -> None:
    """Whatever is changed in HELLO or PROOF: no change is told by a side that saw it, and nothing is raised."""
    net, a, _b = strangers(SECRET, SECRET)
    line = net.connect(a, "b:1")
    assert line is not None
    end = line.ends[1 if to_listener else 0]
    passed = 0
    for _ in range(50):
        start = passed
        passed += len(end.coming)
        if start <= position < passed:
            # Behind the last HELLO a RESUME may follow at once, which is not covered.
            proved = end.peer.state >= RESUMING or kind_at(bytes(end.coming), position - start) == RESUME
            end.coming[position - start] ^= mask
        net.deliver(line, 1, 1 << 20)
        net.deliver(line, 0, 1 << 20)
    if position >= passed or proved:
        return
    assert end.site.changes == []


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=60)), max_size=5))
def test_no_frames_of_a_stranger_raise_or_open(frames: list[tuple[int, bytes]]) -> None:
    net, _a, b = strangers(SECRET, SECRET)
    peer = b.peers.connected(None, "stranger:1", False, net.now)
    for kind, body in frames:
        b.peers.received(peer, frame(kind, body), net.now)
    net.turn(b)
    assert b.changes == []
    assert peer.state != OPEN

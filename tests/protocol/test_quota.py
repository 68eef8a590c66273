"""Quotas of users: what one has used up is refused to it, with the right code, and to nobody else."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, V311, Connack, Connect, Publish, Will
from folkmoot.session.account import Account
from folkmoot.sim.check_quota import miscounted
from folkmoot.store.key import RETAINED, kind_of
from folkmoot.store.message import decode_message
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.memory import CALM
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster
from tests.harness.version import BOTH

MIB = 1 << 20
UNMATCHED = 0x10


def named(make: MakeBox, **limits: int | bool) -> Box:
    """A box whose clients prove their user names."""
    return make(limits=limits, check=lambda _username, _password, _client: True)


def account(box: Box, name: str) -> Account:
    return box.node._state.accounts.of(name)


def enter(
    box: Box,
    name: str,
    client: str,
    *,
    code: int = 0,
    version: int = V5,
    stored: bool = False,
    will: Will | None = None,
) -> Peer:
    """Connect a client of a user."""
    peer = box.client(client, version)
    again(peer, name, code=code, stored=stored, will=will)
    return peer


def again(peer: Peer, name: str, *, code: int = 0, stored: bool = False, will: Will | None = None) -> None:
    expiry = EVER if stored else None
    peer.connect(username=name, password=b"x", code=code, clean_start=not stored, will=will, session_expiry=expiry)


def refusal(version: int) -> int:
    """0x97 in CONNACK; before version 5 the return code for a server that is not available."""
    return 0x97 if version == V5 else 3


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_user_cannot_fill_the_memory_with_deep_filters(make: MakeBox) -> None:
    """Each level may be a branch of the tree of its own: some 300 bytes for each 2 of a SUBSCRIBE."""
    box = named(make, memory_bytes_max=2 << 20, user_share_max=50)
    peer = enter(box, "ann", "a")
    deep = [f"{number}" + "/x" * 120 + "/#" for number in range(40)]
    codes = peer.subscribe(*deep)
    fits = codes.count(0)
    assert 10 < fits < 25, "a half of 70 percent of 2 MiB"
    assert codes == [0] * fits + [0x97] * (40 - fits)
    assert account(box, "ann").kept_bytes == fits * (300 * 118) + sum(2 * (len(name) - 64) for name in deep[:fits])
    assert enter(box, "bob", "b").subscribe(*deep[:5]) == [0] * 5
    peer.unsubscribe(*deep[:3])
    assert peer.subscribe(*deep[fits : fits + 5]) == [0] * 3 + [0x97] * 2
    assert not miscounted(box.node)
    peer.lose()
    assert account(box, "ann").kept_bytes == 0
    assert not miscounted(box.node)


@BOTH
def test_a_user_cannot_fill_the_memory_with_wills(make: MakeBox, version: int) -> None:
    box = named(make, memory_bytes_max=2 << 20, user_share_max=50)
    will = Will(b"w", bytes(60_000), 0, False)
    peers = [enter(box, "ann", f"a{number}", will=will, version=version) for number in range(11)]
    refused = enter(box, "ann", "a", will=will, code=refusal(version), version=version)
    assert refused.closed
    enter(box, "bob", "b", will=will, version=version)
    assert not miscounted(box.node)
    peers[0].lose()
    enter(box, "ann", "a", will=will, version=version)
    assert not miscounted(box.node)


@BOTH
def test_a_user_cannot_fill_the_memory_with_wills_of_sessions_that_are_there(make: MakeBox, version: int) -> None:
    box = named(make, memory_bytes_max=2 << 20, user_share_max=50)
    peers = [enter(box, "ann", f"a{number}", stored=True, version=version) for number in range(20)]
    will = Will(b"w", bytes(60_000), 0, False)
    refused = []
    for peer in peers:
        peer.disconnect()
        expiry = properties(session_expiry=EVER) if version == V5 else None
        peer.open().send(Connect(version, peer.client_id, False, 0, "ann", b"x", will, expiry))
        refused.append(peer.expect(Connack).code)
    assert refused.count(0) == 10, "a half of 70 percent of 2 MiB"
    assert set(refused[10:]) == {refusal(version)}
    assert account(box, "ann").fits_memory(0)
    enter(box, "ann", "a0", stored=True, will=will, version=version)  # in the place of its own
    enter(box, "bob", "b", will=will, version=version)
    assert not miscounted(box.node)


@BOTH
def test_a_user_cannot_fill_the_memory_with_connections_of_sessions_that_are_there(make: MakeBox, version: int) -> None:
    """A stored session takes less than its connection."""
    box = named(make, memory_bytes_max=2 << 20, user_share_max=10)
    peers = [box.client(f"a{number}", version) for number in range(80)]
    for peer in peers:
        again(peer, "ann", stored=True)
        peer.disconnect()
    codes = []
    for peer in peers:
        expiry = properties(session_expiry=EVER) if version == V5 else None
        peer.open().send(Connect(version, peer.client_id, False, 0, "ann", b"x", None, expiry))
        codes.append(peer.expect(Connack).code)
    assert 0 < codes.count(0) < 20
    assert set(codes) == {0, refusal(version)}
    assert account(box, "ann").fits_memory(0)
    enter(box, "ann", "a0", stored=True, version=version)  # in the place of its own
    enter(box, "bob", "b", version=version)
    assert not miscounted(box.node)


@BOTH
def test_what_a_stored_session_takes_counts_after_a_restart(make: MakeBox, version: int) -> None:
    box = named(make, memory_bytes_max=2 << 20)
    will = Will(b"w", bytes(1000), 0, False)
    peer = enter(box, "ann", "a", stored=True, will=will, version=version)
    peer.subscribe("x" + "/x" * 50 + "/#", "a/+")
    before = account(box, "ann").kept_bytes
    assert before > 1000 + 48 * 300
    box.restart()
    assert account(box, "ann").kept_bytes in (before, before - 1000 - 1), "the will may have been published"
    assert not miscounted(box.node)


def fill(peer: Peer, stem: str, depth: int) -> int:
    """Subscribe until it is refused; return how often it was granted."""
    granted = 0
    while True:
        filters = [f"{stem}/{granted + number}" + "/x" * depth + "/#" for number in range(20)]
        codes = peer.subscribe(*filters)
        granted += codes.count(0)
        if 0x97 in codes:
            return granted


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_user_fills_no_node_with_what_the_others_announce(expiry_s: int) -> None:
    """The filters of all nodes are at every node, and there nobody knows whose they are."""
    three = SimulatedCluster(
        3, partitions=16, check=lambda _username, _password, _client: True, limits={"memory_bytes_max": 4 * MIB}
    )
    names = ("n1", "n2", "n3")
    will = Will(b"w", bytes(60_000), 0, False)
    wills = 0
    while wills < 100:  # all that the user may have at one node, before there is a subscription
        peer = three["n1"].client(three["n1"].names_led("w")[wills])
        peer.open().send(Connect(5, peer.client_id, True, 0, "ann", b"x", will, None))
        if peer.expect(Connack).code:
            break
        wills += 1
    assert 30 < wills < 50
    for name in names:
        peer = three[name].client(three[name].names_led("c")[0])
        peer.connect(username="ann", password=b"x", session_expiry=expiry_s)
        granted = fill(peer, name, 60) if name != "n1" else 0
        assert granted > 5 or name == "n1"
    three.advance(SECOND)
    for name in names:
        memory = three[name].node._state.memory
        assert memory.stage == CALM
        assert memory.used < 0.85 * memory.budget
        assert memory.interest_bytes > 0.05 * memory.budget
        assert not miscounted(three[name].node)
        peer = three[name].client(three[name].names_led("d")[0])
        peer.connect(username="bob", password=b"x", session_expiry=expiry_s)
        assert peer.subscribe("other/" + "x/" * 60 + "#") == [0]
    three["n3"].crash()
    three.advance(5 * SECOND)
    assert not miscounted(three["n1"].node)


# -- the disk ---------------------------------------------------------------------------------------------------------


def stored(box: Box, name: str, topic: str, count: int) -> Peer:
    """A client that is away, and has a queue of `count` MiB."""
    peer = enter(box, name, f"{name}-stored", stored=True)
    peer.subscribe(topic, qos=1)
    peer.lose()
    publisher = enter(box, "source", "source")
    for _ in range(count):
        assert publisher.publish(topic, bytes(MIB - 10), qos=1) == 0
    return peer


def low(box: Box, flag: bool) -> None:
    box.node.disk_low(flag, box.now)
    box.run()


def test_a_user_with_much_on_a_disk_that_is_low_leaves_the_rest_to_the_others(make: MakeBox) -> None:
    """It may have a tenth of what is stored, or 16 MiB."""
    box = named(make, packet_bytes_max=2 * MIB)
    stored(box, "ann", "a", 17)
    bob = stored(box, "bob", "b", 15)
    low(box, True)
    publisher = enter(box, "source", "source")
    for topic in ("a", "b", "b", "a"):
        assert publisher.publish(topic, bytes(MIB - 10), qos=1) == 0
    assert account(box, "ann").queue_bytes // (MIB - 9) == 17
    assert account(box, "bob").queue_bytes // (MIB - 9) == 16, "the last one is too much"
    assert box.node.counters.dropped_user_quota == 3
    low(box, False)
    assert publisher.publish("b", b"x", qos=1) == 0
    again(bob, "bob", stored=True)
    assert bob.payloads()[-1] == b"x"
    kinds = [event.kind for event in box.events if event.kind.startswith("storage")]
    assert kinds == ["storage_low", "storage_has_enough"]
    full = [event.fields for event in box.events if event.kind == "quota_exceeded"]
    assert full == [{"user": "ann", "what": "disk"}, {"user": "bob", "what": "disk"}]


def test_messages_that_a_user_has_retained_count_too(make: MakeBox) -> None:
    box = named(make, packet_bytes_max=2 * MIB)
    peer = enter(box, "ann", "a")
    enter(box, "bob", "b")
    for number in range(17):
        assert peer.publish(f"r/{number}", bytes(MIB), qos=1, retain=True) == UNMATCHED
    low(box, True)
    assert peer.publish("r/17", b"small", qos=1, retain=True) == 0x97
    assert peer.publish("r/1", b"instead", qos=1, retain=True) == UNMATCHED, "it may have less"
    assert peer.publish("r/1", bytes(MIB), qos=1, retain=True) == 0x97, "but not more again"
    assert enter(box, "bob", "b2").publish("r/bob", bytes(1000), qos=1, retain=True) == UNMATCHED


def test_a_user_that_is_alone_has_the_whole_disk(make: MakeBox) -> None:
    box = named(make, packet_bytes_max=2 * MIB)
    peer = enter(box, "ann", "a")
    for number in range(17):
        assert peer.publish(f"r/{number}", bytes(MIB), qos=1, retain=True) == UNMATCHED
    low(box, True)
    assert peer.publish("r/17", b"more", qos=1, retain=True) == UNMATCHED


# -- connections and sessions -----------------------------------------------------------------------------------------


@BOTH
def test_a_user_has_so_many_connections(make: MakeBox, version: int) -> None:
    box = named(make, user_connections_max=2)
    first, _ = enter(box, "ann", "a1"), enter(box, "ann", "a2")
    assert enter(box, "ann", "a3", code=refusal(version), version=version).closed
    enter(box, "bob", "b1")
    assert box.node.counters.quota_refused_connections == 1
    assert [event.fields for event in box.events if event.kind == "quota_exceeded"] == [
        {"user": "ann", "what": "connections"}
    ]
    first.lose()
    enter(box, "ann", "a3")


def test_a_client_that_returns_takes_no_other_place(make: MakeBox) -> None:
    """Its old connection is still open, because the network has not said that it is dead."""
    box = named(make, user_connections_max=1, user_sessions_max=1)
    old = enter(box, "ann", "a", stored=True)
    new = box.client("a")
    again(new, "ann", stored=True)
    old.expect_close(0x8E)
    assert account(box, "ann").connections == 1
    assert account(box, "ann").sessions == 1


def test_no_connection_is_counted_twice_or_kept(make: MakeBox) -> None:
    box = named(make)
    for number in range(3):
        peer = enter(box, "ann", f"a{number}", stored=True)
        if number:
            peer.lose()
        else:
            peer.disconnect()
    assert account(box, "ann").connections == 0
    assert account(box, "ann").sessions == 3


def test_a_user_has_so_many_sessions_stored_ones_included(make: MakeBox) -> None:
    box = named(make, user_sessions_max=2)
    first = enter(box, "ann", "a1", stored=True)
    first.lose()
    enter(box, "ann", "a2")
    enter(box, "ann", "a3", code=0x97)
    enter(box, "bob", "b1", stored=True)
    again(first, "ann", stored=True)  # its own session is there
    first.disconnect(session_expiry=0)
    enter(box, "ann", "a3")
    assert box.node.counters.quota_refused_sessions == 1


def test_sessions_are_counted_again_after_a_restart(make: MakeBox) -> None:
    box = named(make, user_sessions_max=1, user_subscriptions_max=2, user_queue_bytes_max=100)
    peer = enter(box, "ann", "a1", stored=True)
    peer.subscribe("t", "u", qos=1)
    peer.lose()
    enter(box, "bob", "b").publish("t", bytes(60), qos=1)
    before = repr(account(box, "ann"))
    box.restart()
    assert repr(account(box, "ann")) == before
    assert account(box, "ann").queue_bytes == 61
    enter(box, "ann", "a2", code=0x97)


def test_nobody_takes_all_places_of_a_node(make: MakeBox) -> None:
    """Without any quota of its own, a user gets nine tenths of what there is; names that prove nothing get all."""
    box = make(limits={"sessions_max": 10}, check=lambda *_: True, bystander=False)
    for number in range(9):
        enter(box, "ann", f"a{number}")
    enter(box, "ann", "a9", code=0x97)
    enter(box, "bob", "b")
    open_box = make(limits={"sessions_max": 10}, bystander=False)
    for number in range(10):
        enter(open_box, "ann", f"a{number}")


def test_anonymous_clients_fall_under_no_quota_of_a_user(make: MakeBox) -> None:
    box = named(make, user_sessions_max=2, user_connections_max=2)
    for number in range(5):
        box.client(f"c{number}").connect()
    strict = named(make, user_sessions_max=3, user_anonymous_as_one=True)  # the bystander is one of them
    for number in range(2):
        strict.client(f"c{number}").connect()
    strict.client("c2").connect(code=0x97)


# -- subscriptions ----------------------------------------------------------------------------------------------------


@BOTH
def test_a_user_has_so_many_subscriptions(make: MakeBox, version: int) -> None:
    box = named(make, user_subscriptions_max=3)
    first = enter(box, "ann", "a1", version=version)
    second = enter(box, "ann", "a2", version=version)
    assert first.subscribe("1", "2", qos=1) == [1, 1]
    refused = 0x97 if version == V5 else 0x80
    assert second.subscribe("1", "2", "3", qos=1) == [1, refused, refused]
    assert second.subscribe("1", qos=0) == [0], "one that is there can be replaced"
    assert enter(box, "bob", "b").subscribe("1", "2", "3") == [0, 0, 0]
    first.unsubscribe("1")
    assert second.subscribe("2") == [0]
    first.disconnect()
    assert second.subscribe("3") == [0]
    assert box.node.counters.quota_refused_subscriptions == 2


# -- queues -----------------------------------------------------------------------------------------------------------


def test_all_queues_of_a_user_share_their_bytes(make: MakeBox) -> None:
    box = named(make, user_queue_bytes_max=1000)
    for number in range(3):
        peer = enter(box, "ann", f"a{number}", stored=True)
        peer.subscribe("t", qos=1)
        peer.lose()
    other = enter(box, "bob", "b", stored=True)
    other.subscribe("t", qos=1)
    other.lose()
    publisher = enter(box, "carl", "c")
    for number in range(10):
        assert publisher.publish("t", bytes([number]) * 99, qos=1) == 0
    assert account(box, "ann").queue_bytes == 1000
    assert box.node.counters.dropped_user_quota == 20
    assert box.node.counters.dropped_queue_full == 0
    again(other, "bob", stored=True)
    assert len(other.payloads()) == 10, "another user loses nothing"
    assert account(box, "bob").queue_bytes == 0


def test_a_client_that_reads_gets_messages_whatever_waits_for_others_of_its_user(make: MakeBox) -> None:
    box = named(make, user_queue_bytes_max=500)
    absent = enter(box, "ann", "a1", stored=True)
    absent.subscribe("t", qos=1)
    absent.lose()
    present = enter(box, "ann", "a2", stored=True)
    transient = enter(box, "ann", "a3")
    for peer in (present, transient):
        peer.subscribe("t", qos=1)
    publisher = enter(box, "bob", "b")
    for _ in range(20):
        publisher.publish("t", bytes(99), qos=1)
    assert len(present.payloads()) == 20
    assert len(transient.payloads()) == 20
    assert account(box, "ann").queue_bytes == 500


def test_a_full_quota_drops_the_oldest_where_queues_do(make: MakeBox) -> None:
    box = named(make, user_queue_bytes_max=300, queue_full_drops_oldest=True)
    peer = enter(box, "ann", "a", stored=True)
    peer.subscribe("t", qos=1)
    peer.lose()
    publisher = enter(box, "bob", "b")
    for number in range(6):
        publisher.publish("t", bytes([number]) * 99, qos=1)
    again(peer, "ann", stored=True)
    assert [payload[0] for payload in peer.payloads()] == [3, 4, 5]


# -- retained messages ------------------------------------------------------------------------------------------------


def retained_owners(box: Box) -> dict[str, str]:
    """Return the users in the rows of retained messages, by topic."""
    found = {}
    for key, value in box.store.scan(b"", b"\xff" * 8, 10_000):
        if kind_of(key) == RETAINED and key[:2] != b"\xff\xff":
            message = decode_message(value, VERSION_BYTES)
            found[message.topic.decode()] = message.owner
    return found


@BOTH
def test_a_user_retains_so_many_messages(make: MakeBox, version: int) -> None:
    box = named(make, user_retained_messages_max=2)
    ann = enter(box, "ann", "a", version=version)
    assert [ann.publish(topic, b"x", qos=1, retain=True) in (0, 0x10) for topic in ("1", "2")] == [True, True]
    bob = enter(box, "bob", "b")
    bob.subscribe("#")
    bob.receive()
    if version == V5:
        assert ann.publish("3", b"x", qos=1, retain=True) == 0x97
        assert ann.publish("3", b"x", qos=2, retain=True) == 0x97
    else:  # it has no refusal for a PUBLISH: the connection ends, and the client sends the message again
        ann.send(Publish(b"3", b"x", 1, retain=True, packet_id=77))
        ann.expect_close()
        again(ann, "ann")
    assert bob.payloads() == [], "what is refused is not delivered"
    assert ann.publish("1", b"another", qos=1, retain=True) in (0, 0x10), "its own can be replaced"
    assert bob.messages() == [("1", b"another")]
    assert bob.publish("4", b"x", qos=1, retain=True) in (0, 0x10)
    ann.publish("2", b"", qos=1, retain=True)  # and cleared
    assert ann.publish("3", b"x", qos=1, retain=True) in (0, 0x10)
    assert retained_owners(box) == {"1": "ann", "3": "ann", "4": "bob"}


def test_retained_bytes_are_limited_and_a_small_replacement_always_fits(make: MakeBox) -> None:
    box = named(make, user_retained_bytes_max=10_000)
    ann = enter(box, "ann", "a")
    assert ann.publish("1", bytes(5000), qos=1, retain=True) in (0, 0x10)
    assert ann.publish("2", bytes(4990), qos=1, retain=True) in (0, 0x10)
    assert ann.publish("3", b"x" * 20, qos=1, retain=True) == 0x97
    assert ann.publish("2", bytes(5500), qos=1, retain=True) == 0x97, "a larger one takes more"
    assert ann.publish("2", bytes(100), qos=1, retain=True) in (0, 0x10)
    assert ann.publish("3", bytes(4880), qos=1, retain=True) in (0, 0x10)
    assert ann.publish("2", bytes(4000), qos=1, retain=True) in (0, 0x10)
    assert account(box, "ann").retained_bytes == 5001 + 4001 + 4881


def test_who_replaces_the_message_of_another_has_it_from_then_on(make: MakeBox) -> None:
    box = named(make, user_retained_messages_max=1)
    ann, bob, carl = (enter(box, name, name) for name in ("ann", "bob", "carl"))
    ann.publish("1", b"x", qos=1, retain=True)
    bob.publish("2", b"x", qos=1, retain=True)
    assert bob.publish("1", b"y", qos=1, retain=True) == 0x97
    assert carl.publish("1", b"y", qos=1, retain=True) in (0, 0x10)
    assert (account(box, "ann").retained_messages, account(box, "carl").retained_messages) == (0, 1)
    assert ann.publish("3", b"x", qos=1, retain=True) in (0, 0x10)


def test_retained_messages_belong_to_their_users_after_a_restart(make: MakeBox) -> None:
    box = named(make, user_retained_messages_max=2)
    ann = enter(box, "ann", "a")
    for topic in ("1", "2"):
        ann.publish(topic, b"x", qos=1, retain=True)
    box.restart()
    assert account(box, "ann").retained_messages == 2
    again(ann, "ann")
    assert ann.publish("3", b"x", qos=1, retain=True) == 0x97
    assert ann.publish("2", b"y", qos=1, retain=True) in (0, 0x10)


def test_the_will_of_a_user_is_retained_in_its_name(make: MakeBox) -> None:
    box = named(make, user_retained_messages_max=1)
    enter(box, "ann", "a", will=Will(b"gone", b"a", 1, retain=True)).lose()
    assert retained_owners(box) == {"gone": "ann"}
    enter(box, "ann", "b", will=Will(b"also", b"b", 1, retain=True)).lose()
    assert retained_owners(box) == {"gone": "ann"}
    assert box.node.counters.quota_refused_retained == 1


def test_a_will_beyond_the_quota_is_published_and_not_retained(make: MakeBox) -> None:
    box = named(make, user_retained_messages_max=1)
    watcher = enter(box, "carl", "c")
    watcher.subscribe("#", qos=1)
    enter(box, "ann", "a", will=Will(b"gone", b"a", 1, retain=True)).lose()
    enter(box, "ann", "b", will=Will(b"also", b"b", 1, retain=True)).lose()
    assert watcher.messages() == [("gone", b"a"), ("also", b"b")]
    assert retained_owners(box) == {"gone": "ann"}
    assert [event.fields for event in box.events if event.kind == "will_not_retained"] == [
        {"client": "b", "topic": "also"}
    ]


def test_without_names_no_row_names_anybody(make: MakeBox) -> None:
    box = make(limits={"user_retained_messages_max": 1})
    peer = enter(box, "ann", "a")
    for topic in ("1", "2"):
        assert peer.publish(topic, b"x", qos=1, retain=True) in (0, 0x10)
    assert retained_owners(box) == {"1": "", "2": ""}


# -- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_clients_of_a_user_share_one_rate(make: MakeBox, qos: int) -> None:
    """Nothing is dropped, and the others are as fast as before."""
    box = named(make, user_publish_rate_max=10)
    watcher = enter(box, "carl", "c")
    watcher.subscribe("t/#")
    peers = [enter(box, "ann", f"a{number}") for number in range(2)]
    bob = enter(box, "bob", "b")
    for number in range(20):
        for at, peer in enumerate(peers):
            peer.send(Publish(b"t/%d" % at, b"%d" % number, qos, packet_id=number + 1 if qos else 0))
        if number < 9:
            bob.send(Publish(b"t/bob", b"%d" % number))
    came = watcher.messages()
    assert len([topic for topic, _ in came if topic == "t/bob"]) == 9
    assert 10 <= len([topic for topic, _ in came if topic != "t/bob"]) <= 12
    assert all(peer.paused for peer in peers)
    assert not bob.paused
    assert box.node.counters.quota_pauses >= 2
    box.advance(10 * SECOND)
    came += watcher.messages()
    for at in range(2):
        assert [payload for topic, payload in came if topic == f"t/{at}"] == [b"%d" % number for number in range(20)]
    assert not any(peer.paused for peer in peers)


def test_bytes_have_a_rate_too(make: MakeBox) -> None:
    box = named(make, user_publish_bytes_max=1000)
    peer = enter(box, "ann", "a")
    for _ in range(3):
        peer.send(Publish(b"t", bytes(500)))
    assert peer.paused
    box.advance(2 * SECOND)
    assert not peer.paused


def test_a_paused_user_is_not_taken_for_dead_and_leaves_nothing(make: MakeBox) -> None:
    box = named(make, user_publish_rate_max=1)
    peer = box.client("a")
    peer.connect(username="ann", password=b"x", keep_alive_s=1)
    for _ in range(5):
        peer.send(Publish(b"t", b""))
    box.advance(3 * SECOND)
    assert not peer.closed
    peer.lose()
    box.advance(10 * SECOND)
    enter(box, "ann", "b").lose()
    assert len(box.node._state.accounts) == 0


def test_a_quota_is_logged_once_in_an_hour(make: MakeBox) -> None:
    box = named(make, user_connections_max=1)
    enter(box, "ann", "a")
    for number in range(5):
        enter(box, "ann", f"b{number}", code=0x97)
    assert box.kinds().count("quota_exceeded") == 1
    box.advance(3600 * SECOND)
    enter(box, "ann", "c", code=0x97)
    assert box.kinds().count("quota_exceeded") == 2


def test_names_that_are_not_checked_any_more_leave_no_wrong_count(make: MakeBox) -> None:
    """What counts for a user counts for it until it ends."""
    box = named(make)
    ann = enter(box, "ann", "a", stored=True)
    ann.subscribe("t", qos=1)
    for topic in ("1", "2"):
        ann.publish(topic, b"x", qos=1, retain=True)
    box.node._state.accounts.check_names(False)
    ann.publish("1", b"", qos=1, retain=True)
    ann.publish("2", b"other", qos=1, retain=True)
    assert miscounted(box.node) == ""
    ann.disconnect(session_expiry=0)
    assert miscounted(box.node) == ""
    box.node._state.accounts.check_names(True)
    enter(box, "ann", "a").publish("2", b"", qos=1, retain=True)
    assert miscounted(box.node) == ""


def test_the_old_versions_of_a_row_are_read(make: MakeBox) -> None:
    """A message without a user counts for nobody."""
    box = named(make, user_retained_messages_max=1)
    box.client("anonymous", V311).connect()
    peer = box.client("p")
    peer.connect()
    for topic in ("1", "2", "3"):
        peer.publish(topic, b"x", qos=1, retain=True)
    box.restart()
    assert box.node._state.accounts.anonymous.retained_messages == 3
    assert enter(box, "ann", "a").publish("1", b"y", qos=1, retain=True) in (0, 0x10)
    assert box.node._state.accounts.anonymous.retained_messages == 2

"""After a reload everything that is open is judged again, and what ends says why."""

from __future__ import annotations

import pytest

from folkmoot.auth.access import Access
from folkmoot.auth.acl import BOTH as ANYTHING
from folkmoot.auth.acl import PUBLISH, SUBSCRIBE, Rule
from folkmoot.auth.policy import Policy
from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBCOMP, PUBREL, V5, Ack, Connect, Disconnect, Publish, Will
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster
from tests.harness.version import BOTH

USERS = {"ann": "hash of ann", "bob": "hash of bob"}


def everybody(username: str | None, password: bytes | None, client_id: str) -> bool:
    return True


@pytest.fixture
def watched(make: MakeBox) -> Box:
    return make(check=everybody, users=dict(USERS), streams=[StreamConfig("s", b"t/#", 1)])


def reload(box: Box, users: dict[str, str] | None = None, **settings: object) -> None:
    """Put other rules into force at one node."""
    access = box.config.access()
    access.users = box.config.users if users is None else users
    for name, value in settings.items():
        assert hasattr(access, name), name
        setattr(access, name, value)
    box.node.reload(access, box.now)
    box.run()


def enter(box: Box, name: str | None, client_id: str = "", version: int = V5, **named: object) -> Peer:
    peer = box.client(client_id or f"c-{name}", version)
    peer.connect(username=name, password=None if name is None else b"", **named)  # type: ignore[arg-type]
    return peer


def why(peer: Peer) -> str:
    """The reason that the client was told."""
    said = peer.take(Disconnect)
    assert said.code == 0x87
    assert said.properties is not None
    return said.properties.reason or ""


def test_a_reload_without_a_change_ends_nothing(watched: Box) -> None:
    peers = [enter(watched, "ann", will=Will(b"w", b"", 0, False)), enter(watched, "bob"), enter(watched, None)]
    peers[0].subscribe("t/#", "$stream/s/earliest/#")
    reload(watched)
    for peer in peers:
        peer.ping()


@BOTH
def test_a_removed_user_is_disconnected_and_only_that_one(watched: Box, version: int) -> None:
    ann, bob = enter(watched, "ann", version=version), enter(watched, "bob")
    reload(watched, {"bob": USERS["bob"]})
    assert ann.closed
    if version == V5:
        assert why(ann) == "the user was removed"
    bob.ping()
    assert watched.node.counters.connections_revoked == 1


def test_a_changed_password_ends_connections_by_the_old_one(watched: Box) -> None:
    ann, watcher = enter(watched, "ann", session_expiry=EVER, will=Will(b"w", b"gone", 0, False)), enter(watched, "bob")
    watcher.subscribe("w")
    ann.subscribe("t/#", qos=1)
    reload(watched, {**USERS, "ann": "another hash"})
    assert why(ann) == "the password was changed"
    assert watcher.payloads() == [b"gone"], "the user may publish it as before"
    assert ann.resume(username="ann", password=b"").session_present
    reload(watched, {**USERS, "ann": "another hash"})
    ann.ping()


def test_anonymous_clients_end_when_they_are_not_allowed_any_more(watched: Box) -> None:
    ann, nobody = enter(watched, "ann"), enter(watched, None)
    reload(watched, allow_anonymous=False)
    assert why(nobody) == "anonymous clients are not allowed any more"
    ann.ping()


def test_names_by_certificates_end_with_that_setting(make: MakeBox) -> None:
    box = make(user_from_certificate=True)
    peer = box.client("a").open("tls", certificate_name="ann")
    peer.connect()
    reload(box)
    peer.ping()
    reload(box, user_from_certificate=False)
    assert why(peer) == "certificates do not name users any more"


def test_what_the_driver_revokes_ends_with_its_reason(watched: Box) -> None:
    ann = enter(watched, "ann", will=Will(b"w", b"gone", 0, False))
    watcher = enter(watched, "bob")
    watcher.subscribe("w")
    assert ann.connection is not None
    watched.node.revoke(ann.connection, "the certificate is not trusted any more", watched.now)
    watched.run()
    assert why(ann) == "the certificate is not trusted any more"
    assert watcher.payloads() == []


def test_a_client_id_that_may_not_be_used_any_more_ends(watched: Box) -> None:
    ann, other, given = enter(watched, "ann", "ann-1"), enter(watched, "ann", "x"), watched.client("")
    given.connect(username="ann", password=b"")
    reload(watched, client_ids=["%u-*", "bystander"])
    assert "client id" in why(other)
    ann.ping()
    given.ping()


@pytest.mark.parametrize("delay_s", [0, 60])
@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_the_will_of_a_removed_user_is_not_published(watched: Box, delay_s: int, expiry_s: int) -> None:
    """Neither at once, because its connection ends, nor later, because its delay has passed or its session ends."""
    watcher = enter(watched, "bob")
    watcher.subscribe("w")
    will = Will(b"w", b"gone", 0, False)
    ann = enter(watched, "ann", "a", will=will, session_expiry=expiry_s)
    away = enter(watched, "ann", "b", will=will, session_expiry=EVER)
    away.lose()
    assert watcher.payloads() == [b"gone"]
    reload(watched, {"bob": USERS["bob"]})
    assert ann.closed
    watched.advance(120 * SECOND)
    assert watcher.payloads() == []


@pytest.mark.parametrize("restart", [False, True])
def test_a_stored_will_is_judged_when_it_is_due(watched: Box, restart: bool) -> None:
    watcher = enter(watched, "bob")
    watcher.subscribe("w/#")
    for user, topic in (("ann", b"w/ann"), ("bob", b"w/bob"), ("bob", b"w/denied")):
        made = Will(topic, topic, 0, False, properties(will_delay=60))
        enter(watched, user, topic.decode().replace("/", "-"), will=made, session_expiry=EVER).lose()
    rules = [Rule(False, PUBLISH, "*", "*", [b"w/denied"])]
    if restart:
        watched.config.users = {"bob": USERS["bob"]}
        watched.config.policy = Policy(rules, True)
        watched.crash()
        watcher.connect(username="bob", password=b"")
        watcher.subscribe("w/#")
    else:
        reload(watched, {"bob": USERS["bob"]}, policy=Policy(rules, True))
    watched.advance(61 * SECOND)
    assert watcher.payloads() == [b"w/bob"]
    assert watched.node.counters.wills_revoked == 2
    assert watched.node.counters.wills_pending == 0
    watched.crash()
    watched.advance(61 * SECOND)
    assert watched.node.counters.wills_pending == 0, "their rows are gone"


def test_a_will_that_would_be_refused_now_ends_its_connection(watched: Box) -> None:
    ann, watcher = enter(watched, "ann", will=Will(b"w", b"gone", 0, False)), enter(watched, "bob")
    watcher.subscribe("w")
    reload(watched, policy=Policy([Rule(False, PUBLISH, "ann", "*", [b"w"])], True))
    assert "will" in why(ann)
    assert watcher.payloads() == []


@pytest.mark.parametrize("expiry_s", [0, 60])
@pytest.mark.parametrize("how", ["lost", "taken over", "a second CONNECT"])
def test_a_will_is_judged_in_the_turn_of_the_reload_too(watched: Box, how: str, expiry_s: int) -> None:
    """Its client has no time to end its connection before it is judged itself."""
    will = Will(b"w", b"gone", 1, True)
    ann, watcher = enter(watched, "ann", will=will, session_expiry=expiry_s), enter(watched, "bob")
    watcher.subscribe("w")
    access = watched.config.access()
    access.users = dict(USERS)
    access.policy = Policy([Rule(False, PUBLISH, "ann", "*", [b"w"])], True)
    watched.node.reload(access, watched.now)
    assert ann.connection is not None
    if how == "lost":
        ann.lose()
    elif how == "taken over":
        other = watched.client("c-ann")
        other.connect(username="ann", password=b"", session_expiry=expiry_s)
    else:
        watched.node.receive(
            ann.connection, encode(Connect(5, "c-ann", True, 0, "ann", b"", None, None), 5), watched.now
        )
    watched.advance(120 * SECOND)
    assert watcher.payloads() == []
    assert watched.node.counters.retained_messages == 0


def without(topics: bytes) -> Policy:
    return Policy([Rule(False, SUBSCRIBE, "ann", "*", [topics])], True)


@pytest.mark.parametrize("name", ["t/x", "$share/g/t/x", "$stream/s/earliest/#"])
@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_subscription_that_is_not_allowed_any_more_ends_and_is_told(watched: Box, name: str, expiry_s: int) -> None:
    ann, bob = enter(watched, "ann", session_expiry=expiry_s), enter(watched, "bob")
    ann.subscribe(name, "kept", qos=1)
    reload(watched, policy=without(b"t/#"))
    assert name in why(ann)
    bob.publish("t/x", b"secret", qos=1)
    bob.publish("kept", b"kept", qos=1)
    ann.connect(username="ann", password=b"", clean_start=False, session_expiry=expiry_s)
    assert ann.payloads() == ([b"kept"] if expiry_s else [])
    assert ann.subscribe(name) == [0x87]


def test_the_subscriptions_of_stored_sessions_end_too(watched: Box) -> None:
    ann, bob = enter(watched, "ann", session_expiry=EVER), enter(watched, "bob")
    ann.subscribe("t/x", "kept", qos=1)
    ann.lose()
    reload(watched, policy=without(b"t/#"))
    bob.publish("t/x", b"secret", qos=1)
    bob.publish("kept", b"kept", qos=1)
    assert ann.resume(username="ann", password=b"").session_present
    assert ann.payloads() == [b"kept"]
    assert [event.fields["filter"] for event in watched.events if event.kind == "subscription_revoked"] == ["t/x"]


STAYS_S = 60


def test_a_session_that_gets_an_owner_keeps_only_what_that_one_may_subscribe_to(watched: Box) -> None:
    """Whoever may come without a name and with one does not get by the one what the other is denied."""
    reload(watched, policy=without(b"t/#"))
    nobody = watched.client("x")
    nobody.connect(session_expiry=EVER)
    nobody.subscribe("t/x", "kept", qos=1)
    nobody.lose()
    ann = enter(watched, "ann", "x", clean_start=False, session_expiry=EVER)
    bob = enter(watched, "bob")
    bob.publish("t/x", b"secret", qos=1)
    bob.publish("kept", b"kept", qos=1)
    assert ann.payloads() == [b"kept"]
    assert [event.fields["filter"] for event in watched.events if event.kind == "subscription_revoked"] == ["t/x"]


def left_behind(box: Box, name: str = "ann") -> Peer:
    """A stored session of a user, whose queue grows, and which is to end a minute after the user is removed."""
    box.config.limits.session_expiry_removed_s = STAYS_S
    ann, bob = enter(box, name, session_expiry=EVER), enter(box, "bob")
    ann.subscribe("t/x", qos=1)
    ann.lose()
    bob.publish("t/x", b"kept", qos=1)
    return ann


@pytest.mark.parametrize("restart", [False, True])
def test_a_stored_session_of_a_removed_user_ends_in_time(watched: Box, restart: bool) -> None:
    """Nobody can read what it collects."""
    left_behind(watched)
    if restart:
        watched.config.users = {"bob": USERS["bob"]}
        watched.crash()
    else:
        reload(watched, {"bob": USERS["bob"]})
    counters = watched.node.counters
    watched.advance(STAYS_S // 2 * SECOND)
    assert (counters.sessions_persistent, counters.queue_messages) == (1, 1)
    reload(watched, {"bob": USERS["bob"]})
    watched.advance((STAYS_S // 2 + 1) * SECOND)
    assert (counters.sessions_persistent, counters.queue_messages) == (0, 0), "another reload gives it no more time"
    (told,) = [event.fields for event in watched.events if event.kind == "session_revoked"]
    assert (told["client"], told["user"]) == ("c-ann", "ann")
    assert watched.node.counters.sessions_revoked == 1


def test_sessions_that_end_while_nothing_is_committed_are_not_walked_over_each_time(watched: Box) -> None:
    """Each end is noted until it is on disk, and a disk may be full for hours."""
    lifecycle = watched.node._broker.protocol.lifecycle
    count = 6_000
    watched.hold_writes()
    rebuilt = 0
    before = lifecycle._endings
    for number in range(count):
        lifecycle._note_ending(f"c{number}")
        rebuilt += lifecycle._endings is not before
        before = lifecycle._endings
    assert len(lifecycle._endings) == count
    assert rebuilt <= 4, "1,024, 2,048, 4,096"
    watched.release_writes()
    watched.run()


def test_a_user_who_is_there_again_in_time_has_all_of_it(watched: Box) -> None:
    """A file that was wrong for an hour loses nothing."""
    ann = left_behind(watched)
    reload(watched, {"bob": USERS["bob"]})
    watched.advance(STAYS_S // 2 * SECOND)
    reload(watched)
    watched.advance(2 * STAYS_S * SECOND)
    assert ann.resume(username="ann", password=b"").session_present
    assert ann.payloads() == [b"kept"]
    ann.lose()
    reload(watched, {"bob": USERS["bob"]})
    watched.advance(STAYS_S // 2 * SECOND)
    assert watched.node.counters.sessions_persistent == 1, "the time begins anew"


def test_the_session_of_another_user_who_took_the_id_stays(watched: Box) -> None:
    left_behind(watched)
    reload(watched, {"bob": USERS["bob"]})
    bob = enter(watched, "bob", "c-ann", session_expiry=EVER)
    bob.lose()
    watched.advance(2 * STAYS_S * SECOND)
    assert bob.resume(username="bob", password=b"").session_present


def test_a_session_of_nobody_stays(watched: Box) -> None:
    """It has no owner who could be removed, and the first user that comes with its id goes on with it."""
    watched.config.limits.session_expiry_removed_s = STAYS_S
    nobody = watched.client("x")
    nobody.connect(session_expiry=EVER)
    nobody.subscribe("t/x", qos=1)
    nobody.lose()
    reload(watched, allow_anonymous=False)
    watched.advance(2 * STAYS_S * SECOND)
    assert enter(watched, "ann", "x", clean_start=False, session_expiry=EVER)
    assert watched.node.counters.sessions_persistent == 1


@BOTH
def test_what_a_connection_may_publish_is_decided_anew(watched: Box, version: int) -> None:
    ann, bob = enter(watched, "ann", version=version), enter(watched, "bob")
    bob.subscribe("t/#", qos=1)
    for closed in (False, True, False):
        policy = Policy([Rule(False, ANYTHING, "ann", "*", [b"t/#"])] if closed else [], True)
        reload(watched, policy=policy)
        for topic in ("t/1", "t/1", "t/2"):
            ann.publish(topic, b"m", qos=1)
        assert len(bob.payloads()) == (0 if closed else 3)


@pytest.mark.parametrize("before", ["open", "ruled"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_nothing_is_published_by_former_rules_while_connections_wait_to_be_judged(
    watched: Box, before: str, qos: int
) -> None:
    """Neither in a run of equal packets, nor for a topic about which a decision is remembered."""
    if before == "ruled":
        reload(watched, policy=Policy([Rule(True, ANYTHING, "*", "*", [b"#"])], False))
    ann, bob = enter(watched, "ann"), enter(watched, "bob")
    bob.subscribe("t/#", qos=2)
    ann.publish("t/1", b"before", qos=qos)
    assert bob.payloads() == [b"before"]
    access = watched.config.access()
    access.users = dict(USERS)
    access.policy = Policy([Rule(False, ANYTHING, "ann", "*", [b"t/#"])], True)
    watched.node.reload(access, watched.now)
    packets = [Publish(b"t/1", b"after", qos, False, packet_id=10 + number if qos else 0) for number in range(3)]
    assert ann.connection is not None
    data = b"".join([encode(packet, 5) for packet in packets])
    watched.node.receive(ann.connection, data, watched.now)
    watched.run()
    assert bob.payloads() == []
    if qos:
        assert [ann.take(Ack, 10 + number).code for number in range(3)] == [0x87] * 3


def release(peer: Peer, packet_id: int) -> int:
    """Send PUBREL; return the code of PUBCOMP."""
    peer.send(Ack(PUBREL, packet_id))
    answer = peer.take(Ack, packet_id)
    assert answer.kind == PUBCOMP
    return answer.code


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_message_that_was_accepted_is_released_after_the_rights_are_gone(watched: Box, expiry_s: int) -> None:
    """Once, also if its client sends it again; a further one with the same packet identifier is not."""
    ann, bob = enter(watched, "ann", session_expiry=expiry_s), enter(watched, "bob")
    bob.subscribe("t/#", qos=2)
    ann.acks = False
    first = Publish(b"t/1", b"first", 2, False, packet_id=7)
    ann.send(first)
    assert ann.take(Ack, 7).code == 0
    reload(watched, policy=Policy([Rule(False, ANYTHING, "ann", "*", [b"t/#"])], True))
    ann.send(Publish(b"t/1", b"first", 2, False, True, 7))
    assert ann.take(Ack, 7).code == 0, "it was accepted before"
    assert release(ann, 7) == 0
    ann.send(Publish(b"t/1", b"second", 2, False, packet_id=7))
    assert ann.take(Ack, 7).code == 0x87
    assert release(ann, 7) == 0x92, "nothing waits with this identifier"
    assert bob.payloads() == [b"first"]
    reload(watched)
    ann.send(Publish(b"t/1", b"third", 2, False, packet_id=7))
    assert ann.take(Ack, 7).code == 0
    assert release(ann, 7) == 0
    assert bob.payloads() == [b"third"]


def test_messages_that_wait_for_the_rate_are_judged_when_they_are_taken(make: MakeBox) -> None:
    box = make(check=everybody, users=dict(USERS), limits={"user_publish_rate_max": 10})
    ann, bob = enter(box, "ann"), enter(box, "bob")
    bob.subscribe("t/#")
    for _ in range(5):
        ann.send(*[Publish(b"t/1", b"m", 0, False) for _ in range(10)])
    came = len(bob.payloads())
    assert 0 < came < 50, "the others wait"
    reload(box, policy=Policy([Rule(False, ANYTHING, "ann", "*", [b"t/#"])], True))
    box.advance(60 * SECOND)
    assert bob.payloads() == []


def test_many_are_judged_in_several_turns(watched: Box) -> None:
    peers = [enter(watched, "ann", f"a{number}") for number in range(40)]
    for peer in peers:
        peer.subscribe(*[f"t/{number}" for number in range(60)])
    access = watched.config.access()
    access.users = {}
    watched.node.reload(access, watched.now)
    turns = 0
    while watched.turn():
        turns += 1
    assert turns >= 2
    assert all(peer.closed for peer in peers)


def test_a_reload_in_the_middle_of_one_judges_all_by_the_newer_rules(watched: Box) -> None:
    ann, bob = enter(watched, "ann"), enter(watched, "bob")
    for users in ({"bob": USERS["bob"]}, {"ann": USERS["ann"]}):
        access = watched.config.access()
        access.users = users
        watched.node.reload(access, watched.now)
    watched.run()
    ann.ping()
    assert why(bob) == "the user was removed"


def test_a_password_that_is_being_checked_is_not_judged(make: MakeBox) -> None:
    box = make(check=everybody, users=dict(USERS))
    ann = box.client("a")
    reload(box, {**USERS, "ann": "newer"})
    ann.connect(username="ann", password=b"")
    reload(box, {**USERS, "ann": "newer"})
    ann.ping()


@pytest.mark.parametrize("seen", [True, False])
def test_where_certificates_name_users_too_a_missing_name_is_no_removed_user(seen: bool) -> None:
    former, access = Access(Policy([], True)), Access(Policy([], True))
    for one in (former, access):
        one.check_passwords = one.user_from_certificate = True
        one.users = {}
    if seen:
        former.users = {"ann": "1"}
    access.succeeds(former)
    assert bool(access.gone("ann")) == seen
    third = Access(Policy([], True))
    third.check_passwords = third.user_from_certificate = True
    third.users = {"ann": "2"}
    third.succeeds(access)
    assert access.gone("ann") or not seen
    assert not third.gone("ann")


def by_certificate(box: Box, client_id: str) -> Peer:
    peer = box.client(client_id).open("tls", certificate_name="ann")
    peer.connect(session_expiry=EVER, will=Will(b"w", b"gone", 0, False))
    return peer


@pytest.mark.parametrize("before", [True, False])
def test_a_user_with_a_certificate_is_there_without_a_password(make: MakeBox, before: bool) -> None:
    """Whoever is removed from the password file and comes by a certificate keeps its client id, session and will."""
    box = make(check=everybody, users=dict(USERS), user_from_certificate=True)
    box.config.limits.session_expiry_removed_s = STAYS_S
    bob = enter(box, "bob")
    bob.subscribe("w")
    ann = by_certificate(box, "c") if before else None
    reload(box, {"bob": USERS["bob"]})
    if ann is None:
        ann = by_certificate(box, "c")
    box.client("c").connect(username="bob", password=b"", code=0x87)
    assert not ann.closed
    box.advance(2 * STAYS_S * SECOND)
    ann.lose()
    assert bob.payloads() == [b"gone"]
    box.client("c").connect(username="bob", password=b"", code=0x87)


# -- in a cluster: each node judges what it leads, and the connections that it has ------------------------------------


@pytest.fixture
def three() -> SimulatedCluster:
    return SimulatedCluster(3, partitions=16, check=everybody, users=dict(USERS))


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_the_node_with_the_connection_ends_it_without_the_will(three: SimulatedCluster, expiry_s: int) -> None:
    watcher = enter(three["n2"], "bob")
    watcher.subscribe("w")
    client_ids = [three[name].names_led("c")[0] for name in ("n1", "n2", "n3")]
    will = Will(b"w", b"gone", 0, False)
    peers = [enter(three["n1"], "ann", client_id, will=will, session_expiry=expiry_s) for client_id in client_ids]
    reload(three["n1"], {"bob": USERS["bob"]})
    three.advance(10 * SECOND)
    assert [why(peer) for peer in peers] == ["the user was removed"] * 3
    assert watcher.payloads() == []


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_the_leader_judges_subscriptions_and_wills(three: SimulatedCluster, expiry_s: int) -> None:
    client_id = three["n3"].names_led("c")[0]
    ann = enter(three["n1"], "ann", client_id, session_expiry=expiry_s, will=Will(b"w", b"gone", 0, False))
    ann.subscribe("t/x", qos=1)
    policy = Policy([Rule(False, ANYTHING, "ann", "*", [b"t/#"])], True)
    for name in ("n1", "n2", "n3"):
        reload(three[name], policy=policy)
    three.advance(SECOND)
    assert "t/x" in why(ann)
    assert enter(three["n2"], "ann", client_id, session_expiry=expiry_s).subscribe("t/x") == [0x87]


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_will_is_judged_by_a_successor_too(three: SimulatedCluster, expiry_s: int) -> None:
    """The row says whose will it is, also where there is no stored session."""
    client_id = three["n3"].names_led("c")[0]
    watcher = enter(three["n2"], "bob")
    watcher.subscribe("w")
    enter(three["n3"], "ann", client_id, session_expiry=expiry_s, will=Will(b"w", b"gone", 0, False))
    for name in ("n1", "n2"):
        reload(three[name], {"bob": USERS["bob"]})
    three["n3"].kill()
    three.settle()
    three.advance(5 * SECOND)
    assert watcher.payloads() == []


def test_a_successor_ends_the_stored_session_of_a_removed_user(three: SimulatedCluster) -> None:
    client_id = three["n3"].names_led("c")[0]
    ann = enter(three["n1"], "ann", client_id, session_expiry=EVER)
    ann.lose()
    for name in ("n1", "n2", "n3"):
        three[name].config.limits.session_expiry_removed_s = STAYS_S
        reload(three[name], {"bob": USERS["bob"]})
    three["n3"].kill()
    three.settle()
    three.advance((STAYS_S + 5) * SECOND)
    assert sum(three[name].node.counters.sessions_revoked for name in ("n1", "n2")) == 1
    assert sum(three[name].node.counters.sessions_persistent for name in ("n1", "n2")) == 0


CERTAIN = Policy([Rule(True, ANYTHING, "ann", "*", [b"#"]), Rule(True, ANYTHING, "*", "bystander", [b"#"])], False)


@pytest.mark.parametrize("restart", [False, True])
def test_a_name_that_nobody_has_proved_is_no_user_later(make: MakeBox, restart: bool) -> None:
    """Else whoever takes a name in time, before names are proved, has the rights of its owner."""
    box = make()
    thief, will = box.client("thief"), Will(b"keys/x", b"forged", 0, False, properties(will_delay=60))
    thief.connect(username="ann", session_expiry=EVER, will=will)
    left, watcher = box.client("left"), box.client("w").open("tls", certificate_name="ann")
    left.connect(username="ann", session_expiry=EVER, will=will)
    left.subscribe("keys/#", qos=1)
    left.lose()
    if restart:
        box.config.policy, box.config.user_from_certificate = CERTAIN, True
        box.crash()
        watcher.open("tls", certificate_name="ann")
    else:
        reload(box, policy=CERTAIN, user_from_certificate=True)
        assert "certificate" in why(thief)
    watcher.connect()
    watcher.subscribe("keys/#")
    box.advance(61 * SECOND)
    assert watcher.payloads() == [], "wills are judged as those of nobody"
    assert box.node.counters.wills_revoked == 2
    watcher.publish("keys/x", b"secret", qos=1)
    assert box.node.counters.queue_messages == 0, "and so are subscriptions"


def test_a_leader_does_not_take_a_name_as_proved_because_names_are_proved_here(three: SimulatedCluster) -> None:
    """While the nodes are reloaded one after another, so that some of them prove no names yet."""
    for name in ("n1", "n2", "n3"):
        reload(three[name], {}, check_passwords=False)
    client_id, other_id = three["n3"].names_led("c")[:2]
    thief = enter(three["n1"], "ann", client_id, session_expiry=EVER)
    thief.subscribe("t", qos=1)
    policy = Policy([Rule(True, ANYTHING, "ann", "*", [b"#"])], False)
    reload(three["n3"], dict(USERS), check_passwords=True, policy=policy)
    three.advance(SECOND)
    assert "proved" in why(thief)
    assert enter(three["n1"], "ann", other_id, session_expiry=EVER).subscribe("t") == [0x87]
    ann = enter(three["n3"], "ann", client_id, clean_start=False, session_expiry=EVER)
    assert ann.subscribe("t") == [0]

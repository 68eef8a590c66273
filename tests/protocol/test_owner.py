"""A client id belongs to the user of its session: another user is refused, and nothing of the owner ends."""

from __future__ import annotations

import pytest

from folkmoot.auth.access import Access
from folkmoot.auth.acl import BOTH as ANYTHING
from folkmoot.auth.acl import PUBLISH, SUBSCRIBE, Rule, check_group
from folkmoot.auth.policy import Policy
from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, Connack, Connect, Publish, Will
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster
from tests.harness.version import BOTH


def everybody(username: str | None, password: bytes | None, client_id: str) -> bool:
    return True


@pytest.fixture
def owned(make: MakeBox) -> Box:
    return make(check=everybody)


def refusal(version: int) -> int:
    return 0x87 if version == V5 else 5


@BOTH
@pytest.mark.parametrize("clean", [False, True])
def test_a_stored_session_is_neither_given_to_another_user_nor_ended(owned: Box, version: int, clean: bool) -> None:
    source, ann = owned.client("s"), owned.client("device", version)
    source.connect(username="s", password=b"")
    ann.resume(username="ann", password=b"")
    ann.subscribe("t", qos=1)
    ann.lose()
    source.publish("t", b"for ann", qos=1)
    bob = owned.client("device", version)
    bob.connect(username="bob", password=b"", clean_start=clean, code=refusal(version))
    (told,) = [event.fields for event in owned.events if event.kind == "session_of_another"]
    assert (told["user"], told["of"], told["client"]) == ("bob", "ann", "device")
    assert told["address"] == "192.0.2.3:1883"
    assert ann.resume(username="ann", password=b"").session_present
    assert ann.payloads() == [b"for ann"]


@BOTH
@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_connected_client_is_not_disturbed_by_another_user(owned: Box, version: int, expiry_s: int) -> None:
    """Not even one without a stored session, nor its will."""
    watcher, ann = owned.client("w"), owned.client("device")
    watcher.connect(username="w", password=b"")
    watcher.subscribe("will")
    ann.connect(username="ann", password=b"", session_expiry=expiry_s, will=Will(b"will", b"ann is gone", 0, False))
    owned.client("device", version).connect(username="bob", password=b"", code=refusal(version))
    assert not ann.closed
    ann.ping()
    assert watcher.payloads() == []


def test_an_anonymous_client_is_another_user_too(owned: Box) -> None:
    ann = owned.client("device")
    ann.connect(username="ann", password=b"")
    owned.client("device").connect(code=0x87)
    assert not ann.closed


def test_the_id_is_free_when_nothing_is_left_of_its_owner(owned: Box) -> None:
    ann, bob = owned.client("device"), owned.client("device")
    ann.connect(username="ann", password=b"", session_expiry=0)
    ann.lose()
    bob.connect(username="bob", password=b"")
    ann.connect(username="ann", password=b"", code=0x87)
    assert not bob.closed


def test_the_session_of_a_removed_user_ends_when_another_takes_the_id(make: MakeBox) -> None:
    box = make(check=everybody, users={"ann": "1", "bob": "2", "s": "3"})
    source, ann = box.client("s"), box.client("device")
    source.connect(username="s", password=b"")
    ann.resume(username="ann", password=b"")
    ann.subscribe("t", qos=1)
    ann.lose()
    source.publish("t", b"for ann", qos=1)
    access = box.config.access()
    access.users = {"bob": "2", "s": "3"}
    box.node.reload(access, box.now)
    box.run()
    bob = box.client("device")
    assert not bob.resume(username="bob", password=b"").session_present
    assert bob.payloads() == []


def test_without_users_a_name_owns_nothing(make: MakeBox) -> None:
    box = make()
    first, second = box.client("device"), box.client("device")
    first.connect(username="ann", password=b"")
    second.connect(username="bob", password=b"")
    assert first.closed


def test_a_name_without_a_certificate_is_no_user_where_certificates_name_users(make: MakeBox) -> None:
    box = make(user_from_certificate=True)
    ann = box.client("device").open("tls", certificate_name="ann")
    ann.connect()
    box.client("device").connect(username="ann", password=b"", code=0x87)
    assert not ann.closed


@BOTH
def test_client_ids_can_be_demanded(make: MakeBox, version: int) -> None:
    box = make(check=everybody, client_ids=["%u", "%u-*", "shared-?", "bystander"])
    for client_id in ("ann", "ann-1", "ann-", "shared-x"):
        box.client(client_id, version).connect(username="ann", password=b"")
    for client_id in ("bob", "annx", "shared-", "bob-ann-"):
        box.client(client_id, version).connect(username="ann", password=b"", code=0x85 if version == V5 else 2)
    box.client("", version).connect(username="ann", password=b"")


@pytest.mark.parametrize("name", ["*", "?nn", "", None])
def test_a_name_with_a_wildcard_gets_no_id_of_others(name: str | None) -> None:
    access = Access(Policy([], True))
    access.client_ids = ["%u-*"]
    assert access.wrong_id("ann-1", name or "")


def test_the_leader_decides_wherever_the_two_are_connected() -> None:
    cluster = SimulatedCluster(3, partitions=16, check=everybody)
    for client_id in (cluster[name].names_led("d")[0] for name in ("n1", "n2", "n3")):
        for expiry_s in (0, EVER):
            ann = cluster["n1"].client(client_id)
            ann.connect(username="ann", password=b"", session_expiry=expiry_s)
            cluster.run()
            bob = cluster["n2"].client(client_id)
            bob.connect(username="bob", password=b"", code=0x87)
            cluster.run()
            assert not ann.closed, (client_id, expiry_s)
            ann.ping()
            ann.disconnect(session_expiry=0)
            cluster.advance(SECOND)


def test_two_that_come_at_once_at_two_nodes_are_not_both_let_in() -> None:
    cluster = SimulatedCluster(3, partitions=16, check=everybody)
    client_id = cluster["n3"].names_led("d")[0]
    ann, bob = cluster["n1"].client(client_id).open(), cluster["n2"].client(client_id).open()
    cluster._running = True  # both CONNECT packets are there before any node acts
    for peer, name in ((ann, "ann"), (bob, "bob")):
        peer.send(Connect(V5, client_id, False, 0, name, b"", None, None))
    cluster._running = False
    cluster.run()
    codes = [peer.expect(Connack).code for peer in (ann, bob)]
    assert sorted(codes) == [0, 0x87]
    (ann, bob)[codes.index(0)].ping()


def test_a_transient_client_keeps_its_id_through_a_change_of_leaders() -> None:
    cluster = SimulatedCluster(3, partitions=16, check=everybody)
    client_id = cluster["n3"].names_led("d")[0]
    ann = cluster["n1"].client(client_id)
    ann.connect(username="ann", password=b"", session_expiry=0)
    cluster["n3"].kill()
    cluster.settle()
    cluster["n2"].client(client_id).connect(username="bob", password=b"", code=0x87)
    assert not ann.closed
    ann.send(Publish(b"t", b"", 0, False, False, 0))
    ann.ping()


GROUPS = [
    Rule(True, SUBSCRIBE, "*", "*", [b"jobs/#"], ""),
    Rule(True, SUBSCRIBE, "*", "*", [b"jobs/#"], "%u-*"),
    Rule(True, SUBSCRIBE, "*", "*", [b"open/#"]),
    Rule(True, PUBLISH, "*", "*", [b"#"]),
]


@BOTH
def test_nobody_takes_messages_out_of_the_group_of_another_user(make: MakeBox, version: int) -> None:
    box = make(check=everybody, policy=Policy([*GROUPS, Rule(True, SUBSCRIBE, "*", "bystander", [b"#"])], False))
    ann, bob, source = box.client("a"), box.client("b", version), box.client("s")
    for peer, name in ((ann, "ann"), (bob, "bob"), (source, "source")):
        peer.connect(username=name, password=b"")
    assert ann.subscribe("$share/ann-workers/jobs/#", qos=1) == [1]
    denied = 0x87 if version == V5 else 0x80
    assert bob.subscribe("$share/ann-workers/jobs/#", "$share/bob-1/jobs/x", "jobs/x", "$share/any/open/x") == [
        *(denied, 0, 0, 0)
    ]
    for number in range(4):
        source.publish("jobs/1", b"%d" % number, qos=1)
    assert ann.payloads() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(("allow", "share", "may"), [(True, b"x", False), (True, b"", False), (False, b"x", False)])
@pytest.mark.parametrize("username", ["*", None, "a/b"])
def test_a_name_that_cannot_be_a_group_gets_the_safe_answer(
    allow: bool, share: bytes, may: bool, username: str | None
) -> None:
    policy = Policy([Rule(allow, SUBSCRIBE, "*", "*", [b"t"], "%u-*")], not allow)
    assert policy.may_subscribe("c", username, b"t", share) == may


def test_a_rule_about_groups_says_nothing_about_publishing() -> None:
    policy = Policy([Rule(False, ANYTHING, "*", "*", [b"t"], "g")], True)
    assert policy.may_publish("c", None, b"t")
    assert policy.may_subscribe("c", None, b"t")
    assert not policy.may_subscribe("c", None, b"t", b"g")


@pytest.mark.parametrize(
    ("pattern", "valid"), [("%u-*", True), ("", True), ("a/b", False), ("%x", False), ("#", False)]
)
def test_patterns_of_groups_are_checked(pattern: str, valid: bool) -> None:
    assert (check_group(pattern) is None) == valid

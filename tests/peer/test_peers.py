"""Links between nodes: once, in order, whatever happens to connections."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import get_varint
from folkmoot.peer.complaint import COMPLAINT_US, COMPLAINTS_MAX
from folkmoot.peer.frame import DATA, frame
from folkmoot.peer.kind import DELAYED
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import CLOSED, OPEN, RESUMING
from folkmoot.peer.switch import LINKS_MAX
from tests.peer.lines import Line, Net, Site, config_of

KIND = 40


def pair() -> tuple[Net, Site, Site]:
    net = Net()
    a, b = net.start("a"), net.start("b")
    net.meet(a, b)
    return net, a, b


def live(net: Net) -> list[Line]:
    return [line for line in net.lines if not line.broken]


def told(site: Site) -> list[str]:
    return [("up" if change.up else "down") + " " + change.node_id for change in site.changes]


def test_two_nodes_meet_and_talk() -> None:
    net, a, b = pair()
    assert told(a) == ["up b"]
    assert told(b) == ["up a"]
    up = a.changes[0]
    assert (up.member.address, up.incarnation, up.wire, up.resumed) == ("b:1", 1, 1, False)
    a.peers.send("b", KIND, b"one")
    a.peers.send("b", KIND + 1, b"x" * 1000)
    b.peers.send("a", KIND, b"")
    net.turn(a)
    net.turn(b)
    net.settle()
    assert b.inbox == [("a", KIND, b"one"), ("a", KIND + 1, b"x" * 1000)]
    assert a.inbox == [("b", KIND, b"")]
    assert (a.peers.up_ids(), b.peers.up_ids()) == (["b"], ["a"])


def test_one_turn_is_one_frame_and_what_is_acknowledged_is_forgotten() -> None:
    net, a, _b = pair()
    for _ in range(50):
        a.peers.send("b", KIND, b"message")
    assert a.peers.backlog_bytes("b") == 50 * 9
    net.turn(a)
    (line,) = live(net)
    side = 0 if line.ends[0].site is a else 1
    sent = bytes(line.ends[1 - side].coming)
    assert len(sent) == 4 + 17 + 50 * 9
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    net.run(net.sites["b"].config.ack_delay_us + 10_000)
    assert a.peers.backlog_bytes("b") == 0


def test_an_acknowledgement_waits_for_a_turn_and_for_none_if_the_answer_carried_it() -> None:
    net, a, b = pair()
    net.run(500_000)
    waits = [site.peers.background_us for site in (a, b)]
    assert min(waits) > net.now + a.config.ack_delay_us, "only pings are due"
    a.peers.send("b", KIND, b"question")
    net.turn(a)
    (line,) = live(net)
    side = 0 if line.ends[0].site is b else 1
    line_end = line.ends[side]
    b.peers.received(line_end.peer, bytes(line_end.coming), net.now)
    line_end.coming.clear()
    b.peers.send("a", KIND, b"answer")
    net.turn(b)
    assert b.peers.background_us == waits[1], "the answer acknowledges"
    net.settle()
    assert a.peers.background_us == net.now + a.config.ack_delay_us
    assert a.peers.next_wake() > a.peers.background_us, "no turn of its own is due for that"
    net.run(a.config.ack_delay_us + 10_000)
    assert b.peers.backlog_bytes("a") == 0


def test_simultaneous_dials_leave_one_connection_that_the_lower_id_dialled() -> None:
    net, a, b = pair()
    (line,) = live(net)
    assert line.ends[0].site is a, "the first end dialled"
    assert told(a) == ["up b"]
    assert told(b) == ["up a"]
    net.run(3 * SECOND)
    assert live(net) == [line]


def test_two_addresses_of_one_node_are_one_connection() -> None:
    net = Net()
    a, b = net.start("a"), net.start("b")
    net.ports = {"balancer:7": "b", "other:8": "b"}
    for address in ("balancer:7", "other:8", "b:1"):
        a.peers.want(address)
    net.run(5 * SECOND)
    assert len(live(net)) == 1
    assert told(a) == ["up b"]
    assert not [event for event in a.events + b.events if event.level != "info"]


def test_its_own_address_among_the_seeds_is_dialled_once() -> None:
    net = Net()
    a = net.start("a")
    net.ports = {"alias:1": "a"}
    a.peers.want("alias:1")
    a.peers.want("a:1")
    net.run(SECOND)
    assert not net.lines
    assert a.changes == []
    assert a.events == []
    dials = a.peers.want
    dials("alias:1")
    a.peers.wake(net.now)
    assert a.peers.dials == []


def test_a_killed_process_is_told_as_refused_at_once() -> None:
    net, a, b = pair()
    net.run(2 * SECOND)
    net.kill(b)
    began = net.now
    net.settle()
    assert net.now == began
    assert [(change.up, change.refused) for change in a.changes] == [(True, False), (False, False), (False, True)]
    net.run(5 * SECOND)
    assert len(a.changes) == 3, "said once"
    assert a.peers.up_ids() == []


def test_a_load_balancer_that_refuses_says_nothing_about_a_node() -> None:
    net = Net()
    a, b = net.start("a"), net.start("b")
    net.ports = {"balancer:7": "b"}
    a.peers.want("balancer:7")
    net.run(2 * SECOND)
    net.ports = {}
    net.cut(live(net)[0])
    net.run(SECOND)
    assert [(change.up, change.refused) for change in a.changes] == [(True, False), (False, False)]
    assert b.alive


def test_a_silent_peer_is_left_and_dialled_again() -> None:
    net, a, b = pair()
    for line in net.lines:
        line.half_dead = True
    net.unreachable.add("b:1")
    net.unreachable.add("a:1")
    net.run(a.config.silence_us - 300_000)
    assert told(a) == ["up b"]
    net.run(900_000)
    assert told(a) == ["up b", "down b"]
    assert "nothing heard" in a.changes[1].why
    net.unreachable.clear()
    net.run(2 * SECOND)
    assert told(a) == ["up b", "down b", "up b"]
    assert a.changes[2].resumed
    assert b.peers.up_ids() == ["a"]


@pytest.mark.parametrize("pause_us", [SECOND // 2, 5 * SECOND])
def test_messages_say_how_long_they_have_waited_for_a_connection(pause_us: int) -> None:
    """What is in them may expire: from the moment in which they were sent, not from that in which they come."""
    net, a, b = pair()
    for line in net.lines:
        line.half_dead = True
    net.unreachable.update(["a:1", "b:1"])
    a.peers.send("b", KIND, b"first")
    net.turn(a)
    net.run(pause_us)
    a.peers.send("b", KIND, b"second")
    net.turn(a)
    for line in net.lines:
        net.cut(line)
        for end in line.ends:
            end.site.peers.lost(end.peer, "reset", net.now)
    net.unreachable.clear()
    again_us = net.now
    while len(b.bodies("a")) < 2 and net.now < again_us + 2 * SECOND:
        net.run(5_000)
    waited_ms = (net.now - again_us + pause_us) // 1000
    a.peers.send("b", KIND, b"third")
    net.turn(a)
    net.settle()
    assert b.bodies("a") == [b"first", b"second", b"third"]
    if pause_us < SECOND:
        assert [kind for _node, kind, _body in b.inbox] == [KIND] * 3
        return
    assert [kind for _node, kind, _body in b.inbox] == [DELAYED, KIND, DELAYED, KIND, KIND]
    told_ms, after_ms = (get_varint(b.inbox[at][2], 0)[0] for at in (0, 2))
    assert waited_ms - 100 <= told_ms <= waited_ms
    assert after_ms == 0


def test_idle_peers_are_not_silent() -> None:
    net, a, b = pair()
    net.run(20 * SECOND, 50_000)
    assert told(a) == ["up b"]
    assert told(b) == ["up a"]
    assert net.now - a.peers.last_heard_us("b") < a.config.silence_us


def test_a_process_that_stood_still_does_not_blame_its_peers() -> None:
    net, a, _b = pair()
    net.now += 60 * SECOND
    a.peers.wake(net.now)
    net.turn(a)
    assert told(a) == ["up b"]


def test_round_trips_are_measured() -> None:
    net, a, _b = pair()
    (line,) = live(net)
    a.peers.wake(net.now + SECOND)
    net.now += SECOND
    net.turn(a)
    net.now += 700
    net.deliver(line, 1, 1 << 20)
    net.deliver(line, 0, 1 << 20)
    assert 0 < a.peers.round_trip_us("b") <= 700


def test_a_new_process_begins_anew_and_what_waited_for_the_old_one_is_dropped() -> None:
    net, a, b = pair()
    a.peers.send("b", KIND, b"before")
    net.turn(a)
    net.settle()
    net.kill(b)
    a.peers.send("b", KIND, b"lost")
    net.turn(a)
    again = net.start("b", incarnation=2)
    again.peers.want("a:1")
    net.run(2 * SECOND)
    assert a.changes[-1].up
    assert (a.changes[-1].incarnation, a.changes[-1].resumed) == (2, False)
    a.peers.send("b", KIND, b"after")
    net.turn(a)
    net.settle()
    assert again.inbox == [("a", KIND, b"after")]


def test_an_emptied_node_with_its_old_incarnation_is_another_process() -> None:
    net, a, _b = pair()
    a.peers.send("b", KIND, b"before")
    net.turn(a)
    net.settle()
    again = net.start("b", incarnation=1)
    again.peers.want("a:1")
    net.run(2 * SECOND)
    assert a.changes[-1].up
    assert not a.changes[-1].resumed
    a.peers.send("b", KIND, b"after")
    net.turn(a)
    net.settle()
    assert again.inbox == [("a", KIND, b"after")]


@pytest.mark.parametrize("incarnation", [1, 7])
def test_two_living_nodes_of_one_id_do_not_take_turns(incarnation: int) -> None:
    net, a, _b = pair()
    twin = Site("b", incarnation, config_of(), 77, None)
    twin.address = "twin:1"
    for _ in range(5):
        net.connect(twin, "a:1")
        net.run(SECOND)
    assert told(a) == ["up b"]
    assert twin.changes == []
    assert "ids must differ" in a.reasons("peer_refused")
    assert "ids must differ" in twin.reasons("peer_refuses")
    assert a.kinds().count("peer_refused") == 1, "the same complaint is not said at each attempt"


@pytest.mark.parametrize(("disk", "expected"), [(5, ["up b"]), (6, ["up b", "down b", "up b"])])
def test_starts_are_compared_on_one_disk_only(disk: int, expected: list[str]) -> None:
    """A replaced disk counts from 1: it may follow a process of the old one that is silent, an older start may not."""
    net = Net()
    a = net.start("a")
    b = net.start("b", member=Member("b", 9, "b:1", "b", ACTIVE, 1, 1, "", 5))
    net.connect(b, "a:1")
    net.settle()
    (line,) = live(net)
    line.half_dead = True
    other = Site("b", 1, config_of(), 77, Member("b", 1, "b:2", "b", ACTIVE, 1, 1, "", disk))
    net.now += 2 * SECOND + 1
    net.connect(other, "a:1")
    net.settle()
    assert told(a) == expected


def test_a_node_with_my_own_id_is_said_clearly() -> None:
    net = Net()
    a = net.start("a")
    twin = Site("a", 4, config_of(), 77, None)
    net.connect(twin, "a:1", a)
    net.settle()
    for site in (a, twin):
        assert [event.level for event in site.events if "same node.id" in str(event.fields)] == ["error"], site.events
        assert site.changes == []


def test_what_is_too_much_for_a_peer_is_dropped_and_said() -> None:
    net, a, b = pair()
    a.config.link_buffer_bytes_max = 10_000
    (line,) = live(net)
    line.half_dead = True
    for number in range(30):
        a.peers.send("b", KIND, b"%04d" % number + b"x" * 1000)
        net.turn(a)
        assert a.peers.backlog_bytes("b") <= 11_200
    assert told(a) == ["up b", "down b"]
    assert "peer_too_slow" in a.kinds()
    a.peers.send("b", KIND, b"dropped")
    assert a.peers.messages_dropped > 0
    net.cut(line)
    line.half_dead = False
    net.run(2 * SECOND)
    assert told(a) == ["up b", "down b", "up b"]
    assert not a.changes[-1].resumed
    assert told(b)[-2:] == ["down a", "up a"]
    assert not b.changes[-1].resumed
    a.peers.send("b", KIND, b"fresh")
    net.turn(a)
    net.settle()
    assert b.bodies("a") == [b"fresh"]


def test_a_message_larger_than_the_limit_passes_when_nothing_waits() -> None:
    net, a, b = pair()
    a.config.link_buffer_bytes_max = 1000
    a.peers.send("b", KIND, b"y" * 3_000_000)
    net.turn(a)
    net.run(SECOND, chunk=65_536)
    assert b.bodies("a") == [b"y" * 3_000_000]
    assert told(a) == ["up b"]


def test_what_waits_while_the_network_takes_nothing_is_sent_later_in_order() -> None:
    net, a, b = pair()
    (line,) = live(net)
    peer = line.ends[0].peer
    a.peers.writable(peer, False, net.now)
    for number in range(100):
        a.peers.send("b", KIND, b"%d" % number)
        net.turn(a)
    net.run(300_000)
    assert b.inbox == []
    a.peers.writable(peer, True, net.now)
    net.turn(a)
    net.settle()
    assert b.bodies("a") == [b"%d" % number for number in range(100)]


def test_a_large_backlog_is_handed_over_in_parts() -> None:
    net, a, b = pair()
    (line,) = live(net)
    peer = line.ends[0].peer
    a.peers.writable(peer, False, net.now)
    for _ in range(20):
        a.peers.send("b", KIND, bytes(1_000_000))
        net.turn(a)
    a.peers.writable(peer, True, net.now)
    assert a.peers.next_wake() <= net.now
    net.turn(a)
    assert len(line.ends[1].coming) < 8_000_000
    net.settle()
    assert len(b.bodies("a")) == 20


def test_forgetting_drops_what_waits_and_the_node_may_come_back() -> None:
    net, a, b = pair()
    a.peers.send("b", KIND, b"first")
    b.peers.send("a", KIND, b"to be acknowledged")
    net.turn(a)
    net.turn(b)
    net.run(100_000)
    a.peers.send("b", KIND, b"lost")
    a.peers.forget("b")
    net.turn(a)
    assert told(a) == ["up b"], "whoever forgets need not be told"
    assert a.peers.backlog_bytes("b") == 0
    net.run(SECOND)
    assert told(a) == ["up b", "up b"]
    assert told(b) == ["up a", "down a", "up a"]
    assert not b.changes[-1].resumed
    b.peers.send("a", KIND, b"hello again")
    a.peers.send("b", KIND, b"you too")
    net.turn(a)
    net.turn(b)
    net.settle()
    assert a.bodies("b") == [b"to be acknowledged", b"hello again"]
    assert b.bodies("a") == [b"first", b"you too"]


def test_a_resume_that_was_overtaken_by_a_newer_link_changes_nothing() -> None:
    net = Net()
    a, b = net.start("a"), net.start("b")
    old = net.connect(a, "b:1")
    assert old is not None
    while old.ends[0].peer.state != RESUMING:
        net.deliver(old, 1, 1 << 20)
        net.deliver(old, 0, 1 << 20)
    a.peers.forget("b")
    net.turn(a)
    new = net.connect(a, "b:1")
    assert new is not None
    while net.deliver(new, 1, 1 << 20) or net.deliver(new, 0, 1 << 20):
        pass
    assert told(b) == ["up a"]
    assert old.ends[1].coming, "RESUME and CLOSE are still on their way"
    net.settle()
    assert told(b) == ["up a"]
    a.peers.send("b", KIND, b"over the new one")
    net.turn(a)
    net.settle()
    assert b.bodies("a") == [b"over the new one"]


def test_a_resume_from_before_the_agreement_does_not_replace_what_the_lower_id_dialled() -> None:
    net = Net()
    a, b = net.start("a"), net.start("b")
    by_b = net.connect(b, "a:1")
    by_a = net.connect(a, "b:1")
    assert by_a is not None
    assert by_b is not None
    while by_b.ends[0].peer.state != RESUMING:  # b has sent RESUME, it is on its way
        net.deliver(by_b, 1, 1 << 20)
        net.deliver(by_b, 0, 1 << 20)
    while net.deliver(by_a, 1, 1 << 20) or net.deliver(by_a, 0, 1 << 20):
        pass
    assert by_a.ends[0].peer.state == OPEN
    net.settle()
    assert live(net) == [by_a]
    assert told(a) == ["up b"]
    assert told(b) == ["up a"]


def test_a_resume_from_after_the_loss_replaces_what_nobody_knows_to_be_dead() -> None:
    net, a, b = pair()
    (line,) = live(net)
    assert line.ends[0].site is a, "dialled by the lower id"
    b.peers.lost(line.ends[1].peer, "reset by a firewall", net.now)
    line.ends[1].told_lost = True
    line.half_dead = True
    net.turn(b)
    net.connect(b, "a:1")
    net.settle()
    assert told(a) == ["up b"], "it never was down here"
    a.peers.send("b", KIND, b"over the new one")
    net.turn(a)
    net.settle()
    assert b.bodies("a") == [b"over the new one"]


def test_a_peer_that_is_gone_for_long_keeps_no_memory() -> None:
    net, a, b = pair()
    net.kill(b)
    net.settle()
    a.peers.send("b", KIND, b"z" * 5000)
    net.turn(a)
    net.run(a.config.link_keep_us - SECOND, SECOND)
    assert a.peers.backlog_bytes("b") > 5000
    net.run(3 * SECOND, SECOND)
    assert a.peers.backlog_bytes("b") == 0
    assert a.peers.links() == []


def test_when_a_peer_was_last_seen_is_known_after_its_link_is_given_up() -> None:
    net, a, b = pair()
    seen = a.peers.last_heard_us("b")
    assert a.peers.last_seen_us("b") == seen > 0
    net.kill(b)
    net.settle()
    net.run(a.config.link_keep_us + 2 * SECOND, SECOND)
    assert a.peers.links() == []
    assert seen <= a.peers.last_seen_us("b") < net.now - a.config.link_keep_us
    assert a.peers.last_heard_us("b") == 0
    assert a.peers.last_seen_us("nobody") == 0


def test_a_node_knows_so_many_others_and_no_more() -> None:
    net = Net()
    a = net.start("a")
    for number in range(LINKS_MAX + 1):
        net.lines.clear()
        site = net.start(f"n{number}")
        net.connect(site, "a:1")
        net.settle()
    assert len(a.peers.links()) == len(a.peers.up_ids()) == LINKS_MAX
    assert f"knows {LINKS_MAX} others" in a.reasons("peer_refused")
    assert f"knows {LINKS_MAX} others" in site.reasons("peer_refuses")


def test_complaints_are_remembered_for_a_while_and_not_without_bound() -> None:
    net = Net()
    a = net.start("a")
    for number in range(2 * COMPLAINTS_MAX):
        a.peers.want(f"nobody{number}:1")
        a.peers.dial_failed(f"nobody{number}:1", "no route", False, net.now)
        a.peers.dial_failed(f"nobody{number}:1", "no route", False, net.now)
        assert len(a.peers._switch.complaints._said) <= COMPLAINTS_MAX
    assert len(a.peers.events) == 2 * COMPLAINTS_MAX
    a.peers.dial_failed("nobody1:1", "no route", False, net.now + COMPLAINT_US)
    assert len(a.peers.events) == 2 * COMPLAINTS_MAX + 1


def test_unwanted_addresses_are_not_dialled() -> None:
    net, a, b = pair()
    a.peers.unwant("b:1")
    b.peers.unwant("a:1")
    for line in live(net):
        net.cut(line)
    net.run(3 * SECOND)
    assert net.lines == []
    assert a.peers.next_wake() > net.now + SECOND


def test_pauses_between_dials_grow_to_a_second() -> None:
    net = Net()
    a = net.start("a")
    a.peers.want("nobody:1")
    times: list[int] = []
    while net.now < 1_700_000_000_000_000 + 10 * SECOND:
        net.now = max(net.now, a.peers.next_wake())
        a.peers.wake(net.now)
        if a.peers.dials:
            times.append(net.now)
            a.peers.dials.clear()
            a.peers.dial_failed("nobody:1", "connection refused", True, net.now)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert 10_000 <= pauses[0] <= 20_000
    assert all(750_000 <= pause <= SECOND for pause in pauses[8:])
    assert len(times) < 30


def test_kinds_of_later_versions_are_counted_and_skipped() -> None:
    net, a, b = pair()
    (line,) = live(net)
    link = a.peers.links()[0]
    link.put(200, b"from the future", net.now)
    link.put(KIND, b"known", net.now)
    a.peers._dirty.append(link)
    net.turn(a)
    net.settle()
    assert b.inbox == [("a", KIND, b"known")]
    assert b.peers.links()[0].unknown == 1
    line.ends[1].coming += frame(99, b"a frame of the future")
    net.settle()
    assert b.peers.frames_unknown == 1
    assert told(b) == ["up a"]


HEAD = (1).to_bytes(8, "big") + (0).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(DATA, b""), "too short"),
        (frame(DATA, (9).to_bytes(8, "big") + bytes(8)), "message 9 after message 0"),
        (frame(DATA, bytes(16) + b"\x20\x00"), "message 0 after"),
        (frame(DATA, bytes(8) + (5).to_bytes(8, "big")), "5 acknowledged"),
        (frame(DATA, HEAD + b"\x20"), "longer than its frame"),
        (frame(DATA, HEAD + b"\x20\x05abc"), "longer than its frame"),
        (frame(DATA, HEAD + b"\x20\x01a\x20\x80"), "longer than its frame"),
        (frame(DATA, HEAD + b"\x20" + b"\xff" * 9), "longer than its frame"),
        (frame(1, b""), "wrong time"),
        (frame(5, b"short"), "wrong time"),
        (bytes(4), "not frames"),
        (b"\xff\xff\xff\xff", "not frames"),
    ],
)
def test_nonsense_from_a_peer_closes_and_leaves_nothing(data: bytes, reason: str) -> None:
    net, _a, b = pair()
    (line,) = live(net)
    side = 1 if line.ends[1].site is b else 0
    b.peers.received(line.ends[side].peer, data, net.now)
    net.turn(b)
    assert b.inbox == []
    assert reason in b.reasons("peer_refused")
    assert line.ends[side].peer.state == CLOSED
    net.run(3 * SECOND)
    assert b.peers.up_ids() == ["a"], "it may try again"
    assert b.changes[-1].resumed


@given(st.binary(max_size=300), st.integers(1, 64), st.booleans())
def test_no_bytes_raise(data: bytes, chunk: int, proved: bool) -> None:
    net, _a, b = pair() if proved else (Net(), Site("a", 1, config_of(), 1, None), Site("b", 1, config_of(), 2, None))
    peer = live(net)[0].ends[1].peer if proved else b.peers.connected(None, "x:1", False, net.now)
    for start in range(0, len(data), chunk):
        b.peers.received(peer, data[start : start + chunk], net.now)
    b.peers.flush(net.now)
    assert b.peers.inbox == [] or proved

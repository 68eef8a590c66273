"""Messages of the control overtake data, each class in its own order, over any connections (`folkmoot.peer.link`)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.feature import CLASSES
from folkmoot.kernel.pack import get_varint, u32
from folkmoot.peer.frame import PIECE, frame
from folkmoot.peer.kind import CONFIGURATION_LOG, CONTROL, DELAYED
from tests.peer.lines import Line, Net, Site, config_of

KIND = 40


def pair(classes: bool = True) -> tuple[Net, Site, Site, Line]:
    net = Net()
    configs = [config_of(), config_of()]
    if not classes:
        configs[1].features.remove(CLASSES)
    a, b = net.start("a", config=configs[0]), net.start("b", config=configs[1])
    net.meet(a, b)
    (line,) = [line for line in net.lines if not line.broken]
    return net, a, b, line


def towards(line: Line, site: Site) -> int:
    return 0 if line.ends[0].site is site else 1


def kinds(site: Site) -> list[int]:
    return [kind for _node_id, kind, _body in site.inbox]


def test_control_overtakes_data_that_waits_and_each_class_keeps_its_order() -> None:
    net, a, b, line = pair()
    peer = line.ends[towards(line, a)].peer
    a.peers.writable(peer, False, net.now)
    for number in range(50):
        a.peers.send("b", KIND, b"%d" % number + bytes(50_000))
        a.peers.send("b", CONTROL if number % 2 else CONFIGURATION_LOG, b"%d" % number)
        net.turn(a)
    a.peers.writable(peer, True, net.now)
    net.turn(a)
    net.settle()
    control = [(kind, body) for _, kind, body in b.inbox if kind != KIND]
    assert control == [(CONTROL if number % 2 else CONFIGURATION_LOG, b"%d" % number) for number in range(50)]
    assert kinds(b)[:50] == [kind for kind, _body in control], "all of them first"
    assert [body for _, kind, body in b.inbox if kind == KIND] == [b"%d" % n + bytes(50_000) for n in range(50)]


def test_no_message_is_so_long_that_control_waits_for_it() -> None:
    net, a, b, line = pair()
    a.peers.send("b", KIND, bytes(20_000_000))
    net.turn(a)
    side = towards(line, b)
    assert len(line.ends[side].coming) < 600_000, "the rest waits where it can be overtaken"
    a.peers.send("b", CONTROL, b"heartbeat")
    net.turn(a)
    before = len(line.ends[side].coming)
    net.deliver(line, side, before)
    assert b.inbox == [("a", CONTROL, b"heartbeat")]
    net.settle()
    assert [len(body) for body in b.bodies("a")] == [9, 20_000_000]


def test_a_link_that_carries_a_long_message_slowly_does_not_count_as_silent() -> None:
    """Twenty megabytes with 20 Mbit/s, over a connection that is full all the time, to a node that says nothing."""
    net, a, b, line = pair()
    sender, end = line.ends[towards(line, a)], line.ends[towards(line, b)]
    a.peers.send("b", KIND, bytes(20_000_000))
    net.turn(a)
    while not b.inbox and not line.broken:
        net.now += 6554
        net.deliver(line, towards(line, b), 16_384)
        net.wake()
        net.deliver(line, towards(line, a), 16_384)
        for room in (len(end.coming) < 32_768, False):  # what it is given then fills it again
            a.peers.writable(sender.peer, room, net.now)
            net.turn(a)
            if len(end.coming) < 131_072:
                break
    assert not line.broken, a.reasons("peer_down")
    assert [len(body) for body in b.bodies("a")] == [20_000_000]


def test_a_full_connection_is_given_a_little_of_the_control() -> None:
    net, a, b, line = pair()
    peer = line.ends[towards(line, a)].peer
    a.peers.writable(peer, False, net.now)
    for number in range(20):
        a.peers.send("b", KIND, b"%d" % number)
        a.peers.send("b", CONTROL, b"%d" % number + bytes(10_000))
        net.turn(a)
    net.settle()
    assert [body[:1] for body in b.bodies("a", CONTROL)] == [b"%d" % number for number in range(7)]
    assert b.bodies("a", KIND) == []
    a.peers.writable(peer, True, net.now)
    net.turn(a)
    net.settle()
    assert len(b.bodies("a", CONTROL)) == len(b.bodies("a", KIND)) == 20


def test_control_is_read_while_too_much_data_waits_at_the_receiver() -> None:
    net, a, b, _line = pair()
    b.peers.set_full("a", True)
    for number in range(5):
        a.peers.send("b", KIND, b"%d" % number)
        a.peers.send("b", CONTROL, b"%d" % number)
        net.turn(a)
        net.settle(7)
    assert kinds(b) == [CONTROL] * 5
    net.run(SECOND)
    assert a.peers.backlog_bytes("b") > 0, "what is not read is not acknowledged"
    b.peers.set_full("a", False)
    net.turn(b)
    assert [body for _, kind, body in b.inbox if kind == KIND] == [b"%d" % number for number in range(5)]
    net.run(SECOND)
    assert a.peers.backlog_bytes("b") == 0


@pytest.mark.parametrize("classes", [True, False])
def test_frames_that_have_waited_are_read_in_portions(classes: bool) -> None:
    """Those of a node without classes all at once: its heartbeats are among them."""
    net, a, b, _line = pair(classes)
    b.peers.set_full("a", True)
    for number in range(100):
        a.peers.send("b", KIND, b"%d" % number + bytes(50_000))
        net.turn(a)
        net.settle()
    portions = []
    while len(b.inbox) < 100:
        before = len(b.inbox)
        b.peers.set_full("a", False)
        net.turn(b)
        portions.append(len(b.inbox) - before)
    assert b.bodies("a") == [b"%d" % number + bytes(50_000) for number in range(100)]
    assert max(portions) == (11 if classes else 100)
    net.run(SECOND)
    assert a.peers.backlog_bytes("b") == 0


def test_pieces_that_have_waited_are_read_until_one_message_is_whole() -> None:
    net, a, b, _line = pair()
    b.peers.set_full("a", True)
    a.peers.send("b", KIND, bytes(3_000_000))
    net.turn(a)
    net.settle()
    assert b.inbox == []
    b.peers.set_full("a", False)
    net.turn(b)
    assert [len(body) for body in b.bodies("a")] == [3_000_000]


@pytest.mark.parametrize("arrived", [0, 5_000, 130_000, 300_000, 1 << 30])
def test_both_classes_go_on_over_another_connection(arrived: int) -> None:
    """A connection breaks amid a message in pieces; or its end has arrived, and the acknowledgement has not."""
    net, a, b, line = pair()
    for number in range(3):
        a.peers.send("b", KIND, b"%d" % number + bytes(400_000))
        a.peers.send("b", CONTROL, b"%d" % number)
        net.turn(a)
        net.deliver(line, towards(line, b), arrived // 3)
    net.cut(line)
    for number in range(3, 6):
        a.peers.send("b", KIND, b"%d" % number + bytes(400_000))
        a.peers.send("b", CONTROL, b"%d" % number)
        net.turn(a)
    net.run(3 * SECOND)
    assert [body for _, kind, body in b.inbox if kind == CONTROL] == [b"%d" % number for number in range(6)]
    assert [body[:1] for _, kind, body in b.inbox if kind == KIND] == [b"%d" % number for number in range(6)]
    assert a.peers.backlog_bytes("b") == 0
    assert [change.resumed for change in b.changes if change.up] == [False, True]


def test_what_waits_for_room_is_void_with_its_connection() -> None:
    """A message that was not read because too much waited comes again over the next connection, once."""
    net, a, b, line = pair()
    b.peers.set_full("a", True)
    a.peers.send("b", KIND, b"one")
    net.turn(a)
    net.settle()
    net.cut(line)
    net.run(SECOND)
    b.peers.set_full("a", False)
    net.run(SECOND)
    assert b.bodies("a") == [b"one"]


def test_a_node_without_classes_gets_all_in_one_order() -> None:
    net, a, b, line = pair(classes=False)
    for here, there in ((a, b), (b, a)):
        peer = line.ends[towards(line, here)].peer
        here.peers.writable(peer, False, net.now)
        for number in range(10):
            here.peers.send(there.node_id, CONTROL if number % 3 == 1 else KIND, b"%d" % number + bytes(40_000))
            net.turn(here)
        here.peers.writable(peer, True, net.now)
        net.turn(here)
        net.settle()
        assert there.bodies(here.node_id) == [b"%d" % number + bytes(40_000) for number in range(10)]
        assert there.peers.frames_unknown == 0
    net.run(SECOND)
    assert a.peers.backlog_bytes("b") == b.peers.backlog_bytes("a") == 0


def test_an_acknowledgement_does_not_wait_behind_data() -> None:
    net, a, b, line = pair()
    peer = line.ends[towards(line, b)].peer
    for _ in range(100):
        b.peers.send("a", KIND, bytes(100_000))
    net.turn(b)
    b.peers.writable(peer, False, net.now)
    a.peers.send("b", KIND, b"question")
    net.turn(a)
    net.deliver(line, towards(line, b), 1 << 20)
    b.peers.send("a", KIND, b"answer")
    net.turn(b)
    b.peers.writable(peer, True, net.now)
    net.turn(b)
    net.deliver(line, towards(line, a), 1 << 20)
    assert a.peers.backlog_bytes("b") == 0


def test_a_message_in_pieces_says_how_long_it_has_waited_though_acknowledgements_come_between() -> None:
    net, a, b, line = pair()
    peer = line.ends[towards(line, a)].peer
    a.peers.writable(peer, False, net.now)
    a.peers.send("b", KIND, bytes(3_000_000))
    net.turn(a)
    net.now += 3 * SECOND // 2
    b.peers.send("a", KIND, bytes(300_000))
    net.turn(b)
    a.peers.writable(peer, True, net.now)
    net.turn(a)
    net.deliver(line, towards(line, a), 1 << 20)
    assert b.inbox == []
    net.settle()
    assert [(kind, len(body)) for _, kind, body in b.inbox] == [(DELAYED, 2), (KIND, 3_000_000), (DELAYED, 1)]
    assert get_varint(b.inbox[0][2], 0)[0] == 1500


def test_a_slow_connection_is_given_little_at_once_and_a_fast_one_much() -> None:
    net, a, b, line = pair()
    link = a.peers.links()[0]
    peer = line.ends[towards(line, a)].peer
    least = link.handover_bytes
    for _ in range(8):
        a.peers.send("b", KIND, bytes(5_000_000))
        net.turn(a)
        net.settle()
    assert link.handover_bytes > 4 * least
    for _ in range(8):
        a.peers.writable(peer, False, net.now)
        net.now += 100_000
        a.peers.writable(peer, True, net.now)
    assert link.handover_bytes == least
    assert len(b.bodies("a")) == 8


@pytest.mark.parametrize(
    "body",
    [b"", b"\1", b"\0abc", b"\1ab", b"\1" + u32(3) + b"\4abc", b"\1" + u32(1 << 31) + b"\4", b"\1" + u32(9) + b"\5abc"],
)
def test_pieces_of_nonsense_close(body: bytes) -> None:
    net, a, _b, line = pair()
    end = line.ends[towards(line, a)]
    a.peers.received(end.peer, frame(PIECE, body), net.now)
    net.turn(a)
    assert "piece" in a.reasons("peer_refused")
    assert a.inbox == []

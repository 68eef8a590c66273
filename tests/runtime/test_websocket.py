from __future__ import annotations

from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from folkmoot.runtime.clock import Clock
from folkmoot.runtime.drain import LINGER_BYTES_MAX, LINGER_S
from folkmoot.runtime.gate import Gate
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.origin import OriginRules
from folkmoot.runtime.websocket import FRAMES_FRESH, FRAMES_MAX, HEAD_BYTES_MAX, WebSocketProtocol, WebSocketRules
from tests.runtime.fake import FakeLoop, FakeNode, FakeTransport

MESSAGE_MAX = 1000


class Bench:
    """A client of the same library, without I/O, facing the protocol under test."""

    def __init__(self, path: str = "/mqtt", subprotocols: tuple[str, ...] = ("mqtt",)) -> None:
        self.node = FakeNode()
        self.loop = FakeLoop()
        node: Any = self.node
        loop: Any = self.loop
        self.turns = Turns(node, loop, Clock())
        self.transport = FakeTransport()
        gate = Gate(10, 10, self.loop.time)
        arrival = gate.enter("127.0.0.1")
        assert arrival is not None
        rules = WebSocketRules("/mqtt", MESSAGE_MAX, OriginRules())
        self.protocol = WebSocketProtocol(self.turns, gate, arrival, rules, "ws")
        made: Any = self.transport
        self.transport.protocol = self.protocol
        self.protocol.connection_made(made)
        self.client = ClientProtocol(
            parse_uri(f"ws://localhost{path}"), subprotocols=[Subprotocol(name) for name in subprotocols]
        )
        self.events: list[Any] = []

    def handshake(self) -> Bench:
        self.client.send_request(self.client.connect())
        self.exchange()
        return self

    def exchange(self, step: int = 0) -> None:
        """Carry bytes both ways until nothing moves; towards the server `step` bytes at a time (0: all)."""
        data = b"".join(self.client.data_to_send())
        pieces = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
        for piece in pieces:
            self.protocol.data_received(piece)
        self.loop.iterate()
        answer, self.transport.written = b"".join(self.transport.written), []
        if answer:
            self.client.receive_data(answer)
        if self.ended():
            self.client.receive_eof()
        self.events += self.client.events_received()

    def ended(self) -> bool:
        """Whether the server has ended its half, or all."""
        return "close" in self.transport.calls or "eof" in self.transport.calls

    def received(self) -> bytes:
        """What the node received."""
        return b"".join(data for _, data in self.node.named("receive"))

    def echoed(self) -> list[bytes]:
        return [bytes(e.data) for e in self.events if isinstance(e, Frame) and e.opcode is Opcode.BINARY]


def test_binary_messages_go_both_ways_and_the_subprotocol_is_agreed_on() -> None:
    bench = Bench().handshake()
    assert bench.client.state is State.OPEN
    assert bench.client.subprotocol == "mqtt"
    bench.client.send_binary(b"hello")
    bench.exchange()
    assert bench.received() == b"hello"
    assert bench.echoed() == [b"hello"]
    assert bench.node.named("connect") == [("ws", None)]


def test_the_node_knows_of_the_connection_before_the_upgrade() -> None:
    """Its patience until CONNECT covers a slow upgrade too."""
    bench = Bench()
    assert len(bench.node.named("connect")) == 1
    bench.protocol.data_received(b"GET /mqtt HT")
    connection: Any = bench.node.connections[0]
    bench.protocol.write(b"too early")
    connection.handle.close()
    bench.loop.iterate()
    assert bench.transport.written == []
    assert bench.transport.calls == ["close"]


@pytest.mark.parametrize("step", [1, 3])
def test_frames_in_small_pieces_are_the_same_bytes(step: int) -> None:
    bench = Bench()
    bench.client.send_request(bench.client.connect())
    bench.exchange(step)
    bench.client.send_binary(b"one")
    bench.client.send_binary(b"two")
    bench.exchange(step)
    assert bench.received() == b"onetwo"


def test_a_fragmented_message_goes_on_as_it_comes() -> None:
    bench = Bench().handshake()
    bench.client.send_binary(b"first ", fin=False)
    bench.client.send_ping(b"between")
    bench.client.send_continuation(b"second ", fin=False)
    bench.client.send_continuation(b"third", fin=True)
    bench.exchange()
    assert bench.received() == b"first second third"
    assert [e.data for e in bench.events if isinstance(e, Frame) and e.opcode is Opcode.PONG] == [b"between"]


def test_a_text_frame_closes_the_connection() -> None:
    bench = Bench().handshake()
    bench.client.send_text(b"hello", fin=False)
    bench.client.send_continuation(b"world", fin=True)
    bench.exchange()
    assert bench.received() == b""
    assert bench.client.close_code == 1003
    assert bench.transport.calls == ["eof", "resume"], "what still comes is read and discarded"


def test_a_message_that_is_too_long_closes_the_connection() -> None:
    bench = Bench().handshake()
    bench.client.send_binary(bytes(MESSAGE_MAX + 1))
    bench.exchange()
    assert bench.received() == b""
    assert bench.client.close_code == 1009


def test_an_unmasked_frame_closes_the_connection() -> None:
    bench = Bench().handshake()
    bench.protocol.data_received(b"\x82\x02hi")
    bench.exchange()
    bench.exchange()
    assert bench.received() == b""
    assert bench.client.close_code == 1002


@pytest.mark.parametrize(
    ("path", "subprotocols", "status"),
    [("/other", ("mqtt",), 404), ("/mqtt", ("wamp",), 400), ("/mqtt", (), 400)],
)
def test_an_upgrade_to_something_else_is_refused(path: str, subprotocols: tuple[str, ...], status: int) -> None:
    bench = Bench(path, subprotocols).handshake()
    responses = [event for event in bench.events if isinstance(event, Response)]
    assert [response.status_code for response in responses] == [status]
    assert bench.transport.calls == ["eof", "resume"], "what still comes is read and discarded"
    assert bench.client.state is State.CLOSED or bench.client.handshake_exc is not None


def test_a_query_behind_the_path_and_more_subprotocols_do_no_harm() -> None:
    bench = Bench("/mqtt?token=x", ("mqttv3.1", "mqtt")).handshake()
    assert bench.client.subprotocol == "mqtt"


@pytest.mark.parametrize("garbage", [b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02ab", b"POST / HTTP/1.1\r\n\r\n"])
def test_what_is_no_upgrade_is_closed(garbage: bytes) -> None:
    bench = Bench()
    bench.protocol.data_received(garbage + b"\r\n\r\n")
    assert bench.transport.calls == ["eof", "resume"], "what still comes is read and discarded"
    assert bench.node.named("receive") == []


def test_an_endless_header_is_closed() -> None:
    bench = Bench()
    bench.protocol.data_received(b"GET /mqtt HTTP/1.1\r\n")
    for _ in range(300):
        bench.protocol.data_received(b"X-More: " + b"y" * 1000 + b"\r\n")
        if bench.transport.calls:
            break
    assert bench.transport.calls == ["eof", "resume"], "what still comes is read and discarded"


def test_the_node_closes_with_the_closing_handshake() -> None:
    bench = Bench().handshake()
    bench.protocol.write(b"bye")
    bench.protocol.close()
    bench.protocol.close()
    assert "close" not in bench.transport.calls, "the peer's answer is waited for"
    assert "resume" in bench.transport.calls
    bench.exchange()
    bench.protocol.write(b"too late")
    bench.exchange()
    assert bench.echoed() == [b"bye"]
    assert bench.client.close_code == 1000
    assert "close" in bench.transport.calls


def test_a_failed_connection_is_cut_off_in_time() -> None:
    bench = Bench().handshake()
    bench.client.send_text(b"hello")
    bench.exchange()
    bench.loop.advance(LINGER_S)
    assert bench.transport.calls == ["eof", "resume", "abort"]
    bench.transport.protocol.connection_lost(None)
    assert bench.node.named("lost") == [(1, "closed by the peer")]


def test_a_peer_that_answers_no_close_and_goes_on_sending_is_cut_off() -> None:
    bench = Bench().handshake()
    bench.protocol.close()
    piece = bytes([0x82, 0xFE, 1000 >> 8, 1000 & 255, 0, 0, 0, 0]) + bytes(1000)  # a masked binary frame
    for _ in range(LINGER_BYTES_MAX // len(piece)):
        bench.protocol.data_received(piece)
    assert bench.transport.calls == ["resume"]
    bench.protocol.data_received(piece)
    assert bench.transport.calls == ["resume", "abort"]
    assert bench.received() == b""


def test_the_peer_closes_with_the_closing_handshake() -> None:
    bench = Bench().handshake()
    bench.client.send_close(1000)
    bench.exchange()
    assert bench.client.state is State.CLOSED
    assert "close" in bench.transport.calls
    bench.protocol.connection_lost(None)
    assert bench.node.named("lost") == [(1, "closed by the peer")]


def test_an_end_without_closing_handshake_is_an_end() -> None:
    bench = Bench().handshake()
    bench.protocol.eof_received()
    assert "close" in bench.transport.calls


def pongs(bench: Bench) -> list[bytes]:
    return [bytes(e.data) for e in bench.events if isinstance(e, Frame) and e.opcode is Opcode.PONG]


def greeted() -> Bench:
    """A client whose CONNECT is complete."""
    bench = Bench().handshake()
    bench.client.send_binary(b"connect")
    bench.exchange()
    return bench


def test_a_ping_before_connect_is_answered_after_it() -> None:
    bench = Bench()
    bench.node.greets = False
    bench.handshake()
    for number in range(1000):
        bench.client.send_ping(b"%d" % number)
        bench.exchange()
    assert pongs(bench) == []
    assert bench.node.named("receive") == []
    bench.node.greets = True
    bench.client.send_binary(b"connect")
    bench.exchange()
    assert pongs(bench) == [b"999"]


def test_one_pong_waits_for_a_client_that_does_not_read() -> None:
    bench = greeted()
    bench.protocol.pause_writing()
    for number in range(1000):
        bench.client.send_ping(b"%d" % number)
        bench.exchange()
    assert pongs(bench) == []
    bench.protocol.resume_writing()
    bench.exchange()
    assert pongs(bench) == [b"999"]


def test_pings_of_one_read_are_answered_once() -> None:
    bench = greeted()
    for number in range(100):
        bench.client.send_ping(b"%d" % number)
    bench.exchange()
    assert pongs(bench) == [b"99"]


def test_no_pong_follows_close() -> None:
    bench = greeted()
    bench.protocol.close()
    bench.exchange()
    bench.protocol.data_received(Frame(Opcode.PING, b"x").serialize(mask=True))
    bench.protocol.resume_writing()
    bench.exchange()
    assert pongs(bench) == []


def test_payload_reaches_the_node_before_its_frame_is_complete() -> None:
    """So the limits of the node count it: nothing is held here, whatever the framing."""
    bench = Bench()
    bench.node.greets = False
    bench.handshake()
    data = Frame(Opcode.BINARY, bytes(MESSAGE_MAX)).serialize(mask=True)
    bench.protocol.data_received(data[:500])
    assert len(bench.received()) == 500 - 8
    bench.protocol.data_received(data[500:-1])
    assert len(bench.received()) == MESSAGE_MAX - 1


def test_fragments_of_one_read_reach_the_node_in_one_piece() -> None:
    bench = greeted()
    before = len(bench.node.named("receive"))
    for number in range(20):
        bench.client.send_binary(b"%d" % number)
    bench.exchange()
    assert len(bench.node.named("receive")) == before + 1


def test_many_frames_before_connect_are_refused() -> None:
    bench = Bench()
    bench.node.greets = False
    bench.handshake()
    bench.protocol.data_received(Frame(Opcode.PING, b"").serialize(mask=True) * 2000)
    for _ in range(3):
        bench.loop.iterate()
    bench.exchange()
    assert bench.client.close_code == 1008


def test_many_frames_are_taken_over_several_turns_while_reading_is_paused() -> None:
    bench = greeted()
    small = Frame(Opcode.BINARY, b"x").serialize(mask=True)
    bench.protocol.data_received(small * (FRAMES_FRESH + FRAMES_MAX + 100))
    bench.protocol.data_received(small * 5)  # was on its way
    assert bench.transport.calls == ["pause"]
    assert len(bench.received()) == len(b"connect") + FRAMES_FRESH
    bench.protocol.resume_reading()  # the node would read on
    assert bench.transport.calls == ["pause"]
    bench.loop.iterate()
    bench.loop.iterate()
    assert len(bench.received()) == len(b"connect") + FRAMES_FRESH + FRAMES_MAX + 105
    assert bench.transport.calls[-1] == "resume"


def test_reading_that_the_node_has_paused_is_not_resumed_by_frames() -> None:
    bench = greeted()
    bench.protocol.data_received(Frame(Opcode.BINARY, b"x").serialize(mask=True) * (FRAMES_FRESH + 1))
    bench.protocol.pause_reading()
    bench.loop.iterate()
    assert "resume" not in bench.transport.calls
    bench.protocol.resume_reading()
    assert bench.transport.calls[-1] == "resume"


def test_frames_that_wait_are_forgotten_with_their_connection() -> None:
    bench = greeted()
    bench.protocol.data_received(Frame(Opcode.BINARY, b"x").serialize(mask=True) * (FRAMES_FRESH + 1))
    bench.protocol.connection_lost(None)
    before = bench.received()
    bench.loop.iterate()
    assert bench.received() == before


@pytest.mark.parametrize("step", [1000, HEAD_BYTES_MAX + 100])
def test_the_head_of_the_upgrade_is_bounded_as_a_whole(step: int) -> None:
    bench = Bench()
    head = b"GET /mqtt HTTP/1.1\r\n" + b"Cookie: abcdefgh\r\n" * (HEAD_BYTES_MAX // 18 + 1)
    sent = 0
    while not bench.transport.calls and sent < 2 * HEAD_BYTES_MAX:
        piece = head[sent : sent + step] or b"x"
        bench.protocol.data_received(piece)
        sent += len(piece)
    assert HEAD_BYTES_MAX < sent <= HEAD_BYTES_MAX + 1000 + step
    assert bench.transport.written[0].startswith(b"HTTP/1.1 431 ")
    assert bench.transport.calls == ["eof", "resume"]


def test_what_follows_the_upgrade_in_one_piece_is_taken() -> None:
    bench = Bench()
    bench.client.send_request(bench.client.connect())
    request = b"".join(bench.client.data_to_send())
    bench.protocol.data_received(request + Frame(Opcode.BINARY, b"early").serialize(mask=True))
    assert bench.received() == b"early"


def upgrade(origin: str | None) -> tuple[bytes, list[Any]]:
    """The answer to an upgrade with this header Origin, and the events."""
    bench = Bench()
    events: list[Any] = []
    bench.turns.log = lambda found, _now: events.extend(found)
    request = bench.client.connect()
    if origin is not None:
        request.headers["Origin"] = origin
    bench.client.send_request(request)
    bench.protocol.data_received(b"".join(bench.client.data_to_send()))
    return b"".join(bench.transport.written), events


@pytest.mark.parametrize("origin", [None, "http://localhost:3000", "https://localhost"])
def test_pages_of_the_same_host_and_clients_that_are_no_browser_connect(origin: str | None) -> None:
    answer, events = upgrade(origin)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert events == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_a_page_of_another_host_is_refused_and_told_which_setting_allows_it(origin: str) -> None:
    answer, (event,) = upgrade(origin)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"listeners.origins" in answer
    assert event.kind == "origin_refused"
    assert origin in event.fields["why"]
    assert event.fields["address"].endswith("4711")

"""MQTT over WebSocket (MQTT 5 section 6): binary frames in, binary frames out.

Owns the HTTP upgrade, which the Sans-I/O half of `websockets` judges, and the order of frames; `folkmoot.runtime.frame`
owns their form. To the node it looks like any other handle. Bytes are passed on as they arrive: frame boundaries need
not match packet boundaries [MQTT-6.0.0-2]. So before CONNECT it holds the head of the upgrade (`HEAD_BYTES_MAX`) or,
after that, less than 140 bytes; the node holds at most one CONNECT.
"""

from __future__ import annotations

import http
import logging
import time
from asyncio import Transport
from collections.abc import Sequence
from typing import Any, Final, cast

from websockets.exceptions import NegotiationError
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from folkmoot.kernel.event import WARNING, Event
from folkmoot.runtime.drain import LINGER_BYTES_MAX, Handle, close_in_order, reset
from folkmoot.runtime.frame import BINARY, CLOSE, NORMAL, POLICY, PONG, Deframer, close_frame, frame
from folkmoot.runtime.gate import Arrival, Gate
from folkmoot.runtime.loop import LARGE_BYTES, Turns
from folkmoot.runtime.origin import OriginRules
from folkmoot.runtime.slice import PieceProtocol, Pieces, Waiting
from folkmoot.runtime.tcp import ClientProtocol
from folkmoot.runtime.tls import common_name
from folkmoot.session.connection import NEW

__all__ = ["FRAMES_EARLY_MAX", "FRAMES_FRESH", "FRAMES_MAX", "HEAD_BYTES_MAX", "WebSocketProtocol", "WebSocketRules"]

SUBPROTOCOL: Final = Subprotocol("mqtt")
# Of the upgrade request, cookies included. Other servers allow 8 to 32 KiB.
HEAD_BYTES_MAX: Final = 32 << 10
HEAD_END: Final = b"\r\n\r\n"
# Frames of one connection that are taken at once, less than a tenth of a millisecond of work, and then in each turn of
# the line (`folkmoot.runtime.slice`). The smallest have six bytes: one read may bring 5,000.
FRAMES_FRESH: Final = 32
FRAMES_MAX: Final = 512
# Frames before CONNECT, which has no reason to be in more than one.
FRAMES_EARLY_MAX: Final = 1024
# The library logs every failed handshake; the node reports what matters as events of its own.
LOGGER: Final = logging.getLogger("folkmoot.websocket")
LOGGER.setLevel(logging.CRITICAL + 1)


class WebSocketRules:
    """What a listener requires: the path of the upgrade, the maximum size of a message in bytes, origins of pages."""

    def __init__(self, path: str, message_bytes_max: int, origins: OriginRules) -> None:
        self.path = path
        self.message_bytes_max = message_bytes_max
        self.origins = origins


def choose_mqtt(_protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Accept a client only if it offers the subprotocol "mqtt" [MQTT-6.0.0-3] [MQTT-6.0.0-4]."""
    if SUBPROTOCOL not in offered:
        raise NegotiationError("the subprotocol must be mqtt")
    return SUBPROTOCOL


class WebSocketProtocol(ClientProtocol, PieceProtocol, Handle, Waiting):
    """One connection: the protocol of its transport, and the handle that the node uses."""

    __slots__ = (
        "_closing",
        "_discarded",
        "_early",
        "_ended",
        "_frames",
        "_head",
        "_name",
        "_node_pauses",
        "_pieces",
        "_pong",
        "_rest",
        "_rules",
        "_transport",
        "_waits",
        "_writable",
        "_ws",
    )

    def __init__(self, turns: Turns, gate: Gate, arrival: Arrival, rules: WebSocketRules, name: str) -> None:
        ClientProtocol.__init__(self, turns, gate, arrival)
        self._pieces = Pieces()
        self._rules = rules
        self._name = name
        self._transport: Transport = cast("Transport", None)
        self._head = bytearray()  # of the upgrade request, until it is complete
        self._frames: Deframer | None = None  # since the upgrade
        self._rest = b""  # received frames that wait for their turn
        self._waits = False  # in the line; meanwhile it is not read
        self._early = 0  # frames before CONNECT
        self._pong: bytes | None = None  # the payload of the newest Ping that is not answered
        self._writable = True
        self._node_pauses = False  # reading
        self._closing = False
        self._discarded = 0  # bytes received since the connection is being closed
        self._ended = False  # the peer has ended its half
        self._ws = ServerProtocol(subprotocols=[SUBPROTOCOL], select_subprotocol=choose_mqtt, logger=LOGGER)

    # From the transport

    def _begin(self, transport: Transport) -> None:
        """Register the connection with the node: the time limit for CONNECT includes the upgrade."""
        self._transport = transport
        certificate: Any = transport.get_extra_info("peercert")
        self._register(transport, self, self._name, common_name(certificate))

    def data_received(self, data: bytes) -> None:
        """Pass the payload of the frames in a chunk to the node."""
        began_s = time.perf_counter()
        try:
            self._take(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, other connections go on
            self._broken(error)
        self._turns.slices.handled_s += time.perf_counter() - began_s

    def _broken(self, error: Exception) -> None:
        if self._connection is not None:
            self._turns.broken(self._connection, error)
        else:
            self._turns.spoiled(self._transport, "unknown", error)

    def _take(self, data: bytes) -> None:
        if self._closing:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                reset(self._transport)
                return
        turns = self._turns
        turns.begin()
        if self._connection is None:
            return  # the node has failed
        if len(data) >= LARGE_BYTES:
            turns.took(self._connection, len(data))
        if self._frames is None:
            if self._closing:
                return
            data = self._upgrade_with(data)
        if self._rest:
            self._rest += data  # what was on its way when reading was paused
        elif self._frames is not None:
            self._read(data, FRAMES_FRESH)

    # The upgrade

    def _upgrade_with(self, data: bytes) -> bytes:
        """Take bytes of the upgrade request; return what follows it."""
        head = self._head
        searched = max(len(head) - len(HEAD_END) + 1, 0)
        head += data
        end = head.find(HEAD_END, searched)
        size = end + len(HEAD_END) if end >= 0 else len(head)
        if size > HEAD_BYTES_MAX:
            large = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._ws.send_response(self._ws.reject(large, f"more than {HEAD_BYTES_MAX} bytes\n"))
        elif end < 0:
            return b""
        else:
            self._ws.receive_data(head[:size])
            for event in self._ws.events_received():
                if isinstance(event, Request):
                    self._upgrade(event)
        rest = bytes(head[size:])
        self._head = bytearray()
        self._answer_upgrade()
        return rest

    def _upgrade(self, request: Request) -> None:
        why = self._rules.origins.refusal(request.headers.get_all("Origin"), request.headers.get_all("Host"))
        if why:
            event = Event(WARNING, "origin_refused", {"address": self._connection.info.address, "why": why})
            self._turns.log([event], self._turns.now)
            response = self._ws.reject(http.HTTPStatus.FORBIDDEN, f"{why}\n")
        elif request.path.partition("?")[0] == self._rules.path:
            response = self._ws.accept(request)
        else:
            response = self._ws.reject(http.HTTPStatus.NOT_FOUND, f"MQTT is at {self._rules.path}\n")
        self._ws.send_response(response)

    def _answer_upgrade(self) -> None:
        """Send the response. The library has done its work then, and its memory is released."""
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._end()  # an empty piece: the request was refused
        if self._ws.state is State.OPEN:
            self._frames = Deframer(self._rules.message_bytes_max)
        self._release()

    def _release(self) -> None:
        """Break the references of the library to itself: else its memory would wait for the garbage collector."""
        ws, self._ws = self._ws, cast("ServerProtocol", None)
        if ws is not None:
            del ws.parser
            fault, ws.handshake_exc = ws.handshake_exc, None
            while fault is not None:
                fault.with_traceback(None)
                fault = cast("Exception | None", fault.__cause__)

    def connection_lost(self, error: Exception | None) -> None:
        """Report the loss to the node."""
        self._release()
        super().connection_lost(error)

    # Frames

    def _read(self, data: bytes, frames_max: int) -> None:
        """Take frames; the rest waits in the line of what costs much."""
        began_s = time.perf_counter()
        frames = cast("Deframer", self._frames)
        self._rest = frames.feed(data, frames_max)
        if frames.payload:
            payload = frames.payload[0] if len(frames.payload) == 1 else b"".join(frames.payload)
            frames.payload.clear()
            if not self._closing:
                self._pass_on(payload)
        if frames.ping is not None:
            self._pong, frames.ping = frames.ping, None
        if not self._rest:
            self._send_pong()
        if frames.fault is not None:
            self._fail(*frames.fault)
        elif frames.closed is not None:
            self._answer_close(frames.closed)
        elif self._rest:
            self._early += frames_max if self._is_new() else 0
            if self._early >= FRAMES_EARLY_MAX:
                self._fail(POLICY, "too many frames before CONNECT")
            else:
                self._pieces.shrink()
                self.costly(time.perf_counter() - began_s)

    def _pass_on(self, payload: bytes) -> None:
        turns = self._turns
        try:
            turns.receive(self._connection, payload, turns.begin())
        except Exception as error:  # noqa: BLE001 - as in `TcpProtocol`
            turns.fail(error)
            return
        if self._arrival is not None:
            self._settle()

    def costly(self, cost_s: float) -> None:
        """Read no more until the line of costly connections has come to this one."""
        if not self._waits and self._connection is not None:
            self._waits = True
            self._transport.pause_reading()
            self._turns.slices.wait(self, cost_s)

    def go_on(self) -> None:
        """Take the frames that wait, then read on."""
        self._waits = False
        rest, self._rest = self._rest, b""
        if self._turns.halted or self._connection.id not in self._turns.open:
            return
        try:
            if rest:
                self._read(rest, FRAMES_MAX)
            if not self._waits and not self._node_pauses:
                self._transport.resume_reading()
        except Exception as error:  # noqa: BLE001 - as in `data_received`
            self._broken(error)

    def _is_new(self) -> bool:
        """Whether the CONNECT is not complete."""
        return bool(self._connection.state == NEW)

    def _send_pong(self) -> None:
        """Answer the newest Ping (RFC 6455 section 5.5.3), when the client has sent CONNECT and reads.

        So there are never more of them than one for each read, and none when more than the high-water mark of the
        transport waits to be sent.
        """
        if self._pong is not None and self._writable and not self._closing and not self._is_new():
            pong, self._pong = self._pong, None
            self._transport.write(frame(PONG, pong))

    # The end

    def _fail(self, code: int, reason: str) -> None:
        """End the connection because of a violation (section 7.1.7)."""
        self._rest = b""
        if not self._closing:
            self._transport.write(close_frame(code, reason))
        self._end()

    def _answer_close(self, body: bytes) -> None:
        """The peer has sent Close: answer it, unless it is an answer itself, and end the connection (section 5.5.1)."""
        self._rest = b""
        self._ended = True
        if not self._closing:
            self._transport.write(frame(CLOSE, body))
        self._end()

    def _end(self) -> None:
        """End the connection; a peer that has ended its half or has sent Close sends nothing more to drain."""
        self._closing = True
        if self._ended:
            self._transport.close()
        else:
            close_in_order(self._transport)
        if self._connection is not None:
            self._turns.linger(self._connection)

    def eof_received(self) -> None:
        """End this half too: the peer has ended its half."""
        self._ended = True
        try:
            self._end()
        except Exception as error:  # noqa: BLE001 - as in `data_received`
            self._broken(error)

    def pause_writing(self) -> None:
        """The peer reads more slowly than the node sends."""
        self._writable = False
        super().pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._writable = True
        try:
            self._send_pong()
        except Exception as error:  # noqa: BLE001 - as in `data_received`
            self._broken(error)
        super().resume_writing()

    # From the node

    def write(self, data: bytes) -> None:
        """Send bytes as one binary frame."""
        if self._frames is not None and not self._closing:
            self._transport.write(frame(BINARY, data))
            self._send_pong()

    def close(self) -> None:
        """Begin the closing handshake; the peer's answer or the time limit closes the connection."""
        if self._closing:
            return
        self._closing = True
        if self._frames is not None:
            self._transport.write(close_frame(NORMAL))
            self.resume_reading()  # the answer, even if the node had paused reading
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, without sending what was written."""
        reset(self._transport)

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Stop reading from the peer, unless the connection is being closed."""
        self._node_pauses = True
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the peer again."""
        self._node_pauses = False
        if not self._waits:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        return self._transport.get_write_buffer_size()

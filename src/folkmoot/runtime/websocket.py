"""MQTT over WebSocket (MQTT 5 section 6): binary frames in, binary frames out, with the Sans-I/O half of `websockets`.

Owns the HTTP upgrade and the framing. To the node it looks like any other handle. Bytes are passed on as they arrive:
frame boundaries need not match packet boundaries [MQTT-6.0.0-2].
"""

from __future__ import annotations

import http
import logging
from asyncio import BaseTransport, Transport
from collections.abc import Sequence
from typing import Any, Final, cast

from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from folkmoot.kernel.event import WARNING, Event
from folkmoot.runtime.drain import LINGER_BYTES_MAX, Handle, close_in_order
from folkmoot.runtime.loop import LARGE_BYTES, Turns
from folkmoot.runtime.origin import OriginRules
from folkmoot.runtime.tcp import ClientProtocol, Gate
from folkmoot.runtime.tls import common_name

__all__ = ["WebSocketProtocol", "WebSocketRules"]

SUBPROTOCOL: Final = Subprotocol("mqtt")
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


class WebSocketProtocol(ClientProtocol, Handle):
    """One connection: the protocol of its transport, and the handle that the node uses."""

    __slots__ = ("_closing", "_discarded", "_ended", "_name", "_rules", "_transport", "_ws")

    def __init__(self, turns: Turns, gate: Gate, rules: WebSocketRules, name: str) -> None:
        super().__init__(turns, gate)
        self._rules = rules
        self._name = name
        self._transport: Transport = cast("Transport", None)
        self._closing = False
        self._discarded = 0  # bytes received since the connection is being closed
        self._ended = False  # the peer has ended its half
        self._ws = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            select_subprotocol=choose_mqtt,
            max_size=rules.message_bytes_max,
            logger=LOGGER,
        )

    # From the transport

    def connection_made(self, transport: BaseTransport) -> None:
        """Register the connection with the node: the time limit for CONNECT includes the upgrade."""
        self._transport = cast("Transport", transport)
        certificate: Any = transport.get_extra_info("peercert")
        self._register(self._transport, self, self._name, common_name(certificate))

    def data_received(self, data: bytes) -> None:
        """Pass the payload of the frames in a chunk to the node."""
        if self._closing:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                self._transport.abort()
                return
            if self._ws.state is State.CONNECTING:
                return
        turns = self._turns
        now = turns.begin()
        if len(data) >= LARGE_BYTES and self._connection is not None:
            turns.took(self._connection, len(data))
        self._ws.receive_data(data)
        for event in self._ws.events_received():
            if isinstance(event, Frame):
                if event.opcode is Opcode.BINARY or event.opcode is Opcode.CONT:
                    if event.data and not self._closing:
                        turns.receive(self._connection, bytes(event.data), now)
                elif event.opcode is Opcode.TEXT:
                    # "If any other type of data frame is received the recipient MUST close" [MQTT-6.0.0-1]
                    self._refuse(CloseCode.UNSUPPORTED_DATA, "binary frames only")
            elif isinstance(event, Request):
                self._upgrade(event)
        self._flush()

    def _upgrade(self, request: Request) -> None:
        if self._ws.eof_sent:
            return  # invalid bytes behind the request have ended the connection already
        why = self._rules.origins.refusal(request.headers.get_all("Origin"), request.headers.get_all("Host"))
        if why:
            self._turns.log(
                [Event(WARNING, "origin_refused", {"address": self._address(), "why": why})], self._turns.now
            )
            response = self._ws.reject(http.HTTPStatus.FORBIDDEN, f"{why}\n")
        elif request.path.partition("?")[0] == self._rules.path:
            response = self._ws.accept(request)
        else:
            response = self._ws.reject(http.HTTPStatus.NOT_FOUND, f"MQTT is at {self._rules.path}\n")
        self._ws.send_response(response)

    def _address(self) -> str:
        return str(self._connection.info.address) if self._connection is not None else "unknown"

    def _refuse(self, code: CloseCode, reason: str) -> None:
        if self._ws.state is State.OPEN:
            self._ws.fail(code, reason)
        self._closing = True

    def _flush(self) -> None:
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                # An empty piece: the library wants the sending half ended.
                self._end()

    def _end(self) -> None:
        """End the connection; a peer that has ended its half or has sent Close sends nothing more to drain."""
        self._closing = True
        if self._ended or self._ws.close_rcvd is not None:
            self._transport.close()
        else:
            close_in_order(self._transport)
        if self._connection is not None:
            self._turns.linger(self._connection)

    def eof_received(self) -> None:
        """End this half too: the peer has ended its half."""
        self._ended = True
        self._ws.receive_eof()
        self._flush()

    # From the node

    def write(self, data: bytes) -> None:
        """Send bytes as one binary frame."""
        if self._ws.state is State.OPEN and not self._closing:
            self._ws.send_binary(data)
            self._flush()

    def close(self) -> None:
        """Begin the closing handshake; the peer's answer or the time limit closes the connection."""
        if self._closing:
            return
        self._closing = True
        if self._ws.state is State.OPEN:
            self._ws.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
            # Read the answer, even if the node had paused reading.
            self._transport.resume_reading()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, without sending what was written."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading from the peer, unless the connection is being closed."""
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the peer again."""
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        return self._transport.get_write_buffer_size()

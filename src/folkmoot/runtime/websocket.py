"""MQTT over WebSocket (MQTT 5 section 6): binary frames in, binary frames out, with the Sans-I/O half of `websockets`.

Owns the HTTP upgrade and the framing. To the node it looks like any other handle; bytes go on as they come, whatever
the borders of frames: "MQTT packets may span frames, and a frame may hold several" [MQTT-6.0.0-2].
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

from folkmoot.runtime.loop import LARGE_BYTES, Handle, Turns
from folkmoot.runtime.tcp import ClientProtocol, Gate
from folkmoot.runtime.tls import common_name

__all__ = ["WebSocketProtocol", "WebSocketRules"]

SUBPROTOCOL: Final = Subprotocol("mqtt")
# The library logs every frame on demand and every failed handshake always; what matters is an event of the node.
LOGGER: Final = logging.getLogger("folkmoot.websocket")
LOGGER.setLevel(logging.CRITICAL + 1)


class WebSocketRules:
    """What a listener demands: the path of the upgrade, and how many bytes one message may have."""

    def __init__(self, path: str, message_bytes_max: int) -> None:
        self.path = path
        self.message_bytes_max = message_bytes_max


def choose_mqtt(_protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Accept a client that offers "mqtt" and no other [MQTT-6.0.0-3], [MQTT-6.0.0-4]."""
    if SUBPROTOCOL not in offered:
        raise NegotiationError("the subprotocol must be mqtt")
    return SUBPROTOCOL


class WebSocketProtocol(ClientProtocol, Handle):
    """One connection: a protocol to its transport, a handle to the node."""

    __slots__ = ("_closing", "_name", "_rules", "_transport", "_ws")

    def __init__(self, turns: Turns, gate: Gate, rules: WebSocketRules, name: str) -> None:
        super().__init__(turns, gate)
        self._rules = rules
        self._name = name
        self._transport: Transport = cast("Transport", None)
        self._closing = False
        self._ws = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            select_subprotocol=choose_mqtt,
            max_size=rules.message_bytes_max,
            logger=LOGGER,
        )

    # From the transport

    def connection_made(self, transport: BaseTransport) -> None:
        """Introduce the peer: its time until CONNECT begins now, with the upgrade in it."""
        self._transport = cast("Transport", transport)
        certificate: Any = transport.get_extra_info("peercert")
        self._register(self._transport, self, self._name, common_name(certificate))

    def data_received(self, data: bytes) -> None:
        """Take the payload out of the frames in a chunk and pass it on."""
        if self._closing and self._ws.state is State.CONNECTING:
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
            return  # nonsense behind the request has ended the connection already
        if request.path.partition("?")[0] == self._rules.path:
            response = self._ws.accept(request)
        else:
            response = self._ws.reject(http.HTTPStatus.NOT_FOUND, f"MQTT is at {self._rules.path}\n")
        self._ws.send_response(response)

    def _refuse(self, code: CloseCode, reason: str) -> None:
        if self._ws.state is State.OPEN:
            self._ws.fail(code, reason)
        self._closing = True

    def _flush(self) -> None:
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                # The library's sign that the sending half is done.
                self._transport.close()

    def eof_received(self) -> None:
        """The peer has ended its half: so do we."""
        self._ws.receive_eof()
        self._flush()

    # From the node

    def write(self, data: bytes) -> None:
        """Send bytes as one binary frame."""
        if self._ws.state is State.OPEN and not self._closing:
            self._ws.send_binary(data)
            self._flush()

    def close(self) -> None:
        """Begin the closing handshake; the peer's answer, or the end of patience, closes the connection."""
        if self._closing:
            return
        self._closing = True
        if self._ws.state is State.OPEN:
            self._ws.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
            # The answer is waited for even if the node had stopped reading.
            self._transport.resume_reading()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Take nothing more from the peer."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take what the peer sends."""
        self._transport.resume_reading()

"""The framing of WebSocket (RFC 6455 section 5), from a client's bytes to payload and back: a function of the bytes.

Owns the incomplete header, or control frame, of one connection: less than 140 bytes, whatever the client announces.
Payload is passed on as it arrives and never held: MQTT does not need the borders of messages [MQTT-6.0.0-2]. It writes
to nothing and decides nothing about MQTT; `folkmoot.runtime.websocket` owns the connection.
"""

from __future__ import annotations

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # websockets was installed without its native part
    from websockets.utils import apply_mask

__all__ = [
    "BINARY",
    "CLOSE",
    "INVALID_DATA",
    "MESSAGE_TOO_BIG",
    "NORMAL",
    "POLICY",
    "PONG",
    "PROTOCOL_ERROR",
    "UNSUPPORTED",
    "Deframer",
    "close_frame",
    "frame",
]

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

# Codes of Close (section 7.4.1).
NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED: Final = 1003
INVALID_DATA: Final = 1007
POLICY: Final = 1008
MESSAGE_TOO_BIG: Final = 1009
# What a peer may put into Close: the registered codes without those that stand for the lack of one, and private ones.
CODES: Final = frozenset((*range(1000, 1004), *range(1007, 1015)))
CODES_PRIVATE: Final = range(3000, 5000)

FIN: Final = 0x80
RESERVED: Final = 0x70
MASKED: Final = 0x80
CONTROL: Final = 0x08
CONTROL_BYTES_MAX: Final = 125

INCOMPLETE: Final = -1
INVALID: Final = -2


def frame(opcode: int, data: bytes) -> bytes:
    """Return a whole frame as a server sends it: final and not masked (section 5.1)."""
    size = len(data)
    if size < 126:
        return bytes((FIN | opcode, size)) + data
    if size < 65_536:
        return b"".join((bytes((FIN | opcode, 126)), size.to_bytes(2, "big"), data))
    return b"".join((bytes((FIN | opcode, 127)), size.to_bytes(8, "big"), data))


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a Close frame with a code and a reason of at most 123 bytes (section 5.5.1)."""
    return frame(CLOSE, code.to_bytes(2, "big") + reason.encode())


class Deframer:
    """Takes a client's frames off its bytes: `Deframer(message_bytes_max)`.

    After `feed`: `payload` has the pieces of binary messages, `ping` the payload of the newest Ping (section 5.5.3: it
    is enough to answer this one), `closed` that of Close, and `fault` the code and reason of the first violation. What
    follows Close or a violation is ignored. The caller clears `payload` and `ping`.
    """

    __slots__ = (
        "_control",
        "_fin",
        "_head",
        "_left",
        "_mask",
        "_message_bytes",
        "_message_bytes_max",
        "_opcode",
        "closed",
        "fault",
        "payload",
        "ping",
    )

    def __init__(self, message_bytes_max: int) -> None:
        self.payload: list[bytes] = []
        self.ping: bytes | None = None
        self.closed: bytes | None = None
        self.fault: tuple[int, str] | None = None
        self._message_bytes_max = message_bytes_max
        self._message_bytes = -1  # of the message that is incomplete; -1: there is none
        self._head = b""  # of a frame whose header is incomplete
        self._opcode = -1  # of the frame that is incomplete; -1: there is none
        self._fin = False
        self._left = 0  # bytes that its payload still lacks
        self._mask = b""  # turned so that the next byte of the payload is masked with the first one
        self._control = b""  # payload of an incomplete control frame

    def held_bytes(self) -> int:
        """Return how many bytes are held until more arrive."""
        return len(self._head) + len(self._control)

    def feed(self, data: bytes, frames_max: int) -> bytes:
        """Take the next bytes; return those that lie behind `frames_max` frames, for a later call."""
        if self._head:
            data = self._head + data
            self._head = b""
        size = len(data)
        pos = 0
        while self.fault is None and self.closed is None:
            if self._opcode < 0:
                if frames_max <= 0:
                    return data[pos:]
                at = self._header(data, pos)
                if at == INCOMPLETE:
                    self._head = data[pos:]
                if at < 0:
                    break
                frames_max -= 1
                pos = at
            elif pos == size:
                break
            end = min(size, pos + self._left)
            if end > pos:
                self._take(data[pos:end])
                pos = end
            if self._left == 0:
                self._complete()
        return b""

    def _header(self, data: bytes, pos: int) -> int:
        """Read the header at `pos`; return where its payload begins, INCOMPLETE, or INVALID with `fault` set."""
        size = len(data)
        if size - pos < 2:
            return INCOMPLETE
        first, second = data[pos], data[pos + 1]
        opcode, length, at = first & 15, second & 127, pos + 2
        fault = self._fault_of(first, opcode, second, length)
        if fault:
            self.fault = (PROTOCOL_ERROR, fault)
            return INVALID
        if opcode == TEXT:
            # "If any other type of data frame is received the recipient MUST close" [MQTT-6.0.0-1]
            self.fault = (UNSUPPORTED, "binary frames only")
            return INVALID
        if length >= 126:
            after = at + (2 if length == 126 else 8)
            if size < after:
                return INCOMPLETE
            length = int.from_bytes(data[at:after], "big")
            at = after
        total = length + max(self._message_bytes, 0)
        if opcode < CONTROL and total > self._message_bytes_max:
            self.fault = (MESSAGE_TOO_BIG, f"a message of more than {self._message_bytes_max} bytes")
            return INVALID
        if size - at < 4:
            return INCOMPLETE
        if opcode < CONTROL:
            self._message_bytes = total
        self._opcode = opcode
        self._fin = first & FIN != 0
        self._left = length
        self._mask = data[at : at + 4]
        return at + 4

    def _fault_of(self, first: int, opcode: int, second: int, length: int) -> str:
        """Return what is wrong with a header as far as its first two bytes show it (sections 5.1 to 5.5), or ""."""
        if first & RESERVED:
            return "reserved bits are set, and no extension was agreed on"
        if not second & MASKED:
            return "a frame of a client is not masked"
        if opcode in (CLOSE, PING, PONG):
            if not first & FIN:
                return "a control frame is fragmented"
            return "a control frame is longer than 125 bytes" if length > CONTROL_BYTES_MAX else ""
        if opcode == CONTINUATION:
            return "" if self._message_bytes >= 0 else "a continuation without a message"
        if opcode not in (TEXT, BINARY):
            return f"a frame of the unknown kind {opcode}"
        return "" if self._message_bytes < 0 else "a new message within a fragmented one"

    def _take(self, data: bytes) -> None:
        """Take a piece of the payload of the current frame."""
        mask = self._mask
        piece = bytes(apply_mask(data, mask))
        self._left -= len(data)
        if turn := len(data) & 3:
            self._mask = mask[turn:] + mask[:turn]
        if self._opcode >= CONTROL:
            self._control += piece
        else:
            self.payload.append(piece)

    def _complete(self) -> None:
        """End the current frame."""
        opcode, self._opcode = self._opcode, -1
        if opcode < CONTROL:
            if self._fin:
                self._message_bytes = -1
            return
        control, self._control = self._control, b""
        if opcode == PING:
            self.ping = control
        elif opcode == CLOSE:
            self._close(control)

    def _close(self, body: bytes) -> None:
        """Check the payload of Close: nothing, or a code and a reason in UTF-8 (sections 5.5.1, 7.4)."""
        if len(body) == 1:
            self.fault = (PROTOCOL_ERROR, "a Close with half a code")
            return
        if body:
            code = int.from_bytes(body[:2], "big")
            if code not in CODES and code not in CODES_PRIVATE:
                self.fault = (PROTOCOL_ERROR, f"a Close with the invalid code {code}")
                return
            try:
                body[2:].decode()
            except UnicodeDecodeError:
                self.fault = (INVALID_DATA, "a Close with a reason that is not UTF-8")
                return
        self.closed = body

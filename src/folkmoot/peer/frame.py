"""The wire format between two nodes: frames, and the numbered messages that a data frame carries.

Owns the layout, and the bytes of a frame that is incomplete. Knows no peer and decides nothing. A frame is its length
(4 bytes, not counting themselves), a kind (1 byte) and a body; integers are big-endian. The body of a data frame:

    first   u64  number of its first message; messages of a link are numbered from 1 without gaps; 0 when it has none
    ack     u64  the sender has received all messages up to this number
    then for each message: kind u8, length LEB128, body

A CONTROL_DATA frame has the same body; its messages are numbered and acknowledged by themselves. A PIECE is a part of a
DATA frame that is too long to be sent at once: a byte, 1 with its first part and else 0, and bytes of that frame, its
length field included. It is whole when it has as many as it says.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import U16, get_u32, u32, u64, varint

__all__ = [
    "CHALLENGE",
    "CLOSE",
    "CONTROL_DATA",
    "DATA",
    "FRAME_BYTES_MAX",
    "HELLO",
    "MALFORMED",
    "MESSAGE_BYTES_MAX",
    "NONE",
    "PIECE",
    "PING",
    "PONG",
    "PROOF",
    "RESUME",
    "WAITED",
    "FrameReader",
    "data_frame",
    "frame",
    "message_head",
    "piece_frame",
]

HELLO: Final = 1  # id, versions, settings: folkmoot.peer.handshake, as the next one and CHALLENGE
PROOF: Final = 2  # of knowing the secret
RESUME: Final = 3  # the state of the link: folkmoot.peer.link
DATA: Final = 4  # messages; without any it only acknowledges
PING: Final = 5  # a time of the sender, u64; returned at once as PONG
PONG: Final = 6
CLOSE: Final = 7  # the last frame: a code, u8, and a reason in UTF-8
CHALLENGE: Final = 8  # the first frame: a nonce
WAITED: Final = 9  # how long the messages of the next data frame that has any have waited: milliseconds, u64
CONTROL_DATA: Final = 10  # messages of the control class
PIECE: Final = 11  # of a DATA frame

FRAME_BYTES_MAX: Final = 1 << 30
"""What a peer that has proved itself may announce; memory is taken only as the bytes arrive."""

MESSAGE_BYTES_MAX: Final = FRAME_BYTES_MAX - 64

NONE: Final = -1
MALFORMED: Final = -2

_BYTE: Final[list[bytes]] = [bytes([n]) for n in range(256)]


def frame(kind: int, body: bytes) -> bytes:
    """Return a whole frame."""
    return b"".join([u32(len(body) + 1), _BYTE[kind], body])


def piece_frame(data: bytes, start: int, stop: int) -> bytes:
    """Return the PIECE with a part of a DATA frame."""
    return b"".join([u32(stop - start + 2), _BYTE[PIECE], _BYTE[0 if start else 1], data[start:stop]])


def message_head(kind: int, size: int) -> bytes:
    """Return the head of a message whose body has `size` bytes; kind 0 to 255."""
    if size < 128:
        return U16[kind << 8 | size]
    if size < 16384:
        return U16[kind << 8 | size & 127 | 128] + _BYTE[size >> 7]
    return _BYTE[kind] + varint(size)


def data_frame(kind: int, first: int, ack: int, pieces: list[bytes], size: int) -> bytes:
    """Return the frame, DATA or CONTROL_DATA, with the `size` bytes of pieces[1:]; pieces[0] is replaced by the head.

    The bytes of a turn are joined here and nowhere else.
    """
    pieces[0] = b"".join([u32(size + 17), _BYTE[kind], u64(first), u64(ack)])
    return b"".join(pieces)


class FrameReader:
    """Cuts a byte stream into frames of at most `bytes_max` bytes, the length field not counted; it may change.

    After `feed`, call `next` until it returns NONE or MALFORMED. Complete frames are read in place.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max: int = bytes_max
        self.data: bytes = b""
        self.stop: int = 0
        self._pos: int = 0
        self._held: bytearray = bytearray()
        self._need_bytes: int = 0
        self._later: list[bytes] = []  # chunks that came while frames before them were not read

    def __repr__(self) -> str:
        return f"FrameReader(held={len(self._held)} need={self._need_bytes} bytes_max={self.bytes_max})"

    def held_bytes(self) -> int:
        """Return how many bytes of an incomplete frame are held."""
        return len(self._held)

    def feed(self, data: bytes) -> None:
        """Take the next chunk of the stream."""
        if len(self.data) > 0:
            self._later.append(data)
            return
        if len(self._held) > 0:
            self._held += data
            if len(self._held) < self._need_bytes:
                return
            data = bytes(self._held)
            self._held = bytearray()
        self.data = data
        self._pos = 0

    def next(self) -> int:
        """Return where in `data` the next frame's kind is, its body ending before `stop`; or NONE or MALFORMED."""
        data = self.data
        pos = self._pos
        while True:
            end = len(data)
            need = 4
            if end - pos >= 4:
                size = get_u32(data, pos)
                if size == 0 or size > self.bytes_max:
                    return MALFORMED
                need += size
                if end - pos >= need:
                    self._pos = self.stop = pos + need
                    return pos + 4
            if not self._later:
                break
            data = self.data = b"".join([data[pos:], *self._later])
            pos = self._pos = 0
            self._later = []
        if pos < end:
            self._held = bytearray(data[pos:])
            self._need_bytes = need
        self.data = b""
        self._pos = 0
        return NONE

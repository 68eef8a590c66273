"""Framing: packets from a byte stream, by fixed header and remaining length (MQTT 5.0 section 2.1).

Owns the bytes of the incomplete packet. Never looks inside a packet. The cost is linear in the bytes, for chunks of
any size, and memory is allocated only for bytes that have arrived.
"""

from __future__ import annotations

from folkmoot.mqtt.error import MalformedPacket, malformed
from folkmoot.mqtt.reason import PACKET_TOO_LARGE
from folkmoot.mqtt.varint import INCOMPLETE, MALFORMED, decode_varint

__all__ = ["Framer"]


class Framer:
    """Cuts a byte stream into packets of at most `packet_bytes_max` bytes, fixed header included.

    `packet_bytes_max` may be changed between two calls. `error` is the error that ended the stream, or None.
    """

    def __init__(self, packet_bytes_max: int) -> None:
        self.packet_bytes_max: int = packet_bytes_max
        self.error: MalformedPacket | None = None
        # Either _head has an incomplete fixed header (at most 4 bytes), or _body has a body of which _missing > 0 bytes
        # have not arrived, or both are empty.
        self._head: bytes = b""
        self._first: int = 0
        self._body: bytearray = bytearray()
        self._missing: int = 0

    def __repr__(self) -> str:
        return f"Framer(head={self._head!r}, body={len(self._body)}, missing={self._missing}, error={self.error!r})"

    def pending_bytes(self) -> int:
        """Return how many bytes wait for the rest of their packet."""
        return len(self._head) + len(self._body)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return (first byte, body) of every packet that `data` completes.

        An invalid or too large remaining length sets `error` at once. This call raises it (MalformedPacket 0x81 or
        0x95) if there is no packet before it, otherwise the next call does: so any split of the stream gives the same
        packets and then the same error. A caller that must react at once checks `error` after the packets.
        """
        if self.error is not None:
            raise self.error
        packets: list[tuple[int, bytes]] = []
        pos = 0
        if self._missing > 0:
            pos = self._fill(data)
            if self._missing > 0:
                return packets
            packets.append((self._first, bytes(self._body)))
            self._body = bytearray()
        elif len(self._head) != 0:
            data = self._head + data
            self._head = b""
        error = self._scan(data, pos, packets)
        if error is not None:
            self.error = error
            if len(packets) == 0:
                raise error
        return packets

    def _fill(self, data: bytes) -> int:
        # A growing bytearray instead of a list of chunks: a packet of 256 MB may arrive byte by byte.
        size = len(data)
        if size <= self._missing:
            self._body += data
            self._missing -= size
            return size
        taken = self._missing
        self._body += data[:taken]
        self._missing = 0
        return taken

    def _scan(self, data: bytes, pos: int, packets: list[tuple[int, bytes]]) -> MalformedPacket | None:
        end = len(data)
        while pos < end:
            length, start = decode_varint(data, pos + 1)
            if length < 0:
                if length == MALFORMED:
                    # [MQTT-1.5.5-1]
                    return malformed("the remaining length is not a variable byte integer")
                assert length == INCOMPLETE, length
                self._head = data[pos:]
                return None
            size = start - pos + length
            if size > self.packet_bytes_max:
                # Section 3.1.2.11.4: the size counts the whole packet.
                text = f"a packet of {size} bytes, the limit is {self.packet_bytes_max}"
                return MalformedPacket(PACKET_TOO_LARGE, text)
            stop = start + length
            if stop > end:
                self._first = data[pos]
                self._body = bytearray(data[start:])
                self._missing = stop - end
                return None
            packets.append((data[pos], data[start:stop]))
            pos = stop
        return None

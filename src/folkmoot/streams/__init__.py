"""Streams: messages that can be read again by offset. Appending, dense offsets, chunks, retention, range reads.

Owns the rows of kind CHUNK and STREAM. Never routes, delivers or acknowledges; never reads a clock or a socket.
"""

from __future__ import annotations

__all__: list[str] = []

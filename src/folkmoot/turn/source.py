"""Which packet has begun something that is stored: so that a new leader knows it when it comes again.

The node with a connection passes its packets on to the leader of the session, and once more to the next leader what is
not known to be safe. Owns the form of the name that they have: the token of the connection, and the packet's number.
"""

from __future__ import annotations

from folkmoot.kernel.pack import get_u64, u64
from folkmoot.session.connection import Connection

__all__ = ["is_later", "source_of"]


def source_of(connection: Connection) -> bytes:
    """Return the name of the packet in hand; nothing for one that cannot come again."""
    remote = connection.remote
    if remote is not None:
        return u64(remote.token) + u64(remote.received_seq)
    return u64(connection.token) + u64(connection.again) if connection.again else b""


def is_later(source: bytes, known: bytes) -> bool:
    """Whether a packet is neither the one that is known nor one before it on the same connection."""
    if len(source) != 16 or len(known) != 16 or source[:8] != known[:8]:
        return True
    return get_u64(source, 8) > get_u64(known, 8)

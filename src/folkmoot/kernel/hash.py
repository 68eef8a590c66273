"""The hash of the project. Placement depends on it: it is the same in all processes, machines and versions."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["hash64"]


def hash64(data: bytes) -> int:
    """Return a 64-bit hash of `data` (BLAKE2b with an 8-byte digest, RFC 7693, big-endian)."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")

"""Seeded random numbers: the same seed gives the same numbers on every machine, interpreted and compiled."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["Rng"]

_MASK: Final = (1 << 64) - 1


class Rng:
    """A SplitMix64 generator (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014)."""

    def __init__(self, seed: int) -> None:
        self._state: int = seed & _MASK

    def next64(self) -> int:
        """Return the next integer in [0, 2**64)."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound); `bound` must be positive. The bias is below 2**-32 for bounds of 32 bits."""
        assert bound > 0, "below() needs a positive bound"
        return (self.next64() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high], both included."""
        return low + self.below(high - low + 1)

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator / denominator."""
        return self.below(denominator) < numerator

    def token(self, length: int) -> str:
        """Return `length` characters of a-z and 2-7, at most 64, for identifiers that others see.

        They are a hash of several outputs: an output itself would tell whoever gets it all later ones.
        """
        assert 0 <= length <= 64, "a hash has 64 bytes"
        alphabet = "abcdefghijklmnopqrstuvwxyz234567"
        drawn = b"".join([self.next64().to_bytes(8, "big") for _ in range(length)])
        return "".join([alphabet[byte & 31] for byte in hashlib.blake2b(drawn).digest()[:length]])

    def fork(self) -> Rng:
        """Return an independent generator seeded from this one."""
        return Rng(self.next64())

"""The hash against BLAKE2b written down a second time, from RFC 7693: placement on disk depends on it for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.hash import hash64

MASK = 2**64 - 1
# RFC 7693 section 2.6: the first 64 bits of the fractional parts of the square roots of the first eight primes.
IV = [
    0x6A09E667F3BCC908,
    0xBB67AE8584CAA73B,
    0x3C6EF372FE94F82B,
    0xA54FF53A5F1D36F1,
    0x510E527FADE682D1,
    0x9B05688C2B3E6C1F,
    0x1F83D9ABFB41BD6B,
    0x5BE0CD19137E2179,
]
# Section 2.7: the message schedule.
SIGMA = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
]
COLUMNS = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
DIAGONALS = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]


def rotated(word: int, bits: int) -> int:
    return (word >> bits | word << (64 - bits)) & MASK


def mix(v: list[int], places: tuple[int, int, int, int], x: int, y: int) -> None:
    """Section 3.1."""
    a, b, c, d = places
    v[a] = (v[a] + v[b] + x) & MASK
    v[d] = rotated(v[d] ^ v[a], 32)
    v[c] = (v[c] + v[d]) & MASK
    v[b] = rotated(v[b] ^ v[c], 24)
    v[a] = (v[a] + v[b] + y) & MASK
    v[d] = rotated(v[d] ^ v[a], 16)
    v[c] = (v[c] + v[d]) & MASK
    v[b] = rotated(v[b] ^ v[c], 63)


def compress(h: list[int], block: bytes, count: int, final: bool) -> None:
    """Section 3.2."""
    words = [int.from_bytes(block[i : i + 8], "little") for i in range(0, 128, 8)]
    v = h + IV
    v[12] ^= count & MASK
    v[13] ^= count >> 64
    if final:
        v[14] ^= MASK
    for step in range(12):
        schedule = SIGMA[step % 10]
        for i, places in enumerate(COLUMNS + DIAGONALS):
            mix(v, places, words[schedule[2 * i]], words[schedule[2 * i + 1]])
    for i in range(8):
        h[i] ^= v[i] ^ v[i + 8]


def blake2b(data: bytes, size: int) -> bytes:
    """Section 3.3, without a key."""
    h = list(IV)
    h[0] ^= 0x01010000 ^ size
    blocks = [data[i : i + 128] for i in range(0, len(data), 128)] or [b""]
    for i, block in enumerate(blocks[:-1]):
        compress(h, block, 128 * (i + 1), False)
    compress(h, blocks[-1].ljust(128, b"\0"), len(data), True)
    return b"".join([word.to_bytes(8, "little") for word in h])[:size]


def test_the_second_writing_is_right() -> None:
    """RFC 7693 appendix A: BLAKE2b-512 of "abc"."""
    assert blake2b(b"abc", 64).hex() == (
        "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"
    )


@given(st.binary(max_size=300))
def test_a_hash_is_an_8_byte_blake2b_read_from_its_big_end(data: bytes) -> None:
    assert hash64(data) == int.from_bytes(blake2b(data, 8), "big")


def test_partitions_are_about_equally_full() -> None:
    counts = [0] * 16
    for number in range(16_000):
        counts[hash64(b"device-%d" % number) % 16] += 1
    # 1000 each; the standard deviation is sqrt(16000 / 16 * 15 / 16) = 31.
    assert all(845 < count < 1155 for count in counts), counts

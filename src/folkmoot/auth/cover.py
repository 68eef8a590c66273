"""Relations of the topic sets of two filters: one contains the other, or they overlap.

Owns the two relations that access rules need. A topic name is a filter that matches only itself, so for a topic both
relations mean "matches" (MQTT 5.0 section 4.7). Filters are valid and without `$share/GROUP/`. Loops, no recursion.
"""

from __future__ import annotations

from typing import Final

__all__ = ["covers", "covers_levels", "overlaps", "overlaps_levels"]

SHARP: Final = b"#"
PLUS: Final = b"+"
DOLLAR: Final = b"$"


def covers(wide: bytes, narrow: bytes) -> bool:
    """Return whether `wide` matches every topic that `narrow` matches."""
    return covers_levels(wide.split(b"/"), narrow.split(b"/"))


def overlaps(one: bytes, other: bytes) -> bool:
    """Return whether both filters match some topic."""
    return overlaps_levels(one.split(b"/"), other.split(b"/"))


def covers_levels(wide: list[bytes], narrow: list[bytes]) -> bool:
    """Return the same as `covers`, for filters split at `/`."""
    if apart_by_dollar(wide[0], narrow[0]):
        return False
    # Every topic has a first level, so `+/#` equals `#`. Only here: `a/#` also matches `a`, which `a/+/#` does not.
    if len(wide) == 2 and wide[0] == PLUS and wide[1] == SHARP:
        return True
    narrow = normal(narrow)
    count = len(narrow)
    for i in range(len(wide)):
        level = wide[i]
        if level == SHARP:  # at i == count it covers the parent level
            return True
        if i == count:
            return False
        other = narrow[i]
        if other == SHARP or (level != PLUS and level != other):
            return False
    return count == len(wide)


def overlaps_levels(one: list[bytes], other: list[bytes]) -> bool:
    """Return the same as `overlaps`, for filters split at `/`."""
    if apart_by_dollar(one[0], other[0]) or apart_by_dollar(other[0], one[0]):
        return False
    one = normal(one)
    other = normal(other)
    count = min(len(one), len(other))
    for i in range(count):
        left = one[i]
        right = other[i]
        if left == SHARP or right == SHARP:
            return True
        if left != PLUS and right != PLUS and left != right:
            return False
    if len(one) == len(other):
        return True
    # The shorter filter matches only topics of `count` levels; the longer one matches them if `#` follows.
    longer = one if len(one) > count else other
    return longer[count] == SHARP


def normal(levels: list[bytes]) -> list[bytes]:
    """Return `/#` as `/+/#`: the parent level that it would also match is the empty topic, which does not exist."""
    if len(levels) == 2 and levels[0] == b"" and levels[1] == SHARP:  # [MQTT-4.7.3-1]
        return [b"", PLUS, SHARP]
    return levels


def apart_by_dollar(wild: bytes, literal: bytes) -> bool:
    """Return whether the first level `wild` is a wildcard that cannot match `literal`, because that begins with $."""
    return wild in (PLUS, SHARP) and literal.startswith(DOLLAR)  # [MQTT-4.7.2-1]

"""Rules of topic names and topic filters (MQTT 5.0 section 4.7) and of `$share` filters (section 4.8.2).

Owns the validity of names and filters, and the reference implementation of matching. Does not check UTF-8: the codec
has done so. All functions loop over levels; none recurses, because a name may have 32,768 levels.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "FILTER_BYTES_MAX",
    "check_filter",
    "check_share",
    "check_topic",
    "filter_prefix",
    "has_wildcard",
    "matches",
    "pattern_of",
    "split_share",
]

# The maximum of the two-byte length of an encoded string [MQTT-4.7.3-3].
FILTER_BYTES_MAX: Final = 65_535
SHARE: Final = b"$share/"
DOLLAR: Final = 0x24
NUMBER_SIGN: Final = 0x23
PLUS: Final = 0x2B
SLASH: Final = 0x2F


def check_topic(topic: bytes, levels_max: int) -> str | None:
    """Return why `topic` is not a valid topic name of at most `levels_max` levels, or None. Section 4.7."""
    why = check_size(topic, levels_max, "topic name")
    if why is not None:
        return why
    if b"+" in topic or b"#" in topic:  # [MQTT-3.3.2-2] [MQTT-4.7.0-1]
        return "topic name contains a wildcard"
    return None


def check_filter(topic_filter: bytes, levels_max: int) -> str | None:
    """Return why `topic_filter` is not a valid filter of at most `levels_max` levels, or None.

    A filter that begins with `$share/` is checked as a shared subscription: its levels are those after the group.
    """
    if topic_filter.startswith(SHARE):
        return check_share(topic_filter, levels_max)
    return check_plain(topic_filter, levels_max)


def check_share(topic_filter: bytes, levels_max: int) -> str | None:
    """Return why `topic_filter` is not a valid `$share/GROUP/FILTER`, or None. Section 4.8.2."""
    if not topic_filter.startswith(SHARE):  # [MQTT-4.8.2-1]
        return "shared subscription does not begin with $share/"
    if len(topic_filter) > FILTER_BYTES_MAX:
        return "topic filter is longer than 65535 bytes"
    end = topic_filter.find(b"/", len(SHARE))
    if end < 0:  # [MQTT-4.8.2-2]
        return "shared subscription has no filter after its group"
    group = topic_filter[len(SHARE) : end]
    if not group:  # [MQTT-4.8.2-1]
        return "shared subscription has an empty group"
    if b"+" in group or b"#" in group:  # [MQTT-4.8.2-2]
        return "group of a shared subscription contains a wildcard"
    if b"\0" in group:
        return "topic filter contains U+0000"
    return check_plain(topic_filter[end + 1 :], levels_max)


def check_plain(topic_filter: bytes, levels_max: int) -> str | None:
    """Check as `check_filter` does, without a special meaning of `$share`."""
    why = check_size(topic_filter, levels_max, "topic filter")
    if why is not None or not has_wildcard(topic_filter):
        return why
    last = len(topic_filter) - 1
    for i in range(last + 1):
        byte = topic_filter[i]
        if byte != PLUS and byte != NUMBER_SIGN:
            continue
        shares = (i > 0 and topic_filter[i - 1] != SLASH) or (i < last and topic_filter[i + 1] != SLASH)
        if byte == PLUS:
            if shares:  # [MQTT-4.7.1-2]
                return "+ shares its level with other characters"
        elif shares:  # [MQTT-4.7.1-1]
            return "# shares its level with other characters"
        elif i != last:
            return "# is not the last level"
    return None


def check_size(text: bytes, levels_max: int, what: str) -> str | None:
    """Check the rules that names and filters share: length, U+0000, number of levels."""
    if not text:  # [MQTT-4.7.3-1]
        return what + " is empty"
    if len(text) > FILTER_BYTES_MAX:  # [MQTT-4.7.3-3]
        return what + " is longer than 65535 bytes"
    if b"\0" in text:  # [MQTT-4.7.3-2]
        return what + " contains U+0000"
    if text.count(b"/") >= levels_max:
        return what + " has more than " + str(levels_max) + " levels"
    return None


def has_wildcard(topic_filter: bytes) -> bool:
    """Return whether a valid filter contains `+` or `#`."""
    return b"#" in topic_filter or b"+" in topic_filter


def pattern_of(topic_filter: bytes) -> bytes:
    """Return the pattern of a valid filter without `$share`: `+` for each level with `+`, `=` for others, and `#`.

    Of several filters with the same pattern at most one matches a given topic name.
    """
    levels = topic_filter.split(b"/")
    return b"".join([level if level == b"+" or level == b"#" else b"=" for level in levels])


def split_share(topic_filter: bytes) -> tuple[bytes, bytes] | None:
    """Split `$share/GROUP/FILTER` into (group, filter); return None for any other or malformed filter."""
    if not topic_filter.startswith(SHARE):
        return None
    end = topic_filter.find(b"/", len(SHARE))
    if end <= len(SHARE) or end + 1 == len(topic_filter):
        return None
    return topic_filter[len(SHARE) : end], topic_filter[end + 1 :]


def filter_prefix(topic_filter: bytes) -> bytes:
    """Return the longest common prefix of all topics that match a valid filter.

    `a/+/b` gives `a/`, but `a/#` gives `a`, because it also matches `a` itself; without wildcards, the filter itself.
    """
    plus = topic_filter.find(b"+")
    if plus >= 0:
        return topic_filter[:plus]
    sharp = topic_filter.find(b"#")
    if sharp < 0:
        return topic_filter
    return topic_filter[: sharp - 1] if sharp > 0 else b""


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Return whether a valid filter without `$share` matches a valid topic name. Section 4.7; reference for `Tree`."""
    filter_levels = topic_filter.split(b"/")
    levels = topic.split(b"/")
    first = filter_levels[0]
    if topic[0] == DOLLAR and (first == b"#" or first == b"+"):  # [MQTT-4.7.2-1]
        return False
    count = len(levels)
    for i in range(len(filter_levels)):
        level = filter_levels[i]
        if level == b"#":  # at i == count it matches the parent level, section 4.7.1.2
            return True
        if i == count or (level != b"+" and level != levels[i]):
            return False
    return len(filter_levels) == count

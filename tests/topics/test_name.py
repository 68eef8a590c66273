"""Names and filters: the rules of MQTT 5.0 sections 4.7 and 4.8.2, each on both sides of its border."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.topics.name import (
    FILTER_BYTES_MAX,
    check_filter,
    check_share,
    check_topic,
    filter_prefix,
    has_wildcard,
    matches,
    split_share,
)

DEEP = b"/".join([b"a"] * 32_768)


@pytest.mark.parametrize("topic", [b"a", b"/", b"//", b"a/b", b"a//b", b" ", b"$SYS/x", "žluť/水".encode(), DEEP])
def test_valid_topic(topic: bytes) -> None:
    assert check_topic(topic, 32_768) is None
    assert check_filter(topic, 32_768) is None


@pytest.mark.parametrize(
    ("topic", "word"),
    [
        (b"", "empty"),
        (b"a\0b", "U+0000"),
        (b"a/+", "wildcard"),
        (b"a#", "wildcard"),
        (b"x" * (FILTER_BYTES_MAX + 1), "65535"),
    ],
)
def test_invalid_topic_says_why(topic: bytes, word: str) -> None:
    why = check_topic(topic, 100)
    assert why is not None
    assert word in why


def test_longest_text_is_valid() -> None:
    assert check_topic(b"x" * FILTER_BYTES_MAX, 1) is None
    assert check_filter(b"x" * FILTER_BYTES_MAX, 1) is None


@pytest.mark.parametrize("levels", [1, 2, 7])
def test_levels_limit(levels: int) -> None:
    text = b"/".join([b"a"] * levels)
    assert check_topic(text, levels) is None
    assert check_filter(text, levels) is None
    assert check_filter(b"$share/g/" + text, levels) is None
    assert "more than" in (check_topic(text + b"/", levels) or "")
    assert "more than" in (check_filter(text + b"/#", levels) or "")
    assert "more than" in (check_share(b"$share/g/" + text + b"/+", levels) or "")


@pytest.mark.parametrize(
    "text", [b"#", b"+", b"+/+", b"a/+/b", b"/+", b"+/", b"a/#", b"/#", b"+/#", b"$SYS/#", b"$share"]
)
def test_valid_filter(text: bytes) -> None:
    assert check_filter(text, 8) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "empty"),
        (b"a/#/b", "last"),
        (b"#/", "last"),
        (b"a#", "shares"),
        (b"##", "shares"),
        (b"a/+b", "shares"),
        (b"++", "shares"),
        (b"+a/b", "shares"),
        (b"a/\0", "U+0000"),
    ],
)
def test_invalid_filter_says_why(text: bytes, word: str) -> None:
    for filter_ in (text, b"$share/g/" + text):
        why = check_filter(filter_, 8)
        assert why is not None
        assert word in why


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"a/b", "begin"),
        (b"$share", "begin"),
        (b"$share/", "no filter"),
        (b"$share/g", "no filter"),
        (b"$share//a", "empty group"),
        (b"$share/g/", "empty"),
        (b"$share/+/a", "wildcard"),
        (b"$share/g#/a", "wildcard"),
        (b"$share/g\0/a", "U+0000"),
        (b"$share/g/" + b"x" * FILTER_BYTES_MAX, "65535"),
    ],
)
def test_invalid_share_says_why(text: bytes, word: str) -> None:
    why = check_share(text, 8)
    assert why is not None
    assert word in why


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b"$share/g/a/b", (b"g", b"a/b")),
        (b"$share/g//", (b"g", b"/")),
        (b"$share/g/#", (b"g", b"#")),
        (b"$share/g/$share/h/x", (b"g", b"$share/h/x")),
        (b"$share/g/", None),
        (b"$share/g", None),
        (b"$share//a", None),
        (b"a/b", None),
        (b"$shared/g/a", None),
    ],
)
def test_split_share(text: bytes, parts: tuple[bytes, bytes] | None) -> None:
    assert split_share(text) == parts


@given(st.text("$share/+#a", max_size=12).map(lambda rest: ("$share/" + rest).encode()))
def test_a_valid_share_can_be_split(text: bytes) -> None:
    parts = split_share(text)
    if check_share(text, 8) is None:
        assert parts is not None
        assert b"$share/" + parts[0] + b"/" + parts[1] == text


@pytest.mark.parametrize(
    ("filter_", "topic", "expected"),
    [
        # The examples of sections 4.7.1.2 and 4.7.1.3.
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/#", b"sport", True),
        (b"sport/#", b"sports", False),
        (b"sport/tennis/+", b"sport/tennis/player1", True),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        # Section 4.7.2. [MQTT-4.7.2-1]
        (b"#", b"$SYS/x", False),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients", False),
        (b"$SYS/#", b"$SYS/monitor", True),
        (b"$SYS/#", b"$SYS", True),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients", True),
        (b"a/+", b"a/$x", True),
        # Section 4.7.3: case and empty levels count, nothing is normalised. [MQTT-4.7.3-4]
        (b"ACCOUNTS", b"Accounts", False),
        (b"/finance", b"finance", False),
        (b"a//b", b"a/b", False),
        (b"a/+/b", b"a//b", True),
        (b"a", b"a/", False),
        ("é".encode(), "e\u0301".encode(), False),
    ],
)
def test_matches(filter_: bytes, topic: bytes, expected: bool) -> None:
    assert matches(filter_, topic) is expected


def test_deep_topic() -> None:
    assert matches(DEEP, DEEP)
    assert matches(b"/".join([b"+"] * 32_768), DEEP)
    assert matches(DEEP[:-1] + b"#", DEEP)
    assert not matches(DEEP[:-1] + b"b", DEEP)


def test_prefix_holds_for_every_topic_that_matches() -> None:
    topics = [b"/".join(t) for n in (1, 2, 3) for t in itertools.product((b"", b"a", b"ab", b"$"), repeat=n)][1:]
    filters = [b"/".join(f) for n in (1, 2, 3) for f in itertools.product((b"", b"a", b"$", b"+", b"#"), repeat=n)]
    filters = [text for text in filters if check_filter(text, 3) is None]
    for text in filters:
        prefix = filter_prefix(text)
        assert not has_wildcard(prefix)
        assert text.startswith(prefix)
        assert all(topic.startswith(prefix) for topic in topics if matches(text, topic))


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        (b"a/b", b"a/b"),
        (b"a/#", b"a"),
        (b"#", b""),
        (b"/#", b""),
        (b"a/+/b/#", b"a/"),
        (b"+/a", b""),
        (b"a/b/+", b"a/b/"),
    ],
)
def test_prefix_is_the_longest(text: bytes, prefix: bytes) -> None:
    assert filter_prefix(text) == prefix
    assert has_wildcard(text) is (text != prefix)

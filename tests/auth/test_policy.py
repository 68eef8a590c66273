"""The order of rules, the default, and that an allowed filter never shows a topic that the rules deny."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule
from folkmoot.auth.policy import Policy
from folkmoot.topics.name import matches

TOPICS = [b"/".join(t) for n in range(1, 5) for t in itertools.product((b"", b"a", b"b", b"$S"), repeat=n)][1:]
LEVELS = st.lists(st.sampled_from(["", "a", "b", "$S", "+"]), max_size=3)
FILTER = st.builds(lambda levels, tail: "/".join(levels + tail).encode(), LEVELS, st.sampled_from([[], ["#"]])).filter(
    bool
)
RULE = st.builds(
    Rule,
    st.booleans(),
    st.sampled_from([PUBLISH, SUBSCRIBE, BOTH]),
    st.just("*"),
    st.just("*"),
    st.lists(FILTER, max_size=2),
)


def allow(*templates: bytes, action: int = BOTH, user: str = "*") -> Rule:
    return Rule(True, action, user, "*", list(templates))


def deny(*templates: bytes, action: int = BOTH, user: str = "*") -> Rule:
    return Rule(False, action, user, "*", list(templates))


def first_match(rules: list[Rule], default: bool, action: int, topic: bytes) -> bool:
    """The plain meaning of an access list for one topic; the rules have no placeholders."""
    for rule in rules:
        if rule.action & action and any(matches(text, topic) for text in rule.templates):
            return rule.allow
    return default


@given(st.lists(RULE, max_size=5), st.booleans(), st.sampled_from(TOPICS))
def test_first_rule_decides_for_a_topic(rules: list[Rule], default: bool, topic: bytes) -> None:
    policy = Policy(rules, default)
    assert policy.may_publish("c", None, topic) is first_match(rules, default, PUBLISH, topic)
    assert policy.may_subscribe("c", None, topic) is first_match(rules, default, SUBSCRIBE, topic)


@given(st.lists(RULE, max_size=5), st.booleans(), FILTER)
def test_an_allowed_filter_shows_nothing_denied(rules: list[Rule], default: bool, text: bytes) -> None:
    if Policy(rules, default).may_subscribe("c", None, text):
        for topic in TOPICS:
            if matches(text, topic):
                assert first_match(rules, default, SUBSCRIBE, topic), topic


@given(st.lists(RULE, max_size=4), st.booleans(), st.sampled_from(TOPICS))
def test_open_means_that_all_is_allowed(rules: list[Rule], default: bool, topic: bytes) -> None:
    grant = Policy(rules, default).grant("c", None)
    if grant.publish_open:
        assert first_match(rules, default, PUBLISH, topic)
    if grant.subscribe_open:
        assert first_match(rules, default, SUBSCRIBE, topic)


def test_open() -> None:
    assert Policy([], True).open
    assert Policy([], True).may_publish("c", None, b"a")
    assert not Policy([], False).open
    assert not Policy([], False).may_subscribe("c", None, b"a")
    assert not Policy([allow(b"#")], True).open
    grant = Policy([deny(b"a", action=PUBLISH, user="bob")], True).grant("c", "ann")
    assert (grant.publish_open, grant.subscribe_open) == (True, True)
    grant = Policy([deny(b"a", action=PUBLISH)], True).grant("c", "ann")
    assert (grant.publish_open, grant.subscribe_open) == (False, True)


@pytest.mark.parametrize(
    ("rules", "expected"), [([allow(b"a/b"), deny(b"a/#")], True), ([deny(b"a/#"), allow(b"a/b")], False)]
)
def test_order_counts(rules: list[Rule], expected: bool) -> None:
    policy = Policy(rules, not expected)
    assert policy.may_publish("c", None, b"a/b") is expected
    assert policy.may_subscribe("c", None, b"a/b") is expected


def test_a_filter_must_be_covered_entirely() -> None:
    policy = Policy([allow(b"a/+")], False)
    assert policy.may_subscribe("c", None, b"a/+")
    assert policy.may_subscribe("c", None, b"a/x")
    assert not policy.may_subscribe("c", None, b"a/#")
    assert not policy.may_subscribe("c", None, b"#")
    assert not policy.may_subscribe("c", None, b"+/x")


def test_a_wide_filter_does_not_reach_around_a_denial() -> None:
    policy = Policy([deny(b"secret/#"), allow(b"#")], True)
    assert policy.may_subscribe("c", None, b"news/#")
    for text in (b"#", b"+", b"+/x", b"secret/x", b"secret/+", b"+/#"):
        assert not policy.may_subscribe("c", None, text), text


def test_leading_wildcards_give_no_dollar_topics() -> None:
    policy = Policy([allow(b"#")], False)
    assert not policy.may_subscribe("c", None, b"$SYS/#")
    assert policy.may_subscribe("c", None, b"+/+")


def test_actions_are_apart() -> None:
    policy = Policy([allow(b"up/%c", action=PUBLISH), allow(b"down/%c", action=SUBSCRIBE)], False)
    assert policy.may_publish("c", None, b"up/c")
    assert not policy.may_subscribe("c", None, b"up/c")
    assert policy.may_subscribe("c", None, b"down/c")
    assert not policy.may_publish("c", None, b"down/c")


@pytest.mark.parametrize("name", ["+", "#", "+/#", "ann/#", "/", "", None])
def test_a_name_never_widens_a_rule(name: str | None) -> None:
    policy = Policy([allow(b"home/%u/#")], False)
    for text in (b"#", b"home/#", b"home/+", b"home/ann/x", b"home//x", b"home/+/#"):
        assert not policy.may_subscribe("c", name, text)
    assert not policy.may_publish("c", name, b"home/ann")
    assert policy.may_subscribe("c", "ann", b"home/ann/#")


@pytest.mark.parametrize("name", ["bob/x", "bob+", "$S/x", "", None])
def test_a_name_never_escapes_a_denial(name: str | None) -> None:
    policy = Policy([deny(b"%u/#"), allow(b"#", b"$S/#")], True)
    for topic in (b"bob/x", b"bob+", b"$S/x", b"other"):
        assert not policy.may_publish("c", name, topic)
    assert policy.may_publish("c", "ann", b"bob/x")


def test_repr_is_readable() -> None:
    text = "Policy(rules=[Rule(allow both user='*' client='*' [b'a'])], default=deny)"
    assert repr(Policy([allow(b"a")], False)) == text

"""One rule: patterns of names, and placeholders that no name can turn into a wider rule."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule, check_template, is_like

NAME = st.text("a/+#$%uc*é", max_size=5)


def allowed(template: bytes, client_id: str = "c1", username: str | None = "ann") -> list[bytes]:
    rule = Rule(True, BOTH, "*", "*", [template])
    return [b"/".join(levels) for levels in rule.filters(client_id, username)]


def denied(template: bytes, client_id: str = "c1", username: str | None = "ann") -> list[bytes]:
    rule = Rule(False, BOTH, "*", "*", [template])
    return [b"/".join(levels) for levels in rule.filters(client_id, username)]


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        (b"a/b", b"a/b"),
        (b"home/%u/#", b"home/ann/#"),
        (b"%u/%c", b"ann/c1"),
        (b"x-%c-%u-y/+", b"x-c1-ann-y/+"),
        (b"100%%/%%u", b"100%/%u"),
        (b"%%%u%%", b"%ann%"),
        (b"$SYS/%u", b"$SYS/ann"),
    ],
)
def test_placeholders(template: bytes, filled: bytes) -> None:
    assert allowed(template) == [filled]
    assert denied(template) == [filled]


def test_names_are_put_in_once() -> None:
    assert allowed(b"%u/%c", client_id="%u", username="%c%%") == [b"%c%%/%u"]


@pytest.mark.parametrize("name", ["+", "#", "a/b", "/", "a+", "#a", "", None])
def test_a_name_that_is_no_part_of_a_level(name: str | None) -> None:
    assert allowed(b"home/%u/#", username=name) == []
    assert allowed(b"home/x%u/y", username=name) == []
    assert denied(b"home/%u/x", username=name) == [b"home/#"]
    assert denied(b"%u/x", username=name) == [b""]  # no levels: all topics
    assert allowed(b"home/%c", client_id=name or "") == []
    assert allowed(b"home/+", username=name) == [b"home/+"]


def test_a_name_opens_no_topics_that_begin_with_a_dollar() -> None:
    assert allowed(b"%u/#", username="$SYS") == []
    assert allowed(b"%u%c/#", client_id="SYS", username="$") == []
    assert allowed(b"a/%u", username="$SYS") == [b"a/$SYS"]
    assert denied(b"%u/#", username="$SYS") == [b"$SYS/#"]


@given(st.sampled_from([b"%u", b"a/%u/#", b"%c/%u", b"x%c/+", b"$SYS/%u/#"]), NAME, NAME)
@example(b"a/%u/#", "c", "+")
def test_no_name_changes_the_shape_of_what_is_allowed(template: bytes, client_id: str, username: str) -> None:
    for text in allowed(template, client_id, username):
        assert text.count(b"/") == template.count(b"/")
        assert text.count(b"+") == template.count(b"+")
        assert text.count(b"#") == template.count(b"#")
        assert text.startswith(b"$") is template.startswith(b"$")


@pytest.mark.parametrize("template", [b"#", b"+", b"a/%u/+/#", b"%%", b"%u%c", b"/", b"$SYS/#"])
def test_valid_template(template: bytes) -> None:
    assert check_template(template) is None


@pytest.mark.parametrize(
    ("template", "word"),
    [
        (b"", "empty"),
        (b"a\0", "U+0000"),
        (b"$share/g/a", "share"),
        (b"a/#/b", "last"),
        (b"a+", "wildcard"),
        (b"%u#", "wildcard"),
        (b"%", "% must be followed"),
        (b"%U/a", "% must be followed"),
        (b"%%%", "% must be followed"),
    ],
)
def test_invalid_template_says_why(template: bytes, word: str) -> None:
    assert word in (check_template(template) or "")
    with pytest.raises(AssertionError):
        Rule(True, BOTH, "*", "*", [template])


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_patterns_equal_regular_expressions(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern.replace("?", ".").replace("*", ".*"), name) is not None
    assert is_like(pattern, name) is expected


def test_a_pattern_of_many_stars_stays_cheap() -> None:
    assert not is_like("*a" * 60 + "b", "a" * 1000)


@pytest.mark.parametrize(
    ("user", "client", "expected"),
    [("*", "*", (True, True)), ("", "*", (False, True)), ("?*", "*", (True, False)), ("a*", "c?", (True, False))],
)
def test_who_a_rule_holds_for(user: str, client: str, expected: tuple[bool, bool]) -> None:
    rule = Rule(True, PUBLISH, user, client, [b"#"])
    assert (rule.holds_for("c1", "ann"), rule.holds_for("c1", None)) == expected


def test_repr_is_readable() -> None:
    assert repr(Rule(False, SUBSCRIBE, "*", "c?", [b"a/#"])) == "Rule(deny subscribe user='*' client='c?' [b'a/#'])"


def test_action_is_checked() -> None:
    with pytest.raises(AssertionError):
        Rule(True, 0, "*", "*", [b"a"])

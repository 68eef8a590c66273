"""Every field is explained, and the explanation says what is true."""

from __future__ import annotations

import pytest

from folkmoot.config import ConfigError, Settings, explain
from folkmoot.config.field import element, heading, kind, valid_text, walk

FIELDS = list(walk(Settings))


@pytest.mark.parametrize(("path", "field"), FIELDS, ids=[path for path, _ in FIELDS])
def test_every_field_has_a_reason_and_says_what_is_valid(path: str, field: object) -> None:
    own = dict(FIELDS)[path]
    assert own.description, path
    assert own.description.endswith("."), path
    assert heading(path, own) in explain(path) if element(own.annotation) else path in explain(path)
    if element(own.annotation) is None:
        assert valid_text(own) != "a table", path


def test_numbers_have_bounds() -> None:
    unbounded = [
        path
        for path, field in FIELDS
        if kind(field) == "int" and not any(hasattr(mark, "ge") for mark in field.metadata)
    ]
    assert unbounded == []


def test_a_section_explains_its_fields_and_no_other() -> None:
    text = explain("log")
    assert "log.level" in text
    assert "node.id" not in text


def test_a_field_is_found_by_its_last_name() -> None:
    assert explain("receive_max") == explain("limits.receive_max")


def test_bounds_and_defaults_are_told_in_the_units_of_the_file() -> None:
    text = explain("limits.connect_timeout")
    assert 'from "100ms" to "1h"' in text
    assert 'default: "10s"' in text


def test_sections_are_headed_as_in_a_file() -> None:
    assert explain("listeners").startswith("[[listeners]]\n")
    assert "\n[listeners.tls]\n" in explain("listeners")
    assert explain("streams").startswith("[streams.NAME]\n")
    assert "\n[[auth.rules]]\n" in explain("auth")


def test_an_unknown_field_is_told_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"^there is no field 'limits\.recieve_max'; did you mean \"limits\.receive_max\""
    ):
        explain("limits.recieve_max")
    with pytest.raises(ConfigError, match='did you mean "filter"'):
        explain("filtr")
    with pytest.raises(ConfigError, match="sections: node"):
        explain("qqqq")

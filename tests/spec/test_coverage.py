"""Every normative statement has a test or a reason, and the page that says so is up to date."""

from __future__ import annotations

import pytest

from scripts import conformance

VERSIONS = pytest.mark.parametrize("version", conformance.VERSIONS)


def marked(version: str) -> set[str]:
    return {mark.statement for mark in conformance.marks() if mark.version == version}


def test_the_lists_are_whole() -> None:
    """251 statements in appendix B of MQTT 5.0; 141 in that of 3.1.1, and 3 numbers of a widely copied list."""
    assert {version: len(conformance.statements(version)) for version in conformance.VERSIONS} == {
        "5.0": 251,
        "3.1.1": 141 + 3,
    }


@VERSIONS
def test_every_statement_has_a_test_or_a_reason(version: str) -> None:
    every = set(conformance.statements(version))
    assert sorted(every - marked(version) - set(conformance.reasons(version))) == []


@VERSIONS
def test_no_statement_has_both(version: str) -> None:
    assert sorted(marked(version) & set(conformance.reasons(version))) == []


@VERSIONS
def test_every_number_exists(version: str) -> None:
    every = set(conformance.statements(version))
    assert sorted(marked(version) - every) == []
    assert sorted(set(conformance.reasons(version)) - every) == []
    assert sorted(set(conformance.same_as(version)) - every) == []


def test_every_version_of_a_mark_exists() -> None:
    assert {mark.version for mark in conformance.marks()} == set(conformance.VERSIONS)


def test_every_tag_in_the_code_exists() -> None:
    wrong = [
        f"{path.relative_to(conformance.ROOT)}: {statement} of {version}"
        for (version, statement), paths in conformance.tags().items()
        if version not in conformance.VERSIONS or statement not in conformance.statements(version)
        for path in paths
    ]
    assert wrong == []


def test_equal_statements_exist() -> None:
    every = set(conformance.statements("5.0"))
    assert [
        number for numbers in conformance.same_as("3.1.1").values() for number in numbers if number not in every
    ] == []


def test_the_page_is_up_to_date() -> None:
    assert conformance.PAGE.read_text() == conformance.render(), "run `python scripts/conformance.py`"

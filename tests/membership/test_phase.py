"""The phases of a process: what its proof reads off the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.membership.phase import (
    ENTER,
    EVENTS,
    FAILED,
    GO_OVER,
    IMPOSSIBLE,
    INSIDE,
    OPENING,
    OUTSIDE,
    PHASES,
    RENEWING,
    TRANSITIONS,
    next_phase,
)

SOURCE = Path(__file__).parents[2] / "src/folkmoot/membership/phase.py"


def test_the_table_is_the_one_that_is_documented() -> None:
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.lstrip().startswith("event / phase"))
    names = [name.upper() for name in PHASES]
    assert lines[first].split()[3:] == names
    for event, line in enumerate(lines[first + 1 : first + 1 + len(EVENTS)]):
        words = line.split()[-len(PHASES) :]
        assert line.strip().startswith(EVENTS[event].upper().replace(" ", "_") + " ")
        assert [names.index(word) if word in names else IMPOSSIBLE for word in words] == TRANSITIONS[event]


def test_a_process_that_cannot_go_on_never_takes_part_again() -> None:
    for event in range(len(EVENTS)):
        assert TRANSITIONS[event][FAILED] in (IMPOSSIBLE, FAILED, RENEWING)
        assert TRANSITIONS[event][RENEWING] in (IMPOSSIBLE, RENEWING)


def test_a_process_comes_to_another_lineage_by_way_of_its_disk() -> None:
    entered = {
        (event, before) for event, row in enumerate(TRANSITIONS) for before, after in enumerate(row) if after == INSIDE
    }
    assert entered == {(ENTER, OUTSIDE), (ENTER, OPENING)}
    left = [TRANSITIONS[event][INSIDE] for event in range(len(EVENTS))]
    assert INSIDE not in left
    assert next_phase(GO_OVER, INSIDE) == OPENING


def test_what_the_table_does_not_have_does_not_happen() -> None:
    with pytest.raises(AssertionError, match="go over does not happen failed"):
        next_phase(GO_OVER, FAILED)

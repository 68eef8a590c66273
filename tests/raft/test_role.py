"""The table of roles is the one that its proof speaks of."""

from __future__ import annotations

import ast
from pathlib import Path

from folkmoot.raft import role
from folkmoot.raft.role import CANDIDATE, ELECTED, FOLLOWER, LEADER, NEWER_TERM, PRE_CANDIDATE, ROLES, TRANSITIONS

NAMES = {"FOLLOWER": FOLLOWER, "PRE_CANDIDATE": PRE_CANDIDATE, "CANDIDATE": CANDIDATE, "LEADER": LEADER, "-": -1}


def documented() -> dict[str, list[int]]:
    """The rows of the table in the docstring, by event."""
    source = Path(__file__).parents[2] / "src" / "folkmoot" / "raft" / "role.py"  # compiled, a module has no docstring
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")), clean=False)
    assert text is not None
    rows = [line.split() for line in text.splitlines() if line.startswith("    ")]
    return {row[0]: [NAMES[name] for name in row[1:]] for row in rows[1:]}


def test_the_table_is_the_documented_one() -> None:
    rows = documented()
    assert len(rows) == len(TRANSITIONS) == 10
    for event, expected in rows.items():
        assert TRANSITIONS[getattr(role, event)] == expected, event


def test_a_leader_was_a_candidate_that_was_elected() -> None:
    ways = [(event, old) for event, row in enumerate(TRANSITIONS) for old, new in enumerate(row) if new == LEADER]
    assert ways == [(ELECTED, PRE_CANDIDATE), (ELECTED, CANDIDATE)]  # the former has been the latter in the same term
    assert TRANSITIONS[NEWER_TERM] == [FOLLOWER] * len(ROLES)

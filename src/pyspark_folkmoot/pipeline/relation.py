"""Which views a SQL text reads, found without Spark: the names after FROM and JOIN.

Spark parses the same text again when it runs; this serves to order the steps, and to find cycles and unknown names.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["relations", "without_noise"]

_NOISE: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|r?'(?:[^'\\]|\\.|'')*'|r?\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL | re.IGNORECASE
)
_TOKEN: Final = re.compile(r"`(?:[^`]|``)+`|[^\W\d]\w*|\d[\w.]*|[^\s\w]", re.UNICODE)
_WORD: Final = re.compile(r"`.+`|[^\W\d]\w*")
# FROM inside the parentheses of these is part of a function: extract(hour FROM time).
_FUNCTIONS: Final = frozenset({"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"})
_ENDS: Final = frozenset(
    [
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "MINUS",
        "WINDOW",
        "LATERAL",
        "SORT",
        "CLUSTER",
        "DISTRIBUTE",
        "ON",
        "USING",
        "SELECT",
        "QUALIFY",
        "PIVOT",
        "UNPIVOT",
        "OFFSET",
    ]
)


def relations(sql: str) -> list[tuple[str, int]]:
    """Return the names that `sql` reads and the line (1 is the first) of their first use; no CTEs, no functions.

    Dotted names (tables of a catalogue) are omitted.
    """
    blank = without_noise(sql)
    tokens = [(match[0], blank.count("\n", 0, match.start()) + 1) for match in _TOKEN.finditer(blank)]
    words = [token for token, _ in tokens]
    own = _expressions(words)
    found: dict[str, int] = {}
    for at, listed in _places(words):
        while at < len(words) and words[at] == "(":
            at += 1
        name = words[at] if at < len(words) else ""
        following = words[at + 1] if at + 1 < len(words) else ""
        if name.upper() == "STREAM" and (following == "(" or _WORD.fullmatch(following)):
            at += 2 if following == "(" else 1
            name = words[at] if at < len(words) else ""
            following = ""
        if not _WORD.fullmatch(name) or following in ("(", "."):
            continue
        if listed and name.upper() in _ENDS:
            continue
        plain = name.strip("`").replace("``", "`")
        if plain.lower() not in own and name.upper() not in ("VALUES", "SELECT", "WITH", "LATERAL", "TABLE"):
            found.setdefault(plain, tokens[at][1])
    return list(found.items())


def without_noise(sql: str) -> str:
    """Return `sql` with comments and quoted texts replaced by spaces; the lines are unchanged."""
    return _NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), sql)


def _expressions(words: list[str]) -> set[str]:
    """Return the names of common table expressions."""
    return {
        words[at - 1].strip("`").lower()
        for at in range(1, len(words) - 1)
        if words[at].upper() == "AS" and words[at + 1] == "(" and _before_name(words, at)
    }


def _before_name(words: list[str], at: int) -> bool:
    before = words[at - 2].upper() if at >= 2 else ""
    return before in ("WITH", "RECURSIVE", ",")


def _places(words: list[str]) -> list[tuple[int, bool]]:
    """Return the positions of relation names: after FROM and JOIN, and after the commas of a FROM."""
    found: list[tuple[int, bool]] = []
    # Per open parenthesis: whether it belongs to a function that has FROM in it, and whether a FROM is open.
    stack: list[list[bool]] = [[False, False]]
    for at, word in enumerate(words):
        upper = word.upper()
        if word == "(":
            stack.append([at > 0 and words[at - 1].upper() in _FUNCTIONS, False])
        elif word == ")" and len(stack) > 1:
            stack.pop()
        elif upper == "FROM":
            if stack[-1][0] or (at > 0 and words[at - 1].upper() == "DISTINCT"):
                continue
            stack[-1][1] = True
            found.append((at + 1, False))
        elif upper == "JOIN":
            found.append((at + 1, False))
        elif upper in _ENDS:
            stack[-1][1] = False
        elif word == "," and stack[-1][1]:
            found.append((at + 1, True))
    return found

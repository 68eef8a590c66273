"""One access rule: for whom it holds, for what action, for which topics.

Owns the patterns of names and the placeholders in filters: `%u` is the user name, `%c` the client id, `%%` a percent
sign. It never decides between rules (see `policy`).

The client chooses these names, so a name must not change what a rule means. One that is absent or empty, contains
`/`, `+` or `#`, or would make the filter begin with `$`, cannot be put into a filter. A rule that allows then allows
nothing. A rule that denies then denies all topics from the placeholder's level on: both err on the safe side.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BOTH", "PUBLISH", "SUBSCRIBE", "Rule", "check_template", "fill", "is_like"]

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
BOTH: Final = 3

PERCENT: Final = b"%"


class Rule:
    """A line of the access list.

    `allow`: the verdict; `action`: PUBLISH, SUBSCRIBE or BOTH; `user` and `client`: patterns of the user name and
    the client id, in which `*` stands for any text and `?` for one character (`*` everyone, the empty pattern only
    those without a user name, `?*` only those with one); `templates`: filters with placeholders, for which
    `check_template` found nothing.
    """

    def __init__(self, allow: bool, action: int, user: str, client: str, templates: list[bytes]) -> None:
        assert PUBLISH <= action <= BOTH, "an action is PUBLISH, SUBSCRIBE or BOTH"
        for template in templates:
            assert check_template(template) is None, "a rule is made of templates that were checked"
        self.allow = allow
        self.action = action
        self.user = user
        self.client = client
        self.templates = templates

    def __repr__(self) -> str:
        verdict = "allow" if self.allow else "deny"
        action = ("publish", "subscribe", "both")[self.action - 1]
        return f"Rule({verdict} {action} user={self.user!r} client={self.client!r} {self.templates!r})"

    def holds_for(self, client_id: str, username: str | None) -> bool:
        """True if both patterns fit; a client without a user name counts as one whose name is empty."""
        return is_like(self.user, username or "") and is_like(self.client, client_id)

    def filters(self, client_id: str, username: str | None) -> list[list[bytes]]:
        """Return the filters for one client, each split at `/`; an empty list of levels stands for all topics."""
        user = (username or "").encode()
        client = client_id.encode()
        filled: list[list[bytes]] = []
        for template in self.templates:
            levels = fill_levels(template.split(b"/"), user, client, self.allow)
            if levels is not None:
                filled.append(levels)
        return filled


def fill_levels(template: list[bytes], user: bytes, client: bytes, allow: bool) -> list[bytes] | None:
    """Fill in the names; None if an allowing rule cannot be filled, a wider filter if a denying one cannot."""
    levels: list[bytes] = []
    for level in template:
        filled = fill(level, user, client)
        if filled is None:
            if allow:
                return None
            # At the first level `#` would leave out topics that begin with $, so all topics are named otherwise.
            return [*levels, b"#"] if levels else []
        levels.append(filled)
    if allow and levels[0].startswith(b"$") and not template[0].startswith(b"$"):
        return None
    return levels


def fill(level: bytes, user: bytes, client: bytes) -> bytes | None:
    """Put the names into one level of a template, in one pass; None if a name that it asks for cannot be put there."""
    at = level.find(PERCENT)
    if at < 0:
        return level
    parts: list[bytes] = []
    begin = 0
    while at >= 0:
        parts.append(level[begin:at])
        what = level[at + 1 : at + 2]
        part = user if what == b"u" else client if what == b"c" else PERCENT
        if not part or b"/" in part or b"+" in part or b"#" in part:
            return None
        parts.append(part)
        begin = at + 2
        at = level.find(PERCENT, begin)
    parts.append(level[begin:])
    return b"".join(parts)


def check_template(template: bytes) -> str | None:
    """Say why `template` is no valid filter with placeholders; None when it is one."""
    if not template:
        return "topic filter is empty"
    if b"\0" in template:
        return "topic filter contains U+0000"
    if template.startswith(b"$share/"):
        return "a rule is about topics: leave $share/GROUP/ away"
    levels = template.split(b"/")
    for i in range(len(levels)):
        level = levels[i]
        if (b"#" in level or b"+" in level) and len(level) > 1:
            return "a wildcard shares its level with other characters"
        if level == b"#" and i < len(levels) - 1:
            return "# is not the last level"
        at = level.find(PERCENT)
        while at >= 0:
            if level[at + 1 : at + 2] not in (b"u", b"c", PERCENT):
                return "after % comes u (user name), c (client id) or another %"
            at = level.find(PERCENT, at + 2)
    return None


def is_like(pattern: str, name: str) -> bool:
    """True if `name` fits a pattern with `*` and `?`; case counts. Time is at most the product of both lengths."""
    at = 0
    i = 0
    star = -1
    mark = 0
    while i < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star = at
            mark = i
            at += 1
        elif at < len(pattern) and (pattern[at] == "?" or pattern[at] == name[i]):
            at += 1
            i += 1
        elif star >= 0:  # the last star takes one character more
            mark += 1
            at = star + 1
            i = mark
        else:
            return False
    while at < len(pattern) and pattern[at] == "*":
        at += 1
    return at == len(pattern)

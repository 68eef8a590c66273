"""One access rule: the clients, the action and the topics that it applies to.

Owns the patterns of names and the placeholders in filters: `%u` is the user name, `%c` the client id, `%%` a percent
sign. Does not decide between rules (see `policy`).

The client chooses these names, so a name must not change the meaning of a rule. A name that is absent or empty,
contains `/`, `+` or `#`, or would make the filter begin with `$` is not inserted into a filter. An allowing rule then
allows nothing; a denying rule then denies all topics from the level of the placeholder on. Both are the safe choice.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BOTH", "PUBLISH", "SUBSCRIBE", "Rule", "check_group", "check_template", "fill", "is_like"]

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
BOTH: Final = 3

PERCENT: Final = b"%"


class Rule:
    """A line of the access list.

    `allow`: the verdict; `action`: PUBLISH, SUBSCRIBE or BOTH; `user` and `client`: patterns of the user name and
    the client id, in which `*` matches any text and `?` one character (`*` matches all clients, the empty pattern
    only those without a user name, `?*` only those with one); `templates`: valid filters with placeholders; `group`: a
    pattern of the same kind with placeholders, of the group of a shared subscription (`*` matches all subscriptions,
    the empty pattern only those that are not shared). Unless that is `*`, the rule is about subscriptions only.
    """

    def __init__(
        self, allow: bool, action: int, user: str, client: str, templates: list[bytes], group: str = "*"
    ) -> None:
        assert PUBLISH <= action <= BOTH, "an action is PUBLISH, SUBSCRIBE or BOTH"
        for template in templates:
            assert check_template(template) is None, "the templates of a rule must be valid"
        self.allow = allow
        self.action = action
        self.user = user
        self.client = client
        self.templates = templates
        self.group = group

    def __repr__(self) -> str:
        verdict = "allow" if self.allow else "deny"
        action = ("publish", "subscribe", "both")[self.action - 1]
        group = "" if self.group == "*" else f" group={self.group!r}"
        return f"Rule({verdict} {action} user={self.user!r} client={self.client!r}{group} {self.templates!r})"

    def holds_for(self, client_id: str, username: str | None) -> bool:
        """Return whether both patterns match; a client without a user name has an empty one."""
        return is_like(self.user, username or "") and is_like(self.client, client_id)

    def group_for(self, client_id: str, username: str | None) -> str | None:
        """Return the pattern of groups for one client; None if the rule is not about any group."""
        if PERCENT.decode() not in self.group:
            return self.group
        for name in (username or "", client_id):
            if "*" in name or "?" in name:
                return None if self.allow else "*"
        filled = fill(self.group.encode(), (username or "").encode(), client_id.encode())
        if filled is None:
            return None if self.allow else "*"
        return filled.decode()

    def filters(self, client_id: str, username: str | None) -> list[list[bytes]]:
        """Return the filters for one client, each split at `/`; an empty list of levels means all topics."""
        user = (username or "").encode()
        client = client_id.encode()
        filled: list[list[bytes]] = []
        for template in self.templates:
            levels = fill_levels(template.split(b"/"), user, client, self.allow)
            if levels is not None:
                filled.append(levels)
        return filled


def fill_levels(template: list[bytes], user: bytes, client: bytes, allow: bool) -> list[bytes] | None:
    """Insert the names; if that is impossible, return None for an allowing rule, a wider filter for a denying one."""
    levels: list[bytes] = []
    for level in template:
        filled = fill(level, user, client)
        if filled is None:
            if allow:
                return None
            # At the first level, `#` would exclude topics that begin with $, so an empty list means all topics.
            return [*levels, b"#"] if levels else []
        levels.append(filled)
    if allow and levels[0].startswith(b"$") and not template[0].startswith(b"$"):
        return None
    return levels


def fill(level: bytes, user: bytes, client: bytes) -> bytes | None:
    """Insert the names into one level of a template, in one pass; return None if a name cannot be inserted."""
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
    """Return why `template` is not a valid filter with placeholders, or None."""
    if not template:
        return "topic filter is empty"
    if b"\0" in template:
        return "topic filter contains U+0000"
    if template.startswith(b"$share/"):
        return "a rule applies to topics: omit $share/GROUP/"
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
                return "% must be followed by u (user name), c (client id) or another %"
            at = level.find(PERCENT, at + 2)
    return None


def check_group(pattern: str) -> str | None:
    """Return why `pattern` is not a pattern of groups with placeholders, or None."""
    if "/" in pattern or "+" in pattern or "#" in pattern:
        return "a group contains no /, + or #"
    at = pattern.find("%")
    while at >= 0:
        if pattern[at + 1 : at + 2] not in ("u", "c", "%"):
            return "% must be followed by u (user name), c (client id) or another %"
        at = pattern.find("%", at + 2)
    return None


def is_like(pattern: str, name: str) -> bool:
    """Return whether `name` matches a pattern with `*` and `?`; costs at most the product of both lengths."""
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
        elif star >= 0:  # the last star matches one more character
            mark += 1
            at = star + 1
            i = mark
        else:
            return False
    while at < len(pattern) and pattern[at] == "*":
        at += 1
    return at == len(pattern)

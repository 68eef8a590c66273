"""Decisions from an access list: the first rule that applies to the topic or filter decides, else the default.

Owns the order of rules. Caches no decision; callers cache decisions per topic where that pays.

An allowing rule applies to a subscription filter only if it covers the whole filter; a denying rule already if it
overlaps with it. So a filter is allowed only if the same rules allow each topic that it matches: a topic that an
earlier rule denies would have overlapped with that rule. (A filter is denied if only several rules together allow all
of its topics; clients can subscribe to the parts instead.)
"""

from __future__ import annotations

from folkmoot.auth.acl import PUBLISH, SUBSCRIBE, Rule, is_like
from folkmoot.auth.cover import covers_levels, overlaps_levels

__all__ = ["Grant", "Policy"]


class Line:
    """One filter of one rule, with the names of one client; no levels means all topics, group `*` all subscriptions."""

    def __init__(self, allow: bool, levels: list[bytes], group: str) -> None:
        self.allow = allow
        self.levels = levels
        self.group = group

    def meets(self, levels: list[bytes], share: str) -> bool:
        """Return whether the line applies to a topic or filter split at `/`, and to a group, empty without one."""
        if self.group != "*" and not is_like(self.group, share):
            return False
        if not self.levels:
            return True
        return covers_levels(self.levels, levels) if self.allow else overlaps_levels(self.levels, levels)


class Grant:
    """The rights of one client, computed once: keep it with the connection and query it for each topic.

    `publish_open`, `subscribe_open`: everything is allowed, so that the caller need not query it.
    """

    def __init__(self, rules: list[Rule], default_allow: bool, client_id: str, username: str | None) -> None:
        self.default_allow = default_allow
        self.publish: list[Line] = []
        self.subscribe: list[Line] = []
        for rule in rules:
            if not rule.holds_for(client_id, username):
                continue
            group = rule.group_for(client_id, username)
            if group is None:
                continue
            for levels in rule.filters(client_id, username):
                line = Line(rule.allow, levels, group)
                if rule.action & PUBLISH and rule.group == "*":
                    self.publish.append(line)
                if rule.action & SUBSCRIBE:
                    self.subscribe.append(line)
        self.publish_open = default_allow and not has_denial(self.publish)
        self.subscribe_open = default_allow and not has_denial(self.subscribe)

    def may_publish(self, topic: bytes) -> bool:
        """Return whether the client may publish to this topic name."""
        return self.publish_open or decide(self.publish, self.default_allow, topic, "")

    def may_subscribe(self, topic_filter: bytes, share: bytes = b"") -> bool:
        """Return whether the client may subscribe to a filter; of a shared subscription, the part after the group.

        share: that group, empty if it is not shared.
        """
        return self.subscribe_open or decide(self.subscribe, self.default_allow, topic_filter, share.decode())


class Policy:
    """The access list of a node: rules in order, and the default if none applies.

    `open`: there are no rules and the default allows, so that the caller need not query it.
    """

    def __init__(self, rules: list[Rule], default_allow: bool) -> None:
        self.rules = rules
        self.default_allow = default_allow
        self.open = default_allow and not rules

    def __repr__(self) -> str:
        return f"Policy(rules={self.rules!r}, default={'allow' if self.default_allow else 'deny'})"

    def grant(self, client_id: str, username: str | None) -> Grant:
        """Return the rights of one client; `username` is None for a client without a user name."""
        return Grant(self.rules, self.default_allow, client_id, username)

    def may_publish(self, client_id: str, username: str | None, topic: bytes) -> bool:
        """Return whether the client may publish to this topic; `grant` is cheaper for more than one query."""
        return self.open or self.grant(client_id, username).may_publish(topic)

    def may_subscribe(self, client_id: str, username: str | None, topic_filter: bytes, share: bytes = b"") -> bool:
        """Return whether the client may subscribe to this filter (without `$share/GROUP/`), in this group if any."""
        return self.open or self.grant(client_id, username).may_subscribe(topic_filter, share)


def decide(lines: list[Line], default_allow: bool, text: bytes, share: str) -> bool:
    """Return the verdict of the first line that applies to a topic or filter, else the default."""
    levels = text.split(b"/")
    for line in lines:
        if line.meets(levels, share):
            return line.allow
    return default_allow


def has_denial(lines: list[Line]) -> bool:
    """Return whether a line denies something."""
    return any(not line.allow for line in lines)

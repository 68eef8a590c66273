"""A13: what a node counts of each user, and of what waits in memory, is what is there.

Counts are changed wherever things begin and end, in many places; here they are counted anew by a walk, which the node
itself never does. A count that is too high would refuse what is allowed, for ever; one that is too low, nothing.
"""

# ruff: noqa: SLF001 - what a node keeps for itself is what is measured here

from __future__ import annotations

from typing import Any

from folkmoot.routing.interest import announced_bytes
from folkmoot.session.relay import ENTRY_BYTES
from folkmoot.session.subscription import excess_of

__all__ = ["miscounted"]

_COUNTS = (
    "sessions",
    "connections",
    "subscriptions",
    "patterns",
    "filter_bytes",
    "kept_bytes",
    "queue_bytes",
    "retained_messages",
    "retained_bytes",
)
_MEMORY = (
    "ready_bytes",
    "ready_count",
    "unsent_bytes",
    "parts_bytes",
    "alias_bytes",
    "relay_bytes",
    "hosted_bytes",
    "interest_bytes",
)


def miscounted(node: Any) -> str:
    """Return which count of a node is wrong; empty if none is."""
    state = node._state
    accounts = state.accounts
    wanted: dict[str, dict[str, int]] = {}

    def add(username: str, what: str, number: int) -> None:
        counts = wanted.setdefault(username, dict.fromkeys(_COUNTS, 0))
        counts[what] += number

    broker = node._broker
    memory = dict.fromkeys(_MEMORY, 0)
    memory["interest_bytes"] = _announced(broker.delivery.interest)
    for session in state.sessions.values():
        if session.account is None:
            return f"the session {session.client_id!r} has no account"
        name = session.account.name
        add(name, "sessions", 1)
        add(name, "subscriptions", len(session.subscriptions))
        add(name, "patterns", session.counted_patterns)
        add(name, "filter_bytes", session.filter_bytes)
        add(name, "kept_bytes", session.counted_bytes)
        filter_bytes = sum(excess_of(subscription) for subscription in session.subscriptions)
        if session.filter_bytes != filter_bytes or session.counted_bytes != session.kept_bytes():
            return f"{session.client_id!r}: {filter_bytes} bytes of filters, {session.kept_bytes()} are kept"
        add(name, "queue_bytes", session.queue_bytes if session.persistent else session.ready_bytes)
        memory["ready_bytes"] += session.ready_bytes
        memory["ready_count"] += session.waiting
    for connection in state.connections.values():
        if connection.account is not None:
            add(connection.account.name, "connections", 1)
        memory["unsent_bytes"] += connection.counted_unsent_bytes
        memory["alias_bytes"] += connection.alias_bytes
        memory["parts_bytes"] += connection.waiting_bytes()
    for led in broker.partition.led:
        for share in led.retained_of.values():
            name = share.account.name
            add(name, "retained_messages", share.count)
            add(name, "retained_bytes", share.size)
    for relay in broker.proxy.relays.relays.values():
        memory["relay_bytes"] += relay.log_bytes
    memory["hosted_bytes"] = _hosted(broker.leadership.hosting)
    for username in sorted({*wanted, *accounts._users, ""}):
        account = accounts.anonymous if not username else accounts._users.get(username)
        counts = wanted.get(username, {})
        for what in _COUNTS:
            has = 0 if account is None else getattr(account, what)
            if has != counts.get(what, 0):
                return f"the user {username!r} has {counts.get(what, 0)} {what} and {has} are counted"
    for what in _MEMORY:
        if getattr(state.memory, what) != memory[what]:
            return f"{memory[what]} {what} are there and {getattr(state.memory, what)} are counted"
    return ""


def _hosted(hosting: Any) -> int:
    """Return the memory of packets of clients at other nodes that wait for their turn."""
    backlogs = [connection.backlog or () for connection in hosting.remotes.values()]
    return sum(len(rest) + ENTRY_BYTES for backlog in backlogs for _, _, rest in backlog)


def _announced(interest: Any) -> int:
    """Return the memory of the filters that other nodes have announced."""
    locations = [*interest._locations, *interest._nodes.values()]
    return sum(announced_bytes(name) for location in locations for name in location.names)

"""How loud a fact is: what only the whole node knows to be ordinary is no warning."""

from __future__ import annotations

from folkmoot.kernel.event import INFO, Event
from folkmoot.membership.membership import Membership

__all__ = ["temper"]


def temper(events: list[Event], membership: Membership) -> None:
    """Say as an information only that the connection to a node is gone when that one, or this one, stops."""
    for event in events:
        if event.kind != "peer_down":
            continue
        if membership.departing or membership.is_gone(str(event.fields["node"])):
            event.level = INFO

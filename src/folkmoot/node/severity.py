"""The severity of events: some that a part reports as a warning are ordinary, which only the node can tell."""

from __future__ import annotations

from folkmoot.kernel.event import INFO, Event
from folkmoot.membership.membership import Membership

__all__ = ["temper"]


def temper(events: list[Event], membership: Membership) -> None:
    """Report the end of a connection to another node as information if that node, or this one, stops."""
    for event in events:
        if event.kind != "peer_down":
            continue
        if membership.departing or membership.is_gone(str(event.fields["node"])):
            event.level = INFO

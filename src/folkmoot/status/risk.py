"""The consequences of evicting or forgetting a node: the reasons to refuse the order unless it is forced.

Owns the sentences. Never gives the order, and never refuses one without consequences: a dead node without copies of its
own can always be evicted and forgotten.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.quorum import is_majority
from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE
from folkmoot.status.picture import MEMBER, Picture

__all__ = ["evict_risk", "forget_risk", "minority_without", "named"]

_NAMED_MAX: Final = 8  # partitions in a sentence


def evict_risk(picture: Picture, node_id: str) -> str:
    """Return why a member should not be evicted now; "" when others have all that it has, and can go on."""
    view = picture.view()
    if view is None or view.member(node_id) is None or picture.state() != MEMBER:
        return ""
    only = [number for number in range(picture.partitions()) if picture.replicas_of(number) == [node_id]]
    if only:
        cost = f"{node_id} has the only copy of {named(only)}, which would go on without what they had"
        return f"{cost} until it is back: wait until others have copies. {_forced('evict', node_id)}"
    cost = minority_without(picture, view, node_id)
    return f"{cost}. {_forced('evict', node_id)}" if cost else ""


def minority_without(picture: Picture, view: View, node_id: str) -> str:
    """Return that the members would be no majority without a node where one is needed; "" when they would be one."""
    active = [other.node_id for other in view.members if other.state == ACTIVE and other.node_id != node_id]
    known = len(picture.known())
    if picture.policy() != "majority" or is_majority(len(active), known):
        return ""
    return f"the {len(active)} nodes that stay are no majority of {known}: writes would be refused"


def forget_risk(picture: Picture, node_id: str) -> str:
    """Return why an absent node should not be forgotten; "" when nothing is lost with it."""
    view = picture.view()
    if view is None or node_id not in picture.known():
        return ""
    if picture.hears(node_id):
        cost = f"{node_id} runs and is heard: what only it has would be given up. Stop it first, or start it again"
        return f"{cost} to take it in. {_forced('forget', node_id)}"
    only: list[int] = []
    for partition in sorted(view.losses.missing):
        others = [other for other in view.losses.missing[partition] if other != node_id and other in picture.known()]
        if node_id in view.losses.missing[partition] and not others:
            only.append(partition)
    if only:
        cost = f"{node_id} has the only copies of what {named(only)} had, which would be lost for good: start it again"
        return f"{cost}. {_forced('forget', node_id)}"
    return ""


def named(partitions: list[int]) -> str:
    """Return the number of partitions and the first of them."""
    text = ", ".join([str(partition) for partition in partitions[:_NAMED_MAX]])
    more = len(partitions) - _NAMED_MAX
    return f"{len(partitions)} partitions ({text}{f' and {more} more' if more > 0 else ''})"


def _forced(order: str, node_id: str) -> str:
    return f"To do it all the same: folkmoot {order} {node_id} --force (force=true over HTTP)"

"""The consequences of evicting or forgetting a node: the reasons to refuse the order unless it is forced.

Owns the sentences. Never gives the order, and never refuses one without consequences: a dead node without copies of its
own can always be evicted and forgotten.
"""

from __future__ import annotations

from folkmoot.membership.loss import named
from folkmoot.peer.member import LEAVING
from folkmoot.status.picture import MEMBER, Picture

__all__ = ["evict_risk", "forget_risk", "unsafe_forget", "witness_forget"]


def evict_risk(picture: Picture, node_id: str) -> str:
    """Return why a member should not be evicted now; "" when others have all that it has.

    Votes are no reason. An evicted member stays a voter while it is away, as one that was stopped does. If the voters
    that run on would be no quorum, the controller ends votes, or gives them to others, where it can
    (`membership/voters`). Where it cannot, the vote is missing.
    """
    view = picture.view()
    if view is None or view.member(node_id) is None or picture.state() != MEMBER:
        return ""
    only = [number for number in range(picture.partitions()) if picture.replicas_of(number) == [node_id]]
    if only:
        cost = f"{node_id} has the only copy of {named(only)}, which nobody could serve until it is back"
        return f"{cost}: wait until others have copies. {_forced('evict', node_id)}"
    others = [member for member in view.members if member.node_id != node_id]
    if others and all(member.state == LEAVING for member in others):
        cost = f"nobody would be left to serve, because {', '.join([member.node_id for member in others])} leaves"
        return f"{cost}: take that back first (folkmoot leave NODE --undo). {_forced('evict', node_id)}"
    return ""


def forget_risk(picture: Picture, node_id: str) -> str:
    """Return why an absent node should not be forgotten; "" when nothing is lost with it, as far as is known here.

    The log judges once more, when the order is applied (`membership/transition`): another one may come before it.
    """
    view = picture.view()
    if view is None or node_id not in picture.known():
        return ""
    if picture.hears(node_id):
        cost = f"{node_id} runs and is heard: what only it has would be given up. Stop it first, or start it again"
        return f"{cost} to take it in. {_forced('forget', node_id)}"
    only: list[int] = []
    for partition in range(picture.partitions()):
        holders = view.losses.holders(partition)
        others = [other for other in holders if other != node_id and other in picture.known()]
        if (node_id in holders and not others) or node_id in view.losses.leftover.get(partition, []):
            only.append(partition)
    if only:
        cost = f"{node_id} has the only copies of what {named(only)} had, which would be lost for good: start it again"
        return f"{cost}. {_forced('forget', node_id)}"
    unmerged = [partition for partition, nodes in sorted(view.losses.unmerged.items()) if node_id in nodes]
    if unmerged:
        cost = f"{node_id} has acknowledged changes of {named(unmerged)} on another side of a split, which are not"
        cost += " merged and would be lost for good: start it again, and wait until folkmoot heals names it"
        return f"{cost}. {_forced('forget', node_id)}"
    return ""


def unsafe_forget(node_id: str) -> str:
    """Return why a node should not be forgotten by one that has no lease, and so cannot know whether it lives."""
    cost = f"this node has no lease, and nobody here can know whether {node_id} lives. If it does, the cluster is split"
    cost += " by this order, and merged when both sides meet. If it does not, what only it had is lost"
    return f"{cost}. {_forced('forget', node_id)}"


def witness_forget(own_id: str, node_id: str) -> str:
    """Return why a witness without a lease has no node forgotten, not even by force: its side would have no data."""
    why = f"{own_id} is a witness: it has no data, and cannot go on without {node_id}"
    return f"{why}. Give this order to a node with data that is left, or start one"


def _forced(order: str, node_id: str) -> str:
    return f"To do it all the same: folkmoot {order} {node_id} --force (force=true over HTTP)"

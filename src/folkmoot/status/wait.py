"""Why a node serves nobody, and for which nodes and events it waits, computed from its picture.

Owns the sentences in health and status; membership and leases decide.
"""

from __future__ import annotations

from folkmoot.status.picture import EXCLUDED, MEMBER, WAITING, Picture
from folkmoot.status.shortage import has_full_disk

__all__ = ["wait_of"]


def wait_of(picture: Picture) -> str:
    """Return why a node waits, and for which nodes; "" when it is up and has a lease, or is a single node."""
    state = picture.state()
    if state == EXCLUDED:
        return _excluded(picture)
    if state == MEMBER and not picture.has_lease():
        return f"it has no lease: {_why_no_lease(picture)}"
    if state != WAITING:
        return ""
    words = ["it waits to become a member of the cluster"]
    if picture.expected():
        words.append(_why_not_up(picture))
    else:
        words.append("it knows none yet: the first of the seeds founds it, or as many nodes as are expected")
    words.extend([f"{address}: {why}" for address, why in sorted(picture.unanswered().items())])
    return "; ".join(words)


def _excluded(picture: Picture) -> str:
    why = picture.why_out()
    words = [f"the others go on without it: {why}" if why else "the others go on without it"]
    if has_full_disk(picture, picture.node_id()):
        words.append("its disk is full")
    return "; ".join(words)


def _why_no_lease(picture: Picture) -> str:
    controller = picture.controller()
    if not controller:
        return _no_controller(picture)
    if controller == picture.node_id():
        return "it is the controller, and too few voters answer it, its disk stands still, or it is being put out"
    if not picture.hears(controller):
        return f"it is not connected to the controller {controller}"
    return f"the controller {controller} does not renew it"


def _why_not_up(picture: Picture) -> str:
    controller = picture.controller()
    if not controller:
        return _no_controller(picture)
    if controller == picture.node_id():
        return "it is the controller, and waits until all leases from before its election are over"
    absent = [node_id for node_id in picture.expected() if not picture.hears(node_id)]
    text = f"the controller {controller} lets it up when it is connected to all members that are up"
    return f"{text}; it is not connected to {', '.join(absent)}" if absent else text


def _no_controller(picture: Picture) -> str:
    """Return why nobody leads the configuration log: it takes more than half of the voters."""
    voters = picture.voters()
    absent = [node_id for node_id in voters if not picture.hears(node_id)]
    here = len(voters) - len(absent)
    text = f"no controller: {here} of {len(voters)} voters are connected"
    if 2 * here > len(voters):
        return f"{text}, and are about to elect one"
    waits = f"{text}; waits for {', '.join(absent)}"
    if picture.policy() == "available" and picture.forks_left() == 0:
        return f"{waits}, and cannot fork any more: bring back the nodes that are away, or forget those that are lost"
    return waits

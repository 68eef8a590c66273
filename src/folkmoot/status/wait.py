"""Which nodes and events a node waits for that serves nobody, computed from its picture.

Owns the sentences in health and status; membership and the split policy decide.
"""

from __future__ import annotations

from folkmoot.membership.quorum import is_majority
from folkmoot.status.picture import EXCLUDED, MEMBER, WAITING, Picture
from folkmoot.status.shortage import has_full_disk

__all__ = ["wait_of"]


def wait_of(picture: Picture) -> str:
    """Return why a node waits, and for which nodes; "" when it is a member that may write, or a single node."""
    state = picture.state()
    if state == EXCLUDED:
        full = has_full_disk(picture, picture.node_id())
        return "it is excluded from the cluster's view" + (
            ": its disk is full, and it comes back with room" if full else ""
        )
    if state == MEMBER and not picture.may_write():
        return _majority(picture)
    if state != WAITING:
        return ""
    words = ["it waits to become a member of the cluster"]
    absent = _absent(picture)
    needs_majority = picture.policy() == "majority"
    if needs_majority and not picture.expected():
        words.append("a first view needs more than half of the seeds and this node")
    elif needs_majority and not is_majority(_heard(picture), len(picture.expected())):
        words.append(_majority(picture))
    elif absent:
        words.append(f"{', '.join(absent)} of its last view {'is' if len(absent) == 1 else 'are'} not heard")
    words.extend([f"{address}: {why}" for address, why in sorted(picture.unanswered().items())])
    return "; ".join(words)


def _heard(picture: Picture) -> int:
    return len(picture.expected()) - len(_absent(picture))


def _absent(picture: Picture) -> list[str]:
    own = picture.node_id()
    return [node_id for node_id in picture.expected() if node_id != own and not picture.hears(node_id)]


def _majority(picture: Picture) -> str:
    text = f"no majority: {_heard(picture)} of {len(picture.expected())} members heard"
    absent = _absent(picture)
    return f"{text}; waits for {', '.join(absent)}" if absent else f"{text}, and they are about to agree"

"""Which nodes and events a node waits for that serves nobody, computed from its picture.

Owns the sentences in health and status; the leader of the configuration log decides.
"""

from __future__ import annotations

from folkmoot.membership.quorum import is_majority
from folkmoot.status.picture import EXCLUDED, MEMBER, WAITING, Picture
from folkmoot.status.shortage import has_full_disk

__all__ = ["wait_of"]


def wait_of(picture: Picture) -> str:
    """Return why a node waits, and for which nodes; "" when it is a member under a lease, or a single node."""
    state = picture.state()
    if state == EXCLUDED:
        full = has_full_disk(picture, picture.node_id())
        return "it is excluded from the cluster's view" + (
            ": its disk is full, and it comes back with room" if full else ""
        )
    if state == MEMBER and not picture.may_write():
        return _no_quorum(picture) or "it has no lease: the leader of the cluster does not answer it"
    if state != WAITING:
        return ""
    words = ["it waits to become a member of the cluster"]
    absent = _absent(picture, picture.expected())
    if not picture.expected():
        words.append("it knows none yet: the first of the seeds founds it, or as many nodes as are expected")
    elif why := _no_quorum(picture):
        words.append(why)
    elif absent:
        words.append(f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not heard")
    words.extend([f"{address}: {why}" for address, why in sorted(picture.unanswered().items())])
    return "; ".join(words)


def _absent(picture: Picture, some: list[str]) -> list[str]:
    own = picture.node_id()
    return [node_id for node_id in some if node_id != own and not picture.hears(node_id)]


def _no_quorum(picture: Picture) -> str:
    """Return that too few voters of the configuration log are heard here; "" when there are enough."""
    voters = picture.voters()
    absent = _absent(picture, voters)
    heard = len(voters) - len(absent)
    if is_majority(heard, len(voters)):
        return ""
    return f"no quorum: {heard} of {len(voters)} voters heard; waits for {', '.join(absent)}"

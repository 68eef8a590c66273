"""Which partitions a view goes on without: nobody who is here has what they had, or nobody has it any more.

A pure function, run by the proposer; its result is part of the view, so that all members tell the same, also after a
restart. It decides nothing: what is done about a missing copy is `assign`'s business (the partition begins anew, or
from an old copy), and what comes back is merged.
"""

from __future__ import annotations

from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.membership.holding import COMPLETE, NONE, Holding
from folkmoot.membership.loss import LOSSES_MAX, Loss, Losses
from folkmoot.membership.view import View
from folkmoot.peer.member import Member

__all__ = ["losses_of", "news_of"]


def losses_of(view: View, tops: list[View], holdings: dict[str, list[Holding]], now: int) -> Losses:
    """Return what the new view goes on without.

    tops: the views from which it goes on. holdings: what each member has. now: the time of a loss for good.
    """
    found = Losses()
    gone = 0
    names: dict[str, bool] = {}
    for partition in range(len(view.replicas)):
        before = _missing_before(tops, partition)
        if _holds(before, partition, holdings) or _idle(before, partition, holdings, tops, view) == len(before):
            before = []  # it came back, or there was nothing
        owners = [] if _is_here(tops, partition, holdings) else _owners(tops, partition, holdings, view)
        wanted = list(dict.fromkeys([*before, *owners]))
        if not wanted:
            continue
        away = [node_id for node_id in wanted if node_id in view.known and view.member(node_id) is None]
        if away:
            found.missing[partition] = sorted(away)
        elif not [node_id for node_id in wanted if _state(node_id, partition, holdings) != NONE]:
            gone += 1  # and no copy is damaged, of which other events tell
            names.update(dict.fromkeys(wanted, True))
    past: dict[tuple[int, int], Loss] = {}
    for top in tops:
        for loss in top.losses.past:
            past[loss.time_us, loss.partitions] = loss
    if gone:
        past[now, gone] = Loss(now, gone, sorted(names))
    found.past = [past[key] for key in sorted(past)][-LOSSES_MAX:]
    return found


def _owners(tops: list[View], partition: int, holdings: dict[str, list[Holding]], view: View) -> list[str]:
    """Return who had everything of a partition in those of the views before in which it was begun.

    A change counts when all replicas have it: of a view that one of them has nothing from, none did.
    """
    owners: dict[str, bool] = {}
    for top in tops:
        if partition < len(top.replicas) and not _idle(top.replicas[partition], partition, holdings, tops, view):
            owners.update(dict.fromkeys(top.replicas[partition], True))
    return list(owners)


def _is_here(tops: list[View], partition: int, holdings: dict[str, list[Holding]]) -> bool:
    """Tell whether somebody with a role in one of the views before is here with a whole copy."""
    for top in tops:
        if partition < len(top.replicas):
            if _holds(top.replicas[partition], partition, holdings):
                return True
            if _holds(top.learners[partition], partition, holdings):
                return True
    return False


def _missing_before(tops: list[View], partition: int) -> list[str]:
    names: dict[str, bool] = {}
    for top in tops:
        names.update(dict.fromkeys(top.losses.missing.get(partition, []), True))
    return list(names)


def _state(node_id: str, partition: int, holdings: dict[str, list[Holding]]) -> int:
    held = holdings.get(node_id, [])
    return held[partition].state if partition < len(held) else NONE


def _holds(ids: list[str], partition: int, holdings: dict[str, list[Holding]]) -> bool:
    for node_id in ids:
        if _state(node_id, partition, holdings) == COMPLETE:
            return True
    return False


def _idle(ids: list[str], partition: int, holdings: dict[str, list[Holding]], tops: list[View], view: View) -> int:
    """Return how many of these nodes are here and never had anything: their disks are the same ones, and empty of it.

    A node that has lost its disk has nothing either, but begins another row of starts.
    """
    found = 0
    for node_id in ids:
        member = view.member(node_id)
        if member is None or _state(node_id, partition, holdings) != NONE:
            continue
        for top in tops:
            if _on_same_disk(top, member):
                found += 1
                break
    return found


def _on_same_disk(top: View, member: Member) -> bool:
    for before in [top.member(member.node_id), *top.absent]:
        if before is not None and before.node_id == member.node_id and member.continues(before):
            return True
    return False


def news_of(before: View | None, view: View) -> list[Event]:
    """Return what a new view tells of copies for the log; before: the one that was installed here until now."""
    events: list[Event] = []
    if view.minority_bootstrap and (before is None or not before.minority_bootstrap):
        events.append(Event(WARNING, "began_apart", {"members": [member.node_id for member in view.members]}))
    elif before is not None and before.minority_bootstrap and not view.minority_bootstrap:
        events.append(Event(INFO, "joined_others", {"members": [member.node_id for member in view.members]}))
    old = Losses() if before is None else before.losses
    for nodes, partitions in view.losses.groups():
        new = [partition for partition in partitions if partition not in old.missing]
        if new:
            events.append(Event(WARNING, "copies_missing", {"partitions": len(new), "nodes": nodes}))
    known = [loss.time_us for loss in old.past]
    lost = False
    for loss in view.losses.past:
        if before is not None and loss.time_us not in known:
            lost = True
            events.append(Event(ERROR, "copies_lost", {"partitions": loss.partitions, "nodes": loss.nodes}))
    if old.missing and not view.losses.missing and not lost:
        events.append(Event(INFO, "copies_back", {"partitions": len(old.missing)}))
    return events

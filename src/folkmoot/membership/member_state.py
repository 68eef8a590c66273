"""The state of one node's membership: its view, its promise, and the messages to be sent.

Owns the values that the parts of membership share, and the one way to install a view; decides nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from folkmoot.kernel.event import INFO, WARNING, Event
from folkmoot.kernel.rng import Rng
from folkmoot.membership.absence import news_of
from folkmoot.membership.heartbeat import EXCLUDED, MEMBER, WAITING, Request
from folkmoot.membership.holding import Holding
from folkmoot.membership.quorum import is_majority
from folkmoot.membership.room import Room
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.member import LEAVING, Member
from folkmoot.store.epoch import counter_of

__all__ = ["STATES", "HoldingsSource", "MemberState"]

_RECENT_MAX: Final = 4  # views kept for members that missed one
STATES: Final[list[str]] = ["waiting", "member", "excluded"]


@mypyc_attr(allow_interpreted_subclasses=True)  # asked once per proposal
class HoldingsSource(ABC):
    """Says what this node holds."""

    @abstractmethod
    def holdings(self) -> list[Holding]:
        """Return what this node has of each partition, in their order."""


class MemberState:
    """The state of one node's membership.

    out: (node id, kind, body) to be sent. installs: views to be installed, in order. filled: (partition, learner) that
    this node reports as their leader. news: its holdings need another view for another reason. base: the newest view in
    which it could write, with the nodes that are known now. With `majority` a side without one has a view too, so that
    its status can be told and nodes be forgotten, but writes nothing in it.
    """

    def __init__(
        self,
        me: Member,
        config: ClusterConfig,
        partitions: int,
        rng: Rng,
        holdings: HoldingsSource,
        stored: View | None,
    ) -> None:
        self.me = me
        self.config = config
        self.partitions = partitions
        self.rng = rng
        self.holdings = holdings
        self.view: View | None = stored
        self.base: View | None = stored
        self.state: int = WAITING
        # Another name at each start, also after the loss of the disk: no epoch is made twice.
        self.proposer = f"{me.node_id}#{me.incarnation}#{rng.token(8)}"
        self.promised: int = 0 if stored is None else stored.epoch
        self.counter: int = counter_of(self.promised)
        self.recent: list[View] = [] if stored is None else [stored]
        self.out: list[tuple[str, int, bytes]] = []
        self.installs: list[View] = []
        self.events: list[Event] = []
        self.requests: list[Request] = []
        self.filled: list[tuple[int, str]] = []
        self.news: bool = False
        self.fallen: bool = False  # stood down since it promised, unknown to the others: it waits for another view
        self.leaving: bool = False  # wants to leave for good
        self.departing: bool = False  # has announced its end: no view is to have it
        self.excluded_by: list[str] = []  # members of views that were made without this node: they have forgotten it
        self.met: dict[str, str] = {}  # by seed the id of the node that answered there
        self.installed_us: int = 0
        self.promised_us: int = 0
        self.room = Room(config.full_wait_us, config.full_hold_us)
        self._stalled: dict[str, int] = {}

    def epoch(self) -> int:
        """Return the epoch of the installed view, or of the stored one until there is another; 0 = none."""
        return 0 if self.view is None else self.view.epoch

    def event(self, level: str, kind: str, fields: dict[str, object]) -> None:
        """Add an event for the log."""
        self.events.append(Event(level, kind, fields))

    def stall(self, what: str, since_us: int) -> None:
        """Note that something has stalled since then; 0 = it works again."""
        if since_us:
            self._stalled[what] = since_us
        else:
            self._stalled.pop(what, None)

    def stalled(self, now: int) -> bool:
        """Tell whether this node has stalled for so long that it counts as dead."""
        for since_us in self._stalled.values():
            if now - since_us >= self.config.stall_us:
                return True
        return False

    def is_few(self, members: list[Member]) -> bool:
        """Tell whether most seeds are not among these members: they may be a cluster of their own."""
        me = self.me.node_id
        others = [seed for seed in self.config.seeds if seed != self.config.peer_address and self.met.get(seed) != me]
        unknown = 0
        for seed in others:
            node_id = self.met.get(seed, "")
            if not [one for one in members if one.address == seed or one.node_id == node_id]:
                unknown += 1
        return is_majority(unknown, len(others))

    def may_write(self) -> bool:
        """Tell whether this node may write, by the split policy."""
        if self.state != MEMBER or self.view is None or self.fallen:
            return False
        return self.is_live(self.view)

    def is_live(self, view: View) -> bool:
        """Tell whether members may write in a view, by the split policy."""
        return self.config.split_policy != "majority" or view.has_majority()

    def install(self, chain: list[View], now: int) -> bool:
        """Install the views that are newer and have this node as a member; tell whether there was one."""
        taken = False
        for view in chain:
            member = view.member(self.me.node_id)
            # A view made without this node: its members took the clients of this node for disconnected, and have
            # dropped what was under way between them.
            if view.epoch > self.epoch() and member is None:
                self.excluded_by.extend([one.node_id for one in view.members])
            if view.epoch <= self.epoch() or member is None or member.incarnation != self.me.incarnation:
                continue
            taken = True
            self.events.extend(news_of(self.view, view))
            before = self.view if self.may_write() else None
            # It promised while it served, and has stood down since: its clients were disconnected and its requests
            # dropped, but this view says that it continued. It serves no client in it, and has another one made, in
            # which all start over with it. Otherwise its clients wait for ever, or get messages twice.
            went_on = view.bases.get(self.me.node_id, view.epoch) != view.epoch
            self.fallen = went_on and (self.fallen or self.state == EXCLUDED)
            self.news = self.fallen or (before is not None and self._branched(before, view))
            self.view = view
            # A minority has a view too, so that its status can be told and nodes be forgotten, but with `majority` it
            # changes no copy: `base` stays the view in which this node could write. Otherwise what a leader that was
            # cut off had not committed would become part of the minority's history, and a merge would take it for
            # acknowledged.
            if self.is_live(view):
                self.base = view
                self.recent = [*self.recent[-(_RECENT_MAX - 1) :], view]
            elif self.base is not None:
                old = self.base
                self.base = View(
                    old.epoch, old.members, old.replicas, old.learners, view.known, view.absent, view.refused
                )
                self.base.lineage = old.lineage
                self.base.minority_bootstrap = old.minority_bootstrap
                self.base.uncommitted_tails = old.uncommitted_tails
                self.base.lasts = view.lasts
                self.base.losses = old.losses
                me = self.me.node_id  # nothing was given up in such a view
                self.base.forgotten = [mark for mark in view.forgotten if mark[0] != me or mark in old.forgotten]
            self.installs.append(view)
            self.state = MEMBER
            self.room.fresh = False
            self.installed_us = now
            self.promised = max(self.promised, view.epoch)  # it may come in a chain, without a promise of this node
            self.counter = max(self.counter, counter_of(view.epoch))
            self.filled = [pair for pair in self.filled if self._learns(before, view, pair[0], pair[1])]
            # An operator asked another node, or this one was restarted while it left.
            self.leaving = self.leaving or member.state == LEAVING
            fields: dict[str, object] = {"view": counter_of(view.epoch), "epoch": view.epoch}
            fields["members"] = [one.node_id for one in view.members]
            self.event(INFO, "view_installed", fields)
        return taken

    def exclude(self, why: str) -> None:
        """Note that others have continued without this node."""
        self.state = EXCLUDED
        level = INFO if self.departing else WARNING
        self.event(level, "view_excluded", {"view": counter_of(self.epoch()), "epoch": self.epoch(), "why": why})

    def _branched(self, before: View, view: View) -> bool:
        """Tell whether this node may hold changes that no replica or learner of the new view has.

        Between its promise and now it may have committed with other nodes that keep nothing in the new view either:
        their branch lost, and their promises were too old to show it. The next view finds these changes and has them
        merged.
        """
        me = self.me.node_id
        for partition, replicas in enumerate(before.replicas):
            if me not in replicas or partition >= len(view.replicas):
                continue
            if me in view.replicas[partition] or me in view.learners[partition]:
                continue
            if not [node_id for node_id in replicas if node_id in view.replicas[partition]]:
                return True
        return False

    def _learns(self, before: View | None, view: View, partition: int, node_id: str) -> bool:
        """Tell whether a report that a learner is filled still counts: this node leads, the learner has not restarted.

        One that was started again may have lost its disk, and would become a replica with nothing.
        """
        if partition >= len(view.replicas) or view.leader_of(partition) != self.me.node_id:
            return False
        old = None if before is None else before.member(node_id)
        new = view.member(node_id)
        same_start = old is not None and new is not None and old.incarnation == new.incarnation
        return same_start and node_id in view.learners[partition]

"""When a new subscription may be given the retained messages: not before those that were under way have landed (A8).

A retained message that was published by a node that did not know of the subscription does not come to it live. So it
has to be with the leader of its topic when the subscriber's node looks there. That node asks all nodes, itself too;
each answers when the retained messages that it had under way at that time are kept, or never will be (`barrier`).

A retained message may also wait in the outbox of a partition that has lost its leader: the next one knows of it when it
has opened the partition. While any partition is between two leaders, nobody looks, and who has opened one is asked
anew. An answer names the view in which it was given, and counts when that view is known here: the node may have handed
on what it had under way. Nor does a node answer while it has to open a partition itself: it may begin one anew that for
the others has not moved.

A partition without a leader, because its copies are away, is not waited for, nor what is to be retained there. When it
has a leader again (`returns`), who has not read it yet asks anew: messages for it may have waited at any node.
"""

from __future__ import annotations

from folkmoot.turn.fabric import Fabric

__all__ = ["Landings"]


class Landings:
    """The questions of this node that are not answered, in rounds: one for all that have asked in the same turn."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.asks_all = False  # in this turn, something has to know that what is under way now has landed
        self.asks: dict[str, None] = {}  # nodes that have opened a partition since they were asked
        self._round = 1  # of those that ask in this turn
        self._open: dict[str, dict[int, int]] = {}  # by node and number of the announcement: the round
        self._moving: dict[int, None] = {}  # partitions whose leader has not begun
        self.returns = 0  # how often partitions without a leader have got one
        self._leaderless: dict[int, None] = {}
        self._landed = 0  # the newest round of which all are answered
        self._is_old = False  # it has to be computed anew

    def join(self) -> int:
        """Ask all nodes at the end of this turn; return the round for which to wait."""
        if self.fabric.alone or self.fabric.planted.no_landing:
            return 0
        self.asks_all = True
        return self._round

    def has_landed(self, number: int) -> bool:
        """Whether what was under way at the time of a round has landed everywhere."""
        if self._is_old:
            self._is_old = False
            self._landed = self._find_landed()
        return number <= self._landed

    def _find_landed(self) -> int:
        if self.asks:
            return 0  # these are asked at the end of this turn
        if self._open or self._moving:
            fabric = self.fabric
            for partition in self._moving:
                # One that nobody can lead, or that has too few copies, may stay so.
                if fabric.leaders[partition] or (partition not in fabric.absent and partition not in fabric.scarce):
                    return 0
            rounds = [number for numbers in self._open.values() for number in numbers.values()]
            if rounds:
                return min(rounds) - 1
        return self._round - 1

    # -- questions and answers ----------------------------------------------------------------------------------------

    def is_asking(self) -> bool:
        """Whether anybody is to be asked at the end of this turn."""
        return self.asks_all or bool(self.asks)

    def is_asked(self, node_id: str) -> bool:
        """Whether a node is to be asked at the end of this turn."""
        return self.asks_all or node_id in self.asks

    def asked(self, node_id: str, number: int) -> None:
        """An announcement with this number asks a node."""
        again = node_id in self.asks
        self.asks.pop(node_id, None)
        self._open.setdefault(node_id, {})[number] = 0 if again else self._round
        self._is_old = True

    def end_turn(self) -> None:
        """All that was to be asked in this turn has been."""
        if self.asks_all:
            self._round += 1
            self.asks_all = False
            self._is_old = True

    def landed(self, node_id: str, number: int) -> None:
        """A node has answered."""
        numbers = self._open.get(node_id)
        if numbers is not None and numbers.pop(number, None) is not None:
            if not numbers:
                del self._open[node_id]
            self._is_old = True

    def unanswered(self) -> list[str]:
        """Return the nodes that have not answered."""
        return list(self._open)

    # -- nodes and leaders come and go --------------------------------------------------------------------------------

    def again(self, node_id: str) -> None:
        """A node starts anew with this one, and has forgotten what it was asked."""
        if self._open.pop(node_id, None) is not None:
            self.asks[node_id] = None

    def gone(self, node_id: str) -> None:
        """A node is up no more: it has nothing under way, and what it was to send others will send when they open."""
        self._open.pop(node_id, None)
        self.asks.pop(node_id, None)
        self._is_old = True

    def installed(self) -> None:
        """A view is installed: partitions may have become absent, or have a leader again."""
        before = self._leaderless
        self._leaderless = {number: None for number, leader in enumerate(self.fabric.leaders) if not leader}
        if any(number not in self._leaderless for number in before):
            self.returns += 1
        self._is_old = True

    def moved(self, partition: int) -> None:
        """Another leadership of a partition has begun, which has not opened it yet."""
        if not self.fabric.planted.moves_unseen:
            self._moving[partition] = None
            self._is_old = True

    def opened(self, partition: int, node_id: str) -> None:
        """Its leader has opened a partition: it knows now which retained messages wait in the outbox."""
        if partition in self._moving:
            del self._moving[partition]
            self.asks[node_id] = None

"""Publishing across nodes, the asking side: requests to the leaders of partitions, in order, until they are committed.

The node where a message is published numbers it, and keeps each partition's part until the partition's leader says
that it is committed. When a partition changes hands its parts wait, and go to the new leader in the same order as soon
as that one is open; what it knows already it does not apply again (`mark`). Every part names one partition, because
partitions move one by one. The answering side is `exchange`. DESIGN section 7.
"""

from __future__ import annotations

from folkmoot.broker.commit import Commits
from folkmoot.broker.fabric import Fabric
from folkmoot.broker.message import FROM_CLIENT, LIVE, REQUESTS, Parcel, Share, encode_application, encode_parcel
from folkmoot.broker.state import State
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.store.message import Message

__all__ = ["Part", "Requests"]


class Part:
    """A partition's part in a message, until it is committed."""

    def __init__(self, parcel: Parcel, share: Share) -> None:
        self.parcel = parcel
        self.share = share

    def __repr__(self) -> str:
        return f"Part({self.parcel.sequence} {self.share!r})"


class Requests:
    """The requests of this node that are not committed."""

    def __init__(self, state: State, fabric: Fabric, commits: Commits) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self._sequence = 0
        self._number = 0
        self._outgoing: dict[str, list[Parcel]] = {}  # of this turn, per node
        self._sent: dict[str, dict[int, list[Part]]] = {}  # per node, by number of the message: what is not committed
        self._parked: dict[int, list[Part]] = {}  # by partition without an open leader

    def begin(self, incarnation: int) -> None:
        """Number the requests of this start of the node beyond those of all earlier ones."""
        self._sequence = incarnation << 40

    def publish(
        self,
        message: Message,
        producer: bytes,
        number: int,
        from_client: bool,
        shares: list[Share],
        nodes: dict[str, list[bytes]],
    ) -> None:
        """Hand a message to partitions that others lead, and to nodes with transient subscribers (and their groups)."""
        self._sequence += 1
        token = self.state.writer.token
        flags = FROM_CLIENT if from_client else 0
        body = encode_application(message, producer, number)
        parcels: dict[str, Parcel] = {}
        for node_id, groups in nodes.items():
            parcel = Parcel(self._sequence, token, flags | LIVE, body)
            parcel.groups = groups
            parcels[node_id] = parcel
        for share in shares:
            self._give(Parcel(self._sequence, token, flags, body), share, parcels)
        if shares:
            self.commits.ask(len(shares), len(shares) * len(body))
        for node_id, parcel in parcels.items():
            self._outgoing.setdefault(node_id, []).append(parcel)

    def _give(self, blank: Parcel, share: Share, parcels: dict[str, Parcel]) -> None:
        partition = share.partition
        leader = self.fabric.leaders[partition]
        parked = self._parked.get(partition)
        if parked is not None or not self.fabric.open[partition] or leader == self.fabric.node_id:
            if parked is None:
                parked = []
                self._parked[partition] = parked
            parked.append(Part(blank, share))
            return
        parcel = parcels.get(leader)
        if parcel is None:
            parcel = blank
            parcels[leader] = parcel
        parcel.shares.append(share)

    def flush(self) -> None:
        """Send what this turn has collected, one message per node."""
        if not self._outgoing:
            return
        outgoing = self._outgoing
        self._outgoing = {}
        for node_id, parcels in outgoing.items():
            self._number += 1
            out = [varint(self._number), varint(len(parcels))]
            parts: list[Part] = []
            for parcel in parcels:
                encode_parcel(parcel, out)
                parts.extend([Part(parcel, share) for share in parcel.shares])
            if parts:
                self._sent.setdefault(node_id, {})[self._number] = parts
            self.fabric.send(node_id, REQUESTS, b"".join(out))

    def done(self, node_id: str, body: bytes) -> None:
        """A node has answered. Raises IndexError for nonsense."""
        number, pos = get_varint(body, 0)
        count, pos = get_varint(body, pos)
        refused: set[int] = set()
        for _ in range(count):
            partition, pos = get_varint(body, pos)
            refused.add(partition)
        for part in self._sent.get(node_id, {}).pop(number, []):
            if part.share.partition in refused:
                self._park(part)
            else:
                self.settle(part)

    def settle(self, part: Part) -> None:
        """A part is committed, or will be with this turn."""
        self.commits.answered(part.parcel.token, 1, len(part.parcel.body))

    def _park(self, part: Part) -> None:
        """Let a part wait for its partition, in its place: by its number."""
        parked = self._parked.setdefault(part.share.partition, [])
        at = len(parked)
        while at and parked[at - 1].parcel.sequence > part.parcel.sequence:
            at -= 1
        parked.insert(at, part)

    # -- partitions move ----------------------------------------------------------------------------------------------

    def moved(self, partition: int) -> None:
        """A partition has another leader, or one that must open it anew: what is not committed waits."""
        self._recall(partition)

    def _recall(self, partition: int) -> None:
        for messages in self._sent.values():
            for number, parts in messages.items():
                mine = [part for part in parts if part.share.partition == partition]
                if mine:
                    messages[number] = [part for part in parts if part.share.partition != partition]
                    for part in mine:
                        self._park(part)

    def gone(self, node_id: str) -> None:
        """A node is no member any more: what it has not answered goes to others, or is due to nobody."""
        for parts in self._sent.pop(node_id, {}).values():
            for part in parts:
                self._park(part)
        self._outgoing.pop(node_id, None)

    def opened(self, partition: int) -> list[Part]:
        """The leader of a partition takes requests: what waits goes to it. Return it when that is this node itself."""
        self._recall(partition)
        parts = self._parked.pop(partition, [])
        leader = self.fabric.leaders[partition]
        if leader == self.fabric.node_id:
            return parts
        for part in parts:
            parcel = part.parcel
            again = Parcel(parcel.sequence, parcel.token, parcel.flags & FROM_CLIENT, parcel.body)
            again.shares.append(part.share)
            self._outgoing.setdefault(leader, []).append(again)
        return []

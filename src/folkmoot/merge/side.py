"""One side of a merge: the rows of a copy, what it has seen of the changes of others, and when it made its own."""

from __future__ import annotations

from folkmoot.kernel.pack import u64
from folkmoot.membership.divergence import YES, has_change, shared
from folkmoot.membership.holding import Holding
from folkmoot.membership.view import View
from folkmoot.merge.stamp import Stamp, decode_stamp
from folkmoot.store.epoch import counter_of, tag_of
from folkmoot.store.key import MARK, PRODUCER, RECEIVED, STAMP, plain_key, stamped_key_of
from folkmoot.store.mark_row import mark_number
from folkmoot.store.message import SOURCE_BYTES
from folkmoot.store.origin import NUMBER_BITS, is_node, is_will, name_of, number_of, packet_name
from folkmoot.store.writer import VERSION_BYTES, body_of, version_of

__all__ = ["Side", "last_shared_counter", "replaces"]


class Side:
    """Rows by key, versions included. seen: its position and history, and those of branches that it has taken in.

    fork: counter of the newest configuration that both sides had, -1 = not known.
    """

    def __init__(self, rows: dict[bytes, bytes], seen: list[Holding], fork: int = -1) -> None:
        self.rows = rows
        self.seen = seen
        self.fork = fork
        self.common = 0  # up to here this side has the changes of the other one
        self._stamps: dict[bytes, Stamp] = {}
        self._received: dict[bytes, bool] = {}  # names of packets that brought messages with QoS 2, not released yet
        for key, value in rows.items():
            if key[2] == STAMP:
                self._stamps[stamped_key_of(key)] = decode_stamp(value)
            elif key[2] == RECEIVED and len(value) > SOURCE_BYTES + VERSION_BYTES:
                self._received[value[-SOURCE_BYTES:]] = True

    def position(self) -> bytes:
        """Return the position of the copy, in the form of a version."""
        return u64(self.seen[0].epoch) + u64(self.seen[0].seq)

    def knows(self, value: bytes) -> bool:
        """Whether this side has seen the change that wrote a row; then it has the row, or has changed or removed it."""
        _epoch, seq = version_of(value)
        return seq <= self.common or self.has_seen(value)

    def has_seen(self, value: bytes) -> bool:
        """Whether this side has certainly seen the change with a version, of whatever side it is."""
        epoch, seq = version_of(value)
        for holding in self.seen:
            if has_change(holding, epoch, seq) == YES:
                return True
        return False

    def is_of_own(self, value: bytes) -> bool:
        """Whether a row was written in a configuration that the other side did not have."""
        return counter_of(version_of(value)[0]) > self.fork

    def has_origin(self, origin: bytes) -> bool:
        """Whether this side has seen the change that wrote something at a branch, or the whole branch that had it.

        origin: the version of the change there comes first, the position of the branch last (`store/row`).
        """
        return self.has_seen(origin) or self.has_seen(origin[-VERSION_BYTES:])

    def newest_epoch(self, tag: int) -> int:
        """Return the newest epoch of a lineage (`store.epoch`) of which this side has seen a change, 0 if of none."""
        found = 0
        for holding in self.seen:
            for epoch in [holding.epoch, *[entry[0] for entry in holding.history if entry[1] < holding.seq]]:
                if tag_of(epoch) == tag:
                    found = max(found, epoch)
        return found

    def has_applied(self, partition: int, origin: bytes) -> bool:
        """Whether this side has applied the request that brought a row at the other side.

        Who asks hands over its requests in order, so what is below a mark was applied, if it was not answered before. A
        node may have changed sides, and what it has asked of one side since the fork was not asked of the other.
        """
        name = name_of(origin)
        if not name:
            return False
        if is_will(name):
            return plain_key(partition, PRODUCER, name) in self.rows
        number = number_of(origin)
        mark = self.rows.get(plain_key(partition, MARK, name))
        if mark is None or (is_node(name) and number >> NUMBER_BITS > self.fork):
            return False
        return number <= mark_number(mark)

    def has_packet(self, partition: int, source: bytes) -> bool:
        """Whether this side has got the message of a packet, which also came to the leader of the other side.

        Who got it first keeps its id until PUBREL, which goes to the next leader; who gets it again marks it.
        """
        return source in self._received or plain_key(partition, MARK, packet_name(source)) in self.rows

    def meet(self, other: Holding) -> None:
        """Look how far the other side's changes are known here, also those whose epochs were forgotten."""
        self.common = max([shared(holding, other)[0] for holding in self.seen], default=0)

    def put_us(self, key: bytes) -> int:
        """Return when this side wrote a row, 0 if nobody knows."""
        stamp = self._stamps.get(key)
        return 0 if stamp is None else stamp.put_us

    def gone_us(self, key: bytes) -> int:
        """Return when this side removed a row last, 0 if nobody knows."""
        stamp = self._stamps.get(key)
        return 0 if stamp is None else stamp.gone_us


def replaces(key: bytes, mine: Side, theirs: Side, mine_us: int, theirs_us: int) -> bool:
    """Tell whether their state of one row replaces mine, the row's absence included: the later change wins.

    mine_us, theirs_us: when the rows were written, where they are. Who has not changed a row since the fork does not
    speak for it. Where two have and no time is known, a row goes before its absence, and mine before theirs.
    """
    my_row = mine.rows.get(key)
    their_row = theirs.rows.get(key)
    if my_row is None:
        if their_row is None or mine.knows(their_row):
            return False
        return theirs_us >= mine.gone_us(key)
    if their_row is None:
        return theirs.knows(my_row) or theirs.gone_us(key) > mine_us
    if body_of(my_row) == body_of(their_row) or mine.knows(their_row):
        return False  # a merge at their side has written what they had from here, in a version of its own
    return theirs.knows(my_row) or theirs_us > mine_us


def last_shared_counter(view: View | None, lineage: list[int]) -> int:
    """Return the counter of the newest configuration that both sides come from, -1 if that is not known.

    lineage: the epoch in which the branch was made, and those that it comes from.
    """
    if view is None:
        return -1
    # Of a lineage of the log, each side has all configurations up to the one that it names.
    mine = {tag_of(epoch): counter_of(epoch) for epoch in reversed(view.ancestry())}
    found = -1
    for epoch in lineage:
        found = max(found, min(counter_of(epoch), mine.get(tag_of(epoch), -1)))
    return found

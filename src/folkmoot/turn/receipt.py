"""Receipts: a publisher that asks for one learns where its message is durable, and on how many nodes.

A PUBLISH with the user property `folkmoot-receipt` is acknowledged by a PUBACK or PUBREC that names the partitions with
the message, each with its position and the number of copies that had it on their disks at that moment. Owns the notes
from the publication until the acknowledgement, and the properties. Rows of queues, retained messages and streams are
noted, those of bookkeeping are not. A publisher that does not ask costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from folkmoot.kernel.feature import RECEIPTS
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.kind import PUBACK
from folkmoot.mqtt.packet import Ack, Properties
from folkmoot.session.connection import Connection
from folkmoot.store.batch import DELETE, PUT
from folkmoot.store.key import BODY, QUEUE, RETAINED, kind_of, partition_of_key
from folkmoot.store.writer import version_of
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = ["PLACES_MAX", "RECEIPT_PROPERTY", "Evidence", "Place", "Receipt", "Receipts"]

RECEIPT_PROPERTY: Final = "folkmoot-receipt"
REPLICAS_PROPERTY: Final = "folkmoot-replicas"
EPOCH_PROPERTY: Final = "folkmoot-epoch"
PARTITION_PROPERTY: Final = "folkmoot-partition"
SEQUENCE_PROPERTY: Final = "folkmoot-sequence"
MORE_PROPERTY: Final = "folkmoot-more"

PLACES_MAX: Final = 16
"""Partitions that one receipt names; a message can be in all of them."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Evidence(ABC):
    """Knows which changes are on the disks of which nodes."""

    @abstractmethod
    def copies(self, partition: int, sequence: int) -> int:
        """Return how many nodes have a partition up to this sequence on their disks, this one included."""


class _OwnDisk(Evidence):
    """A node alone: an acknowledged message is on its disk."""

    def copies(self, partition: int, sequence: int) -> int:  # noqa: ARG002 - there is one disk
        """Return one."""
        return 1


class Place:
    """The change of a partition that contains the message; copies: 0 = to be counted for the answer.

    epoch: 0 = the partition does not retain the message, because of a quota.
    """

    def __init__(self, partition: int, epoch: int, sequence: int, copies: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.sequence = sequence
        self.copies = copies

    def __repr__(self) -> str:
        return f"Place({self.partition} at {self.epoch}.{self.sequence} copies={self.copies})"


class Receipt:
    """The notes of one message: places by partition; kind, packet_id, code: of the acknowledgement.

    silent: its publisher did not ask, and gets only the code; refused: a quota at another node refuses to retain it.
    partial: another leader goes on with the message, and this node does not learn where it is stored.
    """

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self.silent = False
        self.refused = False
        self.partial = False
        self.kind = PUBACK
        self.packet_id = 0
        self.code = 0

    def __repr__(self) -> str:
        return f"Receipt({list(self.places.values())!r})"


class Receipts:
    """Notes about the current message, and the acknowledgements with them."""

    def __init__(self, state: State, fabric: Fabric) -> None:
        self.state = state
        self.fabric = fabric
        self.evidence: Evidence = _OwnDisk()
        self.current: Receipt | None = None  # of the current message, if its publisher asks for one
        self._first_op = 0

    def may_begin(self, connection: Connection) -> bool:
        """Whether the client may get properties, and all nodes support receipts.

        [MQTT-3.1.2-29] Without Request Problem Information no acknowledgement has user properties.
        """
        return connection.v5 and connection.problem_information and self.fabric.can(RECEIPTS)

    def begin_silent(self) -> Receipt:
        """Start to note whether a message is refused at another node, for a publisher that did not ask."""
        receipt = self.begin()
        receipt.silent = True
        return receipt

    def begin(self) -> Receipt:
        """Start to note where a message is stored, until `end`."""
        receipt = Receipt()
        self.current = receipt
        self._first_op = len(self.state.writer.batch.ops)
        return receipt

    def end(self) -> None:
        """Stop: the current message is stored."""
        receipt = self.current
        self.current = None
        if receipt is None:
            return
        ops = self.state.writer.batch.ops
        for at in range(self._first_op, len(ops)):
            kind, key, _ = ops[at]
            of = kind_of(key)
            if (kind == PUT and (of == QUEUE or of == BODY or of == RETAINED)) or (kind == DELETE and of == RETAINED):
                self._note(receipt, partition_of_key(key))

    def _note(self, receipt: Receipt, partition: int) -> None:
        epoch, sequence = version_of(self.state.writer.version(partition))
        receipt.places[partition] = Place(partition, epoch, sequence, 0)

    def stored(self, partition: int) -> None:
        """Note that the current message is in this turn's change of a partition."""
        if self.current is not None:
            self._note(self.current, partition)

    def refuse(self) -> None:
        """Note that the current message is not retained, because of a quota."""
        if self.current is not None:
            self.current.refused = True

    def note(self, receipt: Receipt, place: Place) -> None:
        """Note what another node has answered for a message."""
        if place.epoch:
            receipt.places[place.partition] = place
        else:
            receipt.refused = True

    def known(self, partition: int) -> None:
        """Note that a partition has had the current message before: at the latest with its newest change."""
        if self.current is not None:
            epoch, sequence = self.state.writer.position(partition)
            self.current.places[partition] = Place(partition, epoch, sequence, 0)

    def count(self, place: Place) -> None:
        """Count the copies of a place that this node leads and that is committed."""
        if not place.copies and place.epoch:
            place.copies = self.evidence.copies(place.partition, place.sequence)

    def packet(self, receipt: Receipt, connection: Connection) -> bytes:
        """Return the acknowledgement with as much of the receipt as the client accepts, fewest copies first.

        [MQTT-3.4.2-3] [MQTT-3.5.2-3] No user property makes the packet larger than the client's maximum.
        """
        code = receipt.code
        if receipt.refused and code < reason.UNSPECIFIED_ERROR:
            code = reason.QUOTA_EXCEEDED
        if receipt.silent or receipt.partial:
            return encode(Ack(receipt.kind, receipt.packet_id, code), 5)
        places = list(receipt.places.values())
        for place in places:
            self.count(place)
        ranked = sorted([(place.copies, place.partition) for place in places])
        named = [receipt.places[partition] for _, partition in ranked[:PLACES_MAX]]
        while True:
            properties = Properties()
            properties.user_properties = _pairs(named, len(places) - len(named))
            data = encode(Ack(receipt.kind, receipt.packet_id, code, properties), 5)
            if len(data) <= connection.packet_bytes_max:
                return data
            if len(named) <= 1:
                return encode(Ack(receipt.kind, receipt.packet_id, code), 5)
            named.pop()


def _pairs(places: list[Place], more: int) -> list[tuple[str, str]]:
    if not places:
        return [(REPLICAS_PROPERTY, "0")]
    pairs: list[tuple[str, str]] = []
    for place in places:
        pairs.append((REPLICAS_PROPERTY, str(place.copies)))
        pairs.append((EPOCH_PROPERTY, str(place.epoch)))
        pairs.append((PARTITION_PROPERTY, str(place.partition)))
        pairs.append((SEQUENCE_PROPERTY, str(place.sequence)))
    if more:
        pairs.append((MORE_PROPERTY, str(more)))
    return pairs

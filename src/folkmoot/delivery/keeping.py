"""Storing a message in the partitions that this node leads: retained, in streams, in queues (A1, A8, A9).

Owns whether a partition accepts a message from its idempotent producer, decided once per message and partition. Never
decides who gets it: that is `publish`, and `outbox_publish` for what belongs to a change of one partition.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.partition.body import Bodies
from folkmoot.partition.mark import Marks
from folkmoot.partition.producer import Producers
from folkmoot.partition.queue import IN_STORE, Queue
from folkmoot.partition.retained import Retained
from folkmoot.session.session import Session
from folkmoot.session.subscription import Recipient
from folkmoot.store.message import Message
from folkmoot.store.record import encode_record
from folkmoot.streams.log import StreamLog
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = ["MATCHED", "REFUSED", "STORED", "Keeping"]

# The result for a message, as flags
MATCHED: Final = 1  # it has a subscriber
STORED: Final = 2  # it is stored, here or elsewhere, and acknowledged later
REFUSED: Final = 4  # by a quota

# Copying a message smaller than this into each queue row is cheaper than looking it up.
_BODY_BYTES_MIN: Final = 128


class Keeping:
    """Stores messages in this turn's changes of partitions."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        forward_sender: ForwardSender,
        bodies: Bodies,
        queue: Queue,
        retained: Retained,
        producers: Producers,
        marks: Marks,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.barrier = forward_sender.barrier
        self.receipts = forward_sender.commits.receipts
        self.bodies = bodies
        self.queue = queue
        self.retained = retained
        self.producers = producers
        self.marks = marks
        # Of the current message: which partitions accept it from its producer (decided once per partition)
        self._taken: dict[int, bool] = {}
        self._late = False

    def begin(self, late: bool = False) -> None:
        """Start a message: no partition has decided yet whether it accepts it from its producer.

        late: another side of a split has acknowledged it (`partition.producer`).
        """
        self._taken.clear()
        self._late = late

    def takes(self, partition: int, producer: bytes, sequence: int) -> bool:
        """Whether a partition accepts the message: always, unless its producer has published it there before."""
        if not producer or not self.state.leads[partition]:
            return True
        taken = self._taken.get(partition)
        if taken is None:
            taken = self.producers.advance(partition, producer, sequence, self._late)
            self._taken[partition] = taken
        return taken

    def retain(self, message: Message, producer: bytes, sequence: int, late: bool = False) -> int:
        """Store a message as the retained one of its topic, whose partition this node leads: STORED or REFUSED.

        late: another side of a split has acknowledged it; what was published later stays.
        """
        if producer and not self.retained.has_room(message):
            self.receipts.refuse()
            return REFUSED  # before its number is marked: the producer will repeat it
        partition = self.state.partition_of(message.topic)
        if not self.takes(partition, producer, sequence) or (late and self.retained.has_later(message)):
            self.receipts.known(partition)
        elif not self.retained.set(message.anew()):  # it may come to a client that has got this one
            self.receipts.refuse()
            return REFUSED
        message.owner = ""  # the rows of queues need not name it
        self.barrier.kept_here(self.state.writer.token)
        return STORED

    def stream(self, logs: list[StreamLog], message: Message, producer: bytes, sequence: int) -> None:
        """Append a message to stream partitions that this node leads."""
        record = encode_record(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.publisher.encode(),
            message.properties,
        )
        for log in logs:
            if self.takes(log.store_partition, producer, sequence):
                log.append(record, self.state.clock.time)
                self.state.counters.stream_records += 1
                self._mark(log.store_partition, message)
                self.receipts.stored(log.store_partition)
            else:
                self.receipts.known(log.store_partition)

    def store(
        self, recipients: list[Recipient], message: Message, publisher: Session | None, producer: bytes, sequence: int
    ) -> int:
        """Queue a message for persistent sessions, sorted by partition: MATCHED and perhaps STORED."""
        result = MATCHED
        count = len(recipients)
        start = 0
        while start < count:
            partition = recipients[start].session.partition
            end = start + 1
            while end < count and recipients[end].session.partition == partition:
                end += 1
            if self.takes(partition, producer, sequence):
                if message.retain:
                    self.retained.came(partition, message.topic)
                self._mark(partition, message)
                if self._store_for(recipients, start, end, message, publisher):
                    result |= STORED
            else:
                result |= STORED  # the first copy may not be on the disk yet
                self.receipts.known(partition)
            start = end
        return result

    def _mark(self, partition: int, message: Message) -> None:
        """Note that a partition has got a message that a branch may have too, whose leader was sent the packet."""
        if message.source and (message.resent or message.asked_again) and not self.fabric.planted.nameless_packets:
            self.marks.note_packet(partition, message.source)

    def _store_for(
        self, recipients: list[Recipient], start: int, end: int, message: Message, publisher: Session | None
    ) -> bool:
        """Queue a message for the sessions of one partition; False when none of them stores it."""
        body = 0
        if end - start > 1 and message.size >= _BODY_BYTES_MIN and message.qos and self.bodies.has_room():
            body = self.bodies.store(recipients[start].session.partition, message)
        stored = False
        for i in range(start, end):
            terms = recipients[i].terms_for(recipients[i].session is publisher)
            if terms is not None and self._store_one(terms, message, body):
                stored = True
        partition = recipients[start].session.partition
        if body and not self.bodies.names(partition, body):
            self.bodies.release(partition, body)
        return stored

    def _store_one(self, terms: Recipient, message: Message, body: int) -> bool:
        session = terms.session
        qos = terms.qos_of(message.qos)
        retain = terms.retain_of(message.retain)
        if qos == 0:
            return self.queue.give_qos0(session, message, retain, terms.identifiers) == IN_STORE
        if not self.queue.append(session, message, qos, retain, terms.identifiers, b"", body):
            return False
        if body:
            self.bodies.hold(session.partition, body)
        return True

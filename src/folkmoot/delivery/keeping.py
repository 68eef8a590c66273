"""Keeping: what partitions that are led here store of a message, retained, in streams and in queues (A1, A8, A9).

Owns whether a partition takes a message from its idempotent producer, asked once per message and partition. Never
decides who gets it: that is `publish`, and `entry` for what goes together with a change of one partition.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.partition.body import Bodies
from folkmoot.partition.producer import Producers
from folkmoot.partition.queue import Queue
from folkmoot.partition.retained import Retained
from folkmoot.session.session import Session
from folkmoot.session.subscription import Recipient
from folkmoot.store.message import Message
from folkmoot.store.origin import AT_HOME
from folkmoot.streams.log import StreamLog
from folkmoot.streams.record import encode_record
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = ["MATCHED", "REFUSED", "STORED", "Keeping"]

# What became of a message, as flags
MATCHED: Final = 1  # somebody gets it
STORED: Final = 2  # it is stored, here or elsewhere, and acknowledged later
REFUSED: Final = 4  # by a quota

# A message smaller than this is cheaper to copy into each queue row than to look up.
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
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.barrier = forward_sender.barrier
        self.receipts = forward_sender.commits.receipts
        self.bodies = bodies
        self.queue = queue
        self.retained = retained
        self.producers = producers
        # Of the message in hand: which partitions take it from its producer (decided once per partition)
        self._taken: dict[int, bool] = {}

    def begin(self) -> None:
        """A message is in hand: no partition has been asked whether it takes it from its producer."""
        self._taken.clear()

    def mark_home(self, message: Message, publisher: Session | None, producer: bytes) -> None:
        """Say of what is stored next that its publisher waits here to be told of it; it sends the message again if not.

        What an idempotent producer sends again counts as known.
        """
        if publisher is not None and not producer and self.fabric.others:
            message.origin = AT_HOME

    def takes(self, partition: int, producer: bytes, sequence: int) -> bool:
        """Whether a partition takes the message: always, unless its producer has published it there before."""
        if not producer or not self.state.leads[partition]:
            return True
        taken = self._taken.get(partition)
        if taken is None:
            taken = self.producers.advance(partition, producer, sequence)
            self._taken[partition] = taken
        return taken

    def retain(self, message: Message, producer: bytes, sequence: int) -> int:
        """Keep a message as the retained one of its topic, whose partition this node leads: STORED or REFUSED."""
        if producer and not self.retained.has_room(message):
            return REFUSED  # before its sequence is taken: the producer will repeat it
        if not self.takes(partition := self.state.partition_of(message.topic), producer, sequence):
            self.receipts.known(partition)
        elif not self.retained.set(message):
            return REFUSED
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
                log.append(record, self.state.now)
                self.state.counters.stream_records += 1
                self.receipts.stored(log.store_partition)
            else:
                self.receipts.known(log.store_partition)

    def store(
        self, recipients: list[Recipient], message: Message, publisher: Session | None, producer: bytes, sequence: int
    ) -> int:
        """Queue a message for persistent sessions, those of a partition side by side: MATCHED and perhaps STORED."""
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
                if self._store_for(recipients, start, end, message, publisher):
                    result |= STORED
            else:
                result |= STORED  # the first copy may still be on its way to the disk
                self.receipts.known(partition)
            start = end
        return result

    def _store_for(
        self, recipients: list[Recipient], start: int, end: int, message: Message, publisher: Session | None
    ) -> bool:
        """Queue a message for the sessions of one partition; False when none of them stores it."""
        body = 0
        if end - start > 1 and message.size >= _BODY_BYTES_MIN and message.qos and self.bodies.has_room():
            body = self.bodies.store(recipients[start].session.partition, message)
        stored = False
        for i in range(start, end):
            wish: Recipient | None = recipients[i]
            session = recipients[i].session
            if session is publisher:
                wish = recipients[i].own  # [MQTT-3.8.3-3]
                if wish is None:
                    continue
            assert wish is not None
            if self._store_one(session, wish, message, body):
                stored = True
        partition = recipients[start].session.partition
        if body and not self.bodies.names(partition, body):
            self.bodies.release(partition, body)
        return stored

    def _store_one(self, session: Session, wish: Recipient, message: Message, body: int) -> bool:
        qos = min(message.qos, wish.qos)  # [MQTT-3.8.4-8]
        retain = message.retain and wish.retain  # [MQTT-3.3.1-12] [MQTT-3.3.1-13]
        if qos == 0:
            if message.asked_again:
                self.state.counters.dropped_qos0_moved += 1  # at most once [MQTT-4.3.1-1]: it may be there already
                return False
            if self.queue.sends_qos0(session):
                self.queue.send_qos0(session, message, retain, wish.identifiers)
                return False
            if not self.state.limits.queue_qos0_offline:
                return False
            return self.queue.append(session, message, 0, retain, wish.identifiers, b"", 0)
        if not self.queue.append(session, message, qos, retain, wish.identifiers, b"", body):
            return False
        if body:
            self.bodies.hold(session.partition, body)
        return True

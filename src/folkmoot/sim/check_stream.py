"""A9: stream offsets are dense and never reused, records never change, and every acknowledged message is there.

Reads every stream partition after each turn up to its readable end, and keeps what it has read.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.mqtt.packet import Publish
from folkmoot.mqtt.property_encode import forward_properties
from folkmoot.sim.fact import Message, SessionRecord
from folkmoot.sim.ledger import Ledger
from folkmoot.store.chunk import decode_chunk
from folkmoot.store.record import Entry, Record
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import Page
from folkmoot.streams.table import Streams
from folkmoot.topics.name import matches

__all__ = ["StreamChecker"]

_READ_BYTES = 65_536


class StreamChecker:
    """The memory of the readers of all stream partitions."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.world = ledger.world
        self.judge = ledger.judge
        self.seen: dict[tuple[str, int], list[Message | None]] = {}  # by offset; None: an empty payload
        self._bytes: dict[tuple[str, int], list[tuple[object, ...]]] = {}
        self._times: dict[tuple[str, int], list[int]] = {}
        self._counts: dict[tuple[str, int], int] = {}  # (stream, message number) -> records
        self._newest: dict[tuple[str, int], int] = {}  # (stream, lane) -> greatest index
        self._trims: dict[str, bool] = {}  # streams whose retention may overtake a replay
        self._ends: dict[str, list[int]] = {}  # of all logs, as each reader saw them last
        self._read_to: dict[tuple[str, str, int], int] = {}  # (reader, stream, partition) -> the next offset
        self.partition_of: dict[tuple[str, bytes], int] = {}

    def read(self, streams: Streams, reader: str) -> None:
        """Read the newly readable records at one node; `reader` names the node's disk."""
        ends = [log.readable_end for stream in streams.streams for log in stream.logs]
        if ends == self._ends.get(reader):
            return
        self._ends[reader] = ends
        for stream in streams.streams:
            self._trims[stream.config.name] = stream.config.retention_bytes > 0
            for log in stream.logs:
                key = (stream.config.name, log.index)
                known = self.seen.setdefault(key, [])
                at = self._read_to.get((reader, *key), 0)
                if log.readable_end > at:
                    try:
                        self._read_on(reader, key, log)
                    except CorruptStore:  # damaged before its first reading: a reader gets an error, and asks again
                        self.world.mark("stream read in vain")
                        self._ends.pop(reader, None)
                elif log.readable_end < len(known) and self.ledger.trouble.alone:
                    self.world.violate("A9", f"{log} ends at {log.readable_end}, {len(known)} records were read before")

    def _read_on(self, reader: str, key: tuple[str, int], log: StreamLog) -> None:
        place = (reader, *key)
        # Records that retention has removed before this reader came were read by another one, or never will be.
        self._read_to[place] = max(self._read_to.get(place, 0), min(log.oldest, len(self.seen[key])))
        while self._read_to[place] < log.readable_end and not self.world.violations:
            start = self._read_to[place]
            page = log.read(start, log.readable_end, _READ_BYTES)
            if not isinstance(page, Page):
                self.world.violate("A9", f"{log}: reading from {start} to {log.readable_end} gives {page}")
                return
            for entry in self._entries(page):
                if entry.offset >= log.readable_end:
                    self.world.violate("A9", f"{log}: record {entry.offset} can be read, the end is {log.readable_end}")
                elif entry.offset == len(self.seen[key]):
                    self._learn(key, entry)
                elif entry.offset >= start:
                    self._compare(key, entry)
                if entry.offset == self._read_to[place]:
                    self._read_to[place] += 1
            if self._read_to[place] == start:
                self.world.violate("A9", f"{log}: {page} has no record {start}")
                return

    def _entries(self, page: Page) -> list[Entry]:
        return [entry for chunk in page.chunks for entry in decode_chunk(chunk)]

    def _learn(self, key: tuple[str, int], entry: Entry) -> None:
        record = entry.record
        times = self._times.setdefault(key, [])
        if times and entry.time_us < times[-1]:
            self.world.violate("A9", f"{key} offset {entry.offset}: time goes back from {times[-1]} to {entry.time_us}")
        times.append(entry.time_us)
        self._bytes.setdefault(key, []).append(_content(record))
        message = self.ledger.by_payload.get(record.payload)
        self.seen[key].append(message)
        if message is None:
            if record.payload or record.topic not in self.ledger.clears:
                self.world.violate("A2", f"{key} offset {entry.offset}: nobody published {record}")
            return
        if message.staged and not message.attempts:
            self.world.violate("A2", f"{key} has {message} of a transaction that nobody has committed")
        self._check_record(key, entry.offset, record, message)
        self._check_count(key, message)
        self._check_order(key, message)
        self.partition_of[(key[0], record.topic)] = key[1]

    def _check_record(self, key: tuple[str, int], offset: int, record: Record, message: Message) -> None:
        properties = forward_properties(message.properties) if message.properties is not None else b""
        same = (
            record.topic == message.topic
            and record.publisher == message.publisher.encode()
            and record.properties == properties
            and record.qos == message.qos
            and record.retain == message.retain
        )
        if not same:
            self.world.violate("A2", f"{key} offset {offset}: {record} is not {message}")
        partition = self.partition_of.get((key[0], record.topic), key[1])
        if partition != key[1]:
            self.world.violate("A9", f"{record.topic!r} is in partitions {partition} and {key[1]} of {key[0]}")

    def _check_count(self, key: tuple[str, int], message: Message) -> None:
        counter = (key[0], message.number)
        count = self._counts.get(counter, 0) + 1
        self._counts[counter] = count
        allowed = 1 if message.once or message.qos == 0 else len(message.attempts)
        excused = self.judge.stored_twice(message)
        if count > allowed and not excused:
            sent = len(message.attempts)
            self.world.violate("A9", f"stream {key[0]} has {message} {count} times, it was sent {sent} times")

    def _check_order(self, key: tuple[str, int], message: Message) -> None:
        lane = message.lane
        if lane is None or self._counts[(key[0], message.number)] > 1:
            return
        place = (key[0], lane.number)
        newest = self._newest.get(place, -1)
        if message.index > newest and message.index > 0:
            self.judge.out_of_order(None, lane.messages[message.index - 1], message)
        if message.index < newest:
            later = lane.messages[newest]
            if self.judge.out_of_order(None, message, later):
                return
            full = self.ledger.was_full(message.first_us, min(message.acked_us, self.world.now))
            if not full or len(message.attempts) == 1:
                self.world.violate("A3", f"stream {key[0]} has {message} after {later}")
        self._newest[place] = max(newest, message.index)

    def reread(self, streams: Streams) -> None:
        """Read all remaining records again and compare."""
        for stream in streams.streams:
            for log in stream.logs:
                key = (stream.config.name, log.index)
                at = log.oldest
                if log.oldest > 0:
                    self.world.mark("stream trimmed")
                while at < log.readable_end and not self.world.violations:
                    page = log.read(at, log.readable_end, _READ_BYTES)
                    assert isinstance(page, Page), "the bounds were just asked for"
                    self.compare(key, page, at)
                    at = page.next_offset

    def compare(self, key: tuple[str, int], page: Page, start: int) -> None:
        """Compare records, read from `start` on, with those that were read there before."""
        for entry in self._entries(page):
            if entry.offset >= start:
                self._compare(key, entry)

    def _compare(self, key: tuple[str, int], entry: Entry) -> None:
        known = self._bytes[key]
        same = entry.offset < len(known) and known[entry.offset] == _content(entry.record)
        if not same or self._times[key][entry.offset] != entry.time_us:
            self.world.violate("A9", f"{key} offset {entry.offset}: reads differ: {entry}")

    def replayed(self, record: SessionRecord, packet: Publish) -> None:
        """A replay subscription got a record, which names its place: the next one, or a permitted repetition.

        QoS 0 overtakes messages that wait to be stored, so the two kinds are ordered separately [MQTT-4.6.0-6].
        """
        names = dict(packet.properties.user_properties) if packet.properties is not None else {}
        key = (record.every[0].name.split(b"/")[1].decode(), int(names.get("folkmoot-partition", "-1")))
        offset = int(names.get("folkmoot-offset", "-1"))
        log = self._bytes.get(key, [])
        if not 0 <= offset < len(log):
            self.world.violate("A9", f"{record} replays {offset} of {key}, which has {len(log)} records: {packet}")
            return
        if log[offset][:2] != (packet.topic, packet.payload):
            self.world.violate("A9", f"{record} replays {packet} as {offset} of {key} instead of {log[offset]}")
        place = (key[0], key[1], packet.qos > 0)
        at = record.replays.get(place, 0)
        before = record.replayed.get(place, 0)  # what the earlier session has received may come again, or not
        if offset >= at:
            for missed in range(max(at, before), offset):
                if packet.qos and not self._trims.get(key[0]) and not self._may_miss(key, missed):
                    self.world.violate("A9", f"{record} replays {offset} of {key} and never {missed}: {log[missed]}")
            record.replays[place] = offset + 1
            if packet.qos == 0:
                record.replayed_us[key[0], key[1], offset] = self.world.now
        elif offset < before:
            self.world.mark("replay joined")
        elif self.judge.replayed_elsewhere(record):
            self.world.mark("replayed on both sides")
        elif packet.qos == 0 and self.judge.repeats_replay(self._replayed_us(record, key, offset)):
            self.world.mark("a QoS 0 record again")
        elif packet.qos != 1 or not packet.dup:
            self.world.violate("A9", f"{record} replays {offset} of {key} again, the next is {at}: {packet}")

    def _replayed_us(self, record: SessionRecord, key: tuple[str, int], offset: int) -> int:
        """Return when a QoS 0 record of a replay came first; if it never has, the next one; NEVER for none."""
        if (*key, offset) in record.replayed_us:
            return record.replayed_us[(*key, offset)]
        times = record.replayed_us.items()
        return min([at for (name, part, place), at in times if (name, part) == key and place >= offset], default=NEVER)

    def _may_miss(self, key: tuple[str, int], offset: int) -> bool:
        flags = self._bytes[key][offset][2]
        assert isinstance(flags, int), "see _content"
        return flags & 3 == 0  # QoS 0 records are sent once, and in their own order

    def finish(self, nodes: list[Streams]) -> None:
        """After all faults: every acknowledged message of a stream's topics is in it, and replays are complete."""
        for streams in nodes:
            self.reread(streams)
        for key, known in self.seen.items():
            ends = [log.readable_end for streams in nodes for log in self._logs(streams, key)]
            if known and max(ends) < len(known):
                self.world.violate("A9", f"{key} ends at {max(ends)}, {len(known)} records were read before")
        for stream in nodes[0].streams:
            name = stream.config.name
            for message in self.ledger.messages:
                if message.acked and message.payload and matches(stream.config.filter, message.topic):
                    if (name, message.number) not in self._counts:
                        self.world.violate("A9", f"stream {name} lacks {message}, which was acknowledged")
        for record in self.ledger.records:
            if record.replayer and record.subs and not record.ended and record.persistent:
                self._finish_replay(record)

    def _logs(self, streams: Streams, key: tuple[str, int]) -> list[StreamLog]:
        return [log for stream in streams.streams if stream.config.name == key[0] for log in stream.logs[key[1] :][:1]]

    def _finish_replay(self, record: SessionRecord) -> None:
        for sub in record.every:
            if not sub.sure(self.world.now) or sub.granted == 0:
                continue
            name = sub.name.split(b"/")[1].decode()
            for key, log in self.seen.items():
                if key[0] != name or self._trims[name]:
                    continue
                place = (key[0], key[1], True)
                for offset in range(max(record.replays.get(place, 0), record.replayed.get(place, 0)), len(log)):
                    if not self._may_miss(key, offset):
                        self.world.violate("A9", f"{record} has not replayed {offset} of {key}: {log[offset]}")


def _content(record: Record) -> tuple[object, ...]:
    return (record.topic, record.payload, record.flags, record.publisher, record.properties)

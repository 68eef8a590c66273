"""Keys of rows: partition (2 bytes), kind (1 byte), then the parts; all but the last are prefixed with their length.

META          kind
SESSION       client id
SUBSCRIPTION  client id, filter
QUEUE         client id, queue sequence (8 bytes)       one row per waiting or unacknowledged message of a session
BODY          body sequence (8 bytes)                   a message that several sessions of the partition wait for
RELEASED      client id, queue sequence (8 bytes)       outbound QoS 2: PUBREC received, or expired; PUBCOMP not yet
RECEIVED      client id, packet id (2 bytes)            inbound QoS 2: PUBREC due or sent, PUBREL not received yet
RETAINED      topic
WILL          client id                                 or `left_name`: the will of an abandoned connection
PRODUCER      producer id                               0xFF, hash of its owner (16 bytes), name; before: the name
CHUNK         stream name, stream partition (2 bytes), first offset (8 bytes)
STREAM        stream name, stream partition (2 bytes)   bounds of the stream partition
CURSOR        client id, filter                         position of a feed: a retained scan or a replay
SENT          client id                                 which sequences of its queue may have been sent, or given out
MARK          origin: node id, or 0 and "p", partition  newest request of the origin that the partition has applied
              0 and "t", app                            the same, and when it was applied
              name of a packet of two leaders           when its message came to the partition
OUTBOX        sequence (8 bytes), lineage (4 bytes)     a message that other partitions must get exactly once
STAMP         kind and rest of another key              when that row was written or removed while nodes were away
MERGED        epoch, sequence (8 bytes each)            a branch of a split that was merged into the partition
LEFTOVER      as CHUNK, before the offset an epoch and  records of another branch, to be appended again, behind
              whether it is of the trunk                their origin (`store.absorbed`); or, behind all offsets, the
                                                        bounds of its log
ABSORBED      as CHUNK                                  records that were appended again or put back, their origin
TRANSACTION   app                                       its last committed transaction, and how far all are published
COMMITTED     app, number (8 bytes)                     the parts of a transaction that is not completely published
STAGED        app, number, part, chunk (4 bytes)        size and time of a staged chunk
PACKETS       as STAGED                                 the messages of the chunk
HISTORY                                                 the epochs in which the partition was changed

META rows are stored under partition 0 but belong to the node: they are never sent to another node. All other kinds are
data of the partition.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u16, get_u32, get_u64, u16, u32, u64

__all__ = [
    "ABSORBED",
    "BODY",
    "CHUNK",
    "COMMITTED",
    "CURSOR",
    "HISTORY",
    "LEFTOVER",
    "MARK",
    "MERGED",
    "META",
    "OUTBOX",
    "PACKETS",
    "PRODUCER",
    "QUEUE",
    "RECEIVED",
    "RELEASED",
    "RETAINED",
    "SENT",
    "SESSION",
    "STAGED",
    "STAMP",
    "STREAM",
    "SUBSCRIPTION",
    "TRANSACTION",
    "WILL",
    "applied_key",
    "body_key",
    "bounds_key",
    "chunk_key",
    "client_of_left",
    "end_of",
    "epoch_of_leftover",
    "is_bounds",
    "is_left",
    "is_of_trunk",
    "kind_of",
    "history_key",
    "kind_prefix",
    "left_name",
    "leftover_key",
    "log_of_chunk",
    "log_of_leftover",
    "log_of_stream",
    "name_of",
    "name_prefix",
    "numbered_key",
    "of_no_trunk",
    "outbox_key",
    "outline_key",
    "plain_key",
    "partition_end",
    "partition_of_key",
    "partition_start",
    "plain_name_of",
    "position_key",
    "sequence_of",
    "split_outbox_key",
    "stamp_key",
    "stamped_key_of",
]

META: Final = 0
SESSION: Final = 1
SUBSCRIPTION: Final = 2
QUEUE: Final = 3
BODY: Final = 4
RELEASED: Final = 5
RECEIVED: Final = 6
RETAINED: Final = 7
WILL: Final = 8
PRODUCER: Final = 9
CHUNK: Final = 10
STREAM: Final = 11
CURSOR: Final = 12
SENT: Final = 13
MARK: Final = 16
OUTBOX: Final = 17
STAMP: Final = 18
MERGED: Final = 19
LEFTOVER: Final = 20
TRANSACTION: Final = 21
COMMITTED: Final = 22
STAGED: Final = 23
PACKETS: Final = 24
ABSORBED: Final = 25
HISTORY: Final = 14

_OF_TRUNK: Final = 1 << 63  # in the epoch of a LEFTOVER row
_BOUNDS: Final = b"\xff" * 8  # instead of the offset of a chunk


def kind_prefix(partition: int, kind: int) -> bytes:
    """Return the prefix of all rows of one kind in one partition."""
    return u16(partition) + bytes([kind])


def kind_of(key: bytes) -> int:
    """Return the kind of the row at `key`."""
    return key[2]


def partition_of_key(key: bytes) -> int:
    """Return the partition of the row at `key`."""
    return key[0] << 8 | key[1]


def partition_start(partition: int) -> bytes:
    """Return a key at or before all data of a partition, and behind the META rows of the node."""
    return u16(partition) + bytes([META + 1])


def partition_end(partition: int) -> bytes:
    """Return the smallest key behind all data of a partition."""
    return u16(partition) + b"\xff"


def history_key(partition: int) -> bytes:
    """Return the key of a partition's history."""
    return u16(partition) + bytes([HISTORY])


def position_key(slot: int) -> bytes:
    """Return the key of a row with positions of partitions, see `folkmoot.store.position`; `slot` is 0 to 255."""
    return u16(0) + bytes([META]) + b"position" + bytes([slot])


def outline_key() -> bytes:
    """Return the key of the row that says which operations of a batch are changes, see `folkmoot.store.outline`."""
    return u16(0) + bytes([META]) + b"outline"


def applied_key() -> bytes:
    """Return the key of the row that says up to which position of the commit log the rows are applied."""
    return u16(0) + bytes([META]) + b"applied"


def left_name(client_id: bytes, token: int) -> bytes:
    """Return the name for the row of a will that is due although its client is connected elsewhere.

    token: of the connection with that will. No client id contains a zero byte [MQTT-1.5.4-2].
    """
    return b"%s\0%x" % (client_id, token)


def is_left(name: bytes) -> bool:
    """Whether a name was made by `left_name`."""
    return b"\0" in name


def client_of_left(name: bytes) -> bytes:
    """Return the client id in a name made by `left_name`."""
    return name[: name.index(b"\0")]


def plain_key(partition: int, kind: int, name: bytes) -> bytes:
    """Return the key of a row whose only part is a name (session, retained, will, producer, sent).

    A prefix of the name is a prefix of the key, so that a scan finds all names with a common prefix.
    """
    return u16(partition) + bytes([kind]) + name


def plain_name_of(key: bytes) -> bytes:
    """Return the name in a key made by `plain_key`."""
    return key[3:]


def name_prefix(partition: int, kind: int, name: bytes) -> bytes:
    """Return the prefix of all rows of one kind that belong to `name`: a client id or a stream, at most 65535 bytes."""
    return u16(partition) + bytes([kind]) + u16(len(name)) + name


def name_of(key: bytes) -> bytes:
    """Return the name in a key that starts with `name_prefix`."""
    return key[5 : 5 + get_u16(key, 3)]


def numbered_key(prefix: bytes, sequence: int) -> bytes:
    """Return the key of the row `sequence` behind `prefix`; rows sort by sequence."""
    return prefix + u64(sequence)


def sequence_of(key: bytes) -> int:
    """Return the sequence at the end of a key made by `numbered_key`, `body_key` or `chunk_key`."""
    return get_u64(key, len(key) - 8)


def outbox_key(partition: int, sequence: int, lineage: int) -> bytes:
    """Return the key of an outbox entry; lineage: the tag of the one in which it got its number."""
    return u16(partition) + bytes([OUTBOX]) + u64(sequence) + u32(lineage)


def split_outbox_key(key: bytes) -> tuple[int, int]:
    """Return the sequence and the lineage in a key made by `outbox_key`."""
    return get_u64(key, 3), get_u32(key, 11)


def body_key(partition: int, sequence: int) -> bytes:
    """Return the key of a message body that several sessions share."""
    return u16(partition) + bytes([BODY]) + u64(sequence)


def chunk_key(partition: int, stream: bytes, stream_partition: int, first_offset: int) -> bytes:
    """Return the key of the chunk of a stream partition that starts at `first_offset`."""
    return name_prefix(partition, CHUNK, stream) + u16(stream_partition) + u64(first_offset)


def log_of_chunk(key: bytes) -> bytes:
    """Return what names the stream log in a key made by `chunk_key`: the same at all copies of the partition."""
    return key[3 : len(key) - 8]


def log_of_stream(key: bytes) -> bytes:
    """Return what `log_of_chunk` returns for the chunks of the log with a STREAM row."""
    return key[3:]


def leftover_key(key: bytes, epoch: int, of_trunk: bool) -> bytes:
    """Return the key under which the chunk of another branch waits; of_trunk: its offsets were given out."""
    assert epoch < _OF_TRUNK, "an epoch leaves a bit"
    cut = len(key) - 8
    return key[:2] + bytes([LEFTOVER]) + key[3:cut] + u64(epoch | (_OF_TRUNK if of_trunk else 0)) + key[cut:]


def bounds_key(key: bytes, epoch: int) -> bytes:
    """Return the key under which the bounds of another branch's log wait, behind its chunks; key: of its STREAM row."""
    return key[:2] + bytes([LEFTOVER]) + key[3:] + u64(epoch) + _BOUNDS


def is_bounds(key: bytes) -> bool:
    """Tell whether a LEFTOVER row has the bounds of a log, and no chunk."""
    return key.endswith(_BOUNDS)


def log_of_leftover(key: bytes) -> bytes:
    """Return what `log_of_chunk` returns for the chunk in a LEFTOVER row."""
    return key[3 : len(key) - 16]


def epoch_of_leftover(key: bytes) -> int:
    """Return the epoch of the branch that has brought a LEFTOVER row."""
    return get_u64(key, len(key) - 16) & ~_OF_TRUNK


def is_of_trunk(key: bytes) -> bool:
    """Tell whether the offsets of a LEFTOVER row were given out."""
    return get_u64(key, len(key) - 16) >= _OF_TRUNK


def of_no_trunk(key: bytes) -> bytes:
    """Return the key of a LEFTOVER row whose offsets, as it turns out, were not given out."""
    cut = len(key) - 16
    return key[:cut] + u64(get_u64(key, cut) & ~_OF_TRUNK) + key[cut + 8 :]


def stamp_key(key: bytes) -> bytes:
    """Return the key of the stamp of the row at `key`."""
    return key[:2] + bytes([STAMP]) + key[2:]


def stamped_key_of(key: bytes) -> bytes:
    """Return the key of the row whose stamp is at `key`."""
    return key[:2] + key[3:]


def end_of(prefix: bytes) -> bytes:
    """Return the smallest key greater than all keys that start with `prefix`; the prefix holds a byte below 255."""
    cut = len(prefix)
    while prefix[cut - 1] == 0xFF:
        cut -= 1
    return prefix[: cut - 1] + bytes([prefix[cut - 1] + 1])

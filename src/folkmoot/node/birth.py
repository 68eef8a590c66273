"""The row that identifies a store: format, node id, number of partitions, disk, and the number of starts.

The *disk* is the identity of the data folder, drawn when the folder is made. It is the id of the member in the
configuration log, so it must not be taken for another one: the row has a checksum of its own. Rows of version 0.1 have
no disk. A node alone gets one at its next start; the copies of a cluster of that version are refused.

A folder that was set back gets another disk, and remembers the *former* one until a process has come up with the new
one: what the cluster has lost with the former disk is, as far as anybody has it, in this folder.
"""

from __future__ import annotations

import hashlib
from typing import Final
from zlib import crc32

from folkmoot.kernel.errors import CorruptStore, StoreError
from folkmoot.kernel.pack import get_u16, get_u32, get_u64, u16, u32, u64
from folkmoot.membership.cluster_member import ID_MAX
from folkmoot.node.config import NodeConfig
from folkmoot.store.key import META, plain_key
from folkmoot.store.position import read_positions
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, Writer

__all__ = ["Birth", "read_birth", "write_birth"]

_FORMAT: Final = 2
_FORMAT_WITHOUT_DISK: Final = 1
_HEAD_BYTES: Final = 5  # format, checksum of the rest
_INCARNATION_MAX: Final = 1 << 62  # no node has started that often
_FIRST_MASK: Final = (1 << 40) - 1
_SEED_MASK: Final = (1 << 64) - 1
_KEY: Final = plain_key(0, META, b"birth")


class Birth:
    """What does not change while a node runs: its disk, and its incarnation, the number of this start."""

    def __init__(self, incarnation: int, disk: int, former: int = 0) -> None:
        assert 0 < disk <= ID_MAX, "the identity of a disk is positive and has 62 bits"
        self.incarnation = incarnation
        self.disk = disk
        self.former = former  # the disk that this folder was before it was set back; 0: none, or that is over

    def renew(self, seed: int, config: NodeConfig) -> None:
        """Draw another disk for a folder that was set back: nobody may rely on what the old one has confirmed.

        A disk that has not come up since it was drawn was in sync with nothing: the former one stays that before it.
        The rows of the partitions stay. `write_birth` and `log_rows.drop_lineages` belong in one batch after it, which
        is durable before the node speaks under the new identity.
        """
        before = self.disk
        self.former = self.former or before
        self.disk = _drawn_disk(seed, before, config.node_id)
        assert self.disk != before, "another disk has another identity"


def _drawn_disk(seed: int, before: int, node_id: str) -> int:
    """Return an identity that tells nothing of the seed, which others must not learn; another one than `before`.

    The name of the node is in it, so that nodes with one seed, as tests have them, are different members.
    """
    source = u64(seed & _SEED_MASK) + u64(before) + node_id.encode()
    drawn = hashlib.blake2b(source, digest_size=8, person=b"disk").digest()
    disk = 1 + get_u64(drawn, 0) % (ID_MAX - 1)
    return disk if disk < before or before == 0 else disk + 1


def read_birth(reader: Reader, config: NodeConfig, seed: int) -> Birth:
    """Return the birth of this start; raises StoreError if the store is of another node or has other partitions.

    A node alone counts from 1. In a cluster the first number is random: a node that lost its disk and keeps its id must
    not be taken for the former one, and others recognise another disk by it (`Member.continues`).
    """
    value = reader.get(_KEY)
    if value is None:
        return Birth(1 if config.cluster is None else 1 + (seed & _FIRST_MASK), _drawn_disk(seed, 0, config.node_id))
    was_in_cluster = read_positions(reader, config.partitions).found
    if config.cluster is None and was_in_cluster:
        raise StoreError(
            "the store has been part of a cluster, which a node without peers knows nothing of: start it with --peer "
            "HOST:PORT (cluster.listen); it serves alone as long as no other node is there"
        )
    body = value[VERSION_BYTES:]
    at = 1
    if len(body) >= 12 and body[0] == _FORMAT_WITHOUT_DISK:
        if was_in_cluster:
            raise StoreError(
                "the store was part of a cluster of version 0.1, which this version does not take over: start it with "
                "that version, or begin with an empty data directory"
            )
        disk = _drawn_disk(seed, 0, config.node_id)
        former = 0
    else:
        body = _checked(body)
        disk = get_u64(body, 0)
        former = get_u64(body, 8)
        at = 16
    partitions = get_u16(body, at) or 65_536
    incarnation = get_u64(body, at + 2)
    try:
        node_id = body[at + 10 :].decode()
    except UnicodeDecodeError:
        raise CorruptStore("the row with the node's id is damaged: the id is not UTF-8") from None
    if not 0 < incarnation < _INCARNATION_MAX:
        raise CorruptStore(f"the row with the node's id is damaged: it tells of {incarnation} starts")
    if partitions != config.partitions:
        raise StoreError(
            f"the store was made with {partitions} partitions and the configuration says {config.partitions}: "
            f"set node.partitions = {partitions}, or start with an empty data directory"
        )
    if node_id != config.node_id:
        raise StoreError(
            f"the store belongs to node {node_id!r} and this is {config.node_id!r}: "
            f"set node.id = {node_id!r}, or start with another data directory"
        )
    return Birth(incarnation + 1, disk, former)


def _checked(body: bytes) -> bytes:
    """Return what is behind the checksum; raises CorruptStore."""
    if len(body) < _HEAD_BYTES + 27 or body[0] != _FORMAT:
        found = body[0] if body else "nothing"
        raise CorruptStore(f"the store has format {found}, this version reads format {_FORMAT}")
    rest = body[_HEAD_BYTES:]
    if get_u32(body, 1) != crc32(rest) or not 0 < get_u64(rest, 0) <= ID_MAX:
        raise CorruptStore("the row with the node's id is damaged: its checksum does not fit")
    return rest


def write_birth(writer: Writer, birth: Birth, config: NodeConfig) -> None:
    """Put the row of this start into the batch of this turn: the first one, and whenever the disk has changed."""
    rest = u64(birth.disk) + u64(birth.former) + u16(config.partitions & 0xFFFF) + u64(birth.incarnation)
    rest += config.node_id.encode()
    writer.private(_KEY, bytes([_FORMAT]) + u32(crc32(rest)) + rest)

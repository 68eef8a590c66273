"""The row that identifies a store: format, node id, number of partitions, and the number of starts."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore, StoreError
from folkmoot.kernel.pack import get_u16, get_u64, u16, u64
from folkmoot.node.config import NodeConfig
from folkmoot.store.key import META, plain_key
from folkmoot.store.position import read_positions
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, Writer

__all__ = ["Birth", "read_birth", "write_birth"]

_FORMAT: Final = 1
_INCARNATION_MAX: Final = 1 << 62  # no node has started that often
_FIRST_MASK: Final = (1 << 40) - 1
_KEY: Final = plain_key(0, META, b"birth")


class Birth:
    """What does not change while a node runs: its incarnation, the number of this start."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation


def read_birth(reader: Reader, config: NodeConfig, seed: int) -> Birth:
    """Return the birth of this start; raises StoreError if the store is of another node or has other partitions.

    A node alone counts from 1. In a cluster the first number is random: a node that lost its disk and keeps its id must
    not be taken for the former one, and others recognise another disk by it (`Member.continues`).
    """
    value = reader.get(_KEY)
    if value is None:
        return Birth(1 if config.cluster is None else 1 + (seed & _FIRST_MASK))
    if config.cluster is None and read_positions(reader, config.partitions).found:
        raise StoreError(
            "the store has been part of a cluster, which a node without peers knows nothing of: start it with --peer "
            "HOST:PORT (cluster.listen); it serves alone as long as no other node is there"
        )
    body = value[VERSION_BYTES:]
    if len(body) < 12 or body[0] != _FORMAT:
        found = body[0] if body else "nothing"
        raise CorruptStore(f"the store has format {found}, this version reads format {_FORMAT}")
    partitions = get_u16(body, 1) or 65_536
    incarnation = get_u64(body, 3)
    try:
        node_id = body[11:].decode()
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
    return Birth(incarnation + 1)


def write_birth(writer: Writer, birth: Birth, config: NodeConfig) -> None:
    """Put the row of this start into the first batch."""
    body = bytes([_FORMAT]) + u16(config.partitions & 0xFFFF) + u64(birth.incarnation) + config.node_id.encode()
    writer.private(_KEY, body)

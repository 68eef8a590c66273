"""A configuration as bytes, for snapshots of the log: equal configurations have equal bytes."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint
from folkmoot.membership.cluster_member import ClusterMember, put_member, take_id, take_member
from folkmoot.membership.cluster_settings import take_settings
from folkmoot.membership.command import COPIES_MAX, MEMBERS_MAX, PARTITIONS_MAX, REPLICAS_MAX
from folkmoot.membership.configuration import ANCESTORS_MAX, REMOVALS_MAX, ClusterConfiguration, Removal
from folkmoot.membership.partition_state import PartitionState
from folkmoot.peer.cursor import Cursor, put_text

__all__ = ["decode_configuration", "encode_configuration", "encode_removals", "take_removals"]

_FORMAT: Final = 1
_PRUNED: Final = 2  # with the floor of ancestors that were forgotten
_RECOVERING: Final = 3  # with that, which may be 0, and with partitions that recover
_FORMATS: Final = (_FORMAT, _PRUNED, _RECOVERING)


def encode_configuration(configuration: ClusterConfiguration) -> bytes:
    """Return a configuration as bytes."""
    disks = configuration.disks()
    row: dict[int, int] = {disk: number for number, disk in enumerate(disks)}
    form = _PRUNED if configuration.floor else _FORMAT
    if configuration.recovering:
        form = _RECOVERING
    parts = [BYTE[form], varint(configuration.index), varint(configuration.cluster), varint(configuration.lineage)]
    parts += [varint(configuration.base), varint(configuration.changed)]
    parts += [varint(configuration.parent), varint(configuration.parent_index)]
    parts.append(varint(len(configuration.ancestors)))
    parts.extend([varint(lineage) + varint(counter) for lineage, counter in configuration.ancestors])
    if form != _FORMAT:
        parts.append(varint(configuration.floor))
    parts += [varint(configuration.trunk), varint(configuration.strength)]
    parts += [varint(configuration.copies), varint(configuration.features)]
    parts.append(varint(len(disks)))
    parts.extend([put_member(configuration.members[disk]) for disk in disks])
    parts.append(varint(len(configuration.partitions)))
    parts.extend([_put_partition(state, row) for state in configuration.partitions])
    parts.append(varint(len(configuration.lost)))
    for number in sorted(configuration.lost):
        parts.append(varint(number) + varint(configuration.lost[number]))
    parts.append(varint(len(configuration.branches)))
    for number in sorted(configuration.branches):
        replicas = configuration.partitions[number].replicas
        parts.append(varint(number) + varint(_bits(replicas, configuration.branches[number])))
    parts.append(varint(len(configuration.damaged)))
    parts.extend([varint(number) for number in sorted(configuration.damaged)])
    if form == _RECOVERING:
        parts.append(varint(len(configuration.recovering)))
        parts.extend([varint(number) for number in sorted(configuration.recovering)])
    parts.append(encode_removals(configuration.removed))
    parts.append(configuration.settings.encoded())
    return b"".join(parts)


def encode_removals(removed: list[Removal]) -> bytes:
    """Return disks that were members."""
    parts = [varint(len(removed))]
    for removal in removed:
        head = varint(removal.disk) + put_text(removal.node_id) + varint(removal.incarnation)
        parts.append(head + varint(removal.index) + BYTE[removal.why])
    return b"".join(parts)


def take_removals(cursor: Cursor) -> list[Removal]:
    """Read disks that were members; raises ValueError."""
    removed: list[Removal] = []
    for _ in range(cursor.count(REMOVALS_MAX)):
        disk = take_id(cursor, 1, "identity of a disk")
        node_id = cursor.text()
        incarnation = take_id(cursor, 1, "incarnation")
        index = take_id(cursor, 1, "index")
        removed.append(Removal(disk, node_id, incarnation, index, cursor.byte()))
    return removed


def _put_partition(state: PartitionState, row: dict[int, int]) -> bytes:
    """Return a partition: its replicas as rows of the list of members, those in sync as bits of the replicas."""
    parts = [varint(len(state.replicas))]
    parts.extend([varint(row[disk]) for disk in state.replicas])
    bits = _bits(state.replicas, state.isr)
    leader = state.replicas.index(state.leader) + 1 if state.leader else 0
    parts += [varint(bits), varint(leader), varint(state.leader_epoch), varint(state.version)]
    return b"".join(parts)


def _bits(replicas: list[int], some: list[int]) -> int:
    """Return some of the replicas as bits."""
    bits = 0
    for at, disk in enumerate(replicas):
        if disk in some:
            bits |= 1 << at
    return bits


def _of_bits(replicas: list[int], bits: int) -> list[int]:
    """Return the replicas that bits stand for; raises ValueError."""
    if bits >> len(replicas):
        raise ValueError("a partition has more replicas in sync, or branches, than replicas")
    return [disk for at, disk in enumerate(replicas) if bits >> at & 1]


def decode_configuration(data: bytes) -> ClusterConfiguration:
    """Return the configuration in `data`; raises ValueError."""
    cursor = Cursor(data, "a configuration")
    found = cursor.byte()
    if found not in _FORMATS:
        raise ValueError(f"a configuration has format {found}, this build reads formats {_FORMAT} to {_FORMATS[-1]}")
    configuration = _take(cursor, found)
    if not cursor.done():
        raise ValueError("a configuration goes on behind its end")
    if encode_configuration(configuration) != data:
        raise ValueError("a configuration has another encoding than its own")
    try:
        configuration.check()
    except AssertionError as fault:
        raise ValueError(f"a configuration breaks a rule: {fault}") from None
    return configuration


def _take(cursor: Cursor, form: int) -> ClusterConfiguration:
    configuration = ClusterConfiguration()
    configuration.index = take_id(cursor, 0, "index")
    configuration.cluster = take_id(cursor, 0, "identity of a cluster")
    configuration.lineage = take_id(cursor, 0, "lineage")
    configuration.base = take_id(cursor, 0, "counter")
    configuration.changed = take_id(cursor, 0, "counter")
    configuration.parent = take_id(cursor, 0, "lineage")
    configuration.parent_index = take_id(cursor, 0, "index")
    for _ in range(cursor.count(ANCESTORS_MAX)):
        lineage = take_id(cursor, 1, "lineage")
        configuration.ancestors.append((lineage, take_id(cursor, 1, "counter")))
    if form != _FORMAT:
        configuration.floor = take_id(cursor, 1 if form == _PRUNED else 0, "counter")
    configuration.trunk = take_id(cursor, 0, "lineage")
    configuration.strength = cursor.integer()
    configuration.copies = cursor.integer()
    configuration.features = take_id(cursor, 0, "set of features")
    if configuration.copies > COPIES_MAX or (configuration.copies > 0) != configuration.is_founded():
        raise ValueError(f"a configuration has {configuration.copies} copies")
    members: list[ClusterMember] = []
    for _ in range(cursor.count(MEMBERS_MAX)):
        member = take_member(cursor)
        members.append(member)
        configuration.members[member.disk] = member
    for _ in range(cursor.count(PARTITIONS_MAX)):
        configuration.partitions.append(_take_partition(cursor, members))
    for _ in range(cursor.count(PARTITIONS_MAX)):
        number = cursor.integer()
        configuration.lost[number] = take_id(cursor, 1, "index")
    for _ in range(cursor.count(PARTITIONS_MAX)):
        number = cursor.integer()
        if number >= len(configuration.partitions):
            raise ValueError(f"there is no partition {number} that has branches")
        configuration.branches[number] = _of_bits(configuration.partitions[number].replicas, cursor.integer())
    for _ in range(cursor.count(PARTITIONS_MAX)):
        number = cursor.integer()
        if number >= len(configuration.partitions) or len(configuration.partitions[number].isr) != 1:
            raise ValueError(f"there is no partition {number} whose last copy in sync is damaged")
        configuration.damaged[number] = configuration.partitions[number].isr[0]
    if form == _RECOVERING:
        for _ in range(cursor.count(PARTITIONS_MAX)):
            configuration.recovering[cursor.integer()] = True
    configuration.removed = take_removals(cursor)
    configuration.settings = take_settings(cursor)
    return configuration


def _take_partition(cursor: Cursor, members: list[ClusterMember]) -> PartitionState:
    replicas: list[int] = []
    for _ in range(cursor.count(REPLICAS_MAX)):
        row = cursor.integer()
        if row >= len(members) or members[row].disk in replicas:
            raise ValueError("a partition is kept by no member, or twice by one")
        replicas.append(members[row].disk)
    isr = _of_bits(replicas, cursor.integer())
    leader = cursor.integer()
    epoch = take_id(cursor, 0, "leader epoch")
    version = take_id(cursor, 0, "version")
    if leader > len(replicas) or (leader and (replicas[leader - 1] not in isr or epoch == 0)):
        raise ValueError("a partition is led by a member that is not in sync")
    return PartitionState(replicas, isr, replicas[leader - 1] if leader else 0, epoch, version)

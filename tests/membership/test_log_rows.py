"""The rows of configuration logs: what was written is read, and what is damaged is refused and never guessed."""

from __future__ import annotations

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.rng import Rng
from folkmoot.membership.configuration import Removal
from folkmoot.membership.log_rows import (
    CHUNK_BYTES,
    CurrentLineage,
    drop_lineage,
    drop_lineages,
    put_current,
    put_founding,
    put_removals,
    put_write,
    read_current,
    read_lineage,
    read_removals,
)
from folkmoot.raft.configuration import Configuration
from folkmoot.raft.entry import (
    DATA,
    Entry,
    HardState,
    Snapshot,
    encode_entry,
    encode_hard_state,
    encode_snapshot,
    founding,
)
from folkmoot.raft.error import DamagedState
from folkmoot.raft.option import Options
from folkmoot.raft.raft import Raft
from folkmoot.raft.ready import Write
from folkmoot.raft.recovery import Persisted
from folkmoot.store.batch import PUT, Batch
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import VERSION_BYTES, Writer
from tests.raft.explore import Explorer
from tests.raft.world import Node

LINEAGE = 255  # its key ends with the byte that has no successor


def said(persisted: Persisted) -> bytes:
    """Everything of a state, as bytes."""
    parts = [encode_hard_state(persisted.hard_state) if persisted.hard_state.term else b"-"]
    parts.append(encode_snapshot(persisted.snapshot) if persisted.snapshot.index else b"-")
    return b"|".join([*parts, *[encode_entry(entry) for entry in persisted.entries]])


def applied(store: MemoryStore, writer: Writer) -> None:
    """Write the batch of a turn."""
    batch = writer.take()
    if batch is not None:
        store.apply(batch)


def state_of(disk: object) -> Persisted:
    """The state of a disk of the model."""
    return Persisted(disk.hard_state, disk.snapshot, disk.entries)  # type: ignore[attr-defined]


class Mirror:
    """A member of Raft's model whose writes go to a store too; remembers each batch and the states around it."""

    def __init__(self, node: Node, lineage: int) -> None:
        self.node = node
        self.lineage = lineage
        self.store = MemoryStore()
        self.writer = Writer(4, 1)
        self.steps: list[tuple[MemoryStore, Batch, bytes, bytes]] = []
        self.length = 0
        if node.disk.snapshot.index:
            put_founding(self.writer, lineage, state_of(node.disk))
            applied(self.store, self.writer)
        complete = node.disk.complete

        def completed() -> int:
            write = node.disk.queue[0]
            before = said(state_of(node.disk))
            token = complete()
            put_write(self.writer, self.lineage, write)
            batch = self.writer.take()
            assert batch is not None
            self.steps.append((self.store.copy(), batch, before, said(state_of(node.disk))))
            self.store.apply(batch)
            return token

        node.disk.complete = completed  # type: ignore[method-assign]


def mirrors(seed: int) -> list[Mirror]:
    """Runs of the model of Raft, without crashes: they would lose writes of the model alone."""
    explorer = Explorer(seed, [])
    explorer.weights[9] = 0
    explorer.total = sum(explorer.weights)
    found = [Mirror(node, LINEAGE) for node in explorer.nodes]
    explorer.run(8)
    return found


def is_refused(store: MemoryStore, me: int) -> bool:
    """Tell whether a member would not start from the rows."""
    try:
        persisted = read_lineage(store, LINEAGE)
        Raft(me, Options(), persisted, 0, 1, 0, [])
    except CorruptStore:
        return True
    return False


def test_what_was_written_is_read() -> None:
    batches = 0
    snapshots = 0
    for seed in range(40):
        for mirror in mirrors(seed):
            assert said(read_lineage(mirror.store, LINEAGE)) == said(state_of(mirror.node.disk))
            batches += len(mirror.steps)
            snapshots += mirror.node.disk.snapshot.index > 1
            for before, _batch, old, _new in mirror.steps:
                assert said(read_lineage(before, LINEAGE)) == old
    assert batches > 500
    assert snapshots > 5


def test_every_cut_of_every_batch_is_the_state_before_or_after_or_refused() -> None:
    """The store writes batches as a whole. Should it ever not, then nothing is made up."""
    cuts = 0
    refused = 0
    for seed in range(20):
        for mirror in mirrors(seed):
            for before, batch, old, new in mirror.steps:
                for count in range(len(batch.ops) + 1):
                    store = before.copy()
                    part = Batch(1)
                    part.ops = batch.ops[:count]
                    store.apply(part)
                    cuts += 1
                    if is_refused(store, mirror.node.me):
                        refused += 1
                        assert 0 < count < len(batch.ops)
                    else:
                        assert said(read_lineage(store, LINEAGE)) in (old, new)
    assert cuts > 1000
    assert refused > 100


def test_flipped_bits_change_nothing_or_are_refused() -> None:
    rng = Rng(1)
    refused = 0
    for seed in range(20):
        for mirror in mirrors(seed):
            expected = said(read_lineage(mirror.store, LINEAGE))
            rows = mirror.store.items()
            for _ in range(60 if rows else 0):
                key, value = rows[rng.below(len(rows))]
                store = mirror.store.copy()
                at = rng.below(len(key) + len(value))
                bit = 1 << rng.below(8)
                batch = Batch(1)
                if at < len(key):
                    batch.delete(key)
                    key = key[:at] + bytes([key[at] ^ bit]) + key[at + 1 :]
                else:
                    at -= len(key)
                    value = value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :]
                batch.put(key, value)
                store.apply(batch)
                if is_refused(store, mirror.node.me):
                    refused += 1
                elif len(rows) > 1 or at >= VERSION_BYTES:
                    assert said(read_lineage(store, LINEAGE)) == expected
    assert refused > 500


def test_a_missing_row_is_refused() -> None:
    missing = 0
    for seed in range(20):
        for mirror in mirrors(seed):
            rows = mirror.store.items()
            for key, _value in rows if len(rows) > 1 else []:
                store = mirror.store.copy()
                batch = Batch(1)
                batch.delete(key)
                store.apply(batch)
                assert is_refused(store, mirror.node.me)
                missing += 1
    assert missing > 100


def test_a_row_too_many_is_refused() -> None:
    store, writer = MemoryStore(), Writer(4, 1)
    put_founding(writer, LINEAGE, Persisted.founder(founding([1])))
    writer.private(writer.batch.ops[-1][1] + b"x", b"later")
    applied(store, writer)
    with pytest.raises(CorruptStore, match="damaged"):
        read_lineage(store, LINEAGE)


def test_a_row_of_another_place_is_refused() -> None:
    """A row says where it belongs: that of another lineage is not taken for one of this."""
    store, writer = MemoryStore(), Writer(4, 1)
    put_founding(writer, 1, Persisted.founder(founding([1])))
    put_founding(writer, 2, Persisted.founder(founding([1])))
    applied(store, writer)
    rows = store.items()
    half = len(rows) // 2
    batch = Batch(1)
    for number in range(half):
        batch.put(rows[number][0], rows[half + number][1])
    store.apply(batch)
    with pytest.raises(CorruptStore, match="checksum"):
        read_lineage(store, 1)
    assert said(read_lineage(store, 2)) == said(Persisted.founder(founding([1])))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 100, 5 * CHUNK_BYTES + 7])
def test_a_snapshot_is_stored_in_parts(size: int) -> None:
    store, writer = MemoryStore(), Writer(4, 1)
    for length in (3 * CHUNK_BYTES, size):
        write = Write(1)
        write.hard_state = HardState(1, 0, 9)
        write.snapshot = Snapshot(9, 1, Configuration([1], [2]), bytes([length % 251]) * length)
        write.truncate_from = 1
        write.first, write.last, write.snapshot_index = 10, 9, 9
        put_write(writer, LINEAGE, write)
        applied(store, writer)
        found = read_lineage(store, LINEAGE)
        assert found.snapshot.data == write.snapshot.data
        assert found.snapshot.configuration.same(write.snapshot.configuration)
        assert max(len(value) for _key, value in store.items()) <= CHUNK_BYTES + VERSION_BYTES + 4
    # The parts of the larger one are gone.
    assert len(store.items()) == 1 + -(-len(encode_snapshot(found.snapshot)) // CHUNK_BYTES)


def test_lineages_are_kept_apart() -> None:
    store, writer = MemoryStore(), Writer(4, 1)
    lineages = [1, 254, LINEAGE, 256, 0xFFFF, (1 << 62) - 1]
    for number, lineage in enumerate(lineages):
        founder = Persisted.founder(founding([1 + number]))
        put_founding(writer, lineage, founder)
        write = Write(1)
        write.hard_state = HardState(2, 1 + number, 1)
        write.entries = [Entry(2, 2, DATA, b"%d" % number)]
        write.first, write.last, write.snapshot_index = 2, 2, 1
        put_write(writer, lineage, write)
        applied(store, writer)
    drop_lineage(writer, LINEAGE)
    applied(store, writer)
    assert read_lineage(store, LINEAGE).hard_state.term == 0
    for number, lineage in enumerate(lineages):
        if lineage != LINEAGE:
            found = read_lineage(store, lineage)
            assert (found.hard_state.vote, found.entries[0].data) == (1 + number, b"%d" % number)
    put_current(writer, CurrentLineage(7, 254))
    drop_lineages(writer)
    applied(store, writer)
    assert store.items() == []
    assert read_current(store) is None


def test_many_entries_are_read() -> None:
    store, writer = MemoryStore(), Writer(4, 1)
    put_founding(writer, LINEAGE, Persisted.founder(founding([1])))
    write = Write(1)
    write.hard_state = HardState(1, 1, 1)
    write.entries = [Entry(index, 1, DATA, b"") for index in range(2, 1000)]
    write.first, write.last, write.snapshot_index = 2, 999, 1
    put_write(writer, LINEAGE, write)
    applied(store, writer)
    assert [entry.index for entry in read_lineage(store, LINEAGE).entries] == list(range(2, 1000))


def test_the_current_lineage_is_read_as_it_was_written() -> None:
    store, writer = MemoryStore(), Writer(4, 1)
    assert read_current(store) is None
    put_current(writer, CurrentLineage((1 << 62) - 1, 3))
    applied(store, writer)
    current = read_current(store)
    assert current is not None
    assert (current.cluster, current.lineage) == ((1 << 62) - 1, 3)


def test_removals_are_read_as_they_were_written() -> None:
    store, writer = MemoryStore(), Writer(4, 1)
    assert read_removals(store) == []
    put_removals(writer, [Removal((1 << 62) - 1, "n1", 1 << 40, 17, 3), Removal(2, "n2", 1, 2, 1)])
    applied(store, writer)
    found = [vars_of(removal) for removal in read_removals(store)]
    assert found == [((1 << 62) - 1, "n1", 1 << 40, 17, 3), (2, "n2", 1, 2, 1)]
    put_removals(writer, [])
    applied(store, writer)
    assert read_removals(store) == []


def vars_of(removal: Removal) -> tuple[int, str, int, int, int]:
    return (removal.disk, removal.node_id, removal.incarnation, removal.index, removal.why)


def test_a_damaged_name_of_the_lineage_is_refused() -> None:
    writer = Writer(4, 1)
    put_current(writer, CurrentLineage(300, 1000))
    kind, key, value = writer.batch.ops[0]
    assert kind == PUT
    for at in range(VERSION_BYTES, len(value)):
        for bit in range(8):
            store, batch = MemoryStore(), Batch(1)
            batch.put(key, value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :])
            store.apply(batch)
            with pytest.raises(CorruptStore):
                read_current(store)
    for length in range(VERSION_BYTES, len(value)):
        store, batch = MemoryStore(), Batch(1)
        batch.put(key, value[:length])
        store.apply(batch)
        with pytest.raises(CorruptStore):
            read_current(store)


def test_a_gap_between_entries_is_refused_by_raft() -> None:
    store, writer = MemoryStore(), Writer(4, 1)
    put_founding(writer, LINEAGE, Persisted.founder(founding([1])))
    write = Write(1)
    write.hard_state = HardState(1, 1, 1)
    write.entries = [Entry(2, 1, DATA, b""), Entry(4, 1, DATA, b"")]
    write.first, write.last, write.snapshot_index = 2, 4, 1
    put_write(writer, LINEAGE, write)
    applied(store, writer)
    with pytest.raises(DamagedState, match="entry 4 stands behind entry 2"):
        Raft(1, Options(), read_lineage(store, LINEAGE), 0, 1, 0, [])

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from folkmoot.runtime import rocks
from folkmoot.runtime.descriptors import SPARE, Descriptors, Spare, available
from folkmoot.runtime.rocks import RocksOptions, RocksStore, StoreFull, database_options
from folkmoot.store.batch import Batch


def highest_descriptor() -> int:
    return max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())


@contextmanager
def limited(more: int) -> Iterator[None]:
    """This process may open `more` files and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = highest_descriptor()
    free = [number for number in range(highest) if not Path(f"/proc/self/fd/{number}").exists()]
    filled = [os.open(os.devnull, os.O_RDONLY) for _ in free]
    highest = highest_descriptor()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in filled:
            os.close(descriptor)


@pytest.mark.parametrize("limit", [256, 512, 700, 1024, 4096, 20_000, 1 << 20])
@pytest.mark.parametrize("http", [False, True])
@pytest.mark.parametrize("cluster", [False, True])
def test_the_shares_fit_into_the_limit(limit: int, http: bool, cluster: bool) -> None:
    shares = Descriptors(limit, http, cluster)
    assert shares.enough == (shares.reserved + shares.sockets <= limit)
    assert 0 < shares.clients <= shares.sockets < limit
    assert shares.enough or limit <= 700
    if limit >= 1024:
        assert shares.sockets >= limit // 4


def test_a_node_alone_with_1024_descriptors() -> None:
    shares = Descriptors(1024, http=False, cluster=False)
    assert (shares.tables, shares.reserved, shares.sockets) == (128, 288, 736)


def test_spare_descriptors_are_there_when_there_are_no_others() -> None:
    spare = Spare()
    try:
        with limited(1):
            assert not available(2)
            spare.release()
            assert available(SPARE)
            assert spare.refill()
            assert not available(2)
    finally:
        spare.release()


def row(store: RocksStore, number: int) -> bytes | None:
    return store.get(b"\0\0key%d" % number)


def written(number: int, size: int = 2000) -> Batch:
    batch = Batch(number)
    batch.put(b"\0\0key%d" % number, bytes(size))
    return batch


def write(store: RocksStore, batch: Batch) -> None:
    store.write([batch])
    store.apply(batch.ops, batch.token)


def test_a_store_without_descriptors_is_full_and_goes_on_when_there_are_some(tmp_path: Path) -> None:
    options = RocksOptions()
    options.memtable_bytes = 64 << 10
    store = RocksStore(tmp_path / "store", options, create=True)
    try:
        write(store, written(0))
        acknowledged = [0]
        with limited(1), pytest.raises(StoreFull, match="Too many open files"):  # noqa: PT012 - one write needs a file
            for number in range(1, 2000):
                write(store, written(number))
                acknowledged.append(number)
        assert 10 < len(acknowledged) < 2000
        store.reopen()
        assert [number for number in acknowledged if row(store, number) != bytes(2000)] == []
        write(store, written(5000))
        assert row(store, 5000) == bytes(2000)
    finally:
        store.close()


def tables_stay(options: RocksOptions) -> Any:
    result = database_options(options)
    result.set_disable_auto_compactions(True)
    return result


def test_a_read_takes_the_spare_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks, "database_options", tables_stay)  # each has the applied position: they would be merged
    options = RocksOptions()
    store = RocksStore(tmp_path / "store", options, create=True)
    for number in range(14):  # a table for each; only some are opened with the store
        write(store, written(number))
        store.reclaim()
    store.close()
    options.open_files_max = 20
    store = RocksStore(tmp_path / "store", options, create=False)
    pauses: list[float] = []
    store.sleep = pauses.append
    spare = Spare()
    try:
        with limited(0):
            with pytest.raises(StoreFull, match="Too many open files"):
                [row(store, number) for number in range(14)]
            assert 1 < sum(pauses) < 2, "it waits, and not for long: it is in the loop's thread"
            store.relieve = spare.release
            found = [row(store, number) for number in range(14)]
        assert found == [bytes(2000)] * 14
    finally:
        spare.release()
        store.close()

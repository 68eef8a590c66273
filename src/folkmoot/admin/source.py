"""Queries to the leaders of partitions through the node in this process, and the requests that wait for answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from folkmoot.admin.streams import LeaderSource, NoLeader
from folkmoot.admin.table import TableSource
from folkmoot.admin.transactions import HomeSource
from folkmoot.node import Node
from folkmoot.query.question import BOUNDS, FOUND, Answer
from folkmoot.report.call import Call
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page

__all__ = ["NodeHomes", "NodeSource", "answered"]

# A leader that hangs loses its leaderships within a few seconds, which ends the wait; this is a safety net.
PATIENCE_S: Final = 10.0
# Each query may return a page; further readers wait for their turn.
AT_ONCE: Final = 64
# Pause between two attempts to reach the leader of a home: a change of leaders takes some tenths of a second.
PAUSE_S: Final = 0.05


class NodeSource(LeaderSource, TableSource):
    """Sends queries through `node`; `begin` begins a turn of its loop and returns the time."""

    def __init__(self, node: Node, begin: Callable[[], int]) -> None:
        self._node = node
        self._begin = begin
        self._turns = asyncio.Semaphore(AT_ONCE)

    def leads(self, log: StreamLog) -> bool:
        """Whether this node leads the log and can read it."""
        return self._node.leads_stream(log)

    async def ask(self, log: StreamLog, what: int, numbers: list[int]) -> Answer:
        """Return the answer of the leader of the stream partition; raises NoLeader."""
        answer = await self._answer(lambda handle, now: self._node.ask_stream(handle, log, what, numbers, now))
        if answer is None:
            raise NoLeader(f"{log} has no leader at the moment: try again, here or at another node")
        return answer

    def holds(self, log: StreamLog) -> bool:
        """Whether this node has a copy."""
        return self._node.copies.holds(log)

    async def read(self, log: StreamLog, start: int, end: int, bytes_max: int) -> Page | OffsetGone | OffsetAhead:
        """Return a page from the local copy, up to the readable end that the leader tells; raises NoLeader."""
        copies = self._node.copies
        if copies.holds(log) and not copies.covers(log, end):
            answer = await self.ask(log, BOUNDS, [log.index])
            if answer.status == FOUND:
                copies.learn(log, answer.numbers)
        page = copies.read(log, start, end, bytes_max)
        return page if page is not None else await super().read(log, start, end, bytes_max)

    async def page(self, name: bytes, partition: int, node_id: str, flags: int, after: bytes) -> Answer:
        """Return a page of a table from the node that has it; raises NoLeader."""
        answer = await self._answer(
            lambda handle, now: self._node.ask_table(handle, name, partition, node_id, flags, after, now)
        )
        if answer is None:
            what = f"partition {partition}" if partition >= 0 else f"node {node_id}"
            raise NoLeader(f"{what} cannot be reached at the moment: try again, here or at another node")
        return answer

    async def _answer(self, ask: Callable[[object, int], Call | Answer | None]) -> Answer | None:
        async with self._turns:
            future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
            found = ask(future, self._begin())
            if isinstance(found, Call):
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        found = await future
                except TimeoutError:
                    found = None
        return found


class NodeHomes(HomeSource):
    """Sends commands through `node`, and repeats them while leaders change; `begin` begins a turn of its loop."""

    def __init__(self, node: Node, begin: Callable[[], int]) -> None:
        self._node = node
        self._begin = begin
        self._turns = asyncio.Semaphore(AT_ONCE)

    def partitions(self) -> int:
        """Return how many partitions there are."""
        return self._node.config.partitions

    def homes(self) -> list[list[int]]:
        """Return the partitions that have a leader, grouped by leader."""
        return self._node.homes()

    async def ask(self, partition: int, what: int, name: bytes, numbers: list[int], key: bytes) -> Answer:
        """Return the answer of the leader of a home; raises NoLeader if none has answered for a while."""
        async with self._turns:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await self._until_answered(partition, what, name, numbers, key)
            except TimeoutError:
                raise NoLeader(
                    f"partition {partition} has no leader at the moment: try again, here or at another node"
                ) from None

    async def _until_answered(self, partition: int, what: int, name: bytes, numbers: list[int], key: bytes) -> Answer:
        while True:
            future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
            found = self._node.ask_home(future, partition, what, name, numbers, key, self._begin())
            if isinstance(found, Call):
                found = await future
            if found is not None:
                return found
            await asyncio.sleep(PAUSE_S)


def answered(call: Call) -> None:
    """Pass the answer of a call that has ended to the request that waits for it."""
    future = call.handle
    assert isinstance(future, asyncio.Future), "only those above ask"
    if not future.done():
        future.set_result(call.answer)

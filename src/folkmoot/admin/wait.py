"""Readers that wait at the end of a stream for an offset to become readable.

Owns futures. A check costs nothing while no reader waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import Streams

__all__ = ["StreamWaits"]


class StreamWaits:
    """The waiting readers of one node; call `check` whenever there may be something new to read.

    `end_of` returns the readable end of a stream partition, and subscribes to its growth if another node leads it.
    """

    def __init__(self, streams: Streams, end_of: Callable[[StreamLog], int]) -> None:
        self._streams = streams
        self._end_of = end_of
        self._waiting: dict[asyncio.Future[bool], tuple[str, int, int]] = {}

    async def wait(self, stream: str, partition: int, offset: int, timeout_s: float) -> bool:
        """Return when `offset` of a stream partition is readable, or after the timeout; False: read nothing more."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = (stream, partition, offset)
        self._look(future, stream, partition, offset)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return True
        finally:
            del self._waiting[future]

    def check(self) -> None:
        """Wake the readers whose offset is readable."""
        for future, (name, partition, offset) in self._waiting.items():
            self._look(future, name, partition, offset)

    def _look(self, future: asyncio.Future[bool], name: str, partition: int, offset: int) -> None:
        stream = self._streams.get(name)
        if not future.done() and (stream is None or self._end_of(stream.logs[partition]) > offset):
            future.set_result(True)

    def release(self) -> None:
        """Wake all readers, which read nothing more: the node stops, or their token is not valid any more."""
        for future in self._waiting:
            if not future.done():
                future.set_result(False)

"""A node that has streams and nothing else: the real log, store and HTTP routes, without MQTT. For readers' tests."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence

import uvicorn
from starlette.applications import Starlette

from folkmoot.admin.streams import LeaderSource, stream_routes
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import Record, encode_record
from folkmoot.store.writer import Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.table import Streams

__all__ = ["Shelf", "StreamNode"]

START_US = 1_700_000_000_000_000


class Shelf:
    """Streams on a store in memory; every `append` is one durable turn."""

    def __init__(self, *configs: StreamConfig) -> None:
        self.configs = list(configs)
        self.store = MemoryStore()
        self.now = START_US
        self.epoch = 0
        self.reopen()

    def reopen(self) -> None:
        """Restart: rebuild everything from the store."""
        self.epoch += 1
        self.writer = Writer(16, self.epoch)
        self.streams = Streams(self.configs, 16, self.store)
        self.streams.open()

    def append(self, *records: Record) -> None:
        """Append `records`, each where its topic belongs, at the time `now`."""
        for record in records:
            for log in self.streams.match(record.topic):
                log.append(record, self.now)
        self.streams.flush(self.writer)
        self._write()

    def publish(self, topic: str, *payloads: bytes) -> None:
        """Append messages of QoS 1 on `topic`."""
        self.append(*[encode_record(topic.encode(), payload, 1, False, b"tester", b"") for payload in payloads])

    def trim(self) -> None:
        """Apply retention until nothing is left to do."""
        while self.streams.trim(self.now, self.writer):
            self._write()
        self._write()

    def _write(self) -> None:
        batch = self.writer.take()
        if batch is not None:
            self.store.apply(batch)
            self.streams.written(batch.token)


class StreamNode:
    """Serves a shelf over HTTP from a thread; `run` does something to the shelf between two requests."""

    def __init__(self, shelf: Shelf, token: str | None = None, source: LeaderSource | None = None) -> None:
        self.shelf = shelf
        self.token = token
        self.source = source
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, on the port of the last time if there was one."""
        self._loop = asyncio.new_event_loop()
        self._grown = asyncio.Event()
        app = Starlette(routes=stream_routes(lambda: self.shelf.streams, self._wait, self.token, self.source))
        config = uvicorn.Config(app, log_level="critical", lifespan="off")
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._started.wait(20), "the server did not start"

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        with socket.create_server(("127.0.0.1", self.port), backlog=100) as listener:
            self.port = listener.getsockname()[1]
            self._started.set()
            await self._server.serve([listener])

    async def _wait(self, _name: str, _partition: int, _offset: int, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._grown.wait(), timeout_s)
        except TimeoutError:
            pass
        return True

    def run(self, change: Callable[[Shelf], None]) -> None:
        """Call `change(shelf)` on the server's thread and wait for it."""

        async def work() -> None:
            change(self.shelf)
            self._grown.set()
            self._grown = asyncio.Event()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result(60)

    def publish(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Append messages of QoS 1 on `topic` as one turn."""
        self.run(lambda shelf: shelf.publish(topic, *payloads))

    def stop(self) -> None:
        """Stop serving; what the shelf holds stays."""
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(20)

    def __enter__(self) -> StreamNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

"""Real clients that keep books: publishers of numbered messages, and subscribers whose sessions outlive connections.

Each client is a thread that ends when it is told to, and reconnects through the door to whichever node it is given.
What a publisher notes as acknowledged, and what a subscriber notes as arrived, is judged elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt

from tests.integration.cluster_rig import Door

__all__ = [
    "AioPublisher",
    "AioSubscriber",
    "Client",
    "MosquittoPublisher",
    "MosquittoSubscriber",
    "Publisher",
    "Subscriber",
]

AGAIN_S = 0.1
KEEP_ALIVE_S = 2
FOR_EVER = 0xFFFF_FFFF
TOPICS = 2
FILTER = "fleet/#"
SILENT = logging.getLogger("fleet")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class Client(threading.Thread):
    """One client; `stop` tells it to end, `join` waits for that."""

    def __init__(self, name: str, qos: int, door: Door) -> None:
        super().__init__(name=name, daemon=True)
        self.qos = qos
        self.door = door
        self.ended = threading.Event()
        self.connects = 0
        self.broken: list[str] = []

    def run(self) -> None:
        try:
            self.live()
        except Exception as error:  # noqa: BLE001 - told by the test, not lost in a thread
            self.broken.append(f"{self.name} broke: {error!r}")

    def live(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.ended.set()


class Publisher(Client):
    """Sends numbers 1, 2, 3, ... to its topics in turn; `quiet` makes it send nothing new."""

    def __init__(self, name: str, qos: int, door: Door, pace_s: float) -> None:
        super().__init__(name, qos, door)
        self.pace_s = pace_s
        self.sent = 0
        self.quiet = threading.Event()

    @property
    def acknowledged(self) -> set[int]:
        raise NotImplementedError

    @property
    def repeats(self) -> bool:
        """Whether it repeats what was not acknowledged until it is; if not, that may arrive or not."""
        return True

    def owed(self) -> str:
        """What waits for an answer, as far as the client tells; for a failure that must explain itself."""
        return ""

    def next_message(self) -> tuple[str, str]:
        """Count, and return topic and payload."""
        self.sent += 1
        return topic_of(self.name, self.sent), payload_of(self.name, self.sent)


class Subscriber(Client):
    """Has a session that stays, subscribed to all that the publishers send; notes what comes, in order."""

    def __init__(self, name: str, qos: int, door: Door) -> None:
        super().__init__(name, qos, door)
        self.arrived: list[tuple[str, str]] = []
        self.subscribed = threading.Event()
        self.hops = threading.Event()

    def hop(self) -> None:
        """Drop the connection in the middle of whatever flows, and take another one."""
        self.hops.set()


@contextlib.asynccontextmanager
async def aio_connection(
    name: str, door: Door, clean: bool, queue: type[asyncio.Queue[Any]] | None = None
) -> AsyncIterator[aiomqtt.Client]:
    """One connection of a new aiomqtt client; raises MqttError when it cannot be had or is lost."""
    client = aiomqtt.Client(
        door.path or door.host,
        door.port,
        identifier=name,
        clean_session=clean,
        transport="unix" if door.path else "tcp",
        keepalive=KEEP_ALIVE_S,
        timeout=3.0,
        queue_type=queue,
        logger=SILENT,
    )
    try:
        async with client:
            yield client
    finally:
        # asyncio complains of exceptions that nobody looks at.
        for future in (client._connected, client._disconnected):
            if future.done() and not future.cancelled():
                future.exception()
        client._client._reset_sockets()


class AioSubscriber(Subscriber):
    """aiomqtt at QoS 1: each connection is a new client that knows nothing of the one before."""

    def live(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        arrived = self.arrived

        class Noted(asyncio.Queue[Any]):
            """What is put here is acknowledged, also when nobody takes it any more."""

            def put_nowait(self, item: Any) -> None:
                arrived.append((str(item.topic), item.payload.decode()))

        while not self.ended.is_set():
            with contextlib.suppress(aiomqtt.MqttError):
                async with aio_connection(self.name, self.door, clean=False, queue=Noted) as client:
                    self.connects += 1
                    if not self.subscribed.is_set():
                        await client.subscribe(FILTER, self.qos)
                        self.subscribed.set()
                    await self._stay(client)
            await asyncio.sleep(AGAIN_S)

    async def _stay(self, client: aiomqtt.Client) -> None:
        """Until the connection is lost, or is to be dropped, or all ends."""
        gone: Any = client._disconnected
        while not gone.done() and not self.ended.is_set():
            await asyncio.sleep(0.05)
            if self.hops.is_set():
                self.hops.clear()
                sock: Any = client._client.socket()
                if sock is not None:
                    with contextlib.suppress(OSError):
                        sock.shutdown(2)


class OneByOne(Publisher):
    """One message at a time: what was not acknowledged is left, and the next number follows."""

    def __init__(self, name: str, qos: int, door: Door, pace_s: float) -> None:
        super().__init__(name, qos, door, pace_s)
        self.done: set[int] = set()

    @property
    def acknowledged(self) -> set[int]:
        return set(self.done)

    @property
    def repeats(self) -> bool:
        return False


class AioPublisher(OneByOne):
    """aiomqtt."""

    def live(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        while not self.ended.is_set():
            with contextlib.suppress(aiomqtt.MqttError):
                async with aio_connection(self.name, self.door, clean=True) as client:
                    self.connects += 1
                    while not self.ended.is_set():
                        if not self.quiet.is_set():
                            topic, payload = self.next_message()
                            number = self.sent
                            await client.publish(topic, payload, self.qos)
                            self.done.add(number)
                        await asyncio.sleep(self.pace_s)
            await asyncio.sleep(AGAIN_S)


class MosquittoPublisher(OneByOne):
    """mosquitto_pub, once for each message: a number counts when the program says that all went well."""

    def live(self) -> None:
        while not self.ended.is_set():
            if not self.quiet.is_set():
                topic, payload = self.next_message()
                words = ["-i", self.name, "-q", str(self.qos), "-t", topic, "-m", payload, "-V", "5"]
                words += ["-k", "5"]  # the least that it allows
                command = ["mosquitto_pub", *mosquitto_place(self.door), *words]
                try:
                    done = subprocess.run(command, capture_output=True, timeout=5, check=False)
                except subprocess.TimeoutExpired:
                    continue
                if done.returncode == 0 and not done.stderr:
                    self.done.add(self.sent)
            self.ended.wait(self.pace_s)


class MosquittoSubscriber(Subscriber):
    """mosquitto_sub, which reconnects by itself; started again should it give up."""

    def __init__(self, name: str, qos: int, door: Door, folder: Path) -> None:
        super().__init__(name, qos, door)
        self.out = folder / f"{name}.out"
        self.read = 0
        self.rest = ""

    def live(self) -> None:
        words = ["-c", "-i", self.name, "-q", str(self.qos), "-t", FILTER, "-V", "5", "-x", str(FOR_EVER), "-k", "5"]
        command = ["mosquitto_sub", *mosquitto_place(self.door), *words, "-F", "%t %p"]
        while not self.ended.is_set():
            self._subscribe()
            with (
                self.out.open("ab") as out,
                subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as process,
            ):
                self.connects += 1
                while process.poll() is None and not self.ended.is_set():
                    self.ended.wait(0.05)
                    self._take()
                process.terminate()
            self._take()
            self.ended.wait(AGAIN_S)

    def _subscribe(self) -> None:
        """The same program subscribes and ends (-E), so that it is known when the session is there."""
        words = ["-c", "-i", self.name, "-q", str(self.qos), "-t", FILTER, "-V", "5", "-x", str(FOR_EVER), "-E"]
        command = ["mosquitto_sub", *mosquitto_place(self.door), *words]
        while not self.subscribed.is_set() and not self.ended.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                if subprocess.run(command, capture_output=True, timeout=5, check=False).returncode == 0:
                    self.subscribed.set()
            self.ended.wait(AGAIN_S)

    def _take(self) -> None:
        """Note the lines that are new."""
        with self.out.open() as file:
            file.seek(self.read)
            text = self.rest + file.read()
            self.read = file.tell()
        *lines, self.rest = text.split("\n")
        for line in lines:
            topic, _, payload = line.partition(" ")
            self.arrived.append((topic, payload))


def mosquitto_place(door: Door) -> list[str]:
    return ["--unix", door.path] if door.path else ["-h", door.host, "-p", str(door.port)]


def topic_of(name: str, number: int) -> str:
    return f"fleet/{name}/{number % TOPICS}"


def payload_of(name: str, number: int) -> str:
    """A message that can be checked by itself."""
    text = f"{name} {number}"
    return f"{text} {zlib.crc32(text.encode()):08x}"

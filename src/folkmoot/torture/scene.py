"""The torture test: readings pass at a steady rate through three nodes and a pipeline and back to MQTT, with kills.

The result is compared with what was acknowledged: in the Delta tables (read without Spark), in the stream of the
messages that were published back, and at a subscriber with QoS 2.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from folkmoot.client.streams import StreamClient
from folkmoot.demo.alert import Desk
from folkmoot.demo.cluster import Cluster
from folkmoot.demo.driver import Driver
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.flight import Event
from folkmoot.kernel.errors import FolkmootError
from folkmoot.kernel.rng import Rng
from folkmoot.torture.victims import Victims

__all__ = ["PLACES", "Scene", "Verdict"]

PIPELINE = Path(__file__).resolve().parents[3] / "examples" / "torture" / "torture.yaml"
STREAMS = ("in=in/#", "back=back/#")
CONNECTIONS = 6
DEVICES = 60
TENTH = 10
MASTER = "local-cluster[2,1,1024]"  # executors are processes of their own, which can be killed
PLACES = ("bronze", "silver", "stream back", "subscriber")
_BACK_S = 120.0
_MORE_S = 3.0  # time for duplicates to arrive


class Publisher(threading.Thread):
    """Publishes readings 0, 1, 2, ... at `rate` per second; it catches up after a pause of a device."""

    def __init__(self, fleet: Fleet, rate: int) -> None:
        super().__init__(name="publisher", daemon=True)
        self.count = 0
        self.fault: FolkmootError | None = None
        self._fleet = fleet
        self._rate = rate
        self._over = threading.Event()

    def run(self) -> None:
        """Publish until `end`."""
        begin = time.monotonic()
        try:
            while not self._over.is_set():
                ahead_s = begin + self.count / self._rate - time.monotonic()
                if ahead_s > 0.01:
                    time.sleep(ahead_s)
                payload = json.dumps({"n": self.count, "value": self.count / 7}).encode()
                self._fleet.publish(Event("", f"in/d{self.count % DEVICES}", payload))
                self.count += 1
            self._fleet.settle()
        except FolkmootError as error:
            self.fault = error

    def end(self) -> None:
        """Stop publishing, and wait for all acknowledgements; raises FolkmootError if they do not arrive."""
        self._over.set()
        self.join()
        if self.fault is not None:
            raise self.fault


class Verdict:
    """For each place, how many messages are missing and how many are duplicates."""

    def __init__(self) -> None:
        self.wanted: dict[str, int] = {}
        self.gaps: dict[str, int] = {}
        self.duplicates: dict[str, int] = {}

    def add(self, place: str, found: Counter[Any], wanted: Counter[Any]) -> None:
        """Compare the messages found at a place with the expected ones."""
        self.wanted[place] = wanted.total()
        self.gaps[place] = (wanted - found).total()
        self.duplicates[place] = (found - wanted).total()

    @property
    def holds(self) -> bool:
        """Whether every message is exactly once at every place."""
        return not any(self.gaps.values()) and not any(self.duplicates.values())


class Scene:
    """One run in `folder`, on the Spark `master`; `say` is called with a line for each event."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None], master: str = MASTER) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.say = say
        self.rng = Rng(seed)
        self.cluster = Cluster(folder, STREAMS)
        self.driver = Driver(folder, PIPELINE, master)
        self.victims = Victims(self.cluster, self.driver, self.rng, say)

    def run(self, rounds: Sequence[list[str]], rate: int) -> Verdict:
        """Publish during the rounds; return the verdict."""
        self.cluster.start()
        fleet = Fleet(self.cluster.mqtt, CONNECTIONS)
        desk = Desk(self.cluster.mqtt, "back/#")
        publisher = Publisher(fleet, rate)
        try:
            desk.ready()
            self.driver.prepare(self.cluster.urls)
            self.driver.start()
            publisher.start()
            self.victims.await_progress()
            for number, what in enumerate(rounds, 1):
                self.say(f"round {number} of {len(rounds)}, {publisher.count:,} published")
                self.victims.strike(what)
                self.victims.await_progress()
            publisher.end()
            self.say(
                f"{publisher.count:,} published, {fleet.acknowledged:,} acknowledged, {fleet.reconnects} reconnects"
            )
            self.driver.finish()
            self.driver.drain()
            desk.await_count(-(-publisher.count // TENTH), _BACK_S)
            time.sleep(_MORE_S)
        finally:
            fleet.close()
            desk.close()
        assert fleet.acknowledged == publisher.count
        assert not fleet.refused, fleet.refused[0]
        return self._verdict(fleet, desk, publisher.count)

    def close(self) -> None:
        """Stop all processes that still run."""
        self.driver.stop(1.0)
        self.cluster.stop()

    def _verdict(self, fleet: Fleet, desk: Desk, count: int) -> Verdict:
        found = Verdict()
        (properties,) = self._columns("bronze", "user_properties")
        rows = (dict(one) for one in properties)
        bronze = Counter((row["folkmoot-producer"], int(row["folkmoot-seq"])) for row in rows)
        found.add("bronze", bronze, Counter((one.producer, n) for one in fleet.devices for n in range(one.published)))
        silver = Counter(zip(*self._columns("silver", "device", "n"), strict=True))
        found.add("silver", silver, Counter((f"d{n % DEVICES}", n) for n in range(count)))
        back = Counter((f"back/d{n % DEVICES}", b"%d" % n) for n in range(0, count, TENTH))
        found.add("stream back", self._stream(), back)
        found.add("subscriber", Counter((one.topic, one.payload) for one in desk.alerts), back)
        return found

    def _columns(self, name: str, *columns: str) -> list[list[Any]]:
        table = DeltaTable(str(self.folder / "tables" / name)).to_pyarrow_table(columns=list(columns))
        return [table.column(column).to_pylist() for column in columns]

    def _stream(self) -> Counter[tuple[str, bytes]]:
        client = StreamClient(self.cluster.urls)
        found: Counter[tuple[str, bytes]] = Counter()
        for part in client.describe("back").ranges:
            for entry in client.entries("back", part.partition, 0):
                found[(entry.record.topic.decode(), entry.record.payload)] += 1
        client.close()
        return found

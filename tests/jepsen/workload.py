"""What the clients of a run do: publishers, subscribers that roam, wills, takeovers, retained values, streams, probes.

Every actor draws what it does from a generator of its own, seeded by the seed of the run and its name. Which events
follow depends on the nodes too, so a seed repeats the faults and the intentions, not the history.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field

from tests.jepsen.client import Client
from tests.jepsen.history import Recorder, payload_of, value_of
from tests.jepsen.http import ask, request
from tests.jepsen.wire import Will, publish

__all__ = ["STREAM", "WHOLE", "Plan", "Workload"]

STREAM = "all"
STREAM_FILTER = "j/#"
TOPICS = 6
SLEEPERS = 12
GUESTS = 30
RETAINED = 5
WINDOW = 16
STALLED_S = 12.0
QUIET_S = 4.0
AGAIN_S = 0.1
PROBE_S = 12.0
REST_S = 45.0
SETUP_S = 60.0
COPIES_S = 30.0
WHOLE = "all copies are in sync"


@dataclass(frozen=True)
class Plan:
    """What a run needs to know of its nodes; `mqtt` and `admin`: host and port by name."""

    seed: int
    mqtt: dict[str, tuple[str, int]]
    admin: dict[str, tuple[str, int]]
    token: str
    first: list[str]  # the nodes that run from the beginning, and at the end
    partitions: int
    rate: float  # messages of all publishers in a second


@dataclass
class Stage:
    """What all actors look at: how far the run is."""

    resting: bool = False
    reading: bool = False
    ended: bool = False
    busy: dict[str, str] = field(default_factory=dict)  # what an actor still waits for


class Actor:
    """One client and the decisions about it."""

    def __init__(self, workload: Workload, name: str, **options: int) -> None:
        self.plan, self.stage, self.recorder = workload.plan, workload.stage, workload.recorder
        self.name = name
        self.rng = random.Random(f"{self.plan.seed}/{name}")
        self.client = Client(self.recorder, name, self.plan.mqtt, **({"expiry_s": 0} if "transient" in options else {}))

    async def run(self) -> None:
        raise NotImplementedError

    def node(self) -> str:
        """Where to connect next: half of the time where it was."""
        if self.client.node and self.rng.random() < 0.5:
            return self.client.node
        return self.rng.choice(list(self.plan.mqtt))

    def will(self) -> Will | None:
        """The will of the next connection; one that may have been accepted has been used."""
        return None

    async def attach(self) -> None:
        """Connect to some node, for as long as it takes."""
        self.stage.busy[self.name] = "is not connected"
        while not self.stage.ended and not await self.client.connect(self.node(), will=self.will()):
            self.client.node = ""
            await asyncio.sleep(AGAIN_S)
        self.stage.busy.pop(self.name, None)

    async def attached(self) -> bool:
        """Whether the client may act: otherwise it connects, or leaves a node that acknowledges nothing."""
        if not self.client.connected:
            await self.attach()
            return False
        if self.client.oldest_s() > STALLED_S:
            self.client.drop("stalled")
            self.client.node = ""
            return False
        return True

    async def pause(self, low_s: float, high_s: float) -> None:
        """Stay as it is for a time, which ends early when all come to rest."""
        left = self.rng.uniform(low_s, high_s)
        while left > 0 and not self.stage.ended:
            await asyncio.sleep(min(left, 0.1))
            left -= 0.1
            if self.stage.resting and left > 0.2:
                left = 0.2


class Publisher(Actor):
    """Sends unique values to some topics, up to a window without acknowledgement, at a bounded rate."""

    def __init__(self, workload: Workload, number: int, count: int) -> None:
        super().__init__(workload, f"pub{number}")
        self.topics = [f"j/{number % TOPICS}", f"j/{(number + 1) % TOPICS}"]
        self.rare = [f"s/{place}" for place in range(number, SLEEPERS, count)]
        self.rare += [f"d/{place}" for place in range(number, GUESTS, count)]
        self.pause_s = count / self.plan.rate
        self.sent = 0

    async def run(self) -> None:
        while not self.stage.ended:
            if await self.attached() and not self.stage.resting and len(self.client.inflight) < WINDOW:
                self.send(self.rng.choice(self.rare if self.rng.random() < 0.1 else self.topics))
                if self.rng.random() < 0.006:
                    self.client.drop("moves")
            await asyncio.sleep(self.pause_s)
            if self.stage.resting:
                self.report()

    def send(self, topic: str) -> None:
        self.sent += 1
        self.client.publish(topic, f"{self.name}:{self.sent}", self.rng.choice((1, 2)))

    def report(self) -> None:
        if self.client.inflight:
            self.stage.busy[self.name] = f"waits for {len(self.client.inflight)} acknowledgements"
        elif self.client.connected:
            self.stage.busy.pop(self.name, None)

    def finish(self) -> None:
        """One last message to every topic: who does not get it has lost a subscription."""
        for topic in [*self.topics, *self.rare]:
            for qos in (1, 2):
                self.sent += 1
                self.client.publish(topic, f"{self.name}:{self.sent}", qos)


class Subscriber(Actor):
    """A persistent session: subscribes once, comes and goes, and takes what has come meanwhile.

    online, offline: how long it stays and is away, from and to, in seconds.
    toggles: a filter that it subscribes and unsubscribes again and again.
    home: a node at which it nearly always connects, if it can.
    """

    def __init__(
        self,
        workload: Workload,
        name: str,
        filters: list[tuple[str, int]],
        online: tuple[float, float],
        offline: tuple[float, float],
        toggles: str = "",
        home: str = "",
    ) -> None:
        super().__init__(workload, name)
        self.home = home
        self.filters, self.online, self.offline, self.toggles = filters, online, offline, toggles
        self.subscribed = asyncio.Event()

    def node(self) -> str:
        return self.home if self.home and self.rng.random() < 0.8 else super().node()

    async def run(self) -> None:
        while not self.stage.ended:
            await self.attach()
            if not self.client.present or not self.subscribed.is_set():
                if not await self.client.subscribe(self.filters):
                    self.client.drop("no SUBACK")
                    continue
                self.subscribed.set()
            await self.stay()
            if self.client.connected and not self.stage.resting:
                if self.rng.random() < 0.5:
                    self.client.drop("goes")
                else:
                    self.client.disconnect()
                await self.pause(*self.offline)

    async def stay(self) -> None:
        left = self.rng.uniform(*self.online)
        while self.client.connected and not self.stage.ended and (left > 0 or self.stage.resting):
            if self.toggles and not self.stage.resting and self.rng.random() < 0.1:
                await self.client.subscribe([(self.toggles, 2)])
                await self.pause(0.2, 2.0)
                await self.client.unsubscribe([self.toggles])
            await asyncio.sleep(0.1)
            left -= 0.1


class Mortal(Actor):
    """Has a will of its own for every connection, and ends it in one way or another."""

    def __init__(self, workload: Workload, number: int, delay_s: int) -> None:
        super().__init__(workload, f"will{number}")
        self.delay_s = delay_s
        self.lives = 0

    async def run(self) -> None:
        while not self.stage.resting:
            await self.attach()
            await self.stay()
            if self.client.connected:
                end = self.rng.randrange(4)
                if end < 2:
                    self.client.drop("dies")
                else:
                    self.client.disconnect(0 if end == 2 else 4)
            await self.pause(0.2, 2.0 + 2 * self.delay_s)

    def will(self) -> Will:
        self.lives += 1
        return Will(f"w/{self.name}", payload_of(f"{self.name}:{self.lives}"), 2, self.delay_s)

    async def stay(self) -> None:
        left = self.rng.uniform(0.5, 6.0)
        while self.client.connected and left > 0 and not self.stage.resting:
            await asyncio.sleep(0.1)
            left -= 0.1


class Twins(Actor):
    """Two places that use one client id in turn; the one that was there before goes on asking whether it is alive."""

    def __init__(self, workload: Workload, number: int) -> None:
        super().__init__(workload, f"twin{number}")
        self.other = Client(self.recorder, self.name, self.plan.mqtt)

    async def run(self) -> None:
        now, before = self.client, self.other
        while not self.stage.resting:
            now, before = before, now
            if not await now.connect(self.rng.choice(list(self.plan.mqtt))):
                await asyncio.sleep(AGAIN_S)
                continue
            for _ in range(self.rng.randrange(3, 10)):
                if before.connected:
                    before.ping()
                await self.pause(0.2, 0.5)
            if self.rng.random() < 0.2:
                now.drop("goes")
        now.disconnect()
        before.drop("ends")


class Writer(Actor):
    """Sets and clears retained messages, one after the other."""

    def __init__(self, workload: Workload, number: int) -> None:
        super().__init__(workload, f"keeper{number}")
        self.own = [f"r/{self.name}/{place}" for place in range(2)]
        self.sent = 0

    async def run(self) -> None:
        while not self.stage.ended:
            if await self.attached() and not self.client.inflight and not self.stage.resting:
                shared = f"r/{self.rng.randrange(RETAINED)}"
                topic = shared if self.rng.random() < 0.7 else self.rng.choice(self.own)
                self.sent += 1
                value = "" if self.rng.random() < 0.15 else f"{self.name}:{self.sent}"
                self.client.publish(topic, value, self.rng.choice((1, 2)), retain=True)
            await self.pause(0.05, 0.3)
            if self.client.inflight:
                self.stage.busy[self.name] = "waits for an acknowledgement"
            elif self.client.connected:
                self.stage.busy.pop(self.name, None)


class Looker(Actor):
    """Reads all retained messages, with a new transient session each time."""

    def __init__(self, workload: Workload, number: int, topics: set[str]) -> None:
        super().__init__(workload, f"looker{number}", transient=1)
        self.topics = topics
        self.looks = 0

    async def run(self) -> None:
        while not self.stage.resting:
            await self.look(self.rng.choice(list(self.plan.mqtt)))
            await self.pause(0.2, 1.0)

    async def look(self, node: str) -> bool:
        """Whether a node has answered; what is missing then is not there."""
        self.looks += 1
        client = Client(self.recorder, f"{self.name}-{self.looks}", self.plan.mqtt, expiry_s=0)
        if not await client.connect(node, clean=True):
            return False
        done = await client.subscribe([("r/#", 1)])
        left = QUIET_S
        while done and client.connected and not self.topics <= client.seen and left > 0:
            await asyncio.sleep(0.05)
            left -= 0.05
        if done and client.connected and not self.topics <= client.seen:
            self.recorder.add("quiet", k=client.number)
        done = done and client.connected
        client.disconnect()
        return done


class Reader(Actor):
    """Reads the stream over HTTP: on from where it was, now and then something old again, from any node."""

    async def run(self) -> None:
        ends = dict.fromkeys(range(self.plan.partitions), 0)
        while not self.stage.resting:
            partition = self.rng.randrange(self.plan.partitions)
            begin = ends[partition]
            if self.rng.random() < 0.2:
                begin = self.rng.randrange(begin + 1)
            node = self.rng.choice(list(self.plan.mqtt))
            ends[partition] = max(ends[partition], await self.page(node, partition, begin))
            await self.pause(0.1, 0.4)

    async def page(self, node: str, partition: int, begin: int) -> int:
        """Read one page, and note it; the offset after it."""
        sent = self.recorder.now()
        path = f"/api/v1/streams/{STREAM}/partitions/{partition}/records?from={begin}&max_bytes=262144"
        accept = "application/x-ndjson"
        status, headers, body = await request(self.plan.admin[node], path, token=self.plan.token, accept=accept)
        rows = [json.loads(line) for line in body.splitlines()] if status == 200 else []
        records = [[row["offset"], row["topic"], value_of(payload(row)), row["publisher"]] for row in rows]
        end = int(headers.get("folkmoot-end", "-1"))
        noted = {"node": node, "sent": sent, "partition": partition, "from": begin, "status": status, "end": end}
        self.recorder.add("records", **noted, records=records)
        return int(headers.get("folkmoot-next-offset", begin)) if status == 200 else begin

    async def whole(self, node: str, wait_s: float) -> bool:
        """Read all of the stream at one node; whether it has answered everything."""
        until = asyncio.get_running_loop().time() + wait_s
        for partition in range(self.plan.partitions):
            at = 0
            while True:
                after = await self.page(node, partition, at)
                if asyncio.get_running_loop().time() > until:
                    return False
                if after == at:
                    break
                at = after
        return True


def payload(row: dict[str, str]) -> bytes:
    """The payload of a record; those of this workload are text."""
    return row.get("payload", "").encode()


class Teller(Actor):
    """Stages and commits transactions over HTTP, at any node, repeating a request until it is answered; or aborts."""

    def __init__(self, workload: Workload, number: int) -> None:
        super().__init__(workload, f"teller{number}")

    async def run(self) -> None:
        number = 0
        while not self.stage.resting:
            number += 1
            await self.transaction(number, aborted=self.rng.random() < 0.2)
            await self.pause(0.2, 1.0)

    async def transaction(self, number: int, *, aborted: bool) -> None:
        parts = self.rng.randrange(1, 3)
        values = [f"{self.name}:{number}:{place}" for place in range(parts * 3)]
        topics = [f"t/{self.name}/{self.rng.randrange(3)}" for _ in values]
        messages = [list(one) for one in zip(topics, values, strict=True)]
        self.recorder.add("stage", app=self.name, number=number, messages=messages)
        for part in range(parts):
            packets = [
                publish(topic, payload_of(value), qos=2, retain=False, dup=False, packet_id=place + 1)
                for place, (topic, value) in enumerate(messages[part * 3 : part * 3 + 3])
            ]
            if not await self.until_done("PUT", f"/{number}/{part}/0", b"".join(packets)):
                return
        if aborted:
            await self.until_done("DELETE", f"/{number}/0", b"")
            return
        self.recorder.add("commit", app=self.name, number=number)
        asked = {"parts": [[str(part), 1] for part in range(parts)]}
        done = await self.until_done("POST", f"/{number}/commit", json.dumps(asked).encode())
        if not self.stage.ended:
            self.recorder.add("committed" if done else "uncommitted", app=self.name, number=number)

    async def until_done(self, method: str, path: str, body: bytes) -> bool:
        """Whether a node has answered with success before the end of the run; a refusal that is final is no success."""
        while not self.stage.ended:
            self.stage.busy[self.name] = f"waits for {method} {path}"
            place = self.plan.admin[self.rng.choice(list(self.plan.mqtt))]
            whole = f"/api/v1/transactions/{self.name}{path}"
            status, _, _ = await request(place, whole, token=self.plan.token, method=method, body=body)
            if status and status not in (503, 507):
                self.stage.busy.pop(self.name, None)
                return 200 <= status < 300
            await asyncio.sleep(AGAIN_S)
        return False


class Prober(Actor):
    """Asks a node whether it is ready, and whether it serves a new client."""

    def __init__(self, workload: Workload, node: str) -> None:
        super().__init__(workload, f"probe-{node}")
        self.place = node
        self.probes = 0

    async def run(self) -> None:
        await asyncio.gather(self.poll(), self.probe())

    async def poll(self) -> None:
        while not self.stage.ended:
            sent = self.recorder.now()
            status, _, _ = await request(self.plan.admin[self.place], "/health/ready")
            self.recorder.add("ready", node=self.place, sent=sent, status=status)
            self.ready = status == 200
            await asyncio.sleep(0.5)

    ready = False

    async def probe(self) -> None:
        while not self.stage.ended:
            if self.ready and not self.stage.reading:
                await self.once()
            await asyncio.sleep(1.0)

    async def once(self) -> None:
        self.probes += 1
        client = Client(self.recorder, f"{self.name}-{self.probes}", self.plan.mqtt, expiry_s=0)
        if await client.connect(self.place, clean=True):
            client.publish(f"j/probe/{self.place}", client.id, 1)
            left = PROBE_S
            while client.inflight and client.connected and left > 0:
                await asyncio.sleep(0.02)
                left -= 0.02
            client.disconnect()


class Workload:
    """All actors of a run."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan, self.recorder, self.stage = plan, recorder, Stage()
        self.publishers = [Publisher(self, number, 6) for number in range(6)]
        self.writers = [Writer(self, number) for number in range(2)]
        topics = {f"r/{place}" for place in range(RETAINED)} | {topic for one in self.writers for topic in one.own}
        self.lookers = [Looker(self, number, topics) for number in range(2)]
        self.readers = [Reader(self, f"reader{number}") for number in range(2)]
        self.subscribers = self._subscribers()
        self.others: list[Actor] = [Mortal(self, 0, 0), Mortal(self, 1, 0), Mortal(self, 2, 2)]
        self.others += [Twins(self, 0), Twins(self, 1), Teller(self, 0), Teller(self, 1)]
        self.probers = [Prober(self, name) for name in plan.mqtt]
        self.tasks: list[asyncio.Task[None]] = []

    def _subscribers(self) -> list[Subscriber]:
        found = [
            Subscriber(self, "steady", [("j/#", 2)], (8.0, 20.0), (0.1, 0.5)),
            Subscriber(self, "overlap", [("j/+", 1), ("j/#", 2), ("j/1", 0)], (1.0, 4.0), (0.2, 2.0)),
            Subscriber(self, "long", [("j/0", 1), ("j/1", 2), ("j/2", 1)], (1.0, 4.0), (3.0, 8.0)),
            Subscriber(self, "fickle", [("j/5", 2)], (2.0, 6.0), (0.2, 1.0), "j/4"),
            Subscriber(self, "wills", [("w/#", 2)], (4.0, 12.0), (0.2, 1.0)),
            Subscriber(self, "teller-book", [("t/#", 2)], (2.0, 8.0), (0.2, 2.0)),
        ]
        groups = [f"group{number}" for number in range(3)]
        found += [Subscriber(self, name, [("$share/g/j/3", 2)], (2.0, 8.0), (0.2, 2.0)) for name in groups]
        for number in range(SLEEPERS):
            qos = 1 + number % 2
            found.append(Subscriber(self, f"sleeper{number}", [(f"s/{number}", qos)], (0.5, 4.0), (2.0, 10.0)))
        homes = list(self.plan.mqtt)
        for number in range(GUESTS):
            filters = [(f"d/{(number + step) % GUESTS}", 1 + step % 2) for step in (0, 7, 13)]
            found.append(
                Subscriber(self, f"guest{number}", filters, (0.2, 1.5), (1.0, 6.0), home=homes[number % len(homes)])
            )
        return found

    # --- how it goes

    async def await_nodes(self, wait_s: float) -> None:
        """Wait until the nodes that run from the beginning are members of one cluster."""
        until = asyncio.get_running_loop().time() + wait_s
        waiting = list(self.plan.first)
        while waiting:
            assert asyncio.get_running_loop().time() < until, f"no cluster: {waiting} are not members"
            found = await ask(self.plan.admin[waiting[0]], "/api/v1/status", self.plan.token)
            active = sorted(node["id"] for node in found["nodes"] if node["state"] == "active") if found else []
            parts = found["partitions"] if found else {"open": 0, "total": 1, "moving": 1}
            if active == sorted(self.plan.first) and parts["open"] == parts["total"] and not parts["moving"]:
                waiting.pop(0)
            else:
                await asyncio.sleep(0.2)

    async def await_copies(self) -> str:
        """Wait until all partitions have all their copies in sync, or too long; return whether they have, in words."""
        until = asyncio.get_running_loop().time() + COPIES_S
        while True:
            for place in self.plan.admin.values():
                found = await ask(place, "/api/v1/status", self.plan.token)
                parts = found["partitions"] if found else {"under_replicated": 1, "moving": 0}
                if not parts["under_replicated"] and not parts["moving"]:
                    return WHOLE
            if asyncio.get_running_loop().time() >= until:
                return "not all copies are in sync"
            await asyncio.sleep(0.2)

    async def begin(self) -> None:
        """Subscribe, then publish."""
        self.tasks += [asyncio.create_task(one.run()) for one in self.subscribers]
        await asyncio.wait_for(asyncio.gather(*(one.subscribed.wait() for one in self.subscribers)), SETUP_S)
        rest = [*self.publishers, *self.writers, *self.lookers, *self.readers, *self.others, *self.probers]
        self.tasks += [asyncio.create_task(one.run()) for one in rest]

    async def rest(self) -> None:
        """After the last fault: publish nothing new, take everything; then read all that is kept at every node."""
        self.recorder.add("phase", name="rest")
        self.stage.resting = True
        calm = await self._calm()
        for publisher in self.publishers:
            if publisher.client.connected:
                publisher.finish()
        self.stage.reading = True
        await asyncio.sleep(1.0)
        if calm and await self._calm():
            await self._silence()
        self.recorder.add("phase", name="final")
        looks = asyncio.gather(*(self.lookers[0].look(node) for node in self.plan.first))
        for node in self.plan.first:
            await self.readers[0].whole(node, 10.0)
        await looks
        await asyncio.sleep(1.0)
        self.recorder.add("phase", name="end")
        self.stage.ended = True
        broken = [task.exception() for task in self.tasks if task.done() and not task.cancelled()]
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for error in broken:
            if error is not None:
                raise error

    async def _calm(self) -> bool:
        """Wait until everybody is connected and nobody waits for an acknowledgement, within a bound."""
        left = REST_S
        while left > 0 and (self.stage.busy or not all(one.client.connected for one in self.subscribers)):
            await asyncio.sleep(0.2)
            left -= 0.2
        if left <= 0:
            self.recorder.add("unsettled", busy=self.stage.busy)
        return left > 0

    async def _silence(self) -> None:
        """Wait until nothing has come for a while, within a bound."""
        left, heard, quiet = REST_S, -1, 0.0
        while left > 0 and quiet < QUIET_S:
            now = sum(one.client.arrivals for one in self.subscribers)
            quiet = quiet + 0.2 if now == heard else 0.0
            heard = now
            await asyncio.sleep(0.2)
            left -= 0.2

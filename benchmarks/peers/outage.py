"""kill -9 of a node of any cluster under load: how long until PUBACK and until delivery, and what was lost.

Owns the readers, the kills, and the count of what never arrived. The publishers are those of `benchmarks.failover`. Who
leads a session is not known of every broker: so all clients are watched, those at the killed node and those elsewhere
apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.failover import ANSWER_S, CLIENTS, REST_S, Failing, Line, Roaming, await_answers, quantiles, subscribe
from benchmarks.nodes import Cluster
from benchmarks.rounds import Bench, Figures
from folkmoot.mqtt.packet import PUBACK, Ack, Publish

__all__ = ["CONNECTED", "DELIVERED", "ELSEWHERE", "Outages", "Pair", "Reader", "run_outages"]

KILLS_MAX: Final = 9
# Longer than any of the brokers takes to elect a leader, or to send again what was in flight (NATS: `ack_wait`, 30 s).
PATIENCE_S: Final = 60.0
POLL_S: Final = 0.1
WARMUP_S: Final = 1.0
CONNECTED: Final = "PUBACK, publisher connected to it"
ELSEWHERE: Final = "PUBACK, publisher connected elsewhere"
DELIVERED: Final = "delivery, all"


class Reader(Roaming):
    """The session of a publisher: connected to the node after the publisher's, and always reading."""

    def __init__(self, number_of_client: int, client: Failing) -> None:
        super().__init__(client.ports, number_of_client + 1, client.session, clean=False)
        self.client = client
        self.sessions_lost = 0
        self.delivered: list[tuple[int, float]] = []  # a message's number, and when it came
        self.first = 0

    def talk(self, line: Line, at: str) -> None:
        """Read and acknowledge; a session that is not there any more is made anew."""
        if not line.session_present:
            self.sessions_lost += 1
            subscribe(line, self.client.topic, ANSWER_S)
        while self.stays(at):
            packet = line.receive(POLL_S)
            if isinstance(packet, Publish):
                number = int(packet.payload)
                self.delivered.append((number, time.monotonic()))
                self.client.found.add(number)
                line.send(Ack(PUBACK, packet.packet_id))

    def expect(self) -> None:
        """Wait for messages that are not sent yet: the next one may be on its way, the one after it is not."""
        self.delivered.clear()
        self.first = self.client.count + 2

    def next_after(self, moment: float) -> float | None:
        """Return when the first message came that was sent after `expect`."""
        return next((when for number, when in list(self.delivered) if number >= self.first and when > moment), None)


class Pair:
    """A publisher and the session that it publishes to."""

    def __init__(self, number: int, ports: dict[str, int]) -> None:
        self.publisher = Failing(number, ports)
        self.reader = Reader(number, self.publisher)

    def come_home(self) -> None:
        """Have both connect to the nodes where they began."""
        for client in (self.publisher, self.reader):
            client.at = client.home
        self.publisher.acknowledged = self.publisher.acknowledged[-1:]


@dataclass
class Outages:
    """Pauses in seconds by what was waited for, and how many clients waited in vain."""

    pauses: dict[str, list[float]] = field(default_factory=lambda: {CONNECTED: [], ELSEWHERE: [], DELIVERED: []})
    stuck: int = 0

    def strike(self, cluster: Cluster, name: str, pairs: list[Pair]) -> None:
        """Kill a node, and note when all clients are served again."""
        publishers = {pair.publisher: CONNECTED if pair.publisher.at == name else ELSEWHERE for pair in pairs}
        moment = cluster.kill(name)
        for pair in pairs:
            pair.reader.expect()
        for why in (CONNECTED, ELSEWHERE):
            waiting = [client.next_after for client, reason in publishers.items() if reason == why]
            self.stuck += await_answers(waiting, moment, self.pauses[why], PATIENCE_S)
        readers = [pair.reader.next_after for pair in pairs]
        self.stuck += await_answers(readers, moment, self.pauses[DELIVERED], PATIENCE_S)


def run_outages(bench: Bench, cluster: Cluster, name: str) -> Figures:
    """Kill the nodes of a cluster in turn; return the pauses, and what was acknowledged and never delivered."""
    pairs = [Pair(number, cluster.mqtt_ports()) for number in range(CLIENTS)]
    outages = Outages()
    kills = min(bench.kills, KILLS_MAX)
    try:
        for pair in pairs:
            pair.publisher.prepare()
        for pair in pairs:
            pair.reader.start()
            pair.publisher.start()
        time.sleep(WARMUP_S)
        for kill in range(kills):
            bench.note(f"{name}, kill {kill + 1} of {kills}")
            victim = cluster.names[kill % len(cluster.names)]
            outages.strike(cluster, victim, pairs)
            cluster.start(victim)
            cluster.await_whole()
            for pair in pairs:
                pair.come_home()
            time.sleep(REST_S)
        for pair in pairs:
            pair.publisher.ended.set()
        for pair in pairs:
            pair.publisher.join(PATIENCE_S)
        bench.note(f"{name}, counting what arrived")
        lost = missing(pairs)
    finally:
        for pair in pairs:
            pair.publisher.ended.set()
            pair.reader.ended.set()
    return {
        "kills": kills,
        "messages": sum(pair.publisher.count for pair in pairs),
        "pauses": {why: quantiles(found) for why, found in outages.pauses.items()},
        "stuck": outages.stuck,
        "sessions_lost": sum(pair.reader.sessions_lost for pair in pairs),
        "lost": lost,
    }


def missing(pairs: list[Pair]) -> int:
    """Return how many acknowledged messages no reader has had, once all have come or for long enough."""
    deadline = time.monotonic() + PATIENCE_S
    while (count := sum(pair.publisher.missing() for pair in pairs)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return count

"""Failover: from kill -9, or SIGSTOP, of a node to the next acknowledged publish of each client that it concerns.

Owns this section's clients, kills and table. Each client publishes with QoS 1, one message at a time, to a persistent
session of its own; a client is concerned when the killed node led that session, or when it was connected to that node.
Between kills each session is read until it is empty, so that the last kill finds as much data as the first one. The
nodes are compiled or not as the rest; what is found lost afterwards is a fault. A node that is stopped closes no
connections: how long its own clients wait for it is up to them, so only the others are counted.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from benchmarks.nodes import Nodes
from benchmarks.rounds import Bench, Figures, digits
from benchmarks.table import markdown, number
from folkmoot.kernel.errors import FolkmootError
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import PUBACK, V311, Ack, Connack, Connect, Packet, Publish, Suback, Subscribe

CLIENTS = 18
PACE_S = 0.005
WAIT_S = 20.0
DIAL_S = 0.05
REST_S = 0.3
ANSWER_S = 3.0
EMPTY_S = 0.1
IDLE_S, IDLE_QUICK_S, IDLE_REST_S = 20.0, 5.0, 5.0
RESUME_S = 1.0
HANGS_EVERY = 5  # kills, for which a node is stopped once
LED, CONNECTED = "session led by it, connected elsewhere", "connected to it"


class Line:
    """One MQTT connection that blocks; ConnectionError when it is gone or silent for too long."""

    def __init__(
        self, port: int, client_id: str, clean: bool, user: str | None = None, password: bytes | None = None
    ) -> None:
        self.framer = Framer(1 << 20)
        self.waiting: list[Packet] = []
        self.socket = socket.create_connection(("127.0.0.1", port), 1.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.send(Connect(V311, client_id, clean, 60, user, password, None, None))
            answer = self.receive(ANSWER_S)
            if not isinstance(answer, Connack) or answer.code:
                raise ConnectionError(f"refused: {answer}")
            self.session_present = answer.session_present
        except BaseException:
            self.socket.close()
            raise

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, V311))

    def take(self) -> list[Packet]:
        """Return the packets that a read brings; ConnectionError when there is no connection any more."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        return [decode(first, body, V311) for first, body in self.framer.feed(data)]

    def receive(self, timeout_s: float) -> Packet | None:
        """Return the next packet, None when nothing came in time."""
        deadline = time.monotonic() + timeout_s
        while not self.waiting:
            if not select.select([self.socket], [], [], max(deadline - time.monotonic(), 0))[0]:
                return None
            self.waiting += self.take()
        return self.waiting.pop(0)


def subscribe(line: Line, topic: bytes, timeout_s: float = ANSWER_S) -> None:
    """Subscribe with QoS 1; raises ConnectionError."""
    line.send(Subscribe(1, [(topic, 1)]))
    answer = line.receive(timeout_s)
    if not isinstance(answer, Suback):
        raise ConnectionError(f"not subscribed: {answer}")


class Roaming(threading.Thread):
    """A client that goes to the next node when its connection is lost: `home` is where it begins, `at` where it is."""

    def __init__(self, ports: dict[str, int], home: int, client_id: str, clean: bool) -> None:
        super().__init__(daemon=True)
        self.ports = ports
        self.names = list(ports)
        self.home = self.names[home % len(self.names)]
        self.at = self.home
        self.client_id = client_id
        self.clean = clean
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            at = self.at
            try:
                line = Line(self.ports[at], self.client_id, self.clean)
                try:
                    self.talk(line, at)
                finally:
                    line.socket.close()
            except (OSError, FolkmootError):
                self.at = self.names[(self.names.index(self.at) + 1) % len(self.names)]
                self.ended.wait(DIAL_S)

    def talk(self, line: Line, at: str) -> None:
        """Use a connection to a node for as long as `stays` says."""
        raise NotImplementedError

    def stays(self, at: str) -> bool:
        """Tell whether it is neither to end nor to go elsewhere."""
        return not self.ended.is_set() and self.at == at


class Failing(Roaming):
    """A publisher with a persistent session to publish to."""

    def __init__(self, number_of_client: int, ports: dict[str, int]) -> None:
        super().__init__(ports, number_of_client, f"failover-p{number_of_client}", clean=True)
        self.session = f"failover-s{number_of_client}"
        self.topic = b"failover/%d" % number_of_client
        self.acknowledged: list[tuple[float, float]] = []  # when it was sent (again), when PUBACK came
        self.count = 0
        self.found: set[int] = set()  # the messages that its session has had

    def prepare(self) -> None:
        """Make the session."""
        line = Line(self.ports[self.at], self.session, clean=False)
        subscribe(line, self.topic)
        line.socket.close()

    def talk(self, line: Line, at: str) -> None:
        """Publish; what was not acknowledged is sent again elsewhere."""
        while self.stays(at):
            packet_id = self.count % 60_000 + 1
            sent = time.monotonic()
            line.send(Publish(self.topic, b"%d" % (self.count + 1), 1, False, False, packet_id))
            answer = line.receive(WAIT_S)
            if not isinstance(answer, Ack) or answer.kind != PUBACK:
                raise ConnectionError(f"no PUBACK: {answer}")
            self.count += 1
            self.acknowledged.append((sent, time.monotonic()))
            self.ended.wait(PACE_S)

    def next_after(self, moment: float) -> float | None:
        """Return when the first message that was sent after a moment was acknowledged.

        One that was on its way at that moment may have been safe already.
        """
        return next((came for sent, came in list(self.acknowledged) if sent > moment), None)

    def missing(self) -> int:
        """Return how many acknowledged messages its session has not had so far."""
        return len(set(range(1, self.count + 1)) - self.found)

    def fetch(self, patience_s: float) -> None:
        """Read its session until nothing has come for so long."""
        line = Line(self.ports[self.at], self.session, clean=False)
        with contextlib.suppress(ConnectionError):
            while len(self.found) < self.count and (packet := line.receive(patience_s)) is not None:
                if isinstance(packet, Publish):
                    self.found.add(int(packet.payload))
                    line.send(Ack(PUBACK, packet.packet_id))
        line.socket.close()


@dataclass
class Times:
    """Pauses in seconds, by why a client was concerned; of_controllers: those after kills of the controller."""

    pauses: dict[str, list[float]] = field(default_factory=lambda: {LED: [], CONNECTED: []})
    controllers: int = 0
    of_controllers: list[float] = field(default_factory=list)
    hangs: list[float] = field(default_factory=list)
    stuck: int = 0


def run(bench: Bench) -> Figures:
    """Kill nodes in turn under load; return the pauses, and what was lost."""
    nodes = Nodes(bench.fresh("failover"), 3, 3, "--durability", "fsync")
    clients = [Failing(number_of_client, nodes.mqtt_ports()) for number_of_client in range(CLIENTS)]
    times = Times()
    try:
        idle = idle_share(nodes, IDLE_QUICK_S if bench.quick else IDLE_S)
        for client in clients:
            client.prepare()
        for client in clients:
            client.start()
        time.sleep(1.0)
        for kill in range(bench.kills):
            bench.note(f"kill {kill + 1} of {bench.kills}")
            strike(nodes, nodes.names[kill % len(nodes.names)], clients, times)
        hangs = max(bench.kills // HANGS_EVERY, 1)
        for hang in range(hangs):
            bench.note(f"hang {hang + 1} of {hangs}")
            suspend(nodes, nodes.names[hang % len(nodes.names)], clients, times)
        for client in clients:
            client.ended.set()
        for client in clients:
            client.join(WAIT_S)
        bench.note("counting what arrived")
        for client in clients:
            client.fetch(ANSWER_S)
        missing = sum(client.missing() for client in clients)
    finally:
        for client in clients:
            client.ended.set()
        nodes.stop()
    figures: Figures = {"kills": bench.kills, "clients": CLIENTS, "messages": sum(client.count for client in clients)}
    figures["idle_share_of_core"] = digits(idle)
    figures["pauses"] = {why: quantiles(found) for why, found in times.pauses.items()}
    figures["pauses"]["all"] = quantiles([pause for found in times.pauses.values() for pause in found])
    figures["controllers"] = times.controllers
    figures["controller_pauses"] = quantiles(times.of_controllers)
    figures["hangs"] = hangs
    figures["hang_pauses"] = quantiles(times.hangs)
    faults = {"lost": missing, "stuck": times.stuck}
    if any(faults.values()):
        figures["faults"] = {kind: count for kind, count in faults.items() if count}
    return figures


def strike(nodes: Nodes, name: str, clients: list[Failing], times: Times) -> None:
    """Kill a node, note the pauses, and bring it back."""
    concerned = concerned_by(nodes, name, clients)
    controls = nodes.controller() == name
    moment = nodes.kill(name)
    times.controllers += controls
    for why, found in times.pauses.items():
        waiting = [client for client, reason in concerned.items() if reason == why]
        pauses: list[float] = []
        times.stuck += await_answers([client.next_after for client in waiting], moment, pauses)
        found += pauses
        if controls:
            times.of_controllers += pauses
    nodes.start(name)
    recover(nodes, clients)


def suspend(nodes: Nodes, name: str, clients: list[Failing], times: Times) -> None:
    """Stop a node with SIGSTOP, note the pauses of clients that are connected elsewhere, and let it go on."""
    concerned = concerned_by(nodes, name, clients)
    pid = nodes.pids()[name]
    os.kill(pid, signal.SIGSTOP)
    moment = time.monotonic()
    try:
        waiting = [client for client, reason in concerned.items() if reason == LED]
        times.stuck += await_answers([client.next_after for client in waiting], moment, times.hangs)
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(RESUME_S)  # until it knows that the others went on without it
    recover(nodes, clients)


def concerned_by(nodes: Nodes, name: str, clients: list[Failing]) -> dict[Failing, str]:
    """Return the clients that the end of a node concerns, and why."""
    leaders = nodes.leaders()
    concerned = {}
    for client in clients:
        if client.at == name:
            concerned[client] = CONNECTED
        elif leaders[hash64(client.session.encode()) % len(leaders)] == name:
            concerned[client] = LED
    return concerned


def await_answers(
    clients: Sequence[Callable[[float], float | None]], moment: float, pauses: list[float], patience_s: float = WAIT_S
) -> int:
    """Note how long after a moment each client was served again; return how many were not.

    clients: functions that tell when a client was first served after a moment, None if it was not yet.
    """
    waiting = list(clients)
    deadline = moment + patience_s
    while waiting and time.monotonic() < deadline:
        for served in list(waiting):
            when = served(moment)
            if when is not None:
                pauses.append(when - moment)
                waiting.remove(served)
        time.sleep(0.01)
    return len(waiting)


def recover(nodes: Nodes, clients: list[Failing]) -> None:
    """Wait until all copies are complete, have the clients come back to their nodes, and empty their sessions."""
    nodes.await_whole()
    for client in clients:
        client.at = client.home
        client.acknowledged = client.acknowledged[-1:]
    for client in clients:
        client.fetch(EMPTY_S)
    time.sleep(REST_S)


def idle_share(nodes: Nodes, seconds: float) -> float:
    """Return the share of a core that all nodes use together while nothing happens."""
    nodes.await_whole()
    time.sleep(IDLE_REST_S)
    processes = [psutil.Process(pid) for pid in nodes.pids().values()]
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    time.sleep(seconds)
    return float(sum(sum(process.cpu_times()[:2]) for process in processes) - before) / seconds


def quantiles(values: list[float]) -> Figures:
    """Return count, p50, p99 and max in milliseconds."""
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    at = {"p50_ms": 0.50, "p99_ms": 0.99}
    found = {name: ordered[min(int(share * len(ordered)), len(ordered) - 1)] for name, share in at.items()}
    found["max_ms"] = ordered[-1]
    return {"count": len(values)} | {name: digits(value * 1000) for name, value in found.items()}


def table(figures: Figures) -> str:
    """Return the pauses, one row for each kind of client."""
    head = [f"kill -9 of one of three nodes, {figures['kills']} times", "pauses", "p50 ms", "p99 ms", "max ms"]
    rows = []
    kinds = [(f"clients {why}" if why != "all" else "all", found) for why, found in figures["pauses"].items()]
    kinds.append((f"of these, the controller was killed, {figures['controllers']} times", figures["controller_pauses"]))
    kinds.append((f"SIGSTOP instead, {figures['hangs']} times: {LED}", figures["hang_pauses"]))
    for kind, found in kinds:
        cells = [number(found[name]) if name in found else "-" for name in ("p50_ms", "p99_ms", "max_ms")]
        rows.append([kind, f"{found['count']:,}", *cells])
    text = markdown(head, rows)
    lost = figures.get("faults")
    said = (
        f"- failed: {lost}" if lost else f"{figures['messages']:,} messages were acknowledged, none of them was lost."
    )
    idle = f"Before, the three idle nodes used {number(100 * figures['idle_share_of_core'])} % of a core together."
    return f"{text}\n\n{said} {idle}"

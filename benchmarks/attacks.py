"""Attacks on one node of three, and what well-behaved clients feel of it.

Owns the cluster, the clients that measure, and the table; what is sent is in `benchmarks/hostile.py`. A device
publishes through the attacked node, and the session that gets its messages is stored and read at another one.
Meanwhile clients come that have never been there, from another address.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from benchmarks.failover import Line
from benchmarks.flow import fill
from benchmarks.hostile import ATTACKS, NEW_USERS, RECORDS, Attack, Places, started
from benchmarks.nodes import Nodes
from benchmarks.rounds import Bench, Figures, digits
from benchmarks.table import markdown, number
from folkmoot.client.loadloop import raise_file_limit
from folkmoot.client.processmeter import ProcessMeter
from folkmoot.config.password import PasswordFile
from folkmoot.kernel.errors import FolkmootError
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, V311, Ack, Connect, Publish, Suback, Subscribe

__all__ = ["run", "table"]

FACTORS = (1, 10)
ATTACK_S = 10.0
ATTACK_QUICK_S = 2.0
CALM_S = 3.0
BUDGET_MEBIBYTES = 512
FILES_WANTED = 20_000
PERIOD_S = 0.02
ARRIVAL_S = 0.25
ANSWER_S = 20.0
ELSEWHERE = "127.0.0.9"
PASSWORD = b"correct horse battery staple"
SECRET = "a-secret-of-a-benchmark-cluster"
CERTIFICATES = Path(__file__).resolve().parent.parent / "tests" / "integration" / "certificates"
CONFIG = """
[auth]
password_file = "{folder}/users"
allow_anonymous = true
[cluster]
secret_file = "{folder}/secret"
[limits]
memory_bytes_max = "{budget}MiB"
[streams.kept]
filter = "kept/#"
"""


def nothing(_places: Places, _factor: int, over: threading.Event) -> None:
    """What clients see without an attack."""
    over.wait()


QUIET = Attack("none", 0, nothing)


class Hardened(Nodes):
    """Three nodes with all kinds of listeners; `files_max`: the descriptors that each may have, 0: as many as are."""

    kinds: ClassVar[tuple[str, ...]] = ("mqtt", "mqtts", "ws", "admin", "peer")

    def __init__(self, folder: Path, files_max: int) -> None:
        self.files_max = files_max
        file = PasswordFile()
        file.set("well", PASSWORD)
        for client in range(NEW_USERS):  # one hash for all: to make each its own would take a while
            file.hashes[f"new{client}"] = file.hashes["well"]
        file.write(folder / "users")
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o600)
        (folder / "config.toml").write_text(CONFIG.format(folder=folder, budget=BUDGET_MEBIBYTES))
        key = folder / "server.key"
        key.write_bytes((CERTIFICATES / "server.key").read_bytes())
        key.chmod(0o600)
        options = ["--config", str(folder / "config.toml"), "--tls-key", str(key)]
        options += ["--tls-certificate", str(CERTIFICATES / "server.pem")]
        super().__init__(folder, 3, 3, "--durability", "fsync", *options)

    def command(self, name: str) -> list[str]:
        words = super().command(name)
        if not self.files_max:
            return words
        return ["bash", "-c", f'ulimit -n {self.files_max}; exec "$@"', "-", *words]

    def places(self) -> Places:
        """Where the first node listens."""
        return {kind: ("127.0.0.1", port) for kind, port in self.ports[self.names[0]].items()}


class Guarded(threading.Thread):
    """Works until `stop`; what went wrong is in `fault`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.fault = ""

    def run(self) -> None:
        try:
            self.work()
        except (OSError, FolkmootError) as error:
            self.fault = f"{type(self).__name__.lower()}: {error}"

    def work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.ended.set()
        self.join(2 * ANSWER_S)
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Device(Guarded):
    """Publishes with QoS 1 when it is due, whatever is on its way; each message must come once, by a stored session.

    trips_s: from when a message was due to its PUBACK and its delivery, whichever is later.
    """

    def __init__(self, publisher: int, subscriber: int) -> None:
        super().__init__()
        self.trips_s: list[float] = []
        self.reader = Line(subscriber, "well-reader", False, "well", PASSWORD)
        self.reader.send(Subscribe(1, [(b"well", 1)]))
        if not isinstance(self.reader.receive(ANSWER_S), Suback):
            raise ConnectionError("not subscribed")
        self.line = Line(publisher, "well-device", True, "well", PASSWORD)
        self.due: list[float] = []
        self.acknowledged: list[float] = []
        self.delivered: list[float] = []

    def work(self) -> None:
        due = time.monotonic()
        while not self.ended.is_set():
            if time.monotonic() >= due:
                self.due.append(due)
                sent = len(self.due)
                self.line.send(Publish(b"well", b"%d" % sent, 1, False, False, sent % 60_000 + 1))
                due += PERIOD_S
            self.take(max(due - time.monotonic(), 0))
        end = time.monotonic() + ANSWER_S
        while len(self.trips_s) < len(self.due):
            self.take(0.1)
            if time.monotonic() > end:
                raise ConnectionError(f"{len(self.due) - len(self.trips_s)} messages have not come")

    def take(self, wait_s: float) -> None:
        """Take what comes so soon; raises ConnectionError for what is wrong."""
        for sock in select.select([self.line.socket, self.reader.socket], [], [], wait_s)[0]:
            line = self.line if sock is self.line.socket else self.reader
            for packet in line.take():
                if isinstance(packet, Publish) and packet.payload == b"%d" % (len(self.delivered) + 1):
                    self.delivered.append(time.monotonic())
                    self.reader.send(Ack(PUBACK, packet.packet_id))
                elif isinstance(packet, Ack) and packet.packet_id == (len(self.acknowledged) + 1) % 60_000 + 1:
                    self.acknowledged.append(time.monotonic())
                else:
                    raise ConnectionError(f"after {len(self.delivered)} messages came {packet}")
        for which in range(len(self.trips_s), min(len(self.acknowledged), len(self.delivered))):
            self.trips_s.append(max(self.acknowledged[which], self.delivered[which]) - self.due[which])

    def close(self) -> None:
        self.line.socket.close()
        self.reader.socket.close()


class Arrivals(Guarded):
    """Clients that have never been there, each of a user of its own; `entered_s`: how long CONNACK took."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.entered_s: list[float] = []
        self.refused = 0

    def work(self) -> None:
        for client in range(NEW_USERS):
            if self.ended.wait(ARRIVAL_S):
                return
            began = time.monotonic()
            answer = b""
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), ANSWER_S, (ELSEWHERE, 0)) as sock,
            ):
                sock.sendall(encode(Connect(V311, "", True, 0, f"new{client}", PASSWORD, None, None), V311))
                answer = sock.recv(64)
            if answer[:1] == b"\x20" and answer[3:4] == b"\0":
                self.entered_s.append(time.monotonic() - began)
            else:
                self.refused += 1

    def close(self) -> None:
        """Every connection is closed already."""


def run(bench: Bench) -> Figures:
    """Run each attack once as it is, and ten times of it at once; return a row for each."""
    raise_file_limit(FILES_WANTED)
    seconds = ATTACK_QUICK_S if bench.quick else ATTACK_S
    rows: list[Figures] = []
    for attack in (QUIET, *ATTACKS):
        for factor in FACTORS[:1] if attack is QUIET else FACTORS:
            bench.note(attack.named(factor))
            rows.append(attacked(bench.fresh("attacks"), attack, factor, seconds))
    figures: Figures = {"seconds": seconds, "budget_mebibytes": BUDGET_MEBIBYTES, "rows": rows}
    faults = {row["attack"]: row["fault"] for row in rows if row["fault"]}
    return figures | {"faults": faults} if faults else figures


def attacked(folder: Path, attack: Attack, factor: int, seconds: float) -> Figures:
    """Attack the first of three nodes for some seconds; return what its clients saw."""
    nodes = Hardened(folder, attack.files_max)
    try:
        first, _, third = (nodes.ports[name]["mqtt"] for name in nodes.names)
        prepare(first)
        device, arrivals = Device(first, third), Arrivals(first)
        epochs = [status["epoch"] for status in nodes.statuses()]
        process = started(attack, nodes.places(), factor, seconds)
        device.start()
        arrivals.start()
        process.join(seconds)
        device.ended.set()
        arrivals.stop()
        device.stop()
        process.kill()
        process.join()
        # Whoever was put out of the view, or has come again, has made another epoch.
        alive = sum(one.process.poll() is None for one in nodes.servers.values())
        together = settled(nodes, epochs)
        memory = ProcessMeter(nodes.servers["n1"].pid).read().resident_peak_bytes if alive == len(nodes.names) else 0
    finally:
        nodes.stop()
    fault = "; ".join(text for text in (device.fault, arrivals.fault, "" if together else "a node was out") if text)
    return row(attack.named(factor), device.trips_s, arrivals, memory, alive) | {"fault": fault}


def prepare(port: int) -> None:
    """Publish what replays are of."""
    fill([port], [b"kept/%d" % topic for topic in range(100)], RECORDS, 100, lambda _: None)
    line = Line(port, "well-retained", True, "well", PASSWORD)
    batch = 500
    for first in range(0, RECORDS, batch):
        packets = [Publish(b"many/%d" % topic, b"x" * 20, 0, True) for topic in range(first, first + batch)]
        line.socket.sendall(b"".join(encode(packet, V311) for packet in packets))
    line.send(Publish(b"end", b"", 1, False, False, 1))
    if not isinstance(line.receive(60.0), Ack):
        raise ConnectionError("the retained messages were not taken")
    line.socket.close()


def settled(nodes: Nodes, epochs: list[int]) -> bool:
    """Return whether all nodes are members of the view in which they were before."""
    deadline = time.monotonic() + CALM_S
    while time.monotonic() < deadline:
        if found := nodes.statuses():
            return [status["epoch"] for status in found] == epochs
        time.sleep(0.1)
    return False


def row(name: str, trips_s: list[float], arrivals: Arrivals, memory: int, alive: int) -> Figures:
    return {
        "attack": name,
        "trips": len(trips_s),
        "p50_ms": at(trips_s, 0.5),
        "p99_ms": at(trips_s, 0.99),
        "max_ms": at(trips_s, 1.0),
        "entered": len(arrivals.entered_s),
        "refused": arrivals.refused,
        "enter_p99_ms": at(arrivals.entered_s, 0.99),
        "memory_mebibytes": round(memory / (1 << 20)),
        "alive": alive,
    }


def at(values: list[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    ordered = sorted(values)
    return digits(ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1000) if ordered else 0.0


def table(figures: Figures) -> str:
    """Return one row for each attack and size."""
    head = [
        "attack on one of three nodes",
        "round trips",
        "p50 ms",
        "p99 ms",
        "max ms",
        "new clients let in",
        "p99 ms",
        "memory MiB",
        "nodes that live",
    ]
    cell: Callable[[float], str] = number
    rows = [
        [
            found["attack"],
            f"{found['trips']:,}",
            *(cell(found[key]) for key in ("p50_ms", "p99_ms", "max_ms")),
            f"{found['entered']} of {found['entered'] + found['refused']}",
            cell(found["enter_p99_ms"]),
            f"{found['memory_mebibytes']:,}",
            f"{found['alive']} of 3",
        ]
        for found in figures["rows"]
    ]
    faults = "\n".join(f"- {name}: {text}" for name, text in figures.get("faults", {}).items())
    said = f"Each attack ran for {figures['seconds']:g} s:"
    return "\n\n".join(part for part in (said, markdown(head, rows), faults) if part)

"""Clients with passwords that return to the other nodes after kill -9 of theirs, all at once.

Owns the clients, the users and the two clusters: one with a secret, whose nodes tell each other which passwords they
have found right, and one without, whose nodes check each password anew (scrypt, 40 ms of a CPU). Every client has a
user of its own.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.nodes import Nodes
from benchmarks.rounds import Bench, Figures, digits
from benchmarks.table import markdown, number
from folkmoot.client.loadloop import raise_file_limit
from folkmoot.config.password import PasswordFile
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V311, Connect

CLIENTS = 10_000
CLIENTS_QUICK = 200
FILES_RESERVED = 1_000
AT_ONCE = 500
PATIENCE_S = 900.0
PASSWORD = b"correct horse battery staple"
SECRET = "a-secret-of-a-benchmark-cluster"
SHARED, ALONE = "nodes tell each other what they have found right", "each node checks for itself"


def run(bench: Bench) -> Figures:
    """Return how long it takes until all clients are back, in both clusters."""
    wanted = CLIENTS_QUICK if bench.quick else CLIENTS
    count = min(wanted, raise_file_limit(wanted + FILES_RESERVED) - FILES_RESERVED)
    figures: Figures = {"clients": count}
    for name, shares in ((SHARED, True), (ALONE, False)):
        folder = bench.fresh("returning")
        options = ["--durability", "fsync", "--password-file", str(users(folder, count))]
        if shares:
            secret = folder / "secret"
            secret.write_text(SECRET)
            secret.chmod(0o600)
            options += ["--secret-file", str(secret)]
        bench.note(f"{count:,} clients, {name}: connecting")
        nodes = Nodes(folder, 3, 3, *options)
        try:
            first = Crowd([nodes.ports["n1"]["mqtt"]], count)
            first.enter()
            bench.note(f"{count:,} clients, {name}: returning")
            moment = nodes.kill("n1")
            first.close()
            second = Crowd([nodes.ports[name]["mqtt"] for name in ("n2", "n3")], count)
            second.enter()
            figures[name] = {
                "first_s": digits(first.took_s),
                "back_s": digits(time.monotonic() - moment),
                "attempts": second.attempts,
            }
            second.close()
        finally:
            nodes.stop()
    return figures


def users(folder: Path, count: int) -> Path:
    """Write a file of users that have one password, and thus one hash: to make each its own would take minutes."""
    file = PasswordFile()
    file.set("u0", PASSWORD)
    for client in range(count):
        file.hashes[f"u{client}"] = file.hashes["u0"]
    path = folder / "users"
    file.write(path)
    return path


class Crowd:
    """`count` connections, in turn to the nodes at `ports`; a client that is cut off or refused tries again."""

    def __init__(self, ports: Sequence[int], count: int) -> None:
        self.ports = ports
        self.waiting = list(range(count))
        self.entered: list[socket.socket] = []
        self.attempts = 0
        self.took_s = 0.0
        self._selector = selectors.DefaultSelector()

    def enter(self) -> None:
        """Connect all of them, so many at once; raises RuntimeError if that takes too long."""
        began = time.monotonic()
        asking = 0
        while self.waiting or asking:
            if time.monotonic() - began > PATIENCE_S:
                raise RuntimeError(f"{len(self.waiting) + asking} clients are not connected after {PATIENCE_S:.0f} s")
            while self.waiting and asking < AT_ONCE:
                asking += self._ask(self.waiting.pop())
            for key, _ in self._selector.select(1.0):
                asking -= 1
                self._answered(key.fileobj, key.data)  # type: ignore[arg-type]
        self.took_s = time.monotonic() - began

    def _ask(self, client: int) -> int:
        self.attempts += 1
        sock = socket.create_connection(("127.0.0.1", self.ports[client % len(self.ports)]), 20.0)
        sock.sendall(encode(Connect(V311, f"c{client}", True, 0, f"u{client}", PASSWORD, None, None), V311))
        self._selector.register(sock, selectors.EVENT_READ, client)
        return 1

    def _answered(self, sock: socket.socket, client: int) -> None:
        self._selector.unregister(sock)
        data = b""
        with contextlib.suppress(OSError):
            data = sock.recv(64)
        if len(data) >= 4 and data[3] == 0:
            self.entered.append(sock)
        else:
            sock.close()
            self.waiting.insert(0, client)

    def close(self) -> None:
        for sock in self.entered:
            sock.close()
        self._selector.close()


def table(figures: Figures) -> str:
    """Return the times, one row for each cluster."""
    head = [f"{figures['clients']:,} clients with passwords", "first connect, s", "all back after kill -9, s"]
    rows = [[name, number(figures[name]["first_s"]), number(figures[name]["back_s"])] for name in (SHARED, ALONE)]
    return markdown(head, rows)

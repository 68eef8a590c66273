"""A cluster of real processes behind HAProxy, on loopback or in namespaces, and what is done to it."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.integration.cluster_net import HUB, Net
from tests.integration.serving import Serving, await_true

__all__ = ["ASK_S", "ClusterNode", "Door", "Rig"]

LOOPBACK = "127.0.0.1"
WHAT = {"mqtt": 1883, "admin": 8080, "peer": 7883}  # in a namespace
HAPROXY_PATHS = ("/usr/sbin/haproxy", "/usr/local/sbin/haproxy")
HEAL_S = 20.0
REST_S = 1.0
ASK_S = 0.1
"""How often a state of the cluster is asked for: each question is a request to every node."""

PORTS = 1_000  # of each worker, so that none takes what another one has drawn and does not listen on yet
PORT_MIN = 10_000  # to 20,000: neither the system nor `folkmoot cluster` picks any of these

CONFIG = """
[auth]
allow_anonymous = true
[admin]
token_file = "{folder}/token"
[cluster]
secret_file = "{folder}/secret"
split_policy = "{policy}"
"""

# Round robin, no stickiness, a node that is not ready gets nobody, and loses those it has.
HAPROXY = """
defaults
    mode tcp
    timeout connect 500ms
    timeout client 1h
    timeout server 1h
    timeout check 600ms
    retries 3
    option redispatch 1

listen mqtt
    bind {door}
    balance roundrobin
    option httpchk
    http-check send meth GET uri /health/ready hdr Authorization "Bearer {token}"
    http-check expect status 200
    default-server check inter 200ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


@dataclass(frozen=True)
class Door:
    """Where clients of all kinds come in: a TCP port, or a socket file (which namespaces do not hide)."""

    host: str
    port: int
    path: str = ""

    def dial(self) -> socket.socket:
        if self.path:
            found = socket.socket(socket.AF_UNIX)
            try:
                found.connect(self.path)
            except OSError:
                found.close()
                raise
            return found
        return socket.create_connection((self.host, self.port), 5.0)


class ClusterNode(Serving):
    """One node, with fixed addresses, so that it comes back where it was."""

    def __init__(self, name: str, data: Path, before: Sequence[str], admin: Door, *arguments: str, config: str) -> None:
        super().__init__(data, *arguments, config=config)
        self.name = name
        self.before = list(before)
        self.admin = admin
        self.token = ""

    def command(self) -> list[str]:
        return [*self.before, *super().command()]

    @property
    def runs(self) -> bool:
        return self.process is not None

    def ask(self, path: str) -> Any:
        """What the node answers on its admin port; None when it does not (dead, hung, cut off)."""
        connection = http.client.HTTPConnection("localhost", timeout=2.0)
        try:
            connection.sock = self.admin.dial()
            connection.sock.settimeout(2.0)
            connection.request("GET", path, headers={"authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            body = answer.read()
            return json.loads(body) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def ready(self) -> tuple[int, str]:
        """The status and the text of `/health/ready`."""
        connection = http.client.HTTPConnection("localhost", timeout=5.0)
        try:
            connection.sock = self.admin.dial()
            connection.request("GET", "/health/ready")
            answer = connection.getresponse()
            return answer.status, answer.read().decode().strip()
        finally:
            connection.close()

    def answer(self, path: str) -> Any:
        """What a node that is up answers, however busy the machine is."""
        deadline = time.monotonic() + HEAL_S
        while (answer := self.ask(path)) is None:
            assert time.monotonic() < deadline, f"{self.name} did not answer {path} for {HEAL_S} s"
            time.sleep(0.05)
        return answer

    def order(self, path: str) -> int:
        """Give an order on the admin port; the status of the answer."""
        connection = http.client.HTTPConnection("localhost", timeout=5.0)
        try:
            connection.sock = self.admin.dial()
            headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
            connection.request("POST", path, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Rig:
    """Nodes n1 to nN and HAProxy before them; `net` puts each in its namespace, `disks` some on disks of their own.

    more: lines of the configuration, the first of them of the section [cluster]. witness: a node without data.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        net: Net | None = None,
        *,
        policy: str = "available",
        disks: dict[str, Path] | None = None,
        more: str = "",
        witness: str = "",
    ) -> None:
        self.folder = folder
        self.net = net
        self.witness = witness
        # Socket files have short paths.
        self.sockets = Path(tempfile.mkdtemp(prefix="folkmoot"))
        self.token = "a-token-of-the-tests"
        (folder / "token").write_text(self.token)
        (folder / "secret").write_text("a-secret-that-all-nodes-of-a-test-share")
        (folder / "secret").chmod(0o600)
        self.names = [f"n{number}" for number in range(1, count + 1)]
        # All at once: of those that are drawn one by one two could be the same.
        self._ports = free_ports(len(WHAT) * count + 1) if net is None else []
        self.places = {name: self._place(name) for name in self.names}
        self.config = CONFIG.format(folder=folder, policy=policy) + more
        self.nodes = {name: self._node(name, (disks or {}).get(name, folder)) for name in self.names}
        self.haproxy: subprocess.Popen[bytes] | None = None
        self.door = Door(LOOPBACK, self._ports.pop()) if net is None else Door("", 1883, str(self.sockets / "mqtt"))

    def __enter__(self) -> Self:
        try:
            self._start_haproxy()
            self.start(*self.names)
            self.await_whole()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes.values():
            if node.runs:
                node.signal(signal.SIGCONT)
                node.kill()
        if self.haproxy is not None:
            self.haproxy.kill()
            self.haproxy.wait()
            self.haproxy = None
        shutil.rmtree(self.sockets, ignore_errors=True)

    # --- what is done to it

    def start(self, *names: str) -> None:
        """Start nodes, all at the same time, and wait for their lines `ready`."""
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(lambda name: self.nodes[name].start(), names))

    def kill(self, *names: str) -> None:
        """kill -9."""
        for name in names:
            self.nodes[name].signal(signal.SIGKILL)
        for name in names:
            self.nodes[name].kill()

    def freeze(self, name: str) -> None:
        self.nodes[name].signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.nodes[name].signal(signal.SIGCONT)

    def stop(self, name: str) -> None:
        """SIGTERM, as an operator does."""
        assert self.nodes[name].stop() == 0

    def empty(self, name: str) -> None:
        """Remove all that a node (which does not run) has on disk."""
        shutil.rmtree(self.nodes[name].data)

    def rename(self, name: str, new: str) -> None:
        """Let the node (which does not run) at the place of `name` have another id from now on."""
        node = self.nodes.pop(name)
        node.name = new
        node.arguments[node.arguments.index("--node-id") + 1] = new
        self.nodes[new] = node

    # --- what it says

    def mqtt(self, name: str) -> Door:
        """Where clients reach this node and no other."""
        if self.net is None:
            return Door(*self.places[name]["mqtt"])
        return Door("", 0, str(self.sockets / f"{name}-mqtt"))

    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.runs]

    def where(self, client: str) -> list[str]:
        """Who has a client's session: the leader first."""
        for _ in range(100):
            for node in self.running():
                found = node.ask(f"/api/v1/where?client={client}")
                if found is not None and found["leader"]:
                    return [found["leader"], *found["followers"]]
            time.sleep(0.05)
        raise AssertionError(f"no node knows who leads the session of {client}")

    def leader(self, client: str) -> str:
        return self.where(client)[0]

    def await_whole(self, timeout_s: float = HEAL_S) -> None:
        """Wait until all running nodes are up in one configuration, with all copies whole and equal."""
        try:
            await_true(lambda: not self.lacks(), timeout_s, ASK_S)
        except AssertionError:
            raise AssertionError(f"after {timeout_s} s: {'; '.join(self.lacks())}") from None

    def await_rest(self, timeout_s: float = HEAL_S) -> None:
        """Wait until no leadership moves: what a node is to lead again moves when its copies are whole."""

        def leaders() -> list[str]:
            return [one["leader"] for one in self.running()[0].answer("/api/v1/partitions")]

        deadline = time.monotonic() + timeout_s
        before, since = leaders(), time.monotonic()
        while time.monotonic() - since < REST_S:
            assert time.monotonic() < deadline, f"leaderships still move after {timeout_s} s"
            time.sleep(ASK_S)
            now = leaders()
            if now != before:
                before, since = now, time.monotonic()

    def await_out(self, name: str, timeout_s: float = 10.0) -> float:
        """Wait until a node is not up any more as the others know it; how long it took, in seconds."""
        began = time.monotonic()
        others = [node for node in self.running() if node.name != name]

        def out() -> bool:
            seen = [active(node.ask("/api/v1/status")) for node in others]
            return all(members and name not in members for members in seen)

        await_true(out, timeout_s, ASK_S)
        return time.monotonic() - began

    def lacks(self) -> list[str]:
        """What is not as it should be; nothing when the cluster is whole."""
        running = self.running()
        names = sorted(node.name for node in running if node.name != self.witness)
        found, epochs = [], set()
        for node in running:
            status = node.ask("/api/v1/status")
            if status is None:
                found.append(f"{node.name} does not answer")
                continue
            epochs.add(status["epoch"])
            parts = status["partitions"]
            if active(status) != names:
                found.append(f"{node.name} has members {active(status)} instead of {names}")
            if node.name == self.witness:
                if status["state"] != "witness":
                    found.append(f"{node.name} is {status['state']}")
                continue
            if status["state"] != "member" or not status["writable"]:
                found.append(f"{node.name} is {status['state']}, writable {status['writable']}")
            if parts["open"] != parts["total"]:
                found.append(f"{node.name}: {parts['open']} of {parts['total']} partitions open")
            bad = {key: parts[key] for key in ("under_replicated", "moving", "damaged", "digest_different")}
            if len(names) < status["replicas"]:
                del bad["under_replicated"]
            if any(bad.values()):
                found.append(f"{node.name}: {bad}")
        if len(epochs) > 1:
            found.append(f"epochs {sorted(epochs)}")
        return found

    def log(self, lines: int = 30) -> str:
        """The newest of what each node said, for a test that failed."""
        return "\n".join(f"--- {name}\n" + tail(node.errors, lines) for name, node in self.nodes.items())

    # --- how it is made

    def _place(self, name: str) -> dict[str, tuple[str, int]]:
        if self.net is None:
            return {what: (LOOPBACK, self._ports.pop()) for what in WHAT}
        return {what: (self.net.address(name), port) for what, port in WHAT.items()}

    def _node(self, name: str, folder: Path) -> ClusterNode:
        def at(place: tuple[str, int]) -> str:
            return f"{place[0]}:{place[1]}"

        words: list[str] = ["--node-id", name, "--replicas", "3"]
        for what, place in self.places[name].items():
            if what != "mqtt" or name != self.witness:
                words += [f"--{what}", at(place)]
        if name == self.witness:
            words.append("--witness")
        for other in self.names:  # the same list at all: the first of it founds the cluster
            words += ["--seed", at(self.places[other]["peer"])]
        before = self.net.enter(name) if self.net is not None else []
        admin = Door(*self.places[name]["admin"]) if self.net is None else Door("", 0, str(self.sockets / name))
        node = ClusterNode(name, folder / name, before, admin, *words, config=self.config)
        node.token = self.token
        return node

    def _start_haproxy(self) -> None:
        program = shutil.which("haproxy") or next((path for path in HAPROXY_PATHS if Path(path).is_file()), None)
        if program is None:
            pytest.skip("haproxy is missing (as root on Debian or Ubuntu: apt-get install haproxy)")
        servers, admins = [], []
        for name, place in self.places.items():
            (host, port), (_, health) = place["mqtt"], place["admin"]
            servers.append(f"    server {name} {host}:{port} check port {health}")
            if self.net is not None:
                bind = f"    bind unix@{self.sockets / name}"
                admins.append(f"listen admin-{name}\n{bind}\n    server {name} {host}:{health}\n")
                bind = f"    bind unix@{self.sockets / name}-mqtt"
                admins.append(f"listen mqtt-{name}\n{bind}\n    server {name} {host}:{port}\n")
        door = f"unix@{self.door.path}" if self.door.path else f"{self.door.host}:{self.door.port}"
        text = HAPROXY.format(door=door, token=self.token, servers="\n".join(servers)) + "\n" + "\n".join(admins)
        config = self.folder / "haproxy.cfg"
        config.write_text(text)
        before = self.net.enter(HUB) if self.net is not None else []
        with (self.folder / "haproxy.log").open("wb") as log:
            self.haproxy = subprocess.Popen([*before, program, "-db", "-f", str(config)], stdout=log, stderr=log)
        await_true(lambda: self._dialled() or self.haproxy is None or self.haproxy.poll() is not None)
        assert self.haproxy.poll() is None, (self.folder / "haproxy.log").read_text()

    def _dialled(self) -> bool:
        try:
            self.door.dial().close()
        except OSError:
            return False
        return True


def active(status: Any) -> list[str]:
    """The members that are up as a status tells, sorted; none when there is no status."""
    if status is None:
        return []
    return sorted(node["id"] for node in status["nodes"] if node["state"] == "active")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free now, and that nobody else gets while the node that has one is down."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = PORT_MIN + worker % 10 * PORTS
    found: list[int] = []
    for port in random.sample(range(begin, begin + PORTS), PORTS):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no port is free")


def tail(path: Path, lines: int) -> str:
    return "\n".join(path.read_text().splitlines()[-lines:]) if path.exists() else ""

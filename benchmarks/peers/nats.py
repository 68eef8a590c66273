"""NATS Server with JetStream: built from the Go module proxy, three nodes with MQTT.

Owns the version, the build, and the configuration. Sources, in nats-server v2.15.3:

- PUBACK is sent "once JetStream acks the store" (`server/mqtt.go`, mqttProcessPub). JetStream does that for a message
  of a replicated stream when Raft has committed it: two of three nodes have it.
- `sync_interval: always` holds for streams and for the logs of Raft (`server/jetstream_cluster.go`, createRaftGroup).
- All messages of QoS 1 are in one stream, `$MQTT_msgs`, which one node leads; each subscription of a persistent session
  is a durable consumer of it. `stream_replicas` is how many copies the streams of MQTT have (`server/opts.go`).
- A follower waits for 4 to 9 seconds before it stands for election (`server/raft.go`, minElectionTimeoutDefault and
  maxElectionTimeoutDefault), with no option to change that.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.failover import Line
from benchmarks.nodes import Cluster
from benchmarks.peers.peer import CACHE, NODES, Peer, completed, require
from benchmarks.server import Server

__all__ = ["Nats", "NatsCluster", "configuration"]

VERSION: Final = "v2.15.3"
MODULE: Final = "github.com/nats-io/nats-server/v2"
# The limit of messages in flight may shape no figure; a subscription may have as many as a session at most.
CONFIGURATION: Final = """\
server_name: {name}
listen: "127.0.0.1:{client}"
http: "127.0.0.1:{admin}"
jetstream {{
  store_dir: "{folder}"
  sync_interval: always
}}
cluster {{
  name: peers
  listen: "127.0.0.1:{peer}"
  routes: [{routes}]
}}
mqtt {{
  listen: "127.0.0.1:{mqtt}"
  stream_replicas: {replicas}
  max_ack_pending: 65535
}}
"""


class Nats(Peer):
    """Three nodes, streams with three replicas, each write synced."""

    name = "NATS JetStream"
    promise = "on the disks of a majority of the three replicas"

    def obtain(self) -> str:
        program = binary()
        if not program.is_file():
            go = require("go", "which builds NATS Server from the Go module proxy (Debian, Ubuntu: apt install golang)")
            program.parent.mkdir(parents=True, exist_ok=True)
            environment = os.environ | {"GOBIN": str(program.parent)}
            completed([go, "install", f"{MODULE}@{VERSION}"], program.parent, environment)
        return completed([str(program), "--version"], program.parent).strip()

    def start(self, folder: Path) -> Cluster:
        return NatsCluster(folder, NODES)


class NatsCluster(Cluster):
    """Nodes of NATS Server; `admin` is the port of its monitoring."""

    kinds = ("mqtt", "admin", "peer", "client")

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count)
        try:
            for name in self.names:
                self._await(partial(self.accepts, name), self.whole_s)
        except BaseException:
            self.stop()
            raise

    def accepts(self, name: str) -> bool:
        """Tell whether a node accepts a client: the first one makes the streams, which fails if many come at once."""
        try:
            Line(self.ports[name]["mqtt"], "peers-first", clean=True).socket.close()
        except OSError:
            return False
        return True

    def start(self, name: str) -> None:
        """Start a node with the data that it has."""
        file = self.folder / f"{name}.conf"
        file.write_text(configuration(name, self.ports, self.folder / name), encoding="utf-8")
        command = [str(binary()), "--config", str(file)]
        self.servers[name] = Server(name, command, None, self.folder / f"{name}.log", self.ports[name]["mqtt"])

    def whole(self) -> bool:
        """Tell whether each node finds all its streams and consumers current."""
        found = [self.ask(name, "/healthz") for name in self.servers]
        return all(health is not None and health["status"] == "ok" for health in found)


def binary() -> Path:
    """Return where the server is, or will be."""
    return CACHE / f"nats-{VERSION}" / "nats-server"


def configuration(name: str, ports: dict[str, dict[str, int]], folder: Path) -> str:
    """Return the configuration of a node that keeps its data in a folder; ports: of all nodes, by kind."""
    routes = ", ".join(f'"nats://127.0.0.1:{ports[other]["peer"]}"' for other in ports if other != name)
    return CONFIGURATION.format(name=name, folder=folder, routes=routes, replicas=len(ports), **ports[name])

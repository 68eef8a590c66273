"""RabbitMQ with quorum queues: Debian's packages, three nodes with the MQTT plugin.

Owns the packages, the configuration, and the port mapper of Erlang (epmd), which every cluster has to itself here.
Packages that are not installed are unpacked below `build/`, which needs no root. Sources:

- `mqtt.durable_queue_type = quorum` makes the sessions that outlast their connection quorum queues: "it is possible to
  opt in to use quorum queues for subscribers whose MQTT session lasts longer than their MQTT network connection"
  (rabbitmq.com/docs/mqtt, "Using Quorum Queues"; from 3.10 on, rabbitmq-server pull request 4254).
- PUBACK is a publisher confirm; "for quorum queues, this means that a quorum replicas have accepted and confirmed the
  message" (rabbitmq.com/docs/confirms). The log of Raft is synced without a setting: at 100 messages a second, strace
  counts at least two fdatasync for each message at every node.
- `mqtt.prefetch` is how many messages of QoS 1 are in flight to a client, 10 by default; quorum queues allow 2,000.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from benchmarks.nodes import Cluster, lasting_port
from benchmarks.peers.peer import CACHE, NODES, Missing, Peer, completed, require
from benchmarks.server import Server

__all__ = ["RabbitCluster", "Rabbitmq", "configuration", "environment_of", "launcher"]

ROOT: Final = CACHE / "rabbitmq"
# What rabbitmq-server depends on, without what only its service needs (adduser, logrotate, socat).
PACKAGES: Final = (
    "erlang-base",
    "erlang-asn1",
    "erlang-crypto",
    "erlang-eldap",
    "erlang-ftp",
    "erlang-inets",
    "erlang-mnesia",
    "erlang-os-mon",
    "erlang-parsetools",
    "erlang-public-key",
    "erlang-runtime-tools",
    "erlang-snmp",
    "erlang-ssl",
    "erlang-syntax-tools",
    "erlang-tftp",
    "erlang-tools",
    "erlang-xmerl",
    "rabbitmq-server",
)
START_S: Final = 120.0
CHECK_S: Final = 30.0
LOOPBACK: Final = "-kernel inet_dist_use_interface {127,0,0,1}"
CONFIGURATION: Final = """\
listeners.tcp = none
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = n1@localhost
mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}
mqtt.allow_anonymous = true
mqtt.durable_queue_type = quorum
mqtt.prefetch = 2000
mqtt.tcp_listen_options.nodelay = true
log.console = true
log.console.level = warning
log.file = false
"""
# Debian's `erl` has its root built in; this one takes the place of it.
LAUNCHER: Final = """\
#!/bin/sh
export ROOTDIR="{root}"
export BINDIR="{bin}"
export EMU=beam
export PROGNAME=erl
exec "$BINDIR/erlexec" ${{1+"$@"}}
"""


class Rabbitmq(Peer):
    """Three nodes; sessions are quorum queues with three members."""

    name = "RabbitMQ, quorum queues"
    promise = "on the disks of a majority of the three members of the queue"

    def obtain(self) -> str:
        if not (ROOT / "bin" / "erl").is_file():
            unpack(ROOT)
        otp = next(lib(ROOT, "erlang/releases").glob("*/OTP_VERSION")).read_text(encoding="ascii").strip()
        return f"RabbitMQ {home(ROOT).name.rpartition('-')[2]} (Erlang/OTP {otp})"

    def start(self, folder: Path) -> Cluster:
        return RabbitCluster(folder, NODES)


class RabbitCluster(Cluster):
    """Nodes of RabbitMQ; `distribution` is the port on which they talk to each other."""

    kinds = ("mqtt", "distribution")
    whole_s = 120.0

    def __init__(self, folder: Path, count: int) -> None:
        self.mapper_port = lasting_port()
        mapper = str(next(lib(ROOT, "erlang").glob("erts-*/bin/epmd")))
        command = [mapper, "-address", "127.0.0.1", "-port", str(self.mapper_port)]
        self.mapper = Server("epmd", command, None, folder / "epmd.log", self.mapper_port)
        super().__init__(folder, count)

    def start(self, name: str) -> None:
        """Start a node with the data that it has."""
        file = self.folder / f"{name}.conf"
        file.write_text(configuration(self.ports[name]), encoding="utf-8")
        (self.folder / "plugins").write_text("[rabbitmq_mqtt].\n", encoding="ascii")
        self.servers[name] = Server(
            name,
            [str(home(ROOT) / "sbin" / "rabbitmq-server")],
            None,
            self.folder / f"{name}.log",
            self.ports[name]["mqtt"],
            environment_of(name, self.ports[name]["distribution"], self.mapper_port, self.folder),
            START_S,
        )

    def whole(self) -> bool:
        """Tell whether all nodes are in the cluster, and no quorum queue would lose its majority with one of them."""
        return all(self.is_spare(name) for name in self.servers)

    def is_spare(self, name: str) -> bool:
        """Tell whether a node may go without a quorum queue losing its majority."""
        program = str(home(ROOT) / "sbin" / "rabbitmq-queues")
        try:
            completed(
                [program, "check_if_node_is_quorum_critical", "--node", f"{name}@localhost"],
                self.folder,
                environment_of(name, lasting_port(), self.mapper_port, self.folder),
                CHECK_S,
            )
        except Missing:
            return False
        return True

    def stop(self) -> None:
        """End all nodes, then the port mapper; idempotent."""
        super().stop()
        self.mapper.stop()


def unpack(root: Path) -> None:
    """Download Debian's packages and unpack them below a folder; raises `Missing`."""
    purpose = "which gets RabbitMQ from Debian's packages"
    apt, dpkg = require("apt-get", purpose), require("dpkg", purpose)
    shutil.rmtree(root, ignore_errors=True)  # what a run that was interrupted has left
    packages = root / "packages"
    packages.mkdir(parents=True)
    try:
        completed([apt, "download", *PACKAGES], packages)
    except Missing as error:
        raise Missing(f"{error} (are the lists of packages there? `apt-get update`)") from None
    for package in sorted(packages.glob("*.deb")):
        completed([dpkg, "-x", str(package), str(root)], packages)
    shutil.rmtree(packages)
    program = root / "bin" / "erl"
    program.parent.mkdir(exist_ok=True)
    program.write_text(launcher(root), encoding="utf-8")
    program.chmod(0o755)


def lib(root: Path, name: str) -> Path:
    """Return a folder below /usr/lib."""
    return root / "usr" / "lib" / name


def home(root: Path) -> Path:
    """Return the folder of the server; raises `Missing` if the packages do not have it where Debian puts it."""
    found = sorted(lib(root, "rabbitmq/lib").glob("rabbitmq_server-*"))
    if not found:
        raise Missing(f"no RabbitMQ below {root}")
    return found[-1]


def launcher(root: Path) -> str:
    """Return a program `erl` for an Erlang that was unpacked below a folder."""
    erlang = lib(root, "erlang")
    return LAUNCHER.format(root=erlang, bin=next(erlang.glob("erts-*")) / "bin")


def configuration(ports: dict[str, int]) -> str:
    """Return the configuration of a node. n1 is the seed: all ask it for the cluster, and it finds only itself."""
    return CONFIGURATION.format(**ports)


def environment_of(name: str, port: int, mapper_port: int, folder: Path) -> dict[str, str]:
    """Return the environment of a node or tool; port: on which other nodes reach it."""
    # The node stays in the foreground as the process that was started (ALLOW_INPUT), yet reads no input.
    own = {
        "HOME": str(folder),
        "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}",
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_CONF_ENV_FILE": str(folder / "no-environment"),
        "RABBITMQ_CONFIG_FILE": str(folder / f"{name}.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "no-advanced.config"),
        "RABBITMQ_DIST_PORT": str(port),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_LOG_BASE": str(folder / f"{name}-log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_MNESIA_BASE": str(folder / name),
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_CTL_ERL_ARGS": LOOPBACK,
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-noinput {LOOPBACK}",
        "LC_ALL": "C.UTF-8",
    }
    inherited = {key: value for key, value in os.environ.items() if not re.match("RABBITMQ|ERL", key)}
    return inherited | own

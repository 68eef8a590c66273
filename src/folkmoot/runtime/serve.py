"""The life of a node process: the order in which parts are opened, signals, errors, and the clean stop.

Owns the process: exit status, the line `ready` on stdout, system limits. It makes no decision about MQTT.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import secrets
import signal
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import uvloop

from folkmoot.config.convert import node_config
from folkmoot.config.settings import Settings
from folkmoot.kernel.errors import FolkmootError
from folkmoot.node import Node, NodeConfig
from folkmoot.runtime.commit import Committer
from folkmoot.runtime.disk import Disk
from folkmoot.runtime.listener import Listener, open_listeners
from folkmoot.runtime.log import Log
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.memory import MemoryWatch, budget_of
from folkmoot.runtime.password import PasswordChecks
from folkmoot.runtime.peers import PeerNetwork
from folkmoot.runtime.room import Room
from folkmoot.runtime.seek import Lookup, Seeker
from folkmoot.runtime.tcp import Gate
from folkmoot.runtime.watch import STALL_US, StallWatch

__all__ = ["Lookup", "Service", "ServingNode", "serve"]

# Descriptors that are not connections: tables and logs of the store, listeners, the admin server.
DESCRIPTORS_RESERVED: Final = 512
STOP_S_MAX: Final = 5.0
DRAIN_S_MAX: Final = 1.0  # for clients to read their DISCONNECT; the end of the process resets what is still open
DEPART_S_MAX: Final = 1.0  # for the handover to other nodes; after that, they detect that this node is gone
HOUSEKEEPING_S: Final = 0.5
POLL_S: Final = 0.005


class Service(ABC):
    """A server in the same loop as MQTT, such as the admin server."""

    @abstractmethod
    def prepare(self, settings: Settings) -> None:
        """Bind addresses and read files, before anything else is opened; raises FolkmootError."""

    @abstractmethod
    async def start(self, serving: ServingNode) -> str:
        """Begin to serve; return "NAME=HOST:PORT" for the line `ready`, or "" if there is nothing to serve."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop serving, end waiting requests, release addresses; may be called twice, and without `start`."""


class ServingNode:
    """The parts of a running node, for the services in its process."""

    def __init__(self, settings: Settings, disk: Disk, node: Node, turns: Turns, log: Log) -> None:
        self.settings = settings
        self.disk = disk
        self.node = node
        self.turns = turns
        self.log = log
        self.started_us = time.time_ns() // 1000
        descriptors = raise_descriptor_limit()
        self.peers: PeerNetwork | None = None  # None: a node without a cluster
        self.gate = Gate(max(descriptors - DESCRIPTORS_RESERVED, descriptors // 2))
        self.stopping = False
        self.error: Exception | None = None
        self._stop = asyncio.Event()
        self._signals = 0

    def fail(self, error: Exception) -> None:
        """Stop the node because of an error. Only the first error counts."""
        if self.error is None:
            self.error = error
            self.turns.halt()
            self._stop.set()

    def signalled(self) -> None:
        """Stop cleanly at the first signal, immediately at the second."""
        self._signals += 1
        if self._signals > 1:
            self.fail(FolkmootError("stopped by a second signal; acknowledged data is safe"))
        self._stop.set()

    async def until_stopped(self) -> None:
        """Wait for a signal or an error."""
        await self._stop.wait()
        self.stopping = True

    def look(self, listeners: list[Listener]) -> None:
        """Stop accepting when the node is about to leave its cluster, and stop the node when it has left."""
        if self.node.closing:
            for listener in listeners:
                listener.close()
        if self.node.left and not self._stop.is_set():
            self.say("info", "left", reason="nothing depends on this node any more")
            self._stop.set()

    def say(self, level: str, kind: str, **fields: object) -> None:
        """Write an event of the driver to the log."""
        self.log.say(level, kind, time.time_ns() // 1000, **fields)


def serve(settings: Settings, service: Service | None = None, lookup: Lookup | None = None) -> int:
    """Run a node until SIGTERM, SIGINT or an error; return the exit status. Errors are one line on stderr.

    `lookup` finds other nodes; without it, the seeds of the settings are used.
    """
    log = Log(settings.log.level, settings.log.format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(settings, service, lookup, log))
    except FolkmootError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:  # before the signal handlers are set
        return 130
    return 1


async def run(settings: Settings, service: Service | None, lookup: Lookup | None, log: Log) -> int:
    """Open everything, serve, close everything."""
    listeners = open_listeners(settings)
    peers: PeerNetwork | None = None
    try:
        if settings.cluster.listen is not None:
            peers = PeerNetwork(settings.cluster)
        if service is not None:
            service.prepare(settings)
        disk = Disk(settings)
        try:
            config = make_config(settings, peers, lookup is not None)
            return await run_node(settings, config, service, log, listeners, peers, disk, lookup)
        finally:
            disk.close()
    finally:
        if peers is not None:
            peers.close()
        for listener in listeners:
            listener.close()
        if service is not None:
            await service.stop()


def make_config(settings: Settings, peers: PeerNetwork | None, seeks: bool) -> NodeConfig:
    """Return the node's configuration, with its peer port, which is known only now. The seeds may follow later."""
    config = node_config(settings)
    config.limits.memory_bytes_max = budget_of(config.limits.memory_bytes_max)
    if config.cluster is not None and peers is not None:
        config.cluster.partitions = config.partitions
        config.cluster.peer_address = peers.advertised
        if seeks:
            config.cluster.seeds = []
            config.cluster.seeds_unknown = True
    return config


async def run_node(
    settings: Settings,
    config: NodeConfig,
    service: Service | None,
    log: Log,
    listeners: list[Listener],
    peers: PeerNetwork | None,
    disk: Disk,
    lookup: Lookup | None,
) -> int:
    """Create the node on its open store, and serve until it is stopped."""
    loop = asyncio.get_running_loop()
    if config.cluster is not None:
        config.cluster.incomplete = disk.incomplete
    node = Node(config, disk.reader, secrets.randbits(64))
    node.open(time.time_ns() // 1000)
    turns = Turns(node, loop)
    serving = ServingNode(settings, disk, node, turns, log)
    serving.peers = peers
    committer = Committer(disk, turns, loop)
    room = Room(disk, turns, committer, loop.time)
    passwords = None
    try:
        turns.submit, turns.log, turns.fail = committer.submit, log.write_all, serving.fail
        turns.handed = room.add
        if settings.auth.password_file is not None:
            passwords = PasswordChecks(settings.auth.password_file, loop, turns)
            turns.check = passwords.check
        loop.set_exception_handler(lambda _loop, context: on_exception(serving, context))
        watch_signals(serving, listeners, passwords)
        turns.begin()
        room.look()  # before other nodes learn of this one: with a full disk it must not become a leader
        await serve_until_stopped(serving, room, listeners, service, seeker_of(serving, lookup))
    finally:
        turns.stop_timers()
        if passwords is not None:
            passwords.close()
        if not committer.close() and serving.error is None:
            serving.error = FolkmootError("stopped while the disk was full; acknowledged data is safe")
    return finish(serving)


def seeker_of(serving: ServingNode, lookup: Lookup | None) -> Seeker | None:
    """Return the discovery of other nodes; None without a cluster."""
    node, turns = serving.node, serving.turns
    if lookup is None or serving.peers is None:
        return None
    return Seeker(lookup, lambda seeds: node.seek(seeds, turns.begin()), lambda: node.found, serving.say)


async def serve_until_stopped(
    serving: ServingNode, room: Room, listeners: list[Listener], service: Service | None, seeker: Seeker | None
) -> None:
    """Accept connections, print `ready`, wait for the stop, and stop everything."""
    limits = serving.node.config.limits
    cluster = serving.node.config.cluster
    watch = StallWatch(serving.turns, STALL_US if cluster is None else cluster.stall_us)
    memory = MemoryWatch(serving.turns)
    memory.start()
    if serving.peers is not None:
        await serving.peers.start(serving.turns)
        watch.start()
    tasks: list[asyncio.Future[None]] = []
    if seeker is not None:
        tasks.append(asyncio.ensure_future(seeker.run()))
    for listener in listeners:
        await listener.start(serving.turns, serving.gate, limits)
    extra = "" if service is None else await service.start(serving)
    # The objects that exist now stay: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    print(ready_line(serving, listeners, extra), flush=True)
    report_opening(serving, service is None or not extra)
    tasks.append(asyncio.ensure_future(keep_house(serving, room, listeners)))
    try:
        await serving.until_stopped()
    finally:
        for task in tasks:
            task.cancel()
        for listener in listeners:
            listener.close()
        if service is not None:
            await service.stop()
    if serving.error is None:
        await stop_gracefully(serving)
    memory.stop()
    watch.stop()


def ready_line(serving: ServingNode, listeners: list[Listener], extra: str) -> str:
    """Return the line with the addresses of the node: `ready node=ID mqtt=HOST:PORT ...`."""
    places: dict[str, list[str]] = {}
    for listener in listeners:
        places.setdefault(listener.settings.protocol, []).append(str(listener.address))
    words = ["ready", f"node={serving.settings.node.id}"]
    words += [f"{protocol}={','.join(addresses)}" for protocol, addresses in places.items()]
    words += [extra] if extra else []
    words += [f"peer={serving.peers.advertised}"] if serving.peers is not None else []
    return " ".join(words)


def report_opening(serving: ServingNode, without_http: bool) -> None:
    """Log what an operator should know about this start."""
    if serving.disk.torn_bytes:
        serving.say("warning", "store_tail_cut", bytes=serving.disk.torn_bytes, reason="an unfinished write")
    if serving.disk.incomplete and serving.node.config.cluster is not None:
        serving.say(
            "warning", "store_incomplete", reason="it was salvaged, or the machine went down: other nodes fill it"
        )
    if serving.settings.node.salvage:
        serving.say(
            "warning", "store_salvaged", reason="if the log was damaged, what was written after the damage is lost"
        )
    if serving.node.config.streams and without_http:
        serving.say(
            "warning", "streams_unreadable", reason="streams cannot be read over HTTP: set admin.address (--admin)"
        )


async def keep_house(serving: ServingNode, room: Room, listeners: list[Listener]) -> None:
    """Monitor the free disk space, the connections that the gate refused, and whether the node has left."""
    refused = 0
    while True:
        if serving.turns.durable:
            serving.disk.begun()
        room.look()
        serving.look(listeners)
        if serving.gate.refused > refused:
            refused = serving.gate.refused
            serving.say("warning", "sockets_refused", total=refused, sockets_max=serving.gate.sockets_max)
        await asyncio.sleep(HOUSEKEEPING_S)


async def stop_gracefully(serving: ServingNode) -> None:
    """Disconnect all clients, wait until that is sent and everything is on disk, and hand the partitions over.

    Other nodes serve the partitions before this one ends, and need not detect that it did. A client that is slow to
    close its side delays the end of the process and not the handover.
    """
    turns = serving.turns
    turns.node.stop(turns.begin())
    await until(serving, lambda: not (turns.begun or turns.unsent() or turns.submitted > turns.durable), STOP_S_MAX)
    turns.node.depart(turns.begin())
    await until(serving, lambda: turns.node.departed, DEPART_S_MAX)
    await until(serving, lambda: not turns.open, DRAIN_S_MAX)


async def until(serving: ServingNode, done: Callable[[], bool], patience_s: float) -> None:
    """Wait until `done` returns true, the time is over, or the node has failed."""
    deadline = serving.turns.loop.time() + patience_s
    while not done():
        if serving.error is not None or serving.turns.loop.time() > deadline:
            break
        await asyncio.sleep(POLL_S)


def finish(serving: ServingNode) -> int:
    """Report the error that ended the node, if any; return the exit status."""
    error = serving.error
    if error is None:
        serving.say("info", "stopped")
        return 0
    if not isinstance(error, FolkmootError):
        traceback.print_exception(error, file=sys.stderr)
        error = FolkmootError(f"the node stopped because of a bug ({type(error).__name__}: {error}); please report it")
    print(f"error: {error}", file=sys.stderr)
    return 1


def on_exception(serving: ServingNode, context: dict[str, object]) -> None:
    """Log errors of the network; stop the node at a bug."""
    error = context.get("exception")
    if isinstance(error, OSError | asyncio.CancelledError):  # ssl.SSLError is an OSError
        serving.say("warning", "connection_failed", reason=f"{context.get('message', '')}: {error}")
    elif isinstance(error, Exception):
        serving.fail(error)
    else:
        serving.say("warning", "loop", message=context.get("message"))


def watch_signals(serving: ServingNode, listeners: list[Listener], passwords: PasswordChecks | None) -> None:
    """Set the signal handlers: SIGTERM and SIGINT stop, SIGHUP reads certificates and passwords again."""
    loop = serving.turns.loop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.signalled)

    def reload() -> None:
        failed = False
        for part in (*listeners, serving.peers, passwords):
            try:
                if part is not None:
                    part.reload()
            except FolkmootError as error:
                failed = True
                serving.say("error", "reload_failed", reason=f"{error}; the previous files stay in use")
        if not failed:
            serving.say("info", "reloaded")

    loop.add_signal_handler(signal.SIGHUP, reload)


def raise_descriptor_limit() -> int:
    """Raise the limit of descriptors to what the system allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass
    return soft

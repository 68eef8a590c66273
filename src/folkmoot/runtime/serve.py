"""The life of a node process: the order in which parts are opened, signals, errors, and the clean stop.

Owns the process: exit status, the line `ready` on stdout, system limits. It makes no decision about MQTT.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import uvloop

from folkmoot import __version__
from folkmoot.config.convert import node_config
from folkmoot.config.settings import Settings
from folkmoot.kernel.errors import FolkmootError
from folkmoot.node import Node, NodeConfig
from folkmoot.runtime.audit import Audit, open_audit
from folkmoot.runtime.clock import Clock, next_beat
from folkmoot.runtime.commit import Committer
from folkmoot.runtime.descriptors import Descriptors, raise_limit
from folkmoot.runtime.disk import Disk
from folkmoot.runtime.gate import Gate
from folkmoot.runtime.listener import Listener, open_listeners
from folkmoot.runtime.log import Log
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.memory import MemoryWatch, budget_of
from folkmoot.runtime.peers import PeerNetwork
from folkmoot.runtime.reload import Reload, read_users
from folkmoot.runtime.room import RoomWatch
from folkmoot.runtime.seek import Lookup, Seeker
from folkmoot.runtime.watch import STALL_US, StallWatch
from folkmoot.store.reader import Reader

__all__ = ["Lookup", "Service", "ServingNode", "serve"]

STOP_S_MAX: Final = 5.0
DRAIN_S_MAX: Final = 1.0  # for clients to read their DISCONNECT; the end of the process resets what is still open
# For the handover to other nodes; after that, they detect that this node is gone. A controller that was elected just
# now waits a lease, and a little for the drift of clocks, before anybody is away, itself included. If it ended before
# that, it would be a voter that died: with another one stopped before it, the third would have no quorum.
DEPART_S_MAX: Final = 2.0
HOUSEKEEPING_S: Final = 0.5
_AGAIN: Final = -1  # in place of an exit status: open everything again
POLL_S: Final = 0.005
TRACE_CALLS_MAX: Final = 12
# Connections without a complete CONNECT, in all: as many addresses may have their full share. One costs up to 100 kB.
HANDSHAKE_ADDRESSES: Final = 8


class Service(ABC):
    """A server in the same loop as MQTT, such as the admin server."""

    @abstractmethod
    def prepare(self, settings: Settings) -> None:
        """Bind addresses and read files, before anything else is opened; raises FolkmootError."""

    @abstractmethod
    def read_again(self, settings: Settings) -> Callable[[], None]:
        """Read files again; raises FolkmootError. Nothing changes before the result is called."""

    @abstractmethod
    async def start(self, serving: ServingNode) -> str:
        """Begin to serve; return "NAME=HOST:PORT" for the line `ready`, or "" if there is nothing to serve."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop serving, end waiting requests, release addresses; may be called twice, and without `start`."""


class ServingNode:
    """The parts of a running node, for the services in its process."""

    def __init__(
        self, settings: Settings, disk: Disk, node: Node, turns: Turns, log: Log, descriptors: Descriptors
    ) -> None:
        self.settings = settings
        self.disk = disk
        self.node = node
        self.turns = turns
        self.log = log
        self.started_us = node.counters.started_us
        self.descriptors = descriptors
        self.peers: PeerNetwork | None = None  # None: a node without a cluster
        per_address = min(node.config.limits.handshakes_per_address_max, max(descriptors.sockets // 2, 1))
        in_all = min(HANDSHAKE_ADDRESSES * per_address, descriptors.sockets)
        self.gate = Gate(descriptors.sockets, per_address, time.monotonic, in_all)
        self.gate.relieve = turns.cut_closing
        self.stopping = False
        self.again = False  # another node is opened on the folder, in this process
        self._closed = False  # the listeners, because the node was about to leave
        self.error: Exception | None = None
        self.audit: Audit | None = None
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
        self.again = False
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
            self._closed = True
            for listener in listeners:
                listener.close()
        elif self._closed and self.node.stays and not self._stop.is_set():
            self.say("info", "restarted", reason="it was about to leave, had closed its listeners, and stays")
            self.again = True
            self._stop.set()
        if self.node.left and not self._stop.is_set():
            self.say("info", "left", reason="nothing depends on this node any more")
            self._stop.set()
        if self.node.renewed and not self._stop.is_set():
            self.say("info", "restarted", reason="the data folder is another disk now, see disk_renewed")
            self.again = True
            self._stop.set()

    def complain(self, address: str, error: Exception) -> None:
        """Log an unexpected error of one connection, with its trace."""
        reason = f"{type(error).__name__}: {error}"
        self.say("error", "connection_error", address=address, reason=reason, trace=trace_of(error))

    def say(self, level: str, kind: str, **fields: object) -> None:
        """Write an event of the driver to the log."""
        self.log.say(level, kind, time.time_ns() // 1000, **fields)

    def record(self, kind: str, **fields: object) -> None:
        """Write an event to the audit log, if there is one."""
        if self.audit is not None:
            self.audit.record(kind, time.time_ns() // 1000, fields)


def serve(
    settings: Settings,
    service: Service | None = None,
    lookup: Lookup | None = None,
    reread: Callable[[], Settings] | None = None,
) -> int:
    """Run a node until SIGTERM, SIGINT or an error; return the exit status. Errors are one line on stderr.

    A node whose folder has become another disk is followed by another one, in the same process.
    `lookup` finds other nodes; without it, the seeds of the settings are used. `reread` returns the settings of now,
    for SIGHUP; without it, only the files that the settings name are read again.
    """
    os.umask(0o077)  # what a node writes is for its own user
    log = Log(settings.log.level, settings.log.format)
    try:
        while True:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                status = runner.run(run(settings, service, lookup, log, reread))
            if status != _AGAIN:
                return status
            settings = settings_of_now(settings, reread)
    except FolkmootError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:  # before the signal handlers are set
        return 130
    return 1


def settings_of_now(settings: Settings, reread: Callable[[], Settings] | None) -> Settings:
    """Return the settings for another node on the same folder, those before if they cannot be read any more."""
    try:
        found = settings if reread is None else reread()
    except FolkmootError:
        return settings
    node = found.node.model_copy(update={"id": settings.node.id})  # it may have been generated
    return found.model_copy(update={"node": node})


async def run(
    settings: Settings,
    service: Service | None,
    lookup: Lookup | None,
    log: Log,
    reread: Callable[[], Settings] | None,
) -> int:
    """Open everything, serve, close everything."""
    listeners = open_listeners(settings)
    peers: PeerNetwork | None = None
    try:
        if settings.cluster.listen is not None:
            peers = PeerNetwork(settings.cluster)
        if service is not None:
            service.prepare(settings)
        descriptors = Descriptors(raise_limit(), settings.admin.address is not None, peers is not None)
        disk = Disk(settings, descriptors.tables)
        try:
            config = make_config(settings, peers, lookup is not None)
            return await run_node(settings, config, service, log, listeners, peers, disk, lookup, descriptors, reread)
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
    descriptors: Descriptors,
    reread: Callable[[], Settings] | None,
) -> int:
    """Create the node on its open store, and serve until it is stopped."""
    loop = asyncio.get_running_loop()
    # Those above are answered, with the sockets that are left.
    config.limits.connections_max = min(config.limits.connections_max, descriptors.clients)
    if config.cluster is not None:
        config.cluster.incomplete = disk.incomplete
        config.cluster.succeeds = disk.folder.succeeds
    file = read_users(settings)
    if file is not None:
        config.users = file.hashes
    turns = open_node(config, disk.reader, loop)
    serving = ServingNode(settings, disk, turns.node, turns, log, descriptors)
    serving.peers = peers
    if peers is not None:
        peers.gate.sockets_max = descriptors.peers
    begin_audit(serving, loop)
    committer = Committer(disk, turns, loop)
    room = RoomWatch(disk, turns, committer, loop.time)
    reload = Reload(serving, listeners, service, reread, file)
    try:
        turns.submit, turns.apply = committer.submit, committer.apply
        turns.log, turns.fail = log.write_all, serving.fail
        turns.complain = serving.complain
        turns.handed = room.add
        reload.check_passwords(file)
        loop.set_exception_handler(lambda _loop, context: on_exception(serving, context))
        watch_signals(serving, reload)
        turns.begin()
        room.look()  # before other nodes learn of this one: with a full disk it must not become a leader
        disk.begin()
        await serve_until_stopped(serving, room, listeners, service, seeker_of(serving, lookup))
    finally:
        turns.stop_timers()
        reload.close()
        if not committer.close() and serving.error is None:
            serving.error = FolkmootError("stopped while the disk was full; acknowledged data is safe")
        end_logs(serving)
    return finish(serving)


def open_node(config: NodeConfig, reader: Reader, loop: asyncio.AbstractEventLoop) -> Turns:
    """Open a node on its store, and return its driver; both have one clock from the beginning."""
    node = Node(config, reader, secrets.randbits(64))
    clock = Clock()
    node.open(clock.read())
    return Turns(node, loop, clock)


def begin_audit(serving: ServingNode, loop: asyncio.AbstractEventLoop) -> None:
    """Open the audit log, if there is one; raises FolkmootError."""
    serving.audit = open_audit(serving.settings, serving.say)
    if serving.audit is not None:
        serving.audit.run_in(loop.call_soon_threadsafe)
        serving.log.also = serving.audit.take
        serving.record("started", program=f"folkmoot {__version__}")


def end_logs(serving: ServingNode) -> None:
    """Write what the logs have counted and not said."""
    now = time.time_ns() // 1000
    serving.log.report_suppressed(now, all_of_them=True)
    if serving.audit is not None:
        serving.record("stopped", error=None if serving.error is None else str(serving.error))
        serving.audit.close(now)


def seeker_of(serving: ServingNode, lookup: Lookup | None) -> Seeker | None:
    """Return the discovery of other nodes; None without a cluster."""
    node, turns = serving.node, serving.turns
    if lookup is None or serving.peers is None:
        return None
    return Seeker(lookup, lambda seeds: node.seek(seeds, turns.begin()), lambda: node.found, serving.say)


async def serve_until_stopped(
    serving: ServingNode, room: RoomWatch, listeners: list[Listener], service: Service | None, seeker: Seeker | None
) -> None:
    """Accept connections, print `ready`, wait for the stop, and stop everything."""
    limits = serving.node.config.limits
    cluster = serving.node.config.cluster
    watch = StallWatch(serving.turns, STALL_US if cluster is None else cluster.stall_us)
    memory = MemoryWatch(serving.turns)
    memory.start()
    watch.start()
    if serving.peers is not None:
        serving.peers.start(serving.turns, serving.say)
    tasks: list[asyncio.Future[None]] = []

    def begin(work: Coroutine[Any, Any, None], at_error: Callable[[Exception], None]) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: ended(done, at_error))
        tasks.append(task)

    if seeker is not None:
        begin(seeker.run(), lambda error: serving.complain("discovery", error))
    for listener in listeners:
        listener.start(serving.turns, serving.gate, limits, serving.say)
    extra = "" if service is None else await service.start(serving)
    # The objects that exist now stay: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    print(ready_line(serving, listeners, extra), flush=True)
    report_opening(serving, service is None or not extra)
    begin(keep_house(serving, room, listeners), serving.fail)
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


def ended(task: asyncio.Future[None], at_error: Callable[[Exception], None]) -> None:
    """Report the error of a task that should run as long as the node."""
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        at_error(error)


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
    shares = serving.descriptors
    serving.say(
        "info" if shares.enough else "warning",
        "descriptors",
        limit=shares.limit,
        reserved=shares.reserved,
        connections_max=serving.node.config.limits.connections_max,
    )
    folder = serving.disk.folder
    if folder.closed_to_others:
        serving.say("info", "data_folder_closed", reason=f"other users could read {folder.path}; it has mode 0700 now")
    if folder.open_to_others:
        serving.say("warning", "data_folder_open", reason=folder.open_to_others)
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


async def keep_house(serving: ServingNode, room: RoomWatch, listeners: list[Listener]) -> None:
    """Monitor the free disk space, the connections that the gate refused, and whether the node has left."""
    refused = evicted = 0
    spare = serving.disk.spare
    while True:
        if serving.turns.durable:
            serving.disk.begun()
        room.look()
        serving.look(listeners)
        keep_logs(serving)
        if serving.gate.refused > refused:
            refused = serving.gate.refused
            serving.say("warning", "sockets_refused", total=refused, sockets_max=serving.gate.sockets_max)
        serving.node.counters.connections_evicted = serving.gate.evicted
        if serving.gate.evicted > evicted:
            evicted = serving.gate.evicted
            serving.say("warning", "handshakes_evicted", total=evicted, waiting=serving.gate.unfinished)
        short = not spare.refill()
        if short and not serving.gate.short:
            serving.say("warning", "descriptors_short", limit=serving.descriptors.limit)
        serving.gate.short = short
        time_s = serving.turns.loop.time()
        await asyncio.sleep(next_beat(time_s, HOUSEKEEPING_S) - time_s)


def keep_logs(serving: ServingNode) -> None:
    """Report what the logs have suppressed."""
    now = time.time_ns() // 1000
    serving.log.report_suppressed(now)
    counters = serving.node.counters
    counters.log_suppressed = serving.log.suppressed
    if serving.audit is not None:
        serving.audit.tick(now)
        counters.audit_lost = serving.audit.lost


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
    """Report the error that ended the node, if any; return the exit status, or that everything is opened again."""
    error = serving.error
    if error is None and serving.again:
        return _AGAIN
    if error is None:
        serving.say("info", "stopped")
        return 0
    if not isinstance(error, FolkmootError):
        traceback.print_exception(error, file=sys.stderr)
        error = FolkmootError(f"the node stopped because of a bug ({type(error).__name__}: {error}); please report it")
    print(f"error: {error}", file=sys.stderr)
    return 1


def on_exception(serving: ServingNode, context: dict[str, object]) -> None:
    """Log errors of the network, end the connection of an unexpected one, stop the node at a bug."""
    error = context.get("exception")
    if isinstance(error, OSError | asyncio.CancelledError):  # ssl.SSLError is an OSError
        serving.say("warning", "connection_failed", reason=f"{context.get('message', '')}: {error}")
    elif isinstance(error, Exception) and (transport := context.get("transport")) is not None:
        serving.turns.spoiled(transport, "unknown", error)
    elif isinstance(error, Exception) and ("task" in context or "future" in context):
        serving.complain("a task of this process", error)  # of one request or dial; others have `ended`
    elif isinstance(error, Exception):
        serving.fail(error)
    else:
        serving.say("warning", "loop", message=context.get("message"))


def watch_signals(serving: ServingNode, reload: Reload) -> None:
    """Set the signal handlers: SIGTERM and SIGINT stop, SIGHUP reads rules, users, certificates and secrets again."""
    loop = serving.turns.loop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.signalled)
    loop.add_signal_handler(signal.SIGHUP, reload.begin)


def trace_of(error: Exception) -> list[str]:
    """Return the calls that led to an error, the innermost first: "MODULE:LINE FUNCTION"."""
    calls = traceback.extract_tb(error.__traceback__)
    return [f"{Path(call.filename).stem}:{call.lineno} {call.name}" for call in reversed(calls)][:TRACE_CALLS_MAX]

"""A13: every queue and buffer of a node has a limit, and nothing stays in it when everything has come to rest.

Inspects nodes, like `folkmoot.sim.check_cluster`. Two rules: under faults, nothing grows beyond its limit (by more than
the input of one turn); at rest, nothing is under way. The second finds what the first cannot find in a short run:
entries that are never removed.
"""

# ruff: noqa: SLF001 - what a node keeps for itself is what is measured here

from __future__ import annotations

from typing import Any, Final

from folkmoot.broker.dispatch import EARLY_BYTES_MAX
from folkmoot.kernel.limits import Limits
from folkmoot.merge.stamp import STAMPS_MAX
from folkmoot.sim.check_quota import miscounted
from folkmoot.sim.host import Host
from folkmoot.sim.machine import Machine
from folkmoot.sim.world import World

__all__ = ["BoundChecker", "leftovers"]

_EVERY: Final = 64
"""Turns of a node between two checks of its buffers: unlimited growth is found with this step, too."""

_FRAME_BYTES: Final = 1 << 20
"""By how much one message may exceed the limit of a buffer."""

_COPIES: Final = 8
"""One received byte is kept at most so many times: for the disk, for other nodes, for acknowledgements."""


_PACKET_STEPS: Final = 360
"""The steps of the most expensive packet of a run: it goes to all clients, and is stored for each of them."""


class BoundChecker:
    """Measures the buffers of nodes, and the work of their turns."""

    def __init__(self, world: World, limits: Limits) -> None:
        self.world = world
        self.limits = limits
        self.largest: dict[str, int] = {}  # the largest sizes seen, by buffer, for readers
        self._largest_turn: dict[str, int] = {}  # bytes received in one turn, by machine

    def turn(self, host: Host) -> None:
        """A node has ended a turn."""
        came = host.bytes_in
        host.bytes_in = 0
        self._steps(host)
        if came > self._largest_turn.get(host.name, 0):
            self._largest_turn[host.name] = came
        if host.turns % _EVERY == 0:
            self.look(host)

    def _steps(self, host: Host) -> None:
        """Compare the steps that a turn has spent for clients and other nodes with what they may be."""
        node: Any = host.node
        cluster_node = getattr(node, "cluster_node", None)
        if cluster_node is None:
            return
        work = node._state.work
        # Clients at once, those that waited, the other nodes; each of these, and each node, ends with a packet.
        links = len(cluster_node._inboxes)
        limit = 2 * work.turn_steps + links + (2 + links) * _PACKET_STEPS
        self._check(host, "steps in a turn", work.last_served, limit)

    def look(self, host: Host) -> None:
        """Compare the buffers of a node with the limits."""
        node: Any = host.node
        wrong = miscounted(node) if hasattr(node, "_state") else ""
        if wrong:
            self.world.violate("A13", f"{host.name}: {wrong}")
        cluster_node = getattr(node, "cluster_node", None)
        if cluster_node is None:
            return
        broker = node._broker
        limits = self.limits
        spare = _COPIES * max(_FRAME_BYTES // 16, self._largest_turn.get(host.name, 0))
        self._check(
            host,
            "bytes that wait for disks",
            broker.turn.throttle.backlog_bytes,
            limits.write_backlog_bytes_max + spare,
        )
        # A quarter of the limit, and what nodes let wait whose partitions this one has taken over.
        self._check(
            host,
            "bytes for partitions without a leader",
            broker.turn.throttle.stranded_bytes,
            limits.write_backlog_bytes_max + spare,
        )
        config = node.config.cluster
        for node_id in sorted(cluster_node.peers.up_ids()):
            backlog = cluster_node.peers.backlog_bytes(node_id)
            self._check(host, "bytes of a link", backlog, config.link_buffer_bytes_max + _FRAME_BYTES)
        budget = cluster_node.replication.context.recent_budget
        # Changes that replicas may lack are held beyond that: the write backlog, or what merges write before they wait.
        held_max = max(limits.write_backlog_bytes_max, budget.bytes_max, _FRAME_BYTES)
        recent_max = budget.bytes_max + held_max + spare
        self._check(host, "bytes of recent changes", budget.bytes, recent_max)
        self._check(host, "topics with routes", len(broker.delivery.routes.cache), limits.route_cache_max)
        for waiting in broker.dispatch._early.values():
            size = sum([len(body) for _kind, body in waiting.messages])
            self._check(host, "bytes that came early", size, EARLY_BYTES_MAX)
        for replica in cluster_node.replication.replicas:
            self._check(host, "stamps", len(replica.stamps), STAMPS_MAX)
        for session in node._state.sessions.values():
            waiting = session.queue_count - len(session.inflight)
            self._check(host, "messages of a session", waiting, limits.queue_messages_max + limits.inflight_max)
        for connection in node._state.connections.values():
            self._check(host, "bytes for a client", connection.unsent_bytes, limits.send_buffer_bytes_max + spare)

    def _check(self, host: Machine, what: str, size: int, limit: int) -> None:
        if size > self.largest.get(what, 0):
            self.largest[what] = size
        if size > limit:
            self.world.violate("A13", f"{host.name} has {size} {what}, the limit is {limit}")


def leftovers(host: Machine) -> str:
    """Return what a node still has under way; empty if it is nothing, or unknown."""
    node: Any = host.node
    cluster_node = getattr(node, "cluster_node", None)
    if cluster_node is None:
        return ""
    broker = node._broker
    sizes = {
        "bytes that wait for disks": broker.turn.throttle.backlog_bytes,
        "bytes for partitions without a leader": broker.turn.throttle.stranded_bytes,
        "requests": broker.channel.forward_sender.busy,
        "requests of others": len(broker.delivery.forward_receiver._waiting)
        + len(broker.delivery.forward_receiver._finished),
        "outbox": sum([len(led.outbox) for led in broker.partition.led]),
        "turns that wait for answers": len(broker.turn.commits._owed),
        "announcements without confirmation": len(broker.delivery.interest.unconfirmed()),
        "questions about retained messages": len(broker.turn.landings.unanswered()),
        "feeds that wait": len(broker.feed.feeds) - len(broker.feed.feeds.tailing),
        "transactions": len(broker.delivery.transactions.waiting),
        "clients that wait": len(broker.protocol.admission.early) + len(broker.protocol.admission._parked),
        "early messages": len(broker.dispatch._early) + len(broker.leadership.hosting._early),
        "paused publishers": len(broker.turn.throttle.paused),
        "turns that are not committed": len(cluster_node.replication.context.pending._turns),
    }
    found = [f"{int(size)} {what}" for what, size in sizes.items() if size]
    return f"{host.name} still has " + ", ".join(found) if found else ""

"""`$events/NODE/KIND`: events of this node as messages with JSON payloads. docs/events.md has the schema.

Events go to streams and subscribers of the whole cluster like any message of QoS 1; none is retained. An event without
a subscriber is not made. Events never cause events, and nothing waits for them: those that cannot be published at once
are kept up to a bound (a node that joins a cluster has some before it is a member). Events beyond the bound, and events
of an overloaded node, are dropped and counted. The number in each event shows which are missing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from folkmoot.delivery.publish import Publishing
from folkmoot.kernel.event import Event
from folkmoot.routing.route import Route, Routes
from folkmoot.store.message import Message
from folkmoot.streams.table import Streams
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.latency import SAMPLE, Figures
from folkmoot.turn.state import TIMER_EVENTS, State

__all__ = ["KINDS", "SCHEMA", "EventPublisher"]

SCHEMA: Final = 1
KINDS: Final[list[str]] = [
    "connected",
    "disconnected",
    "refused",
    "latency",
    "view",
    "peer",
    "heal",
    "overload",
    "storage",
    "node",
]

_TURN_MAX: Final = 256  # events in one turn: a hundred thousand clients may disconnect in the same second
_PREFIX: Final = b"$events/"

# Facts of the log that are published as events too.
_HEARD: Final[dict[str, str]] = {
    "view_installed": "view",
    "view_excluded": "view",
    "peer_up": "peer",
    "peer_down": "peer",
    "peer_dead": "peer",
    "healed": "heal",
    "storage_full": "storage",
    "storage_has_room": "storage",
    "opened": "node",
    "leaving": "node",
    "clock_wrong": "node",
    "clock_right": "node",
    "clocks_disagree": "node",
    "clocks_agree": "node",
    "time_set": "node",
}

# Field names that stand for the publishing node here, and for another one in the log.
_RENAMED: Final[dict[str, str]] = {"node": "peer", "incarnation": "peer_incarnation", "time_us": "began_us"}


class EventPublisher:
    """Publishes the events of this node."""

    def __init__(self, state: State, fabric: Fabric, routes: Routes, publishing: Publishing, streams: Streams) -> None:
        self.state = state
        self.fabric = fabric
        self.routes = routes
        self.publishing = publishing
        self._topics: dict[str, bytes] = {}
        node = state.identity.node_id.encode()
        for kind in KINDS:
            self._topics[kind] = _PREFIX + node + b"/" + kind.encode()
        # Before it is a member, a node of a cluster does not know the subscribers; it knows its own streams.
        self._kept = any(stream.config.filter.startswith(_PREFIX) for stream in streams.streams)
        state.listening = self._kept
        self._number = 0
        self._level = 0
        self._published = 0  # messages of clients, when the level was published last
        self._timed = False

    # -- subscribers --------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Find out anew whether events have subscribers, after their subscriptions have changed."""
        self.routes.events_changed = False
        state = self.state
        state.listening = self._kept or any(self._is_taken(kind) for kind in KINDS)
        if not state.listening:
            state.news.clear()  # they have waited for a time at which they can be published, and nobody wants them
        meter = state.meter
        on = self._is_taken("latency") and state.limits.events_interval_us > 0
        if on and not meter.on:
            meter.start(state.now)
            if not self._timed:
                self._timed = True
                state.timers.set(state.now + state.limits.events_interval_us, TIMER_EVENTS, 0)
        elif meter.on and not on:
            meter.stop()

    def _is_taken(self, kind: str) -> bool:
        return _has_takers(self.routes.lookup(self._topics[kind]))

    def overhear(self, events: list[Event]) -> None:
        """Publish those facts of the log that are events."""
        for event in events:
            kind = _HEARD.get(event.kind)
            if kind is not None:
                fields: dict[str, object] = {"what": event.kind}
                for name, value in event.fields.items():
                    if kind == "node" and name == "node":
                        continue  # itself
                    fields[_RENAMED.get(name, name)] = value
                self.state.tell(kind, fields)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def runnable(self) -> bool:
        """Whether there are events that can be published now."""
        return bool(self.state.news) and self._may_publish()

    def _may_publish(self) -> bool:
        known = self.state.routes_known and self.state.unheard < 0
        return known and (self.fabric.alone or not self.fabric.idle)

    def step(self) -> None:
        """End of a turn: publish the collected events."""
        state = self.state
        if state.overload_own != self._level:
            self._tell_overload(state.overload_own)
        if not state.news or not self._may_publish():
            return
        full = state.storage_full or self.publishing.forward_sender.commits.throttle.is_full()
        for _ in range(_TURN_MAX):
            if not state.news:
                return
            news = state.news.popleft()
            route = self.routes.lookup(self._topics[news.kind])
            if not _has_takers(route):
                continue
            self._number += 1
            if full:
                state.counters.events_dropped += 1
                continue
            payload: dict[str, object] = {
                "schema": SCHEMA,
                "kind": news.kind,
                "node": state.identity.node_id,
                "incarnation": state.identity.incarnation,
                "number": self._number,
                "time_us": news.time_us,
            }
            payload.update(news.fields)
            message = Message(route.topic, msgspec.json.encode(payload), 1, False, b"", "", state.clock.time, 0)
            self.publishing.publish(message, None, b"", 0)
            state.counters.events_published += 1

    def _tell_overload(self, level: int) -> None:
        """Publish a new level of overload, unless the events themselves may have caused it: they are written too."""
        counters = self.state.counters
        published = counters.publish_received_qos0 + counters.publish_received_qos1 + counters.publish_received_qos2
        if level and published == self._published:
            return
        self._level = level
        self._published = published
        self.state.tell("overload", {"level": level, "cluster": self.state.overload, "why": self.state.overload_why})

    # -- latency ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """An interval is over: publish its measurements, one event per prefix."""
        state = self.state
        meter = state.meter
        if not meter.on:
            self._timed = False
            return
        counts, oldest = meter.waiting()
        for number in range(len(meter.figures)):
            figures = meter.figures[number]
            if not figures.is_empty() or counts[number]:
                waiting_us = state.now - oldest[number] if counts[number] else 0
                state.tell("latency", self._latency(figures, counts[number], waiting_us))
        meter.forget()
        meter.since_us = state.now
        state.timers.set(state.now + state.limits.events_interval_us, TIMER_EVENTS, 0)

    def _latency(self, figures: Figures, waiting: int, waiting_us: int) -> dict[str, object]:
        ack, deliver = figures.ack, figures.deliver
        shift_us = self.state.clock.shift_us
        return {
            "prefix": figures.prefix,
            "from_us": self.state.meter.since_us + shift_us,
            "to_us": self.state.now + shift_us,
            "objective_us": self.state.limits.events_objective_us,
            "ack": {
                "taken": figures.taken,
                "count": ack.count,
                "within": ack.within,
                "failed": figures.failed,
                "waiting": waiting,
                "waiting_us": waiting_us,
                "buckets": ack.pairs(),
            },
            "deliver": {
                "sample": SAMPLE,
                "count": deliver.count,
                "within": deliver.within,
                "buckets": deliver.pairs(),
            },
        }


def _has_takers(route: Route) -> bool:
    return bool(route.recipients or route.groups or route.logs or route.elsewhere)

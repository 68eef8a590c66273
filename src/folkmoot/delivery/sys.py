"""`$SYS/broker/...`: figures of the node for its subscribers.

The latest values are kept in memory and sent to new subscribers like retained messages.
"""

from __future__ import annotations

from folkmoot.delivery.publish import Publishing
from folkmoot.kernel.clock import SECOND
from folkmoot.partition.queue import Queue
from folkmoot.session.connection import OPEN
from folkmoot.session.subscription import Subscription
from folkmoot.store.message import Message
from folkmoot.topics.name import matches
from folkmoot.turn.state import TIMER_SYS, State

__all__ = ["SysTopics"]

_ROOT = b"$SYS/broker/"


class SysTopics:
    """Publishes the figures of the node at an interval."""

    def __init__(self, state: State, queue: Queue, publishing: Publishing) -> None:
        self.state = state
        self.queue = queue
        self.publishing = publishing
        self.latest: dict[bytes, Message] = {}

    def start(self) -> None:
        """Begin to publish, if an interval is set."""
        if self.state.limits.sys_interval_us:
            self.tick()

    def tick(self) -> None:
        """Publish all values that have changed, and set the next interval."""
        for topic, value in self._values():
            payload = value.encode()
            known = self.latest.get(topic)
            if known is not None and known.payload == payload:
                continue
            message = Message(topic, payload, 0, True, b"", "", self.state.clock.time, 0)
            self.latest[topic] = message
            self.publishing.publish_live(message)
        self.state.timers.set(self.state.now + self.state.limits.sys_interval_us, TIMER_SYS, 0)

    def _values(self) -> list[tuple[bytes, str]]:
        state = self.state
        c = state.counters
        received = c.publish_received_qos0 + c.publish_received_qos1 + c.publish_received_qos2
        sent = c.publish_sent_qos0 + c.publish_sent_qos1 + c.publish_sent_qos2
        dropped = c.dropped_queue_full + c.dropped_qos0_slow + c.dropped_qos0_moved
        dropped += c.dropped_expired + c.dropped_too_large
        values: list[tuple[str, str]] = [
            ("version", "folkmoot version " + state.identity.version),
            ("node", state.identity.node_id),
            ("uptime", str((state.now - state.started_us) // SECOND)),
            ("clients/connected", str(c.clients_connected)),
            ("clients/disconnected", str(len(state.sessions) - c.clients_connected)),
            ("clients/total", str(len(state.sessions))),
            ("clients/expired", str(c.sessions_expired)),
            ("sessions/persistent", str(c.sessions_persistent)),
            ("messages/received", str(received)),
            ("messages/sent", str(sent)),
            ("messages/dropped", str(dropped)),
            ("messages/queued", str(c.queue_messages)),
            ("messages/queued/bytes", str(c.queue_bytes)),
            ("bytes/received", str(c.bytes_received)),
            ("bytes/sent", str(c.bytes_sent)),
            ("retained messages/count", str(c.retained_messages)),
            ("subscriptions/count", str(c.subscriptions_persistent + c.subscriptions_transient)),
            ("subscriptions/shared", str(c.subscriptions_shared)),
            ("store/rows/written", str(c.commit_rows)),
            ("store/full", str(c.storage_full)),
            ("streams/records", str(c.stream_records)),
        ]
        return [(_ROOT + name.encode(), value) for name, value in values]

    def welcome(self, subscription: Subscription) -> None:
        """Send the latest values to a new subscription of $SYS, like retained messages."""
        if not subscription.topic_filter.startswith(b"$SYS") or subscription.share or subscription.retain_handling == 2:
            return
        session = subscription.session
        connection = session.connection
        if connection is None or connection.state != OPEN:
            return
        identifiers = subscription.as_recipient().identifiers
        for topic, message in self.latest.items():
            if matches(subscription.topic_filter, topic):
                self.queue.send_qos0(session, message, True, identifiers)

"""Rows of the store and sessions in memory as rows of the tables for operators (`table`). Decides nothing.

Names and meanings of the columns are in `folkmoot.client.column`. They contain no payload of a queue and no secret.
"""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.kind import PUBLISH
from folkmoot.mqtt.property_decode import decode_properties
from folkmoot.mqtt.varint import encode_varint
from folkmoot.protocol.lifecycle import EXPIRY_NEVER, NEVER_US
from folkmoot.session.session import Session
from folkmoot.session.subscription import NO_LOCAL, QOS_MASK, RETAIN_AS_PUBLISHED, Subscription
from folkmoot.store.message import Message
from folkmoot.store.row import SessionRow, SubscriptionRow
from folkmoot.streams.log import StreamLog
from folkmoot.topics.name import split_share

__all__ = [
    "Row",
    "live_queue",
    "live_session",
    "live_subscription",
    "owner_of",
    "retained_row",
    "session_row",
    "stream_row",
    "subscription_row",
]

Row = dict[str, object]


def owner_of(session: Session | None, own: str) -> str | None:
    """Return the node that a client is connected to, as the leader of its session knows it."""
    if session is None or session.connection is None:
        return None
    remote = session.connection.remote
    return own if remote is None else remote.node_id


def session_row(partition: int, client_id: str, row: SessionRow, node: str | None) -> Row:
    """Return a stored session as a row; `node`: where its client is connected."""
    never = row.expiry_s == EXPIRY_NEVER
    away_us = 0
    if row.ends_us:
        away_us = row.ends_us - (NEVER_US if never else row.expiry_s * SECOND)
    return {
        "partition": partition,
        "client_id": client_id,
        "username": row.username or None,
        "persistent": True,
        "version": row.version,
        "connected": row.ends_us == 0,
        "node": node if row.ends_us == 0 else None,
        "expiry_s": None if never else row.expiry_s,
        "disconnected_at": away_us if away_us > 0 else None,  # older versions did not store it
        "ends_at": row.ends_us if row.ends_us and not never else None,
    }


def live_session(session: Session, node: str) -> Row:
    """Return a transient session of this node as a row."""
    return {
        "partition": session.partition,
        "client_id": session.client_id,
        "username": session.username or None,
        "persistent": False,
        "version": session.version,
        "connected": session.connection is not None,
        "node": node if session.connection is not None else None,
        "expiry_s": 0,
        "disconnected_at": None,
        "ends_at": None,
    }


def subscription_row(partition: int, client_id: str, name: bytes, row: SubscriptionRow) -> Row:
    """Return a stored subscription as a row."""
    return _subscription(partition, client_id, name, row.options, row.identifier, True)


def live_subscription(subscription: Subscription) -> Row:
    """Return a subscription of a transient session as a row."""
    session = subscription.session
    return _subscription(
        session.partition,
        session.client_id,
        subscription.name,
        subscription.options,
        subscription.identifier,
        False,
    )


def _subscription(partition: int, client_id: str, name: bytes, options: int, identifier: int, persistent: bool) -> Row:
    split = split_share(name)
    return {
        "partition": partition,
        "client_id": client_id,
        "filter": (name if split is None else split[1]).decode(),
        "share": None if split is None else split[0].decode(),
        "qos": options & QOS_MASK,
        "no_local": bool(options & NO_LOCAL),
        "retain_as_published": bool(options & RETAIN_AS_PUBLISHED),
        "retain_handling": options >> 4 & 3,
        "identifier": identifier or None,
        "persistent": persistent,
    }


def live_queue(session: Session) -> Row | None:
    """Return the waiting messages of a transient session as a row; None when there are none."""
    waiting = session.waiting
    inflight = len(session.inflight)
    if not waiting and not inflight:
        return None
    return {
        "partition": session.partition,
        "client_id": session.client_id,
        "persistent": False,
        "connected": session.connection is not None,
        "messages": waiting + inflight,
        "bytes": session.ready_bytes + sum([entry.size for entry in session.inflight.values()]),
        "inflight": inflight,
        "oldest_at": None,
    }


def retained_row(partition: int, message: Message, payload: bool) -> Row:
    """Return a retained message as a row, with its payload only if asked."""
    content_type: str | None = None
    if message.properties:
        encoded = encode_varint(len(message.properties)) + message.properties
        properties = decode_properties(encoded, 0, PUBLISH)[0]
        content_type = None if properties is None else properties.content_type
    row: Row = {
        "partition": partition,
        "topic": message.topic.decode(),
        "qos": message.qos,
        "payload_bytes": len(message.payload),
        "content_type": content_type,
        "publisher": message.publisher,
        "published_at": message.created_us,
        "expires_at": message.expires_us or None,
    }
    if payload:
        row["payload"] = message.payload
    return row


def stream_row(log: StreamLog, leader: str) -> Row:
    """Return a stream partition as a row."""
    config = log.config
    return {
        "partition": log.store_partition,
        "stream": config.name,
        "stream_partition": log.index,
        "filter": config.filter.decode(),
        "leader": leader,
        "oldest": log.oldest,
        "next": log.readable_end,
        "records": log.readable_end - log.oldest,
        "bytes": log.bytes,
        "oldest_at": log.oldest_time_us,
        "latest_at": log.latest_time_us,
    }

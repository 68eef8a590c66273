"""The section `[limits]`: every limit of a node, with its unit, bounds and reason.

Mirrors `folkmoot.kernel.limits.Limits`, attribute by attribute. Names of durations have no unit here, because their
values have one: `connect_timeout = "10s"` is `connect_timeout_us = 10_000_000`.
"""

from __future__ import annotations

from pydantic import Field

from folkmoot.config.base import Section
from folkmoot.config.unit import NEVER_US, Duration, Size, SizeOrAuto
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.limits import AUTO_BYTES

__all__ = ["LimitSettings"]

PACKET_BYTES = 268_435_460  # the largest packet that MQTT can express: 256 MiB and its header


class LimitSettings(Section):
    """What one node accepts. Limits that MQTT 5 can announce are announced in CONNACK."""

    # Connections
    connections_max: int = Field(
        1_000_000,
        ge=1,
        description="Connected clients at once; further ones are refused. Bounds memory and descriptors.",
    )
    connect_timeout: Duration = Field(
        10 * SECOND,
        ge=SECOND // 10,
        le=3600 * SECOND,
        description="Time from the accept to a complete CONNECT, TLS included. A slower client only occupies a socket.",
    )
    handshakes_per_address_max: int = Field(
        1024,
        ge=1,
        description=(
            "Connections of one address (one network of 64 bits, with IPv6) whose CONNECT is not complete, TLS "
            "handshake included; at most half of all sockets. Beyond it, one that has waited for over a second is "
            "closed for a new one, or else the new one is. All clients behind a proxy have its address."
        ),
    )
    connect_bytes_max: Size = Field(
        65_536,
        ge=128,
        le=PACKET_BYTES,
        description="Bytes of a CONNECT packet: bounds what an unknown peer can make the node keep in memory.",
    )
    login_failures_max: int = Field(
        20,
        ge=0,
        le=1_000_000,
        description=(
            "Wrong passwords from one address, or for one user, that are checked at once. Then an address is refused "
            "with 0x9F, and checks for such a user wait behind all others. A client that was let in from an address is "
            "not refused there, and a password that is remembered needs no check. Behind a proxy all clients have one "
            "address: each success pays for one failure. 0: no limit."
        ),
    )
    login_failure_interval: Duration = Field(
        SECOND,
        ge=SECOND // 1000,
        le=3600 * SECOND,
        description=(
            "After this time one more is checked; if it is wrong too, the next one after twice this time, and so on up "
            "to 64 times."
        ),
    )
    keep_alive_max: Duration = Field(
        65_535 * SECOND,
        ge=SECOND,
        le=65_535 * SECOND,
        multiple_of=SECOND,
        description="Longest keep alive. A client that requests more gets this value (Server Keep Alive).",
    )
    keep_alive_default: Duration = Field(
        0,
        le=65_535 * SECOND,
        multiple_of=SECOND,
        description=(
            "Keep alive of a client that requests none; 0 leaves it without, and a dead client is detected late."
        ),
    )
    packet_bytes_max: Size = Field(
        1_048_576,
        ge=128,
        le=PACKET_BYTES,
        description="Bytes of any packet after CONNECT, announced as Maximum Packet Size. Bounds memory per client.",
    )
    send_buffer_bytes_max: Size = Field(
        4_194_304,
        ge=4096,
        description=(
            "Bytes that wait for one slow reader. Beyond it, QoS 0 is dropped, and QoS 1 and 2 stay in the queue."
        ),
    )
    client_id_bytes_max: Size = Field(
        1024, ge=23, le=65_535, description="Bytes of a client id. It is part of every key of the session in the store."
    )
    user_properties_max: int = Field(
        64,
        ge=0,
        le=10_000,
        description=(
            "User properties of one CONNECT or PUBLISH, each two strings in memory; more are refused with 0x97."
        ),
    )
    # Sessions
    session_expiry_max: Duration = Field(
        NEVER_US,
        le=NEVER_US,
        multiple_of=SECOND,
        description='Longest life of a session without a connection; "never" allows sessions that stay for ever.',
    )
    session_expiry_v3: Duration = Field(
        NEVER_US,
        le=NEVER_US,
        multiple_of=SECOND,
        description="Session expiry of 3.1 and 3.1.1 clients with clean session 0, which cannot set it themselves.",
    )
    session_expiry_removed: Duration = Field(
        86_400 * SECOND,
        le=NEVER_US,
        multiple_of=SECOND,
        description=(
            "How long the stored session of a user who was removed from the password file stays, from the reload or "
            "start on. A user who is there again in time has it back."
        ),
    )
    sessions_max: int = Field(1_000_000, ge=1, description="Sessions on this node, connected or not.")
    subscriptions_max: int = Field(
        10_000, ge=1, description="Subscriptions of one session; more are refused with 0x97, quota exceeded."
    )
    filter_patterns_max: int = Field(
        512,
        ge=1,
        le=65_536,
        description=(
            "Different sets of levels at which the filters of one session have `+`, and different groups of its shared "
            "subscriptions; more are refused with 0x97. At most so many of its filters with `+` match one topic, "
            "which bounds the work of a publication."
        ),
    )
    receive_max: int = Field(
        1024,
        ge=1,
        le=65_535,
        description="QoS 1 and 2 messages in flight from one client, announced as Receive Maximum.",
    )
    inflight_max: int = Field(
        1024,
        ge=1,
        le=65_535,
        description="QoS 1 and 2 messages in flight to one client, where its own Receive Maximum allows as many.",
    )
    queue_messages_max: int = Field(
        100_000, ge=1, description="Messages that wait on disk for one session, in addition to those in flight."
    )
    queue_bytes_max: Size = Field(
        268_435_456, ge=1024, description="Bytes of topics and payloads that wait on disk for one session."
    )
    queue_memory_bytes_max: Size = Field(
        33_554_432,
        ge=1024,
        description=(
            "Memory that the waiting messages of one transient session take, whose queue is not on disk: topics, "
            "payloads, and 256 bytes for each message."
        ),
    )
    queue_full_drops_oldest: bool = Field(
        False, description="Which message is dropped when a queue is full: true the oldest, false the newest."
    )
    queue_qos0_offline: bool = Field(
        False, description="Whether QoS 0 messages are kept for a persistent session that has no connection."
    )
    message_expiry_max: Duration = Field(
        0,
        le=NEVER_US,
        multiple_of=SECOND,
        description=(
            "Upper bound of the expiry of every message; 0 sets none, and messages without expiry wait for ever."
        ),
    )
    will_delay_max: Duration = Field(
        NEVER_US, le=NEVER_US, multiple_of=SECOND, description="Longest will delay that a client may request."
    )
    # Publishing
    qos_max: int = Field(2, ge=0, le=2, description="Highest QoS for publishing, announced as Maximum QoS.")
    retain_available: bool = Field(True, description="Whether messages can be retained; false refuses with 0x9A.")
    retained_messages_max: int = Field(10_000_000, ge=0, description="Retained messages on this node, one per topic.")
    retained_sweep_interval: Duration = Field(
        60 * SECOND,
        le=86_400 * SECOND,
        description=(
            "How long an expired retained message may stay on the disk and in the counts of its user before it is "
            "removed. Partitions in which none has expired cost nothing. 0: it stays until it is read or replaced."
        ),
    )
    wildcard_available: bool = Field(True, description="Whether subscriptions may have wildcards; false: 0xA2.")
    shared_available: bool = Field(True, description="Whether $share/GROUP/FILTER works; false refuses with 0x9E.")
    subscription_ids_available: bool = Field(
        True, description="Whether subscriptions may have an identifier; false refuses with 0xA1."
    )
    topic_alias_max: int = Field(
        64, ge=0, le=65_535, description="Topic aliases that one client may define: each one keeps a topic in memory."
    )
    topic_alias_out_max: int = Field(
        64, ge=0, le=65_535, description="Topic aliases towards one client, where its Topic Alias Maximum allows them."
    )
    topic_levels_max: int = Field(
        128, ge=1, le=32_768, description="Levels of a topic or filter: each one is a step of every look-up."
    )
    topic_bytes_max: Size = Field(65_535, ge=1, le=65_535, description="Bytes of a topic name or filter.")
    publish_rate_max: int = Field(
        0,
        ge=0,
        description=(
            "Messages per second from one connection, on average: a connection that is a second ahead is not read for"
            " a while. Nothing is dropped. 0: no limit."
        ),
    )
    check_payload_format: bool = Field(
        False,
        description=(
            "Whether payloads declared as UTF-8 are checked (0x99 if they are not); costs a pass over each one."
        ),
    )
    # Users
    user_connections_max: int = Field(
        0,
        ge=0,
        description="Clients of one user that are connected to this node; further ones are refused. 0: no limit.",
    )
    user_sessions_max: int = Field(
        0, ge=0, description="Sessions of one user at this node, stored and connected ones. 0: no limit."
    )
    user_subscriptions_max: int = Field(
        0, ge=0, description="Subscriptions of all sessions of one user at this node. 0: no limit."
    )
    user_filter_patterns_max: int = Field(
        4096,
        ge=0,
        description=(
            "What `filter_patterns_max` counts, of all sessions of a user at this node, beyond the first eight of each "
            "session; more are refused with 0x97. All clients without a checked user name count as one user. "
            "0: no limit."
        ),
    )
    user_retained_messages_max: int = Field(
        0,
        ge=0,
        description=(
            "Retained messages of one user at this node. The user can always replace and clear them. 0: no limit."
        ),
    )
    user_retained_bytes_max: Size = Field(
        0, ge=0, description="Bytes of the retained messages of one user at this node. 0: no limit."
    )
    user_queue_bytes_max: Size = Field(
        0,
        ge=0,
        description=(
            "Bytes of topics and payloads that wait for all sessions of one user at this node. Beyond it, these "
            "sessions lose messages as if their queues were full. 0: no limit."
        ),
    )
    user_producers_max: int = Field(
        0,
        ge=0,
        description=(
            "Idempotent producers of one user that a partition remembers; beyond it, those of the same user that were "
            "idle for longest are forgotten. 0: no limit."
        ),
    )
    user_publish_rate_max: int = Field(
        0,
        ge=0,
        description=(
            "Messages per second that all clients of one user may publish through this node, on average: they are read "
            "more slowly, and nothing is dropped. 0: no limit."
        ),
    )
    user_publish_bytes_max: Size = Field(
        0, ge=0, description="Bytes per second that all clients of one user may publish, as `user_publish_rate_max`."
    )
    user_share_max: int = Field(
        90,
        ge=1,
        le=100,
        description=(
            "Percent of `connections_max`, `sessions_max`, `retained_messages_max` and `producers_max` that one user "
            "may take, and of the memory for subscriptions; the rest is for the others. Applies where user names are "
            "checked."
        ),
    )
    user_anonymous_as_one: bool = Field(
        False,
        description=(
            "Whether all clients without a checked user name count as one user. Otherwise only `user_share_max` "
            "applies to them, where other clients have names."
        ),
    )
    # The node
    memory_bytes_max: SizeOrAuto = Field(
        AUTO_BYTES,
        description=(
            'Memory that the process may use; "auto" is 60 percent of what the machine or its control group has, 0 '
            "sets no limit. From 70 percent of it on publishers are slowed, from 85 percent on connections and "
            "subscriptions are refused, and at 95 percent the clients for which most waits are disconnected."
        ),
    )
    write_backlog_bytes_max: Size = Field(
        67_108_864,
        ge=65_536,
        description="Bytes submitted to the disk and not durable yet, beyond which no publisher is read.",
    )
    route_cache_max: int = Field(
        100_000, ge=0, description="Topics whose receivers are cached; about 1 KB of memory each."
    )
    producers_max: int = Field(
        100_000,
        ge=1,
        description=(
            "Idempotent producers remembered: on disk per partition that they write to, in memory for all partitions "
            "together (those that are not in memory are read from disk). Beyond it, the producers that were idle for "
            "longest are forgotten: what they repeat after that is applied again."
        ),
    )
    sys_interval: Duration = Field(
        10 * SECOND,
        le=86_400 * SECOND,
        description="Time between two publications of the $SYS topics; 0 publishes none.",
    )
    events_interval: Duration = Field(
        10 * SECOND,
        le=3600 * SECOND,
        description="Time between two events with latencies (`$events/NODE/latency`); 0 publishes none.",
    )
    events_objective: Duration = Field(
        5_000,
        ge=1,
        le=3600 * SECOND,
        description="Target latency of acknowledgements and deliveries: these events count how many met it.",
    )
    events_prefix_levels: int = Field(
        1, ge=1, le=16, description="Levels at the beginning of a topic by which latencies are grouped."
    )
    events_prefixes_max: int = Field(
        100, ge=1, le=10_000, description="Topic prefixes with figures of their own; all others are counted together."
    )
    turn_steps_max: int = Field(
        65_536,
        ge=256,
        le=16_777_216,
        description=(
            "Steps of work for clients in one turn, after which other input is read and the rest waits; a step takes "
            "about 0.25 us. A lower value delays other clients for a shorter time, and costs throughput."
        ),
    )
    page_rows: int = Field(
        128, ge=1, le=10_000, description="Rows read from the store at once: bounds the time of a turn."
    )
    transaction_bytes_max: Size = Field(
        268_435_456,
        ge=1_048_576,
        description=(
            "Bytes of one app's transactions that are staged, or committed and not published yet; a faster writer "
            "waits. Each chunk counts for 600 bytes more than it has. Bounds the memory for merging a split."
        ),
    )
    transaction_expiry: Duration = Field(
        3600 * SECOND,
        ge=SECOND,
        description=(
            "Time after its newest chunk after which an uncommitted transaction is dropped. Must exceed the longest "
            "batch of the writer, from its first finished task to its commit."
        ),
    )
    shared_bodies_max: int = Field(
        1_000_000,
        ge=0,
        description="Messages stored once for several sessions; beyond it, every session has its own copy.",
    )

"""Every limit of a node, with its default and its reason; 0 means 'no limit' only where the comment says so."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND

__all__ = ["AUTO_BYTES", "Limits"]

AUTO_BYTES: Final = -1  # in place of a size: as much as suits the machine


class Limits:
    """The limits of one node; the configuration sets them before the node starts, and they never change afterwards."""

    def __init__(self) -> None:
        # Connections
        self.connections_max: int = 1_000_000
        self.connect_timeout_us: int = 10 * SECOND  # a slower handshake only occupies a socket
        self.handshakes_per_address_max: int = 1024  # connections of one address without a complete CONNECT
        self.connect_bytes_max: int = 65_536  # bounds what an unknown peer can make the node buffer
        self.login_failures_max: int = 20  # wrong passwords of an address, before it must wait; 0 = no limit
        self.login_failure_interval_us: int = SECOND  # after this one more, longer each time if they are wrong too
        self.keep_alive_max_s: int = 65_535  # a client that requests more gets this as Server Keep Alive
        self.keep_alive_default_s: int = 0  # for a client that requests 0 (none); 0 = none
        self.packet_bytes_max: int = 1_048_576  # announced as Maximum Packet Size
        self.send_buffer_bytes_max: int = (
            4_194_304  # per connection; beyond it QoS 0 is dropped and QoS 1, 2 wait in the queue
        )
        self.client_id_bytes_max: int = 1024
        self.user_properties_max: int = 64  # per packet
        # Sessions
        self.session_expiry_max_s: int = 0xFFFF_FFFF  # 0xFFFFFFFF = never
        self.session_expiry_removed_s: int = 86_400  # of users who were removed; 0xFFFFFFFF = never
        self.session_expiry_v3_s: int = 0xFFFF_FFFF  # for 3.1 and 3.1.1 clients with clean session 0
        self.sessions_max: int = 1_000_000
        self.subscriptions_max: int = 10_000  # per session
        self.filter_patterns_max: int = 512  # per session: positions of `+`; as many of its filters can match a topic
        self.receive_max: int = 1024  # unacknowledged QoS 1 and 2 messages from one client
        self.inflight_max: int = 1024  # and to one client, if its Receive Maximum allows as many
        self.queue_messages_max: int = 100_000  # per session, beyond those in flight
        self.queue_bytes_max: int = 268_435_456  # per session
        self.queue_memory_bytes_max: int = 33_554_432  # per transient session: its queue is in memory
        self.queue_full_drops_oldest: bool = False  # False: the newest message is dropped
        self.queue_qos0_offline: bool = False  # keep QoS 0 messages for persistent sessions that are offline
        self.message_expiry_max_s: int = 0  # upper bound of the expiry of every message; 0 = none
        self.will_delay_max_s: int = 0xFFFF_FFFF
        # Publishing
        self.qos_max: int = 2
        self.retain_available: bool = True
        self.retained_messages_max: int = 10_000_000
        self.retained_sweep_interval_us: int = 60 * SECOND  # 0 = expired ones stay until they are read or replaced
        self.wildcard_available: bool = True
        self.shared_available: bool = True
        self.subscription_ids_available: bool = True
        self.topic_alias_max: int = 64  # inbound, per connection
        self.topic_alias_out_max: int = 64  # outbound, per connection, if the client allows
        self.topic_levels_max: int = 128
        self.topic_bytes_max: int = 65_535
        self.publish_rate_max: int = 0  # messages per second and connection; 0 = no limit
        self.check_payload_format: bool = False  # check payloads that are declared as UTF-8
        # Of one user at this node; 0 = no limit of its own
        self.user_connections_max: int = 0
        self.user_sessions_max: int = 0
        self.user_subscriptions_max: int = 0
        self.user_filter_patterns_max: int = 4096  # positions of `+` and groups beyond the first eight of each session
        self.user_retained_messages_max: int = 0
        self.user_retained_bytes_max: int = 0
        self.user_queue_bytes_max: int = 0
        self.user_producers_max: int = 0  # per partition
        self.user_publish_rate_max: int = 0  # messages per second
        self.user_publish_bytes_max: int = 0  # bytes per second
        self.user_share_max: int = 90  # percent of a limit of the node that one user may take
        self.user_anonymous_as_one: bool = False  # the quotas apply to all anonymous clients together
        # The node
        self.memory_bytes_max: int = AUTO_BYTES  # of the process; 0 = no limit; the driver knows what AUTO_BYTES is
        self.write_backlog_bytes_max: int = 67_108_864  # not durable yet; beyond it publishers are not read
        self.route_cache_max: int = 100_000  # topics whose routes are cached
        self.producers_max: int = 100_000  # idempotent producers remembered per partition
        self.sys_interval_us: int = 10 * SECOND  # 0 = no $SYS topics
        self.events_interval_us: int = 10 * SECOND  # between two latency events; 0 = none
        self.events_objective_us: int = 5_000  # the target latency of acknowledgements and deliveries
        self.events_prefix_levels: int = 1  # topic levels by which latencies are grouped
        self.events_prefixes_max: int = 100  # further prefixes are counted together
        self.turn_steps_max: int = 65_536  # of input handled in one turn; a step takes about 0.25 us
        self.page_rows: int = 128  # rows read from the store at once; bounds the time of a turn
        self.transaction_bytes_max: int = 268_435_456  # per app: staged, or committed and not published
        self.transaction_expiry_us: int = 3600 * SECOND  # of uncommitted ones, after the newest chunk
        self.shared_bodies_max: int = (
            1_000_000  # messages stored once for many sessions; beyond it each session has its own copy
        )

"""Every limit of a node, by name, with its default and its reason; 0 means 'no limit' only where it says so."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND

__all__ = ["Limits"]


class Limits:
    """The limits of one node; attributes are set by the configuration before the node starts and never after."""

    def __init__(self) -> None:
        # Connections
        self.connections_max: int = 1_000_000
        self.connect_timeout_us: int = 10 * SECOND  # a handshake slower than this holds a socket for nothing
        self.connect_bytes_max: int = 65_536  # what an unknown peer may make us buffer
        self.keep_alive_max_s: int = 65_535  # a larger wish is answered with Server Keep Alive
        self.keep_alive_default_s: int = 0  # what a client gets that asks for 0 (none); 0 = none
        self.packet_bytes_max: int = 1_048_576  # announced as Maximum Packet Size
        self.send_buffer_bytes_max: int = (
            4_194_304  # per connection; beyond it QoS 0 is dropped and QoS 1, 2 wait in the queue
        )
        self.client_id_bytes_max: int = 1024
        self.user_properties_max: int = 64  # per packet
        # Sessions
        self.session_expiry_max_s: int = 0xFFFF_FFFF  # 0xFFFFFFFF = never
        self.session_expiry_v3_s: int = 0xFFFF_FFFF  # for 3.1 and 3.1.1 clients with clean session 0
        self.sessions_max: int = 1_000_000
        self.subscriptions_max: int = 10_000  # per session
        self.receive_max: int = 1024  # QoS 1 and 2 messages that a client may have in flight to us
        self.inflight_max: int = 1024  # and we to a client, if its own Receive Maximum allows
        self.queue_messages_max: int = 100_000  # per session; waiting beyond the window
        self.queue_bytes_max: int = 268_435_456  # per session
        self.queue_full_drops_oldest: bool = False  # False: the newest goes
        self.queue_qos0_offline: bool = False  # keep QoS 0 messages for absent persistent sessions
        self.message_expiry_max_s: int = 0  # upper bound put on every message; 0 = none
        self.will_delay_max_s: int = 0xFFFF_FFFF
        # Publishing
        self.qos_max: int = 2
        self.retain_available: bool = True
        self.retained_messages_max: int = 10_000_000
        self.wildcard_available: bool = True
        self.shared_available: bool = True
        self.subscription_ids_available: bool = True
        self.topic_alias_max: int = 64  # inbound, per connection
        self.topic_alias_out_max: int = 64  # outbound, per connection, if the client allows
        self.topic_levels_max: int = 128
        self.topic_bytes_max: int = 65_535
        self.publish_rate_max: int = 0  # messages per second and connection; 0 = no limit
        self.check_payload_format: bool = False  # verify that payloads declared as UTF-8 are
        # The node
        self.write_backlog_bytes_max: int = 67_108_864  # not yet durable; beyond it publishers are not read
        self.route_cache_max: int = 100_000  # topics whose routes are remembered
        self.producers_max: int = 100_000  # idempotent producers remembered per partition
        self.sys_interval_us: int = 10 * SECOND  # 0 = no $SYS topics
        self.events_interval_us: int = 10 * SECOND  # between two events with latencies; 0 = there are none
        self.events_objective_us: int = 5_000  # what an acknowledgement and a delivery should take at most
        self.events_prefix_levels: int = 1  # of a topic, by which latencies are told apart
        self.events_prefixes_max: int = 100  # further prefixes count as one
        self.page_rows: int = 128  # rows read from the store at once; bounds the time that one turn takes
        self.transaction_bytes_max: int = 268_435_456  # per app: staged, or committed and not published
        self.transaction_expiry_us: int = 3600 * SECOND  # after its newest chunk, what is not committed goes
        self.shared_bodies_max: int = (
            1_000_000  # messages stored once for many sessions; beyond it each session has its own copy
        )

"""The counters and gauges of a node: plain integers, so that counting costs one addition.

Owns the attributes; `catalogue` describes them, and a test compares the two. Reads no clock and decides nothing. A
counter only grows while the process lives; a gauge is set, or changed in both directions, by the owner of what it
counts.
"""

from __future__ import annotations

from folkmoot.metrics.histogram import Histogram

__all__ = ["Counters", "Histograms"]


class Counters:
    """All counters and gauges of one node, each an int that begins at 0; PUBLISH is counted by QoS only."""

    def __init__(self) -> None:
        # Network connections, then clients, whose CONNECT was accepted.
        self.started_us = self.connections = self.connections_opened = self.connections_closed = 0
        self.clients_connected = self.connects_accepted = self.connects_refused = 0
        self.connections_refused = self.connections_evicted = self.connection_errors = self.connections_revoked = 0
        self.connect_timeouts = self.keep_alive_timeouts = self.takeovers = 0
        self.log_suppressed = self.audit_lost = 0
        self.auth_succeeded = self.auth_failed = self.auth_limited = self.auth_method_unknown = 0
        self.password_checks = 0
        # The wire.
        self.bytes_received = self.bytes_sent = 0
        self.received_connect = self.received_puback = self.received_pubrec = self.received_pubrel = 0
        self.received_pubcomp = self.received_subscribe = self.received_unsubscribe = 0
        self.received_pingreq = self.received_disconnect = self.received_auth = 0
        self.sent_connack = self.sent_puback = self.sent_pubrec = self.sent_pubrel = 0
        self.sent_pubcomp = self.sent_suback = self.sent_unsuback = 0
        self.sent_pingresp = self.sent_disconnect = 0
        self.error_malformed = self.error_protocol = self.error_too_large = self.error_utf8 = 0
        self.error_topic = self.error_filter = self.error_alias = 0
        self.error_receive_max = self.error_payload_format = self.error_client_id = self.error_version = 0
        # Messages.
        self.publish_received_qos0 = self.publish_received_qos1 = self.publish_received_qos2 = 0
        self.publish_sent_qos0 = self.publish_sent_qos1 = self.publish_sent_qos2 = 0
        self.publish_payload_bytes_received = self.publish_payload_bytes_sent = 0
        self.publish_resent = self.publish_repeated = self.publish_unmatched = 0
        self.dropped_queue_full = self.dropped_qos0_slow = self.dropped_expired = self.dropped_too_large = 0
        self.dropped_qos0_moved = self.dropped_user_quota = self.dropped_absent = 0
        self.publish_deferred = 0
        self.acl_denied_publish = self.acl_denied_subscribe = self.storage_refused = 0
        self.publishers_paused = self.publisher_pauses = self.overload = self.cluster_overload = 0
        self.wills_pending = self.wills_published = self.wills_cancelled = self.wills_revoked = 0
        self.retained_messages = self.retained_bytes = self.retained_sent = self.retained_expired = 0
        # Quotas of users, and the memory of the node.
        self.quota_refused_connections = self.quota_refused_sessions = self.quota_refused_subscriptions = 0
        self.quota_refused_retained = self.quota_forgotten_producers = self.quota_pauses = 0
        self.memory_bytes = self.memory_budget_bytes = self.memory_stage = 0
        self.memory_refused_connections = self.memory_refused_subscriptions = 0
        self.memory_dropped_clients = self.memory_dropped_bytes = 0
        # Sessions, subscriptions, queues.
        self.sessions_persistent = self.sessions_created = self.sessions_resumed = self.sessions_expired = 0
        self.sessions_revoked = 0
        self.subscriptions_persistent = self.subscriptions_transient = self.subscriptions_shared = 0
        self.subscribed = self.unsubscribed = 0
        self.queue_messages = self.queue_bytes = 0
        # Store and streams.
        self.storage_full = self.commit_batches = self.commit_rows = self.commit_bytes = 0
        self.commit_waiting_batches = self.commit_waiting_bytes = 0
        self.stream_records = self.stream_bytes = 0
        self.stream_trimmed_records = self.stream_trimmed_bytes = 0
        self.transactions_committed = self.transactions_repeated = self.transactions_expired = 0
        self.transactions_waiting = self.transaction_messages = self.transaction_bytes = 0
        self.stream_replayed = self.producer_duplicates = self.producers = 0
        self.events_published = self.events_dropped = 0
        # Other nodes.
        self.cluster_messages_sent = self.cluster_messages_received = self.cluster_requests_repeated = 0
        self.cluster_messages_void = self.cluster_messages_dropped = self.cluster_addresses_dropped = 0
        # Links to other nodes, and copies; those that are not counted where they change are set once a second.
        self.peers_connected = self.peer_connects = self.peer_losses = 0
        self.peer_bytes_received = self.peer_bytes_sent = self.peer_backlog_bytes = 0
        self.peer_messages_dropped = self.peer_round_trip_us = 0
        self.copied_bytes = self.given_bytes = self.digests_passed_over = 0
        # The cluster as this node sees it, computed on request.
        self.cluster_member = self.cluster_may_serve = self.cluster_view = self.cluster_settings_differ = 0
        self.cluster_forks_left = 0
        self.cluster_nodes_active = self.cluster_nodes_leaving = 0
        self.cluster_nodes_away = self.cluster_nodes_witness = 0
        self.cluster_disks_full = self.cluster_disks_slow = 0
        self.partitions_role_leads = self.partitions_role_follows = self.partitions_role_fills = 0
        self.partitions_closed = self.partitions_under_replicated = self.partitions_refusing = 0
        self.partitions_missing = self.partitions_moving = self.partitions_damaged = 0
        self.digests_compared = self.digests_different = self.copy_left_bytes = 0
        # The work of the node itself.
        self.clock_offset_us = self.clock_wrong = self.clocks_disagree = 0
        self.turns = self.turn_steps = self.wakes = self.input_waits = self.clients_waiting = 0
        self.route_misses = self.route_branches = self.route_cached = 0


class Histograms:
    """The distributions that a node measures, in microseconds."""

    def __init__(self) -> None:
        self.commit_us = Histogram()
        self.turn_us = Histogram()

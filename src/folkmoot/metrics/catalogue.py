"""The catalogue of every metric of a node: name, kind, unit, meaning, and the attribute that holds it.

Owns the descriptions. `counters` has the values, `exposition` the text format for Prometheus.
"""

from __future__ import annotations

from typing import Final

__all__ = ["COUNTER", "GAUGE", "HISTOGRAM", "Family", "families"]

COUNTER: Final = 1
GAUGE: Final = 2
HISTOGRAM: Final = 3


class Family:
    """One metric, or several that differ by the value of one label.

    `name` has no prefix, unit or suffix; `kind` is COUNTER, GAUGE or HISTOGRAM; `unit` is the unit of the value ("us"
    is exposed in seconds); `members` are pairs (value of `label`, attribute of Counters or Histograms).
    """

    def __init__(
        self, name: str, kind: int, unit: str, meaning: str, label: str, members: list[tuple[str, str]]
    ) -> None:
        self.name = name
        self.kind = kind
        self.unit = unit
        self.meaning = meaning
        self.label = label
        self.members = members

    def __repr__(self) -> str:
        return f"Family({self.name}, {len(self.members)})"


def families() -> list[Family]:
    """Return the whole catalogue in the order of exposition."""
    return [*connections(), *wire(), *messages(), *sessions(), *storage(), *cluster(), *work()]


def connections() -> list[Family]:
    """Network connections and clients."""
    return [
        gauge("started_us", "us", "When the node started, since 1970", "start_time"),
        gauge("connections", "connections", "Network connections that are open"),
        counter("connections_opened", "connections", "Network connections accepted"),
        counter("connections_closed", "connections", "Network connections ended, for any reason"),
        counter("connections_refused", "connections", "Network connections refused because of a limit of the node"),
        counter("connections_evicted", "connections", "Connections closed before their CONNECT to make room"),
        counter("connection_errors", "connections", "Connections ended by an unexpected error"),
        counter("log_suppressed", "log_lines", "Lines of the log that were counted instead of written"),
        counter("audit_lost", "audit_lines", "Lines of the audit log that were lost because it could not be written"),
        gauge("clients_connected", "clients", "Connected clients whose CONNECT was accepted"),
        counter("connects_accepted", "packets", "CONNECT packets answered with success"),
        counter("connects_refused", "packets", "CONNECT packets answered with an error or by closing the connection"),
        counter("connect_timeouts", "connections", "Connections closed because no CONNECT was received in time"),
        counter("keep_alive_timeouts", "clients", "Clients disconnected because their keep alive expired"),
        counter("connections_revoked", "clients", "Clients disconnected because a reload has taken their rights away"),
        counter("takeovers", "clients", "Connections closed because their client connected again"),
        split("authentications", COUNTER, "attempts", "Authentications by result", "result",
              "auth_", ["succeeded", "failed", "limited", "method_unknown"]),
        counter("password_checks", "checks", "Passwords that were checked; the others were remembered or refused"),
    ]  # fmt: skip


def wire() -> list[Family]:
    """Bytes, packets other than PUBLISH, and protocol errors of clients."""
    received = ["connect", "puback", "pubrec", "pubrel", "pubcomp", "subscribe", "unsubscribe", "pingreq"]
    received += ["disconnect", "auth"]
    sent = ["connack", "puback", "pubrec", "pubrel", "pubcomp", "suback", "unsuback", "pingresp", "disconnect"]
    errors = ["malformed", "protocol", "too_large", "utf8", "topic", "filter", "alias", "receive_max"]
    rest = ["payload_format", "client_id", "version"]
    return [
        counter("bytes_received", "bytes", "Bytes of MQTT received", "received"),
        counter("bytes_sent", "bytes", "Bytes of MQTT sent", "sent"),
        split("packets_received", COUNTER, "packets", "Packets received, except PUBLISH", "type",
              "received_", received),
        split("packets_sent", COUNTER, "packets", "Packets sent, except PUBLISH", "type", "sent_", sent),
        split("protocol_errors", COUNTER, "errors", "Errors of clients by kind", "kind", "error_", errors + rest),
    ]  # fmt: skip


def messages() -> list[Family]:
    """PUBLISH packets in and out, and what happened to messages."""
    qos = ["0", "1", "2"]
    drops = ["queue_full", "user_quota", "qos0_slow", "qos0_moved", "absent", "expired", "too_large"]
    return [
        split("publish_received", COUNTER, "packets", "PUBLISH packets received", "qos", "publish_received_qos", qos),
        split("publish_sent", COUNTER, "packets", "PUBLISH packets sent", "qos", "publish_sent_qos", qos),
        counter("publish_payload_bytes_received", "bytes", "Payload received in PUBLISH", "publish_payload_received"),
        counter("publish_payload_bytes_sent", "bytes", "Payload sent in PUBLISH", "publish_payload_sent"),
        counter("publish_resent", "packets", "PUBLISH packets sent again with DUP after a reconnect"),
        counter("publish_repeated", "packets", "QoS 2 PUBLISH packets received again before their release"),
        counter("publish_unmatched", "messages", "Messages that matched no subscription and no stream"),
        counter("publish_deferred", "messages", "Messages that were stored to wait for a partition without a leader"),
        split("publish_dropped", COUNTER, "messages", "Deliveries dropped, by reason", "reason", "dropped_", drops),
        split("acl_denied", COUNTER, "packets", "Actions that the access rules denied", "action",
              "acl_denied_", ["publish", "subscribe"]),
        gauge("publishers_paused", "connections", "Connections whose publishing is paused: overload, or their rate"),
        counter("publisher_pauses", "events", "Times that publishing was paused on a connection"),
        split("quota_refused", COUNTER, "requests", "What was refused because a quota of its user was used up", "of",
              "quota_refused_", ["connections", "sessions", "subscriptions", "retained"]),
        counter("quota_forgotten_producers", "producers", "Idempotent producers forgotten because their user has many"),
        counter("quota_pauses", "events", "Times that a connection was paused because its user published too fast"),
        gauge("overload", "levels", "Overload of this node, 0 to 10"),
        gauge("cluster_overload", "levels", "The highest overload of all members, by which publishers are slowed down"),
        gauge("wills_pending", "messages", "Wills whose delay has not ended yet"),
        counter("wills_published", "messages", "Wills published"),
        counter("wills_cancelled", "messages", "Wills cancelled by a DISCONNECT or by a reconnect in time"),
        counter("wills_revoked", "messages", "Wills dropped: the user was removed, or may not publish there any more"),
        gauge("retained_messages", "messages", "Retained messages"),
        gauge("retained_bytes", "bytes", "Topics, payloads and properties of the retained messages", "retained"),
        counter("retained_sent", "messages", "Retained messages sent because of a SUBSCRIBE"),
        counter("retained_expired", "messages", "Retained messages removed because they had expired"),
    ]  # fmt: skip


def sessions() -> list[Family]:
    """Sessions, subscriptions and queues."""
    return [
        gauge("sessions_persistent", "sessions", "Sessions that outlive their connection"),
        counter("sessions_created", "sessions", "Sessions begun"),
        counter("sessions_resumed", "sessions", "Sessions resumed by a CONNECT"),
        counter("sessions_expired", "sessions", "Sessions removed because their expiry interval passed"),
        counter("sessions_revoked", "sessions", "Sessions removed because their users were removed"),
        split("subscriptions", GAUGE, "subscriptions", "Subscriptions by kind", "kind",
              "subscriptions_", ["persistent", "transient", "shared"]),
        counter("subscribed", "subscriptions", "Subscriptions created, except those that replace one"),
        counter("unsubscribed", "subscriptions", "Subscriptions ended by UNSUBSCRIBE, or a replay by retention"),
        gauge("queue_messages", "messages", "Messages queued for persistent sessions"),
        gauge("queue_bytes", "bytes", "Bytes queued for persistent sessions", "queue"),
    ]  # fmt: skip


def storage() -> list[Family]:
    """The store and the streams."""
    return [
        gauge("storage_full", "flag", "1 while the node refuses to store because its disk is full"),
        counter("storage_refused", "packets", "Packets refused because the disk was full"),
        counter("commit_batches", "batches", "Batches submitted to the store"),
        counter("commit_rows", "rows", "Rows written or deleted in the store"),
        counter("commit_bytes", "bytes", "Bytes of the rows written or deleted in the store", "commit"),
        gauge("commit_waiting_batches", "batches", "Batches submitted to the store and not durable yet"),
        gauge("commit_waiting_bytes", "bytes", "Bytes of the batches that are not durable yet", "commit_waiting"),
        spread("commit_us", "From submitting a batch to the store until it is durable"),
        counter("stream_records", "records", "Records appended to streams"),
        counter("stream_bytes", "bytes", "Bytes of the records appended to streams", "stream"),
        counter("stream_trimmed_records", "records", "Records removed by retention"),
        counter(
            "stream_trimmed_bytes",
            "bytes",
            "Bytes of the chunks removed by retention",
            "stream_trimmed",
        ),
        counter("stream_replayed", "records", "Records sent to MQTT clients that replay a stream"),
        counter(
            "transactions_committed",
            "transactions",
            "Transactions committed at this node, the leader of their home partition",
        ),
        counter(
            "transactions_repeated", "transactions", "Repeated commits of transactions that were already committed"
        ),
        counter(
            "transactions_expired", "transactions", "Transactions that were staged, not committed in time, and dropped"
        ),
        gauge("transactions_waiting", "transactions", "Transactions that are committed and not completely published"),
        counter("transaction_messages", "messages", "Published messages of transactions"),
        gauge(
            "transaction_bytes",
            "bytes",
            "Bytes of transactions that are staged or not published yet, as they count for transaction_bytes_max",
            "transactions",
        ),
        gauge("producers", "producers", "Idempotent producers remembered"),
        counter("producer_duplicates", "messages", "Repeated messages of idempotent producers, not applied again"),
    ]


def cluster() -> list[Family]:
    """Traffic between nodes, and the state of the cluster."""
    return [
        counter("cluster_messages_sent", "messages", "Messages forwarded to other nodes: one per partition or node"),
        counter("cluster_messages_received", "messages", "Messages that other nodes have forwarded to this one"),
        counter("cluster_requests_repeated", "requests", "Repeated requests of other nodes, not applied again"),
        counter("cluster_messages_void", "messages", "Messages of other nodes, void because a split has healed since"),
        counter("cluster_messages_dropped", "messages", "Messages of configurations to come, dropped: too many waited"),
        counter("cluster_addresses_dropped", "addresses", "Addresses named by other nodes, dropped: too many"),
        gauge("cluster_member", "flag", "1 while this node is up in the cluster"),
        gauge("cluster_may_serve", "flag", "0 while this node has no lease, so that it serves nobody"),
        gauge("cluster_forks_left", "forks", "How often a side of a split can fork before all nodes have to be back"),
        gauge("cluster_settings_differ", "settings", "Settings of other members that differ and must not"),
        gauge("cluster_view", "changes", "Number of the configuration: it grows with each change of members and roles"),
        split("cluster_nodes", GAUGE, "nodes", "Nodes that belong to the cluster, by state", "state",
              "cluster_nodes_", ["active", "leaving", "away", "witness"]),
        split("partitions", GAUGE, "partitions", "Partitions of which this node is the leader or has a copy", "role",
              "partitions_role_", ["leads", "follows", "fills"]),
        gauge("partitions_closed", "partitions", "Partitions whose leader does not serve at the moment"),
        gauge("cluster_disks_full", "nodes", "Nodes that report a full disk, including this one"),
        gauge("cluster_disks_slow", "nodes", "Nodes whose disk is slow, so that others lead, including this one"),
        gauge("partitions_refusing", "partitions", "Partitions that store nothing: the disk of their leader is full"),
        gauge("partitions_under_replicated", "partitions", "Partitions with fewer copies than configured"),
        gauge("partitions_missing", "partitions", "Partitions that nobody serves: copies in sync are away, or too few"),
        gauge("partitions_moving", "partitions", "Partitions of which a copy is being made"),
        gauge("partitions_damaged", "partitions", "Copies at this node that are damaged and not repaired yet"),
        counter("digests_compared", "ranges", "Ranges of rows compared with another copy"),
        counter("digests_different", "ranges", "Ranges that were different"),
        counter("digests_passed_over", "ranges", "Ranges that could not be compared: too much changed meanwhile"),
        gauge("copy_left_bytes", "bytes", "Bytes that remain to be copied to this node", "copy_left"),
        counter("copied_bytes", "bytes", "Bytes copied to this node to fill partitions"),
        counter("given_bytes", "bytes", "Bytes copied from this node to others to fill partitions"),
        gauge("peers_connected", "nodes", "Other nodes with an open connection"),
        counter("peer_connects", "events", "Times that a connection to another node was established"),
        counter("peer_losses", "events", "Times that a connection to another node was lost"),
        counter("peer_bytes_received", "bytes", "Bytes from other nodes"),
        counter("peer_bytes_sent", "bytes", "Bytes to other nodes"),
        gauge("peer_backlog_bytes", "bytes", "Bytes sent to other nodes and not acknowledged yet"),
        counter("peer_messages_dropped", "messages", "Messages dropped because their node was no longer reachable"),
        gauge("peer_round_trip_us", "us", "Round-trip time to the slowest other node"),
    ]  # fmt: skip


def work() -> list[Family]:
    """The work of the node itself."""
    return [
        gauge("memory_bytes", "bytes", "Memory of the process: measured, and what has changed since", "memory"),
        gauge("memory_budget_bytes", "bytes", "Memory that the process may use; 0: there is no limit", "memory_budget"),
        gauge("memory_stage", "stages", "What is done to save memory: 1: clients are refused, 2: disconnected"),
        split("memory_refused", COUNTER, "requests", "What was refused because memory was short", "of",
              "memory_refused_", ["connections", "subscriptions"]),
        counter("memory_dropped_clients", "clients", "Clients disconnected because memory was short"),
        counter("memory_dropped_bytes", "bytes", "Bytes that waited for clients disconnected because memory was short",
                "memory_dropped"),
        gauge("clock_offset_us", "us", "By how much the wall clock of this node is ahead of the time that it uses",
              "clock_offset"),
        gauge("clock_wrong", "flag", "1: the wall clock of this node is too far from that time to be used"),
        gauge("clocks_disagree", "flag", "1: no majority of the clocks that this node knows agrees"),
        counter("turns", "turns", "Turns of the node's loop"),
        spread("turn_us", "Time spent in one turn"),
        counter("turn_steps", "steps", "Steps of work: packets, deliveries, rows, subscriptions, lookups"),
        counter("input_waits", "events", "Times when a client's input had to wait because its steps were spent"),
        gauge("clients_waiting", "clients", "Clients whose input waits for that reason"),
        counter("events_published", "events", "Events published on $events topics"),
        counter("events_dropped", "events", "Events dropped: the node was overloaded, or too many were waiting"),
        counter("wakes", "events", "Turns that were started by a timer or by background work"),
        counter("route_misses", "lookups", "Topics whose routes were not in the cache"),
        counter("route_branches", "branches", "Branches of the subscription tree that these lookups visited"),
        gauge("route_cached", "topics", "Topics whose routes are in the cache"),
    ]  # fmt: skip


def counter(attribute: str, unit: str, meaning: str, name: str = "") -> Family:
    """Return a counter with one member, named like its attribute unless `name` is given."""
    return Family(name or attribute, COUNTER, unit, meaning, "", [("", attribute)])


def gauge(attribute: str, unit: str, meaning: str, name: str = "") -> Family:
    """Return a gauge with one member, named like its attribute unless `name` is given."""
    return Family(name or attribute, GAUGE, unit, meaning, "", [("", attribute)])


def spread(attribute: str, meaning: str) -> Family:
    """Return a histogram in microseconds, named like its attribute without the unit."""
    return Family(attribute.removesuffix("_us"), HISTOGRAM, "us", meaning, "", [("", attribute)])


def split(name: str, kind: int, unit: str, meaning: str, label: str, prefix: str, values: list[str]) -> Family:
    """Return a family whose attributes are `prefix` + value of the label."""
    return Family(name, kind, unit, meaning, label, [(value, prefix + value) for value in values])

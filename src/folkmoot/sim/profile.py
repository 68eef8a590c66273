"""The kind of a client: versions, limits and habits, drawn once per client. Owns no state."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5

__all__ = ["NEVER_EXPIRES_S", "PATIENCE_US", "Profile"]

NEVER_EXPIRES_S = 0xFFFF_FFFF

PATIENCE_US = 3 * SECOND
"""The longest that a client waits for CONNACK."""


class Profile:
    """The habits of one client; the workload draws them."""

    def __init__(self, client_id: str, version: int) -> None:
        self.client_id = client_id
        self.version = version
        self.clean = False  # always starts a new session
        self.expiry_s = NEVER_EXPIRES_S  # of its session, MQTT 5; for 3.x `clean` decides
        self.keep_alive_s = 0
        self.route = "balanced"  # how it chooses a node, see `folkmoot.sim.site`
        self.receive_max = 0  # 0: the default of the protocol
        self.packet_bytes_max = 0  # 0: none
        self.alias_max = 0  # topic aliases that it takes
        self.uses_aliases = False
        self.window = 20  # QoS 1 and 2 messages that it has in flight
        self.ack_us = 0  # waits up to this long before it acknowledges
        # passes a QoS 2 message on at PUBREL, as many clients do, and not at PUBLISH (MQTT 5, figure 4.3)
        self.late = False
        self.reconnect_us = 50_000  # tries again within this time
        self.patience_us = PATIENCE_US  # for a CONNACK, at the first attempt; twice as long at each further one
        self.will_topic = b""  # empty: no will
        self.will_qos = 2
        self.will_delay_s = 0
        self.producer = ""  # name of an idempotent producer
        self.username: str | None = None
        self.password: bytes | None = None
        self.publishes: list[bytes] = []  # topics
        self.filters: list[bytes] = []  # filters for its subscriptions

    @property
    def v5(self) -> bool:
        """Whether it speaks MQTT 5."""
        return self.version == V5

    @property
    def persistent(self) -> bool:
        """Whether its sessions outlive their connections."""
        return (self.expiry_s > 0) if self.v5 else not self.clean

    @property
    def session_expiry_s(self) -> int:
        """How long its sessions live without a connection."""
        if self.v5:
            return self.expiry_s
        return 0 if self.clean else NEVER_EXPIRES_S

    @property
    def delay_s(self) -> int:
        """Return how long after the disconnect something may happen by itself: its will, the end of its session."""
        return max(self.will_delay_s, self.expiry_s if self.expiry_s < NEVER_EXPIRES_S else 0)

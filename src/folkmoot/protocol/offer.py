"""The properties of CONNACK for version 5: the server's limits, and which values of CONNECT it has changed.

MQTT 5 section 3.2.2.3.
"""

from __future__ import annotations

from folkmoot.kernel.limits import Limits
from folkmoot.mqtt.field import BINARY_BYTES_MAX
from folkmoot.mqtt.packet import Connect, Properties
from folkmoot.turn.state import State

__all__ = ["connack_properties", "expiry_of"]


def connack_properties(state: State, packet: Connect, expiry_s: int, assigned: str) -> Properties:
    """Return the properties of a CONNACK that accepts `packet`."""
    limits = state.limits
    properties = Properties()
    wish = packet.properties
    wished_s = 0 if wish is None or wish.session_expiry is None else wish.session_expiry
    if expiry_s != wished_s:
        properties.session_expiry = expiry_s
    if limits.receive_max < 65_535:
        properties.receive_max = limits.receive_max
    if limits.qos_max < 2:  # [MQTT-3.2.2-9]
        properties.max_qos = limits.qos_max
    if not limits.retain_available:
        properties.retain_available = 0
    properties.packet_max = limits.packet_bytes_max
    if assigned:
        properties.assigned_client_id = assigned
    if limits.topic_alias_max:
        properties.topic_alias_max = limits.topic_alias_max
    if not limits.wildcard_available:
        properties.wildcard_available = 0
    if not limits.subscription_ids_available:
        properties.subscription_ids_available = 0
    if not limits.shared_available:
        properties.shared_available = 0
    wished_keep_alive_s = packet.keep_alive_s
    keep_alive_s = wished_keep_alive_s if wished_keep_alive_s else limits.keep_alive_default_s
    keep_alive_s = min(keep_alive_s, limits.keep_alive_max_s)
    if keep_alive_s != wished_keep_alive_s:
        properties.server_keep_alive = keep_alive_s
    if wish is not None and wish.request_response == 1 and state.identity.response_information:
        client_id = assigned if assigned else packet.client_id
        information = state.identity.response_information.replace("%c", client_id)
        if len(information.encode()) <= BINARY_BYTES_MAX:  # the server may omit it (section 3.2.2.3.15)
            properties.response_info = information
    return properties


def expiry_of(packet: Connect, limits: Limits) -> int:
    """Return the seconds after which a session without its client ends; 0 = with the connection."""
    if packet.version < 5:
        return 0 if packet.clean_start else limits.session_expiry_v3_s
    properties = packet.properties
    if properties is None or properties.session_expiry is None:
        return 0
    return min(properties.session_expiry, limits.session_expiry_max_s)

"""The control packets of MQTT 3.1, 3.1.1 and 5.0 as plain objects, one class per packet.

Owns the content of packets (MQTT 5.0 chapter 3), in both directions. Knows neither bytes (`decode`, `encode`) nor the
state of a connection. A packet without properties, and every packet of MQTT 3.x, has `properties` None.
"""

from __future__ import annotations

from typing import Final, TypeAlias, Union

from mypy_extensions import mypyc_attr

from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V31, V311

__all__ = [
    "PUBACK",
    "PUBCOMP",
    "PUBREC",
    "PUBREL",
    "V5",
    "V31",
    "V311",
    "Ack",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "Packet",
    "Pingreq",
    "Pingresp",
    "Properties",
    "Publish",
    "PacketPart",
    "Suback",
    "Subscribe",
    "Unsuback",
    "Unsubscribe",
    "Will",
]

# Longer payloads are shortened in repr: they go to logs and test failures.
_SHOWN_BYTES_MAX: Final = 64


def _show(value: object) -> str:
    if isinstance(value, bytes) and len(value) > _SHOWN_BYTES_MAX:
        return f"{value[:_SHOWN_BYTES_MAX]!r}... ({len(value)} bytes)"
    return repr(value)


class PacketPart:
    """Base of the packets: equality and repr by their fields."""

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return []

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PacketPart) or type(self) is not type(other):
            return False
        return self.fields() == other.fields()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        raise TypeError("packets are mutable and cannot be keys")

    def __repr__(self) -> str:
        shown = ", ".join([f"{name}={_show(value)}" for name, value in self.fields() if value is not None])
        return f"{type(self).__name__}({shown})"


class Properties(PacketPart):
    """The properties of an MQTT 5.0 packet or will: None (or an empty list) where absent.

    Times are seconds as on the wire; booleans are 0 or 1. Source: MQTT 5.0 table 2-4.
    """

    def __init__(self) -> None:
        self.payload_format: int | None = None
        self.message_expiry: int | None = None
        self.content_type: str | None = None
        self.response_topic: bytes | None = None
        self.correlation_data: bytes | None = None
        self.subscription_ids: list[int] = []
        self.session_expiry: int | None = None
        self.assigned_client_id: str | None = None
        self.server_keep_alive: int | None = None
        self.auth_method: str | None = None
        self.auth_data: bytes | None = None
        self.request_problem: int | None = None
        self.will_delay: int | None = None
        self.request_response: int | None = None
        self.response_info: str | None = None
        self.server_reference: str | None = None
        self.reason: str | None = None
        self.receive_max: int | None = None
        self.topic_alias_max: int | None = None
        self.topic_alias: int | None = None
        self.max_qos: int | None = None
        self.retain_available: int | None = None
        self.user_properties: list[tuple[str, str]] = []
        self.packet_max: int | None = None
        self.wildcard_available: int | None = None
        self.subscription_ids_available: int | None = None
        self.shared_available: int | None = None

    def fields(self) -> list[tuple[str, object]]:
        """Return the properties that are present, in the order of their identifiers."""
        every: list[tuple[str, object]] = [
            ("payload_format", self.payload_format),
            ("message_expiry", self.message_expiry),
            ("content_type", self.content_type),
            ("response_topic", self.response_topic),
            ("correlation_data", self.correlation_data),
            ("subscription_ids", self.subscription_ids or None),
            ("session_expiry", self.session_expiry),
            ("assigned_client_id", self.assigned_client_id),
            ("server_keep_alive", self.server_keep_alive),
            ("auth_method", self.auth_method),
            ("auth_data", self.auth_data),
            ("request_problem", self.request_problem),
            ("will_delay", self.will_delay),
            ("request_response", self.request_response),
            ("response_info", self.response_info),
            ("server_reference", self.server_reference),
            ("reason", self.reason),
            ("receive_max", self.receive_max),
            ("topic_alias_max", self.topic_alias_max),
            ("topic_alias", self.topic_alias),
            ("max_qos", self.max_qos),
            ("retain_available", self.retain_available),
            ("user_properties", self.user_properties or None),
            ("packet_max", self.packet_max),
            ("wildcard_available", self.wildcard_available),
            ("subscription_ids_available", self.subscription_ids_available),
            ("shared_available", self.shared_available),
        ]
        return [pair for pair in every if pair[1] is not None]


class Will(PacketPart):
    """The will message of a CONNECT (MQTT 5.0 section 3.1.2.5); `properties` only in MQTT 5.0."""

    def __init__(
        self, topic: bytes, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> None:
        self.topic: bytes = topic
        self.payload: bytes = payload
        self.qos: int = qos
        self.retain: bool = retain
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [
            ("topic", self.topic),
            ("payload", self.payload),
            ("qos", self.qos),
            ("retain", self.retain),
            ("properties", self.properties),
        ]


class Connect(PacketPart):
    """CONNECT, section 3.1. `clean_start` is called clean session in MQTT 3.x; `keep_alive_s` 0 means none."""

    def __init__(
        self,
        version: int,
        client_id: str,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
    ) -> None:
        self.version: int = version
        self.client_id: str = client_id
        self.clean_start: bool = clean_start
        self.keep_alive_s: int = keep_alive_s
        self.username: str | None = username
        self.password: bytes | None = password
        self.will: Will | None = will
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [
            ("version", self.version),
            ("client_id", self.client_id),
            ("clean_start", self.clean_start),
            ("keep_alive_s", self.keep_alive_s),
            ("username", self.username),
            ("password", self.password),
            ("will", self.will),
            ("properties", self.properties),
        ]

    def __repr__(self) -> str:
        # A repr reaches logs; the password must not.
        shown = [
            f"{name}={'***' if name == 'password' else _show(value)}"
            for name, value in self.fields()
            if value is not None
        ]
        return f"Connect({', '.join(shown)})"


class Connack(PacketPart):
    """CONNACK, section 3.2. `code` is a reason code in MQTT 5.0, a return code 0 to 5 in MQTT 3.x."""

    def __init__(self, session_present: bool, code: int, properties: Properties | None = None) -> None:
        self.session_present: bool = session_present
        self.code: int = code
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [("session_present", self.session_present), ("code", self.code), ("properties", self.properties)]


@mypyc_attr(free_list_len=1)
class Publish(PacketPart):
    """PUBLISH, section 3.3. `packet_id` is 0 with QoS 0; `topic` is empty only beside a topic alias (MQTT 5.0)."""

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None:
        self.topic: bytes = topic
        self.payload: bytes = payload
        self.qos: int = qos
        self.retain: bool = retain
        self.dup: bool = dup
        self.packet_id: int = packet_id
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [
            ("topic", self.topic),
            ("payload", self.payload),
            ("qos", self.qos),
            ("retain", self.retain),
            ("dup", self.dup),
            ("packet_id", self.packet_id),
            ("properties", self.properties),
        ]


@mypyc_attr(free_list_len=1)
class Ack(PacketPart):
    """PUBACK, PUBREC, PUBREL or PUBCOMP (`kind` 4 to 7), sections 3.4 to 3.7; `code` is 0 in MQTT 3.x."""

    def __init__(self, kind: int, packet_id: int, code: int = 0, properties: Properties | None = None) -> None:
        self.kind: int = kind
        self.packet_id: int = packet_id
        self.code: int = code
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [
            ("kind", self.kind),
            ("packet_id", self.packet_id),
            ("code", self.code),
            ("properties", self.properties),
        ]


class Subscribe(PacketPart):
    """SUBSCRIBE, section 3.8. `entries` are (topic filter, subscription options byte), at least one."""

    def __init__(self, packet_id: int, entries: list[tuple[bytes, int]], properties: Properties | None = None) -> None:
        self.packet_id: int = packet_id
        self.entries: list[tuple[bytes, int]] = entries
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [("packet_id", self.packet_id), ("entries", self.entries), ("properties", self.properties)]


class Suback(PacketPart):
    """SUBACK, section 3.9. One code per entry of the SUBSCRIBE: reason codes, in MQTT 3.x granted QoS or 0x80."""

    def __init__(self, packet_id: int, codes: list[int], properties: Properties | None = None) -> None:
        self.packet_id: int = packet_id
        self.codes: list[int] = codes
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [("packet_id", self.packet_id), ("codes", self.codes), ("properties", self.properties)]


class Unsubscribe(PacketPart):
    """UNSUBSCRIBE, section 3.10, with at least one filter."""

    def __init__(self, packet_id: int, filters: list[bytes], properties: Properties | None = None) -> None:
        self.packet_id: int = packet_id
        self.filters: list[bytes] = filters
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [("packet_id", self.packet_id), ("filters", self.filters), ("properties", self.properties)]


class Unsuback(PacketPart):
    """UNSUBACK, section 3.11. One reason code per filter; MQTT 3.x has none (empty list)."""

    def __init__(self, packet_id: int, codes: list[int], properties: Properties | None = None) -> None:
        self.packet_id: int = packet_id
        self.codes: list[int] = codes
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [("packet_id", self.packet_id), ("codes", self.codes), ("properties", self.properties)]


class Pingreq(PacketPart):
    """PINGREQ, section 3.12."""


class Pingresp(PacketPart):
    """PINGRESP, section 3.13."""


class Disconnect(PacketPart):
    """DISCONNECT, section 3.14; `code` is 0 in MQTT 3.x."""

    def __init__(self, code: int = 0, properties: Properties | None = None) -> None:
        self.code: int = code
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [("code", self.code), ("properties", self.properties)]


class Auth(PacketPart):
    """AUTH, section 3.15; MQTT 5.0 only."""

    def __init__(self, code: int = 0, properties: Properties | None = None) -> None:
        self.code: int = code
        self.properties: Properties | None = properties

    def fields(self) -> list[tuple[str, object]]:
        """Return (name, value) of all fields, in a fixed order."""
        return [("code", self.code), ("properties", self.properties)]


Packet: TypeAlias = Union[  # noqa: UP007 - a runtime union of compiled classes reads the same in both builds
    Connect,
    Connack,
    Publish,
    Ack,
    Subscribe,
    Suback,
    Unsubscribe,
    Unsuback,
    Pingreq,
    Pingresp,
    Disconnect,
    Auth,
]

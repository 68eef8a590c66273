"""The four output formats of `folkmoot sub`: payload, topic and payload, JSON, and -F; prints nothing itself.

The letters of -F are those of mosquitto_sub (see its manual, section Output format).
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.client import MQTTMessage

from folkmoot.cli.error import Refusal
from folkmoot.client.entry import rfc3339

__all__ = ["LETTERS", "PROPERTIES", "Received", "Template", "json_line", "payload_line", "topic_line"]

# attribute of paho: name in our JSON, name in the JSON of mosquitto_sub
PROPERTIES: Final = {
    "PayloadFormatIndicator": ("payload_format_indicator", "payload-format-indicator"),
    "MessageExpiryInterval": ("message_expiry_interval", "message-expiry-interval"),
    "ContentType": ("content_type", "content-type"),
    "ResponseTopic": ("response_topic", "response-topic"),
    "CorrelationData": ("correlation_data_base64", "correlation-data"),
    "SubscriptionIdentifier": ("subscription_identifiers", "subscription-identifier"),
    "TopicAlias": ("topic_alias", "topic-alias"),
    "UserProperty": ("user_properties", "user-properties"),
}

ITEM: Final = re.compile(
    rb"%(?P<flags>[-0]*)(?P<width>\d*)(?:\.(?P<most>\d+))?(?P<letter>[^-0-9.])"
    rb"|@(?P<time>.)|\\(?P<escape>.)|(?P<plain>[^%@\\]+)|(?P<rest>.)",
    re.DOTALL,
)
ESCAPES: Final = {b"0": b"\0", b"a": b"\a", b"e": b"\x1b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
TIMES: Final = b"aAbBcCdDeFgGhHIjmMnprRsStTuUVwWxXyYzZ"


class Received:
    """A received message: topic (aliases resolved), payload, flags, properties by paho's names, and time of arrival."""

    def __init__(self, message: MQTTMessage, topic: str, time_ns: int) -> None:
        self.topic = topic
        self.payload = bytes(message.payload)
        self.qos = message.qos
        self.retain = bool(message.retain)
        self.dup = bool(message.dup)
        self.number = message.mid
        self.time_ns = time_ns
        properties = message.properties
        self.properties: dict[str, Any] = {
            name: getattr(properties, name) for name in PROPERTIES if hasattr(properties, name)
        }

    def property_bytes(self, name: str) -> bytes:
        """Return a property as bytes to print; empty if the message does not have it."""
        value = self.properties.get(name, b"")
        if name == "UserProperty":
            return " ".join(f"{key}:{text}" for key, text in value or []).encode()
        if name == "SubscriptionIdentifier":
            return ",".join(str(number) for number in value or []).encode()
        return bytes(value) if isinstance(value, bytes | bytearray) else str(value).encode()

    def property_object(self, plain: str | None) -> dict[str, Any]:
        """Return the properties for JSON: with our names, or, if `plain` is given, with those of Mosquitto.

        plain: the key of user properties.
        """
        index = 0 if plain is None else 1
        found: dict[str, Any] = {}
        for name, value in self.properties.items():
            key = PROPERTIES[name][index]
            if name == "CorrelationData":
                value = b64encode(value).decode() if plain is None else value.decode("utf-8", "replace")
            elif name == "UserProperty":
                value = [list(pair) for pair in value] if plain is None else dict(value)
            elif name == "SubscriptionIdentifier" and plain is not None and len(value) == 1:
                value = value[0]
            found[key] = value
        return found


def payload_line(received: Received) -> bytes:
    """Return the payload."""
    return received.payload


def topic_line(received: Received) -> bytes:
    """Return topic and payload; `(null)` for an empty payload, as in mosquitto_sub -v."""
    return received.topic.encode() + b" " + (received.payload or b"(null)")


def json_line(received: Received) -> bytes:
    """Return a JSON object as `folkmoot stream read --json` does: `payload` if it is UTF-8, else `payload_base64`."""
    found: dict[str, Any] = {
        "time": rfc3339(received.time_ns // 1000),
        "time_us": received.time_ns // 1000,
        "topic": received.topic,
        "qos": received.qos,
        "retain": received.retain,
        "dup": received.dup,
    }
    try:
        found["payload"] = received.payload.decode()
    except UnicodeDecodeError:
        found["payload_base64"] = b64encode(received.payload).decode()
    found |= received.property_object(None)
    return json.dumps(found, ensure_ascii=False).encode()


def mosquitto_json(received: Received, parsed: bool) -> bytes:
    """Return the object of %j, or of %J (`parsed`), in which a JSON payload is a JSON value and not text."""
    second = received.time_ns // 1_000_000_000
    local = time.localtime(second)
    micros = received.time_ns // 1000 % 1_000_000
    found: dict[str, Any] = {
        "tst": f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{micros:06d}{time.strftime('%z', local)}",
        "topic": received.topic,
        "qos": received.qos,
        "retain": int(received.retain),
        "payloadlen": len(received.payload),
    }
    if received.qos:
        found["mid"] = received.number
    if received.properties:
        found["properties"] = received.property_object("user-properties")
    text = received.payload.decode("utf-8", "replace")
    found["payload"] = text
    if parsed:
        try:
            found["payload"] = json.loads(text)
        except ValueError:
            found["payload"] = text
    return json.dumps(found, ensure_ascii=False).encode()


def strftime(received: Received, pattern: str) -> bytes:
    """Return the local time of arrival."""
    return time.strftime(pattern, time.localtime(received.time_ns // 1_000_000_000)).encode()


def seconds(received: Received) -> bytes:
    """Return the time of arrival in seconds since 1970, with nanoseconds."""
    return b"%d.%09d" % divmod(received.time_ns, 1_000_000_000)


def of_property(name: str) -> Callable[[Received], bytes]:
    """Return the function that prints the property `name`."""
    return lambda received: received.property_bytes(name)


Piece = Callable[[Received], bytes]

LETTERS: Final[dict[bytes, Piece]] = {
    b"A": of_property("TopicAlias"),
    b"C": of_property("ContentType"),
    b"D": of_property("CorrelationData"),
    b"E": of_property("MessageExpiryInterval"),
    b"F": of_property("PayloadFormatIndicator"),
    b"I": lambda received: strftime(received, "%Y-%m-%dT%H:%M:%S%z"),
    b"J": lambda received: mosquitto_json(received, True),
    b"P": of_property("UserProperty"),
    b"R": of_property("ResponseTopic"),
    b"S": of_property("SubscriptionIdentifier"),
    b"U": seconds,
    b"X": lambda received: received.payload.hex().upper().encode(),
    b"j": lambda received: mosquitto_json(received, False),
    b"l": lambda received: b"%d" % len(received.payload),
    b"m": lambda received: b"%d" % received.number,
    b"p": lambda received: received.payload,
    b"q": lambda received: b"%d" % received.qos,
    b"r": lambda received: b"%d" % received.retain,
    b"t": lambda received: received.topic.encode(),
    b"x": lambda received: received.payload.hex().encode(),
}


class Template:
    """A format of -F; raises Refusal for an unknown letter."""

    def __init__(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        self.pieces: list[Piece] = [self.piece(found) for found in ITEM.finditer(data)]

    def __call__(self, received: Received) -> bytes:
        """Return the line for a message, without a line end."""
        return b"".join([piece(received) for piece in self.pieces])

    def piece(self, found: re.Match[bytes]) -> Piece:
        """Return the function that prints one item of the format."""
        letter, of_time, escape = found["letter"], found["time"], found["escape"]
        if letter is not None:
            if letter == b"%":
                return constant(b"%")
            if letter not in LETTERS:
                known = ", ".join(f"%{name.decode()}" for name in LETTERS)
                raise Refusal(f"-F {show(found[0])}: unknown; valid are {known} and %%")
            return fitted(LETTERS[letter], found["flags"], int(found["width"] or 0), found["most"])
        if of_time is not None:
            if of_time == b"@":
                return constant(b"@")
            if of_time == b"N":
                return lambda received: b"%09d" % (received.time_ns % 1_000_000_000)
            if of_time not in TIMES:
                raise Refusal(f"-F {show(found[0])}: after @ write a letter of strftime, N (nanoseconds) or @")
            return lambda received: strftime(received, "%" + of_time.decode())
        if escape is not None:
            if escape != b"\\" and escape not in ESCAPES:
                raise Refusal(f"-F {show(found[0])}: unknown; valid are \\0 \\a \\e \\n \\r \\t \\v and \\\\")
            return constant(ESCAPES.get(escape, escape))
        if found["rest"] is not None:
            raise Refusal(f"-F ends with {show(found[0])}: write the character twice to print it")
        return constant(found["plain"])


def show(item: bytes) -> str:
    """Return an item of -F as text for a message."""
    return item.decode("utf-8", "replace")


def constant(data: bytes) -> Piece:
    """Return a function that prints `data` for every message."""
    return lambda _received: data


def fitted(piece: Piece, flags: bytes, width: int, most: bytes | None) -> Piece:
    """Return `piece` cut to `most` bytes and padded to `width`, with zeros (flag 0) or on the right (flag -)."""
    if not width and most is None:
        return piece
    fill = b"0" if b"0" in flags and b"-" not in flags else b" "

    def fit(received: Received) -> bytes:
        data = piece(received)
        if most is not None:
            data = data[: int(most)]
        return data.ljust(width, fill) if b"-" in flags else data.rjust(width, fill)

    return fit

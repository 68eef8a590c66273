"""An application message, as it is passed between packages, and its encoding in a row."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import U16, get_u16, get_u32, get_u64, u32, u64

__all__ = ["SOURCE_BYTES", "Message", "decode_message", "encode_message", "expires_us_at"]

_ORIGIN: Final = 8  # of the flags
_OWNER: Final = 16
_SOURCE: Final = 32
_FLAGS_MAX: Final = 63

SOURCE_BYTES: Final = 16


@mypyc_attr(free_list_len=1)
class Message:
    """An application message.

    topic: UTF-8 bytes; properties: the MQTT 5 properties that a server forwards unaltered, encoded, without a length;
    expires_us: when it expires (0 = never); created_us: when it was published; origin: of its queue rows, see
    `folkmoot.store.origin` (empty = irrelevant); owner: the user that its retained row counts for (empty = the
    anonymous, or nobody who is known); asked_again: an earlier leader may have sent it already to subscribers
    with QoS 0; source: the packet that brought it, if that may come again to another leader of its publisher's session
    (`turn.source`, empty = none does); resent: an earlier leader was sent that packet too.
    The wire_* attributes cache the last encoding: a message for many sessions is encoded once per variant.
    """

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes,
        publisher: str,
        created_us: int,
        expires_us: int,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.publisher = publisher
        self.created_us = created_us
        self.expires_us = expires_us
        self.origin = b""
        self.owner = ""
        self.asked_again = False
        self.source = b""
        self.resent = False
        self.wire_kind = -1
        self.wire_left = b""
        self.wire_right = b""

    def anew(self) -> Message:
        """Return it as a message of its own: who gets it has nothing to do with who else has got it, or from where."""
        if not self.origin and not self.source:
            return self
        same = Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.properties,
            self.publisher,
            self.created_us,
            self.expires_us,
        )
        same.owner = self.owner
        same.asked_again = self.asked_again
        return same

    @property
    def size(self) -> int:
        """The bytes that count against queue limits."""
        return len(self.topic) + len(self.payload) + len(self.properties)

    def __repr__(self) -> str:
        retain = " retain" if self.retain else ""
        return f"Message({self.topic!r} qos={self.qos}{retain} {len(self.payload)} bytes from {self.publisher!r})"


def encode_message(message: Message) -> bytes:
    """Return the encoding of a message in a row.

    Flags, times; topic, publisher, properties, the origin and the owner (if there is one), each with its length; the
    source (if there is one), the payload.
    """
    publisher = message.publisher.encode()
    flags = message.qos | (4 if message.retain else 0)
    extras = b""
    if message.origin:
        flags |= _ORIGIN
        extras = U16[len(message.origin)] + message.origin
    if message.owner:
        flags |= _OWNER
        owner = message.owner.encode()
        extras += U16[len(owner)] + owner
    if message.source:
        assert len(message.source) == SOURCE_BYTES, "a token and a number"
        flags |= _SOURCE
        extras += message.source
    return b"".join(
        [
            U16[flags],
            u64(message.created_us),
            u64(message.expires_us),
            U16[len(message.topic)],
            message.topic,
            U16[len(publisher)],
            publisher,
            u32(len(message.properties)),
            message.properties,
            extras,
            message.payload,
        ]
    )


def expires_us_at(data: bytes, pos: int) -> int:
    """Return when the message whose encoding starts at `pos` expires (0 = never), without decoding it.

    Raises CorruptStore if the row ends before that.
    """
    if len(data) < pos + 18:
        raise CorruptStore("a stored message is damaged: its row ends too early")
    return get_u64(data, pos + 10)


def decode_message(data: bytes, pos: int) -> Message:
    """Return the message whose encoding starts at `pos` and ends with `data`.

    Raises CorruptStore if it is damaged.
    """
    try:
        flags = get_u16(data, pos)
        created_us = get_u64(data, pos + 2)
        expires_us = get_u64(data, pos + 10)
        topic_end = pos + 20 + get_u16(data, pos + 18)
        topic = data[pos + 20 : topic_end]
        publisher_end = topic_end + 2 + get_u16(data, topic_end)
        publisher = data[topic_end + 2 : publisher_end].decode()
        properties_end = publisher_end + 4 + get_u32(data, publisher_end)
        properties = data[publisher_end + 4 : properties_end]
        origin_end = properties_end
        if flags & _ORIGIN:
            origin_end += 2 + get_u16(data, properties_end)
        owner_end = origin_end
        owner = ""
        if flags & _OWNER:
            owner_end += 2 + get_u16(data, origin_end)
            owner = data[origin_end + 2 : owner_end].decode()
        source_end = owner_end + (SOURCE_BYTES if flags & _SOURCE else 0)
    except (IndexError, UnicodeDecodeError):
        raise CorruptStore("a stored message is damaged: its row ends too early") from None
    if source_end > len(data) or flags > _FLAGS_MAX or flags & 3 == 3:
        raise CorruptStore("a stored message is damaged: its lengths do not fit its row")
    payload = data[source_end:]
    message = Message(topic, payload, flags & 3, bool(flags & 4), properties, publisher, created_us, expires_us)
    if flags & _ORIGIN:
        message.origin = data[properties_end + 2 : origin_end]
    message.owner = owner
    message.source = data[owner_end:source_end]
    return message

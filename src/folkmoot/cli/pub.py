"""`folkmoot pub`: publishes messages, waits for their acknowledgements, and reports refused ones."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from folkmoot.cli.connection import LEVELS_MAX, Connection, ConnectionOptions, connected
from folkmoot.cli.error import Refusal
from folkmoot.cli.property import PropertyCommand, text_bytes
from folkmoot.mqtt import reason as codes
from folkmoot.topics.name import check_topic

if TYPE_CHECKING:
    from paho.mqtt.properties import Properties

    from folkmoot.cli.link import Link

__all__ = ["pub"]

REFUSALS_SHOWN: Final = 10
READ_BYTES: Final = 65_536
PACKET_BYTES_MAX: Final = 268_435_460  # MQTT 5.0 section 2.1.4: the largest remaining length and its header
TURN_EVERY: Final = 64

# The properties of a receipt (docs/receipts.md), repeated here because importing the broker would slow the start.
RECEIPT_PROPERTY: Final = "folkmoot-receipt"
PLACE_PROPERTIES: Final = ("folkmoot-replicas", "folkmoot-epoch", "folkmoot-partition", "folkmoot-sequence")
MORE_PROPERTY: Final = "folkmoot-more"


@click.command(cls=PropertyCommand, context_settings={"help_option_names": ["--help"]})
@connected
@click.option("-t", "--topic", "topics", multiple=True, help="Topic; repeatable, and every topic gets every message.")
@click.option("-m", "--message", help="Send this message.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Send the content of this file.")
@click.option("-l", "--stdin-line", "lines", is_flag=True, help="Send each line of stdin as a message.")
@click.option("-s", "--stdin-file", "stdin", is_flag=True, help="Send the whole stdin as one message.")
@click.option("-n", "--null-message", "null", is_flag=True, help="Send an empty message.")
@click.option(
    "-q",
    "--qos",
    type=click.IntRange(min=0, max=2),
    default=0,
    help="QoS: 0, 1 (waits for PUBACK) or 2 (waits for PUBCOMP).",
)
@click.option("-r", "--retain", is_flag=True, help="Let the broker retain the message.")
@click.option(
    "-M",
    "--max-inflight",
    "window",
    type=click.IntRange(min=1, max=10_000),
    default=100,
    help="Maximum number of unacknowledged messages.",
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, help="Send the message this many times.")
@click.option(
    "--repeat-delay",
    "delay_s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Pause between repeated messages in seconds.",
)
def pub(
    options: ConnectionOptions,
    topics: tuple[str, ...],
    message: str | None,
    file: Path | None,
    lines: bool,
    stdin: bool,
    null: bool,
    qos: int,
    retain: bool,
    window: int,
    repeat: int,
    delay_s: float,
) -> int:
    """Publish messages; the options are those of mosquitto_pub.

    With QoS 1 and 2, the command ends when the broker has acknowledged every message. A message without subscribers is
    not an error. A refused message is reported with the reason. With -D publish user-property folkmoot-receipt 1, the
    command prints where each message was stored.

    Exit status: 0 all messages sent (and acknowledged), 1 refused, lost or not connected, 2 wrong options, 27 timeout
    (-W), 130 Ctrl-C.
    """
    from folkmoot.cli.link import Link, stopping

    try:
        connection = Connection(options, "pub")
        source = Source(message, file, lines=lines, stdin=stdin, null=null)
        if lines and repeat > 1:
            raise Refusal("--repeat cannot be combined with -l: omit one of them")
        publisher = Publisher(Link(connection), checked_topics([*topics, connection.address.topic]), qos, retain)
        publisher.quiet = options.quiet
        source.load()
        with stopping():
            publisher.run(source.payloads(publisher.link, repeat, delay_s), window)
    except KeyboardInterrupt:
        return 130
    except Refusal as error:
        if not options.quiet:
            raise
        return error.status
    return publisher.report()


def checked_topics(topics: list[str]) -> list[str]:
    """Return the topics, without an empty one from the URL; raises Refusal for an invalid topic."""
    *given, of_url = topics
    found = [*given, of_url] if of_url else given
    if not found:
        raise Refusal("no topic: give -t TOPIC")
    for topic in found:
        if fault := check_topic(text_bytes("-t", topic), LEVELS_MAX):
            raise Refusal(f"-t {topic}: {fault}")
    return found


class Source:
    """The source of the payloads: exactly one of -m, -f, -l, -s and -n."""

    def __init__(self, message: str | None, file: Path | None, *, lines: bool, stdin: bool, null: bool) -> None:
        ways = {"-m": message is not None, "-f": file is not None, "-l": lines, "-s": stdin, "-n": null}
        given = [name for name, here in ways.items() if here]
        if len(given) != 1:
            raise Refusal(f"the message is not defined. Give one of {', '.join(given or ways)}")
        self.message = message
        self.file = file
        self.lines = lines
        self.stdin = stdin
        self.payload = b""

    def load(self) -> None:
        """Read the payload, unless it comes line by line; this happens before the connection is opened."""
        if self.message is not None:
            # As the shell gave it, even if it is not UTF-8.
            self.payload = self.message.encode("utf-8", "surrogateescape")
        elif self.stdin:
            self.payload = sys.stdin.buffer.read()
        elif self.file is not None:
            try:
                self.payload = self.file.read_bytes()
            except OSError as error:
                raise Refusal(f"-f {self.file}: {error.strerror}; give a file that can be read") from None

    def payloads(self, link: Link, repeat: int, delay_s: float) -> Iterator[bytes]:
        """Yield every payload; the connection is served during the pauses."""
        if self.lines:
            yield from read_lines(link, sys.stdin.fileno())
            return
        for number in range(repeat):
            until = time.monotonic() + (delay_s if number else 0.0)
            while (left := until - time.monotonic()) > 0:
                link.turn(left)
            yield self.payload


def receipt_lines(topic: str, properties: Properties | None) -> list[str]:
    """Return the receipt in an acknowledgement as lines, one per partition; none if the broker sent none."""
    lines: list[str] = []
    found: dict[str, str] = {}
    for name, value in getattr(properties, "UserProperty", []):
        if name == MORE_PROPERTY:
            lines.append(f"receipt {topic}: and {value} partitions more")
        elif name in PLACE_PROPERTIES:
            found[name] = value
            if len(found) == len(PLACE_PROPERTIES):
                words = ", ".join(f"{name.removeprefix('folkmoot-')} {found[name]}" for name in PLACE_PROPERTIES)
                lines.append(f"receipt {topic}: {words}")
                found.clear()
    if found:
        lines.append(f"receipt {topic}: on no disk")  # only transient sessions got it, or no session
    return lines


def read_lines(link: Link, file: int) -> Iterator[bytes]:
    """Yield the lines of `file` without line ends, as they arrive; text after the last line end is a line too."""
    rest = b""
    while True:
        if not link.turn(also=[file]):
            continue
        data = os.read(file, READ_BYTES)
        if not data:
            break
        *complete, rest = (rest + data).split(b"\n")
        yield from complete
    if rest:
        yield rest


class Publisher:
    """Sends to all topics with a bounded number of messages under way, and reports refused messages."""

    def __init__(self, link: Link, topics: list[str], qos: int, retain: bool) -> None:
        self.link = link
        self.topics = topics
        self.qos = qos
        self.retain = retain
        self.properties = link.connection.properties.get("publish")
        wishes: list[tuple[str, str]] = getattr(self.properties, "UserProperty", [])
        self.asks = any(name == RECEIPT_PROPERTY for name, _value in wishes)
        self.alias = int(getattr(self.properties, "TopicAlias", 0))
        if self.alias and len(topics) > 1:
            raise Refusal("-D publish topic-alias needs a single topic: give one -t")
        self.quiet = False
        self.window = 1
        self.waiting = 0
        self.sent = 0
        self.refused = 0
        self.names: dict[int, str] = {}
        link.on_publish = self.acknowledged

    def run(self, payloads: Iterable[bytes], window: int) -> None:
        """Connect, send all `payloads`, wait until they are acknowledged, and disconnect."""
        from folkmoot.cli.link import Lost, TimedOut

        try:
            self.link.open()
            self.keep_to(window)
            for payload in payloads:
                self.send(payload)
            self.finish()
        except (Lost, TimedOut) as error:
            if self.waiting:
                raise Refusal(
                    f"{error}; {self.waiting} of {self.sent} messages not acknowledged", error.status
                ) from None
            raise
        finally:
            self.link.close()

    def keep_to(self, window: int) -> None:
        """Apply `window` and the limits of CONNACK; raises Refusal if the broker does not support an option."""
        most_qos = self.link.granted_value("MaximumQoS", 2)
        if self.qos > most_qos:
            raise Refusal(f"the broker supports at most QoS {most_qos}: give -q {most_qos}", 1)
        if self.retain and not self.link.granted_value("RetainAvailable", 1):
            raise Refusal("the broker does not support retained messages: omit -r", 1)
        most_alias = self.link.granted_value("TopicAliasMaximum", 0)
        if self.alias > most_alias:
            does = f"accepts topic aliases up to {most_alias}" if most_alias else "accepts no topic aliases"
            raise Refusal(f"the broker {does}: change -D publish topic-alias", 1)
        # More than Receive Maximum is a protocol error. [MQTT-3.3.4-7]
        self.window = min(window, self.link.granted_value("ReceiveMaximum", 65_535)) if self.qos else window

    def send(self, payload: bytes) -> None:
        """Publish `payload` to every topic, waiting while the window is full."""
        for topic in self.topics:
            self.check_size(topic, payload)
            while self.waiting >= self.window:
                self.link.turn()
            # After the first message, the alias stands for the topic (section 3.3.2.3.4).
            name = "" if self.alias and self.sent else topic
            self.waiting += 1
            self.sent += 1
            info = self.link.client.publish(name, payload, self.qos, self.retain, self.properties)
            if self.qos:
                self.names[info.mid] = topic
            # QoS 0 has no acknowledgement: without this turn, a DISCONNECT of the broker would go unnoticed.
            if self.sent % TURN_EVERY == 0 or not self.link.client.is_connected():
                self.link.turn(0.0)

    def check_size(self, topic: str, payload: bytes) -> None:
        """Raise Refusal for a message that is too large for the protocol or this broker."""
        most = self.link.granted_value("MaximumPacketSize", PACKET_BYTES_MAX)
        head = 5 + 2 + len(topic.encode()) + (2 if self.qos else 0)
        if self.link.connection.v5:
            head += 1 if self.properties is None else len(self.properties.pack())  # type: ignore[no-untyped-call]
        # [MQTT-3.2.2-15]
        if head + len(payload) > most:
            raise Refusal(f"a message of {len(payload)} bytes is too large: a packet may have at most {most} bytes", 1)

    def acknowledged(self, number: int, code: int, properties: Properties | None) -> None:
        """Handle the acknowledgement or refusal of a message (QoS 0: it is written)."""
        from folkmoot.cli.link import outcome

        self.waiting -= 1
        topic = self.names.pop(number, "")
        # 0x10, no matching subscribers, is below this and is a success.
        if code < codes.UNSPECIFIED_ERROR:
            if self.asks and not self.quiet:
                print("".join(f"{line}\n" for line in receipt_lines(topic, properties)), end="", flush=True)
            return
        self.refused += 1
        if self.refused <= REFUSALS_SHOWN and not self.quiet:
            text = f"the broker refused the message to {topic}: {outcome(code, properties)}"
            print(f"error: {text}", file=sys.stderr)

    def finish(self) -> None:
        """Wait until no message is under way."""
        while self.waiting:
            self.link.turn()
        # QoS 0 has no answer: at least read what the broker has already sent.
        self.link.turn(0.0)

    def report(self) -> int:
        """Report the number of refused messages if several were sent; return the exit status."""
        if self.refused and self.sent > 1 and not self.quiet:
            print(f"error: {self.refused} of {self.sent} messages were refused", file=sys.stderr)
        return 1 if self.refused else 0

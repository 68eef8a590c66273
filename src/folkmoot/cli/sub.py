"""`folkmoot sub`: subscribes, prints messages in one of several formats, and reconnects after a lost connection."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

import click
from paho.mqtt.subscribeoptions import SubscribeOptions

from folkmoot.cli.connection import LEVELS_MAX, Connection, ConnectionOptions, connected
from folkmoot.cli.error import Refusal
from folkmoot.cli.property import PropertyCommand, text_bytes
from folkmoot.mqtt import reason as codes
from folkmoot.topics.name import check_filter, matches, split_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.properties import Properties

    from folkmoot.cli.line import Received
    from folkmoot.cli.link import Link, Lost

__all__ = ["sub"]

RETAIN_ALWAYS: Final = 0
RETAIN_NEVER: Final = 2
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0


@click.command(cls=PropertyCommand, context_settings={"help_option_names": ["--help"]})
@connected
@click.option("-t", "--topic", "filters", multiple=True, help="Topic filter, or $share/GROUP/FILTER; repeatable.")
@click.option("-q", "--qos", type=click.IntRange(min=0, max=2), default=0, help="Maximum QoS of the subscriptions.")
@click.option("-U", "--unsubscribe", multiple=True, help="Unsubscribe from this filter; repeatable.")
@click.option(
    "-T", "--filter-out", "without", multiple=True, help="Do not print topics that match this filter; repeatable."
)
@click.option("-C", "--count", type=click.IntRange(min=1), help="End after this many messages.")
@click.option(
    "-E",
    "--exit-after-subscribe",
    "ready",
    is_flag=True,
    help="End when the broker has acknowledged the subscriptions.",
)
@click.option("-R", "--no-retained", "fresh", is_flag=True, help="Receive no retained messages.")
@click.option(
    "--retained-only",
    "retained",
    is_flag=True,
    help="Print only retained messages, and end at the first other message.",
)
@click.option("--retain-as-published", "as_published", is_flag=True, help="Keep the retain flag of live messages.")
@click.option("--no-local", is_flag=True, help="Receive no messages that this client id published.")
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before the payload.")
@click.option("-F", "--format", "template", metavar="TEXT", help="Print messages in this format; see docs/cli.md.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message, with its properties.")
@click.option("-N", "--no-eol", "no_line_end", is_flag=True, help="Print no line end after a message.")
def sub(
    options: ConnectionOptions,
    filters: tuple[str, ...],
    qos: int,
    unsubscribe: tuple[str, ...],
    without: tuple[str, ...],
    count: int | None,
    ready: bool,
    fresh: bool,
    retained: bool,
    as_published: bool,
    no_local: bool,
    verbose: bool,
    template: str | None,
    as_json: bool,
    no_line_end: bool,
) -> int:
    """Subscribe and print messages; the options are those of mosquitto_sub.

    The command reconnects after a lost connection. It acknowledges a message when it has printed it.

    Exit status: 0 requested end (-C, -E, --retained-only, or the reader of the output is gone), 1 refused or not
    connected, 2 wrong options, 27 timeout (-W), 130 Ctrl-C.
    """
    from folkmoot.cli.link import Link, stopping

    try:
        wanted = Subscription(filters, without, unsubscribe, qos)
        connection = Connection(options, "sub")
        wanted.add_topic_of(connection)
        wanted.set_options(connection, fresh=fresh, as_published=as_published, no_local=no_local)
        if count and qos == 2:
            connection.receive_singly()
        printer = Printer(form_of(verbose, template, as_json), b"" if no_line_end else b"\n")
        subscriber = Subscriber(Link(connection), wanted, printer)
        subscriber.count, subscriber.ready, subscriber.quiet = count or 0, ready, options.quiet
        subscriber.skip_retained = fresh and not (as_published and connection.v5)
        subscriber.only_retained = retained
        with stopping():
            subscriber.run()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output is gone; without this, Python would report it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Refusal as error:
        if not options.quiet:
            raise
        return error.status
    return 0


def form_of(verbose: bool, template: str | None, as_json: bool) -> Callable[[Received], bytes]:
    """Return the function that formats messages."""
    from folkmoot.cli import line

    if as_json and (template is not None or verbose):
        raise Refusal("--json prints the whole message: omit -F and -v")
    if template is not None:
        return line.Template(template)
    if as_json:
        return line.json_line
    return line.topic_line if verbose else line.payload_line


class Subscription:
    """Filters, subscription options, and topics not to print. Raises Refusal for an invalid filter."""

    def __init__(self, filters: Sequence[str], without: Sequence[str], unsubscribe: Sequence[str], qos: int) -> None:
        for name, given in (("-t", filters), ("-T", without), ("-U", unsubscribe)):
            for text in given:
                if fault := check_filter(text_bytes(name, text), LEVELS_MAX):
                    raise Refusal(f"{name} {text}: {fault}")
        self.filters = list(filters)
        self.without = [text.encode() for text in without]
        self.unsubscribe = list(unsubscribe)
        self.qos = qos
        self.options: list[tuple[str, int]] | list[tuple[str, SubscribeOptions]] = []

    def add_topic_of(self, connection: Connection) -> None:
        """Add the topic of the URL; without any filter, there must be a session that may have subscriptions."""
        topic = connection.address.topic
        if topic:
            if fault := check_filter(text_bytes("--url", topic), LEVELS_MAX):
                raise Refusal(f"--url: {topic}: {fault}")
            self.filters.append(topic)
        if not self.filters and not self.unsubscribe and connection.clean:
            raise Refusal("nothing to subscribe to: give -t FILTER")

    def set_options(self, connection: Connection, *, fresh: bool, as_published: bool, no_local: bool) -> None:
        """Set the subscription options; version 3 has only the QoS."""
        if not connection.v5:
            if as_published or no_local:
                raise Refusal("--retain-as-published and --no-local need version 5: omit them, or -V")
            self.options = [(text, self.qos) for text in self.filters]
            return
        handling = RETAIN_NEVER if fresh else RETAIN_ALWAYS
        if no_local and any(split_share(text.encode()) for text in self.filters):
            raise Refusal("--no-local is not allowed with $share: omit it")  # [MQTT-3.8.3-4]
        self.options = [(text, SubscribeOptions(self.qos, no_local, as_published, handling)) for text in self.filters]

    def hides(self, topic: str) -> bool:
        """Whether -T excludes this topic."""
        data = topic.encode()
        return any(matches(text, data) for text in self.without)


class Printer:
    """Writes each message to stdout as a whole and at once."""

    def __init__(self, form: Callable[[Received], bytes], line_end: bytes) -> None:
        self.form = form
        self.line_end = line_end

    def __call__(self, received: Received) -> None:
        """Print a message and flush it. Raises BrokenPipeError, Refusal (disk full)."""
        try:
            sys.stdout.buffer.write(self.form(received) + self.line_end)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Refusal(f"the message cannot be written to stdout: {error.strerror}", 1) from None


class Subscriber:
    """One run of `folkmoot sub`, from connecting to the requested end."""

    def __init__(self, link: Link, wanted: Subscription, printer: Callable[[Received], None]) -> None:
        self.link = link
        self.wanted = wanted
        self.printer = printer
        self.count = 0
        self.ready = False
        self.quiet = False
        self.skip_retained = False
        self.only_retained = False
        self.done = False
        self.printed = 0
        self.unanswered = 0
        self.aliases: dict[int, str] = {}
        link.on_message = self.receive
        link.on_suback = self.subscribed
        link.on_unsuback = self.unsubscribed

    def run(self) -> None:
        """Connect, subscribe, and print until the end; reconnect after a lost connection."""
        from folkmoot.cli.link import Lost

        try:
            self.link.open()
            self.subscribe()
            while not self.done:
                try:
                    self.link.turn()
                except Lost as lost:
                    if lost.for_good:
                        raise
                    self.come_back(lost)
        except (KeyboardInterrupt, SystemExit):
            self.link.settle()
            raise
        finally:
            self.link.close()

    def subscribe(self) -> None:
        """Send SUBSCRIBE and UNSUBSCRIBE."""
        properties = self.link.connection.properties
        if self.wanted.options:
            self.unanswered += 1
            self.link.client.subscribe(self.wanted.options, properties=properties.get("subscribe"))
        if self.wanted.unsubscribe:
            self.unanswered += 1
            self.link.client.unsubscribe(self.wanted.unsubscribe, properties=properties.get("unsubscribe"))
        self.done = self.done or (self.ready and not self.unanswered)

    def come_back(self, lost: Lost) -> None:
        """Reconnect, with growing pauses between attempts, and subscribe again if the session is gone."""
        from folkmoot.cli.link import Lost as LostAgain

        self.note(f"{lost}; connecting again")
        pause_s = PAUSE_S
        while True:
            self.link.check_time(" while connecting again")
            time.sleep(self.link.patience(pause_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            try:
                self.link.open(again=True)
                break
            except LostAgain as again:
                if again.for_good:
                    raise
        self.note("connected again")
        self.aliases.clear()
        self.unanswered = 0
        if not self.link.session_present:
            self.subscribe()

    def receive(self, message: MQTTMessage) -> None:
        """Print a message and acknowledge it; after the end do neither, so that a persistent session keeps it."""
        from folkmoot.cli.line import Received

        if self.done:
            return
        received = Received(message, self.topic_of(message), time.time_ns())
        if self.only_retained and not received.retain:
            self.done = True
            return
        if not (self.skip_retained and received.retain) and not self.wanted.hides(received.topic):
            self.printer(received)
            self.printed += 1
            self.done = self.printed == self.count
        self.link.client.ack(message.mid, message.qos)

    def topic_of(self, message: MQTTMessage) -> str:
        """Return the topic of a message, or the topic of its alias (section 3.3.2.3.4)."""
        alias = getattr(message.properties, "TopicAlias", 0)
        if alias and message.topic:
            self.aliases[alias] = message.topic
        return message.topic or self.aliases[alias]

    def subscribed(self, _number: int, found: list[int], properties: Properties | None) -> None:
        """Handle SUBACK: report refused filters; raises Refusal if all of them were refused."""
        from folkmoot.cli.link import outcome

        self.unanswered -= 1
        refused = [
            f"the broker refused the subscription to {text}: {outcome(code, properties)}"
            for text, code in zip(self.wanted.filters, found, strict=False)
            if code >= codes.UNSPECIFIED_ERROR
        ]
        if refused and len(refused) == len(self.wanted.filters):
            for text in refused[:-1]:
                self.note(text, "error")
            raise Refusal(refused[-1], 1)
        for text in refused:
            self.note(text, "error")
        self.done = self.done or (self.ready and not self.unanswered)

    def unsubscribed(self, _number: int, found: list[int], properties: Properties | None) -> None:
        """Handle UNSUBACK: report filters that were not unsubscribed."""
        from folkmoot.cli.link import outcome

        self.unanswered -= 1
        for text, code in zip(self.wanted.unsubscribe, found, strict=False):
            if code >= codes.UNSPECIFIED_ERROR:
                raise Refusal(f"the broker refused to unsubscribe from {text}: {outcome(code, properties)}", 1)
            if code == codes.NO_SUBSCRIPTION_EXISTED:
                self.note(f"there was no subscription to {text}")
        self.done = self.done or (self.ready and not self.unanswered)

    def note(self, text: str, kind: str = "note") -> None:
        """Print a line on stderr, unless --quiet is given."""
        if not self.quiet:
            print(f"{kind}: {text}", file=sys.stderr)

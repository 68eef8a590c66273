"""MQTT 5 properties on the command line: the syntax of `-D COMMAND NAME VALUE` (MQTT 5.0 section 2.2.2.2).

The syntax is that of Mosquitto: `-D publish content-type text/plain`, or four words for a user property:
`-D publish user-property KEY VALUE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

import click
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from folkmoot.cli.error import Refusal

__all__ = ["PanelOption", "PropertyCommand", "join_words", "new_properties", "parse_properties", "text_bytes"]

U32_MAX: Final = 0xFFFFFFFF
VARINT_MAX: Final = 268_435_455

# No argument of a process can contain it, so joined words can be split unambiguously.
JOINT: Final = "\0"

COMMANDS: Final = {
    "connect": PacketTypes.CONNECT,
    "publish": PacketTypes.PUBLISH,
    "subscribe": PacketTypes.SUBSCRIBE,
    "unsubscribe": PacketTypes.UNSUBSCRIBE,
    "disconnect": PacketTypes.DISCONNECT,
    "will": PacketTypes.WILLMESSAGE,
}
MESSAGE: Final = ("publish", "will")

# name: attribute of paho's Properties, kind of value ((least, most), "text", "binary" or "pair"), commands
PROPERTIES: Final[dict[str, tuple[str, tuple[int, int] | str, tuple[str, ...]]]] = {
    "payload-format-indicator": ("PayloadFormatIndicator", (0, 1), MESSAGE),
    "message-expiry-interval": ("MessageExpiryInterval", (0, U32_MAX), MESSAGE),
    "content-type": ("ContentType", "text", MESSAGE),
    "response-topic": ("ResponseTopic", "text", MESSAGE),
    "correlation-data": ("CorrelationData", "binary", MESSAGE),
    "subscription-identifier": ("SubscriptionIdentifier", (1, VARINT_MAX), ("subscribe",)),
    "session-expiry-interval": ("SessionExpiryInterval", (0, U32_MAX), ("connect", "disconnect")),
    "authentication-method": ("AuthenticationMethod", "text", ("connect",)),
    "authentication-data": ("AuthenticationData", "binary", ("connect",)),
    "request-problem-information": ("RequestProblemInformation", (0, 1), ("connect",)),
    "request-response-information": ("RequestResponseInformation", (0, 1), ("connect",)),
    "will-delay-interval": ("WillDelayInterval", (0, U32_MAX), ("will",)),
    "reason-string": ("ReasonString", "text", ("disconnect",)),
    "receive-maximum": ("ReceiveMaximum", (1, 65_535), ("connect",)),
    "topic-alias-maximum": ("TopicAliasMaximum", (0, 65_535), ("connect",)),
    "topic-alias": ("TopicAlias", (1, 65_535), ("publish",)),
    "maximum-packet-size": ("MaximumPacketSize", (1, VARINT_MAX), ("connect",)),
    "user-property": ("UserProperty", "pair", tuple(COMMANDS)),
}


class PanelOption(click.Option):
    """An option that the help lists under the title `panel`."""

    def __init__(self, *declarations: Any, panel: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.panel = panel


class PropertyCommand(click.Command):
    """A command whose option -D takes three words, or four for a user property, which click does not support."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the words of each -D into one, then parse `args`."""
        counts = {}
        for param in self.params:
            for name in param.opts:
                counts[name] = 0 if getattr(param, "is_flag", False) else param.nargs
        return super().parse_args(ctx, join_words(args, counts))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by panel, the options of the command itself first."""
        panels: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panels.setdefault(param.panel if isinstance(param, PanelOption) else "Options", []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


def join_words(args: Sequence[str], counts: dict[str, int]) -> list[str]:
    """Join the words after each `-D` into one; raises Refusal if there are too few.

    `counts` has the number of values of each option, because the value of another option may be `-D`.
    """
    joined: list[str] = []
    at = 0
    while at < len(args):
        option, attached = split_option(args[at], counts)
        if option == "--":
            return joined + list(args[at:])
        if option in ("-D", "--property") and not attached:
            size = 4 if list(args[at + 2 : at + 3]) == ["user-property"] else 3
            words = args[at + 1 : at + 1 + size]
            if len(words) < size:
                form = "-D COMMAND user-property KEY VALUE" if size == 4 else "-D COMMAND NAME VALUE"
                raise Refusal(f"{' '.join(args[at:])}: write {form}, such as -D publish content-type text/plain")
            joined += [args[at], JOINT.join(words)]
            at += 1 + size
            continue
        size = 1 + max(counts.get(option, 0) - attached, 0)
        joined += args[at : at + size]
        at += size
    return joined


def split_option(word: str, counts: dict[str, int]) -> tuple[str, int]:
    """Return the option in `word` that takes values ("" for none), and the number of values attached to it."""
    if not word.startswith("-") or word in ("-", "--"):
        return word if word == "--" else "", 0
    if word.startswith("--"):
        name, equals, _value = word.partition("=")
        return name, len(equals)
    for index in range(1, len(word)):
        name = "-" + word[index]
        if counts.get(name, 0):
            return name, int(index + 1 < len(word))
    return "", 0


def new_properties(packet_type: int) -> Properties:
    """Return empty properties for a packet of this type (`PacketTypes`)."""
    return Properties(packet_type)  # type: ignore[no-untyped-call]


def parse_properties(options: Sequence[str]) -> dict[str, Properties]:
    """Return the properties by command; raises Refusal for a property or value that MQTT does not allow there.

    Each option is joined as by `join_words`.
    """
    found: dict[str, Properties] = {}
    for words in options:
        command, _, rest = words.partition(JOINT)
        name, _, value = rest.partition(JOINT)
        if command not in COMMANDS:
            raise Refusal(f"-D {command}: the first word must be one of {', '.join(COMMANDS)}")
        if name not in PROPERTIES or command not in PROPERTIES[name][2]:
            raise Refusal(f"-D {command} {name}: {advise(command, name)}")
        attribute, kind, _commands = PROPERTIES[name]
        properties = found.setdefault(command, new_properties(COMMANDS[command]))
        if attribute != "UserProperty" and hasattr(properties, attribute):
            raise Refusal(f"-D {command} {name} is given twice: it can be sent only once, omit one")
        setattr(properties, attribute, parse_value(f"-D {command} {name}", kind, value))
    return found


def advise(command: str, name: str) -> str:
    """Return the advice for a property that `command` does not have."""
    valid = [known for known, (_attribute, _kind, commands) in PROPERTIES.items() if command in commands]
    near = get_close_matches(name, valid, n=1)
    fault = f"belongs to {' and '.join(PROPERTIES[name][2])}" if name in PROPERTIES else "is not a property"
    return f"{fault}; " + (f"did you mean {near[0]}?" if near else f"{command} has {', '.join(valid)}")


def parse_value(option: str, kind: tuple[int, int] | str, value: str) -> object:
    """Return `value` as paho expects it (int, str, bytes or a pair of str); raises Refusal, naming `option`."""
    if isinstance(kind, tuple):
        least, most = kind
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise Refusal(f"{option} {value}: give a whole number from {least} to {most}")
        return int(value)
    if kind == "pair":
        key, _joint, text = value.partition(JOINT)
        return text_bytes(option, key).decode(), text_bytes(option, text).decode()
    data = value.encode("utf-8", "surrogateescape") if kind == "binary" else text_bytes(option, value)
    if len(data) > 65_535:
        raise Refusal(f"{option}: {len(data)} bytes exceed the limit of MQTT, 65535")
    return data if kind == "binary" else data.decode()


def text_bytes(option: str, text: str) -> bytes:
    """Return `text` as UTF-8; raises Refusal, naming `option`, if it is not valid UTF-8 or too long for MQTT."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Refusal(f"{option}: this is not valid UTF-8") from None
    if len(data) > 65_535:
        raise Refusal(f"{option}: {len(data)} bytes exceed the limit of MQTT, 65535")
    return data

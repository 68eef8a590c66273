"""The connection options of `pub` and `sub`: their names, and the checks on their combinations.

The names are those of mosquitto_pub and mosquitto_sub. This module opens no connection, see `link`. It never prints a
password.
"""

from __future__ import annotations

import functools
import os
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_type_hints

import click
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from folkmoot.cli.error import Refusal
from folkmoot.cli.property import PanelOption, new_properties, parse_properties, text_bytes
from folkmoot.cli.url import Address, parse_url
from folkmoot.topics.name import check_topic

__all__ = ["LEVELS_MAX", "PASSWORD_VARIABLE", "Connection", "ConnectionOptions", "Will", "connected"]

PASSWORD_VARIABLE: Final = "FOLKMOOT_PASSWORD"  # noqa: S105 - a name and no password
SESSION_NEVER_ENDS: Final = 0xFFFFFFFF
# A topic of 65,535 bytes has at most this many levels; the broker may have a lower limit.
LEVELS_MAX: Final = 65_536

VERSIONS: Final = {
    "5": MQTTProtocolVersion.MQTTv5,
    "mqttv5": MQTTProtocolVersion.MQTTv5,
    "311": MQTTProtocolVersion.MQTTv311,
    "mqttv311": MQTTProtocolVersion.MQTTv311,
    "31": MQTTProtocolVersion.MQTTv31,
    "mqttv31": MQTTProtocolVersion.MQTTv31,
}


class ConnectionOptions:
    """The connection options of the command line: one attribute per option, with its default."""

    host: str | None = None
    port: int | None = None
    url: str | None = None
    version: str = "5"
    client_id: str | None = None
    id_prefix: str | None = None
    username: str | None = None
    password: str | None = None
    password_file: Path | None = None
    keepalive_s: int = 60
    persistent: bool = False
    session_expiry: str | None = None
    properties: tuple[str, ...] = ()
    timeout_s: float | None = None
    bind: str = ""
    debug: bool = False
    quiet: bool = False
    ws: bool = False
    ws_path: str = "/mqtt"
    tls: bool = False
    cafile: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False
    will_topic: str | None = None
    will_payload: str = ""
    will_qos: int = 0
    will_retain: bool = False

    def __init__(self, **given: Any) -> None:
        for name in NAMES:
            setattr(self, name, given.pop(name, getattr(ConnectionOptions, name)))
        assert not given, given


NAMES: Final = tuple(get_type_hints(ConnectionOptions))


def option(name: str, *flags: str, panel: str = "Connection", **more: Any) -> Callable[[Callable[..., int]], Any]:
    """Return the option for attribute `name`; the help lists it under the title `panel`."""
    default = getattr(ConnectionOptions, name)
    shown = default not in ("", (), False)
    return click.option(
        *flags,
        name,
        cls=PanelOption,
        panel=panel,
        default=default,
        show_default=shown,
        **more,
    )


OPTIONS: Final = (
    option("host", "-h", "--host", help="Host of the broker (127.0.0.1)."),
    option(
        "port",
        "-p",
        "--port",
        type=click.IntRange(min=1, max=65535),
        metavar="PORT",
        help="Port of the broker (1883; 8883 with TLS).",
    ),
    option(
        "url",
        "-L",
        "--url",
        metavar="URL",
        help="URL instead of host and port: mqtt(s)|ws(s)://[USER@]HOST[:PORT][/TOPIC].",
    ),
    option("version", "-V", "--protocol-version", metavar="5|311|31", help="MQTT version."),
    option("client_id", "-i", "--id", help="Client id; without it, the broker assigns one."),
    option("id_prefix", "-I", "--id-prefix", help="Prefix of the client id; the process id follows."),
    option("username", "-u", "--username", help="User name."),
    option(
        "password",
        "-P",
        "--pw",
        help=f"Password; other users of the machine can see it, so prefer {PASSWORD_VARIABLE}.",
    ),
    option(
        "password_file",
        "--password-file",
        type=click.Path(path_type=Path),
        help="File with the password in its first line.",
    ),
    option(
        "keepalive_s",
        "-k",
        "--keepalive",
        type=click.IntRange(min=0, max=65535),
        metavar="SECONDS",
        help="Keep alive in seconds.",
    ),
    option(
        "persistent",
        "-c",
        "--persistent",
        is_flag=True,
        help="Resume the session of this client id, and keep it after the end.",
    ),
    option(
        "session_expiry",
        "-x",
        "--session-expiry",
        metavar="SECONDS",
        help="Seconds for which the session outlives the connection; -1: no end.",
    ),
    option(
        "properties",
        "-D",
        "--property",
        multiple=True,
        metavar="COMMAND NAME VALUE",
        help="MQTT 5 property of connect, publish, subscribe, unsubscribe, disconnect or will.",
    ),
    option(
        "timeout_s",
        "-W",
        "--timeout",
        type=click.FloatRange(min=0.001),
        metavar="SECONDS",
        help="Stop after this many seconds (exit status 27).",
    ),
    option("bind", "-A", "--bind", metavar="ADDRESS", help="Local address to connect from."),
    option("debug", "-d", "--debug", is_flag=True, help="Print the packets sent and received on stderr."),
    option("quiet", "--quiet", is_flag=True, help="Print no errors."),
    option("ws", "--ws", is_flag=True, panel="WebSocket and TLS", help="Use MQTT over WebSocket."),
    option("ws_path", "--ws-path", panel="WebSocket and TLS", help="Path of the WebSocket."),
    option(
        "tls", "--tls", is_flag=True, panel="WebSocket and TLS", help="Use TLS with the CA certificates of the system."
    ),
    option(
        "cafile",
        "--cafile",
        type=click.Path(path_type=Path),
        panel="WebSocket and TLS",
        help="Use TLS with these CA certificates (PEM).",
    ),
    option(
        "cert", "--cert", type=click.Path(path_type=Path), panel="WebSocket and TLS", help="Client certificate (PEM)."
    ),
    option(
        "key",
        "--key",
        type=click.Path(path_type=Path),
        panel="WebSocket and TLS",
        help="Private key of --cert (PEM).",
    ),
    option(
        "insecure",
        "--insecure",
        is_flag=True,
        panel="WebSocket and TLS",
        help="Accept a certificate for another host name.",
    ),
    option("will_topic", "--will-topic", panel="Will", help="Topic of the will."),
    option("will_payload", "--will-payload", panel="Will", help="Payload of the will."),
    option("will_qos", "--will-qos", type=click.IntRange(min=0, max=2), panel="Will", help="QoS of the will."),
    option("will_retain", "--will-retain", is_flag=True, panel="Will", help="Retain the will."),
)


class Will:
    """A will: `topic`, `payload`, `qos`, `retain` and its properties (MQTT 5)."""

    def __init__(self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties | None) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties


class Connection:
    """The checked connection settings. Raises Refusal for options that are invalid or contradict each other.

    `program` becomes part of the client id if version 3 needs one; `environment` has the variables of the process.
    """

    def __init__(self, options: ConnectionOptions, program: str, environment: Mapping[str, str] = os.environ) -> None:
        if options.version not in VERSIONS:
            raise Refusal(f"-V {options.version}: the versions are 5, 311 and 31")
        self.version = VERSIONS[options.version]
        self.v5 = self.version == MQTTProtocolVersion.MQTTv5
        self.properties = parse_properties(options.properties)
        if self.properties and not self.v5:
            raise Refusal(f"-D needs version 5, but -V is {options.version}: omit one of them")
        self.address = address_of(options)
        self.ws_path = options.ws_path if options.ws_path.startswith("/") else f"/{options.ws_path}"
        self.bind = options.bind
        self.keepalive_s = options.keepalive_s
        self.timeout_s = options.timeout_s
        self.debug = options.debug
        self.client_id = client_id_of(options, program, self.v5)
        self.clean = not options.persistent
        self.session_expiry_s = session_expiry_of(options, self.v5, self.properties)
        self.username, self.password = credentials_of(options, self.address, environment)
        self.will = will_of(options, self.properties.get("will"))
        self.tls = tls_of(options) if self.address.tls else None

    def receive_singly(self) -> None:
        """Let the broker send QoS 2 messages one by one if the session outlives the connection, unless -D sets a limit.

        A message that is answered with PUBREC when this client ends is lost to the session; with a single message under
        way, none is lost.
        """
        if self.v5 and self.session_expiry_s > 0:
            connect = self.properties.setdefault("connect", new_properties(PacketTypes.CONNECT))
            if not hasattr(connect, "ReceiveMaximum"):
                connect.ReceiveMaximum = 1


def connected(command: Callable[..., int]) -> Callable[..., int]:
    """Add the connection options to a command, which gets them as its first argument, a `ConnectionOptions`."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> int:
        options = ConnectionOptions(**{name: given.pop(name) for name in NAMES})
        return command(options, **given)

    for add in reversed(OPTIONS):
        add(wrapper)
    return wrapper


def address_of(options: ConnectionOptions) -> Address:
    """Return the address of the broker: from the URL, or from host, port and kind of connection."""
    tls = options.tls or options.cafile is not None or options.cert is not None
    if options.url is None:
        if options.insecure and not tls:
            raise Refusal("--insecure needs TLS: add --cafile FILE or --tls")
        return Address.of(options.host or "127.0.0.1", options.port, websocket=options.ws, tls=tls)
    if options.host is not None or options.port is not None:
        raise Refusal("--url contains host and port: omit -h and -p")
    address = parse_url(options.url)
    if (tls or options.insecure) and not address.tls:
        raise Refusal("the TLS options need --url mqtts://... or wss://...")
    if options.ws and not address.websocket:
        raise Refusal("--ws needs --url ws://... or wss://...")
    return address


def client_id_of(options: ConnectionOptions, program: str, v5: bool) -> str:
    """Return the client id, or "" if the broker assigns one, which 3.1 cannot do and 3.1.1 need not."""
    if options.client_id is not None and options.id_prefix is not None:
        raise Refusal("-i is the client id and -I is its prefix: give only one of them")
    if options.id_prefix is not None:
        return text_bytes("-I", f"{options.id_prefix}{os.getpid()}").decode()
    if options.client_id:
        return text_bytes("-i", options.client_id).decode()
    if options.persistent:
        raise Refusal("-c resumes the session of a client id: give the client id with -i")
    # At most 23 characters: MQTT 3.1 allows no more.
    return "" if v5 else f"folkmoot-{program}-{secrets.token_hex(4)}"


def session_expiry_of(options: ConnectionOptions, v5: bool, properties: dict[str, Properties]) -> int:
    """Return the session expiry in seconds, and add it to the properties of CONNECT (version 5)."""
    always = SESSION_NEVER_ENDS if options.persistent else 0
    if not v5:
        if options.session_expiry is not None:
            raise Refusal("-x needs version 5: omit -V or -x")
        return always
    connect = properties.get("connect")
    given = getattr(connect, "SessionExpiryInterval", None)
    if options.session_expiry is None:
        seconds = always if given is None else int(given)
    elif given is not None:
        raise Refusal("-x and -D connect session-expiry-interval set the same property: give only one of them")
    else:
        seconds = parse_expiry(options.session_expiry)
    if given is None and seconds:
        connect = properties.setdefault("connect", new_properties(PacketTypes.CONNECT))
        connect.SessionExpiryInterval = seconds
    return seconds


def parse_expiry(text: str) -> int:
    """Return the seconds of -x: a whole number, or -1 for a session that never expires."""
    if text in ("-1", "∞", "never"):
        return SESSION_NEVER_ENDS
    if not text.isascii() or not text.isdigit() or int(text) > SESSION_NEVER_ENDS:
        raise Refusal(f"-x {text}: give a number of seconds up to {SESSION_NEVER_ENDS}, or -1 for no end")
    return int(text)


def credentials_of(
    options: ConnectionOptions, address: Address, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Return user name and password, from options or URL; the password also from a file or the environment."""
    if options.username is not None and address.username is not None:
        raise Refusal("-u and --url both contain a user name: give only one of them")
    username = options.username if options.username is not None else address.username
    ways = {"-P": options.password, "--password-file": options.password_file, "--url": address.password}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise Refusal(f"the password is given with {' and '.join(given)}: give it once")
    password = options.password if options.password is not None else address.password
    if options.password_file is not None:
        password = read_password(options.password_file)
    if password is not None and username is None:
        raise Refusal("a password needs a user name: give -u USER")
    if password is None and username is not None:
        password = environment.get(PASSWORD_VARIABLE)
    for name, text in (("-u", username), ("the password", password)):
        text_bytes(name, text or "")
    return username, password


def read_password(file: Path) -> str:
    """Return the first line of `file`; raises Refusal if the file cannot be read or the line is empty."""
    try:
        with file.open(encoding="utf-8") as lines:
            password = lines.readline().rstrip("\r\n")
    except OSError as error:
        raise Refusal(f"--password-file {file}: {error.strerror}; name a file that can be read") from None
    except UnicodeDecodeError:
        raise Refusal(f"--password-file {file}: it is not UTF-8 text") from None
    if not password:
        raise Refusal(f"--password-file {file}: the first line is empty, but must be the password")
    return password


def will_of(options: ConnectionOptions, properties: Properties | None) -> Will | None:
    """Return the will, or None without will options."""
    if options.will_topic is None:
        if options.will_payload or options.will_qos or options.will_retain or properties is not None:
            raise Refusal("a will needs a topic: give --will-topic TOPIC")
        return None
    topic = text_bytes("--will-topic", options.will_topic)
    if fault := check_topic(topic, LEVELS_MAX):
        raise Refusal(f"--will-topic {options.will_topic}: {fault}")
    payload = options.will_payload.encode("utf-8", "surrogateescape")
    if len(payload) > 65_535:
        raise Refusal(f"--will-payload: {len(payload)} bytes exceed the limit of MQTT, 65535")
    return Will(options.will_topic, payload, options.will_qos, options.will_retain, properties)


def tls_of(options: ConnectionOptions) -> ssl.SSLContext:
    """Return the TLS context; raises Refusal for a file that is missing or invalid."""
    if options.key is not None and options.cert is None:
        raise Refusal("--key needs a certificate: add --cert FILE")
    for name, file in (("--cafile", options.cafile), ("--cert", options.cert), ("--key", options.key)):
        if file is not None and not os.access(file, os.R_OK):
            raise Refusal(f"{name} {file}: no such file, or it cannot be read")
    try:
        context = ssl.create_default_context(cafile=None if options.cafile is None else str(options.cafile))
    except ssl.SSLError:
        raise Refusal(f"--cafile {options.cafile}: the file has no certificate in PEM format") from None
    context.check_hostname = not options.insecure
    if options.cert is not None:
        try:
            context.load_cert_chain(options.cert, options.key)
        except ssl.SSLError:
            raise Refusal(
                f"--cert {options.cert}: certificate and private key (--key) do not match, or are not in PEM format"
            ) from None
    return context

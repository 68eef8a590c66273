"""One client connection of `pub` and `sub`: connects, waits, disconnects, and explains failures.

It drives paho-mqtt in the thread of the caller: nothing happens between two turns, so Ctrl-C, a full window or a broken
pipe need no locks. It never decides what is published or printed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from paho.mqtt import MQTTException
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, MQTTMessage, WebsocketConnectionError
from paho.mqtt.client import Client as PahoClient
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from folkmoot.cli.client import Client
from folkmoot.cli.connection import PASSWORD_VARIABLE, Connection
from folkmoot.cli.error import Refusal
from folkmoot.cli.property import new_properties
from folkmoot.mqtt import reason as codes

__all__ = ["TIMED_OUT", "Link", "Lost", "TimedOut", "outcome", "stopping"]

TIMED_OUT: Final = 27  # as mosquitto_sub
CONNECT_S: Final = 10.0
GOODBYE_S: Final = 2.0
READ_BYTES: Final = 65_536
TURN_S: Final = 1.0  # the longest wait, so that keep alive works

# After one of these, reconnecting makes no sense: the broker says so, or another client uses our client id.
FINAL_CODES: Final = (
    codes.PROTOCOL_ERROR,
    codes.MALFORMED_PACKET,
    codes.NOT_AUTHORIZED,
    codes.SESSION_TAKEN_OVER,
    codes.ADMINISTRATIVE_ACTION,
    codes.USE_ANOTHER_SERVER,
    codes.SERVER_MOVED,
)

ADVICE: Final = {
    codes.UNSUPPORTED_PROTOCOL_VERSION: "try -V 311",
    codes.CLIENT_IDENTIFIER_NOT_VALID: "give another client id with -i",
    codes.BAD_USER_NAME_OR_PASSWORD: f"give -u USER, and the password with --password-file or in {PASSWORD_VARIABLE}",
    codes.NOT_AUTHORIZED: f"give -u USER, and the password with --password-file or in {PASSWORD_VARIABLE}",
    codes.BAD_AUTHENTICATION_METHOD: "omit -D connect authentication-method",
    codes.SERVER_BUSY: "try again later",
    codes.SERVER_UNAVAILABLE: "try again later",
    codes.SESSION_TAKEN_OVER: "another client uses the same client id: give another one with -i",
    codes.QOS_NOT_SUPPORTED: "give a lower QoS with -q or --will-qos",
    codes.RETAIN_NOT_SUPPORTED: "omit -r and --will-retain",
}

# What paho raises when the bytes that it reads are not MQTT.
NONSENSE: Final = (MQTTException, LookupError, ValueError, TypeError, struct.error)


class TimedOut(Refusal):
    """The timeout of -W has expired."""

    def __init__(self, text: str) -> None:
        super().__init__(text, TIMED_OUT)


class Lost(Refusal):
    """The connection was lost, or refused with `code` (-1 if the broker sent none)."""

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text, 1)
        self.code = code

    @property
    def for_good(self) -> bool:
        """Whether reconnecting makes no sense."""
        return self.code in FINAL_CODES


class Link:
    """A client of the broker of `connection`.

    `on_message(message)`, `on_publish(number, code, properties)`, `on_suback(number, codes, properties)` and
    `on_unsuback(...)` are called within `turn`, which lets their exceptions pass. After `open`, `granted` has the
    properties of CONNACK, and `session_present` its flag.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.deadline = None if connection.timeout_s is None else time.monotonic() + connection.timeout_s
        self.granted: Properties | None = None
        self.session_present = False
        self.on_message: Callable[[MQTTMessage], None] = ignore
        self.on_publish: Callable[[int, int, Properties | None], None] = ignore
        self.on_suback: Callable[[int, list[int], Properties | None], None] = ignore
        self.on_unsuback: Callable[[int, list[int], Properties | None], None] = ignore
        self.end: Lost | None = None
        self.client = self.build()

    def build(self) -> Client:
        """Return the paho client with everything that must be set before it connects."""
        wanted = self.connection
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=wanted.client_id,
            clean_session=None if wanted.v5 else wanted.clean,
            protocol=wanted.version,
            transport="websockets" if wanted.address.websocket else "tcp",
            reconnect_on_failure=False,
            # A message counts as received only when it is printed.
            manual_ack=True,
        )
        client.connect_timeout = self.patience(CONNECT_S)
        client.max_inflight_messages = 0  # the publisher keeps to its own window
        client.ws_set_options(wanted.ws_path)
        if wanted.tls is not None:
            client.tls_set_context(wanted.tls)
        if wanted.username is not None:
            client.username_pw_set(wanted.username, wanted.password)
        if wanted.will is not None:
            will = wanted.will
            client.will_set(will.topic, will.payload, will.qos, will.retain, will.properties)
        if wanted.debug:
            client.on_log = say
        client.on_connect = self.answered
        client.on_disconnect = self.ended
        client.on_message = lambda _client, _data, message: self.on_message(message)
        client.on_publish = lambda _c, _d, number, code, properties: self.on_publish(
            number, code.value, client.pubrecs.pop(number, properties)
        )
        client.on_subscribe = lambda _c, _d, number, found, properties: self.on_suback(
            number, [code.value for code in found], properties
        )
        client.on_unsubscribe = lambda _c, _d, number, found, properties: self.on_unsuback(
            number, [code.value for code in found], properties
        )
        return client

    def open(self, again: bool = False) -> None:
        """Connect, or reconnect (`again`) and resend what is not acknowledged; wait for CONNACK. Raises Lost, TimedOut.

        A reconnect with version 5 keeps the session, if there is one: paho calls this "clean start on the first only".
        """
        wanted, self.granted, self.end = self.connection, None, None
        try:
            if again:
                self.client.reconnect()
            else:
                clean = MQTT_CLEAN_START_FIRST_ONLY if wanted.clean or not wanted.v5 else False
                self.client.connect(
                    wanted.address.host,
                    wanted.address.port,
                    wanted.keepalive_s,
                    bind_address=wanted.bind,
                    clean_start=clean,
                    properties=wanted.properties.get("connect"),
                )
        except (OSError, UnicodeError) as error:
            self.check_time(" while connecting")
            raise Lost(why_not(error, wanted)) from None
        until = time.monotonic() + CONNECT_S
        while self.granted is None:
            if time.monotonic() >= until:
                raise Lost(
                    f"{wanted.address} accepted the connection, but did not answer within {CONNECT_S:g} s: "
                    "is it an MQTT broker?"
                )
            self.turn(until - time.monotonic())

    def turn(self, wait_s: float = TURN_S, also: Sequence[int] = ()) -> bool:
        """Wait at most `wait_s` seconds for the broker or for one of the files `also`; send and receive once.

        Returns whether one of `also` is readable. Raises Lost and TimedOut.
        """
        self.check_time()
        sock: Any = self.client.socket()
        if sock is None:
            raise self.end or self.lost()
        # TLS may hold bytes that select does not see.
        pending = hasattr(sock, "pending") and sock.pending() > 0
        wait_s = 0.0 if pending else min(self.patience(TURN_S), max(wait_s, 0.0))
        writing = [sock] if self.client.want_write() else []
        readable, writable, _ = select.select([sock, *also], writing, [], wait_s)
        try:
            if pending or sock in readable:
                self.client.loop_read()
            if sock in writable:
                self.client.loop_write()
            self.client.loop_misc()
        except NONSENSE as error:
            raise Lost(
                f"{self.connection.address} sent something that is not MQTT "
                f"({type(error).__name__}: {error}): is it an MQTT broker?"
            ) from error
        if self.client.socket() is None:
            raise self.end or self.lost()
        return any(file in readable for file in also)

    def close(self) -> None:
        """Send DISCONNECT, so that the broker publishes no will; never raises, takes at most two seconds."""
        with suppress(OSError, Refusal, *NONSENSE):
            self.deadline = None
            properties = self.connection.properties.get("disconnect") if self.connection.v5 else None
            until = time.monotonic() + GOODBYE_S
            if self.client.is_connected():
                self.client.on_socket_close = drain
                self.client.disconnect(properties=properties)
            while self.client.socket() is not None and self.client.want_write() and time.monotonic() < until:
                self.turn(0.1)

    def settle(self) -> None:
        """Complete the QoS 2 messages that are half received, and no others; never raises, takes at most two seconds.

        This client owns them already: the next client of the session will not get them again.
        """
        self.client.stopped_reading = True
        self.deadline = None
        until = time.monotonic() + GOODBYE_S
        with suppress(OSError, Refusal):
            while self.client.half_received and time.monotonic() < until:
                self.turn(0.1)

    def granted_value(self, name: str, default: int) -> int:
        """Return a number from the properties of CONNACK; `default` if the broker did not send it."""
        return int(getattr(self.granted, name, default))

    def patience(self, most_s: float) -> float:
        """Return `most_s`, or the rest of the timeout of -W if that is less."""
        left = most_s if self.deadline is None else self.deadline - time.monotonic()
        return max(min(most_s, left), 0.001)

    def check_time(self, what: str = "") -> None:
        """Raise TimedOut if the timeout of -W has expired."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise TimedOut(f"timed out{what} after the {self.connection.timeout_s:g} s of -W")

    def answered(
        self, _client: PahoClient, _data: Any, flags: Any, code: ReasonCode, properties: Properties | None
    ) -> None:
        """Handle CONNACK."""
        if code.value >= 0x80:
            advice = advise(code.value, properties)
            self.end = Lost(
                f"{self.connection.address} refused the connection: {outcome(code.value, properties)}{advice}",
                code.value,
            )
            return
        self.session_present = flags.session_present
        self.granted = properties if properties is not None else new_properties(PacketTypes.CONNACK)

    def ended(
        self, _client: PahoClient, _data: Any, flags: Any, code: ReasonCode, properties: Properties | None
    ) -> None:
        """Handle the end of the connection, with or without a DISCONNECT."""
        if self.end is not None:
            return
        if flags.is_disconnect_packet_from_server:
            text = f"{self.connection.address} ended the connection: {outcome(code.value, properties)}"
            self.end = Lost(text + advise(code.value, properties), code.value)
        else:
            self.end = self.lost(code.value)

    def lost(self, code: int = -1) -> Lost:
        """Return the error for a connection that ended without DISCONNECT; `code` is what paho makes of it."""
        address = self.connection.address
        if code == codes.KEEP_ALIVE_TIMEOUT:
            return Lost(f"{address} did not answer a ping in {self.connection.keepalive_s} s: the connection is lost")
        if code == codes.PROTOCOL_ERROR:
            version = self.connection.version.name[5:]
            return Lost(
                f"{address} sent something that is not MQTT {version}: try another -V, or is it not an MQTT broker?"
            )
        if self.granted is None:
            tls = "" if self.connection.tls is not None else "TLS (--cafile), "
            return Lost(
                f"{address} closed the connection without an answer: "
                f"does it require {tls}another version (-V), or is it not an MQTT broker?"
            )
        return Lost(f"the connection to {address} is lost")


def ignore(*_arguments: object) -> None:
    """Do nothing."""


def drain(_client: PahoClient, _data: Any, sock: Any) -> None:
    """Read until the broker closes the connection; paho calls this before it closes the socket.

    Closing a socket with unread bytes resets the connection, and the broker may lose what it has not read yet: our last
    acknowledgements, and the DISCONNECT that prevents the will.
    """
    until = time.monotonic() + GOODBYE_S
    # Below TLS and WebSocket: the content no longer matters.
    with suppress(OSError), socket.socket(fileno=os.dup(sock.fileno())) as raw:
        raw.shutdown(socket.SHUT_WR)
        while (left := until - time.monotonic()) > 0:
            raw.settimeout(left)
            if not raw.recv(READ_BYTES):
                return


def say(_client: PahoClient, _data: Any, _level: int, text: str) -> None:
    """Print a debug line (-d)."""
    print(text, file=sys.stderr)


def outcome(code: int, properties: Properties | None) -> str:
    """Return a reason code as `0x87 Not authorized`, with the reason string if the broker sent one."""
    text = f"0x{code:02X} {codes.name(code)}"
    given = getattr(properties, "ReasonString", None)
    return f"{text} ({given})" if given else text


def advise(code: int, properties: Properties | None) -> str:
    """Return the advice for a refused or ended connection, as `: do this`; empty if there is none."""
    server = getattr(properties, "ServerReference", None)
    if server:
        return f": connect to {server}"
    return f": {ADVICE[code]}" if code in ADVICE else ""


def why_not(error: Exception, connection: Connection) -> str:
    """Return the error text for a connection that could not be made."""
    address, host = connection.address, connection.address.host
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens at {address}: start a node (folkmoot serve), or give the right -h and -p"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"the host {host!r} is unknown: check -h"
    if isinstance(error, ssl.SSLCertVerificationError):
        named = "hostname" in error.verify_message.lower() or "ip address" in error.verify_message.lower()
        advice = "connect by the name in it, or give --insecure" if named else "give its CA with --cafile FILE"
        return f"the certificate of {address} is not accepted ({error.verify_message}): {advice}"
    if isinstance(error, ssl.SSLError):
        return f"TLS with {address} failed ({error.reason or error}): is it the port for TLS, does it require --cert?"
    if isinstance(error, WebsocketConnectionError):
        return f"{address} has no MQTT over WebSocket at {connection.ws_path}: check the port and --ws-path"
    if isinstance(error, TimeoutError):
        return f"{address} does not answer: check -h and -p, and any firewall in between"
    if isinstance(error, ConnectionError):
        return (
            f"{address} closed the connection at once: does it require TLS (--cafile, mqtts://), or is it another port?"
        )
    return f"no connection to {address}: {error}"


@contextmanager
def stopping() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, with DISCONNECT to the broker; the exit status is 143."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

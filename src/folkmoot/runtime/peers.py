"""Connections to other nodes: a listener of their own, dialling, TLS with certificates on both sides.

Owns sockets. The node (`folkmoot.peer.peers`) decides which connections to make, keep and close. As for clients, a
protocol makes one call into the node per chunk, and output is written once per turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from asyncio import AbstractEventLoop, BaseTransport, Transport
from typing import TYPE_CHECKING, Any, Final, cast

from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.tls import TlsSettings
from folkmoot.config.unit import Address, parse_address
from folkmoot.peer.peer import PeerConnection
from folkmoot.peer.switch import HANDSHAKES_MAX, LINKS_MAX
from folkmoot.runtime.acceptor import Accepted, Acceptor, Reception
from folkmoot.runtime.drain import GONE, close_in_order, reset
from folkmoot.runtime.gate import Arrival, Gate
from folkmoot.runtime.listener import Say, report_failure
from folkmoot.runtime.loop import LARGE_BYTES, Carrier, Turns
from folkmoot.runtime.tcp import listen, peer_info, set_keepalive
from folkmoot.runtime.tls import Certificates, fill, reason_of, tls_options

if TYPE_CHECKING:
    from folkmoot.node import Effects

__all__ = ["TLS_HANDSHAKES_MAX", "PeerNetwork", "PeerProtocol", "client_context"]

# Time limit of a connection attempt. A new attempt sends its SYN at once, so that a node is reached soon after its
# network has recovered; the system itself would double its pause each time.
DIAL_S: Final = 2.0
# How long a connection may take to close. Nothing is lost when it is aborted: the link sends it again.
LINGER_S: Final = 1.0
HANDSHAKE_S: Final = 5.0
# TLS handshakes of accepted connections at once. Beyond it the oldest one makes room: see `folkmoot.runtime.gate`.
TLS_HANDSHAKES_MAX: Final = 64
# What is in a transport or unsent in the kernel delays the control, which overtakes only what a link still has
# (`folkmoot.peer.link`): so both are short.
WRITE_BYTES_HIGH: Final = 128 << 10
WRITE_BYTES_LOW: Final = 32 << 10
KERNEL_BYTES: Final = 128 << 10  # not sent yet; what is sent and not acknowledged does not count


class PeerProtocol(Accepted, asyncio.Protocol):
    """One connection to another node: dialled to `address`, or accepted, with its entry in the gate."""

    __slots__ = ("_address", "_arrival", "_network", "_peer", "_turns")

    def __init__(self, network: PeerNetwork, turns: Turns, address: str, arrival: Arrival | None = None) -> None:
        super().__init__()
        self._network = network
        self._turns = turns
        self._address = address
        self._arrival = arrival
        self._peer: Any = None  # a PeerConnection, once the node knows of it

    def connection_made(self, transport: BaseTransport) -> None:
        """Register the connection with the node, which limits the time and the number of handshakes from now on."""
        self.made = True
        made = cast("Transport", transport)
        if self._arrival is not None:
            self._network.gate.finish(self._arrival)
        try:
            why = self._begin(made)
        except Exception as error:  # noqa: BLE001 - whatever it is, other connections go on
            why = f"{type(error).__name__}: {error}"
            if not self._turns.spoiled(made, self._address or "unknown", error):
                self.left()
        if self._address and self._peer is None and not self._turns.halted:
            self._turns.ask(self._turns.node.dial_failed, self._address, why, False)

    def _begin(self, made: Transport) -> str:
        """Make the connection known to the node; return why it is not accepted, if it is not."""
        if self._turns.halted:
            made.abort()
            return ""
        made.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        _limit_unsent(made)
        address = self._address or peer_info(made, "tcp", None).address
        if why := self._network.outdated(made):
            if not self._address:  # else the node says it
                self._network.failed(address, OSError(why))
            reset(made)
            return why
        peer = self._turns.ask(self._turns.node.peer_connected, made, address, bool(self._address))
        if peer is not None:
            self._network.open[peer.id] = made
            self._peer = peer
        return ""

    def data_received(self, data: bytes) -> None:
        """Pass a chunk to the node."""
        turns = self._turns
        if not turns.halted and self._peer is not None:
            began_s = time.perf_counter()
            turns.ask(turns.node.peer_received, self._peer, data)
            turns.slices.handled_s += time.perf_counter() - began_s
            if len(data) >= LARGE_BYTES and not turns.halted:
                turns.took_from_peer(self._peer.address, self._peer.handle, len(data))

    def pause_writing(self) -> None:
        """The peer reads more slowly than the node sends."""
        self._set_writable(False)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._set_writable(True)

    def _set_writable(self, flag: bool) -> None:
        if not self._turns.halted and self._peer is not None:
            self._turns.ask(self._turns.node.peer_writable, self._peer, flag)

    def connection_lost(self, error: Exception | None) -> None:
        """Report the loss to the node."""
        self.left()
        if self._peer is not None:
            self._network.open.pop(self._peer.id, None)
            self._peer.handle = GONE  # output of this turn may still be on its way to it
            if not self._turns.halted:
                why = str(error) if error is not None else "closed by the peer"
                self._turns.ask(self._turns.node.peer_lost, self._peer, why)

    def left(self) -> None:
        """Its socket is closed: tell the gate; idempotent."""
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            self._network.gate.finish(arrival)
            self._network.gate.leave()


class PeerNetwork(Carrier, Reception):
    """All connections to other nodes, and their listener.

    The constructor binds, so that a wrong address or certificate is reported at once (ListenError, TlsError); `start`
    accepts and dials.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        assert settings.listen is not None, "without it there is no cluster"
        self.settings = settings
        self.open: dict[int, Transport] = {}
        self._certificates: Certificates | None = None
        self._client_context: ssl.SSLContext | None = None
        if settings.tls is not None:
            self._certificates = Certificates(settings.tls.for_listener())
            self._client_context = client_context(self._certificates.settings)
        self._socket: socket.socket | None = listen(settings.listen.host, settings.listen.port)
        self.address = Address(settings.listen.host, self._socket.getsockname()[1])
        # The node refuses peers beyond its own limits; here TLS handshakes are limited, and sockets being closed.
        self.gate = Gate(HANDSHAKES_MAX + LINKS_MAX, TLS_HANDSHAKES_MAX, time.monotonic, TLS_HANDSHAKES_MAX)
        self._acceptor: Acceptor | None = None
        self._turns: Turns | None = None
        self._dials: set[asyncio.Task[None]] = set()

    @property
    def advertised(self) -> str:
        """The address that other nodes connect to."""
        return self.settings.peer_address(self.address.port)

    def start(self, turns: Turns, say: Say) -> None:
        """Begin to accept peers, and to dial those that the node requests."""
        assert self._socket is not None, "a network starts once"
        self._turns = turns
        self._say = say
        self._acceptor = Acceptor(self._socket, self.gate, self, turns.loop, turns.slices)
        self._socket = None  # the acceptor's now
        self._acceptor.start()
        turns.carrier = self

    def protocol(self, arrival: Arrival) -> Accepted:
        """Return the protocol of an accepted connection."""
        assert self._turns is not None, "nothing is accepted before `start`"
        return PeerProtocol(self, self._turns, "", arrival)

    def options(self) -> dict[str, Any]:
        """Return the options of TLS, if there is any."""
        return tls_options(self._certificates, HANDSHAKE_S, LINGER_S)

    def refused(self, address: str) -> None:
        """Say that there is no room for a connection."""
        self._say("warning", "peer_refused", address=address, reason="too many connections that do not finish TLS")

    def paused(self, error: OSError) -> None:
        """Say why no connection is accepted for a while."""
        self._say("warning", "accept_paused", address=str(self.address), reason=reason_of(error))

    def failed(self, address: str, error: Exception) -> None:
        """Say why a connection could not be made."""
        assert self._turns is not None, "nothing is accepted before `start`"
        report_failure(self._turns, self._say, address, error)

    def carry(self, effects: Effects) -> None:
        """Carry out the effects of a turn on peers: output first, because it may hold the reason of a close."""
        for peer in effects.peer_outputs:
            data = peer.take_output()
            handle = cast("Transport", peer.handle)
            try:
                if not handle.is_closing():
                    handle.write(data)
            except Exception as error:  # noqa: BLE001 - whatever it is, other connections go on
                self._broken(peer, error)
        for peer in effects.peer_closes:
            try:
                self._close(peer)
            except Exception as error:  # noqa: BLE001 - as above
                self._broken(peer, error)
        for address in effects.dials:
            assert self._turns is not None
            task = self._turns.loop.create_task(self._dial(self._turns, address))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)

    def _close(self, peer: PeerConnection) -> None:
        handle = cast("Transport", peer.handle)
        if not peer.outgoing and not peer.peer_nonce:
            reset(handle)  # a stranger, which was told nothing that it could lose
        elif peer.id in self.open and not handle.is_closing():
            peer.handle = close_in_order(handle) or handle
            assert self._turns is not None
            self._turns.loop.call_later(LINGER_S, self._abort, peer)

    def _broken(self, peer: PeerConnection, error: Exception) -> None:
        """End a connection because of an unexpected error."""
        turns = self._turns
        assert turns is not None, "there are no connections before `start`"
        if peer.id in self.open and not turns.spoiled(peer.handle, peer.address, error):
            del self.open[peer.id]
            peer.handle = GONE
            turns.ask(turns.node.peer_lost, peer, "an unexpected error, see connection_error in the log")

    def _abort(self, peer: PeerConnection) -> None:
        if peer.id in self.open:
            try:
                reset(self.open[peer.id])
            except Exception as error:  # noqa: BLE001 - as in `carry`
                self._broken(peer, error)

    async def _dial(self, turns: Turns, address: str) -> None:
        refused = False
        try:
            async with asyncio.timeout(DIAL_S):
                sock = await connect(turns.loop, parse_address(address))
            await self._introduce(turns, sock, address)
            return
        except ConnectionRefusedError:
            refused = True
            why = "connection refused"
        except TimeoutError:
            why = f"no answer within {DIAL_S:g} s"
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = reason_of(error)
        except Exception as error:  # noqa: BLE001 - as in `carry`
            turns.node.counters.connection_errors += 1
            turns.complain(address, error)
            why = f"{type(error).__name__}: {error}"
        if not turns.halted:
            turns.ask(turns.node.dial_failed, address, why, refused)

    async def _introduce(self, turns: Turns, sock: socket.socket, address: str) -> None:
        """Register a connected socket with the node, after the TLS handshake if there is one."""
        options: dict[str, Any] = {}
        if self._client_context is not None:
            options = {
                "ssl": self._client_context,
                "server_hostname": parse_address(address).host,
                "ssl_handshake_timeout": HANDSHAKE_S,
                "ssl_shutdown_timeout": LINGER_S,
            }
        try:
            await turns.loop.create_connection(lambda: PeerProtocol(self, turns, address), sock=sock, **options)
        except BaseException:
            sock.close()
            raise

    @property
    def certificates(self) -> Certificates | None:
        """The certificates of this node; None without TLS between nodes."""
        return self._certificates

    def replace(self, tls: TlsSettings, context: ssl.SSLContext, dialling: ssl.SSLContext) -> bool:
        """Accept and dial with other contexts; return whether nodes must be judged: some may not be accepted now."""
        assert self._certificates is not None, "only with TLS between nodes"
        self._client_context = dialling
        return self._certificates.replace(tls, context)

    def outdated(self, handle: Transport) -> str:
        """Return why a connection is not accepted whose handshake began before the certificates were read again."""
        secured = handle.get_extra_info("ssl_object")
        if self._certificates is None or secured.context in (self._certificates.context, self._client_context):
            return ""
        return self._certificates.refuses(secured)

    def judge(self) -> None:
        """End the connections to nodes whose certificates are not accepted any more; their links go on over others.

        One that cannot be judged ends, too.
        """
        assert self._certificates is not None, "only with TLS between nodes"
        assert self._turns is not None, "there are no connections before `start`"
        for handle in list(self.open.values()):
            try:
                why = self._certificates.refuses(handle.get_extra_info("ssl_object"))
            except Exception as error:  # noqa: BLE001 - as in `carry`
                self._turns.spoiled(handle, "another node", error)
                continue
            if why:
                reset(handle)

    def close(self) -> None:
        """Close all connections and stop accepting; idempotent."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for task in self._dials:
            task.cancel()
        for handle in self.open.values():
            with contextlib.suppress(Exception):  # the process ends
                if not handle.is_closing():
                    handle.close()


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for outgoing connections, with the node's own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The CA signs nodes of this cluster only, and a node may move: its name or address would prove nothing more.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    fill(context, settings)
    return context


async def connect(loop: AbstractEventLoop, address: Address) -> socket.socket:
    """Return a socket connected to one of the addresses of a name.

    Raises ConnectionRefusedError only if all of them refuse, which proves that no process listens; otherwise OSError.
    """
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    worst: OSError | None = None
    for family, kind, protocol, _name, place in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            set_keepalive(sock)
            await loop.sock_connect(sock, place)
            return sock
        except OSError as error:
            sock.close()
            if worst is None or isinstance(worst, ConnectionRefusedError):
                worst = error
        except BaseException:
            sock.close()
            raise
    raise worst or OSError(f"{address.host} has no address")


def _limit_unsent(transport: Transport) -> None:
    """Have the kernel take no more than it can send soon, where the platform can do that (Linux, macOS)."""
    sock = transport.get_extra_info("socket")
    if sock is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BYTES)

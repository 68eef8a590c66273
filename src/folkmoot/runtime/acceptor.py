"""Accepting connections: a few per iteration of the loop, none that the gate refuses, and a pause without descriptors.

Owns a listening socket, and each accepted one until its protocol has it. uvloop's own servers accept all that wait at
once, and make a protocol and a transport of each before anything can refuse it: a crowd could so take the descriptors
that the store needs, if only for an instant. Here a refused connection is closed before anything is made of it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, Task, TimerHandle
from functools import partial
from typing import Any, Final

from folkmoot.runtime.gate import Arrival, Gate
from folkmoot.runtime.intake import Intake, accept_tls
from folkmoot.runtime.slice import Slices

__all__ = ["ACCEPTS_MAX", "PAUSE_S", "Accepted", "Acceptor", "Reception", "name_of"]

# Per iteration of the loop: what came before is served meanwhile.
ACCEPTS_MAX: Final = 32
# Without descriptors or memory for another socket. Connections wait in the queue of the system.
PAUSE_S: Final = 1.0
SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def name_of(address: tuple[Any, ...]) -> str:
    """Return the address of a socket as "HOST:PORT"; an IPv6 address has four parts, and brackets."""
    return f"[{address[0]}]:{address[1]}" if len(address) == 4 else f"{address[0]}:{address[1]}"


class Accepted(asyncio.BaseProtocol):
    """The protocol of an accepted connection."""

    __slots__ = ("intake", "made")

    def __init__(self) -> None:
        self.intake: Intake | None = None  # of a connection with TLS
        self.made = False  # `connection_made` was called, and `connection_lost` will be

    def left(self) -> None:
        """Its socket is closed: tell the gate; idempotent."""
        raise NotImplementedError


class Reception(ABC):
    """What is done with connections."""

    @abstractmethod
    def protocol(self, arrival: Arrival) -> Accepted:
        """Return the protocol of a connection that the gate has let in."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return the options of `loop.connect_accepted_socket`, such as TLS."""

    @abstractmethod
    def refused(self, address: str) -> None:
        """A connection was closed because there is no room for it."""

    @abstractmethod
    def paused(self, error: OSError) -> None:
        """The system cannot accept another connection now; it is tried again after PAUSE_S."""

    @abstractmethod
    def failed(self, address: str, error: Exception) -> None:
        """A connection ended before it was made, such as in its TLS handshake."""


class Acceptor:
    """Accepts the connections of one listening socket, which it closes in the end."""

    def __init__(
        self, sock: socket.socket, gate: Gate, reception: Reception, loop: AbstractEventLoop, slices: Slices
    ) -> None:
        self._socket = sock
        self._gate = gate
        self._reception = reception
        self._loop = loop
        self._slices = slices
        self._making: dict[Task[None], Accepted] = {}
        self._resume: TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        """Accept from now on."""
        self._resume = None
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in SHORT:
                    self._pause(error)
                    return
                continue  # accept(2): of a connection that has ended meanwhile, or of the network
            name = name_of(address)
            arrival = self._gate.enter(address[0])
            if arrival is None:
                sock.close()
                self._reception.refused(name)
            else:
                self._take(sock, arrival, name)

    def _take(self, sock: socket.socket, arrival: Arrival, name: str) -> None:
        """Make a connection of an accepted socket. Until its transport exists, cancelling the task ends it."""
        sock.setblocking(False)
        protocol = self._reception.protocol(arrival)
        task = self._loop.create_task(self._make(sock, protocol))
        arrival.cut = task.cancel
        self._making[task] = protocol
        task.add_done_callback(partial(self._made, sock, protocol, name))

    async def _make(self, sock: socket.socket, protocol: Accepted) -> None:
        options = self._reception.options()
        if "ssl" in options:
            await accept_tls(self._loop, sock, protocol, self._slices, options)
        else:
            await self._loop.connect_accepted_socket(lambda: protocol, sock)

    def _made(self, sock: socket.socket, protocol: Accepted, name: str, task: Task[None]) -> None:
        del self._making[task]
        if not protocol.made:
            sock.close()
            protocol.left()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._reception.failed(name, error)

    def _pause(self, error: OSError) -> None:
        """Stop for a while: the socket stays readable, and the loop would do nothing else."""
        self._loop.remove_reader(self._socket.fileno())
        self._resume = self._loop.call_later(PAUSE_S, self.start)
        self._reception.paused(error)

    def close(self) -> None:
        """Stop accepting, and end connections that are being made; idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for task, protocol in list(self._making.items()):
            if not protocol.made:
                task.cancel()

"""A TLS client that begins a handshake and finishes it later."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType

__all__ = ["SlowHandshake"]


class SlowHandshake:
    """A connection on which the client's hello is sent, and the answer read; the certificate follows in `finish`."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                data = self.outgoing.read()
                if data:
                    self.socket.sendall(data)
                self.incoming.write(self.socket.recv(65_536))
            else:
                break  # with TLS 1.3 the server has sent all that the client needs; its own part is in `outgoing`

    def __enter__(self) -> SlowHandshake:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self.socket.close()

    def finish(self, data: bytes = b"") -> int:
        """Send the rest of the handshake and data; return how many bytes the server answers; 0: it closes."""
        if data:
            self.tls.write(data)
        self.socket.sendall(self.outgoing.read())
        while True:
            try:
                return len(self.tls.read(65_536))
            except ssl.SSLWantReadError:
                try:
                    received = self.socket.recv(65_536)
                except ConnectionResetError:
                    return 0
                if not received:
                    return 0
                self.incoming.write(received)
            except ssl.SSLZeroReturnError:
                return 0

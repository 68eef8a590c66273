"""A TLS client that changes its keys without end, which the module `ssl` cannot do: OpenSSL itself, by `ctypes`."""

from __future__ import annotations

import _ssl  # noqa: F401 - loads the library of this process
import ctypes
import socket
from ctypes import c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any

__all__ = ["KeyUpdates", "find_openssl"]

REQUESTED = 1  # SSL_KEY_UPDATE_REQUESTED


def find_openssl() -> Any:
    """The libraries of the module `ssl`, or None where they cannot be found."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = [{line.split()[-1] for line in maps.splitlines() if name in line} for name in ("/libssl", "/libcrypto")]
    if not all(found):
        return None
    tls, crypto = (ctypes.CDLL(paths.pop()) for paths in found)
    for library, name, result, arguments in (
        (tls, "TLS_client_method", c_void_p, []),
        (tls, "SSL_CTX_new", c_void_p, [c_void_p]),
        (tls, "SSL_new", c_void_p, [c_void_p]),
        (tls, "SSL_set_bio", None, [c_void_p, c_void_p, c_void_p]),
        (tls, "SSL_set_connect_state", None, [c_void_p]),
        (tls, "SSL_do_handshake", c_int, [c_void_p]),
        (tls, "SSL_write", c_int, [c_void_p, c_char_p, c_int]),
        (tls, "SSL_key_update", c_int, [c_void_p, c_int]),
        (crypto, "BIO_new", c_void_p, [c_void_p]),
        (crypto, "BIO_s_mem", c_void_p, []),
        (crypto, "BIO_read", c_int, [c_void_p, c_char_p, c_int]),
        (crypto, "BIO_write", c_int, [c_void_p, c_char_p, c_int]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return tls, crypto


class KeyUpdates:
    """A connection, and bytes that change its keys `count` times."""

    def __init__(self, libraries: Any, place: tuple[str, int], hello: bytes, count: int) -> None:
        tls, self._crypto = libraries
        self.socket = socket.create_connection(place, timeout=20)
        session = tls.SSL_new(tls.SSL_CTX_new(tls.TLS_client_method()))
        received, self._sent = (self._crypto.BIO_new(self._crypto.BIO_s_mem()) for _ in range(2))
        tls.SSL_set_bio(session, received, self._sent)
        tls.SSL_set_connect_state(session)
        while tls.SSL_do_handshake(session) != 1:
            self.socket.sendall(self._taken())
            data = self.socket.recv(65_536)
            assert data, "the handshake has failed"
            self._crypto.BIO_write(received, data, len(data))
        tls.SSL_write(session, hello, len(hello))
        self.socket.sendall(self._taken())
        for _ in range(count):
            assert tls.SSL_key_update(session, REQUESTED) == 1
            tls.SSL_do_handshake(session)
        self.data = self._taken()
        self.socket.setblocking(False)

    def _taken(self) -> bytes:
        data = b""
        buffer = ctypes.create_string_buffer(65_536)
        while (size := self._crypto.BIO_read(self._sent, buffer, 65_536)) > 0:
            data += buffer.raw[:size]
        return data

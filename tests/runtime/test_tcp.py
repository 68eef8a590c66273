from __future__ import annotations

import socket

import pytest

from folkmoot.runtime.tcp import KEEPALIVE_IDLE_S, ListenError, listen


def test_accepted_sockets_inherit_what_was_set_once() -> None:
    """No option is set per connection: it would cost system calls, and a socket object for each."""
    with listen("127.0.0.1", 0) as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S
            assert client.recv(1) == b""


def test_a_name_is_an_ip_4_address_if_it_has_one() -> None:
    with listen("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_port_is_shared_only_when_asked() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            ListenError, match=f"127.0.0.1:{port}: Address already in use; stop the process that uses it"
        ):
            listen("127.0.0.1", port)
    with listen("127.0.0.1", 0, reuse_port=True) as first:
        port = first.getsockname()[1]
        listen("127.0.0.1", port, reuse_port=True).close()


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on no\.such\.invalid:1883"):
        listen("no.such.invalid", 1883)

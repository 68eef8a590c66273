"""What a node says of a client to the leader of its partition."""

from __future__ import annotations

import msgspec
import pytest

from folkmoot.proxy.relay import HostedClient, HostRequest, decode_attached, decode_host

CLIENTS = [
    HostedClient(1, 2, "c", "u", None, "tcp", "10.0.0.1:1", False, b"\x10", True, [1, 2], 5, False, 3, 4),
    HostedClient(2, 2, "d", "", "CN", "ws", "", True, b"", False, [], 6, True, 0, 0),
]


@pytest.mark.parametrize("client", CLIENTS, ids=["persistent", "transient"])
def test_a_request_is_read_as_it_was_written(client: HostedClient) -> None:
    request = HostRequest(7, client)
    assert decode_host(msgspec.msgpack.encode(request)) == request


def test_a_list_of_clients_is_read_as_it_was_written() -> None:
    assert decode_attached(msgspec.msgpack.encode((9, [2, 3], CLIENTS))) == (9, [2, 3], CLIENTS)


@pytest.mark.parametrize(
    "body", [b"", b"\x00", msgspec.msgpack.encode((7, CLIENTS[0][:-1]))], ids=["no", "other", "short"]
)
def test_what_is_malformed_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        decode_host(body)
    with pytest.raises(ValueError, match=r"[a-z]"):
        decode_attached(body)

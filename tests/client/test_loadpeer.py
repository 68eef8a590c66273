"""The handshake of load clients."""

from __future__ import annotations

import pytest

from folkmoot.client.loadloop import Faults, LoadLoop
from folkmoot.client.loadpeer import connack_limit
from folkmoot.client.loadrun import Visitor
from folkmoot.client.workload import Target
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import Connack, Properties


def visitor(version: int = 5) -> Visitor:
    return Visitor(LoadLoop(), Target("127.0.0.1", 1), version, b"", Faults())


def properties() -> Properties:
    """Every property that a CONNACK may have, none of them an easy one for the next."""
    found = Properties()
    found.session_expiry = 0x21212121
    found.max_qos = 1
    found.retain_available = 1
    found.packet_max = 0x21000000
    found.assigned_client_id = "!!!" * 60
    found.topic_alias_max = 0x2121
    found.reason = "!"
    found.user_properties = [("!", "!!"), ("", "!")]
    found.wildcard_available = found.subscription_ids_available = found.shared_available = 0
    found.server_keep_alive = 0x2121
    found.response_info = "!"
    found.server_reference = "!!"
    found.auth_method = "!"
    found.auth_data = b"!\x21"
    return found


@pytest.mark.parametrize("limit", [1, 20, 65_535])
def test_the_receive_maximum_is_found_among_all_properties(limit: int) -> None:
    wanted = properties()
    wanted.receive_max = limit
    assert connack_limit(encode(Connack(False, 0, wanted), 5)) == limit


def test_without_a_receive_maximum_it_is_the_largest() -> None:
    assert connack_limit(encode(Connack(False, 0, properties()), 5)) == 65_535
    assert connack_limit(encode(Connack(False, 0), 5)) == 65_535


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("bytes_each", [1, 2, 100])
def test_a_connack_in_pieces_is_accepted(version: int, bytes_each: int) -> None:
    peer = visitor(version)
    data = encode(Connack(True, 0), version)
    for at in range(0, len(data), bytes_each):
        assert not peer.accepted
        peer.receive(data[at : at + bytes_each])
    assert peer.accepted
    assert peer.session_present
    assert not peer.faults.counts


@pytest.mark.parametrize(
    ("data", "kind"), [(b"\x20\x03\x00\x87\x00", "refused"), (b"\xd0\x00", "protocol"), (b"\x20\x01\x00", "protocol")]
)
def test_anything_but_a_good_connack_ends_the_run(data: bytes, kind: str) -> None:
    peer = visitor()
    peer.receive(data)
    assert (peer.accepted, peer.closed, peer.faults.fatal) == (False, True, True)
    assert peer.faults.counts == {kind: 1}

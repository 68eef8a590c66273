from __future__ import annotations

import pytest

from folkmoot.runtime.address import host_of, limit_key


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.7:1883", "10.0.0.7"), ("[2001:db8::1]:1883", "2001:db8::1"), ("unknown", "unknown"), ("::1", "::1")],
)
def test_the_host_of_an_address(address: str, host: str) -> None:
    assert host_of(address) == host


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_a_network_of_one_machine_is_one_address(host: str, key: str) -> None:
    assert limit_key(host) == key

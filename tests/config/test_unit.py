"""Durations, sizes and addresses: what people write, and that it reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.config.unit import (
    NEVER_US,
    Address,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_size,
)

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("250ms", SECOND // 4),
        ("10s", 10 * SECOND),
        ("1.5s", SECOND * 3 // 2),
        ("1h30m", 5400 * SECOND),
        ("1h 30m", 5400 * SECOND),
        ("7d", 7 * 24 * 3600 * SECOND),
        ("0", 0),
        (0, 0),
        ("never", 0xFFFF_FFFF * SECOND),
    ],
)
def test_a_duration_is_microseconds(text: object, duration_us: int) -> None:
    assert parse_duration(text) == duration_us


@pytest.mark.parametrize("text", ["", "10", 10, "s", "-1s", "10 weeks", "1s2", True, None, 1.5])
def test_a_duration_without_a_unit_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a number with a unit"):
        parse_duration(text)


@given(st.integers(0, NEVER_US))
def test_a_duration_reads_back(duration_us: int) -> None:
    assert parse_duration(format_duration(duration_us)) == duration_us


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [(0, 0), (17, 17), ("17", 17), ("10GB", 10 * 1000**3), ("64KiB", 65_536), ("512kB", 512_000), ("512KB", 512_000)],
)
def test_a_size_is_bytes(text: object, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1", "10 gigabytes", 1.5, True, None])
def test_other_sizes_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a number of bytes"):
        parse_size(text)


@given(st.integers(0, 2**62))
def test_a_size_reads_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:1883", "127.0.0.1", 1883),
        ("broker.example:0", "broker.example", 0),
        ("[::1]:8883", "::1", 8883),
        (":1883", "0.0.0.0", 1883),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)
    assert parse_address(str(parse_address(text))) == Address(host, port)


@pytest.mark.parametrize(
    "text", ["", "1883", "localhost", "host:65536", "host:-1", "::1:1883", "host:x", 1883, "host:"]
)
def test_other_addresses_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("localhost.example", False),
    ],
)
def test_loopback_is_this_machine_only(host: str, loopback: bool) -> None:
    assert Address(host, 1883).is_loopback() is loopback

from __future__ import annotations

import pytest

from folkmoot.runtime.origin import HostRules, OriginRules, host_name, netloc_of


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("LocalHost:8080", "localhost"),
        ("broker.example.com.", "broker.example.com"),
        ("[::1]:8080", "[::1]"),
        ("a b", ""),
        ("evil.example/@localhost", ""),
        ("localhost:80:80", ""),
    ],
)
def test_the_name_in_a_header_host(host: str, name: str) -> None:
    assert host_name(host) == name


def test_the_place_of_an_origin() -> None:
    assert netloc_of("HTTPS://Example.com:8443") == "example.com:8443"
    assert netloc_of("null") == netloc_of("https://example.com/path") == netloc_of("example.com") == ""


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "n1.localhost", "[::1]:8080", "127.1.2.3", "10.0.0.5:8080"]
)
def test_own_names_are_allowed(host: str) -> None:
    assert HostRules("10.0.0.5", []).allow(host)


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.6", "", "localhost.evil.example", "evil.example#localhost"])
def test_other_names_are_not(host: str) -> None:
    assert not HostRules("10.0.0.5", []).allow(host)


def test_names_can_be_added() -> None:
    assert HostRules("127.0.0.1", ["Broker.example.com"]).allow("broker.example.com:8080")
    assert not HostRules("127.0.0.1", ["broker.example.com"]).allow("x.broker.example.com")
    assert HostRules("127.0.0.1", ["*"]).allow("anything.example")


def test_a_client_that_is_no_browser_is_not_restricted() -> None:
    assert OriginRules().refusal([], ["broker.example.com"]) == ""


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:3000", "localhost:8083"),
        ("http://127.0.0.1", "127.0.0.1:8083"),
        ("http://[::1]:80", "[::1]:8083"),
        ("https://192.0.2.7", "192.0.2.7:8083"),
    ],
)
def test_pages_of_the_same_host_are_allowed(origin: str, host: str) -> None:
    assert OriginRules().refusal([origin], [host]) == ""


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://evil.example", "localhost:8083"),
        ("https://localhost.evil.example", "localhost:8083"),
        ("null", "localhost:8083"),
        ("null", "null"),
        ("", "localhost"),
        ("http://localhost@evil.example", "localhost"),
        ("http://127.0.0.1", "localhost"),
    ],
)
@pytest.mark.parametrize("protected", [False, True])
def test_foreign_pages_are_refused(origin: str, host: str, protected: bool) -> None:
    assert OriginRules(["https://ok.example"], protected).refusal([origin], [host])


def test_a_name_is_no_proof_where_clients_need_not_authenticate() -> None:
    """DNS rebinding: the page's own name leads here."""
    assert "listeners.origins" in OriginRules().refusal(["http://evil.example:8083"], ["evil.example:8083"])
    assert OriginRules(protected=True).refusal(["https://mqtt.example"], ["mqtt.example"]) == ""


def test_listed_origins_are_allowed() -> None:
    rules = OriginRules(["https://*.example.com", "http://[::1]:*", "null"])
    for origin in ("https://a.example.com", "HTTPS://a.b.Example.com", "http://[::1]:3000", "null"):
        assert rules.refusal([origin], ["localhost"]) == "", origin
    for origin in (
        "https://example.com",
        "http://a.example.com",
        "https://a.example.com:81",
        "https://a.example.com.evil",
    ):
        assert rules.refusal([origin], ["localhost"]), origin
    assert OriginRules(["*"]).refusal(["https://evil.example"], ["localhost"]) == ""


def test_two_origins_are_none() -> None:
    assert OriginRules(["*"]).refusal(["https://a.example", "https://b.example"], ["localhost"])

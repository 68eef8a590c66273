"""The nearest node."""

from __future__ import annotations

import pytest

from folkmoot.client import near
from folkmoot.client.near import is_here, nearest

URLS = ["http://far-1:8080", "http://near:8080", "http://far-2:8080"]


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("localhost", True), ("192.0.2.1", False), ("no-such-name.invalid", False)]
)
def test_a_socket_can_only_be_bound_to_an_address_of_this_machine(host: str, here: bool) -> None:
    assert is_here(host) is here


def test_a_node_on_this_machine_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "is_here", lambda host: host == "near")
    assert {nearest(URLS, number) for number in range(9)} == {"http://near:8080"}


def test_else_each_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "is_here", lambda _host: False)
    assert [nearest(URLS, number) for number in range(4)] == [*URLS, URLS[0]]

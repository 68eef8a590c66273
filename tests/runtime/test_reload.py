"""What a reload does with errors that nobody foresaw: they are told, and the node goes on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.settings import Settings
from folkmoot.config.unit import Address
from folkmoot.runtime import reload as module
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.peers import PeerNetwork
from folkmoot.runtime.reload import Prepared, Reload
from folkmoot.session.connection import PeerInfo
from tests.runtime.fake import FakeNode, FakeTransport


class Node(FakeNode):
    """A node with connections that can be revoked."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []
        self.fault: Exception | None = None

    def revoke(self, connection: Any, why: str, now: int) -> None:
        self.calls.append(("revoke", connection.id, why))

    def reload(self, access: object, now: int) -> None:
        self.calls.append(("reload",))
        if self.fault is not None:
            raise self.fault


class Serving:
    """What a reload uses of a serving node, with what it said."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.node = Node()
        node: Any = self.node
        self.turns = Turns(node, loop, Clock())
        self.turns.complain = lambda what, error: self.said.append(("connection_error", f"{what}: {error}"))
        self.turns.fail = self.fail
        self.settings = Settings()
        self.peers: Any = None
        self.audit = None
        self.said: list[tuple[str, str]] = []
        self.recorded: list[str] = []
        self.failed: Exception | None = None
        self.complain = self.turns.complain
        node.connections = lambda: node.made

    def fail(self, error: Exception) -> None:
        self.failed = error
        self.turns.halt()

    def say(self, _level: str, kind: str, **fields: object) -> None:
        self.said.append((kind, str(fields.get("reason", ""))))

    def record(self, kind: str, **_fields: object) -> None:
        self.recorded.append(kind)

    def connect(self, handle: object) -> Any:
        node: Any = self.node
        connection = FakeNode.connect(_Connections(node), handle, PeerInfo("tls", "192.0.2.1:1", None), 0)
        self.turns.open.add(connection.id)
        return connection


class _Connections(FakeNode):
    """`FakeNode.connect` with the list of connections elsewhere."""

    def __init__(self, node: Node) -> None:
        self.calls = node.calls
        self.connections = node.made


class Reloading(Reload):
    """A reload that has read everything."""

    def _prepare(self) -> Prepared:
        serving: Any = self._serving
        prepared = Prepared(serving.settings, None, self._files.read(serving.settings, {}))
        prepared.keys = self._keys
        return prepared


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


def reload_of(serving: Serving, kind: type[Reload] = Reload) -> Reload:
    anything: Any = serving
    return kind(anything, [], None, None, None)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> dict[object, str | Exception]:
    """By handle: what the look at its certificate results in."""
    found: dict[object, str | Exception] = {}

    def refusal(handle: object) -> str:
        result = found.get(handle, "")
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(module, "refusal", refusal)
    return found


@in_a_loop
async def test_a_connection_that_cannot_be_judged_ends_and_the_others_are_judged(
    refusals: dict[object, str | Exception],
) -> None:
    serving = Serving(asyncio.get_running_loop())
    transports = [FakeTransport() for _ in range(3)]
    connections = [serving.connect(transport) for transport in transports]
    refusals[transports[0]] = IndexError("a certificate that nobody foresaw")
    refusals[transports[1]] = "the certificate was revoked"
    await reload_of(serving)._judge_certificates()
    assert serving.failed is None
    assert [transport.is_closing() for transport in transports] == [True, False, False]
    assert serving.node.named("revoke") == [(connections[1].id, "the certificate was revoked")]
    assert serving.said == [("connection_error", "192.0.2.1:1: a certificate that nobody foresaw")]
    assert serving.node.counters.connection_errors == 1


@in_a_loop
async def test_a_link_that_cannot_be_judged_ends_and_the_others_are_judged() -> None:
    serving = Serving(asyncio.get_running_loop())
    network = PeerNetwork(ClusterSettings(listen=Address("127.0.0.1", 0)))
    try:
        network._turns = serving.turns

        class Judge:
            def refuses(self, secured: str) -> str:
                if secured == "strange":
                    raise IndexError(secured)
                return "revoked" if secured == "bad" else ""

        judge: Any = Judge()
        network._certificates = judge
        links: list[Any] = [FakeTransport({"ssl_object": name}) for name in ("strange", "bad", "good")]
        network.open = dict(enumerate(links))
        network.judge()
        assert [link.is_closing() for link in links] == [True, True, False]
        assert serving.said == [("connection_error", "another node: strange")]
    finally:
        network.close()


@in_a_loop
async def test_an_unexpected_error_of_a_reload_is_told_and_the_node_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = Serving(asyncio.get_running_loop())
    reload = reload_of(serving, Reloading)

    def strange(_settings: object) -> bool:
        raise KeyError("strange")

    with monkeypatch.context() as patch:
        patch.setattr(module, "allows_anonymous", strange)
        reload.begin()
        await until_over(reload)
    assert serving.failed is None
    assert [kind for kind, _ in serving.said] == ["connection_error", "reload_failed"]
    assert "only a part is in force" in serving.said[1][1]
    assert serving.recorded == ["reload_failed"]
    reload.begin()
    await until_over(reload)
    assert serving.said[-1][0] == "reloaded"
    assert serving.recorded == ["reload_failed", "reloaded"]


@in_a_loop
async def test_a_fault_of_the_node_at_a_reload_ends_it() -> None:
    serving = Serving(asyncio.get_running_loop())
    serving.node.fault = AssertionError("half a turn")
    reload = reload_of(serving, Reloading)
    reload.begin()
    await until_over(reload)
    assert serving.failed is serving.node.fault
    assert serving.said == []


async def until_over(reload: Reload) -> None:
    task = reload._task
    assert task is not None
    await asyncio.wait([task])
    called = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(called.set_result, None)  # behind the callbacks of the task
    await called

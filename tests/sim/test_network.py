"""The simulated network: order and content are kept within a connection; a broken one loses both directions."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.network import HIGH_WATER_BYTES, Caller, Link, Network, Server
from folkmoot.sim.trace import Trace
from folkmoot.sim.world import World


class End(Caller, Server):
    """Both ends: what each has heard."""

    def __init__(self) -> None:
        self.at_caller = b""
        self.at_server = b""
        self.chunks = 0
        self.closed = 0
        self.lost: list[str] = []
        self.marks: list[bool] = []
        self.welcome = True

    def link_data(self, link: Link, data: bytes) -> None:
        self.at_caller += data
        self.chunks += 1

    def link_closed(self, link: Link) -> None:
        self.closed += 1

    def link_opened(self, link: Link) -> bool:
        link.server_open = self.welcome
        return self.welcome

    def link_lost(self, link: Link, reason: str) -> None:
        link.server_open = False
        self.lost.append(reason)

    def link_writable(self, link: Link, writable: bool) -> None:
        self.marks.append(writable)


class ServerEnd(Server):
    """The server's half of an End, because both halves hear `link_data`."""

    def __init__(self, end: End) -> None:
        self.end = end

    def link_opened(self, link: Link) -> bool:
        return self.end.link_opened(link)

    def link_data(self, link: Link, data: bytes) -> None:
        self.end.at_server += data

    def link_lost(self, link: Link, reason: str) -> None:
        self.end.link_lost(link, reason)

    def link_writable(self, link: Link, writable: bool) -> None:
        self.end.link_writable(link, writable)


class Fixture:
    def __init__(self, split: int = 0, seed: int = 1) -> None:
        self.world = World(seed, Trace())
        self.end = End()
        self.network = Network(self.world, Rng(seed), 500, split)
        self.link = self.network.dial(self.end, ServerEnd(self.end))

    def wait(self) -> None:
        self.world.run(self.world.now + SECOND)


@pytest.mark.parametrize("split", [0, 1, 2])
def test_bytes_arrive_in_order_however_they_are_split(split: int) -> None:
    fixture = Fixture(split)
    sent = b""
    for number in range(200):
        part = b"%d," % number
        sent += part
        fixture.link.from_caller(part)
    fixture.wait()
    for number in range(200):
        fixture.link.from_server(b"%d," % number)
    fixture.wait()
    assert fixture.end.at_server == sent
    assert fixture.end.at_caller == sent
    assert fixture.link.read_bytes == fixture.link.sent_bytes == len(sent)


def test_a_split_chunk_comes_in_pieces() -> None:
    fixture = Fixture(split=2)
    fixture.wait()
    for _ in range(50):
        fixture.link.from_server(b"x" * 100)
    fixture.wait()
    assert fixture.end.chunks > 50


def test_a_close_arrives_after_what_was_sent() -> None:
    fixture = Fixture()
    fixture.link.from_caller(b"goodbye")
    fixture.link.close_by_caller()
    fixture.wait()
    assert fixture.end.at_server == b"goodbye"
    assert fixture.end.lost == ["closed by the client"]


def test_a_reset_loses_what_is_in_flight_in_both_directions() -> None:
    fixture = Fixture()
    fixture.wait()
    fixture.link.from_caller(b"a")
    fixture.link.from_server(b"b")
    fixture.link.reset(10, 20)
    fixture.wait()
    assert (fixture.end.at_server, fixture.end.at_caller) == (b"", b"")
    assert (fixture.end.closed, fixture.end.lost) == (1, ["reset"])


def test_a_half_open_connection_tells_nobody_until_it_is_healed() -> None:
    fixture = Fixture()
    fixture.wait()
    fixture.link.reset(NEVER, NEVER)
    fixture.link.from_caller(b"a")
    fixture.wait()
    assert (fixture.end.closed, fixture.end.lost, fixture.end.at_server) == (0, [], b"")
    fixture.network.heal()
    assert (fixture.end.closed, fixture.end.lost) == (1, ["reset"])


def test_a_refused_connection_closes() -> None:
    fixture = Fixture()
    fixture.end.welcome = False
    fixture.wait()
    assert fixture.end.closed == 1


def test_a_clogged_way_holds_everything_back_and_pushes_back() -> None:
    fixture = Fixture()
    fixture.wait()
    fixture.link.to_client.block(clogged=True)
    fixture.link.from_server(b"x" * (HIGH_WATER_BYTES + 1))
    fixture.wait()
    assert fixture.end.at_caller == b""
    assert fixture.end.marks == [False]
    fixture.link.to_client.block(clogged=False)
    fixture.wait()
    assert len(fixture.end.at_caller) == HIGH_WATER_BYTES + 1
    assert fixture.end.marks == [False, True]


def test_a_paused_reader_gets_nothing_until_it_resumes() -> None:
    fixture = Fixture()
    fixture.wait()
    fixture.link.to_node.block(paused=True)
    fixture.link.from_caller(b"a")
    fixture.wait()
    assert fixture.end.at_server == b""
    fixture.link.to_node.block(paused=False)
    fixture.wait()
    assert fixture.end.at_server == b"a"

"""The checker's client against a server that says what a test tells it to: what it notes, repeats and forgets."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.jepsen import wire
from tests.jepsen.client import Client
from tests.jepsen.history import Recorder, payload_of

WAIT_S = 10.0
CONNECT = wire.connect("c", clean=False, expiry_s=0xFFFF_FFFF, keep_alive_s=10)
ABSENT, PRESENT, REFUSED = bytes([0x20, 3, 0, 0, 0]), bytes([0x20, 3, 1, 0, 0]), bytes([0x20, 3, 0, 0x88, 0])

ONE = wire.publish("j/1", payload_of("one"), qos=1, retain=False, dup=False, packet_id=1)
TWO = wire.publish("j/1", payload_of("two"), qos=2, retain=False, dup=False, packet_id=2)
ONE_AGAIN = wire.publish("j/1", payload_of("one"), qos=1, retain=False, dup=True, packet_id=1)


class Peer:
    """One connection at the server's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def expect(self, *packets: bytes) -> None:
        for packet in packets:
            assert await asyncio.wait_for(self.reader.readexactly(len(packet)), WAIT_S) == packet

    def say(self, *packets: bytes) -> None:
        self.writer.write(b"".join(packets))


def play(*scenes: Callable[[Client, Peer, asyncio.Future[bool]], Awaitable[None]]) -> list[dict[str, Any]]:
    """Let the client connect once per scene, which has both ends; what was noted."""
    noted = io.StringIO()

    async def live() -> None:
        peers: asyncio.Queue[Peer] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.put_nowait(Peer(reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        client = Client(Recorder(noted, 0), "c", {"n1": server.sockets[0].getsockname()})
        for scene in scenes:
            connecting = asyncio.ensure_future(client.connect("n1"))
            peer = await asyncio.wait_for(peers.get(), WAIT_S)
            await peer.expect(CONNECT)
            await scene(client, peer, connecting)
            client.drop("next")
            peer.writer.close()
        server.close()

    asyncio.run(live())
    return [json.loads(line) for line in noted.getvalue().splitlines()]


async def sends_two(client: Client, peer: Peer, connecting: asyncio.Future[bool]) -> None:
    """One message without an answer, and one that was received but not completed."""
    peer.say(ABSENT)
    assert await connecting
    client.publish("j/1", "one", 1)
    client.publish("j/1", "two", 2)
    await peer.expect(ONE, TWO)
    peer.say(wire.acknowledge(wire.PUBREC, 2))
    await peer.expect(wire.acknowledge(wire.PUBREL, 2))


def test_a_session_that_is_present_goes_on() -> None:
    async def repeats(client: Client, peer: Peer, connecting: asyncio.Future[bool]) -> None:
        peer.say(PRESENT)
        assert await connecting
        await peer.expect(ONE_AGAIN, wire.acknowledge(wire.PUBREL, 2))
        peer.say(wire.acknowledge(wire.PUBACK, 1), wire.acknowledge(wire.PUBCOMP, 2))
        peer.say(wire.publish("j/1", b"", qos=1, retain=False, dup=False, packet_id=7))  # read after the others
        await peer.expect(wire.acknowledge(wire.PUBACK, 7))
        assert client.inflight == {}

    events = play(sends_two, repeats)
    sent = [(event["value"], event["dup"]) for event in events if event["e"] == "publish" and event["d"] == "out"]
    assert sent == [("one", False), ("two", False), ("one", True)]
    assert [event["k"] for event in events if event["e"] == "pubcomp"] == [max(event["k"] for event in events)]


def test_a_session_that_is_gone_is_forgotten() -> None:
    async def nothing_again(client: Client, peer: Peer, connecting: asyncio.Future[bool]) -> None:
        peer.say(ABSENT)
        assert await connecting
        assert client.inflight == {}
        client.ping()
        await peer.expect(wire.pingreq())

    play(sends_two, nothing_again)


def test_what_comes_is_acknowledged_and_noted() -> None:
    message = wire.publish("j/1", payload_of("two"), qos=2, retain=False, dup=False, packet_id=9)

    async def receives(client: Client, peer: Peer, connecting: asyncio.Future[bool]) -> None:
        peer.say(ABSENT)
        assert await connecting
        peer.say(message)
        await peer.expect(wire.acknowledge(wire.PUBREC, 9))
        peer.say(message)
        await peer.expect(wire.acknowledge(wire.PUBREC, 9))
        peer.say(wire.acknowledge(wire.PUBREL, 9))
        await peer.expect(wire.acknowledge(wire.PUBCOMP, 9))

    events = play(receives)
    assert [event["value"] for event in events if event["e"] == "publish"] == ["two", "two"], "all that came"
    assert [event["e"] for event in events if event.get("id") == 9 and event["e"].startswith("pubrel")] == ["pubrel"]


def test_a_refusal_and_the_end_of_a_connection_are_noted() -> None:
    async def refused(client: Client, peer: Peer, connecting: asyncio.Future[bool]) -> None:
        peer.say(REFUSED)
        assert not await connecting

    async def ends(client: Client, peer: Peer, connecting: asyncio.Future[bool]) -> None:
        peer.say(ABSENT)
        assert await connecting
        subscribing = asyncio.ensure_future(client.subscribe([("j/#", 1)]))
        await peer.expect(wire.subscribe(1, [("j/#", 1)]))
        peer.say(bytes([0xE0, 1, 0x8B]))
        peer.writer.close()
        assert not await subscribing
        assert not client.connected

    events = play(refused, ends)
    assert [event["code"] for event in events if event["e"] == "connack"] == [0x88, 0]
    assert [event["code"] for event in events if event["e"] == "disconnect"] == [0x8B]
    assert [(event["by"], event["why"]) for event in events if event["e"] == "close"] == [
        ("client", "refused"),
        ("peer", "end"),
    ]

"""kill -9 of the leader while it publishes transactions: the messages of each come once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.client.transactions import PartWriter, TransactionClient
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.kind import PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import V5, Ack, Publish
from tests.integration.cluster_rig import Rig
from tests.integration.serving import RawClient, await_true

pytestmark = pytest.mark.slow

NUMBERS = 4
MESSAGES = 3_000  # of each
DEATHS = 2
QUIET_S = 2.0


def stage_and_commit(client: TransactionClient, number: int) -> None:
    parts = []
    for half in range(2):
        part = PartWriter(client, "app", number, f"p{half}")
        for n in range(half * MESSAGES // 2, (half + 1) * MESSAGES // 2):
            part.add(encode(Publish(b"t/%d" % (n % 3), b"%d %d" % (number, n), 2, False, False, 1), V5))
        part.flush()
        parts.append((part.part, part.chunks))
    client.commit("app", number, parts)


def received(rig: Rig, client_id: str) -> list[bytes]:
    """All that waits for a session, by whole QoS 2 flows."""
    found: list[bytes] = []
    with RawClient(rig.running()[0]) as reader:
        reader.connect(client_id)
        while (packet := reader.receive(QUIET_S)) is not None:
            if isinstance(packet, Publish):
                assert not packet.dup
                found.append(packet.payload)
                reader.send(Ack(PUBREC, packet.packet_id))
            elif isinstance(packet, Ack) and packet.kind == PUBREL:
                reader.send(Ack(PUBCOMP, packet.packet_id))
    return found


def test_kill_9_of_the_leader_while_it_publishes(tmp_path: Path) -> None:
    with Rig(tmp_path, 3) as rig:
        for client_id in ("s1", "s2", "s3"):
            with RawClient(rig.running()[0]) as reader:
                reader.connect(client_id)
                reader.subscribe(b"t/#")
        urls = [f"127.0.0.1:{rig.places[name]['admin'][1]}" for name in rig.names]
        client = TransactionClient(urls, rig.token, patience_s=30)
        for death in range(DEATHS):
            for number in range(death * NUMBERS, (death + 1) * NUMBERS):
                stage_and_commit(client, number)
            app = client.describe("app")
            assert app["last"] == (death + 1) * NUMBERS - 1
            leader = next(node.answer("/api/v1/partitions")[app["partition"]]["leader"] for node in rig.running())
            rig.kill(leader)
            await_true(lambda: client.describe("app")["waiting_messages"] == 0, 30)
            for number in range(death * NUMBERS, (death + 1) * NUMBERS):
                assert client.commit("app", number, [("p0", 1)])  # a driver that was not told asks again
            rig.start(leader)
            rig.await_whole()
        client.close()
        rig.await_rest()  # a session that moves is sent on with DUP what it may have been sent
        for client_id in ("s1", "s2", "s3"):
            found = received(rig, client_id)
            expected = [b"%d %d" % (number, n) for number in range(DEATHS * NUMBERS) for n in range(MESSAGES)]
            assert len(found) == len(expected)
            assert found == expected

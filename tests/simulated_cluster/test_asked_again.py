"""A client that was admitted, and not answered, when its session got another leader: it asks that one again."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, Connack, Connect
from tests.harness.peer import EVER, Peer, properties
from tests.simulated_cluster.test_handed_over import Stage


class Unanswered(Stage):
    """A message waits for a client, which asks for it, and for no session afterwards. The heir confirms nothing."""

    def __init__(self) -> None:
        super().__init__()
        cluster = self.cluster
        cluster.hand_log_to(self.heir)
        client = cluster[self.third].client(self.name)
        client.connect(session_expiry=EVER)
        client.subscribe("t", qos=1)
        client.lose()
        publisher = cluster[self.heir].client("publisher")
        publisher.connect()
        publisher.publish("t", b"m", qos=1)

    def ask(self, at: str) -> Peer:
        """Connect without a clean start, for a session that ends with this connection; no answer comes."""
        self.cluster.held = {(self.heir, self.leader)}
        client = self.cluster[at].client(self.name).open()
        client.send(Connect(V5, self.name, False, 0, properties=properties(session_expiry=0)))
        self.cluster.run()
        assert client.receive() == []
        self.cluster.hand_partition_to(self.partition, self.heir)
        return client


@pytest.mark.parametrize("at", ["third", "leader", "heir"])
def test_a_client_that_gives_up_its_session_with_this_connection_has_it_until_then(at: str) -> None:
    stage = Unanswered()
    client = stage.ask(getattr(stage, at))
    stage.release()
    assert stage.cluster[stage.heir].node._state.leads[stage.partition]
    assert client.expect(Connack).session_present
    assert client.payloads() == [b"m"]
    client.lose()
    stage.cluster.advance(SECOND)
    assert not client.resume().session_present


def test_a_session_that_was_given_up_ends_although_its_client_was_not_answered() -> None:
    stage = Unanswered()
    client = stage.ask(stage.third)
    client.lose()
    stage.release()
    stage.cluster.advance(3 * SECOND)
    assert not client.resume().session_present

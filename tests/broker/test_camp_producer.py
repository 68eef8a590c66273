"""What an idempotent producer sends again counts once, also when the node that it comes to is alone by then."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import Publish
from tests.harness.camp import Camp
from tests.harness.peer import EVER, properties

PRODUCED = properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", "1")])


@pytest.mark.parametrize("group", ["g", "h", "i", "j", "k"])
def test_a_member_of_a_group_gets_it_once(group: str) -> None:
    camp = Camp(2, partitions=16)
    member = camp["n1"].client("member")
    member.connect(session_expiry=EVER)
    member.subscribe(f"$share/{group}/t", qos=1)
    publisher = camp["n1"].client("publisher")
    publisher.connect(session_expiry=EVER)
    publisher.send(Publish(b"t", b"once", 1, False, False, 1, PRODUCED))
    camp.run()
    camp["n2"].kill()
    camp.advance(5 * SECOND)
    publisher.send(Publish(b"t", b"once", 1, False, True, 1, PRODUCED))
    camp.run()
    assert member.payloads() == [b"once"]

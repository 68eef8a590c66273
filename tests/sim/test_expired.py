"""What the checker of deliveries says of a message that comes with DUP after its expiry."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.mqtt.packet import V5, Properties, Publish
from folkmoot.sim.check_delivery import DeliveryChecker
from folkmoot.sim.fact import Life, Sub
from folkmoot.sim.ledger import Ledger
from tests.sim.test_causes import Machines


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    ("case", "violations"),
    [
        ("nobody was there", 1),  # it was published when the connection had ended, and had expired before the next one
        ("full", 1),  # the client had as many messages as it takes, and acknowledged none
        ("connected", 0),  # it may have been sent, and lost with the connection
        ("half-open", 0),  # the node did not know that the connection had ended
        ("full, and not full later", 0),
        ("had it before", 0),
        ("in time", 0),
    ],
)
def test_dup_excuses_what_may_have_been_sent_before(case: str, violations: int, qos: int) -> None:
    machines = Machines()
    trouble: Any = None
    ledger = Ledger(machines.world, machines.hosts, trouble, machines.judge())
    checker = DeliveryChecker(ledger)

    def connect() -> Any:
        link = machines.link(1)
        link.troubled = link.left_full = False
        life = Life("c", V5, link, True, machines.world.now)
        ledger.connecting(life)
        return link

    def end(link: Any, *, full: bool = False) -> None:
        link.cut_us = machines.world.now
        link.ended_us = NEVER if case == "half-open" else machines.world.now
        link.left_full = full

    former = connect()
    record = ledger.begin(ledger.lives["c"][0], 100)
    record.links.append(former)
    record.every.append(Sub(b"t", qos, 0, machines.world.now))
    if case in ("nobody was there", "half-open"):
        machines.wait(SECOND)
        end(former)
        machines.wait(SECOND)
    source: Any = machines.link(3)
    source.troubled = False
    expires = Properties()
    expires.message_expiry = 3
    message = ledger.publish("a", Publish(b"t", b"m", 2, properties=expires), once=True)
    ledger.sent(message, source)
    if case == "had it before":
        record.ever[message.number] = qos
    machines.wait(SECOND)
    if former.cut_us == NEVER:
        end(former, full=case.startswith("full"))
    if case == "full, and not full later":
        end(connect())
    machines.wait((1 if case == "in time" else 60) * SECOND)
    packet = Publish(b"t", b"m", qos, dup=True)
    packet.properties = Properties()
    packet.properties.message_expiry = 1
    last = connect()
    if qos == 2:
        checker.held(record, last, message, packet.dup)
    checker.received(record, last, packet, late=qos == 2)
    assert [one.promise for one in machines.world.violations] == ["expiry"] * violations

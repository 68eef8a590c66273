"""A node was away for long, or two sides have a long past in common: only what is new is merged."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from tests.harness.simulated_cluster import Camp

MERGES = ("branch_merged", "healed", "branch_overwritten", "branch_dropped", "replica_damaged")
ROUNDS = 3  # two views each, more than are remembered of a camp with `EPOCHS`
EPOCHS = 2


def camp_of(epochs: int) -> Camp:
    """Three nodes that remember so few epochs of each partition."""
    camp = Camp(3, partitions=4)
    for site in camp.sites.values():
        site.cluster.history_epochs = epochs
    churn(camp, "first")
    restart(camp, "n2", 1)  # what follows is not of the epoch in which a partition was begun
    reader = camp["n1"].client("reader")
    reader.resume()
    reader.subscribe("t/#", qos=2)
    reader.disconnect()
    publish(camp, *[f"old{number}" for number in range(5)])
    camp.advance(SECOND)
    return camp


def publish(camp: Camp, *payloads: str) -> None:
    publisher = camp["n1"].client("pub")
    publisher.connect()
    for number, payload in enumerate(payloads):
        publisher.publish(f"t/{number}", payload.encode(), qos=2)
    publisher.disconnect()


def restart(camp: Camp, name: str, rounds: int) -> None:
    """Kill a node and start it again, with changes in all partitions each time."""
    for turn in range(rounds):
        camp[name].kill()
        camp.settle()
        churn(camp, f"down{turn}")
        camp[name].revive()
        camp.settle()
        churn(camp, f"up{turn}")


def churn(camp: Camp, word: str) -> None:
    publisher = camp["n1"].client("churner")
    publisher.connect()
    for number in range(16):
        publisher.publish(f"kept/{number}", word.encode(), qos=1, retain=True)
    publisher.disconnect()


def read(camp: Camp) -> list[bytes]:
    reader = camp["n1"].client("reader")
    reader.resume()
    payloads = reader.payloads()
    reader.disconnect()
    camp.advance(SECOND)
    return payloads


def merges(camp: Camp) -> list[str]:
    return [kind for site in camp.sites.values() for kind in site.kinds() if kind in MERGES]


@pytest.mark.parametrize("epochs", [EPOCHS, 16])
def test_a_node_that_was_away_for_many_epochs_only_catches_up(epochs: int) -> None:
    camp = camp_of(epochs)
    restart(camp, "n2", 1)  # n3's view is newer than the last change that it has of some partitions
    ended = camp["n1"].client("ended")
    ended.resume()
    ended.disconnect()
    camp.advance(SECOND)
    camp["n3"].kill()
    camp.settle()
    assert read(camp) == [b"old%d" % number for number in range(5)]
    ended = camp["n1"].client("ended")
    ended.resume()
    ended.disconnect(session_expiry=0)
    restart(camp, "n2", ROUNDS)
    camp["n3"].revive()
    camp.settle(60 * SECOND)
    assert merges(camp) == []
    assert read(camp) == []
    assert camp["n1"].client("ended").resume().session_present is False


def test_what_both_sides_had_long_before_the_split_is_not_taken_for_new() -> None:
    camp = camp_of(EPOCHS)
    restart(camp, "n2", ROUNDS)
    camp.cut("n3", "n1", "n2")
    camp.advance(8 * SECOND)
    there = camp["n3"].client("there")
    there.connect()
    there.publish("t/there", b"there", qos=2)
    assert read(camp) == [b"old%d" % number for number in range(5)]
    camp.heal()
    camp.settle(60 * SECOND)
    assert "branch_merged" in merges(camp)
    assert read(camp) == [b"there"]

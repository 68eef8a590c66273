"""What the oldest turn of this node waits for, for the log of an operator: disks, copies, other nodes."""

from __future__ import annotations

from typing import Final

from folkmoot.broker.broker import Broker
from folkmoot.replica.replication import Replication
from folkmoot.turn.overload import Waits

__all__ = ["TurnWaits"]

_SHOWN: Final = 5  # of the partitions


class TurnWaits(Waits):
    """Asks those that know."""

    def __init__(self, broker: Broker, replication: Replication) -> None:
        self.broker = broker
        self.replication = replication

    def text(self) -> str:
        """Return the nodes and partitions; the first thing for which the oldest turn waits hides those after it."""
        replication = self.replication
        disk, parts = replication.oldest_wait()
        found: list[str] = ["the disk"] if disk else []
        if parts:
            nodes: dict[str, list[int]] = {}
            for partition, seq in parts:
                replica = replication.replicas[partition]
                for node_id in replica.lacking(seq) or [replica.leader]:
                    nodes.setdefault(node_id, []).append(partition)
            found += [f"{node_id or 'nobody'} for {_names(partitions)}" for node_id, partitions in nodes.items()]
        if found:
            return ", ".join(found)
        forward_sender = self.broker.channel.forward_sender
        found += [f"{node_id} for answers" for node_id in forward_sender.unanswered()]
        found += [f"{node_id} for confirmations" for node_id in self.broker.delivery.interest.unconfirmed()]
        parked = forward_sender.parked()
        if parked:
            found.append(f"leaders of {_names(parked)}")
        return ", ".join(found)


def _names(partitions: list[int]) -> str:
    shown = ", ".join([str(partition) for partition in partitions[:_SHOWN]])
    return f"partitions {shown}" + (", ..." if len(partitions) > _SHOWN else "")

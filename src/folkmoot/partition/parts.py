"""The parts of a broker from `partition`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.partition.backlog import Backlog
from folkmoot.partition.body import Bodies
from folkmoot.partition.mark import Marks
from folkmoot.partition.partition import Led
from folkmoot.partition.producer import Producers
from folkmoot.partition.queue import Queue
from folkmoot.partition.retained import Retained
from folkmoot.partition.retained_sweep import RetainedSweep
from folkmoot.turn.parts import TurnParts

__all__ = ["PartitionParts"]


class PartitionParts:
    """The memory of the partitions that this node leads."""

    def __init__(self, led: Led, turn: TurnParts) -> None:
        state, fabric = turn.state, turn.fabric
        self.led = led
        self.marks = Marks(state, led)
        self.bodies = Bodies(state, led)
        self.queue = Queue(state, fabric, turn.commits, Backlog(state, self.bodies))
        self.retained = Retained(state, led, fabric)
        self.retained_sweep = RetainedSweep(state, turn.commits, self.retained)
        self.producers = Producers(state, led, fabric, turn.commits)

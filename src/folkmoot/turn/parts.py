"""The parts of a broker from `turn`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.streams.table import Streams
from folkmoot.turn.barrier import Barrier
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.landing import Landings
from folkmoot.turn.overload import Overload
from folkmoot.turn.receipt import Receipts
from folkmoot.turn.state import State
from folkmoot.turn.throttle import Throttle

__all__ = ["TurnParts"]


class TurnParts:
    """When the changes of a turn are durable and committed, and how much may wait for that."""

    def __init__(self, state: State, fabric: Fabric, streams: Streams) -> None:
        self.state = state
        self.fabric = fabric
        self.streams = streams
        self.receipts = Receipts(state, fabric)
        self.throttle = Throttle(state)
        self.commits = Commits(state, streams, self.receipts, self.throttle)
        self.overload = Overload(state, self.commits)
        self.barrier = Barrier()
        self.landings = Landings(fabric)

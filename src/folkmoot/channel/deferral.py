"""Deferred messages: what is for a partition without a leader waits in the outbox of another one (CORE.md 2.4).

With the policy "available", a message is acknowledged although a partition that must get it is absent: its parts for
absent partitions become one outbox entry of its publisher's *home*, with all copies of that, before anything is
acknowledged. The home is the partition of the client id, so that all that a client publishes waits in one order,
wherever it is connected; if that is absent, too, the message is refused. The node that has the connection writes the
entry itself if it leads the home, or forwards it as a task (DEFER), which is applied once like any other.

When an absent partition has a leader again, its deferred messages go there. What its publishers send now must not
overtake them (A3): until all members have said that nothing deferred for it is left (`leadership.drain`), no message
is taken that concerns it, of clients whose homes may have some.

So many bytes wait per node, in memory and on disk: beyond that, messages are refused again.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.channel.outbox import Outbox
from folkmoot.session.connection import Connection
from folkmoot.store.message import Message
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import DEFER, Task
from folkmoot.turn.state import State

__all__ = ["AWAY", "Deferral"]

AWAY: Final = "its copies are away or damaged, ask the operator"

_NO_HOMES: Final[dict[int, None]] = {}


class Deferral:
    """What this node defers.

    draining: partitions that may get deferred messages first, with the homes that may have some; None: all of them.
    """

    def __init__(self, state: State, fabric: Fabric, forward_sender: ForwardSender, outbox: Outbox) -> None:
        self.state = state
        self.fabric = fabric
        self.forward_sender = forward_sender
        self.outbox = outbox
        self.draining: dict[int, dict[int, None] | None] = {}

    def home_of(self, client_id: str) -> int:
        """Return the partition in whose outbox messages of a client wait."""
        return self.state.partition_of(client_id.encode())

    def is_behind(self, client_id: str, partition: int) -> bool:
        """Whether deferred messages of a client may still be on their way to a partition that has a leader."""
        homes = self.draining.get(partition, _NO_HOMES)
        return homes is None or self.home_of(client_id) in homes

    def obstacle(self, client_id: str) -> str:
        """Return why messages of a client for absent partitions cannot be deferred, "" if they can."""
        if not self.fabric.defers:
            return AWAY
        leader = self.fabric.leaders[self.home_of(client_id)]
        if not leader:
            return "that of the client id has none either, ask the operator"
        if leader == self.fabric.node_id:
            full = not self.outbox.commits.throttle.may_defer()
        else:
            full = self.forward_sender.crowded.get(leader, 0) > self.state.now
        return "as much waits for it as may, ask the operator" if full else ""

    def take(
        self, tasks: dict[int, Task], message: Message, flags: int, client_id: str, connection: Connection | None
    ) -> bool:
        """Defer those of some tasks whose partition has no leader, in this turn; return whether there are any.

        tasks: by partition. Those that are deferred are taken out; that of the home, if it is led elsewhere, is added.
        """
        leaders = self.fabric.leaders
        home = self.home_of(client_id)
        absent = [task for task in tasks.values() if not leaders[task.partition]]
        if not absent or not leaders[home]:
            return False
        for task in absent:
            del tasks[task.partition]
        self.state.counters.publish_deferred += 1
        receipt = self.outbox.commits.receipts.current
        if receipt is not None:
            receipt.partial = True
        if self.state.leads[home]:
            self.outbox.put(home, message, b"", 0, flags, absent, {}, connection)
            return True
        task_of_home = tasks.get(home)
        if task_of_home is None:
            task_of_home = tasks[home] = Task(home, 0)
        task_of_home.bits |= DEFER
        task_of_home.deferred = absent
        return True

    def keep(self, task: Task, message: Message, flags: int) -> None:
        """Write the outbox entry of a forwarded task DEFER: this node leads its partition."""
        self.outbox.put(task.partition, message, b"", 0, flags, task.deferred, {}, is_earlier=True)

    def left_for(self, partition: int) -> int:
        """Return how much is deferred for a partition that has a leader: here, or on its way from here to a home."""
        sender = self.forward_sender
        return sender.due.get(partition, 0) + sender.deferring.get(partition, 0)

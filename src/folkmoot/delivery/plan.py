"""The plan for one message: who gets it beside what is done at once, as tasks of partitions and as nodes.

Publishing and outbox publishing make it of a route, each without what it does at once itself. It is executed by one of
three: forwarded to other nodes (`forward_sender`), put into the outbox of a partition (`outbox`), or delivered here.
"""

from __future__ import annotations

from folkmoot.routing.interest import SharedPlace
from folkmoot.turn.message import CHOOSE, Task

__all__ = ["Plan"]


class Plan:
    """tasks: by partition, in the order in which they were added; nodes: by id, the groups of which a member gets it.

    All transient subscribers of a node in `nodes` get the message; whoever plans for groups alone says so (TO_GROUPS).
    """

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self.nodes: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self.tasks) + len(self.nodes)

    def is_empty(self) -> bool:
        """Whether nobody else gets the message."""
        return not self.tasks and not self.nodes

    def add_task(self, partition: int, bits: int) -> Task:
        """Let a partition do this as well; return its task."""
        task = self.tasks.get(partition)
        if task is None:
            task = Task(partition, bits)
            self.tasks[partition] = task
        else:
            task.bits |= bits
        return task

    def add_node(self, node_id: str) -> list[bytes]:
        """Let the transient subscribers of a node get it; return its groups."""
        return self.nodes.setdefault(node_id, [])

    def add_member(self, chosen: SharedPlace) -> None:
        """Let a member of a group get it at the place whose turn it is: a node, or (without one) a partition."""
        place = chosen.place
        if place.node_id:
            self.add_node(place.node_id).append(chosen.name)
        else:
            self.add_task(place.partition, 0).groups.append(chosen.name)

    def add_choice(self, partition: int, name: bytes) -> None:
        """Let a partition choose the member of a group, wherever it is."""
        self.add_task(partition, CHOOSE).choices.append(name)

    def __repr__(self) -> str:
        return f"Plan(tasks={list(self.tasks.values())!r} nodes={self.nodes!r})"

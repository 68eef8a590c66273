"""The plan for one message: the tasks of partitions, and the nodes, that remain beside what is done at once.

Publishing and outbox publishing make it from a route, each without what it does at once itself. One of three parts
executes it: `forward_sender` sends it to other nodes, `outbox` stores it for them, or it is delivered here.
"""

from __future__ import annotations

from folkmoot.routing.interest import SharedLocation
from folkmoot.turn.message import CHOOSE, Task

__all__ = ["Plan"]


class Plan:
    """tasks: by partition, in the order in which they were added; nodes: by id, the groups of which a member gets it.

    All transient subscribers of a node in `nodes` get the message; a plan for groups alone has the flag TO_GROUPS.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self.nodes: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self.tasks) + len(self.nodes)

    def is_empty(self) -> bool:
        """Whether nothing remains to be done."""
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

    def add_member(self, chosen: SharedLocation) -> None:
        """Let a member of a group get it at the chosen location: a node, or (without one) a partition."""
        location = chosen.location
        if location.node_id:
            self.add_node(location.node_id).append(chosen.name)
        else:
            self.add_task(location.partition, 0).groups.append(chosen.name)

    def add_choice(self, partition: int, name: bytes) -> None:
        """Let a partition choose the member of a group, wherever it is."""
        self.add_task(partition, CHOOSE).choices.append(name)

    def __repr__(self) -> str:
        return f"Plan(tasks={list(self.tasks.values())!r} nodes={self.nodes!r})"

"""The plan for one message: each partition has one task, each node one entry, whoever adds to it how often."""

from __future__ import annotations

from folkmoot.delivery.plan import Plan
from folkmoot.routing.interest import ChunkKey, SharedPlace
from folkmoot.turn.message import CHOOSE, QUEUE, RETAIN, STREAM


def test_a_plan_without_anybody_is_empty() -> None:
    plan = Plan()
    assert plan.is_empty()
    assert len(plan) == 0


def test_what_a_partition_is_to_do_becomes_one_task() -> None:
    plan = Plan()
    plan.add_task(3, QUEUE)
    plan.add_task(1, RETAIN)
    plan.add_task(3, STREAM)
    assert [(task.partition, task.bits) for task in plan.tasks.values()] == [(3, QUEUE | STREAM), (1, RETAIN)]
    assert not plan.is_empty()
    assert len(plan) == 2


def test_a_member_of_a_group_is_at_a_node_or_in_a_partition() -> None:
    plan = Plan()
    plan.add_node("b")
    plan.add_member(SharedPlace(b"$share/g/t", ChunkKey("b", -1)))
    plan.add_member(SharedPlace(b"$share/h/t", ChunkKey("c", -1)))
    plan.add_member(SharedPlace(b"$share/i/t", ChunkKey("", 5)))
    assert plan.nodes == {"b": [b"$share/g/t"], "c": [b"$share/h/t"]}
    task = plan.tasks[5]
    assert (task.bits, task.groups, task.choices) == (0, [b"$share/i/t"], [])
    assert len(plan) == 3


def test_a_partition_that_chooses_a_member_may_store_the_message_too() -> None:
    plan = Plan()
    plan.add_task(2, QUEUE)
    plan.add_choice(2, b"$share/g/t")
    task = plan.tasks[2]
    assert (task.bits, task.groups, task.choices) == (QUEUE | CHOOSE, [], [b"$share/g/t"])

"""Fixtures: boxes, each with a bystander whose work nothing in the test may disturb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.harness.box import Box

__all__ = ["MakeBox", "box", "make", "make_boxes"]

MakeBox = Callable[..., Box]


@contextmanager
def make_boxes(kind: type[Box]) -> Iterator[MakeBox]:
    """Make boxes of a kind, and in the end look after their bystanders."""
    boxes: list[Box] = []

    def make_box(bystander: bool = True, **arguments: object) -> Box:
        made = kind(**arguments)  # type: ignore[arg-type]
        if bystander:
            boxes.append(made)
            peer = made.client("bystander")
            peer.connect()
            peer.subscribe("bystander")
        return made

    yield make_box
    for made in boxes:
        _check_bystander(made)


@pytest.fixture
def make() -> Iterator[MakeBox]:
    """Make boxes with arguments of `Box`; `bystander=False` leaves the bystander out."""
    with make_boxes(Box) as made:
        yield made


@pytest.fixture
def box(make: MakeBox) -> Box:
    """A box with the default limits."""
    return make()


def _check_bystander(box: Box) -> None:
    """The bystander got nothing that is not its own, and is still served (unless all connections broke)."""
    bystander = box.peers[0]
    if bystander.connection is None:
        return
    assert bystander.receive() == []
    bystander.publish("bystander", b"still here")
    assert bystander.messages() == [("bystander", b"still here")]
    bystander.ping()

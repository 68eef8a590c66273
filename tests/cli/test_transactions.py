"""`folkmoot transactions`, as a user runs it, against a node in memory."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
import uvicorn
from starlette.applications import Starlette

from folkmoot.admin.source import NodeHomes, answered
from folkmoot.admin.transactions import transaction_routes
from folkmoot.cli import main
from folkmoot.cli.transactions import age_text
from tests.harness.box import Box
from tests.harness.desk import Desk
from tests.harness.picture import Shown

PARTITIONS = 8
NOBODY = "127.0.0.1:9"


class Served(Shown):
    """Serves the transactions of a box."""

    def __init__(self, box: Box) -> None:
        self.port = 0
        self.box = box
        app = Starlette(routes=transaction_routes(NodeHomes(box.node, self._begin), box.config.limits))
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def _begin(self) -> int:
        asyncio.get_running_loop().call_soon(self._turn)
        return self.box.now

    def _turn(self) -> None:
        self.box.run()
        calls, self.box.calls = self.box.calls, []
        for call in calls:
            answered(call)


def box_with_apps() -> Box:
    box = Box(partitions=PARTITIONS)
    for app, numbers in (("alerts", 3), ("nightly", 1)):
        desk = Desk(box, app, PARTITIONS)
        for number in range(numbers):
            desk.stage(number, "p", 0, "t/x", [b"1", b"2"])
            desk.commit(number, ("p", 1))
    Desk(box, "nightly", PARTITIONS).stage(1, "p", 0, "t/x", [bytes(3000)])
    box.calls.clear()
    return box


def run(served: Served, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["transactions", *words, "--admin", f"{NOBODY},{served.place}"]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def test_apps_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with Served(box_with_apps()) as served:
        lines = [line.split() for line in run(served, capsys).splitlines()]
        found = json.loads(run(served, capsys, "--json"))
    assert lines[0] == ["app", "last", "committed", "published", "waiting", "since", "staged", "newest"]
    assert [(line[0], line[1], line[4], line[5]) for line in lines[1:]] == [
        ("alerts", "2", "6", "0"),
        ("nightly", "0", "2", "0"),
    ]
    assert lines[1][-2:] == ["-", "-"]
    assert lines[2][7:9] == ["3.5", "KiB"]  # 2.9 KiB, and 600 bytes for the chunk
    assert found["complete"]
    assert [app["last"] for app in found["transactions"]] == [2, 0]


def test_none_are_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    with Served(Box(partitions=PARTITIONS)) as served:
        assert run(served, capsys).startswith("no transactions")


def test_an_app_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    with Served(box_with_apps()) as served:
        assert run(served, capsys, "forget", "alerts") == "alerts: forgotten\n"
        assert "alerts" not in run(served, capsys)
        assert "there is no app 'alerts'" in run(served, capsys, "forget", "alerts", status=2)


def test_a_wrong_address_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "--admin", "nowhere"]) == 2
    assert "--admin: 'nowhere' is not an address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ago_s", "text"), [(None, "-"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_ages_are_for_people(ago_s: int | None, text: str) -> None:
    now_us = 10**15
    assert age_text(None if ago_s is None else now_us - ago_s * 1_000_000, now_us) == text

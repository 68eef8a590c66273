"""A picture of a cluster as a test draws it, and a process that shows it over HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Self

import uvicorn
from starlette.applications import Starlette

from folkmoot.admin.cluster import OwnStatus, cluster_routes
from folkmoot.membership.loss import Losses
from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.status.picture import MEMBER, Picture
from folkmoot.status.status import NodeStatus

__all__ = ["Drawn", "Roles", "Shown"]

Roles = list[list[str]]
NOW_US = 1_700_000_000_000_000


class Drawn(Picture):
    """A picture drawn by a test, seen from node a; every partition is open unless it is said to be not."""

    def __init__(
        self, replicas: Roles, learners: Roles | None = None, members: str = "abc", known: str = "abc"
    ) -> None:
        self.roles = replicas
        self.learners = learners or [[] for _ in replicas]
        self.now_state = MEMBER
        self.split_policy = "available"
        self.members = [Member(name, 1, f"{name}:1", name, ACTIVE) for name in members]
        self.known_ids = list(known)
        self.absent: list[Member] = []
        self.owners = {"online": "c"}
        self.closed: set[int] = set()
        self.receipts: list[dict[str, object]] = []
        self.orders: list[tuple[str, str]] = []
        self.losses = Losses()
        self.heard: list[str] = []
        self.there = True
        self.informed = True
        self.is_trunk = True
        self.leader_of_log = "b"
        self.voting: list[str] = []
        self.more_forks = 1024
        self.leased = True
        self.least = 1  # copies that have to be in sync
        self.reasons: dict[str, str] = {}  # why members are away
        self.out = ""  # why this node is out
        self.loads: dict[str, dict[str, int]] = {}

    def node_id(self) -> str:
        return "a"

    def state(self) -> str:
        return self.now_state

    def view(self) -> View | None:
        view = View(77, self.members, known=self.known_ids, absent=self.absent)
        view.losses = self.losses
        view.is_trunk = self.is_trunk
        return view if self.there else None

    def counter(self) -> int:
        return 7

    def controller(self) -> str:
        return self.leader_of_log

    def voters(self) -> list[str]:
        return self.voting

    def lineage(self) -> int:
        return 255

    def forks_left(self) -> int:
        return self.more_forks

    def policy(self) -> str:
        return self.split_policy

    def min_in_sync(self) -> int:
        return self.least

    def has_lease(self) -> bool:
        return self.leased

    def replicas(self) -> int:
        return 3

    def partitions(self) -> int:
        return len(self.roles)

    def replicas_of(self, partition: int) -> list[str]:
        return self.roles[partition]

    def learners_of(self, partition: int) -> list[str]:
        return self.learners[partition]

    def known(self) -> list[str]:
        return self.known_ids

    def software_of(self, member: Member) -> str:
        return f"1.{member.node_id}"

    def load_of(self, node_id: str) -> dict[str, int]:
        return {"clients": ord(node_id), "sessions": 2, "overload": 3, **self.loads.get(node_id, {})}

    def last_heard_us(self, node_id: str) -> int:
        return 5

    def hears(self, node_id: str) -> bool:
        return node_id in self.heard

    def why_away(self, node_id: str) -> str:
        return self.reasons.get(node_id, "")

    def why_out(self) -> str:
        return self.out

    def leads(self, partition: int) -> bool:
        return self.roles[partition][0] == "a" and partition not in self.closed

    def knows_subscribers(self) -> bool:
        return self.informed

    def leader_open(self, partition: int) -> bool:
        return partition not in self.closed

    def sequence(self, partition: int) -> int:
        return 100 + partition

    def figures(self) -> dict[str, int]:
        return {"damaged": 1, "digest_checked": 4, "bytes_left": 10, "bytes_done": 30}

    def owner_of(self, client_id: str) -> str:
        return self.owners.get(client_id, "")

    def heals(self) -> list[dict[str, object]]:
        return self.receipts

    def evict(self, node_id: str, now: int) -> str:
        self.orders.append(("evict", node_id))
        return ""

    def forget(self, node_id: str, now: int, force: bool = False) -> str:
        self.orders.append(("forget", node_id))
        return ""

    def stay(self, node_id: str, now: int) -> str:
        self.orders.append(("stay", node_id))
        return ""

    def leave(self, node_id: str, now: int) -> str:
        self.orders.append(("leave", node_id))
        return ""


class Shown:
    """Serves the status of a picture over HTTP from a thread, until the end of `with`."""

    def __init__(self, picture: Picture, token: str | None = None) -> None:
        self.port = 0
        api = OwnStatus(NodeStatus(picture), lambda: NOW_US)
        app = Starlette(
            routes=cluster_routes(api, lambda: {"started_us": NOW_US - 5_000_000, "uptime_us": 5_000_000}, token)
        )
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _main(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            self._started.set()
            await self._server.serve([listener])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(20), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(20)

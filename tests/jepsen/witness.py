"""The process with all clients: it takes orders on its standard input, and answers on its standard output."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path

from tests.jepsen.history import Recorder
from tests.jepsen.http import request
from tests.jepsen.workload import Plan, Workload

__all__ = ["main"]

CLUSTER_S = 60.0


def main(folder: Path) -> None:
    """Read the plan of a run in its folder, write the history of all clients there."""
    given = json.loads((folder / "plan.json").read_text())
    base_ns = given.pop("base_ns")
    for kind in ("mqtt", "admin"):
        given[kind] = {name: (host, port) for name, (host, port) in given[kind].items()}
    gc.freeze()
    with (folder / "clients.jsonl").open("w", buffering=1 << 16) as file:
        asyncio.run(live(Plan(**given), Recorder(file, base_ns)))
    print("done", flush=True)


async def live(plan: Plan, recorder: Recorder) -> None:
    """Do all of it."""
    workload = Workload(plan, recorder)
    await workload.await_nodes(CLUSTER_S)
    await workload.begin()
    print("serving", flush=True)
    posts: list[asyncio.Task[object]] = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, *words = json.loads(line)
        if what == "rest":
            await workload.rest()
            break
        if what == "copies":
            print(await workload.await_copies(), flush=True)
            continue
        assert what == "post", what
        posts.append(asyncio.create_task(request(plan.admin[words[0]], words[1], token=plan.token, method="POST")))

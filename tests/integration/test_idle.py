"""Many connections that do nothing: what each costs in memory, and that they cost no time."""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import Connect, Pingreq, Pingresp
from tests.integration.serving import RawClient, Serving

CONNECTIONS = 3000
BYTES_MAX = 4096


def connect(node: Serving, client_id: str) -> RawClient:
    client = RawClient(node)
    client.connect(client_id, clean=True, session_s=0, keep_alive_s=600)
    return client


def test_an_idle_connection_costs_less_than_4_kb(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 1000:
        pytest.skip(f"{CONNECTIONS} connections need more than {hard} descriptors (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CONNECTIONS + 1000), hard))
    with Serving(tmp_path / "data", "--mqtt", "127.0.0.1:0", log_level="warning") as node, ExitStack() as open_sockets:
        for number in range(100):
            open_sockets.enter_context(connect(node, f"warm{number}"))
        before = node.memory_bytes()
        # One after the other: buffers for many at once would count as well, more of them the slower the machine is.
        clients = [open_sockets.enter_context(connect(node, f"idle{number}")) for number in range(CONNECTIONS)]
        # Interpreted objects are larger: the figure that counts is the compiled one.
        compiled = Connect.__init__.__class__.__name__ != "function"
        assert (node.memory_bytes() - before) / CONNECTIONS < BYTES_MAX * (1 if compiled else 2)
        busy = node.cpu_s()
        time.sleep(1)
        assert node.cpu_s() - busy < 0.1
        for client in clients[::100]:
            client.send(Pingreq())
            assert isinstance(client.receive(), Pingresp)

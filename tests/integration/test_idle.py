"""Many connections that do nothing: what each costs in memory, and that they cost no time."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import Connack, Connect, Pingreq, Pingresp
from tests.integration.serving import RawClient, Serving

CONNECTIONS = 3000
BYTES_MAX = 4096


def test_an_idle_connection_costs_less_than_4_kb(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 1000:
        pytest.skip(f"{CONNECTIONS} connections need more than {hard} descriptors (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CONNECTIONS + 1000), hard))
    with Serving(tmp_path / "data", "--mqtt", "127.0.0.1:0", log_level="warning") as node:
        warm = [RawClient(node) for _ in range(100)]
        for number, client in enumerate(warm):
            client.send(Connect(5, f"warm{number}", True, 600))
            assert isinstance(client.receive(), Connack)
        before = node.memory_bytes()
        clients = [RawClient(node) for _ in range(CONNECTIONS)]
        for number, client in enumerate(clients):
            client.send(Connect(5, f"idle{number}", True, 600))
        for client in clients:
            assert isinstance(client.receive(), Connack)
        # Interpreted objects are larger: the figure that counts is the compiled one.
        compiled = Connect.__init__.__class__.__name__ != "function"
        assert (node.memory_bytes() - before) / CONNECTIONS < BYTES_MAX * (1 if compiled else 2)
        busy = node.cpu_s()
        time.sleep(1)
        assert node.cpu_s() - busy < 0.1
        for client in clients[::100]:
            client.send(Pingreq())
            assert isinstance(client.receive(), Pingresp)
        for client in [*warm, *clients]:
            client.socket.close()

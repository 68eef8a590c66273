"""The tables of a cluster and of its failovers say what was found, faults and all."""

from __future__ import annotations

import socket
import threading

from benchmarks import cluster, failover, returning
from benchmarks.failover import Failing, quantiles
from benchmarks.nodes import is_whole
from benchmarks.rounds import Figures, spread


def one(cpu_us: float, p99_us: float = 2000.0) -> Figures:
    names = ("per_second", "ack_p50_us", "generator_share", "p50_us")
    rest = {name: spread([0.5]) for name in names}
    nodes = {f"cpu_us n{at}": spread([float(at)]) for at in (1, 2, 3)}
    return {"cpu_us": spread([cpu_us]), "ack_p99_us": spread([p99_us]), "p99_us": spread([p99_us])} | rest | nodes


def test_the_cost_of_a_replica_a_role_and_a_hop() -> None:
    kept = {cluster.KEPT.name: one(9.0), cluster.STEADY.name: one(9.0, 0.0)}
    alone = {cluster.KEPT.name: one(2.0), cluster.STEADY.name: one(2.0)}
    hops = {load.name: one(4.0) for load in cluster.HOPS}
    three = cluster.named(3)
    figures = {
        "kept": {cluster.ALONE: alone, three: kept},
        "roles": {three: one(9.0)},
        "hops": {cluster.ALONE: hops, cluster.THERE: hops},
    }
    text = cluster.table(figures)
    assert f"| {three} | 0.50 | 9.00 | 4.50 x | 0.50 | 9.00 | 0.001 | - | - | 50.0 |" in text
    assert f"| {three} | 1.00 | 2.00 | 3.00 |" in text
    assert f"| {cluster.THERE} | {cluster.HOPS[0].name} | 0.50 | 4.00 | 1.00 x | 0.50 |" in text
    kept[cluster.KEPT.name]["faults"] = {"lost": 3}
    kept[cluster.KEPT.name]["texts"] = ["3 messages did not arrive"]
    assert f"- {three}, {cluster.KEPT.name}: lost 3. 3 messages did not arrive" in cluster.table(figures)


def test_a_cluster_is_whole_when_all_copies_are_there() -> None:
    whole = {"total": 8, "open": 8, "moving": 0, "under_replicated": 0}
    assert is_whole(whole)
    for wrong in ({"open": 7}, {"moving": 1}, {"under_replicated": 1}):
        assert not is_whole(whole | wrong)


def test_pauses_are_quantiles_in_milliseconds() -> None:
    assert quantiles([]) == {"count": 0}
    found = quantiles([number / 1000 for number in range(200, 0, -1)])
    assert found == {"count": 200, "p50_ms": 101, "p99_ms": 199, "max_ms": 200}


def test_a_pause_ends_when_a_message_is_acknowledged_that_was_sent_after_the_kill() -> None:
    client = Failing(0, {"n1": 1})
    assert client.next_after(1.0) is None
    client.acknowledged = [(0.9, 1.0), (1.9, 2.1)]
    assert client.next_after(2.0) is None
    client.acknowledged += [(2.2, 3.5), (3.6, 4.0)]
    assert client.next_after(2.0) == 3.5


def test_what_was_lost_stands_below_the_table() -> None:
    figures: Figures = {"kills": 2, "clients": 1, "messages": 1234, "idle_share_of_core": 0.05}
    figures["pauses"] = {"all": quantiles([0.05, 0.06])}
    figures |= {"controllers": 1, "controller_pauses": quantiles([0.06])}
    figures |= {"hangs": 3, "hang_pauses": quantiles([1.5, 2.5])}
    assert "1,234 messages were acknowledged, none of them was lost." in failover.table(figures)
    assert failover.table(figures).endswith("Before, the three idle nodes used 5.00 % of a core together.")
    assert "| all | 2 | 60.0 | 60.0 | 60.0 |" in failover.table(figures)
    assert "| of these, the controller was killed, 1 times | 1 | 60.0 | 60.0 | 60.0 |" in failover.table(figures)
    assert "| SIGSTOP instead, 3 times: session led by it, connected elsewhere | 2 | 2,500 |" in failover.table(figures)
    assert "- failed: {'lost': 1}" in failover.table(figures | {"faults": {"lost": 1}})


def test_the_clients_that_return_have_a_table_of_their_own() -> None:
    crowd = {
        "clients": 10_000,
        returning.SHARED: {"first_s": 212.3, "back_s": 1.234, "attempts": 10_000},
        returning.ALONE: {"first_s": 210.0, "back_s": 208.9, "attempts": 20_000},
    }
    assert "| 10,000 clients with passwords |" in returning.table(crowd)
    assert f"| {returning.SHARED} | 212 | 1.23 |" in returning.table(crowd)


def test_a_crowd_of_clients_enters_and_those_that_are_cut_off_come_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        crowd = returning.Crowd([server.getsockname()[1]], 3)
        answers = [b"", bytes([0x20, 2, 0, 3]), *[bytes([0x20, 2, 0, 0])] * 3]
        thread = threading.Thread(target=answer, args=(server, answers), daemon=True)
        thread.start()
        crowd.enter()
        assert (len(crowd.entered), crowd.attempts) == (3, 5)
        crowd.close()
        thread.join(20)


def answer(server: socket.socket, answers: list[bytes]) -> None:
    kept = []
    for data in answers:
        sock, _ = server.accept()
        sock.recv(1024)
        sock.sendall(data)
        if len(data) == 4 and data[3] == 0:
            kept.append(sock)
        else:
            sock.close()
    for sock in kept:
        sock.recv(1)
        sock.close()

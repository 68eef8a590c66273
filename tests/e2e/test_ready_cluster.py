"""The reports on a real cluster of which a node is killed: what they say is what the clients have seen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from folkmoot.mqtt.packet import Publish
from pyspark_folkmoot.ready.availability import Wishes
from pyspark_folkmoot.ready.run import Source, run_availability, run_fleet
from tests.integration.cluster_rig import ClusterNode, Rig
from tests.integration.serving import RawClient

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("few_rows")]

STREAM = """
[streams.events]
filter = "$events/#"
partitions = 4
[limits]
events_interval = "1s"
"""


def came(node: ClusterNode, client_id: str) -> RawClient:
    client = RawClient(node)
    assert client.connect(client_id).code == 0
    return client


def test_a_kill_costs_what_its_clients_have_missed(spark: SparkSession, tmp_path: Path) -> None:
    with Rig(tmp_path, 3, more=STREAM) as rig:
        clients = [came(rig.nodes[f"n{number % 3 + 1}"], f"pump{number}") for number in range(9)]
        clients[0].subscribe(b"plant/#", 1)
        for number in range(1, 21):
            clients[2].send(Publish(b"plant/1", b"x", 1, False, False, number, None))
            clients[2].expect_ack(4)
        time.sleep(2.5)  # an interval of latencies
        killed = time.monotonic()
        rig.kill("n2")
        rig.await_out("n2")
        missed = []
        for number in (1, 4, 7):
            clients[number].socket.close()
            clients[number] = came(rig.nodes["n1"], f"pump{number}")
            missed.append(time.monotonic() - killed)
        for client in clients:
            client.socket.close()  # not a word of goodbye
        time.sleep(1.5)
        urls = ",".join(f"127.0.0.1:{rig.nodes[name].port('admin')}" for name in ("n1", "n3"))
        source = Source(urls, token=rig.token, master="local[2]")
        state = spark.read.format("folkmoot").option("url", urls).option("token", rig.token)
        tables = {name: state.option("table", name).load().collect() for name in ("sessions", "partitions", "streams")}
        found = run_availability(source, tmp_path / "out", Wishes())
        fleet = run_fleet(source, tmp_path / "out", 86_400, 5)
    assert {row.client_id for row in tables["sessions"]} == {f"pump{number}" for number in range(9)}
    assert all(row.disconnected_at is not None and not row.connected for row in tables["sessions"])
    assert sum(row.sessions for row in tables["partitions"]) == 9
    assert {row.leader for row in tables["partitions"]} == {"n1", "n3"}
    assert sum(row.records for row in tables["streams"]) > 20
    (kill,) = [row for row in found["costs"] if row["cause"] == "node lost"]
    assert (kill["node"], kill["gaps"], kill["clients"]) == ("n2", 3, 3)
    assert kill["view"] is not None
    assert 0 < kill["down_s"] <= sum(missed)
    assert sum(missed) - kill["down_s"] < 3 * 5, "the others saw it within seconds"
    days = {(row["kind"], row["name"]): row for row in found["availability"] if row["period"] == "month"}
    assert days[("clients", "pump")]["cause"].startswith("node lost n2 view ")
    assert days[("clients", "pump")]["down_s"] >= kill["down_s"]
    assert days[("topics", "plant")]["messages"] == 20
    assert days[("topics", "plant")]["p50_us"] > 0
    assert DeltaTable(str(tmp_path / "out" / "costs")).to_pyarrow_table().num_rows == len(found["costs"])
    timeline = DeltaTable(str(tmp_path / "out" / "timeline")).to_pyarrow_table().to_pylist()
    hit = [row for row in timeline if row["kind"] == "clients" and row["name"] == "(all)"]
    assert sum(row["gaps"] for row in hit) == sum(row["gaps"] for row in found["costs"])
    assert (tmp_path / "out" / "availability.png").stat().st_size > 10_000
    devices = {row["client"]: row for row in fleet["devices"]}
    assert set(devices) == {f"pump{number}" for number in range(9)}
    assert {row["sessions"] for row in devices.values()} == {1, 2}
    assert [(row["client"], row["messages_in"]) for row in fleet["talkers"][:1]] == [("pump2", 20)]
    assert fleet["storms"] == [], "nobody knows yet what is usual"

"""The status of real nodes that form a cluster, as each of them tells it."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Ack, Publish
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.simulated_cluster import SimulatedCluster, Site

NAMES = ["n1", "n2", "n3"]


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3)


def of(site: Site) -> NodeStatus:
    return NodeStatus(picture_of(site.node))


def nodes(site: Site) -> dict[str, dict[str, Any]]:
    found = of(site).status()["nodes"]
    assert isinstance(found, list)
    return {node["id"]: node for node in found}


def figures(site: Site) -> dict[str, int]:
    found = of(site).status()["partitions"]
    assert isinstance(found, dict)
    return found


def test_all_members_tell_the_same(cluster: SimulatedCluster) -> None:
    told = [of(site).status() for site in cluster.live()]
    assert {status["state"] for status in told} == {"member"}
    assert len({status["epoch"] for status in told}) == 1
    for site in cluster.live():
        seen = nodes(site)
        assert sorted(seen) == NAMES
        assert sum(node["leads"] for node in seen.values()) == cluster.partitions
        assert sum(node["follows"] for node in seen.values()) == 2 * cluster.partitions
        assert figures(site)["open"] == cluster.partitions
        assert figures(site)["under_replicated"] == figures(site)["moving"] == 0
        assert of(site).unready() == ""


def test_each_partition_is_open_at_exactly_one_node(cluster: SimulatedCluster) -> None:
    tables = [of(site).partitions() for site in cluster.live()]
    for partition in range(cluster.partitions):
        states = [table[partition]["state"] for table in tables]
        assert sorted(map(str, states)) == ["elsewhere", "elsewhere", "open"]
        assert len({str(table[partition]["leader"]) for table in tables}) == 1


def test_the_leader_of_a_session_knows_to_which_node_its_client_is_connected(cluster: SimulatedCluster) -> None:
    for name in NAMES:
        client = cluster["n2"].client(f"client-of-{name}")
        client.connect()
        found = of(cluster["n1"]).where_client(f"client-of-{name}")
        assert found["partition"] == hash64(f"client-of-{name}".encode()) % cluster.partitions
        leader = cluster[str(found["leader"])]
        assert of(leader).where_client(f"client-of-{name}")["owner"] == "n2"


def test_while_one_is_away_no_other_may_be_stopped(cluster: SimulatedCluster) -> None:
    for name in NAMES:
        safe = of(cluster["n1"]).safe_to_stop(name)
        assert safe is not None
        assert safe["safe"], safe
    cluster["n3"].kill()
    cluster.settle()
    assert nodes(cluster["n1"])["n3"]["state"] == "away"
    assert figures(cluster["n1"])["under_replicated"] == cluster.partitions
    for name, expected in (("n1", False), ("n2", False), ("n3", True)):
        safe = of(cluster["n1"]).safe_to_stop(name)
        assert safe is not None
        assert safe["safe"] is expected
    cluster["n3"].revive()
    assert of(cluster["n3"]).unready() != ""
    cluster.settle()
    assert of(cluster["n3"]).unready() == ""
    again = of(cluster["n1"]).safe_to_stop("n2")
    assert again is not None
    assert again["safe"]


def test_a_node_that_is_forgotten_is_waited_for_no_more(cluster: SimulatedCluster) -> None:
    cluster["n3"].kill()
    cluster.settle()
    assert of(cluster["n2"]).forget("n3", cluster.now) == ""
    cluster.run()
    cluster.advance(3_000_000)
    assert sorted(nodes(cluster["n1"])) == ["n1", "n2"]
    safe = of(cluster["n1"]).safe_to_stop("n2")
    assert safe is not None
    assert safe["safe"], "of two nodes one can be stopped"


def test_a_node_that_is_evicted_learns_that_it_is_out(cluster: SimulatedCluster) -> None:
    assert of(cluster["n1"]).evict("n2", cluster.now) == ""
    cluster.run()
    cluster.advance(3_000_000)
    assert nodes(cluster["n1"])["n2"]["state"] == "away"
    assert of(cluster["n2"]).status()["state"] == "excluded"
    assert "an operator has put this node out" in of(cluster["n2"]).unready()
    assert "is away already" in of(cluster["n1"]).evict("n2", cluster.now)


def test_all_know_the_controller_the_voters_and_the_lineage(cluster: SimulatedCluster) -> None:
    told = [of(site).status() for site in cluster.live()]
    (controller,) = {status["controller"] for status in told}
    assert controller in NAMES
    assert [status["voters"] for status in told] == [NAMES] * 3
    assert len({status["lineage"] for status in told}) == 1
    cluster[str(controller)].kill()
    cluster.settle()
    (later,) = {of(site).status()["controller"] for site in cluster.live()}
    assert later not in ("", controller)
    away = nodes(cluster[str(later)])[str(controller)]
    assert (away["state"], away["why"], away["voter"]) == ("away", "its process has ended", True)


def test_a_node_leaves_by_the_order_of_another_while_clients_go_on() -> None:
    cluster = SimulatedCluster(4, partitions=16)
    subscribers = {name: cluster[name].client(f"at-{name}") for name in ("n1", "n2", "n3", "n4")}
    for one in subscribers.values():
        one.resume()
        one.subscribe("t/#", qos=1)
    publisher = cluster["n2"].client("p")
    publisher.connect()
    assert of(cluster["n1"]).leave("n4", cluster.now) == ""
    sent: list[bytes] = []
    states: list[str] = []
    while not cluster["n4"].node.left:
        sent.append(b"%d" % len(sent))
        assert len(sent) < 400, "it does not leave"
        publisher.send(Publish(b"t/1", sent[-1], 1, False, False, publisher.packet_id()))
        cluster.advance(20_000)
        states.append(nodes(cluster["n1"]).get("n4", {"state": "gone"})["state"])
    assert list(dict.fromkeys(states)) == ["leaving", "gone"]
    subscribers["n4"].expect_close(0x8B)
    cluster["n4"].kill()
    cluster.settle()
    assert [ack.code for ack in publisher.inbox if isinstance(ack, Ack)] == [0] * len(sent)
    back = cluster["n1"].client("at-n4")
    assert back.resume().session_present
    cluster.run()
    assert subscribers["n4"].payloads() + back.payloads() == sent
    for name in ("n1", "n2", "n3"):
        assert subscribers[name].payloads() == sent
    assert sorted(nodes(cluster["n1"])) == ["n1", "n2", "n3"]


def test_a_node_that_stops_hands_its_partitions_over_before_it_ends(cluster: SimulatedCluster) -> None:
    client = cluster["n1"].client("c")
    client.resume()
    cluster.advance(SECOND)  # in the first lease of its term the leader of the log takes none back
    cluster["n2"].node.stop(cluster.now)
    cluster["n2"].node.depart(cluster.now)
    cluster.advance(200_000)
    assert cluster["n2"].node.departed
    assert not cluster["n2"].node.left
    assert figures(cluster["n1"])["open"] == cluster.partitions
    assert nodes(cluster["n1"])["n2"]["state"] == "away"
    assert client.subscribe("a", qos=1) == [1]
    cluster["n2"].kill()
    cluster["n2"].revive()
    cluster.settle()


def test_what_is_left_to_copy_is_seen_at_all_nodes() -> None:
    cluster = SimulatedCluster(3, partitions=32)
    for site in cluster.live():
        site.settings.copy_bytes_per_s = 200_000
        assert site.node.cluster_node is not None
        site.node.cluster_node.replication.context.recent_budget.bytes_max = 10_000
    publisher = cluster["n1"].client("p")
    publisher.connect()
    for number in range(300):  # more changes than are kept in memory
        publisher.publish(f"r/{number}", bytes(40_000), qos=1, retain=True)
    cluster.add("n4")
    seen: set[int] = set()
    while not cluster.settled():
        cluster.advance(10_000)
        status = of(cluster["n1"]).status()["copy"]
        assert isinstance(status, dict)
        seen.add(status["all_left"])
    cluster.advance(1_500_000)
    status = of(cluster["n1"]).status()["copy"]
    assert isinstance(status, dict)
    assert status["all_left"] == 0
    assert len(seen) > 3, "it becomes less"
    assert max(seen) > 200_000


def test_two_clusters_that_find_each_other_stay_two_and_say_so() -> None:
    cluster = SimulatedCluster(2)
    far = [cluster.add(name) for name in ("n3", "n4")]
    far[0].settings.seeds = []
    far[1].settings.seeds = [far[0].address]
    cluster.advance(2 * SECOND)
    assert cluster["n4"].node.found
    cluster["n4"].node.seek([cluster["n1"].address, far[0].address], cluster.now)
    cluster.advance(5 * SECOND)
    assert sorted(nodes(cluster["n1"])) == ["n1", "n2"]
    assert sorted(nodes(cluster["n4"])) == ["n3", "n4"]
    assert cluster["n1"].kinds().count("two_clusters") == cluster["n4"].kinds().count("two_clusters") == 1
    assert [of(site).unready() for site in cluster.live()] == [""] * 4


def test_without_any_seeds_yet_no_view_is_made() -> None:
    cluster = SimulatedCluster(1)
    late = cluster.add("n2")
    late.settings.seeds = []
    late.settings.seeds_unknown = True
    cluster.advance(5 * SECOND)
    assert of(late).status()["state"] == "waiting"
    assert not late.node.found
    late.node.seek([cluster["n1"].address], cluster.now)
    cluster.settle()
    assert late.node.found


def test_all_members_tell_of_a_heal_also_after_a_restart() -> None:
    cluster = SimulatedCluster(3)
    cluster.cut("n3", "n1", "n2")
    cluster.advance(6 * SECOND)
    for name in ("n1", "n3"):
        client = cluster[name].client(f"at-{name}")
        client.connect()
        for number in range(30):
            assert client.publish(f"r/{name}/{number}", b"x", qos=1, retain=True) in (0, 0x10)
    cluster.heal()
    cluster.settle()
    cluster.advance(SECOND)
    told = of(cluster["n1"]).heals()
    assert told
    assert all(of(site).heals() == told for site in cluster.live())
    assert of(cluster["n2"]).status()["last_heal"] == told[-1]
    cluster["n2"].kill()
    cluster["n2"].revive()
    assert of(cluster["n2"]).heals() == told
    newcomer = cluster.add("n4")
    cluster.settle()
    assert of(newcomer).heals() == told


def test_the_figures_of_the_links_are_among_the_metrics(cluster: SimulatedCluster) -> None:
    client = cluster["n1"].client("c")
    client.connect()
    for number in range(20):
        client.publish(f"r/{number}", b"x", qos=1, retain=True)
    cluster.advance(3 * SECOND)
    counters = [cluster[name].node.counters for name in NAMES]
    for one in counters:
        assert (one.peers_connected, one.peer_losses) == (2, 0)
        assert one.peer_bytes_sent > 1000
    assert sum(one.peer_bytes_sent for one in counters) >= sum(one.peer_bytes_received for one in counters)
    cluster["n3"].kill()
    cluster.advance(3 * SECOND)
    assert (counters[0].peers_connected, counters[0].peer_losses) == (1, 1)

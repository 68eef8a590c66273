"""Other brokers of the comparison: how they are obtained and configured, what a kill shows, and the tables."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from benchmarks.failover import Failing, Line, await_answers, quantiles
from benchmarks.machine import Cores
from benchmarks.nodes import Cluster
from benchmarks.peers import nats, outage, rabbitmq, section, table
from benchmarks.peers.outage import CONNECTED, DELIVERED, ELSEWHERE, Outages, Pair, Reader
from benchmarks.peers.peer import Missing, Peer, completed, require
from benchmarks.rounds import Bench, Figures, spread
from benchmarks.server import Server
from folkmoot.mqtt.packet import PUBACK, Ack, Packet, Publish, Suback, Subscribe

PORTS = {
    "n1": {"mqtt": 1, "admin": 2, "peer": 3, "client": 4},
    "n2": {"mqtt": 5, "admin": 6, "peer": 7, "client": 8},
    "n3": {"mqtt": 9, "admin": 10, "peer": 11, "client": 12},
}
NAMES = {"n1": 1, "n2": 2, "n3": 3}
MOMENT = 1e12  # later than any clock is: what waits until then never gives up


class Stopped:
    """Stands for a process that was started."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


class NeverWhole(Cluster):
    """Nodes that do not find together."""

    whole_s = 0.0
    started: list[Stopped] = []

    def start(self, name: str) -> None:
        self.started.append(Stopped())
        self.servers[name] = cast("Server", self.started[-1])

    def whole(self) -> bool:
        return False


def test_nodes_that_do_not_find_together_are_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not find together"):
        NeverWhole(tmp_path, 3)
    assert [one.stops for one in NeverWhole.started] == [1, 1, 1]


def test_a_program_that_is_missing_is_named_with_its_purpose() -> None:
    with pytest.raises(Missing, match="`no-such-program` is missing, which builds it"):
        require("no-such-program", "which builds it")
    assert require("sh", "").endswith("/sh")


def test_a_step_that_fails_says_so_in_one_line(tmp_path: Path) -> None:
    assert completed([sys.executable, "-c", "print('done')"], tmp_path) == "done\n"
    with pytest.raises(Missing) as failed:
        completed([sys.executable, "-c", "import sys; sys.exit('first line\\nsecond line')"], tmp_path)
    assert str(failed.value).endswith("failed: first line second line")
    with pytest.raises(Missing, match="did not end in 0 s"):
        completed([sys.executable, "-c", "import threading; threading.Event().wait()"], tmp_path, timeout_s=0.1)


def test_a_node_of_nats_syncs_each_write_and_knows_the_others() -> None:
    text = nats.configuration("n2", PORTS, Path("data"))
    assert "server_name: n2" in text
    assert "sync_interval: always" in text
    assert "stream_replicas: 3" in text
    assert 'routes: ["nats://127.0.0.1:3", "nats://127.0.0.1:11"]' in text
    assert text.count("127.0.0.1") == 6, "four listeners and two routes, all on loopback"


def test_a_node_of_rabbitmq_has_quorum_queues_and_nothing_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "mqtt.durable_queue_type = quorum\n" in rabbitmq.configuration({"mqtt": 5, "distribution": 6})
    assert "mqtt.listeners.tcp.1 = 127.0.0.1:5\n" in rabbitmq.configuration({"mqtt": 5, "distribution": 6})
    for name in ("RABBITMQ_NODENAME", "RABBITMQ_QUORUM_DIR", "ERL_FLAGS"):
        monkeypatch.setenv(name, "of the service")
    found = rabbitmq.environment_of("n3", 6, 7, tmp_path)
    assert "of the service" not in found.values()
    assert (found["RABBITMQ_NODENAME"], found["RABBITMQ_DIST_PORT"], found["ERL_EPMD_PORT"]) == (
        "n3@localhost",
        "6",
        "7",
    )
    assert found["RABBITMQ_MNESIA_BASE"] == str(tmp_path / "n3")


def test_an_unpacked_erlang_is_started_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/erlang/erts-13.1").mkdir(parents=True)
    text = rabbitmq.launcher(tmp_path)
    assert f'ROOTDIR="{tmp_path}/usr/lib/erlang"' in text
    assert f'BINDIR="{tmp_path}/usr/lib/erlang/erts-13.1/bin"' in text
    assert text.endswith('exec "$BINDIR/erlexec" ${1+"$@"}\n')


def test_what_debian_does_not_have_in_its_place_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="no RabbitMQ"):
        rabbitmq.home(tmp_path)


class Script:
    """A connection on which packets come, and after the last one the reader is to end."""

    def __init__(self, reader: Reader, session_present: bool, *packets: Packet) -> None:
        self.reader = reader
        self.session_present = session_present
        self.packets = list(packets)
        self.sent: list[Packet] = []

    def send(self, packet: Packet) -> None:
        self.sent.append(packet)

    def receive(self, _timeout_s: float) -> Packet | None:
        if not self.packets:
            self.reader.ended.set()
            return None
        return self.packets.pop(0)


def message(number: int) -> Publish:
    return Publish(b"failover/0", b"%d" % number, 1, False, False, number)


def test_a_reader_acknowledges_what_comes() -> None:
    reader = Reader(0, Failing(0, NAMES))
    assert (reader.client.home, reader.home) == ("n1", "n2")
    script = Script(reader, True, message(3), message(4))
    reader.talk(cast("Line", script), reader.at)
    assert [(type(packet), cast("Ack", packet).kind) for packet in script.sent] == [(Ack, PUBACK)] * 2
    assert reader.client.found == {3, 4}
    assert reader.sessions_lost == 0


def test_a_reader_whose_session_is_gone_subscribes_anew() -> None:
    reader = Reader(0, Failing(0, NAMES))
    script = Script(reader, False, Suback(1, [1]), message(9))
    reader.talk(cast("Line", script), reader.at)
    assert isinstance(script.sent[0], Subscribe)
    assert (reader.sessions_lost, reader.client.found) == (1, {9})


def test_a_reader_that_is_to_be_elsewhere_leaves() -> None:
    reader = Reader(0, Failing(0, NAMES))
    script = Script(reader, True, message(1))
    reader.talk(cast("Line", script), "n3")
    assert script.packets, "it is at n2 now, and has not read"


def test_a_delivery_counts_when_its_message_was_sent_after_the_kill() -> None:
    reader = Reader(0, Failing(0, NAMES))
    reader.delivered = [(1, 0.5)]
    reader.client.count = 10
    reader.expect()
    assert reader.next_after(1.0) is None
    reader.delivered += [(10, 1.1), (11, 1.2)]
    assert reader.next_after(1.0) is None, "11 was on its way already"
    reader.delivered += [(12, 1.5), (13, 1.6)]
    assert reader.next_after(1.0) == 1.5


class Struck:
    """A cluster of which a node is killed."""

    def kill(self, _name: str) -> float:
        return MOMENT


class Answered(Reader):
    """A reader that gets its next messages a while after the kill."""

    def expect(self) -> None:
        super().expect()
        self.delivered += [(self.first - 1, MOMENT + 0.25), (self.first, MOMENT + 1.5)]


def test_a_kill_shows_pauses_by_where_a_publisher_was() -> None:
    pairs = [Pair(number, NAMES) for number in range(3)]
    for number, pair in enumerate(pairs):
        pair.reader = Answered(number, pair.publisher)
        pair.publisher.acknowledged = [(MOMENT - 1, MOMENT + 0.125), (MOMENT + 0.25, MOMENT + 0.5 + number)]
    outages = Outages()
    outages.strike(cast("Cluster", Struck()), "n2", pairs)
    assert outages.pauses == {CONNECTED: [1.5], ELSEWHERE: [0.5, 2.5], DELIVERED: [1.5, 1.5, 1.5]}
    assert outages.stuck == 0


def test_clients_that_are_not_served_are_counted() -> None:
    pauses: list[float] = []
    assert await_answers([lambda _: None, lambda _: None], 0.0, pauses, 0.0) == 2
    assert pauses == []


def test_both_clients_of_a_pair_come_home() -> None:
    pair = Pair(2, NAMES)
    pair.publisher.at = pair.reader.at = "n2"
    pair.come_home()
    assert (pair.publisher.at, pair.reader.at) == ("n3", "n1")


def test_what_no_reader_has_had_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "PATIENCE_S", 0.0)
    pairs = [Pair(number, NAMES) for number in range(2)]
    for pair in pairs:
        pair.publisher.count = 4
        pair.publisher.found = {1, 2, 3, 4, 5}
    assert outage.missing(pairs) == 0
    pairs[1].publisher.found = {1, 4}
    assert outage.missing(pairs) == 2


class Found(Peer):
    name = "found"
    promise = "in a log"

    def obtain(self) -> str:
        return "found 1.0"

    def start(self, folder: Path) -> Cluster:
        raise AssertionError(folder)


class Lost(Found):
    name = "lost"

    def obtain(self) -> str:
        raise Missing("the program `go` is missing")


def bench(tmp_path: Path, quick: bool = False) -> Bench:
    return Bench(1, 2.0, quick, Cores(None, None), tmp_path, lambda _text: None)


def test_a_broker_that_cannot_be_had_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    figures: Figures = {"versions": {}, "missing": {}, "promises": {}, "loads": {}, "outages": {}}
    assert [one.name for one in section.available(bench(tmp_path), figures, (Lost(), Found()))] == ["found"]
    text = table(figures)
    assert "| found | found 1.0 | in a log |" in text
    assert text.endswith("- lost was not measured: the program `go` is missing")


def test_a_low_rate_is_measured_until_there_are_messages_for_a_p99(tmp_path: Path) -> None:
    slow, fast = section.PACED[100], section.PACED[15_000]
    assert section.span(bench(tmp_path), slow).seconds == 10.0
    assert section.span(bench(tmp_path), fast).seconds == 2.0
    assert section.span(bench(tmp_path), section.FULL).seconds == 2.0
    assert section.span(bench(tmp_path, quick=True), slow).seconds == 2.0


def test_every_broker_gets_the_same_load_at_every_rate() -> None:
    rates = [load.rate for load in section.LOADS]
    assert rates == [0, 100, 2_000, 15_000]
    same = [replace(load, name="", rate=0.0, sample_every=1) for load in section.LOADS]
    assert same == [same[0]] * 4
    assert (same[0].qos, same[0].persistent) == (1, True)


def measured(value: float, p99_us: float) -> Figures:
    names = ("per_second", "cpu_us", "ack_p50_us", "p50_us")
    return {name: spread([value]) for name in names} | {name: spread([p99_us]) for name in ("ack_p99_us", "p99_us")}


def test_the_tables_have_speed_latencies_pauses_and_losses() -> None:
    by = {load.name: measured(4000.0, 9000.0) for load in section.LOADS}
    late = section.PACED[15_000].name
    by[late] = measured(1500.0, 0.0)
    pauses = {CONNECTED: quantiles([0.25]), ELSEWHERE: quantiles([]), DELIVERED: quantiles([0.5, 1.0])}
    kills: Figures = {"kills": 9, "messages": 12_345, "pauses": pauses, "stuck": 2, "sessions_lost": 0, "lost": 3}
    figures: Figures = {
        "versions": {"one": "one 1.0"},
        "promises": {"one": "in a log"},
        "missing": {},
        "loads": {"one": by},
        "outages": {"one": kills},
    }
    text = table(figures)
    assert "| one | 4,000 | 4,000 | 9.00 | 4,000 | 4,000 | 1,500 |" in text
    assert "| 2,000/s, one | 4,000 | 4.00 | 9.00 | 4.00 | 9.00 |" in text
    assert "| 15,000/s, one | 1,500 | 1.50 | - | 1.50 | - |" in text
    assert f"| one, 9 times: {CONNECTED} | 1 | 250 | 250 | 250 | 2 | 12,345 | 3 |" in text
    assert f"| one, 9 times: {ELSEWHERE} | 0 | - | - | - |  |  |  |" in text
    assert f"| one, 9 times: {DELIVERED} | 2 | 1,000 | 1,000 | 1,000 |" in text
    assert "sessions were gone" not in text
    kills["sessions_lost"] = 4
    assert table(figures).endswith("- one: 4 sessions were gone when their client came back")
    by[late] |= {"faults": {"lost": 3}, "texts": ["3 messages did not arrive"]}
    assert f"- one, {late}: lost 3. 3 messages did not arrive" in table(figures)

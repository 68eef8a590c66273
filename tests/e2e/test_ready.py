"""The ready-made pipelines in Spark, on lists of events made by hand: the figures were worked out by hand as well."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from folkmoot.metrics.sketch import bucket_of
from pyspark_folkmoot.ready import availability, fleet
from pyspark_folkmoot.ready.availability import Wishes
from pyspark_folkmoot.ready.event import decode
from pyspark_folkmoot.ready.session import losses, sessions
from pyspark_folkmoot.ready.timeline import Mark, marks, span_of, timeline

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("few_rows")]

S = 1_000_000
NOON = 1_763_726_400 * S  # 2025-11-21 12:00 UTC
MIDNIGHT = NOON + 12 * 3600 * S


class Tale:
    """Events in the making; times are seconds since noon."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.numbers: dict[tuple[str, int], int] = {}

    def add(self, node: str, at_s: float, kind: str, incarnation: int = 1, **fields: Any) -> None:
        number = self.numbers.get((node, incarnation), 0) + 1
        self.numbers[(node, incarnation)] = number
        head = {"schema": 1, "kind": kind, "node": node, "incarnation": incarnation, "number": number}
        self.events.append({**head, "time_us": NOON + round(at_s * S), **fields})

    def came(self, node: str, at_s: float, client: str, incarnation: int = 1) -> None:
        self.add(node, at_s, "connected", incarnation, client=client)

    def went(
        self, node: str, at_s: float, client: str, lasted_s: float, by: str, code: int | None, **more: Any
    ) -> None:
        clean = by == "client" and code is not None and code < 0x80
        fields = {"client": client, "by": by, "code": code, "reason": more.pop("reason", None), "clean": clean}
        figures = {"bytes_in": 0, "bytes_out": 0, "messages_in": 0, **more}
        self.add(node, at_s, "disconnected", **fields, connected_us=round(lasted_s * S), **figures)

    def latency(
        self,
        node: str,
        to_s: float,
        prefix: str,
        times_us: dict[int, int],
        came_us: dict[int, int] | None = None,
        **more: int,
    ) -> None:
        """Acknowledgements in the ten seconds before: how many took how long; and deliveries, if not as many."""
        ack = {"failed": 0, "waiting": 0, "waiting_us": 0, **sketch(times_us)}
        ack = {"taken": ack["count"], **ack, **more}
        ends = {"from_us": NOON + round((to_s - 10) * S), "to_us": NOON + round(to_s * S), "objective_us": 5000}
        deliver = {"sample": 1, **sketch(times_us if came_us is None else came_us)}
        self.add(node, to_s, "latency", prefix=prefix, **ends, ack=ack, deliver=deliver)

    def view(self, at_s: float, number: int, *members: str) -> None:
        for node in members:
            self.add(node, at_s, "view", what="view_installed", view=number, epoch=number * 10, members=members)

    def frame(self, spark: SparkSession, repeated: int = 0) -> DataFrame:
        """The events as rows of the source; some of them twice, as a node that sends again would."""
        rows = [(json.dumps(event).encode(),) for event in [*self.events, *self.events[:repeated]]]
        return spark.createDataFrame([*rows, (b"no event",), (b"{}",)], "payload binary")


def sketch(times_us: dict[int, int]) -> dict[str, Any]:
    """As the nodes tell how often something took how long."""
    within = sum(times for time, times in times_us.items() if time <= 5000)
    buckets = [[bucket_of(time), times] for time, times in sorted(times_us.items())]
    return {"count": sum(times_us.values()), "within": within, "buckets": buckets}


def rows(frame: DataFrame, *keys: str) -> dict[Any, dict[str, Any]]:
    found = [row.asDict() for row in frame.collect()]
    named = {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in found}
    assert len(named) == len(found)
    return named


def killed() -> Tale:
    """Three nodes; n2 is killed 100 s after noon, and its clients come again elsewhere."""
    tale = Tale()
    tale.view(0, 1, "n1", "n2", "n3")
    tale.came("n1", 10, "press1")
    tale.came("n2", 10, "press2")
    tale.came("n2", 20, "pump1")
    tale.came("n3", 30, "pump2")
    tale.latency("n2", 90, "plant", {1000: 10})  # the last that n2 tells
    tale.add("n1", 100.2, "peer", what="peer_down", peer="n2")
    tale.add("n3", 100.3, "peer", what="peer_down", peer="n2")
    tale.view(100.5, 2, "n1", "n3")
    tale.came("n1", 103.2, "press2")  # 3 s after n2 was lost
    tale.came("n3", 107.2, "pump1")  # 7 s
    tale.went("n3", 130, "pump2", 100, "client", 0)  # a goodbye
    tale.came("n3", 180, "pump2")
    tale.went("n1", 150, "press1", 140, "network", None)
    tale.came("n1", 152, "press1")  # 2 s
    tale.add("n1", 210, "overload", level=0)  # where the data end
    return tale


def test_a_killed_node_loses_its_clients_when_the_others_say_so(spark: SparkSession) -> None:
    events = decode(killed().frame(spark, repeated=5))
    (lost,) = losses(events).collect()
    assert (lost.node, lost.lost_us, lost.lost_view) == ("n2", NOON + 100_200_000, 2)
    found = rows(sessions(events), "client", "start_us")
    assert len(found) == 8
    first = found[("pump1", NOON + 20 * S)]
    assert (first["ended"], first["end_us"], first["clean"]) == ("lost", NOON + 100_200_000, False)
    assert found[("press1", NOON + 10 * S)]["ended"] == "network"
    last = found[("pump1", NOON + 107_200_000)]
    assert (last["ended"], last["end_us"], last["next_us"]) == ("open", NOON + 210 * S, None)


def test_what_the_kill_cost(spark: SparkSession) -> None:
    events = decode(killed().frame(spark))
    found = rows(availability.costs(events, Wishes()), "cause", "node")
    assert set(found) == {("node lost", "n2"), ("network", "n1")}
    kill = found[("node lost", "n2")]
    assert (kill["view"], kill["gaps"], kill["clients"]) == (2, 2, 2)
    assert kill["down_s"] == pytest.approx(3 + 7)
    assert found[("network", "n1")]["down_s"] == pytest.approx(2)


def test_availability_by_groups_and_periods(spark: SparkSession) -> None:
    found = rows(availability.report(killed().frame(spark)), "period", "kind", "name")
    assert len(found) == 2 * (3 + 2)
    for period, start in (("day", dt.date(2025, 11, 21)), ("month", dt.date(2025, 11, 1))):
        pump = found[(period, "clients", "pump")]
        assert pump["start"] == start
        # pump1 20 to 210, of which 7 without; pump2 30 to 130, then a goodbye, 180 to 210
        assert pump["service_s"] == pytest.approx(190 + 100 + 30)
        assert pump["down_s"] == pytest.approx(7)
        assert pump["gaps"] == 1
        assert pump["availability"] == pytest.approx(1 - 7 / 320)
        assert pump["nines"] == pytest.approx(1.6601, abs=1e-4)
        assert pump["cause"] == "node lost n2 view 2"
        press = found[(period, "clients", "press")]
        assert press["service_s"] == pytest.approx(200 + 200)
        assert press["down_s"] == pytest.approx(3 + 2)
        everything = found[(period, "clients", "(all)")]
        assert everything["down_s"] == pytest.approx(12)
        assert everything["gaps"] == 3
        assert everything["messages"] is None


def test_a_gap_over_midnight_belongs_to_both_days(spark: SparkSession) -> None:
    tale = Tale()
    near = (MIDNIGHT - NOON) / S
    tale.came("n1", near - 100, "pump1")
    tale.went("n1", near - 10, "pump1", 90, "network", None)
    tale.came("n1", near + 20, "pump1")
    tale.add("n1", near + 50, "overload", level=0)
    found = rows(availability.report(tale.frame(spark)), "period", "start", "name")
    first = found[("day", dt.date(2025, 11, 21), "pump")]
    second = found[("day", dt.date(2025, 11, 22), "pump")]
    assert (first["down_s"], first["gaps"]) == (pytest.approx(10), 1)
    assert (second["down_s"], second["gaps"]) == (pytest.approx(20), 0), "it began the day before"
    assert first["service_s"] == pytest.approx(100)
    assert second["service_s"] == pytest.approx(50)
    assert found[("month", dt.date(2025, 11, 1), "pump")]["down_s"] == pytest.approx(30)


def test_what_is_no_loss_of_service(spark: SparkSession) -> None:
    tale = Tale()
    tale.came("n1", 0, "a1")
    tale.came("n2", 10, "a1")  # it moves by itself
    tale.went("n1", 10, "a1", 10, "node", 0x8E, reason="Session taken over")
    tale.came("n1", 0, "b1")
    tale.went("n1", 5, "b1", 5, "network", None)  # and is never seen again: switched off
    tale.came("n1", 0, "c1")
    tale.went("n1", 5, "c1", 5, "client", 4)  # a goodbye that wants its will
    tale.came("n1", 90, "c1")
    tale.add("n1", 8000, "overload", level=0)
    found = rows(availability.report(tale.frame(spark)), "period", "name")
    assert {row["down_s"] for row in found.values()} == {0.0}
    assert found[("day", "a")]["nines"] is None
    assert found[("day", "a")]["availability"] == 1.0
    short = availability.report(tale.frame(spark), Wishes(longest_s=8000))
    assert rows(short, "period", "name")[("day", "b")]["down_s"] == pytest.approx(7995)


def test_planned_stops_and_changes_of_the_view_have_their_names(spark: SparkSession) -> None:
    tale = Tale()
    tale.view(0, 1, "n1", "n2")
    tale.came("n1", 1, "a1")
    tale.came("n2", 1, "a2")
    tale.went("n1", 50, "a1", 49, "node", 0x8B, reason="Server shutting down")
    tale.view(52, 2, "n2")
    tale.went("n2", 51, "a2", 50, "network", None)
    tale.came("n2", 54, "a1")
    tale.came("n2", 56, "a2")
    found = rows(availability.costs(decode(tale.frame(spark)), Wishes()), "cause")
    assert {cause: (row["node"], row["view"], row["down_s"]) for cause, row in found.items()} == {
        "Server shutting down": ("n1", 2, pytest.approx(4)),
        "view change": ("n2", 2, pytest.approx(5)),
    }


def test_shares_and_quantiles_of_topics(spark: SparkSession) -> None:
    tale = Tale()
    tale.latency("n1", 10, "plant", {1000: 97})
    tale.latency("n2", 10, "plant", {2000: 2, 400_000: 1})
    tale.latency("n1", 20, "plant", {4000: 99, 6000: 1})
    tale.latency("n1", 20, "lab", {6000: 2})
    found = rows(availability.report(tale.frame(spark)), "period", "kind", "name")
    plant = found[("day", "topics", "plant")]
    assert (plant["messages"], plant["within"]) == (200, 198)
    assert plant["share"] == pytest.approx(0.99)
    assert plant["met"] is True
    assert plant["service_s"] == pytest.approx(30)
    assert plant["p50_us"] == pytest.approx(4000, rel=0.008)  # 97 at 1 ms, 2 at 2 ms, the hundredth at 4 ms
    assert plant["p99_us"] == pytest.approx(4000, rel=0.008)  # the 198th of 200
    lab = found[("day", "topics", "lab")]
    assert (lab["share"], lab["met"]) == (0.0, False)
    wider = rows(availability.report(tale.frame(spark), Wishes(objective_us=10_000)), "period", "kind", "name")
    assert wider[("day", "topics", "plant")]["within"] == 199
    assert wider[("day", "topics", "lab")]["met"] is True
    total = found[("day", "topics", "(all)")]
    assert (total["messages"], total["within"], total["met"]) == (202, 198, False)


def test_deliveries_have_figures_of_their_own(spark: SparkSession) -> None:
    tale = Tale()
    tale.latency("n1", 10, "plant", {1000: 100}, {2000: 150, 9000: 50})
    tale.latency("n2", 10, "plant", {}, {3000: 100}, taken=0)  # subscribers elsewhere
    tale.latency("n2", 10, "lab", {1000: 1}, {})  # nobody subscribes
    found = rows(availability.report(tale.frame(spark)), "period", "kind", "name")
    plant = found[("day", "topics", "plant")]
    assert (plant["messages"], plant["delivered"]) == (100, 300)
    assert plant["delivered_share"] == pytest.approx(250 / 300)
    assert plant["delivered_p50_us"] == pytest.approx(2000, rel=0.008)
    assert plant["delivered_p99_us"] == pytest.approx(9000, rel=0.008)
    assert found[("day", "topics", "lab")]["delivered"] is None
    assert found[("month", "topics", "(all)")]["delivered"] == 300
    wider = rows(availability.report(tale.frame(spark), Wishes(objective_us=10_000)), "period", "kind", "name")
    assert wider[("day", "topics", "plant")]["delivered_share"] == 1.0


def test_no_acknowledgement_is_no_service_and_a_lost_message_is_not_within(spark: SparkSession) -> None:
    tale = Tale()
    tale.latency("n1", 10, "plant", {1000: 10})
    tale.latency("n1", 20, "plant", {}, taken=5, waiting=5, waiting_us=4 * S)
    tale.latency("n1", 30, "plant", {}, waiting=5, waiting_us=14 * S)
    tale.latency("n1", 40, "plant", {15_000_000: 4}, taken=0, failed=1)
    (plant,) = rows(availability.report(tale.frame(spark)).where("period = 'day' AND name = 'plant'"), "name").values()
    assert plant["service_s"] == pytest.approx(40)
    assert plant["down_s"] == pytest.approx(4 + 10)
    assert plant["gaps"] == 2
    assert plant["cause"] == "no acknowledgement n1"
    assert (plant["messages"], plant["within"]) == (15, 10)


def test_gaps_and_messages_are_split_between_the_buckets_in_which_they_lie(spark: SparkSession) -> None:
    events = decode(killed().frame(spark, repeated=5))
    found = rows(
        timeline(events, Wishes(), 5).withColumn("at_s", f.expr(f"unix_seconds(start) - {NOON // S}")),
        "at_s",
        "kind",
        "name",
    )
    clients = {key: row for key, row in found.items() if key[1] == "clients" and key[2] == "(all)"}
    figures = {key[0]: (row["clients"], row["gaps"], row["down_s"], row["longest_s"]) for key, row in clients.items()}
    assert figures == {  # press2 100.2 to 103.2, pump1 100.2 to 107.2, press1 150 to 152
        100: (2, 2, pytest.approx(3 + 4.8), pytest.approx(7)),
        105: (1, 0, pytest.approx(2.2), None),
        150: (1, 1, pytest.approx(2), pytest.approx(2)),
    }
    assert found[(100, "clients", "press")]["down_s"] == pytest.approx(3)
    assert {key[0]: row["messages"] for key, row in found.items() if key[2] == "plant"} == {80: 5, 85: 5}
    plant = found[(85, "topics", "plant")]
    assert (plant["within"], plant["share"], plant["width_s"]) == (5, 1.0, 5)
    assert plant["p50_us"] == plant["p99_us"] == pytest.approx(1000, rel=0.008)


def test_quantiles_of_a_bucket_weigh_intervals_by_their_part_of_it(spark: SparkSession) -> None:
    tale = Tale()
    tale.latency("n1", 10, "plant", {1000: 10})  # all of it in the first bucket of 10 s
    tale.latency("n2", 18, "plant", {9000: 10})  # 8 to 18: a fifth of it in the first
    events = decode(tale.frame(spark))
    found = [row.asDict() for row in timeline(events, Wishes(), 10).where("name = 'plant'").collect()]
    assert [(row["messages"], row["within"]) for row in found] == [(12, 10), (8, 0)]
    assert [row["p50_us"] for row in found] == [pytest.approx(1000, rel=0.008), pytest.approx(9000, rel=0.008)]
    assert found[0]["p99_us"] == pytest.approx(9000, rel=0.008)
    assert found[0]["share"] == pytest.approx(10 / 12)


def test_marks_are_what_the_nodes_tell_and_what_is_given(spark: SparkSession) -> None:
    tale = killed()
    tale.add("n2", 160, "node", 2, what="opened")
    tale.add("n3", 200, "node", what="stopping")
    events = decode(tale.frame(spark))
    found = marks(events, [Mark(NOON / S + 130, "deployed")])
    assert [(round(mark.at_s - NOON / S, 3), mark.label) for mark in found] == [
        (100.2, "n2 lost"), (130, "deployed"), (160, "n2 is back"), (200, "n3 stops"),
    ]  # fmt: skip
    span = span_of(events, Wishes())
    assert span is not None
    assert (span.begin_s - NOON / S, span.end_s - NOON / S) == (0, 210)
    assert (span.interval_s, span.objective_us) == (10, 5000)
    assert span_of(events.where("false"), Wishes()) is None


def test_the_fleet(spark: SparkSession) -> None:
    tale = Tale()
    tale.came("n1", 0, "pump1")
    tale.went("n1", 100, "pump1", 100, "client", 0, messages_in=50, bytes_in=5000, bytes_out=10)
    tale.came("n2", 200, "pump1")
    tale.came("n1", 0, "pump2")
    tale.went("n1", 300, "pump2", 300, "network", None, messages_in=6, bytes_in=9000, bytes_out=20)
    tale.came("n1", 90_000, "7")
    events = decode(tale.frame(spark))
    found = rows(fleet.report(tale.frame(spark)), "client")
    assert list(found) == ["7", "pump1", "pump2"]
    pump1 = found["pump1"]
    assert (pump1["name"], pump1["sessions"], pump1["connected"], pump1["node"]) == ("pump", 2, True, "n2")
    assert pump1["connected_s"] == pytest.approx(100 + 89_800)
    assert found["7"]["name"] == "(others)"
    assert pump1["last_at"].timestamp() == NOON / S + 200
    assert list(rows(fleet.silent(events), "client")) == ["pump2"]
    assert list(rows(fleet.silent(events, after_s=89_701), "client")) == []
    lengths = rows(fleet.lengths(events), "name")
    assert lengths["pump"]["p50_s"] == pytest.approx(200)
    assert (lengths["pump"]["sessions"], lengths["pump"]["longest_s"]) == (2, pytest.approx(300))
    talkers = fleet.talkers(events).collect()
    assert [(row.client, row.bytes_in) for row in talkers] == [("pump2", 9000), ("pump1", 5000)]
    assert [row.messages_s for row in talkers] == [pytest.approx(0.02), pytest.approx(0.5)]


def test_a_storm_is_far_more_than_usual(spark: SparkSession) -> None:
    tale = Tale()
    for minute in range(5):
        for number in range(2):
            tale.came("n1", minute * 60 + number, f"c{number}")
    for number in range(30):
        tale.came(f"n{number % 2 + 1}", 400 + number / 10, f"c{number}")
    tale.add("n1", 405, "refused", client="x", code=0x97)
    events = decode(tale.frame(spark))
    (storm,) = fleet.storms(events, least=20).collect()
    assert (storm.connects, storm.clients, storm.nodes, storm.refused, storm.usual) == (30, 31, 2, 1, 2.0)
    assert fleet.storms(events, least=20, times=16).collect() == []
    assert fleet.storms(events).collect() == []

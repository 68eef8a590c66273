"""$events topics: what the node says of what happens at it, to those who listen, and to nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.metrics.sketch import bucket_of
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, V311, Publish
from folkmoot.store.chunk import decode_chunk
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.page import Page
from tests.harness.box import START, Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer

ALL = "$events/#"


def told(peer: Peer, kind: str = "") -> list[dict[str, Any]]:
    """Take the events that came; each is on the topic that it names."""
    found = []
    for packet in peer.publishes():
        event = json.loads(packet.payload)
        assert packet.topic.decode() == f"$events/{event['node']}/{event['kind']}"
        assert not packet.retain
        if kind in ("", event["kind"]):
            found.append(event)
    return found


def listener(box: Box, *filters: str) -> Peer:
    peer = box.client("listener")
    peer.connect()
    peer.subscribe(*(filters or (ALL,)), qos=1)
    peer.publishes()
    return peer


def records(box: Box, name: str) -> list[dict[str, Any]]:
    """The events in a stream, in the order of their numbers."""
    found = []
    stream = box.node.streams.get(name)
    assert stream is not None
    for log in stream.logs:
        page = log.read(0, 1 << 40, 1 << 30)
        assert isinstance(page, Page)
        payloads = {entry.offset: entry.record.payload for chunk in page.chunks for entry in decode_chunk(chunk)}
        found += [json.loads(payload) for payload in payloads.values()]
    return sorted(found, key=lambda event: int(event["number"]))


def test_a_client_comes_and_goes(box: Box) -> None:
    ear = listener(box)
    at = box.now
    peer = box.client("c")
    peer.connect(session_expiry=60, username="u")
    (came,) = told(ear)
    assert came["schema"] == 1
    assert came["incarnation"] == box.node.birth.incarnation
    assert came["time_us"] == at
    assert {key: came[key] for key in ("client", "username", "version", "expiry_s", "transport")} == {
        "client": "c",
        "username": "u",
        "version": 5,
        "expiry_s": 60,
        "transport": "tcp",
    }
    box.advance(3 * SECOND)
    peer.publish("a", b"x")
    peer.publish("a", b"x")
    peer.publish("a", b"x", qos=1)
    sent = sum(map(len, [peer.wire]))
    peer.disconnect()
    (gone,) = told(ear)
    assert gone["number"] == came["number"] + 1
    assert (gone["by"], gone["clean"], gone["code"], gone["reason"]) == ("client", True, 0, reason.name(0))
    assert gone["connected_us"] == 3 * SECOND
    assert gone["messages_in"] == 3
    assert gone["bytes_out"] == sent
    assert gone["bytes_in"] > 3 * len("a") + 3


def test_the_end_of_a_connection_names_its_beginning_though_the_clock_was_set(box: Box) -> None:
    """Who reads events joins the two by it."""
    ear = listener(box)
    peer = box.client("c")
    peer.connect()
    (came,) = told(ear)
    box.advance(3 * SECOND)
    box.node.set_wall(box.now + 1234, box.now)  # a little ahead
    box.advance(SECOND)
    peer.disconnect()
    (gone,) = told(ear)
    assert gone["time_us"] == came["time_us"] + 4 * SECOND + 1234
    assert gone["time_us"] - gone["connected_us"] == came["time_us"]


@pytest.mark.parametrize(("code", "clean"), [(0, True), (4, True), (0x80, False), (0x99, False)])
def test_what_the_client_says_is_told(box: Box, code: int, clean: bool) -> None:
    ear = listener(box)
    peer = box.client("c")
    peer.connect()
    peer.disconnect(code)
    (gone,) = told(ear, "disconnected")
    assert (gone["by"], gone["clean"], gone["code"]) == ("client", clean, code)


def test_a_line_that_breaks_has_no_reason_code(box: Box) -> None:
    ear = listener(box)
    peer = box.client("c")
    peer.connect()
    peer.lose()
    (gone,) = told(ear, "disconnected")
    assert (gone["by"], gone["clean"], gone["code"], gone["why"]) == ("network", False, None, "reset by peer")


def test_what_the_node_ends_has_its_reason(box: Box) -> None:
    ear = listener(box)
    peer = box.client("c", V311)
    peer.connect(keep_alive_s=2)
    box.advance(4 * SECOND)
    (gone,) = told(ear, "disconnected")
    assert (gone["by"], gone["clean"], gone["code"]) == ("node", False, reason.KEEP_ALIVE_TIMEOUT)
    assert gone["connected_us"] == 3 * SECOND
    other = box.client("d")
    other.connect()
    again = box.client("d")
    again.connect()
    assert [gone["code"] for gone in told(ear, "disconnected")] == [reason.SESSION_TAKEN_OVER]


def test_a_refused_client_is_told_once_and_as_nothing_else(make: MakeBox) -> None:
    box = make(check=lambda user, password, client: user == "good", allow_anonymous=False, bystander=False)
    ear = box.client("listener")
    ear.connect(username="good", password=b"p")
    ear.subscribe(ALL, qos=1)
    ear.publishes()
    box.client("c").connect(username="bad", password=b"p4ssw0rd", code=None)
    (refused,) = told(ear)
    assert refused["kind"] == "refused"
    assert (refused["client"], refused["username"], refused["code"]) == ("c", "bad", 0x86)
    assert "p4ssw0rd" not in json.dumps(refused)


def test_clients_cannot_publish_there(box: Box) -> None:
    ear = listener(box)
    peer = box.client("c")
    peer.connect()
    assert peer.publish("$events/node1/connected", b"{}", qos=1) == reason.NOT_AUTHORIZED
    assert told(ear, "refused") == []
    assert [event["kind"] for event in told(ear)] == []


def test_wildcards_at_the_first_level_do_not_match(box: Box) -> None:
    ear = listener(box, "#", "+/node1/connected")
    box.client("c").connect()
    assert ear.publishes() == []
    assert not box.node._state.listening


def test_nothing_is_made_where_nobody_listens(box: Box) -> None:
    peer = box.client("c")
    peer.connect()
    peer.publish("a", b"x", qos=1)
    state = box.node._state
    assert (state.listening, state.meter.on, state.counters.events_published) == (False, False, 0)
    ear = listener(box)
    assert state.listening
    assert state.meter.on
    ear.unsubscribe(ALL)
    box.run()
    assert (state.listening, state.meter.on) == (False, False)


def test_only_the_kinds_that_are_taken_are_made(box: Box) -> None:
    ear = listener(box, "$events/+/refused")
    peer = box.client("c")
    peer.connect()
    peer.disconnect()
    assert told(ear) == []
    assert box.node.counters.events_published == 0
    assert not box.node._state.meter.on


def test_a_name_that_nobody_knows_is_not_as_long_in_events_as_in_a_packet(make: MakeBox) -> None:
    """A stranger may send 60,000 characters, and 16,384 events may wait."""
    box = make(check=lambda username, _password, _client_id: username == "ear")
    ear = box.client("listener")
    ear.connect(username="ear", password=b"")
    ear.subscribe(ALL, qos=1)
    ear.publishes()
    box.client("c").connect(username="u" * 60_000, password=b"", code=0x86)
    box.client("c" * 30_000).connect(username="u", password=b"", code=0x85)
    by_name, by_id = told(ear, "refused")
    assert by_name["username"] == "u" * 1024 + "..."
    assert by_id["client"] == "c" * 1024 + "..."


@pytest.mark.parametrize("cached", [0, 1, 5, 100])
def test_a_turn_does_not_ask_who_takes_them_unless_subscriptions_have_changed(make: MakeBox, cached: int) -> None:
    """Even if the cache has no room for the routes of all kinds."""
    box = make(limits={"route_cache_max": cached})
    peer = box.client("a")
    peer.connect()
    for _ in range(3):
        peer.ping()
    counters = box.node.counters
    before = counters.route_misses
    for _ in range(3):
        peer.ping()
    assert counters.route_misses == before
    ear = listener(box)
    assert counters.route_misses > before
    box.client("b").connect()
    assert [event["client"] for event in told(ear, "connected")] == ["b"]


def test_a_stream_keeps_them_from_the_start_on(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("events", b"$events/#", 2), StreamConfig("all", b"#", 2)])
    peer = box.client("c")
    peer.connect()
    peer.disconnect()
    box.advance(SECOND)
    found = records(box, "events")
    kinds = [(event["kind"], event.get("what"), event.get("client")) for event in found]
    assert kinds[0] == ("node", "opened", None)
    assert kinds[-2:] == [("connected", None, "c"), ("disconnected", None, "c")]
    assert [event["number"] for event in found] == list(range(1, len(found) + 1))
    assert records(box, "all") == [], "# takes no events"
    first = found[0]["incarnation"]
    box.restart()
    box.advance(SECOND)
    again = [event for event in records(box, "events") if event["incarnation"] > first]
    assert [event.get("what") for event in again][:1] == ["opened"]
    stopped = [event for event in records(box, "events") if event.get("what") == "stopping"]
    assert [event["incarnation"] for event in stopped] == [first]


def test_events_reach_persistent_sessions_that_are_away(box: Box) -> None:
    ear = box.client("listener")
    ear.connect(session_expiry=EVER)
    ear.subscribe("$events/+/connected", qos=1)
    ear.lose()
    box.client("c").connect()
    ear.connect(clean_start=False, session_expiry=EVER)
    assert "c" in [event["client"] for event in told(ear)]


def test_they_cause_no_events(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("events", b"$events/#", 1)])
    listener(box)
    box.advance(60 * SECOND)
    before = len(records(box, "events"))
    box.advance(600 * SECOND)
    assert len(records(box, "events")) == before


def test_what_cannot_be_published_is_dropped_and_counted_and_its_number_is_missing(box: Box) -> None:
    ear = listener(box)
    box.client("c").connect()
    (before,) = told(ear)
    box.storage(True)
    box.client("d").connect()
    assert told(ear) == []
    assert box.node.counters.events_dropped == 2, "that the disk is full, and that d has come"
    box.storage(False)
    (room,) = told(ear)
    assert (room["what"], room["number"]) == ("storage_has_room", before["number"] + 3)


def test_no_more_than_so_many_wait(box: Box) -> None:
    listener(box)
    state = box.node._state
    for number in range(20_000):
        state.tell("refused", {"client": str(number)})
    assert len(state.news) == 16_384
    assert state.counters.events_dropped == 20_000 - 16_384
    box.run()
    box.advance(SECOND)
    assert not state.news


# -- latency


def latencies(ear: Peer) -> dict[str, dict[str, Any]]:
    return {event["prefix"]: event for event in told(ear, "latency")}


def test_an_acknowledgement_that_waits_for_the_disk_is_timed(box: Box) -> None:
    ear = listener(box, "$events/+/latency")
    persistent = box.client("q")
    persistent.connect(session_expiry=EVER)
    persistent.subscribe("plant/#", qos=1)
    peer = box.client("p")
    peer.connect()
    box.hold_writes()
    for number in range(3):
        peer.send(Publish(b"plant/1", b"x", 1, False, False, number + 1, None))
    box.advance(7 * MILLISECOND)
    box.release_writes()
    peer.publish("plant/2", b"y", qos=1)
    box.advance(10 * SECOND)
    found = latencies(ear)
    assert set(found) == {"plant"}
    event = found["plant"]
    assert event["objective_us"] == 5000
    ack = event["ack"]
    assert (ack["taken"], ack["count"], ack["within"], ack["failed"], ack["waiting"]) == (4, 4, 1, 0, 0)
    assert ack["buckets"] == [[0, 1], [bucket_of(7000), 3]]
    assert event["to_us"] - event["from_us"] <= 10 * SECOND


def test_what_waits_is_told_while_it_waits(box: Box) -> None:
    ear = listener(box, "$events/+/latency")
    persistent = box.client("q")
    persistent.connect(session_expiry=EVER)
    persistent.subscribe("plant/#", qos=1)
    peer = box.client("p")
    peer.connect()
    box.advance(10 * SECOND)
    told(ear)
    box.hold_writes()
    at = box.now
    peer.send(Publish(b"plant/1", b"x", 1, False, False, 1, None))
    box.advance(10 * SECOND)  # the disk stands still; what tells of it needs no disk
    (event,) = latencies(ear).values()
    assert (event["ack"]["count"], event["ack"]["waiting"]) == (0, 1)
    assert event["ack"]["waiting_us"] == event["to_us"] - at
    box.release_writes()
    box.advance(10 * SECOND)
    (event,) = latencies(ear).values()
    assert (event["ack"]["taken"], event["ack"]["count"], event["ack"]["within"]) == (0, 1, 0)


@pytest.mark.parametrize("version", [V311, V5])
def test_live_runs_are_timed_as_one(box: Box, version: int) -> None:
    ear = listener(box, "$events/+/latency")
    for name in ("a", "b"):
        sub = box.client(name, version)
        sub.connect()
        sub.subscribe("live/#", qos=1)
    peer = box.client("p", version)
    peer.connect()
    peer.publish("live/1", b"first", qos=1)
    run = b"".join(encode(Publish(b"live/1", b"x%02d" % n, 1, False, False, n + 10, None), version) for n in range(20))
    peer.raw(run)
    peer.raw(b"".join(encode(Publish(b"live/1", b"y%02d" % n, 0, False, False, 0, None), version) for n in range(20)))
    box.advance(10 * SECOND)
    event = latencies(ear)["live"]
    assert event["ack"]["count"] == event["ack"]["within"] == 21
    assert event["deliver"]["count"] >= 80, "40 messages to two, and a sample of the first"
    assert event["deliver"]["count"] == event["deliver"]["within"]


def test_prefixes_beyond_the_bound_share_one(make: MakeBox) -> None:
    box = make(limits={"events_prefixes_max": 3, "events_prefix_levels": 2})
    ear = listener(box, "$events/+/latency")
    peer = box.client("p")
    peer.connect()
    for number in range(9):
        peer.publish(f"a/{number}/x", b"x", qos=1)
    box.advance(10 * SECOND)
    found = latencies(ear)
    assert {prefix: event["ack"]["count"] for prefix, event in found.items()} == {
        "a/0": 1,
        "a/1": 1,
        "a/2": 1,
        "(others)": 6,
    }
    peer.publish("a/8/x", b"x", qos=1)
    box.advance(10 * SECOND)
    assert set(latencies(ear)) == {"a/8"}, "a new interval, new places"


def test_an_interval_without_messages_tells_nothing(box: Box) -> None:
    ear = listener(box, "$events/+/latency")
    box.advance(60 * SECOND)
    assert told(ear) == []
    assert box.now > START


def test_overload_is_told_but_not_that_of_the_events_themselves(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("events", b"$events/#", 1)], limits={"write_backlog_bytes_max": 65_536})
    keeper = box.client("q")
    keeper.connect(session_expiry=EVER)
    keeper.subscribe("q", qos=1)
    peer = box.client("p")
    peer.connect()
    box.hold_writes()
    for number in range(10):
        peer.send(Publish(b"q", bytes(3000), 1, False, False, number + 1, None))
    box.release_writes()
    box.advance(60 * SECOND)
    levels = [event["level"] for event in records(box, "events") if event["kind"] == "overload"]
    assert levels[-1:] == [0]
    assert max(levels) > 0
    state = box.node._state
    state.overload_own = 7  # by what is no message of a client
    box.node._broker.delivery.event_publisher.step()
    assert not state.news


def test_what_waits_behind_another_message_is_timed_from_its_own_turn(box: Box) -> None:
    ear = listener(box, "$events/+/latency")
    persistent = box.client("q")
    persistent.connect(session_expiry=EVER)
    persistent.subscribe("stored/#", qos=1)
    peer = box.client("p")
    peer.connect()
    box.hold_writes()
    peer.send(Publish(b"stored/1", b"x", 1, False, False, 1, None))
    box.advance(20 * MILLISECOND)
    peer.send(Publish(b"unheard/1", b"x", 1, False, False, 2, None))  # nothing to write, but its turn is behind
    box.advance(10 * MILLISECOND)
    box.release_writes()
    box.advance(10 * SECOND)
    found = latencies(ear)
    assert found["stored"]["ack"]["buckets"] == [[bucket_of(30_000), 1]]
    assert found["unheard"]["ack"]["buckets"] == [[bucket_of(10_000), 1]]

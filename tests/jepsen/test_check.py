"""The checker can fail: a fault that is planted in a good history is found, under its promise; a good one is clean."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jepsen import history
from tests.jepsen.check import check, report
from tests.jepsen.excuse import EXCUSES
from tests.jepsen.history import Event
from tests.jepsen.ledger import Ledger, matches
from tests.jepsen.nemesis import NEMESES
from tests.jepsen.sample import Story, good
from tests.jepsen.verdict import PROMISES, Verdict

LIMITS = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
PAGE = LIMITS.with_name("jepsen.md")

Plant = Callable[[list[Event]], None]


def where(events: list[Event], kind: str, **fields: Any) -> list[int]:
    """The places of events of a kind with these fields."""
    return [
        place
        for place, event in enumerate(events)
        if event["e"] == kind and all(event.get(key) == value for key, value in fields.items())
    ]


def broken(verdict: Verdict) -> set[tuple[str, str]]:
    return {(one.promise, one.kind) for one in verdict.broken()}


def excused(verdict: Verdict) -> set[str]:
    return {one.excuse for one in verdict.excused()}


def drop(value: str, client: int | None = None) -> Plant:
    """A message never arrives."""

    def plant(events: list[Event]) -> None:
        fields = {"k": client} if client else {}
        for place in reversed(where(events, "publish", d="in", value=value, **fields)):
            del events[place]

    return plant


def arrives_again(value: str) -> Plant:
    """A message arrives a second time, under another packet id."""

    def plant(events: list[Event]) -> None:
        place = where(events, "publish", d="in", value=value)[-1]
        events.insert(place + 4, {**events[place], "t": events[place]["t"] + 31_000, "id": 60_000})

    return plant


def swapped(one: str, other: str) -> Plant:
    """Two messages arrive in the wrong order."""

    def plant(events: list[Event]) -> None:
        for first, second in zip(
            where(events, "publish", d="in", value=one), where(events, "publish", d="in", value=other), strict=True
        ):
            events[first]["value"], events[second]["value"] = other, one

    return plant


def records(events: list[Event], node: str) -> list[list[Any]]:
    """The records of the last page that a node gave."""
    found: list[list[Any]] = events[where(events, "records", node=node)[-1]]["records"]
    return found


def changed_offset(events: list[Event]) -> None:
    held = records(events, "n2")
    held[3][1:], held[4][1:] = held[4][1:], held[3][1:]


def changed_since_read(events: list[Event]) -> None:
    """All nodes agree at the end, on something other than what had been read before."""
    for node in ("n1", "n2", "n3"):
        held = records(events, node)
        held[3][1:], held[4][1:] = held[4][1:], held[3][1:]


def gap(events: list[Event]) -> None:
    del records(events, "n3")[10]


def in_no_stream(events: list[Event]) -> None:
    for node in ("n1", "n2", "n3"):
        held = records(events, node)
        held[50][1:] = held[49][1:]


def stream_behind(events: list[Event]) -> None:
    events[where(events, "records", node="n2")[-1]]["end"] = 30
    del records(events, "n2")[30:]


def stream_order(events: list[Event]) -> None:
    for node in ("n1", "n2", "n3"):
        held = records(events, node)
        held[51][1:], held[55][1:] = held[55][1:], held[51][1:]


def lost_subscription(events: list[Event]) -> None:
    for number in range(31, 61):
        drop(f"pub0:{number}", 2 if number <= 30 else None)(events)


def lost_session(events: list[Event]) -> None:
    later = where(events, "connect", c="steady")[-1]
    events[later + 1]["present"] = False


def split_identity(events: list[Event]) -> None:
    """Both connections of one client id are served."""
    older, newer = (events[place]["k"] for place in where(events, "connect", c="twin"))
    place = where(events, "close", k=older)[0]
    at = where(events, "pingresp", k=newer)[-1]
    events[place]["t"] = events[at]["t"] + 5_000
    moved = events.pop(place)
    for kind in ("pingreq", "pingresp"):
        events.insert(at, {"t": events[at - 1]["t"] + 1, "e": kind, "k": older})
        at += 1
    events.insert(at, moved)


def stale(events: list[Event]) -> None:
    place = where(events, "publish", d="in", value="keeper:3")[0]
    events[place]["value"] = "keeper:1"


def not_cleared(events: list[Event]) -> None:
    place = where(events, "quiet")[0]
    message = {"topic": "r/1", "value": "keeper:3", "qos": 1, "retain": True, "dup": False, "id": 9}
    events[place] = {"t": events[place]["t"], "e": "publish", "k": events[place]["k"], "d": "in", **message}


def nothing_retained(events: list[Event]) -> None:
    place = where(events, "publish", d="in", value="keeper:2")[0]
    events[place] = {"t": events[place]["t"], "e": "quiet", "k": events[place]["k"]}


def nodes_differ(events: list[Event]) -> None:
    """At the end one node says something else; the last clear is not acknowledged, so that both are legal."""
    clear = where(events, "publish", d="out", value="")[0]
    del events[clear + 1]
    end = where(events, "phase", name="end")[0]
    at = events[end]["t"] - 9_000
    for number, (node, value) in enumerate((("n1", ""), ("n3", "keeper:3"))):
        k = 900 + number
        asked = {"k": k, "c": f"last{number}", "node": node, "clean": True, "expiry": 0, "will": None}
        added = [
            {"e": "connect", **asked},
            {"e": "connack", "k": k, "code": 0, "present": False},
            {"e": "subscribe", "k": k, "id": 1, "filters": [["r/#", 1]]},
            {"e": "suback", "k": k, "id": 1, "codes": [1]},
        ]
        if value:
            message = {"topic": "r/1", "value": value, "qos": 1, "retain": True, "dup": False, "id": 9}
            added.append({"e": "publish", "d": "in", "k": k, **message})
        else:
            added.append({"e": "quiet", "k": k})
        for event in added:
            at += 100
            events.insert(end, {"t": at, **event})
            end += 1


def will_of_the_living(events: list[Event]) -> None:
    """A will comes, and its client is answered afterwards."""
    mortal = events[where(events, "connect", c="will")[0]]["k"]
    close = where(events, "close", k=mortal)[0]
    came = where(events, "publish", d="in", value="will:0")[0]
    for number, kind in enumerate(("pingreq", "pingresp")):
        events.insert(came + 1 + number, {"t": events[came]["t"] + 1 + number, "e": kind, "k": mortal})
    moved = events.pop(close)
    events.insert(came + 2, {**moved, "t": events[came]["t"] + 3})


def early_will(events: list[Event]) -> None:
    place = where(events, "publish", d="in", value="will:1")[0]
    events[place]["t"] -= 1_500_000


def will_after_goodbye(events: list[Event]) -> None:
    mortal = events[where(events, "connect", c="will")[0]]["k"]
    place = where(events, "close", k=mortal)[0]
    events.insert(place, {"t": events[place]["t"] - 1, "e": "disconnect", "d": "out", "k": mortal, "code": 0})


def invented(events: list[Event]) -> None:
    place = where(events, "publish", d="in", value="pub0:12")[0]
    events[place]["value"] = "!6a756e6b"


def wrong_topic(events: list[Event]) -> None:
    events[where(events, "publish", d="in", value="pub0:12")[0]]["topic"] = "j/1"


def before_it_was_sent(events: list[Event]) -> None:
    sent = events[where(events, "publish", d="out", value="pub0:12")[0]]["t"]
    events[where(events, "publish", d="in", value="pub0:12")[0]]["t"] = sent - 1


def unanswered(kind: str) -> Plant:
    """The last probe of n1 gets no answer for twenty seconds, while n1 says it is ready."""

    def plant(events: list[Event]) -> None:
        k = events[where(events, "connect", c="probe-n1-60")[0]]["k"]
        first = where(events, kind, k=k)[0]
        for place in reversed([at for at, event in enumerate(events) if at >= first and event.get("k") == k]):
            del events[place]
        shift = 20_000_000
        for event in events[first:]:
            event["t"] += shift
            if "sent" in event:
                event["sent"] += shift
        begin = events[first - 1]["t"]
        events[first:first] = [
            {
                "t": begin + 1_000_000 * at,
                "sent": begin + 1_000_000 * at - 100,
                "e": "ready",
                "node": "n1",
                "status": 200,
            }
            for at in range(20)
        ]

    return plant


def not_ready_at_the_end(events: list[Event]) -> None:
    events[where(events, "ready", node="n2")[-1]]["status"] = 503


def gone_at_the_end(events: list[Event]) -> None:
    place = where(events, "phase", name="final")[0]
    k = events[where(events, "connect", c="wills")[-1]]["k"]
    events.insert(place, {"t": events[place]["t"] - 1, "e": "close", "k": k, "by": "peer", "why": ""})


def died(events: list[Event]) -> None:
    events.insert(5, {"t": events[4]["t"], "e": "died", "node": "n2", "status": -6})


def no_rest(events: list[Event]) -> None:
    place = where(events, "phase", name="final")[0]
    busy = {"pub0": "waits for 2 acknowledgements"}
    events.insert(place, {"t": events[place]["t"] - 1, "e": "unsettled", "busy": busy})


def uncommitted(events: list[Event]) -> None:
    for kind in ("commit", "committed"):
        del events[where(events, kind, number=3)[0]]


def refused(events: list[Event]) -> None:
    place = where(events, "committed", number=3)[0]
    events[place]["e"] = "uncommitted"


def whole(number: int) -> Plant:
    """A transaction does not arrive."""

    def plant(events: list[Event]) -> None:
        for place in range(3):
            drop(f"teller:{number}:{place}")(events)

    return plant


PLANTS: dict[str, tuple[Plant, str, str]] = {
    "a message is lost": (drop("pub0:24"), "A1", "lost"),
    "a message is lost to all members of a group": (drop("pub0:25", 3), "A1", "lost to a group"),
    "a subscription is lost": (lost_subscription, "A1", "subscription lost"),
    "the first message after SUBACK is missed": (drop("pub0:2"), "A5", "lost"),
    "a session is lost": (lost_session, "A1", "session lost"),
    "a message is invented": (invented, "A2", "never published"),
    "a message comes on another topic": (wrong_topic, "A2", "wrong topic"),
    "a message comes before it was sent": (before_it_was_sent, "A2", "not yet published"),
    "two messages are swapped": (swapped("pub0:12", "pub0:16"), "A3", "overtaken"),
    "two records are swapped": (stream_order, "A3", "overtaken in the stream"),
    "a QoS 2 message comes twice": (arrives_again("pub0:26"), "A4", "twice"),
    "two connections of one client id live": (split_identity, "A6", "two connections"),
    "a will is lost": (drop("will:0"), "A7", "will lost"),
    "a will comes twice": (arrives_again("will:0"), "A7", "will twice"),
    "a will comes though its client lives": (will_of_the_living, "A7", "will of the living"),
    "a will comes before its delay is over": (early_will, "A7", "will early"),
    "a will comes after DISCONNECT": (will_after_goodbye, "A7", "will not owed"),
    "a retained value is stale": (stale, "A8", "not the latest"),
    "a cleared value is back": (not_cleared, "A8", "not the latest"),
    "a retained value is not found": (nothing_retained, "A8", "not the latest"),
    "nodes differ in what is retained": (nodes_differ, "A8", "nodes differ"),
    "an offset differs between nodes": (changed_offset, "A9", "offset changed"),
    "an offset changes after it was read": (changed_since_read, "A9", "offset changed"),
    "an offset is left out": (gap, "A9", "gap"),
    "a message is in no stream": (in_no_stream, "A9", "in no stream"),
    "a record is there twice": (in_no_stream, "A9", "record twice"),
    "a node lacks the end of the stream": (stream_behind, "A9", "nodes differ"),
    "a transaction is lost": (whole(1), "A10", "lost"),
    "a transaction arrives in part": (drop("teller:1:1"), "A10", "in part"),
    "a message of a transaction comes twice": (arrives_again("teller:1:1"), "A10", "twice"),
    "a transaction arrives that nobody committed": (uncommitted, "A10", "not committed"),
    "transactions arrive in the wrong order": (swapped("teller:1:1", "teller:3:1"), "A10", "overtaken"),
    "a staged transaction is refused": (refused, "A10", "refused"),
    "a CONNECT is not answered": (unanswered("connack"), "A11", "not served"),
    "a PUBLISH is not answered": (unanswered("puback"), "A11", "not served"),
    "a node ends by itself": (died, "A11", "ended by itself"),
    "a node is not ready at the end": (not_ready_at_the_end, "A12", "not ready"),
    "clients find no rest": (no_rest, "A12", "no rest"),
    "a client is not connected at the end": (gone_at_the_end, "A12", "not connected"),
}


@pytest.mark.parametrize("policy", ["majority", "available"])
def test_a_good_history_is_clean_and_judges_every_promise(policy: str) -> None:
    verdict = check(good(policy).events)
    assert (verdict.findings, [name for name in PROMISES if not verdict.judged[name]]) == ([], []), report(verdict)


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant, promise, kind = PLANTS[name]
    events = copy.deepcopy(good().events)
    plant(events)
    verdict = check(sorted(events, key=lambda event: event["t"]))
    assert (promise, kind) in broken(verdict), report(verdict)
    assert f"{promise} broken: {kind}" in report(verdict)


@pytest.mark.parametrize("name", PLANTS)
def test_no_policy_excuses_a_fault_without_a_cause(name: str) -> None:
    """`available` splits only where a link was cut."""
    plant, promise, kind = PLANTS[name]
    events = copy.deepcopy(good("available").events)
    plant(events)
    assert (promise, kind) in broken(check(sorted(events, key=lambda event: event["t"])))


def test_a_lost_subscription_is_told_from_a_lost_message() -> None:
    one, many = copy.deepcopy(good().events), copy.deepcopy(good().events)
    drop("pub0:24")(one)
    lost_subscription(many)
    assert {kind for _, kind in broken(check(one))} == {"lost"}
    assert ("A1", "subscription lost") in broken(check(many))


# --- what is excused, and what is not


def two_sides(policy: str) -> Story:
    """A publisher that was answered by no side sends again to the other one, and both have taken the message."""
    story = Story(policy)
    subscriber = story.connect("steady", "n2")
    story.subscribe(subscriber, ("j/#", 2))
    publisher = story.connect("pub0", "n1")
    story.world(cut=[["n1", "n2"], ["n2", "n1"], ["n1", "n3"], ["n3", "n1"]])
    message = {"topic": "j/0", "value": "pub0:1", "qos": 2, "retain": False, "id": 7}
    story.add("publish", k=publisher, d="out", **message, dup=False)
    story.close(publisher)
    publisher = story.connect("pub0", "n2")
    story.add("publish", k=publisher, d="out", **message, dup=True)
    story.add("pubrec", k=publisher, d="in", id=7, code=0)
    story.world()
    story.deliver(subscriber, "j/0", "pub0:1", 2)
    story.deliver(subscriber, "j/0", "pub0:1", 2)
    return story


def test_two_sides_may_both_take_a_message_where_both_serve() -> None:
    assert (broken(check(two_sides("available").events)), excused(check(two_sides("available").events))) == (
        set(),
        {"two-sides-twice"},
    )
    assert broken(check(two_sides("majority").events)) == {("A4", "twice")}


def test_a_message_that_was_sent_to_one_side_only_has_no_excuse() -> None:
    events = [event for event in two_sides("available").events if not event.get("dup")]
    assert broken(check(events)) == {("A4", "twice")}


def behind_resets(name: str, after_s: float) -> Story:
    """A client moves to another node while its former one is cut off, and both answer it."""
    story = Story()
    older = story.connect("twin", "n1")
    story.add("fault", name=name, do="begin", what="n1")
    story.world(cut=[["n1", "n2"], ["n2", "n1"], ["n1", "n3"], ["n3", "n1"]])
    story.wait(after_s)
    story.connect("twin", "n2")
    story.add("pingreq", k=older)
    story.add("pingresp", k=older)
    return story


def test_a_node_that_is_refused_by_others_may_answer_until_it_has_seen_it() -> None:
    found = check(behind_resets("split-reset", 0.1).events)
    assert (broken(found), excused(found)) == (set(), {"resets-id"})
    assert broken(check(behind_resets("split", 0.1).events)) == {("A6", "two connections")}
    assert broken(check(behind_resets("split-reset", 1.0).events)) == {("A6", "two connections")}


def will_at(nodes: tuple[str, str], cut: list[str]) -> Story:
    """A client dies while a link is cut, and a subscriber gets its will once at each of two nodes."""
    story = Story("available")
    mortal = story.connect("will", "n2", will={"topic": "w/1", "value": "will:0", "qos": 2, "delay": 0})
    subscriber = story.connect("wills", nodes[0])
    story.subscribe(subscriber, ("w/#", 2))
    mortal = story.connect("will", "n2", will={"topic": "w/1", "value": "will:1", "qos": 2, "delay": 0})
    story.world(cut=[cut, cut[::-1]])
    story.close(mortal)
    story.deliver(subscriber, "w/1", "will:1", 2)
    story.close(subscriber)
    subscriber = story.connect("wills", nodes[1])
    story.deliver(subscriber, "w/1", "will:1", 2)
    story.close(subscriber)
    return story


def test_each_side_gives_its_will_to_a_subscriber_that_changes_sides() -> None:
    kinds = {("A7", "will twice")}
    found = check(will_at(("n3", "n2"), ["n2", "n3"]).events)
    assert kinds & broken(found) == set()
    assert "two-sides-will-again" in excused(found)
    assert kinds <= broken(check(will_at(("n3", "n2"), ["n1", "n3"]).events)), "no link of its node was cut"
    assert kinds <= broken(check(will_at(("n2", "n2"), ["n2", "n3"]).events)), "one side has given it twice"


def looks_without(back: str, cut: list[list[str]]) -> Story:
    """A retained value is not found at n2; `back` has come back just before."""
    story = Story()
    keeper = story.connect("keeper", "n1")
    story.publish(keeper, "r/1", "keeper:1", retain=True)
    story.world(down=[back])
    story.world()
    story.wait(5)
    story.world(cut=cut)
    looker = story.connect("look1", "n2", expiry=0)
    story.subscribe(looker, ("r/#", 1))
    story.wait(4)
    story.add("quiet", k=looker)
    return story


def test_what_is_retained_may_be_away_with_all_copies_in_sync() -> None:
    alone = [["n2", "n1"], ["n1", "n2"], ["n2", "n3"], ["n3", "n2"]]
    found = check(looks_without("n2", alone).events)
    assert (broken(found), excused(found)) == (set(), {"copies-away"})
    assert broken(check(looks_without("n2", []).events)) == {("A8", "not the latest")}, "all are there"
    assert broken(check(looks_without("n1", alone).events)) == {("A8", "not the latest")}, "n2 was in sync"
    assert broken(check(looks_without("n2", alone[:2]).events)) == {("A8", "not the latest")}, "n3 has it"


@pytest.mark.parametrize(("back", "kinds"), [(["n3", "n4"], set()), (["n3"], {("A8", "not the latest")})])
def test_a_node_that_lacks_links_may_be_put_out_with_the_only_copy_in_sync(
    back: list[str], kinds: set[tuple[str, str]]
) -> None:
    """n1 reaches n2 and n4, and is put out; two of the others may lack what it has."""
    story = Story(nodes=5)
    keeper = story.connect("keeper", "n1")
    story.publish(keeper, "r/1", "keeper:1", retain=True)
    story.world(down=back)
    story.world()
    story.wait(5)
    story.world(cut=[["n1", "n3"], ["n3", "n1"], ["n1", "n5"], ["n5", "n1"]])
    looker = story.connect("look1", "n5", expiry=0)
    story.subscribe(looker, ("r/#", 1))
    story.wait(4)
    story.add("quiet", k=looker)
    found = check(story.events)
    assert (broken(found), excused(found)) == (kinds, set() if kinds else {"copies-away"})


@pytest.mark.parametrize(("node", "judged"), [("n2", 0), ("n1", 1)])
@pytest.mark.parametrize("what", ["clients", "stopped"])
def test_a_client_has_not_looked_whose_link_is_cut_or_whose_node_is_stopped(what: str, node: str, judged: int) -> None:
    story = looks_without("n2", [])
    place = where(story.events, "subscribe")[0]
    quiet = {"t": story.events[place]["t"], "e": "world", "cut": [], "down": [], "stopped": [], "clients": []}
    story.events.insert(place + 1, {**quiet, what: [node]})
    found = check(story.events)
    assert found.judged["A8"] == judged
    assert broken(found) == ({("A8", "not the latest")} if judged else set())


@pytest.mark.parametrize(("percent", "kinds"), [(40, set()), (20, {("A11", "not served")})])
def test_a_node_that_loses_a_third_of_its_packets_may_be_late(percent: int, kinds: set[tuple[str, str]]) -> None:
    events = copy.deepcopy(good().events)
    unanswered("puback")(events)
    assert broken(check(lossy(events, percent))) == kinds


@pytest.mark.parametrize(("percent", "kinds"), [(40, set()), (20, {("A7", "will not owed")})])
def test_a_node_that_loses_a_third_of_its_packets_may_be_put_out_with_a_disconnect(
    percent: int, kinds: set[tuple[str, str]]
) -> None:
    events = copy.deepcopy(good().events)
    will_after_goodbye(events)
    assert broken(check(lossy(events, percent))) == kinds


@pytest.mark.parametrize(("percent", "kinds"), [(40, set()), (20, {("A8", "not the latest")})])
def test_a_retained_message_of_a_node_that_loses_a_third_of_its_packets_may_be_late(
    percent: int, kinds: set[tuple[str, str]]
) -> None:
    assert broken(check(lossy(looks_without("n2", []).events, percent))) == kinds


def lossy(events: list[Event], percent: int) -> list[Event]:
    """The same history, in which a node loses so many of its packets all the time."""
    loss = {"t": events[0]["t"], "e": "fault", "name": "loss", "do": "begin", "what": f"n1, {percent} %, 9.0 s"}
    return sorted([events[0], loss, *events[1:]], key=lambda event: event["t"])


@pytest.mark.parametrize(("after_s", "kinds"), [(0.2, set()), (2.0, {("A9", "record twice")})])
def test_a_message_that_any_node_may_have_stored_before_a_split_may_be_twice(
    after_s: float, kinds: set[tuple[str, str]]
) -> None:
    """It was sent to the node in the middle, which forwards it to one that is left behind."""
    story = Story("available")
    publisher = story.connect("pub0", "n3")
    story.world(cut=[["n1", "n2"], ["n2", "n1"]])
    story.world()
    story.wait(after_s)
    story.publish(publisher, "j/0", "pub0:1", 2)
    story.add("phase", name="final")
    story.page("n1", 0, [["j/0", "pub0:1", "pub0"], ["j/0", "pub0:1", "pub0"]])
    assert broken(check(story.events)) == kinds


def alone(policy: str, replicas: int) -> list[Event]:
    """A client is told that it has no session, by a node that sees no other."""
    story = Story(policy, replicas)
    first = story.connect("steady", "n2")
    story.close(first)
    story.world(cut=[["n1", "n2"], ["n1", "n3"]])
    story.sessions.clear()
    story.connect("steady", "n1")
    return story.events


@pytest.mark.parametrize("policy", ["available", "majority"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_session_without_a_copy_is_refused_and_not_begun_anew(policy: str, replicas: int) -> None:
    assert broken(check(alone(policy, replicas))) == {("A1", "session lost")}


def test_a_message_without_acknowledgement_may_be_lost() -> None:
    events = copy.deepcopy(good().events)
    ids = {events[place]["id"] for place in where(events, "publish", d="out", value="pub0:24")}
    plants = [place for place, event in enumerate(events) if event["e"] in ("puback", "pubrec") and event["d"] == "in"]
    for place in reversed([place for place in plants if events[place]["id"] in ids]):
        del events[place]
    drop("pub0:24")(events)
    for node in ("n1", "n2", "n3"):
        records(events, node)  # a record of a message without acknowledgement is no fault either
    assert broken(check(events)) == set()


def test_a_refused_message_is_not_owed() -> None:
    events = copy.deepcopy(good().events)
    place = where(events, "publish", d="out", value="pub0:24")[0]
    events[place + 1]["code"] = 0x97
    drop("pub0:24")(events)
    assert broken(check(events)) == set()


def test_a_refusal_is_an_answer() -> None:
    events = copy.deepcopy(good().events)
    unanswered("puback")(events)
    last = where(events, "publish", d="out", value="probe-n1-60")[0]
    refusal = {"e": "puback", "d": "in", "k": events[last]["k"], "id": events[last]["id"], "code": 0x97}
    events.insert(last + 1, {**refusal, "t": events[last]["t"] + 1})
    assert broken(check(sorted(events, key=lambda event: event["t"]))) == set()


def test_what_was_unsubscribed_is_not_owed() -> None:
    story = Story()
    subscriber = story.connect("steady", "n2")
    story.subscribe(subscriber, ("j/#", 2))
    publisher = story.connect("pub0", "n1")
    story.publish(publisher, "j/0", "pub0:1")
    story.unsubscribe(subscriber, "j/#")
    assert broken(check(story.events)) == set()
    story.subscribe(subscriber, ("j/#", 2))
    story.publish(publisher, "j/0", "pub0:2")
    assert broken(check(story.events)) == {("A5", "subscription lost")}


def test_what_was_unsubscribed_before_its_suback_came_is_not_owed() -> None:
    story = Story()
    subscriber = story.connect("fickle", "n2")
    story.add("subscribe", k=subscriber, id=7, filters=[["j/#", 2], ["k/#", 2]])
    story.add("unsubscribe", k=subscriber, id=8, filters=["j/#"])
    story.add("suback", k=subscriber, id=7, codes=[2, 2])
    story.add("unsuback", k=subscriber, id=8, codes=[0])
    publisher = story.connect("pub0", "n1")
    story.publish(publisher, "j/0", "pub0:1")
    assert broken(check(story.events)) == set()
    story.publish(publisher, "k/0", "pub0:2")
    assert broken(check(story.events)) == {("A5", "subscription lost")}


def test_a_repetition_under_the_same_packet_id_is_no_duplicate() -> None:
    story = Story()
    publisher, subscriber = story.connect("pub0", "n1"), story.connect("steady", "n2")
    story.subscribe(subscriber, ("j/#", 2))
    story.publish(publisher, "j/0", "pub0:1", 2)
    for _ in range(2):
        story.message("in", subscriber, "j/0", "pub0:1", 2, False)  # no PUBREL between them
    assert broken(check(story.events)) == set()


def test_a_write_without_acknowledgement_may_be_found_at_any_time_later() -> None:
    story = Story()
    keeper = story.connect("keeper", "n1")
    story.message("out", keeper, "r/1", "keeper:1", 1, True)
    story.publish(keeper, "r/1", "keeper:2", retain=True)
    looker = story.connect("look1", "n2", expiry=0)
    story.subscribe(looker, ("r/#", 1))
    story.deliver(looker, "r/1", "keeper:1", retain=True)
    assert broken(check(story.events)) == set()


@pytest.mark.parametrize("name", EXCUSES)
def test_every_excuse_is_documented(name: str) -> None:
    text = " ".join(LIMITS.read_text(encoding="utf-8").split())
    excuse = EXCUSES[name]
    assert excuse.promise in PROMISES
    point = next((part for part in text.split(" - **") if part.startswith(excuse.where)), "")
    assert point, f"docs/limits.md has no point that begins with: {excuse.where}"
    ends = point[point.rindex("(A") :].partition(")")[0]
    assert excuse.promise in ends.strip("(").split(", "), f"{excuse.where} does not qualify {excuse.promise}: {ends}"


# --- histories


def test_a_stored_history_gives_the_same_verdict(tmp_path: Path) -> None:
    events = good().events
    drop("pub0:24")(events)
    history.write(tmp_path / "history.jsonl", events)
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"t":1,"e":"pu')  # a run that was killed while it wrote
    assert report(check(history.read(tmp_path / "history.jsonl"))) == report(check(events))


def test_payloads_carry_their_values_and_nothing_else() -> None:
    for number in range(300):
        payload = history.payload_of(f"pub1:{number}")
        assert history.value_of(payload) == f"pub1:{number}"
        assert history.value_of(payload + b"x").startswith("!")
        assert history.value_of(payload[:-1]).startswith("!")
    assert (history.payload_of(""), history.value_of(b"")) == (b"", "")
    sizes = {len(history.payload_of(f"pub1:{number}")) for number in range(300)}
    assert len(sizes) > 20


def test_filters_match_as_the_standard_says() -> None:
    for name, topic, result in (
        ("j/#", "j/1", True),
        ("j/#", "j", True),
        ("j/+", "j/1", True),
        ("j/+", "j/1/2", False),
        ("+/1", "j/1", True),
        ("j/1", "j/2", False),
        ("$share/g/j/1", "j/1", True),
    ):
        assert matches(name, topic) is result, (name, topic)


def test_the_world_says_what_was_cut_when() -> None:
    story = Story()
    story.world(cut=[["n1", "n2"]])
    cut = story.now
    story.world(down=["n2", "n3"])
    mended = story.now
    story.world()
    world = Ledger(story.events).world
    assert not world.cut_off({"n1"}, 0, cut - 1)
    assert world.cut_off({"n1"}, cut - 1, cut)
    assert world.cut_off({"n2"}, cut + 1, cut + 2)
    assert not world.cut_off({"n3"}, 0, story.now)
    assert not world.cut_off({"n1"}, mended, story.now)
    assert world.unreachable("n1", cut, mended - 1) == 1
    assert world.unreachable("n1", cut, mended) == 2
    assert (world.half_gone(0, mended - 1), world.half_gone(0, mended)) == (False, True)


@pytest.mark.parametrize("name", [*EXCUSES, *NEMESES])
def test_the_page_explains_every_exception_and_every_nemesis(name: str) -> None:
    rows = PAGE.read_text(encoding="utf-8").splitlines()
    row = next((row for row in rows if row.startswith("| `") and f"`{name}`" in row.split(" | ")[0]), "")
    assert row, f"docs/jepsen.md lacks {name}"
    if name in EXCUSES:
        assert row == f"| `{name}` | {EXCUSES[name].promise} | {EXCUSES[name].when} |"


def test_the_page_explains_what_is_judged() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [promise for promise in PROMISES if f"\n| {promise} | " not in text] == []

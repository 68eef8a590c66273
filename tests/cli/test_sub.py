"""sub without a network: filters, what is printed and acknowledged, when it ends."""

from __future__ import annotations

from typing import Any, cast

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes

from folkmoot.cli import main
from folkmoot.cli.connection import Connection, ConnectionOptions
from folkmoot.cli.error import Refusal
from folkmoot.cli.line import Received
from folkmoot.cli.link import Link, Lost
from folkmoot.cli.property import new_properties
from folkmoot.cli.sub import Subscriber, Subscription, form_of


class FakeLink:
    """A link that remembers what is sent."""

    def __init__(self) -> None:
        self.connection = Connection(ConnectionOptions(), "sub", {})
        self.client = self
        self.acknowledged: list[tuple[int, int]] = []
        self.subscribed: list[Any] = []
        self.unsubscribed: list[list[str]] = []
        self.session_present = False
        self.opened: list[bool] = []
        self.turns: list[Any] = []
        self.calls: list[str] = []

    def ack(self, number: int, qos: int) -> None:
        self.acknowledged.append((number, qos))

    def subscribe(self, options: Any, properties: object = None) -> None:
        self.subscribed.append(options)

    def unsubscribe(self, filters: list[str], properties: object = None) -> None:
        self.unsubscribed.append(filters)

    def open(self, again: bool = False) -> None:
        self.opened.append(again)

    def turn(self) -> None:
        event = self.turns.pop(0)
        if isinstance(event, BaseException):
            raise event
        event()

    def settle(self) -> None:
        self.calls.append("settle")

    def close(self) -> None:
        self.calls.append("close")

    def patience(self, _most_s: float) -> float:
        return 0.0

    def check_time(self, _what: str) -> None:
        pass


class Run:
    """A subscriber on a fake link, and what it printed."""

    def __init__(self, *filters: str, without: list[str] | None = None, unsubscribe: list[str] | None = None) -> None:
        self.link = FakeLink()
        wanted = Subscription(list(filters), without or [], unsubscribe or [], 1)
        wanted.set_options(self.link.connection, fresh=False, as_published=False, no_local=False)
        self.printed: list[tuple[str, bytes]] = []
        self.subscriber = Subscriber(cast("Link", self.link), wanted, self.print)

    def print(self, received: Received) -> None:
        self.printed.append((received.topic, received.payload))

    def message(self, topic: str, payload: bytes = b"x", *, retain: bool = False, alias: int = 0) -> None:
        message = MQTTMessage(len(self.link.acknowledged) + 1, topic.encode())
        message.payload, message.qos, message.retain = payload, 1, retain
        message.properties = new_properties(PacketTypes.PUBLISH)
        if alias:
            message.properties.TopicAlias = alias
        self.subscriber.receive(message)


def test_printed_is_acknowledged() -> None:
    run = Run("#")
    run.message("a", b"1")
    run.message("b", b"2")
    assert run.printed == [("a", b"1"), ("b", b"2")]
    assert run.link.acknowledged == [(1, 1), (2, 1)]


def test_what_cannot_be_printed_is_not_acknowledged() -> None:
    run = Run("#")

    def broken(_received: Received) -> None:
        raise BrokenPipeError

    run.subscriber.printer = broken
    with pytest.raises(BrokenPipeError):
        run.message("a")
    assert run.link.acknowledged == []


def test_after_the_count_nothing_is_printed_or_acknowledged() -> None:
    run = Run("#")
    run.subscriber.count = 2
    for payload in (b"1", b"2", b"3"):
        run.message("a", payload)
    assert [payload for _, payload in run.printed] == [b"1", b"2"]
    assert len(run.link.acknowledged) == 2
    assert run.subscriber.done


def test_what_is_filtered_out_is_acknowledged_and_not_counted() -> None:
    run = Run("#", without=["a/#", "+/skip"])
    run.subscriber.count = 1
    for topic in ("a", "a/b", "b/skip", "b/keep"):
        run.message(topic)
    assert run.printed == [("b/keep", b"x")]
    assert len(run.link.acknowledged) == 4


def test_retained_messages_skipped_or_alone() -> None:
    run = Run("#")
    run.subscriber.skip_retained = True
    run.message("a", retain=True)
    run.message("b")
    assert run.printed == [("b", b"x")]
    run = Run("#")
    run.subscriber.only_retained = True
    run.message("a", retain=True)
    run.message("b")
    assert run.printed == [("a", b"x")]
    assert run.subscriber.done
    assert len(run.link.acknowledged) == 1


def test_a_topic_alias_is_resolved() -> None:
    run = Run("#")
    run.message("long", alias=1)
    run.message("", alias=1)
    run.message("other", alias=1)
    run.message("", alias=1)
    assert [topic for topic, _ in run.printed] == ["long", "long", "other", "other"]


def test_a_refused_subscription_beside_a_granted_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("a", "b")
    run.subscriber.subscribe()
    run.subscriber.subscribed(1, [1, 0x87], None)
    assert capsys.readouterr().err == "error: the broker refused the subscription to b: 0x87 Not authorized\n"
    assert not run.subscriber.done


def test_nothing_subscribed_is_an_error() -> None:
    run = Run("a", "b")
    run.subscriber.subscribe()
    with pytest.raises(Refusal, match="to b: 0x8F Topic Filter invalid") as refused:
        run.subscriber.subscribed(1, [0x87, 0x8F], None)
    assert refused.value.status == 1


def test_ready_waits_for_both_answers(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("a", unsubscribe=["b"])
    run.subscriber.ready = True
    run.subscriber.subscribe()
    assert run.link.unsubscribed == [["b"]]
    run.subscriber.subscribed(1, [0], None)
    assert not run.subscriber.done
    run.subscriber.unsubscribed(2, [0x11], None)
    assert run.subscriber.done
    assert "no subscription to b" in capsys.readouterr().err


@pytest.mark.parametrize("present", [False, True])
def test_a_lost_connection_is_taken_up_again(present: bool, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("a")
    run.subscriber.count = 1
    run.link.turns = [Lost("the connection is lost"), lambda: run.message("a")]
    run.link.session_present = present
    run.subscriber.run()
    assert run.link.opened == [False, True]
    assert len(run.link.subscribed) == (1 if present else 2)
    assert run.printed == [("a", b"x")]
    assert run.link.calls == ["close"]
    assert "connection is lost" in capsys.readouterr().err


def test_somebody_with_the_same_client_id_is_not_fought() -> None:
    run = Run("a")
    run.link.turns = [Lost("taken over", 0x8E)]
    with pytest.raises(Lost):
        run.subscriber.run()
    assert run.link.opened == [False]
    assert run.link.calls == ["close"]


def test_ctrl_c_lets_half_received_messages_in() -> None:
    run = Run("a")
    run.link.turns = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        run.subscriber.run()
    assert run.link.calls == ["settle", "close"]


def options_of(**given: Any) -> Any:
    connection = Connection(ConnectionOptions(version=given.pop("version", "5")), "sub", {})
    wanted = Subscription(given.pop("filters", ["a"]), [], [], 2)
    wanted.set_options(connection, **{"fresh": False, "as_published": False, "no_local": False, **given})
    return wanted.options


def test_subscription_options() -> None:
    # MQTT 5.0 section 3.8.3.1: QoS in bits 0 and 1, no local 2, retain as published 3, retain handling 4 and 5.
    assert options_of()[0][1].pack() == b"\x02"
    assert options_of(fresh=True)[0][1].pack() == b"\x22"
    assert options_of(as_published=True, no_local=True)[0][1].pack() == b"\x0e"
    assert options_of(version="311", fresh=True) == [("a", 2)]


@pytest.mark.parametrize(
    "given",
    [
        {"version": "311", "no_local": True},
        {"version": "31", "as_published": True},
        {"filters": ["$share/g/a"], "no_local": True},
    ],
)
def test_options_that_do_not_exist_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        options_of(**given)


@pytest.mark.parametrize(("place", "name"), [(0, "-t"), (1, "-T"), (2, "-U")])
@pytest.mark.parametrize("text", ["a#", "", "$share/g", "a/#/b", "\udcff"])
def test_what_is_no_filter_is_refused(place: int, name: str, text: str) -> None:
    given: list[list[str]] = [[], [], []]
    given[place] = [text]
    with pytest.raises(Refusal, match=name):
        Subscription(given[0], given[1], given[2], 0)


def test_something_to_subscribe_to() -> None:
    def wanted(filters: list[str], **given: Any) -> list[str]:
        found = Subscription(filters, [], [], 0)
        found.add_topic_of(Connection(ConnectionOptions(**given), "sub", {}))
        return found.filters

    assert wanted(["a"], url="mqtt://h/b/#") == ["a", "b/#"]
    assert wanted([], client_id="c", persistent=True) == []
    with pytest.raises(Refusal, match="-t FILTER"):
        wanted([])
    with pytest.raises(Refusal, match="--url"):
        wanted([], url="mqtt://h/b#")


def test_forms_do_not_mix() -> None:
    with pytest.raises(Refusal, match="--json"):
        form_of(True, None, True)
    with pytest.raises(Refusal, match="--json"):
        form_of(False, "%t", True)


def test_wrong_options_have_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", "-t", "a", "-F", "%y"]) == 2
    assert main(["sub"]) == 2
    assert main(["sub", "-t", "a", "-C", "0"]) == 2
    text = capsys.readouterr().err
    assert "-F %y" in text
    assert "-t FILTER" in text
    assert "--count" in text

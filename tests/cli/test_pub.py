"""pub without a network: where payloads come from, the window, what is said of refusals."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from paho.mqtt.packettypes import PacketTypes

from folkmoot.cli import main
from folkmoot.cli.connection import Connection, ConnectionOptions
from folkmoot.cli.error import Refusal
from folkmoot.cli.link import Link, Lost
from folkmoot.cli.property import new_properties
from folkmoot.cli.pub import Publisher, Source, checked_topics, receipt_lines


class Info:
    def __init__(self, mid: int) -> None:
        self.mid = mid


class FakeLink:
    """A link whose broker grants what the test says, and acknowledges the oldest message at each turn."""

    def __init__(self, **granted: int) -> None:
        self.granted = granted
        self.connection = Connection(ConnectionOptions(), "pub", {})
        self.client = self
        self.on_publish: Any = None
        self.published: list[tuple[str, bytes]] = []
        self.unanswered: list[int] = []
        self.code = 0
        self.told: list[tuple[str, str]] = []
        self.most_unanswered = 0
        self.connected = True
        self.closed = False

    def open(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def is_connected(self) -> bool:
        return self.connected

    def granted_value(self, name: str, default: int) -> int:
        return self.granted.get(name, default)

    def publish(self, topic: str, payload: bytes, *_rest: object) -> Info:
        self.published.append((topic, payload))
        self.unanswered.append(len(self.published))
        self.most_unanswered = max(self.most_unanswered, len(self.unanswered))
        return Info(len(self.published))

    def turn(self, wait_s: float = 1.0, also: Sequence[int] = ()) -> bool:
        if not self.connected:
            raise Lost("gone")
        if self.unanswered:
            properties = new_properties(PacketTypes.PUBACK)
            properties.ReasonString = "said so"
            for pair in self.told:
                properties.UserProperty = pair
            self.on_publish(self.unanswered.pop(0), self.code, properties)
        return bool(also)


def publisher(link: FakeLink, *topics: str, qos: int = 1, retain: bool = False, **properties: Any) -> Publisher:
    if properties:
        link.connection.properties["publish"] = new_properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(link.connection.properties["publish"], name, value)
    return Publisher(cast("Link", link), list(topics or ["t"]), qos, retain)


def test_every_topic_gets_every_message_in_order() -> None:
    link = FakeLink()
    publisher(link, "a", "b").run([b"1", b"2"], 10)
    assert link.published == [("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", b"2")]
    assert link.closed


@pytest.mark.parametrize(("window", "granted", "most"), [(3, 65_535, 3), (100, 2, 2), (1, 65_535, 1)])
def test_no_more_are_on_the_way_than_window_and_receive_maximum(window: int, granted: int, most: int) -> None:
    link = FakeLink(ReceiveMaximum=granted)
    publisher(link).run([b"x"] * 10, window)
    assert len(link.published) == 10
    assert link.most_unanswered == most
    assert link.unanswered == []


@pytest.mark.parametrize("code", [0x00, 0x10])
def test_no_subscriber_is_no_error(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    link.code = code
    one = publisher(link)
    one.run([b"x"], 1)
    assert one.report() == 0
    assert capsys.readouterr().err == ""


def receipt_of(*pairs: tuple[str, str]) -> list[str]:
    properties = new_properties(PacketTypes.PUBACK)
    for pair in pairs:
        properties.UserProperty = pair
    return receipt_lines("a/b", properties)


def place(replicas: int, epoch: int, partition: int, sequence: int) -> list[tuple[str, str]]:
    names = ("replicas", "epoch", "partition", "sequence")
    return [(f"folkmoot-{n}", str(v)) for n, v in zip(names, (replicas, epoch, partition, sequence), strict=True)]


def test_a_receipt_is_a_line_for_each_partition() -> None:
    assert receipt_of(*place(2, 9, 17, 4), ("other", "x"), *place(3, 9, 20, 5)) == [
        "receipt a/b: replicas 2, epoch 9, partition 17, sequence 4",
        "receipt a/b: replicas 3, epoch 9, partition 20, sequence 5",
    ]
    assert receipt_of(*place(3, 9, 17, 4), ("folkmoot-more", "7"))[1:] == ["receipt a/b: and 7 partitions more"]
    assert receipt_of(("folkmoot-replicas", "0")) == ["receipt a/b: on no disk"]
    assert receipt_of(("other", "x")) == []
    assert receipt_lines("a/b", None) == []


@pytest.mark.parametrize("asks", [True, False])
def test_who_asks_for_receipts_sees_them(asks: bool, capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    link.told = [("folkmoot-replicas", "0")]
    one = publisher(link, UserProperty=("folkmoot-receipt" if asks else "other", ""))
    one.run([b"x"], 1)
    assert capsys.readouterr().out == ("receipt t: on no disk\n" if asks else "")


def test_a_refusal_is_told_with_topic_name_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    link.code = 0x97
    one = publisher(link, "a/b")
    one.run([b"x"], 1)
    assert one.report() == 1
    assert capsys.readouterr().err == "error: the broker refused the message to a/b: 0x97 Quota exceeded (said so)\n"


def test_many_refusals_are_counted_and_not_all_told(capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    link.code = 0x87
    one = publisher(link)
    one.run([b"x"] * 50, 5)
    assert one.report() == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "error: 50 of 50 messages were refused"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    link.code = 0x87
    one = publisher(link)
    one.quiet = True
    one.run([b"x"] * 2, 5)
    assert one.report() == 1
    assert capsys.readouterr().err == ""


def test_a_lost_connection_says_what_was_not_acknowledged() -> None:
    link = FakeLink()
    one = publisher(link)

    def payloads() -> Any:
        yield from (b"1", b"2", b"3")
        link.connected = False
        yield b"4"  # the window is full: it is not sent

    with pytest.raises(Refusal, match="gone; 2 of 3 messages not acknowledged") as lost:
        one.run(payloads(), 2)
    assert lost.value.status == 1
    assert link.closed


@pytest.mark.parametrize(
    ("granted", "given", "advice"),
    [
        ({"MaximumQoS": 1}, {"qos": 2}, "-q 1"),
        ({"RetainAvailable": 0}, {"retain": True}, "-r"),
        ({"TopicAliasMaximum": 2}, {"TopicAlias": 3}, "up to 2"),
        ({}, {"TopicAlias": 1}, "no topic aliases"),
        ({"MaximumPacketSize": 100}, {}, "100 bytes"),
    ],
)
def test_what_the_broker_does_not_do_is_not_tried(granted: dict[str, int], given: Any, advice: str) -> None:
    link = FakeLink(**granted)
    with pytest.raises(Refusal, match=advice):
        publisher(link, **given).run([b"x" * 100], 1)
    assert link.published == []
    assert link.closed


def test_an_alias_stands_for_the_topic_after_the_first_message() -> None:
    link = FakeLink(TopicAliasMaximum=5)
    publisher(link, "long/name", TopicAlias=5).run([b"1", b"2", b"3"], 9)
    assert [topic for topic, _ in link.published] == ["long/name", "", ""]
    with pytest.raises(Refusal, match="one -t"):
        publisher(link, "a", "b", TopicAlias=5)


def test_the_size_of_a_packet_is_counted_to_the_byte() -> None:
    # PUBLISH of 100 bytes: 2 of header, 2 + 1 topic, 2 packet id, 1 of no properties; the check adds 3 for longer ones.
    one = publisher(FakeLink(MaximumPacketSize=103))
    one.check_size("t", b"x" * 92)
    with pytest.raises(Refusal):
        one.check_size("t", b"x" * 93)


def source(**given: Any) -> Source:
    flags = {name: bool(given.get(name, False)) for name in ("lines", "stdin", "null")}
    return Source(given.get("message"), given.get("file"), **flags)


def payloads(one: Source, repeat: int = 1) -> list[bytes]:
    one.load()
    return list(one.payloads(cast("Link", FakeLink()), repeat, 0.0))


def test_payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\xff")))
    assert payloads(source(message="é\udcff")) == ["é".encode() + b"\xff"]
    assert payloads(source(message="")) == [b""]
    assert payloads(source(file=file)) == [b"\x00\xff\n"]
    assert payloads(source(stdin=True)) == [b"a\nb\xff"]
    assert payloads(source(null=True)) == [b""]
    assert payloads(source(message="x"), 3) == [b"x", b"x", b"x"]


def test_lines_come_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", buffering=0) as pipe:
        monkeypatch.setattr("sys.stdin", stdin)
        lines = source(lines=True).payloads(cast("Link", FakeLink()), 1, 0.0)
        pipe.write(b"one\ntwo\nthr")
        assert [next(lines), next(lines)] == [b"one", b"two"]
        pipe.write(b"ee\r\n\nno end")
        assert [next(lines), next(lines)] == [b"three\r", b""]
        pipe.close()
        assert list(lines) == [b"no end"]


@pytest.mark.parametrize("given", [{}, {"message": "x", "null": True}, {"lines": True, "stdin": True}])
def test_there_is_one_source(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="Give one of"):
        source(**given)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(Refusal, match="no/such"):
        source(file=Path("no/such")).load()


@pytest.mark.parametrize(("topics", "found"), [(["a", ""], ["a"]), (["b"], ["b"]), (["a", "b"], ["a", "b"])])
def test_topics_of_options_and_url(topics: list[str], found: list[str]) -> None:
    assert checked_topics(topics) == found


@pytest.mark.parametrize("topics", [[""], ["a/+", ""], ["", ""], ["a", "x#"]])
def test_what_is_no_topic_is_refused(topics: list[str]) -> None:
    with pytest.raises(Refusal, match="-t"):
        checked_topics(topics)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["-t", "a", "-m", "x", "-D", "publish", "topic-alias", "0"], "-D publish topic-alias 0"),
        (["-t", "a", "-l", "--repeat", "2"], "--repeat"),
        (["-m", "x"], "-t TOPIC"),
        (["-t", "a", "-m", "x", "-q", "3"], "--qos"),
    ],
)
def test_wrong_options_have_status_2(arguments: list[str], advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", *arguments]) == 2
    assert advice in capsys.readouterr().err


def test_h_is_the_host_and_not_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", "-h"]) == 2
    assert main(["pub", "--help"]) == 0
    assert "--will-topic" in capsys.readouterr().out

"""`folkmoot stream` as a user runs it, against a served shelf."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from folkmoot.cli import main
from folkmoot.streams.config import StreamConfig
from tests.harness.streamnode import Shelf, StreamNode

SECOND = 1_000_000


@pytest.fixture(scope="module")
def node() -> Iterator[StreamNode]:
    with StreamNode(
        Shelf(StreamConfig("s", b"s/#", 4, retention_us=7 * 86400 * SECOND, retention_bytes=5 << 20))
    ) as node:

        def fill(shelf: Shelf) -> None:
            for number in range(20):
                shelf.publish(f"s/{number % 5}", b"%d" % number)
                shelf.now += SECOND
            shelf.publish("s/0", b"\xff\x00")
            shelf.publish("s/0", b"two\nlines")

        node.run(fill)
        yield node


def run(node: StreamNode, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["stream", *words, "--url", node.url]) == status
    captured = capsys.readouterr()
    return captured.out if status == 0 else captured.err


def test_the_list(node: StreamNode, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(node, capsys, "list")
    for part in ("s/#", "22", "2023-11-14T22:13:20Z", "7d", "5.0 MiB a partition"):
        assert part in text
    found = json.loads(run(node, capsys, "list", "--json"))
    assert (found["name"], found["records"], len(found["ranges"])) == ("s", 22, 4)


def test_the_list_is_whole_on_a_narrow_terminal(
    node: StreamNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    head, row = run(node, capsys, "list").splitlines()
    assert head.split()[:3] == ["stream", "filter", "partitions"]
    assert row.split()[:4] == ["s", "s/#", "4", "22"]


def test_all_records_in_the_order_of_their_times(node: StreamNode, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(node, capsys, "read", "s").splitlines()
    assert [line.split("\t")[3] for line in lines] == [*[str(n) for n in range(20)], "0xff00", "two\\nlines"]
    assert lines[3].split("\t")[1:3] == ["2023-11-14T22:13:23.000000Z", "s/3"]


def test_a_part_by_time_as_json(node: StreamNode, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["read", "s", "--from", "2023-11-14T22:13:25Z", "--to", "2023-11-14T23:13:28+01:00", "--json"]
    found = [json.loads(line) for line in run(node, capsys, *words).splitlines()]
    assert [record["payload"] for record in found] == ["5", "6", "7"]


def test_one_partition_by_offset(node: StreamNode, capsys: pytest.CaptureFixture[str]) -> None:
    everything = [json.loads(line) for line in run(node, capsys, "read", "s", "--json").splitlines()]
    partition = everything[0]["partition"]
    wanted = [found["offset"] for found in everything if found["partition"] == partition and 1 <= found["offset"] < 3]
    words = ["read", "s", "--partition", str(partition), "--from", "1", "--to", "3", "--json"]
    assert [json.loads(line)["offset"] for line in run(node, capsys, *words).splitlines()] == wanted


def test_latest_is_nothing(node: StreamNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(node, capsys, "read", "s", "--from", "latest") == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["read", "none"], "no stream 'none'"),
        (["read", "s", "--from", "soon"], "--from: 'soon' is not a time"),
        (["read", "s", "--from", "2023-11-14T22:13:25"], "time zone"),
        (["read", "s", "--partition", "4"], "partitions 0 to 3"),
        (["read", "s", "--follow", "--to", "latest"], "one of them"),
        (["read", "s", "--from", "9", "--to", "3"], "--from 9 is not before --to 3"),
        (["read", "s", "--from", "3", "--to", "3"], "--from 3 is not before --to 3"),
        (["read", "s", "--from", "99999"], "--from 99999: no partition of the stream s has more than"),
    ],
)
def test_what_cannot_be_done_says_why(
    node: StreamNode, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert why in run(node, capsys, *words, status=2)


@pytest.mark.parametrize("more", [[], ["--partition", "1"]])
def test_following_prints_what_comes_until_it_is_interrupted(node: StreamNode, more: list[str]) -> None:
    topic = next(f"s/x{n}" for n in range(100) if node.shelf.streams.match(b"s/x%d" % n)[0].index == 1)
    command = [
        sys.executable,
        "-m",
        "folkmoot",
        "stream",
        "read",
        "s",
        "--from",
        "latest",
        "--follow",
        "--url",
        node.url,
    ]
    process = subprocess.Popen([*command, *more, "--json"], stdout=subprocess.PIPE, text=True)
    heard = threading.Event()

    def publish() -> None:
        # "latest" is resolved after the start, which takes its time: publish until something is heard.
        while not heard.wait(0.1):
            node.publish(topic, [b"news"])

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0], "nothing was printed"
        line = process.stdout.readline()
        heard.set()
        assert json.loads(line)["payload"] == "news"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        heard.set()
        process.kill()
        process.communicate()
        publisher.join()

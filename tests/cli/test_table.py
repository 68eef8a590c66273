"""`folkmoot table`: rows as text, JSON and CSV, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from folkmoot.cli import main
from tests.harness.box import Box
from tests.harness.tablenode import Served, table_app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    box = Box(partitions=2)
    peer = box.client("länge")
    peer.connect(session_expiry=60)
    peer.subscribe("a,b/#", qos=1)
    peer.publish("r/1", b"[x]", retain=True)
    with Served(table_app(box)) as served:
        yield served.url


def test_rows_as_text(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "retained", "--url", url, "--payload"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "partition",
        "topic",
        "qos",
        "payload_bytes",
        "content_type",
        "publisher",
        "published_at",
        "expires_at",
        "payload",
    ]
    assert row.split()[1:6] == ["r/1", "0", "3", "-", "länge"]
    assert row.split()[6:] == ["2020-09-13T12:26:40.000000Z", "-", "W3hd"]


def test_rows_as_json_and_csv(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "subscriptions", "--url", url, "--json"]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["client_id"], row["filter"], row["persistent"]) == ("länge", "a,b/#", True)
    assert main(["table", "subscriptions", "--url", url, "--csv"]) == 0
    (same,) = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (same["client_id"], same["filter"], same["persistent"], same["share"]) == ("länge", "a,b/#", "true", "")


def test_without_a_name_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table"]) == 0
    shown = capsys.readouterr().out
    for word in ("sessions", "subscriptions", "queues", "retained", "streams", "partitions", "disconnected_at"):
        assert word in shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["session"], "there are: sessions, subscriptions"),
        (["sessions", "--json", "--csv"], "one of --json and --csv"),
        (["sessions", "--payload"], "retained"),
        (["sessions", "--url", "nonsense"], "--url"),
    ],
)
def test_what_is_refused(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", *arguments]) == 2
    assert text in capsys.readouterr().err

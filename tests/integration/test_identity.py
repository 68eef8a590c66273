"""The id of a node of a cluster that was given none: made once, kept with its data, as real processes do it."""

from __future__ import annotations

from pathlib import Path

from tests.integration.serving import Serving

ANY = "127.0.0.1:0"


def start(data: Path, *arguments: str) -> str:
    """Start a node and stop it; its id, as the log tells."""
    with Serving(data, "--mqtt", ANY, "--peer", ANY, *arguments) as node:
        assert node.stop() == 0
    (opened,) = [line for line in node.log().splitlines()[-20:] if " opened " in line][-1:]
    return next(word.removeprefix("node=") for word in opened.split() if word.startswith("node="))


def test_an_id_is_made_once_and_stays_with_the_data(tmp_path: Path) -> None:
    first, second = start(tmp_path / "a"), start(tmp_path / "b")
    assert first.startswith("n-")
    assert first != second
    assert start(tmp_path / "a") == first
    (tmp_path / "a").rename(tmp_path / "moved")
    assert start(tmp_path / "moved") == first


def test_a_node_that_was_alone_keeps_its_name_in_a_cluster(tmp_path: Path) -> None:
    with Serving(tmp_path / "a", "--mqtt", ANY) as node:
        assert node.stop() == 0
    assert start(tmp_path / "a") == "node1"

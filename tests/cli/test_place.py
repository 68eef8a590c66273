"""Ports of a local cluster: kept from start to start, given up when somebody else has them."""

from __future__ import annotations

import fcntl
import json
import socket
from pathlib import Path

import pytest

from folkmoot.cli import main
from folkmoot.cli.error import Refusal
from folkmoot.cli.place import HOST, Hold, find_places, fixed_ports, left_out


def ports(folder: Path, count: int, **first: int) -> dict[str, dict[str, int]]:
    return {place.name: place.ports for place in find_places(folder, count, first)}


def test_ports_differ_and_stay(tmp_path: Path) -> None:
    first = ports(tmp_path, 3)
    every = [port for node in first.values() for port in node.values()]
    assert len(set(every)) == 9
    assert ports(tmp_path, 3) == first


def test_no_port_goes_to_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = fixed_ports()
    monkeypatch.setattr("folkmoot.cli.place.fixed_ports", lambda: drawn)
    every = [port for node in ports(tmp_path, 3).values() for port in node.values()]
    assert len(set(every)) == 9


def test_ports_are_none_that_the_system_gives_to_clients(tmp_path: Path) -> None:
    first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert all(port < first_of_clients for node in ports(tmp_path, 3).values() for port in node.values())


def test_a_node_that_is_left_out_keeps_its_ports(tmp_path: Path) -> None:
    first = ports(tmp_path, 3)
    assert ports(tmp_path, 2) == {name: first[name] for name in ("n1", "n2")}
    assert ports(tmp_path, 3) == first


def test_a_port_that_is_taken_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    first = ports(tmp_path, 2)
    with socket.create_server((HOST, first["n1"]["admin"])):
        second = ports(tmp_path, 2)
    assert second["n1"]["admin"] != first["n1"]["admin"]
    second["n1"]["admin"] = first["n1"]["admin"]
    assert second == first


@pytest.mark.parametrize(("kind", "option"), [("mqtt", "--port"), ("admin", "--admin-port")])
def test_a_port_that_was_asked_for_must_be_free(tmp_path: Path, kind: str, option: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refusal, match=f"{HOST}:{port}: .*choose another {option},"):
            find_places(tmp_path, 1, {kind: port})
    assert ports(tmp_path, 1, **{kind: port})["n1"][kind] == port


def test_ports_that_were_asked_for_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mqtt, admin = sorted(fixed_ports())[::50]
    # What is drawn for the peers' ports begins with the others: they are taken.
    monkeypatch.setattr("folkmoot.cli.place.fixed_ports", lambda: [mqtt, admin, mqtt + 1, admin + 1])
    found = ports(tmp_path, 2, mqtt=mqtt, admin=admin)
    assert [found[name]["mqtt"] for name in ("n1", "n2")] == [mqtt, mqtt + 1]
    assert [found[name]["admin"] for name in ("n1", "n2")] == [admin, admin + 1]
    assert len({port for node in found.values() for port in node.values()}) == 6


def test_nodes_of_a_cluster_that_was_killed_are_named(tmp_path: Path) -> None:
    (tmp_path / "n1").mkdir()
    (tmp_path / "n2").mkdir()
    (tmp_path / "n2" / "lock").write_text("77\n", encoding="utf-8")  # of a node that has ended
    with socket.create_server((HOST, 0)) as taken, (tmp_path / "n1" / "lock").open("w+b") as lock:
        lock.write(b"4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refusal, match=r"choose another --port.* n1 \(process 4711\); stop them$"):
            find_places(tmp_path, 1, {"mqtt": taken.getsockname()[1]})


@pytest.mark.parametrize("text", ["", "[]", '{"n1": 5}', '{"n1": {"mqtt": "x"}}', '{"n1": {"mqtt": 70000}}'])
def test_a_damaged_list_of_ports_counts_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "ports.json").write_text(text, encoding="utf-8")
    found = ports(tmp_path, 1)
    assert json.loads((tmp_path / "ports.json").read_text(encoding="utf-8")) == found


def test_one_cluster_at_a_time_runs_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold = Hold(tmp_path / "c")
    assert main(["cluster", "--data", str(tmp_path / "c")]) == 2
    assert "runs in" in capsys.readouterr().err
    hold.close()
    Hold(tmp_path / "c").close()


def test_what_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["cluster", "--data", str(tmp_path / "file")]) == 2
    assert "cannot use the folder" in capsys.readouterr().err
    assert main(["cluster", "--data", str(tmp_path / "c"), "--port", "65534", "--nodes", "3"]) == 2
    assert "65535" in capsys.readouterr().err
    assert main(["cluster", "--data", str(tmp_path / "c"), "--admin-port", "65534", "--nodes", "3"]) == 2
    assert "--admin-port 65534: the last port is 65535" in capsys.readouterr().err
    assert main(["cluster", "--data", str(tmp_path / "c"), "--port", "8080", "--admin-port", "8082"]) == 2
    assert "3 nodes need 3 ports of each kind" in capsys.readouterr().err
    assert main(["cluster", "--nodes", "0"]) == 2
    capsys.readouterr()
    assert main(["cluster", "--data", str(tmp_path / "d"), "--", "--replica", "3"]) == 2
    text = capsys.readouterr().err
    assert "--replica" in text
    assert text.count("Usage") == 1
    assert not (tmp_path / "d").exists()


def test_nodes_with_data_that_are_not_started_are_known(tmp_path: Path) -> None:
    for name in ("n1", "n2", "n3", "n10", "new", "n4"):
        (tmp_path / name).mkdir()
        if name != "n4":
            (tmp_path / name / "format").touch()
    assert left_out(tmp_path, 2) == ["n3", "n10"]
    assert left_out(tmp_path, 10) == []


def test_what_differs_between_nodes_is_not_told_to_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cluster"
    wrong = ["--node-id z", "--data x", "--admin 127.0.0.1:0", "--peer 127.0.0.1:0", "--replicas 1"]
    for words in [*wrong, "--advertise 127.0.0.1:1883"]:
        assert main(["cluster", "--data", str(folder), "--", *words.split()]) == 2
        assert f"error: -- {words.split()[0]}: leave it out, " in capsys.readouterr().err
    assert not folder.exists()

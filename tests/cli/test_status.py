"""The commands that ask a cluster, as a user runs them."""

from __future__ import annotations

import json

import pytest

from folkmoot.cli import main
from folkmoot.cli.status import ago, summary
from folkmoot.membership.loss import Loss
from folkmoot.status.picture import ALONE, EXCLUDED, WAITING
from folkmoot.status.status import NodeStatus
from tests.harness.picture import Drawn, Roles, Shown

FULL: Roles = [["a", "b", "c"], ["b", "c", "a"]]
NOBODY = "127.0.0.1:9"


def run(picture: Drawn, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    with Shown(picture) as shown:
        assert main([*words, "--admin", shown.place]) == status
    captured = capsys.readouterr()
    return captured.err if status == 2 else captured.out


def test_the_status_shows_members_roles_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn([["a", "b"], ["b"]], [[], ["a"]], members="ab", known="abc")
    picture.closed = {1}
    picture.loads = {"a": {"copy_left": 7, "copy_rate": 2}}
    picture.voting = ["a", "b"]
    picture.reasons = {"c": "its process has ended"}
    lines = run(picture, capsys, "status").splitlines()
    assert "a (folkmoot 1.a): member, configuration 7 (epoch 77), controller b" in lines[0]
    assert lines[1].split() == [
        *("node", "zone", "state", "role", "version", "address"),
        *("clients", "sessions", "overload", "leads", "follows", "fills", "heard"),
    ]
    assert lines[2].split()[:6] == ["a", "a", "active", "voter", "1.a", "a:1"]
    assert lines[2].split()[9:12] == ["1", "0", "1"]
    assert lines[3].split()[:4] == ["b", "b", "active", "controller"]
    assert lines[4].split()[:4] == ["c", "-", "away", "-"]
    text = "\n".join(lines)
    assert "partitions: 2, only 1 open, 1 moving" in text
    assert "UNDER-REPLICATED: 2 of 2 partitions have fewer than 3 copies" in text
    assert "DAMAGED: 1 copies damaged" in text
    assert "copying: 1 partitions get copies, 7 B to go at 2 B a second; to this node 30 B done, 10 B to go" in text
    assert "AWAY: c, its process has ended" in text
    assert "last heal: none" in text


def test_a_node_that_is_left_out_shows_no_table_and_counts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn(FULL)
    picture.now_state = EXCLUDED
    picture.out = "it was not heard of"
    lines = run(picture, capsys, "status").splitlines()
    assert lines[2:] == ["  the others go on without it: it was not heard of"]
    found = json.loads(run(picture, capsys, "status", "--json"))
    assert (found["partitions"]["open"], found["partitions"]["under_replicated"]) == (0, 2)
    assert {(node["leads"], node["follows"]) for node in found["nodes"]} == {(0, 0)}
    for words in (["partitions"], ["where", "x"], ["safe-to-stop", "b"]):
        assert "node a is not up in the cluster (excluded): ask another one" in run(picture, capsys, *words, status=2)


def test_a_node_that_there_is_not_has_no_partitions_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no node 'nope'; there are: a, b, c" in run(Drawn(FULL), capsys, "partitions", "--node", "nope", status=2)
    assert len(run(Drawn(FULL), capsys, "partitions", "--node", "c").splitlines()) == 3


def test_of_several_nodes_a_member_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    out, inside = Drawn([["b"]]), Drawn(FULL)
    out.now_state = EXCLUDED
    with Shown(out) as first, Shown(inside) as second:
        both = ["--admin", f"{NOBODY},{first.place},{second.place}"]
        for words in (["status"], ["partitions"], ["where", "x"], ["safe-to-stop", "b"], ["evict", "b"]):
            assert main([*words, *both]) == 0
            captured = capsys.readouterr()
            assert captured.err.startswith(f"note: http://{first.place} "), words
            assert "not up in the cluster (excluded)" in captured.err
            assert captured.err.endswith("the next one is asked\n")
            assert captured.err.count("\n") == 1
            assert "LEFT OUT" not in captured.out
        assert (out.orders, inside.orders) == ([], [("evict", "b")])


def test_the_status_as_json_is_what_the_node_says(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(Drawn(FULL), capsys, "status", "--json"))
    assert {name: found[name] for name in ("node", "counter", "state")} == {
        "node": "a",
        "counter": 7,
        "state": "member",
    }
    assert len(found["nodes"]) == 3


def heading(picture: Drawn) -> list[str]:
    return summary(NodeStatus(picture).status())


def test_a_pressure_and_what_some_nodes_cannot_do_are_named() -> None:
    found = NodeStatus(Drawn(FULL)).status()
    assert "overload 3" in summary(found)[0]
    assert not [line for line in summary(found) if line.startswith("OFF")]
    found["overload_why"] = "links"
    found["features"] = {"receipts": ["b", "c"], "other": []}
    assert summary(found)[0].endswith("overload 3 (here: links)")
    assert "OFF: receipts, until b, c can do it too" in summary(found)


def test_full_disks_are_named_with_what_they_cost(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn([["a", "b"], ["b", "a"], ["b", "a"]], members="abc", known="abcd")
    assert not [line for line in heading(picture) if line.startswith("DISK")]
    picture.loads = {name: {"storage_full": 1} for name in "bcd"}
    assert [line for line in heading(picture) if line.startswith("DISK")] == [
        "DISK FULL on b: its 2 partitions refuse what must be stored",
        "DISK FULL on c: others lead, it follows as long as its reserve lasts",
        "DISK FULL on d: it is away",
    ]
    rows = run(picture, capsys, "partitions").splitlines()
    assert ["refuses" in row for row in rows] == [False, False, True, True]


def test_a_lack_of_memory_is_named_with_what_it_costs() -> None:
    picture = Drawn(FULL)
    assert not [line for line in heading(picture) if line.startswith("MEMORY")]
    picture.loads = {"b": {"memory": 1}, "c": {"memory": 2}}
    assert [line for line in heading(picture) if line.startswith("MEMORY")] == [
        "MEMORY SHORT on b: it refuses clients and subscriptions",
        "MEMORY SHORT on c: it disconnects the clients for which most waits",
    ]


def test_clocks_that_are_wrong_are_named() -> None:
    picture = Drawn(FULL)
    assert not [line for line in heading(picture) if line.startswith("CLOCK")]
    picture.loads = {"b": {"clock": 1}, "c": {"clock": 2}}
    assert [line for line in heading(picture) if line.startswith("CLOCK")] == [
        "CLOCK WRONG on b: nothing is dated or expires by it",
        "CLOCKS DISAGREE as c sees it: no majority says what time it is",
    ]


def test_a_node_that_waits_says_for_whom() -> None:
    picture = Drawn(FULL)
    picture.leased = False
    picture.leader_of_log = ""
    picture.voting = ["a", "b", "c"]
    picture.heard = ["a"]
    found = NodeStatus(picture).status()
    why = "no controller: 1 of 3 voters are connected; waits for b, c"
    assert f"NO LEASE, serves nobody: {why}" in summary(found)
    found["state"] = WAITING
    found["waits"] = "it waits to become a member of the cluster; n2:1: connection refused"
    assert summary(found)[1].startswith("NOT UP")
    assert summary(found)[2:4] == ["  it waits to become a member of the cluster", "  n2:1: connection refused"]


def test_settings_that_differ_are_named_by_node() -> None:
    found = NodeStatus(Drawn(FULL)).status()
    assert not [line for line in summary(found) if line.startswith("SETTINGS")]
    found["settings_differ"] = [
        {"node": "b", "setting": "cluster.replicas", "here": "3", "there": "1"},
        {"node": "b", "setting": "cluster.silence", "here": "2000ms", "there": "9000ms"},
        {"node": "c", "setting": "streams", "here": "none declared", "there": "1 declared, hash 7"},
    ]
    both = "cluster.replicas is 1 there, 3 here; cluster.silence is 9000ms there, 2000ms here"
    assert f"SETTINGS DIFFER on b: {both}" in summary(found)
    assert "SETTINGS DIFFER on c: streams is 1 declared, hash 7 there, none declared here" in summary(found)


def test_few_forks_that_are_left_are_told_where_sides_fork() -> None:
    picture = Drawn(FULL)
    assert not [line for line in heading(picture) if line.startswith("FEW FORKS")]
    picture.more_forks = 102
    assert [line[:20] for line in heading(picture) if line.startswith("FEW FORKS")] == ["FEW FORKS LEFT: 102;"]
    picture.split_policy = "majority"
    assert not [line for line in heading(picture) if line.startswith("FEW FORKS")]


def test_copies_that_are_away_and_those_that_are_lost_are_named() -> None:
    picture = Drawn(FULL, members="ab", known="abcd")
    assert not [line for line in heading(picture) if line.startswith(("COPIES", "last loss"))]
    picture.losses.missing = {0: ["c", "d"], 1: ["c", "d"]}
    picture.losses.damaged = {2: "a"}
    picture.losses.past = [Loss(5, 9, ["x"]), Loss(7, 122, ["e"])]
    lines = heading(picture)
    assert "COPIES MISSING: 2 partitions are not served, because all that is in sync is on c and d (away)" in lines
    assert (
        "COPIES DAMAGED: 1 partitions are not served, because the only copy in sync is on a, and cannot be read"
        in lines
    )
    assert "last loss: 122 partitions lost data that only e had (entry 7 of the log)" in lines


def test_orders_that_cost_something_need_force(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn([["a", "b"], ["b"]], members="ab", known="abc")
    picture.heard = ["c"]
    assert "only copy of 1 partitions (1)" in run(picture, capsys, "evict", "b", status=2)
    assert "c runs and is heard" in run(picture, capsys, "forget", "c", status=2)
    assert picture.orders == []
    assert "go on without it" in run(picture, capsys, "evict", "b", "--force")
    assert "forgotten" in run(picture, capsys, "forget", "c", "--force")
    assert picture.orders == [("evict", "b"), ("forget", "c")]


def test_every_state_has_its_words() -> None:
    picture = Drawn(FULL)
    assert not [line for line in heading(picture) if line.startswith("UNDER")]
    for state, words in ((ALONE, "alone"), (WAITING, "waits to become a member"), (EXCLUDED, "left out")):
        picture.now_state = state
        assert words in heading(picture)[0]
    assert heading(picture)[1].startswith("LEFT OUT")
    assert len(heading(picture)) == 3, "what it knows of the others is old"
    picture.now_state = ALONE
    picture.receipts = [{"time_us": 1_700_000_000_000_000, "rows_merged": 4}]
    assert heading(picture)[-1] == "last heal: 2023-11-14T22:13:20Z rows merged 4"
    picture.receipts[0].update({"dropped": {"too old": 2}, "from": ["n2", "n3"], "took_us": 197_079})
    assert heading(picture)[-1].endswith("rows merged 4, dropped 2 because too old, from n2 and n3, took 0.2 s")
    picture.receipts[0].update({"rows_gone": 0})
    assert "gone" not in heading(picture)[-1], "what is zero is not told"
    picture.receipts[0].update({"dropped": {}})
    assert "dropped" not in heading(picture)[-1]


def test_times_are_for_people() -> None:
    assert ago(0, 5) == "not since its start"
    assert ago(4_000_000, 5_500_000) == "1.5 s ago"
    assert ago(6_000_000, 5_000_000) == "0.0 s ago"
    assert ago(1, 600_000_001) == "10 min ago"


def test_partitions_of_all_and_of_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn([["a", "b"], ["b"], ["c"]], [["c"], [], []])
    rows = [line.split() for line in run(picture, capsys, "partitions").splitlines()[1:]]
    assert rows[0] == ["0", "a", "b", "c", "open", "77", "100"]
    assert rows[1] == ["1", "b", "-", "-", "elsewhere", "77", "101"]
    assert len(rows) == 3
    found = json.loads(run(picture, capsys, "partitions", "--json", "--node", "c"))
    assert [entry["partition"] for entry in found] == [0, 2]


def test_where_a_client_and_a_topic_are(capsys: pytest.CaptureFixture[str]) -> None:
    one: Roles = [["b", "c", "a"]]
    text = run(Drawn(one), capsys, "where", "online")
    assert [line.split(maxsplit=1) for line in text.splitlines()] == [
        ["client", "online: partition 0"],
        ["leader", "b"],
        ["followers", "c, a"],
        ["connected", "c"],
    ]
    assert "no node" in run(Drawn(one), capsys, "where", "offline")
    text = run(Drawn(one), capsys, "where", "--topic", "a/b")
    assert text.startswith("topic a/b: partition 0\nleader     b\n")
    assert json.loads(run(Drawn(one), capsys, "where", "--topic", "a/b", "--json"))["followers"] == ["c", "a"]
    for words in ([], ["x", "--topic", "y"]):
        assert "give a client id, or --topic" in run(Drawn(one), capsys, "where", *words, status=2)


def test_a_side_that_has_forked_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn(FULL)
    assert "FORKED" not in run(picture, capsys, "status")
    picture.is_trunk = False
    picture.known_ids.append("x")
    assert "FORKED: this side of a split goes on by itself" in run(picture, capsys, "status")
    found = json.loads(run(picture, capsys, "status", "--json"))
    assert (found["apart"], found["lineage"]) == (True, "ff")


def test_safe_to_stop_answers_by_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Drawn(FULL), capsys, "safe-to-stop", "b").startswith("yes: ")
    only: Roles = [["a"], ["b"]]
    assert "no: it has the only copy of 1 partitions (1)" in run(Drawn(only), capsys, "safe-to-stop", "b", status=1)
    assert json.loads(run(Drawn(only), capsys, "safe-to-stop", "b", "--json", status=1))["partitions"] == [1]
    assert "there is no node 'x'" in run(Drawn(only), capsys, "safe-to-stop", "x", status=2)


def test_heals_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn(FULL)
    assert run(picture, capsys, "heals").startswith("no heals")
    picture.receipts = [
        {"time_us": 1_700_000_000_000_000, "merged": 1},
        {"time_us": 1_700_000_060_000_000, "merged": 2},
    ]
    lines = run(picture, capsys, "heals").splitlines()
    assert lines == ["2023-11-14T22:13:20Z merged 1", "2023-11-14T22:14:20Z merged 2"]
    assert json.loads(run(picture, capsys, "heals", "--json")) == picture.receipts


def test_orders_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn(FULL, members="ab", known="abc")
    assert run(picture, capsys, "evict", "b").startswith("b: ")
    assert run(picture, capsys, "forget", "c").startswith("c: ")
    assert picture.orders == [("evict", "b"), ("forget", "c")]
    assert "evict it first" in run(picture, capsys, "forget", "b", status=2)


def test_several_addresses_are_tried_in_turn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Shown(Drawn(FULL)) as shown:
        assert main(["heals", "--admin", NOBODY, "--admin", shown.place]) == 0
        assert main(["heals", "--admin", f"{NOBODY},{shown.place}"]) == 0
        monkeypatch.setenv("FOLKMOOT_URL", f"{NOBODY},{shown.place}")
        assert main(["heals"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_no_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--admin", "ftp://x"]) == 2
    assert "--admin: " in capsys.readouterr().err

"""Settings of the whole cluster: every node sees each change, with its author and number, also after it was away."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.membership.cluster_settings import ABSENT, CHANGES_MAX, VALUE_BYTES_MAX
from folkmoot.membership.configuration_log import SNAPSHOT_ENTRIES
from folkmoot.membership.transition import ACCEPTED, INVALID, OTHER_NUMBER
from tests.harness.simulated_cluster import SimulatedCluster, Site


def put(cluster: SimulatedCluster, site: Site, key: str, value: bytes, expected: int = -1) -> tuple[int, int]:
    """Put a setting at a node; return its number, and why it was refused."""
    ticket = site.node.put_setting(key, value, f"ann at {site.name}", cluster.now, expected)
    return answer(cluster, site, ticket)


def answer(cluster: SimulatedCluster, site: Site, ticket: int) -> tuple[int, int]:
    for _ in range(100):
        cluster.advance(SECOND // 50)
        for found in site.node.take_answers():
            assert found.ticket == ticket
            return found.index, found.refused
    raise AssertionError("there is no answer")


def seen(cluster: SimulatedCluster, key: str) -> list[tuple[bytes, int, str] | None]:
    """Return what each node has."""
    cluster.advance(SECOND // 2)
    found = [site.node.setting(key) for site in cluster.live()]
    return [None if one is None else (one.value, one.number, one.author) for one in found]


def test_all_nodes_see_a_change_that_any_of_them_was_asked_for() -> None:
    cluster = SimulatedCluster(3)
    last = 0
    for site in cluster.live():
        value = site.name.encode() * (VALUE_BYTES_MAX // 2)
        number, refused = put(cluster, site, "users/ann", value, last)
        assert refused == ACCEPTED
        assert seen(cluster, "users/ann") == [(value, number, f"ann at {site.name}")] * 3
        last = number
    assert put(cluster, cluster["n2"], "users/ann", b"late", last - 1)[1] == OTHER_NUMBER
    assert put(cluster, cluster["n2"], "users/ann", b"second", ABSENT)[1] == OTHER_NUMBER
    assert put(cluster, cluster["n3"], "users/bob", bytes(VALUE_BYTES_MAX + 1))[1] == INVALID
    ticket = cluster["n1"].node.delete_setting("users/ann", "eve", cluster.now, last)
    assert answer(cluster, cluster["n1"], ticket)[1] == ACCEPTED
    assert seen(cluster, "users/ann") == [None] * 3


def test_a_node_learns_what_has_changed_since_it_looked() -> None:
    cluster = SimulatedCluster(3)
    node = cluster["n3"].node
    put(cluster, cluster["n1"], "a", b"1")
    cluster.advance(SECOND // 2)
    news = node.settings_since(None)
    assert news.keys == ["a"]
    put(cluster, cluster["n1"], "b", b"2")
    put(cluster, cluster["n2"], "a", b"3")
    ticket = cluster["n1"].node.delete_setting("b", "ann", cluster.now)
    answer(cluster, cluster["n1"], ticket)
    cluster.advance(SECOND // 2)
    before, news = news, node.settings_since(news)
    assert news.keys == ["a", "b"]
    assert not news.is_whole
    assert news.number > before.number
    assert node.settings_since(news).keys == []


def test_a_node_that_changes_lineages_never_shows_that_there_are_no_settings() -> None:
    cluster = SimulatedCluster(3)
    put(cluster, cluster["n1"], "kept", b"x")
    cluster.advance(SECOND)
    node = cluster["n3"].node
    lineage = node.settings_lineage
    number = node.setting("kept").number  # type: ignore[union-attr]
    cluster.cut("n3", "n1", "n2")
    news = node.settings_since(None)
    lineages: dict[int, bool] = {}
    for step in range(1000):
        if step == 500:
            cluster.heal()
        cluster.advance(SECOND // 50)
        lineages[node.settings_lineage] = True
        assert node.setting("kept") is not None
        news = node.settings_since(news)
        assert not news.is_whole or news.keys == ["kept"]
    assert len(lineages) == 2
    assert node.settings_lineage == lineage
    assert 0 not in lineages
    other = next(one for one in lineages if one != lineage)
    ticket = node.put_setting("kept", b"y", "ann", cluster.now, number, other)
    assert answer(cluster, cluster["n3"], ticket) == (0, OTHER_NUMBER)
    ticket = node.put_setting("kept", b"y", "ann", cluster.now, number, lineage)
    assert answer(cluster, cluster["n3"], ticket)[1] == ACCEPTED


def test_a_node_on_its_way_to_another_lineage_shows_what_it_had() -> None:
    cluster = SimulatedCluster(2)
    put(cluster, cluster["n1"], "kept", b"x")
    cluster.advance(SECOND)
    node = cluster["n2"].node
    news = node.settings_since(None)
    assert node.cluster_node is not None
    control = node.cluster_node.membership.control
    log, control.log = control.log, None  # so it is until the rows of the other lineage are read
    assert node.setting("kept") is not None
    assert node.settings_since(None).keys == ["kept"]
    assert node.settings_since(news).keys == []
    control.log = log
    assert node.settings_since(news).keys == []


def test_settings_survive_restarts_and_reach_who_was_away_by_a_snapshot() -> None:
    cluster = SimulatedCluster(3)
    put(cluster, cluster["n1"], "kept", b"x")
    away = cluster["n3"]
    news = away.node.settings_since(None)
    away.kill()
    cluster.settle()
    rounds = max(SNAPSHOT_ENTRIES, CHANGES_MAX) + 50
    for number in range(rounds):
        cluster["n1"].node.put_setting(f"k{number % 100}", b"%d" % number, "ann", cluster.now)
        if number % 50 == 0:
            cluster.advance(SECOND // 10)
    cluster.advance(5 * SECOND)
    assert len([one for one in cluster["n1"].node.take_answers() if one.refused == ACCEPTED]) == rounds
    away.revive()
    cluster.settle(60 * SECOND)
    assert seen(cluster, "k7") == [seen(cluster, "k7")[0]] * 3
    assert away.node.settings_since(news).is_whole, "more has changed than is remembered"
    for site in list(cluster.live()):
        site.kill()
    for site in cluster.sites.values():
        site.revive()
    cluster.settle(60 * SECOND)
    assert [one is not None and one[0] for one in seen(cluster, "kept")] == [b"x"] * 3

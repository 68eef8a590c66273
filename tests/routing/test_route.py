"""Remembered routes against brute force, for any order of subscribing, unsubscribing and looking up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.auth.access import Access
from folkmoot.auth.policy import Policy
from folkmoot.kernel.limits import Limits
from folkmoot.kernel.rng import Rng
from folkmoot.routing.interest import Interest
from folkmoot.routing.route import Group, Routes
from folkmoot.routing.topic_index import TopicIndex
from folkmoot.session.session import Session
from folkmoot.session.subscription import Subscription
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.table import Streams
from folkmoot.topics.name import has_wildcard, matches, split_share
from folkmoot.turn.barrier import Barrier
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.landing import Landings
from folkmoot.turn.receipt import Receipts
from folkmoot.turn.state import Identity, State
from folkmoot.turn.throttle import Throttle

LEVEL = st.sampled_from(["", "a", "b"])
TOPICS = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool).map(str.encode)
PLAIN = (
    st.builds(
        lambda levels, tail: "/".join(levels + tail),
        st.lists(st.sampled_from(["", "a", "b", "+"]), max_size=4),
        st.sampled_from([[], ["#"]]),
    )
    .filter(bool)
    .map(str.encode)
)
FILTERS = st.one_of(PLAIN, PLAIN, st.tuples(st.sampled_from([b"$share/g/", b"$share/h/"]), PLAIN).map(b"".join))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4), FILTERS),
        st.tuples(st.just("add"), st.integers(0, 4), FILTERS),
        st.tuples(st.just("remove"), st.integers(0, 100), st.just(b"")),
        st.tuples(st.just("lookup"), st.just(0), TOPICS),
        st.tuples(st.just("lookup"), st.just(0), TOPICS),
    ),
    max_size=60,
)


def make_routes(cache_max: int) -> Routes:
    limits, store = Limits(), MemoryStore()
    limits.route_cache_max = cache_max
    state = State(Identity(), limits, Access(Policy([], True)), 4, store, Writer(4, 1), Rng(1))
    state.leads = [True] * 4
    fabric = Fabric("n", 4, True)
    streams = Streams([StreamConfig("s", b"a/#", 1)], 4, store)
    commits = Commits(state, streams, Receipts(state, fabric), Throttle(state))
    return Routes(state, fabric, Interest(fabric, commits, Barrier(), Landings(fabric), 4), streams)


class Model:
    """All subscriptions in a list, and what a topic's route must be according to it."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.sessions = [Session(f"c{number}", number % 4, number % 2 == 1) for number in range(5)]
        self.all: list[Subscription] = []

    def add(self, number: int, name: bytes) -> None:
        session = self.sessions[number]
        known = session.subscriptions.get(name)
        if known is not None:
            self.routes.remove(known)
            self.all.remove(known)
        share, topic_filter = split_share(name) or (b"", name)
        subscription = Subscription(session, name, topic_filter, share, number % 3, 0)
        session.subscriptions[name] = subscription
        self.all.append(subscription)
        self.routes.add(subscription)

    def remove(self, number: int) -> None:
        if self.all:
            subscription = self.all.pop(number % len(self.all))
            del subscription.session.subscriptions[subscription.name]
            self.routes.remove(subscription)

    def check(self, topic: bytes) -> None:
        route = self.routes.lookup(topic)
        matching = [one for one in self.all if matches(one.topic_filter, topic)]
        plain = [one for one in matching if not one.share]
        wanted = {one.session.client_id: 0 for one in plain}
        for one in plain:
            wanted[one.session.client_id] = max(wanted[one.session.client_id], one.options & 3)
        assert {recipient.session.client_id: recipient.qos for recipient in route.recipients} == wanted
        assert len(route.recipients) == len(wanted)
        assert sorted(map(id, route.transient + route.persistent)) == sorted(map(id, route.recipients))
        assert all(recipient.session.persistent for recipient in route.persistent)
        assert not any(recipient.session.persistent for recipient in route.transient)
        partitions = [recipient.session.partition for recipient in route.persistent]
        assert partitions == sorted(partitions)
        groups: dict[bytes, list[Subscription]] = {}
        for one in matching:
            if one.share:
                groups.setdefault(one.name, []).append(one)
        assert {group.name: set(group.members) for group in route.groups} == {k: set(v) for k, v in groups.items()}
        assert bool(route.logs) is matches(b"a/#", topic)
        assert route.simple is (not groups and not route.logs)
        assert route.live is (route.simple and not route.persistent)


@given(st.sampled_from([1, 3, 1000]), STEPS)
def test_a_remembered_route_is_never_stale(cache_max: int, steps: list[tuple[str, int, bytes]]) -> None:
    routes = make_routes(cache_max)
    model = Model(routes)
    seen: dict[bytes, None] = {}
    for what, number, name in steps:
        if what == "add":
            model.add(number, name)
        elif what == "remove":
            model.remove(number)
        else:
            seen[name] = None
        for topic in list(seen)[-6:]:
            model.check(topic)
        assert len(routes.cache) <= cache_max
        assert len(routes._index) == len(routes.cache)
    while model.all:
        model.remove(0)
    assert len(routes.groups) == len(routes.state.tree) == 0
    counters = routes.state.counters
    assert counters.subscriptions_persistent == counters.subscriptions_transient == counters.subscriptions_shared == 0


@given(st.lists(TOPICS, max_size=30), PLAIN.filter(has_wildcard))
def test_the_index_finds_all_that_a_filter_may_match(topics: list[bytes], topic_filter: bytes) -> None:
    index = TopicIndex()
    for topic in topics:
        index.add(topic)
    assert len(index) == len(set(topics))
    taken = index.take(topic_filter)
    if taken is None:
        index.clear()
        assert len(index) == 0
        return
    left = set(topics) - set(taken)
    assert not any(matches(topic_filter, topic) for topic in left)
    assert len(index) == len(left)
    for topic in left:
        index.remove(topic)
    assert index._topics == {}


def test_a_filter_below_two_levels_leaves_the_routes_of_others() -> None:
    """A storm of clients that each subscribe to their own branch."""
    routes = make_routes(10_000)
    model = Model(routes)
    for number in range(100):
        routes.lookup(b"dev/%d/x" % number)
    misses = routes.state.counters.route_misses
    for number in range(50):
        model.add(0, b"dev/%d/#" % number)
        for other in range(50, 100):
            routes.lookup(b"dev/%d/x" % other)
    assert routes.state.counters.route_misses == misses


def test_forgotten_routes_are_freed_with_the_making_of_new_ones() -> None:
    routes = make_routes(1_000)
    model = Model(routes)
    for number in range(1_000):
        routes.lookup(b"t/%d" % number)
    for turn in range(200):
        model.add(0, b"+/%d" % turn)  # concerns all topics
        for number in range(10):
            routes.lookup(b"t/%d" % number)
    assert len(routes._stale) <= 8
    assert sum(map(len, routes._index._stale)) <= 8


@given(st.lists(st.integers(0, 30), max_size=60))
def test_members_of_a_group_join_and_leave(numbers: list[int]) -> None:
    group, model = Group(b"$share/g/t", b"t"), dict[int, Subscription]()
    for number in numbers:
        if number in model:
            group.leave(model.pop(number))
        else:
            model[number] = Subscription(Session(f"c{number}", 0, False), b"$share/g/t", b"t", b"g", 0, 0)
            group.join(model[number])
        assert len(group.members) == len(model)
        assert set(group.members) == set(model.values())

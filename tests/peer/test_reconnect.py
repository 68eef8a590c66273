"""Whatever happens to connections and processes, and when: what was sent arrives once and in order, or not at all.

That holds for each of the two classes of messages.
"""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from folkmoot.peer.kind import CONTROL
from folkmoot.peer.peer import OPEN
from tests.peer.lines import Net, Site, config_of

KIND = 40
KINDS = (KIND, CONTROL)
SIZES = (0, 5, 126, 127, 128, 20_000, 300_000)

# What can happen, each with two numbers that say to whom and how much.
QUIET = ["send", "send", "deliver", "deliver", "deliver", "flow", "time", "cut", "half-cut", "dial", "dial", "close"]
ROUGH = [*QUIET, "forget", "restart", "empty restart"]


def happenings(names: list[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    happening = st.tuples(st.sampled_from(names), st.integers(0, 7), st.integers(0, 6))
    return st.lists(happening, min_size=30, max_size=90)


class World:
    """Two nodes, everything that they sent and got, and who they were then."""

    def __init__(self) -> None:
        self.net = Net()
        self.count = 0
        self.sent: list[tuple[Site, int, bytes]] = []
        self.sites: list[Site] = []
        self.incarnations = {"a": 0, "b": 0}
        for node_id in ("a", "b"):
            self.start(node_id, 1)

    def start(self, node_id: str, incarnation: int) -> None:
        self.incarnations[node_id] = incarnation
        site = self.net.start(node_id, incarnation, config_of(b"a secret of some length"))
        site.peers.want("b:1" if node_id == "a" else "a:1")
        self.sites.append(site)

    def send(self, site: Site, size: int) -> None:
        self.count += 1
        body = b"%d:" % self.count + bytes(size)
        kind = KINDS[self.count % 2]
        before = site.peers.messages_dropped
        site.peers.send("b" if site.node_id == "a" else "a", kind, body)
        if site.peers.messages_dropped == before:
            self.sent.append((site, kind, body))

    def sent_by(self, site: Site, kind: int) -> list[bytes]:
        return [body for sender, sent, body in self.sent if sender is site and sent == kind]

    def happen(self, name: str, which: int, amount: int) -> None:
        net = self.net
        site = net.sites["ab"[which % 2]]
        lines = net.lines = [line for line in net.lines if not all(end.told_lost for end in line.ends)]
        line = lines[-1 - which // 2 % len(lines)] if lines else None
        if name == "send":
            for _ in range(which % 3 + 1):
                self.send(site, SIZES[amount])
            net.turn(site)
        elif name == "time":
            net.now += (100, 5_000, 30_000, 100_000, 600_000, 1_900_000, 2_500_000)[amount]
            net.wake()
        elif name == "flow":
            for _ in range(which * which):
                self.round(amount)
        elif name == "dial":
            if net.dials and amount > 2:
                net.answer_dials()
            else:
                net.connect(site, "b:1" if site.node_id == "a" else "a:1")
        elif name == "forget":
            site.peers.forget("b" if site.node_id == "a" else "a")
            net.turn(site)
        elif name.endswith("restart"):
            self.start(site.node_id, 1 if name == "empty restart" else self.incarnations[site.node_id] + 1)
        elif line is not None:
            self.happen_to(name, line, which, amount)

    def round(self, amount: int) -> None:
        """Let something arrive at every end, and answer the dials."""
        self.net.wake()
        self.net.answer_dials()
        for line in list(self.net.lines):
            for side in (0, 1):
                self.net.deliver(line, side, (7, 50, 100, 300, 1000, 30_000, 1 << 20)[amount])

    def happen_to(self, name: str, line: Any, which: int, amount: int) -> None:
        net = self.net
        end = line.ends[which % 2]
        if name == "deliver":
            net.deliver(line, which % 2, (1, 3, 30, 1000, 30_000, 200_000, 1 << 20)[amount])
        elif name == "cut":
            net.cut(line)
        elif name == "half-cut":
            line.broken = True
            if end.site.alive and not end.told_lost:
                end.told_lost = True
                end.site.peers.lost(end.peer, "reset", net.now)
                net.turn(end.site)
        elif name == "close" and end.site.alive and not end.told_lost:
            # A driver closes what it likes: the rest of the output may be lost.
            end.site.peers.lost(end.peer, "closed here", net.now)
            net.close(line, end)
            line.other(end).coming.clear()
            net.turn(end.site)

    def heal(self) -> None:
        self.net.run(4_000_000, 50_000)
        for site in self.net.sites.values():
            for _kind in KINDS:
                self.send(site, 1)
            self.net.turn(site)
        self.net.run(400_000, 20_000)


def play(plan: list[tuple[str, int, int]]) -> World:
    world = World()
    for name, which, amount in plan:
        world.happen(name, which, amount)
    world.heal()
    return world


@settings(max_examples=400)
@given(happenings(QUIET))
def test_everything_arrives_once_and_in_order_over_any_connections(plan: list[tuple[str, int, int]]) -> None:
    world = play(plan)
    for site, other in (("a", "b"), ("b", "a")):
        here, there = world.net.sites[site], world.net.sites[other]
        for kind in KINDS:
            assert there.bodies(site, kind) == world.sent_by(here, kind)
        assert here.peers.up_ids() == [other]
        assert here.peers.backlog_bytes(other) == 0
        assert all(change.resumed for change in here.changes[1:] if change.up)
        refused = here.reasons("peer_refused").replace("it did not finish its handshake in time", "").strip(" |")
        assert not refused
        event(f"ups {min(len(here.changes), 4)}")
    open_lines = [line for line in world.net.lines if not line.broken]
    assert len(open_lines) == 1
    assert all(end.peer.state == OPEN for end in open_lines[0].ends)


@settings(max_examples=400)
@given(happenings(ROUGH))
def test_whoever_dies_or_forgets_gets_no_message_twice_and_none_for_another(plan: list[tuple[str, int, int]]) -> None:
    world = play(plan)
    for site in world.sites:
        for other in world.sites:
            if other.node_id == site.node_id:
                continue
            for kind in KINDS:
                sent = world.sent_by(other, kind)
                got = [body for body in site.bodies(other.node_id, kind) if body in set(sent)]
                order = [sent.index(body) for body in got]
                assert order == sorted(set(order)), "each at most once, in order"
    # After the last change all are well again: what was sent then has arrived, the very last ones at least.
    for node_id, peer_id in (("a", "b"), ("b", "a")):
        here, there = world.net.sites[node_id], world.net.sites[peer_id]
        for kind in KINDS:
            assert there.bodies(node_id, kind)[-1] == world.sent_by(here, kind)[-1]
        assert here.peers.up_ids() == [peer_id]
        event(f"changes {min(len(here.changes) // 2, 4)}")


@settings(max_examples=200)
@given(happenings(ROUGH))
def test_what_is_sent_after_the_last_new_beginning_arrives_complete(plan: list[tuple[str, int, int]]) -> None:
    """No message after the first that arrived is missing, for a pair of processes that nobody forgot."""
    world = play([step for step in plan if step[0] != "forget"])
    for node_id, other in (("a", "b"), ("b", "a")):
        here, there = world.net.sites[node_id], world.net.sites[other]
        for kind in KINDS:
            sent = world.sent_by(here, kind)
            ours = [body for body in there.bodies(node_id, kind) if body in set(sent)]
            assert ours == sent[len(sent) - len(ours) :]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_any_split_of_the_bytes_has_the_same_effects(sizes: list[int]) -> None:
    outcomes = []
    for chunks in ([1 << 20], [1], sizes):
        net = Net()
        a, b = net.start("a"), net.start("b")
        line = net.connect(a, "b:1")
        assert line is not None
        pump(net, chunks)
        assert a.peers.up_ids() == ["b"]
        for number in range(30):
            a.peers.send("b", KIND, bytes(number * 11))
        net.turn(a)
        pump(net, chunks)
        assert len(b.inbox) == 30
        outcomes.append((repr(b.inbox), repr(b.changes), repr(a.changes), repr(b.events)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def pump(net: Net, chunks: list[int]) -> None:
    """Let everything arrive in chunks of these sizes."""
    (line,) = net.lines
    turn = 0
    while any(end.coming for end in line.ends):
        for side in (0, 1):
            net.deliver(line, side, chunks[turn % len(chunks)])
            turn += 1

"""A split heals, replicas only: what both sides have committed is everywhere, and an interrupted merge goes on."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.membership.command import CUT_OFF, Activate, Command, MarkAway
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.fork import fork_of, lineage_in, trunk_of
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.placement_plan import PlanLimits, plan
from folkmoot.membership.projection import branches_of, view_of
from folkmoot.membership.transition import Transition
from folkmoot.merge.stamp import STAMPS_MAX, Stamp, Stamps, encode_stamp, read_stamps
from folkmoot.store.absorbed import LEFTOVER_CHUNK_AT, Span, absorbed_key, decode_origin, encode_span
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.chunk import decode_chunk, encode_chunk
from folkmoot.store.key import (
    LEFTOVER,
    MERGED,
    RETAINED,
    SESSION,
    STAMP,
    SUBSCRIPTION,
    chunk_key,
    end_of,
    kind_prefix,
    log_of_chunk,
    name_prefix,
    plain_key,
    stamp_key,
)
from folkmoot.store.memory import MemoryStore
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.reader import Reader, Snapshot
from folkmoot.store.record import Record
from folkmoot.store.row import SessionRow, encode_session
from folkmoot.store.writer import VERSION_BYTES
from tests.membership.reference import process
from tests.replica.logged import LoggedCell, LoggedWorld

KNOWN = ["n0", "n1", "n2"]


class SplitWorld(LoggedWorld):
    """Nodes whose log is where `Split` says."""

    def propose(self, site: LoggedCell | None, command: Command) -> None:
        """Nobody hears it: `Split.view` asks again."""


class Split:
    """Some nodes and one partition; those that do not reach a majority of their lineage fork."""

    def __init__(self, row_bytes: int = 20, nodes: int = 3) -> None:
        self.world = SplitWorld(5, nodes, 1)
        self.world.config.replicas = nodes
        self.world.config.page_bytes = 500
        self.world.config.digest_us = 0
        self.row_bytes = row_bytes
        self.lineages = 100  # identities that were given
        self.world.begin(nodes)
        for site in self.world.sites:
            self.know(site, self.world.configuration)
        self.view([site.node_id for site in self.world.sites])

    def cell(self, name: str) -> LoggedCell:
        return self.world.site(name)

    def know(self, cell: LoggedCell, configuration: ClusterConfiguration) -> None:
        """Let a node know a configuration; what it was to ask for in another lineage is void."""
        if cell.transition.configuration.lineage != configuration.lineage:
            cell.filled.clear()
        cell.transition = Transition(decode_configuration(encode_configuration(configuration)))

    def view(self, *groups: list[str]) -> None:
        """Let each group of nodes agree on a configuration, install it at once, and let it come to rest."""
        for group in groups:
            cells = [self.cell(name) for name in group]
            configuration = self.meet(cells)
            transition = Transition(configuration)
            commands = [command for cell in cells for command in self.comes(cell, configuration)]
            for command in commands:
                assert transition.apply_command(configuration.index + 1, command).is_accepted()
            for cell in cells:
                self.know(cell, configuration)
            commands = [command for cell in cells for command in cell.asks()]
            for command in commands:
                transition.apply_command(configuration.index + 1, command)
            for command in plan(configuration, PlanLimits(), [], []):
                transition.apply_command(configuration.index + 1, command)
            for cell in cells:
                self.know(cell, configuration)
                cell.installed = cell.transition.configuration
                cell.unfit.clear()
                cell.install(view_of(configuration))
                cell.turn()
        self.rest()

    def meet(self, cells: list[LoggedCell]) -> ClusterConfiguration:
        """Return the newest configuration of the trunk of nodes that reach each other, without all others."""
        known = [cell.transition.configuration for cell in cells]
        trunk = trunk_of([lineage_in(one) for one in known]).lineage
        newest = max([one for one in known if one.lineage == trunk], key=lambda one: one.index)
        configuration = decode_configuration(encode_configuration(newest))
        here = [cell.disk_id for cell in cells if cell.transition.configuration.lineage == trunk]
        up = [disk for disk in configuration.disks() if is_up(configuration.members[disk].state)]
        lost = [(disk, configuration.members[disk].incarnation) for disk in up if disk not in here]
        if lost and 2 * len(here) <= len(up):
            self.lineages += 1
            return fork_of(configuration, self.lineages, lost)
        transition = Transition(configuration)
        for disk, incarnation in lost:
            away = MarkAway(disk, incarnation, configuration.members[disk].version, CUT_OFF)
            assert transition.apply_command(configuration.index + 1, away).is_accepted()
        return configuration

    def comes(self, cell: LoggedCell, configuration: ClusterConfiguration) -> list[Command]:
        """Return the START of a node that is not up in a configuration."""
        one = configuration.members[cell.disk_id]
        if is_up(one.state):
            return []
        branches = branches_of(cell.replication.holdings(), configuration)
        seen = cell.transition.configuration.counter()
        return [Activate(one.disk, one.version, process(cell.incarnation, one.disk), seen, branches)]

    def rest(self, duration_us: int = 300 * MILLISECOND) -> None:
        self.world.run(self.world.now + duration_us)

    def leader(self, *names: str) -> LoggedCell:
        return next(cell for cell in (self.cell(name) for name in names) if cell.replication.leads(0))

    def put(self, cell: LoggedCell, *topics: str) -> None:
        for topic in topics:
            payload = topic.encode() + b"." * self.row_bytes
            message = Message(topic.encode(), payload, 1, True, b"", "p", self.world.now, 0)
            cell.writer.put(0, plain_key(0, RETAINED, topic.encode()), encode_message(message))
            cell.turn()
            self.world.run(self.world.now + 100)
        self.rest()

    def write(self, cell: LoggedCell, key: bytes, body: bytes) -> None:
        cell.writer.put(0, key, body)
        cell.turn()
        self.rest()

    def clear(self, cell: LoggedCell, topic: str) -> None:
        cell.writer.delete(0, plain_key(0, RETAINED, topic.encode()))
        cell.turn()
        self.rest()

    def topics(self, name: str) -> list[str]:
        prefix = kind_prefix(0, RETAINED)
        return [key[3:].decode() for key, _value in self.cell(name).store.scan(prefix, end_of(prefix), 10_000)]

    def kind(self, name: str, kind: int) -> int:
        prefix = kind_prefix(0, kind)
        return len(self.cell(name).store.scan(prefix, end_of(prefix), 10_000))


def test_what_both_sides_have_is_everywhere_and_only_the_branch_is_remembered() -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old", "cleared")
    split.view(["n0", "n1"], ["n2"])
    more, less = split.leader("n0", "n1"), split.cell("n2")
    split.put(more, "more")
    split.put(less, "less")
    split.clear(less, "cleared")
    assert less.committed == less.writer.token - 1, "the smaller side commits on its own"
    assert split.kind("n2", STAMP) == 2, "of what it has put and of what it has cleared"
    split.view(KNOWN)
    assert not less.replication.leads(0)
    split.view(KNOWN)  # the learner is filled
    for name in KNOWN:
        assert split.topics(name) == ["less", "more", "old"]
        assert split.kind(name, STAMP) == 0
        assert split.kind(name, MERGED) == 1
    heals = [heal for name in KNOWN for heal in split.cell(name).replication.heals]
    assert [(heal["retained_kept"], heal["retained_cleared"], heal["from"]) for heal in heals] == [(1, 1, ["n2"])]


@pytest.mark.parametrize("victim_sees_us", [200, 2_000, 5_000, 9_000, 14_000, 20_000])
def test_a_merge_that_its_leader_does_not_survive_goes_on(victim_sees_us: int) -> None:
    split = Split(row_bytes=200_000)
    split.view(["n0", "n1"], ["n2"])
    split.put(split.leader("n0", "n1"), "more")
    names = [f"less{number:02}" for number in range(12)]
    split.put(split.cell("n2"), *names)
    first = split.leader("n0", "n1")
    for cell in [split.cell(name) for name in KNOWN]:
        cell.world = split.world
    before = split.rest
    split.rest = lambda duration_us=victim_sees_us: before(duration_us)  # type: ignore[method-assign]
    split.view(KNOWN)
    split.rest = before  # type: ignore[method-assign]
    split.world.crash(first)
    left = [name for name in KNOWN if name != first.node_id]
    split.view(left)
    split.view(left)
    for name in left:
        assert split.topics(name) == [*names, "more"]


def test_a_side_that_comes_later_brings_nothing_twice() -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0"], ["n1", "n2"])
    split.put(split.leader("n1", "n2"), "both")
    split.view(["n1"], ["n2"])
    split.put(split.cell("n2"), "two")
    split.view(["n0", "n2"])
    split.view(["n0", "n2"])
    taker = split.leader("n0", "n2")
    assert split.topics(taker.node_id) == ["both", "old", "two"]
    split.clear(taker, "both")
    split.view(KNOWN)
    split.view(KNOWN)
    for name in KNOWN:
        assert split.topics(name) == ["old", "two"]


def chunk_of(first: int, *texts: str) -> bytes:
    records = [Record(b"t", text.encode(), 0, b"p", b"") for text in texts]
    return encode_chunk(first, 0, [1 + first + place for place in range(len(texts))], records)


def left_over(split: Split, name: str) -> list[str]:
    """Return the records that a node is to append again."""
    prefix = kind_prefix(0, LEFTOVER)
    rows = split.cell(name).store.scan(prefix, end_of(prefix), 10_000)
    chunks = [value[LEFTOVER_CHUNK_AT:] for _key, value in rows]
    return sorted([entry.record.payload.decode() for chunk in chunks for entry in decode_chunk(chunk)])


def append_left_over(split: Split, cell: LoggedCell) -> None:
    """Append what is left over in the partition, as its leader does when it opens."""
    prefix = kind_prefix(0, LEFTOVER)
    following = 5
    for key, value in cell.store.scan(prefix, end_of(prefix), 10_000):
        origin = decode_origin(value, VERSION_BYTES).given_by(b"")
        texts = [entry.record.payload.decode() for entry in decode_chunk(value, LEFTOVER_CHUNK_AT)]
        place = chunk_key(0, b"s", 0, following)
        span = Span(following, following + len(texts), origin)
        cell.writer.put(0, place, chunk_of(following, *texts))
        cell.writer.put(0, absorbed_key(0, log_of_chunk(place), following), encode_span(span))
        cell.writer.delete(0, key)
        following += len(texts)
    cell.turn()
    split.rest()


TRUNK = ["n0", "n1", "n2", "n3"]
SEVEN = [*TRUNK, "n4", "n5", "n6"]
GROWING = chunk_key(0, b"s", 0, 0)


def two_copies_of_a_branch() -> Split:
    """Return a trunk, n4 as a fork, and n5 and n6 as another one, which have both written two records."""
    split = Split(nodes=7)
    split.put(split.leader(*SEVEN), "old")
    split.view(TRUNK, ["n4"], ["n5", "n6"])
    split.write(split.leader("n5", "n6"), GROWING, chunk_of(0, "first", "second"))
    return split


@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("first", ["n4", "n6"])
def test_a_branch_that_came_with_another_one_does_not_come_again(appended: bool, longer: bool, first: str) -> None:
    """One fork has taken in another one, of which there is a second copy; both are merged into the trunk at once.

    appended: the records are in a chunk of that fork, not left over there. longer: the second copy has got another
    record. first: which of the two is merged first.
    """
    split = two_copies_of_a_branch()
    split.view(TRUNK, ["n4", "n5"])
    assert split.cell("n4").replication.leads(0), "n5 has come over to it, and n6 has the same copy as n5 had"
    assert left_over(split, "n4") == ["first", "second"]
    if appended:
        append_left_over(split, split.cell("n4"))
    if longer or first == "n6":
        split.view(TRUNK, ["n4", "n5"], ["n6"])
    if longer:
        split.write(split.cell("n6"), GROWING, chunk_of(0, "first", "second", "third"))
    if longer and first == "n4":
        split.view(TRUNK, ["n4"], ["n5"])
        split.view(TRUNK, ["n4", "n5"])
    split.view(SEVEN)
    leader = split.leader(*SEVEN)
    assert left_over(split, leader.node_id) == ["first", "second"] + (["third"] if longer else [])


@pytest.mark.parametrize("appended", [False, True])
def test_of_a_longer_copy_that_comes_in_another_branch_only_the_rest_comes(appended: bool) -> None:
    """A fork has taken in the longer of two copies, the trunk the shorter one; then the fork comes.

    The longer copy has rewritten the records of the shorter one in a chunk with another record.
    """
    split = two_copies_of_a_branch()
    split.view(TRUNK, ["n4"], ["n5"])
    split.write(split.cell("n5"), GROWING, chunk_of(0, "first", "second", "third"))
    split.view(TRUNK, ["n4", "n5"])
    assert left_over(split, "n4") == ["first", "second", "third"]
    if appended:
        append_left_over(split, split.cell("n4"))
    for _ in range(2):
        split.view([*TRUNK, "n6"])
    assert left_over(split, split.leader(*TRUNK).node_id) == ["first", "second"]
    split.view(SEVEN)
    assert left_over(split, split.leader(*SEVEN).node_id) == ["first", "second", "third"]


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("appended", [False, True])
def test_records_that_a_longer_copy_of_this_side_has_do_not_come_in_another_branch(
    appended: bool, damaged: bool
) -> None:
    """A fork of the trunk has rewritten them in a chunk with another record, and another fork has taken it in.

    damaged: the leader cannot read its own copy.
    """
    trunk = ["n0", "n1", "n2", "n3"]
    names = [*trunk, "n4", "n5", "n6"]
    split = Split(nodes=7)
    split.put(split.leader(*names), "old")
    split.view([*trunk, "n5", "n6"], ["n4"])
    key = chunk_key(0, b"s", 0, 0)
    split.write(split.leader(*trunk, "n5", "n6"), key, chunk_of(0, "first", "second"))
    split.view([*trunk, "n6"], ["n5"])
    split.write(split.cell("n5"), key, chunk_of(0, "first", "second", "third"))
    split.view([*trunk, "n6"], ["n4", "n5"])
    assert left_over(split, "n4") == ["first", "second", "third"]
    if appended:
        append_left_over(split, split.cell("n4"))
    leader = split.leader(*trunk, "n6")
    if damaged:
        batch = Batch(1)
        value = leader.store.get(key)
        assert value is not None
        batch.put(key, value[:-1])
        leader.store.apply(batch)
    for _ in range(3 if damaged else 1):
        split.view(names)
    assert (split.leader(*names) is not leader) is damaged
    assert left_over(split, split.leader(*names).node_id) == ["third"]
    assert [line for line in split.world.log if "branch_lost" in line] == []


def test_what_a_branch_has_merged_counts_when_all_of_that_branch_has_come() -> None:
    """A fork has taken in another one; its merge into the trunk is interrupted, and it is away afterwards."""
    trunk = ["n0", "n1", "n2", "n3"]
    names = [*trunk, "n4", "n5", "n6"]
    split = Split(nodes=7)
    split.view(trunk, ["n4"], ["n5", "n6"])
    records = [f"{number:02}" + "." * 200_000 for number in range(12)]  # more than one turn takes
    for number, record in enumerate(records):
        split.write(split.leader("n5", "n6"), chunk_key(0, b"s", 0, number), chunk_of(number, record))
    split.view(trunk, ["n4", "n5"])
    assert left_over(split, "n4") == records
    before = split.rest
    split.rest = lambda duration_us=0: None  # type: ignore[method-assign]
    split.view(names)
    split.rest = before  # type: ignore[method-assign]
    while not [name for name in trunk if split.kind(name, LEFTOVER)]:
        split.rest(100)
    leader = next(name for name in trunk if split.kind(name, LEFTOVER))
    while not [name for name in trunk if name != leader and split.kind(name, LEFTOVER)]:
        split.rest(100)
    split.world.crash(split.cell(leader))
    left = [name for name in [*trunk, "n6"] if name != leader]
    assert max(split.kind(name, LEFTOVER) for name in left) == 6
    for _ in range(3):
        split.view(left)
    assert left_over(split, split.leader(*left).node_id) == records


def test_only_the_trunk_gives_out_offsets() -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0", "n1"], ["n2"])
    readable = [split.cell(name).replication.replicas[0].is_readable() for name in KNOWN]
    assert readable == [True, True, False]
    view = split.cell("n0").base
    assert view is not None
    view.losses.missing[0] = ["n2"]
    assert not split.cell("n0").replication.replicas[0].is_readable(), "it would go on from an old copy"


class Failing(Reader):
    """Cannot read pages for some times, as a disk with a bad contact."""

    def __init__(self, store: MemoryStore, times: int, well: int = 0) -> None:
        self.store = store
        self.times = times
        self.well = well  # so often it can before

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self.well -= 1
        if self.times and self.well < 0:
            self.times -= 1
            raise CorruptStore("a block is damaged")
        return self.store.scan(start, end, limit)

    def snapshot(self) -> Snapshot:
        return self.store.snapshot()

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        return self.store.last(start, end)


def losses(split: Split) -> list[str]:
    """Return the nodes that have reported a loss, in their order."""
    return [line.split()[1] for line in split.world.log if "error branch_lost" in line]


@pytest.mark.parametrize(
    ("times", "topics"), [(1, ["less", "more", "old"]), (2, ["less", "more", "old"]), (3, ["more", "old"])]
)
def test_a_branch_that_cannot_be_read_is_asked_for_again_before_it_is_lost(times: int, topics: list[str]) -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0", "n1"], ["n2"])
    split.put(split.leader("n0", "n1"), "more")
    split.put(split.cell("n2"), "less")
    split.cell("n2").replication.context.reader = Failing(split.cell("n2").store, times)
    split.view(KNOWN)
    split.view(KNOWN)
    for name in KNOWN:
        assert split.topics(name) == topics
    leader = split.leader("n0", "n1").node_id
    assert losses(split) == ([leader, "n2"] if times == 3 else []), "who cannot read it, and whose it was"


def test_the_receipt_of_a_heal_counts_a_branch_once_and_says_which_one_was_lost() -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0"], ["n1"], ["n2"])
    for name, topics in {"n0": ["here"], "n1": ["near", "nearer"], "n2": ["far"]}.items():
        for topic in topics:
            split.put(split.cell(name), topic)
    split.cell("n2").replication.context.reader = Failing(split.cell("n2").store, 3)
    split.view(KNOWN)
    leader = split.leader(*KNOWN)
    assert leader.node_id == "n0"
    assert split.topics("n0") == ["here", "near", "nearer", "old"]
    summary = leader.replication.heals[-1]
    assert (summary["from"], summary["partitions"], summary["retained_kept"]) == (["n1", "n2"], 1, 2)
    assert summary["dropped"] == {"n2 cannot read its copy": 1}


@pytest.mark.parametrize("how", ["together", "later", "longer"])
def test_a_sound_copy_of_a_branch_that_was_lost_is_merged(how: str) -> None:
    """Of two copies of a fork one cannot be read. how: when the other one comes, and whether it has grown since."""
    five = [*KNOWN, "n3", "n4"]
    split = Split(nodes=5)
    split.put(split.leader(*five), "old")
    split.view(KNOWN, ["n3", "n4"])
    split.put(split.leader("n3", "n4"), "less")
    topics = ["less", "old"]
    split.cell("n3").replication.context.reader = Failing(split.cell("n3").store, 1000)
    if how == "longer":
        split.view(KNOWN, ["n4"])
        split.put(split.cell("n4"), "last")
        topics = ["last", "less", "old"]
    if how != "together":
        split.view([*KNOWN, "n3"])
        assert split.kind(split.leader(*KNOWN).node_id, MERGED) == 0
        assert losses(split) == [split.leader(*KNOWN).node_id, "n3"]
    split.view(five)
    split.view(five)
    for name in [*KNOWN, "n4"]:
        assert split.topics(name) == topics


def test_a_lost_branch_is_overwritten_and_another_one_is_known_by_its_own_records() -> None:
    split = Split(nodes=5)
    five = [*KNOWN, "n3", "n4"]
    split.put(split.leader(*five), "old")
    split.view(KNOWN, ["n3"], ["n4"])
    split.write(split.cell("n3"), GROWING, chunk_of(0, "first", "second"))
    split.put(split.cell("n4"), "less")
    split.cell("n4").replication.context.reader = Failing(split.cell("n4").store, 3)
    for _ in range(2):
        split.view(five)
    for name in five:
        assert split.topics(name) == ["old"]
        assert split.kind(name, MERGED) == 1, "that of n3"
    assert losses(split) == [split.leader(*KNOWN).node_id, "n4"]
    assert [line for line in split.world.log if "none of them was acknowledged" in line] == []


def fork_with_a_loss(how: str) -> Split:
    """Return a fork of n2 alone, which has acknowledged messages. how: what it finds of its copy afterwards."""
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0", "n1"], ["n2"])
    less = split.cell("n2")
    split.put(less, "less", "less2")
    assert less.committed == less.writer.token - 1, "acknowledged in the fork"
    if how == "damaged":
        less.replication.replicas[0].spoil("a block is damaged")
    else:
        less.replication.doubt()
    less.turn()
    split.rest()
    return split


@pytest.mark.parametrize(("how", "text"), [("damaged", "is damaged"), ("in doubt", "is incomplete")])
def test_a_copy_that_cannot_be_merged_is_reported_as_lost(how: str, text: str) -> None:
    split = fork_with_a_loss(how)
    for _ in range(2):
        split.view(KNOWN)
    assert split.topics("n0") == split.topics("n2") == ["old"]
    assert losses(split) == ["n2"]
    assert [line for line in split.world.log if "branch_lost" in line and text in line]
    assert [line for line in split.world.log if "none of them was acknowledged" in line] == []


@pytest.mark.parametrize("first", ["n3", "n4"])
def test_a_damaged_copy_is_no_loss_where_another_one_was_merged(first: str) -> None:
    five = [*KNOWN, "n3", "n4"]
    split = Split(nodes=5)
    split.put(split.leader(*five), "old")
    split.view(KNOWN, ["n3", "n4"])
    split.put(split.leader("n3", "n4"), "less")
    split.cell("n4").replication.replicas[0].spoil("a block is damaged")
    split.cell("n4").turn()
    split.rest()
    split.view([*KNOWN, first])
    for _ in range(2):
        split.view(five)
    for name in five:
        assert split.topics(name) == ["less", "old"]
    assert losses(split) == ([] if first == "n3" else ["n4"]), "what came first could not know of the other one"


def test_a_damaged_copy_of_this_lineage_is_no_loss() -> None:
    split = Split()
    leader = split.leader(*KNOWN)
    other = next(split.cell(name) for name in KNOWN if name != leader.node_id)
    split.put(leader, "old")
    other.replication.replicas[0].spoil("a block is damaged")
    other.turn()
    split.rest()
    for _ in range(3):
        split.view(KNOWN)
    assert split.topics(other.node_id) == ["old"]
    assert losses(split) == []


def test_who_cannot_read_what_was_merged_before_does_not_lead() -> None:
    split = Split()
    leader = split.leader(*KNOWN)
    split.put(leader, "old")
    left = [name for name in KNOWN if name != leader.node_id]
    successor = split.cell(left[0])
    batch = Batch(1)
    batch.put(kind_prefix(0, MERGED) + b"odd", bytes(16) + b"?")
    successor.store.apply(batch)
    split.view(left)
    assert not successor.replication.leads(0)
    assert successor.unfit == {0}
    split.view(left)
    assert split.leader(*left) is not successor
    split.view(left)
    assert split.topics(successor.node_id) == ["old"]
    assert split.kind(successor.node_id, MERGED) == 0, "its copy was replaced"


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
def test_of_three_sides_the_latest_retained_message_stays_whoever_meets_first(first: str, second: str) -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0"], ["n1"], ["n2"])
    for name, payload in ((first, b"earlier"), (second, b"later")):
        cell = split.cell(name)
        message = Message(b"t", payload, 1, True, b"", "p", split.world.now, 0)
        cell.writer.put(0, plain_key(0, RETAINED, b"t"), encode_message(message))
        cell.turn()
        split.rest()
    split.put(split.cell("n0"), "other")
    split.view(["n0", first], [second])  # this merge is later than both
    split.rest()
    for _ in range(3):
        split.view(KNOWN)
        split.rest()
    for name in KNOWN:
        value = split.cell(name).store.get(plain_key(0, RETAINED, b"t"))
        assert value is not None
        assert decode_message(value, VERSION_BYTES).payload == b"later"


def test_stamps_say_when_and_their_clock_does_not_go_back() -> None:
    store = MemoryStore()
    stamps = Stamps(0)
    session, topic = plain_key(0, SESSION, b"c"), plain_key(0, RETAINED, b"t")
    subscription = name_prefix(0, SUBSCRIPTION, b"c") + b"a"
    queue = kind_prefix(0, 3) + b"x"

    def note(ops: list[tuple[int, bytes, bytes]], now: int) -> None:
        batch = Batch(1)
        stamps.learn(ops)
        stamps.note(batch, bytes(16), ops, now)
        store.apply(batch)

    used, rests = (bytes(16) + encode_session(SessionRow(5, 60, ends_us, 0, "")) for ends_us in (0, 77))
    note([(PUT, session, used), (PUT, topic, b""), (PUT, queue, b""), (PUT, subscription, b"")], 100)
    note([(PUT, session, rests)], 110)
    note([(DELETE, topic, b""), (DELETE, queue, b""), (DELETE, session, b"")], 50)
    note([(DELETE_RANGE, subscription[:-1], subscription + b"z")], 200)
    found = {key: (stamp.put_us, stamp.gone_us) for key, stamp in read_stamps(store, 0).items()}
    assert found == {session: (100, 101), subscription: (100, 0), topic: (100, 101)}
    again = Stamps(0)
    again.load(store)
    assert len(again) == 3
    other_side = encode_stamp(Stamp(900, 0))
    note([(PUT, stamp_key(subscription), bytes(16) + other_side)], 210)
    note([(PUT, session, used)], 220)
    assert read_stamps(store, 0)[session].put_us == 901
    topics = [plain_key(0, RETAINED, b"t%d" % number) for number in range(STAMPS_MAX)]
    note([(PUT, key, b"") for key in topics], 225)
    assert len(stamps) == len(read_stamps(store, 0)) == STAMPS_MAX // 2, "others than retained messages have room"
    note([(DELETE, plain_key(0, RETAINED, b"nothing%d" % number), b"") for number in range(STAMPS_MAX)], 226)
    assert len(stamps) == len(read_stamps(store, 0)) == STAMPS_MAX // 2, "clears of nothing take no more"
    note([(PUT, kind_prefix(0, STAMP), bytes(16) + encode_stamp(Stamp(0, 240)))], 230)
    note([(DELETE, subscription, b"")], 250)
    assert read_stamps(store, 0)[subscription].gone_us == 903


def test_stamps_of_the_other_side_are_renewed_or_go() -> None:
    stamps = Stamps(0)
    keys = [name_prefix(0, SUBSCRIPTION, b"c") + b"%04d" % number for number in range(STAMPS_MAX + 1)]
    theirs = bytes(16) + encode_stamp(Stamp(900, 0))
    stamps.learn([(PUT, stamp_key(key), theirs) for key in keys])
    batch = Batch(1)
    stamps.note(batch, bytes(16), [(PUT, keys[-1], b"")], 1_000)
    assert [op[1] for op in batch.ops] == [stamp_key(keys[-1])], "it is there, so it is not taken for older than it is"
    stamps.learn([(DELETE, stamp_key(key), b"") for key in keys[:2]])
    assert len(stamps) == STAMPS_MAX - 1
    batch = Batch(2)
    stamps.note(batch, bytes(16), [(PUT, keys[0], b""), (PUT, keys[1], b"")], 1_001)
    assert [op[1] for op in batch.ops] == [stamp_key(keys[0])], "one has room"


def test_stamps_go_with_the_heal_where_this_side_has_changed_nothing() -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0", "n1"], ["n2"])
    split.put(split.cell("n2"), "less")
    for _ in range(3):
        split.view(KNOWN)
    for name in KNOWN:
        assert split.topics(name) == ["less", "old"]
        assert split.kind(name, STAMP) == 0


def test_what_expires_is_nobodys_change() -> None:
    store = MemoryStore()
    stamps = Stamps(0)
    session, topic = plain_key(0, SESSION, b"c"), plain_key(0, RETAINED, b"t")
    batch = Batch(1)
    used = bytes(16) + encode_session(SessionRow(5, 2, 0, 0, ""))
    stamps.note(batch, bytes(16), [(PUT, session, used)], 100)
    stamps.note(batch, bytes(16), [(DELETE_RANGE, key, key + b"\0") for key in (session, topic)], 200)
    store.apply(batch)
    found = {key: (stamp.put_us, stamp.gone_us) for key, stamp in read_stamps(store, 0).items()}
    assert found == {session: (100, 0)}


@pytest.mark.parametrize("well", range(6))
def test_a_leader_that_cannot_read_its_own_copy_does_not_call_the_branch_lost(well: int) -> None:
    split = Split()
    split.put(split.leader(*KNOWN), "old")
    split.view(["n0", "n1"], ["n2"])
    leader = split.leader("n0", "n1")
    split.put(leader, "more")
    split.put(split.cell("n2"), "less")
    leader.replication.context.reader = Failing(leader.store, 4, well)
    for _ in range(5):
        split.view(KNOWN)
    assert [line for line in split.world.log if "branch_lost" in line] == []
    for name in KNOWN:
        assert split.topics(name) == ["less", "more", "old"]

"""A second, naive statement of the rules of the configuration, to compare with; and drawn commands.

The reference says in sets and dictionaries what `membership/transition` says in tables and immutable objects. It knows
neither bytes nor reasons, only whether a command fits and what it changes.
"""

from __future__ import annotations

from typing import Any

from folkmoot.kernel.feature import TOGETHER_BIT
from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_member import DATA, WITNESS, ClusterMember, Process
from folkmoot.membership.command import (
    Activate,
    AlterIsr,
    Command,
    Delete,
    Evict,
    Features,
    Found,
    IsrItem,
    Join,
    Lead,
    Leave,
    MarkAway,
    Place,
    PlaceItem,
    Prune,
    Put,
    Remove,
    Renew,
    Stay,
    Strain,
    Withdraw,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.lifecycle import STATES

ALL_FEATURES = 7


def process(incarnation: int, number: int = 0, features: int = ALL_FEATURES) -> Process:
    """A process on a host and in a zone that follow from `number`."""
    return Process(
        incarnation, f"192.0.2.{number}:1883", f"zone{number % 3}", f"host{number % 6}", features=features, build="1.0"
    )


def member(disk: int, incarnation: int = 1, kind: int = DATA, name: str = "") -> ClusterMember:
    """A member that joins."""
    return ClusterMember(disk, name or f"node{disk}", kind, process(incarnation, disk % 250))


def founded(disks: list[int], partitions: int = 4, copies: int = 3, witnesses: list[int] | None = None) -> Found:
    """The first entry of a cluster."""
    members = [member(disk) for disk in disks]
    members += [member(disk, kind=WITNESS) for disk in witnesses or []]
    return Found(4711, 1, 0, 0, members, partitions, copies)


class Reference:
    """What the configuration has to be; members and partitions are dictionaries."""

    def __init__(self) -> None:
        self.members: dict[int, dict[str, Any]] = {}
        self.partitions: list[dict[str, Any]] = []
        self.removed: dict[int, int] = {}
        self.settings: dict[str, tuple[bytes, int]] = {}
        self.features = 0
        self.base = 0
        self.changed = 0
        self.apart = False  # somebody with data may be in another lineage, or has to be merged
        self.shared: list[int] = []  # with each ancestor, the last counter
        self.forgotten: list[int] = []

    def up(self, disk: int) -> bool:
        return disk in self.members and self.members[disk]["state"] in ("active", "leaving")

    def stays(self, partition: dict[str, Any], disk: int) -> bool:
        """A replica in sync stays so while others are: it is up, or nobody knows whether it is the newest."""
        return partition["recovering"] or self.up(disk)

    def apply(self, index: int, command: Command) -> bool:
        """Apply a command; True if it was accepted."""
        name = type(command).__name__.lower()
        handler = getattr(self, "features_on" if name == "features" else name)
        accepted = bool(handler(index, command))
        for partition in self.partitions:
            partition["branches"] = partition["branches"] & (set(partition["replicas"]) - partition["isr"])
            partition["damaged"] = partition["damaged"] and len(partition["isr"]) == 1
            partition["recovering"] = partition["recovering"] and len(partition["isr"]) > 1
        if accepted and not isinstance(command, (Put, Delete, Features)):
            self.changed = index + self.base
        if accepted:
            self.unite()
        return accepted

    def unite(self) -> None:
        missing = [disk for disk, one in self.members.items() if one["kind"] == DATA and one["started"]]
        missing = [disk for disk in missing if not self.up(disk)]
        if not missing and not any(partition["branches"] for partition in self.partitions):
            self.apart = False

    def fork(self, index: int, deaths: list[MarkAway]) -> None:
        """Begin a fork in which some are away: copies that are all away were in sync until then, and stay so."""
        before = [set(partition["isr"]) for partition in self.partitions]
        self.shared.append(index - 1 + self.base)
        for command in deaths:
            assert self.apply(index, command)
        for partition, isr in zip(self.partitions, before, strict=True):
            if partition["recovering"]:
                assert partition["isr"] == isr, "nobody leaves"
            elif partition["isr"] != isr and not any(self.up(disk) for disk in isr):
                partition["isr"] = isr
                partition["version"] += 1
        self.changed = index + self.base
        self.apart = True
        self.unite()

    def found(self, index: int, command: Found) -> bool:
        if self.partitions:
            return False
        for one in command.members:
            self.members[one.disk] = {
                "name": one.node_id,
                "kind": one.kind,
                "state": "active",
                "incarnation": one.incarnation,
                "evicted": 0,
                "full": False,
                "slow": False,
                "version": index,
                "features": one.process.features,
                "started": index,
                "away": 0,
                "why": 0,
            }
        for _ in range(command.partitions):
            self.partitions.append(
                {
                    "replicas": [],
                    "isr": set(),
                    "leader": 0,
                    "epoch": 0,
                    "version": 0,
                    "lost": False,
                    "branches": set(),
                    "damaged": False,
                    "recovering": False,
                },
            )
        return True

    def join(self, index: int, command: Join) -> bool:
        one = command.member
        if one.disk in self.members or one.node_id in [other["name"] for other in self.members.values()]:
            return False
        if self.removed.get(one.disk, 0) >= one.incarnation or self.features & ~one.process.features:
            return False
        self.members[one.disk] = {
            "name": one.node_id,
            "kind": one.kind,
            "state": "joining",
            "incarnation": one.incarnation,
            "evicted": 0,
            "full": False,
            "slow": False,
            "version": index,
            "features": one.process.features,
            "started": 0,
            "away": 0,
            "why": 0,
        }
        return True

    def activate(self, index: int, command: Activate) -> bool:
        one = self.members.get(command.disk)
        incarnation = command.process.incarnation
        if one is None or incarnation < one["incarnation"] or incarnation <= one["evicted"]:
            return False
        if incarnation == one["incarnation"] and (self.up(command.disk) or command.version != one["version"]):
            return False
        if self.features & ~command.process.features:
            return False
        wrong = [number for number in command.branches if number >= len(self.partitions)]
        if wrong or command.branches != sorted(set(command.branches)) or (command.branches and one["kind"] != DATA):
            return False
        if command.seen - index - self.base > 1 << 22:
            return False
        while index + self.base <= command.seen:
            self.base += command.seen - index - self.base + 1
        one["state"] = "leaving" if "leaving" in one["state"] else "active"
        one["started"] = index + self.base
        one["why"] = 0
        one.update(incarnation=incarnation, version=index, features=command.process.features)
        for number, partition in enumerate(self.partitions):
            if partition["isr"] == {command.disk}:
                partition["damaged"] = False
            if number in command.branches:
                self.branch(partition, command.disk)
            elif command.disk in partition["isr"] and partition["leader"] in (0, command.disk):
                partition["leader"] = 0
                partition["isr"] = {disk for disk in partition["isr"] if self.stays(partition, disk)}
                self.lead_again(partition)
                partition["version"] += partition["leader"] > 0
        return True

    def branch(self, partition: dict[str, Any], disk: int) -> None:
        if disk not in partition["replicas"]:
            partition["replicas"] = [*partition["replicas"], disk]
        in_sync = {other for other in partition["isr"] if self.stays(partition, other)}
        left: set[int] = set()
        if not partition["isr"] and self.features & TOGETHER_BIT:
            left = set(partition["replicas"]) - partition["branches"] - {disk}
        if left:
            partition["branches"] = partition["branches"] | {disk}
        elif in_sync == {disk} or not partition["isr"]:
            partition["isr"] = {disk}
            partition["leader"] = 0
        else:
            partition["isr"] = partition["isr"] - {disk}
            partition["branches"] = partition["branches"] | {disk}
        if left:
            pass  # nobody leads before all of them are up
        elif partition["leader"] in (0, disk):
            self.lead_again(partition)
        else:
            partition["epoch"] += 1  # all begin anew with the leader, which merges it
        partition["version"] += 1

    def lead_again(self, partition: dict[str, Any]) -> None:
        able = [disk for disk in partition["replicas"] if disk in partition["isr"] and self.up(disk)]
        if partition["damaged"] or (partition["recovering"] and set(able) != partition["isr"]):
            able = []
        well = [disk for disk in able if not (self.members[disk]["full"] or self.members[disk]["slow"])]
        chosen = (well or able or [0])[0]
        if chosen and chosen != partition["leader"]:
            partition["epoch"] += 1
        partition["leader"] = chosen

    def set_away(self, index: int, disk: int, why: int) -> None:
        one = self.members[disk]
        if "away" not in one["state"] or one["why"] == 0:
            one["away"] = index + self.base
        one["why"] = why
        one["state"] = "away-leaving" if "leaving" in one["state"] else "away"
        one["version"] = index

    def shrink(self, disks: set[int]) -> None:
        for partition in self.partitions:
            if not disks & partition["isr"]:
                continue
            before = (set(partition["isr"]), partition["leader"])
            if partition["recovering"]:
                partition["leader"] = 0
            elif any(self.up(other) for other in partition["isr"]):
                partition["isr"] = partition["isr"] - disks
            if partition["leader"] in disks:
                self.lead_again(partition)
            if before != (partition["isr"], partition["leader"]):
                partition["version"] += 1

    def markaway(self, index: int, command: MarkAway) -> bool:
        together = [command, *command.others]
        if len({one.disk for one in together}) < len(together):
            return False
        known = [(one, self.members[one.disk]) for one in together if one.disk in self.members]
        if [1 for one, told in known if (one.incarnation, one.version) != (told["incarnation"], told["version"])]:
            return False
        gone = {one.disk for one in together if self.marked_away(index, one)}
        self.shrink(gone)
        return bool(gone)

    def marked_away(self, index: int, command: MarkAway) -> bool:
        one = self.members.get(command.disk)
        if one is None or (one["incarnation"], one["version"]) != (command.incarnation, command.version):
            return False
        if "away" in one["state"] or command.why == 0:
            return False
        self.set_away(index, command.disk, command.why)
        return True

    def evict(self, index: int, command: Evict) -> bool:
        one = self.members.get(command.disk)
        if one is None or one["incarnation"] != command.incarnation or one["evicted"] >= command.incarnation:
            return False
        one["evicted"] = command.incarnation
        self.set_away(index, command.disk, 5)
        self.shrink({command.disk})
        return True

    def leave(self, index: int, command: Leave) -> bool:
        one = self.members.get(command.disk)
        if one is None or one["version"] != command.version or "leaving" in one["state"]:
            return False
        one.update(state="leaving" if one["state"] == "active" else "away-leaving", version=index)
        return True

    def stay(self, index: int, command: Stay) -> bool:
        one = self.members.get(command.disk)
        if one is None or one["version"] != command.version or "leaving" not in one["state"]:
            return False
        one.update(state="active" if one["state"] == "leaving" else "away", version=index)
        return True

    def strain(self, index: int, command: Strain) -> bool:
        one = self.members.get(command.disk)
        if one is None or (one["incarnation"], one["version"]) != (command.incarnation, command.version):
            return False
        if (one["full"], one["slow"]) == (command.full, command.slow):
            return False
        one.update(full=command.full, slow=command.slow, version=index)
        return True

    def remove(self, index: int, command: Remove) -> bool:
        one = self.members.get(command.disk)
        if one is None or one["version"] != command.version or one["state"] == "active":
            return False
        mine = [partition for partition in self.partitions if command.disk in partition["replicas"]]
        if one["state"] == "leaving" and mine:
            return False
        only = [partition for partition in mine if command.disk in partition["branches"]]
        only += [partition for partition in mine if not partition["isr"] or partition["isr"] == {command.disk}]
        only += [partition for partition in mine if partition["recovering"] and command.disk in partition["isr"]]
        if only and not command.force:
            return False
        for partition in mine:
            if partition["isr"] == {command.disk}:
                partition["lost"] = True
            partition["replicas"] = [disk for disk in partition["replicas"] if disk != command.disk]
            partition["isr"] = partition["isr"] - {command.disk}
            if partition["leader"] == 0:
                self.lead_again(partition)
            partition["version"] += 1
        del self.members[command.disk]
        self.removed[command.disk] = one["incarnation"]
        return True

    def place(self, index: int, command: Place) -> bool:
        return True in [self.place_one(item) for item in command.items]

    def place_one(self, item: PlaceItem) -> bool:
        if item.partition >= len(self.partitions):
            return False
        partition = self.partitions[item.partition]
        if item.version != partition["version"] or not item.replicas:
            return False
        if len(set(item.replicas)) != len(item.replicas) or set(item.replicas) - set(self.members):
            return False
        if item.replicas == partition["replicas"] and partition["isr"]:
            return False
        for disk in set(item.replicas) - set(partition["replicas"]):
            if self.members[disk]["kind"] != DATA or self.members[disk]["state"] != "active":
                return False
        isr = partition["isr"] & set(item.replicas)
        left: set[int] = set()
        if partition["recovering"] and isr != partition["isr"]:
            return False
        if not partition["isr"]:
            if self.apart and not partition["lost"]:
                return False
            able = [disk for disk in item.replicas if self.up(disk)]
            whole = set(able) - partition["branches"]
            if self.features & TOGETHER_BIT:
                left = set(partition["replicas"]) - partition["branches"]
            if left - whole:
                return False
            isr = left or whole or set(able[:1])
        if not isr:
            return False
        partition["replicas"] = item.replicas
        partition["isr"] = isr
        partition["recovering"] = partition["recovering"] or len(left) > 1
        if partition["leader"] not in isr:
            self.lead_again(partition)
        partition["version"] += 1
        return True

    def alterisr(self, index: int, command: AlterIsr) -> bool:
        return True in [self.alter_one(command, item) for item in command.items]

    def alter_one(self, command: AlterIsr, item: IsrItem) -> bool:
        if item.partition >= len(self.partitions):
            return False
        partition = self.partitions[item.partition]
        leadership = (partition["leader"], partition["epoch"], partition["version"])
        if leadership != (command.leader, item.leader_epoch, item.version):
            return False
        wanted = set(item.isr)
        if len(wanted) < len(item.isr) or command.leader not in wanted or wanted - set(partition["replicas"]):
            return False
        for disk in wanted - partition["isr"]:
            if not self.up(disk) or self.members[disk]["started"] != command.started[disk]:
                return False
        if wanted == partition["isr"] and not partition["recovering"]:
            return False
        partition["isr"] = wanted
        partition["recovering"] = False
        partition["epoch"] += item.anew
        partition["version"] += 1
        return True

    def lead(self, index: int, command: Lead) -> bool:
        if command.partition >= len(self.partitions):
            return False
        partition = self.partitions[command.partition]
        if command.version != partition["version"] or command.leader not in partition["isr"]:
            return False
        if command.leader == partition["leader"] or not self.up(command.leader) or partition["damaged"]:
            return False
        if partition["recovering"] and not all(self.up(disk) for disk in partition["isr"]):
            return False
        partition["leader"] = command.leader
        partition["epoch"] += 1
        partition["version"] += 1
        return True

    def withdraw(self, index: int, command: Withdraw) -> bool:
        one = self.members.get(command.disk)
        if one is None or one["incarnation"] != command.incarnation or not self.up(command.disk):
            return False
        named = [*command.partitions, *[number for number, _version in command.damaged]]
        if [number for number in named if number >= len(self.partitions)]:
            return False
        done = False
        versions = dict(command.damaged)
        for number in set(named):
            partition = self.partitions[number]
            if partition["isr"] == {command.disk} and versions.get(number) == partition["version"]:
                if not partition["damaged"]:
                    partition.update(damaged=True, leader=0, version=partition["version"] + 1)
                    done = True
            elif partition["isr"] == {command.disk} and number in command.partitions and partition["lost"]:
                able = [disk for disk in partition["replicas"] if disk in partition["branches"] and self.up(disk)]
                if able and self.features & TOGETHER_BIT:
                    partition["branches"] = partition["branches"] - {able[0]}
                    partition.update(isr={able[0]}, leader=able[0])
                    partition["epoch"] += 1
                    partition["version"] += 1
                    done = True
            elif command.disk in partition["isr"] and len(partition["isr"]) > 1:
                partition["isr"] = partition["isr"] - {command.disk}
                if partition["leader"] == command.disk:
                    self.lead_again(partition)
                partition["version"] += 1
                done = True
        return done

    def renew(self, index: int, command: Renew) -> bool:
        one = self.members.get(command.disk)
        return one is not None and one["incarnation"] == command.incarnation and self.up(command.disk)

    def prune(self, index: int, command: Prune) -> bool:
        """Forget ancestors when all are up and merged, but for three kinds.

        They are the parent, those in which a member has started, and those with which a founder in doubt shared none.
        """
        if self.apart or not all(self.up(disk) for disk, one in self.members.items() if one["started"]):
            return False
        if any(partition["branches"] for partition in self.partitions):
            return False
        starts = [one["started"] for one in self.members.values()]
        times = list(zip([0, *self.shared], self.shared, strict=False))
        old = [shared for last, shared in times[:-1] if not any(last < start <= shared for start in starts)]
        pairs = [(last, shared) for last, shared in times if shared == last + 1]
        old = [shared for shared in old if not any(shared in pair for pair in pairs)]
        gone = [shared for shared in old if shared <= command.upto]
        if not gone or command.upto > max(old, default=0):
            return False
        self.shared = [shared for shared in self.shared if shared not in gone]
        self.forgotten += gone
        return True

    def put(self, index: int, command: Put) -> bool:
        number = self.settings[command.key][1] if command.key in self.settings else 0
        if command.expected not in (-1, number):
            return False
        self.settings[command.key] = (command.value, index)
        return True

    def delete(self, index: int, command: Delete) -> bool:
        if command.key not in self.settings or command.expected not in (-1, self.settings[command.key][1]):
            return False
        del self.settings[command.key]
        return True

    def features_on(self, index: int, command: Features) -> bool:
        bits = self.features | command.bits
        if bits == self.features or [one for one in self.members.values() if bits & ~one["features"]]:
            return False
        self.features = bits
        return True

    def compare(self, configuration: ClusterConfiguration) -> None:
        """Assert that the configuration is this one."""
        assert configuration.features == self.features
        assert (configuration.base, configuration.changed) == (self.base, self.changed)
        assert [shared for _lineage, shared in configuration.ancestors] == self.shared
        assert configuration.floor == max([0, *self.forgotten])
        assert sorted(configuration.members) == sorted(self.members)
        for disk, one in self.members.items():
            found = configuration.members[disk]
            assert one == {
                "name": found.node_id,
                "kind": found.kind,
                "state": STATES[found.state],
                "incarnation": found.incarnation,
                "evicted": found.evicted,
                "full": found.full,
                "slow": found.slow,
                "version": found.version,
                "features": found.process.features,
                "started": found.started,
                "away": found.away,
                "why": found.why,
            }
        assert len(configuration.partitions) == len(self.partitions)
        for number, state in enumerate(configuration.partitions):
            partition = self.partitions[number]
            assert state.replicas == partition["replicas"]
            assert set(state.isr) == partition["isr"]
            assert (state.leader, state.leader_epoch) == (partition["leader"], partition["epoch"])
            assert state.version == partition["version"]
            assert set(configuration.branches.get(number, [])) == partition["branches"]
            assert (number in configuration.lost) == partition["lost"]
            assert (number in configuration.damaged) == partition["damaged"]
            assert (number in configuration.recovering) == partition["recovering"]
        values = {key: (found.value, found.number) for key, found in configuration.settings.values.items()}
        assert values == self.settings


class Drawer:
    """Draws commands that mostly fit the configuration, and some that are outdated or wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = Rng(seed)
        self.disks = [10 + number for number in range(8)]
        self.kept: list[Command] = []  # commands of earlier moments, to be proposed again
        self.goes_together = seed % 2 == 0  # its log begins with the feature of that name

    def pick(self, values: list[int]) -> int:
        return values[self.rng.below(len(values))]

    def some(self, values: list[int]) -> list[int]:
        """Draw some of the values, in any order."""
        left = list(values)
        return [left.pop(self.rng.below(len(left))) for _ in range(self.rng.below(len(values) + 1))]

    def draw(self, configuration: ClusterConfiguration) -> Command:
        rng = self.rng
        if self.goes_together and configuration.is_founded():
            self.goes_together = False
            return Features(TOGETHER_BIT)
        if self.kept and rng.chance(1, 8):
            return self.kept[rng.below(len(self.kept))]
        command = self.fresh(configuration)
        if rng.chance(1, 4):
            self.kept.append(command)
            del self.kept[:-20]
        return command

    def fresh(self, configuration: ClusterConfiguration) -> Command:
        rng = self.rng
        kind = rng.below(16)
        disk = self.pick(self.disks)
        found = configuration.members.get(disk)
        version = 0 if found is None else found.version
        incarnation = 1 if found is None else found.incarnation
        if kind == 0 and rng.chance(1, 10):
            return founded([1])
        if kind in (0, 1):
            name = f"node{self.pick(self.disks)}" if rng.chance(1, 8) else ""
            join = member(disk, 1 + rng.below(12), WITNESS if rng.chance(1, 6) else DATA, name)
            return Join(join)
        if kind in (2, 3, 4):
            number = 1 + rng.below(12) if found is None else max(1, incarnation + rng.below(3) - (rng.below(4) == 0))
            features = ALL_FEATURES if rng.chance(9, 10) else 1
            seen = configuration.counter() + rng.below(6) - 3 if rng.chance(1, 4) and found is not None else 0
            if rng.chance(1, 30):
                seen += 2 << 22
            branches: list[int] = []
            if configuration.partitions and rng.chance(1, 3):
                branches = self.some(list(range(len(configuration.partitions) + (rng.below(12) == 0))))
            if not rng.chance(1, 12):
                branches.sort()
            return Activate(disk, version, process(number, disk, features), seen, branches)
        if kind == 5 and rng.chance(1, 2):
            away = MarkAway(disk, incarnation, version, rng.below(5))
            for other in [one for one in configuration.members.values() if rng.chance(1, 4)]:
                away.others.append(MarkAway(other.disk, other.incarnation, other.version, rng.below(5)))
            return away
        if kind == 6:
            return Leave(disk, version) if rng.chance(1, 2) else Stay(disk, version)
        if kind == 7:
            return Evict(disk, incarnation) if rng.chance(1, 4) else self.strain(disk, incarnation, version)
        if kind == 8 and rng.chance(1, 2):
            return Remove(disk, version, 1 + rng.below(3), rng.chance(1, 3))
        if kind == 13 and configuration.partitions and rng.chance(2, 3):
            return Renew(disk, incarnation) if rng.chance(1, 4) else self.withdraw(configuration, disk, incarnation)
        if 5 <= kind < 14 and configuration.partitions:
            return self.of_partition(configuration, kind)
        key = f"key{rng.below(4)}"
        expected = rng.below(4) - 1 if rng.chance(1, 3) else configuration.settings.number(key)
        if kind == 14:
            return Put(key, bytes(rng.below(20)), expected, "root") if rng.chance(2, 3) else Delete(key, expected, "a")
        return Features(1 << rng.below(4)) if rng.chance(1, 10) else MarkAway(disk, incarnation, version, 1)

    def withdraw(self, configuration: ClusterConfiguration, disk: int, incarnation: int) -> Withdraw:
        """Draw copies that are behind, or damaged, sometimes of a partition that there is not or as it was before."""
        rng = self.rng
        count = len(configuration.partitions)
        some = [rng.below(count + 1) if rng.chance(1, 9) else rng.below(count) for _ in range(1 + rng.below(4))]
        if rng.chance(1, 2):
            return Withdraw(disk, incarnation, some, [])
        damaged: list[tuple[int, int]] = []
        for number in sorted(set(some)):
            known = configuration.partitions[number].version if number < count else 0
            damaged.append((number, max(0, known - (rng.below(8) == 0))))
        return Withdraw(disk, incarnation, [], damaged)

    def strain(self, disk: int, incarnation: int, version: int) -> Strain:
        return Strain(disk, incarnation, version, self.rng.chance(1, 2), self.rng.chance(1, 3))

    def replicas(self, configuration: ClusterConfiguration, number: int) -> list[int]:
        """Draw replicas: mostly members that are active, besides those that are replicas already."""
        if self.rng.chance(1, 8):
            return self.some(self.disks)
        kept = configuration.partitions[number].replicas
        fit = [disk for disk in self.disks if disk in kept or self.is_active(configuration, disk)]
        return self.some(fit)[:5]

    @staticmethod
    def is_active(configuration: ClusterConfiguration, disk: int) -> bool:
        found = configuration.members.get(disk)
        return found is not None and found.kind == DATA and STATES[found.state] == "active"

    def of_partition(self, configuration: ClusterConfiguration, kind: int) -> Command:
        rng = self.rng
        number = rng.below(len(configuration.partitions))
        state = configuration.partitions[number]
        version = state.version if rng.chance(9, 10) else rng.below(state.version + 2)
        if kind in (9, 10):
            items = [PlaceItem(number, version, self.replicas(configuration, number))]
            for other in range(len(configuration.partitions)):
                if other != number and rng.chance(1, 3):
                    known = configuration.partitions[other].version
                    items.append(PlaceItem(other, known, self.replicas(configuration, other)))
            return Place(items)
        if kind in (11, 12) and state.leader:
            return self.alter(configuration, number, version)
        return Lead(number, version, self.pick(state.isr or self.disks))

    def alter(self, configuration: ClusterConfiguration, number: int, version: int) -> AlterIsr:
        """Draw what the leader of a partition asks for; sometimes with items for others, some led by another."""
        rng = self.rng
        leader = configuration.partitions[number].leader
        items: list[IsrItem] = []
        for other, state in enumerate(configuration.partitions):
            if other != number and (not state.leader_epoch or not rng.chance(1, 2)):
                continue
            wanted = self.some(state.replicas)
            if leader in state.replicas and leader not in wanted and rng.chance(9, 10):
                wanted.append(leader)
            known = version if other == number else state.version
            items.append(IsrItem(other, state.leader_epoch, known, wanted, (other + known) % 4 == 0))
        started: dict[int, int] = {}
        for disk in sorted({disk for item in items for disk in item.isr}):
            started[disk] = configuration.members[disk].started + (rng.below(12) == 0)
        return AlterIsr(leader, items, started)


class LosingDrawer(Drawer):
    """Draws mostly what leads to the loss of the last copy in sync of a partition, and what is left back together."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.goes_together = True

    def fresh(self, configuration: ClusterConfiguration) -> Command:
        if not configuration.partitions or self.rng.chance(1, 8):
            return super().fresh(configuration)
        return self.lose(configuration, self.rng.below(len(configuration.partitions)))

    def lose(self, configuration: ClusterConfiguration, number: int) -> Command:
        """Draw the next step for one partition."""
        rng = self.rng
        state = configuration.partitions[number]
        recovers = number in configuration.recovering
        away = [disk for disk in state.replicas if not configuration.can_lead(disk)]
        if away and (recovers or not state.isr or rng.chance(1, 8)) and rng.chance(3, 4):
            return self.start(configuration, self.pick(away))
        if not state.isr:
            kept = state.replicas or [disk for disk in self.disks if self.is_active(configuration, disk)]
            return Place([PlaceItem(number, state.version, kept[: len(kept) - (rng.below(6) == 0)])])
        if configuration.is_left_over(number, state.isr[0]) and rng.chance(1, 2):  # it was never filled
            return Withdraw(state.isr[0], configuration.members[state.isr[0]].incarnation, [number], [])
        if state.leader and rng.chance(1, 3):
            return self.alter(configuration, number, state.version)
        found = configuration.members[self.pick(state.isr)]
        if recovers and rng.chance(1, 3):
            return Withdraw(found.disk, found.incarnation, [number], [])
        if recovers and rng.chance(1, 4):
            return Lead(number, state.version, found.disk)
        if found.disk in away:
            return Remove(found.disk, found.version, 3, not rng.chance(1, 6))
        others: list[MarkAway] = []
        for disk in state.isr:
            other = configuration.members[disk]
            if disk != found.disk and rng.chance(1, 4):  # one of them has changed meanwhile, now and then
                others.append(MarkAway(disk, other.incarnation, other.version - (rng.below(3) == 0), 1))
        return MarkAway(found.disk, found.incarnation, found.version, 1, others)

    def start(self, configuration: ClusterConfiguration, disk: int) -> Activate:
        found = configuration.members[disk]
        number = max(found.incarnation, found.evicted) + 1
        count = len(configuration.partitions)
        branches = [self.rng.below(count)] if self.rng.chance(1, 8) else []
        return Activate(disk, found.version, process(number, disk), 0, branches)

"""Nemeses: what is done to the nodes while clients work. Each draws its victims and times from the seed of the run.

A nemesis is a list of steps, the first of which begins it and the last of which ends it; what it does is one line of
text, so that a schedule can be printed and repeated.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from functools import partial as partial_of

from tests.jepsen.rig import FAKETIME, Rig

__all__ = ["NEMESES", "Fault", "draw", "missing"]

Step = Callable[[Rig], None]
Pair = tuple[str, str]


@dataclass
class Fault:
    """One drawn nemesis. steps: seconds after its beginning, and what is done then.

    takes: the steps, by number, that take what a node has on disk. They are not done before all copies are in sync:
    nobody promises anything for a disk that is taken away together with the only copy of something.
    """

    name: str
    what: str
    steps: list[tuple[float, Step]]
    begin_s: float = 0.0
    small: list[str] = field(default_factory=list)  # nodes that need a disk that can be filled
    clocks: list[str] = field(default_factory=list)  # nodes that need a clock that can be set
    takes: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        return max(at for at, _ in self.steps)

    def __str__(self) -> str:
        return f"{self.begin_s:6.1f} s  {self.name}: {self.what}"


def both(ones: Iterable[str], others: Iterable[str]) -> list[Pair]:
    """All links between two groups, both ways."""
    others = list(others)
    return [pair for one in ones for other in others if one != other for pair in ((one, other), (other, one))]


def names(nodes: Iterable[str]) -> str:
    return ", ".join(nodes)


def cutting(name: str, what: str, pairs: list[Pair], seconds: float, *, reset: bool = False) -> Fault:
    """A fault of the network that stays for some time."""
    steps: list[tuple[float, Step]] = [(0.0, lambda rig: rig.cut(pairs, reset=reset)), (seconds, Rig.mend)]
    return Fault(name + "-reset" * reset, f"{what}, {seconds:.1f} s", steps)


def kill(rng: random.Random, nodes: list[str]) -> Fault:
    """kill -9 of one node, which comes back."""
    victim, away = rng.choice(nodes), rng.uniform(0.5, 8.0)
    steps: list[tuple[float, Step]] = [(0.0, lambda rig: rig.kill(victim)), (away, lambda rig: rig.start(victim))]
    return Fault("kill", f"{victim}, {away:.1f} s", steps)


def kill_all(rng: random.Random, nodes: list[str]) -> Fault:
    """kill -9 of all nodes at once."""
    away = rng.uniform(0.5, 3.0)
    order = rng.sample(nodes, len(nodes))
    steps: list[tuple[float, Step]] = [(0.0, lambda rig: rig.kill(*nodes)), (away, lambda rig: rig.start(*order))]
    return Fault("kill-all", f"{away:.1f} s", steps)


def stop(rng: random.Random, nodes: list[str]) -> Fault:
    """SIGSTOP of one node."""
    victim, away = rng.choice(nodes), rng.uniform(1.0, 8.0)
    return Fault("stop", f"{victim}, {away:.1f} s", [(0.0, lambda rig: rig.freeze(victim)), (away, thaw(victim))])


def thaw(victim: str) -> Step:
    return lambda rig: rig.thaw(victim)


def freeze(victim: str) -> Step:
    return lambda rig: rig.freeze(victim)


def stutter(rng: random.Random, nodes: list[str]) -> Fault:
    """Stops of 50 to 400 ms in a row."""
    victim, at, steps = rng.choice(nodes), 0.0, list[tuple[float, Step]]()
    for _ in range(rng.randrange(15, 40)):
        steps.append((at, freeze(victim)))
        at += rng.uniform(0.05, 0.4)
        steps.append((at, thaw(victim)))
        at += rng.uniform(0.02, 0.2)
    return Fault("stutter", f"{victim}, {len(steps) // 2} stops in {at:.1f} s", steps)


def split(rng: random.Random, nodes: list[str], *, reset: bool = False) -> Fault:
    """Two sides that see nothing of each other."""
    some = rng.sample(nodes, rng.randrange(1, len(nodes) // 2 + 1))
    rest = [one for one in nodes if one not in some]
    return cutting("split", f"{names(some)} | {names(rest)}", both(some, rest), rng.uniform(5.0, 12.0), reset=reset)


def partial(rng: random.Random, nodes: list[str], *, reset: bool = False) -> Fault:
    """Any links, each both ways."""
    pairs = [(one, other) for place, one in enumerate(nodes) for other in nodes[place + 1 :]]
    cuts = [pair for pair in pairs if rng.random() < 0.4] or [rng.choice(pairs)]
    what = " ".join(f"{one}-{other}" for one, other in cuts)
    links = [pair for one, other in cuts for pair in ((one, other), (other, one))]
    return cutting("partial", what, links, rng.uniform(5.0, 12.0), reset=reset)


def one_way(rng: random.Random, nodes: list[str]) -> Fault:
    """One node is not heard, or hears nothing, by all others or by some."""
    victim = rng.choice(nodes)
    others = [one for one in nodes if one != victim]
    some = rng.sample(others, rng.randrange(1, len(others) + 1))
    if rng.random() < 0.5:
        return cutting("one-way", f"{victim} > {names(some)}", [(victim, one) for one in some], rng.uniform(5.0, 12.0))
    return cutting("one-way", f"{names(some)} > {victim}", [(one, victim) for one in some], rng.uniform(5.0, 12.0))


def bridge(rng: random.Random, nodes: list[str], *, reset: bool = False) -> Fault:
    """Two groups that both see one further node, and nothing of each other."""
    drawn = rng.sample(nodes, len(nodes))
    middle, rest = drawn[0], drawn[1:]
    left, right = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    what = f"{names(left)} | {middle} | {names(right)}"
    return cutting("bridge", what, both(left, right), rng.uniform(8.0, 20.0), reset=reset)


def twice(rng: random.Random, nodes: list[str], *, reset: bool = False) -> Fault:
    """One node is cut off, comes back, and is cut off again."""
    victim = rng.choice(nodes)
    pairs = both([victim], nodes)
    first, second = rng.uniform(5.0, 12.0), rng.uniform(5.0, 12.0)
    between = rng.choice((rng.uniform(0.2, 1.5), rng.uniform(1.0, 6.0)))

    def cut(rig: Rig) -> None:
        rig.cut(pairs, reset=reset)

    steps: list[tuple[float, Step]] = [
        (0.0, cut),
        (first, Rig.mend),
        (first + between, cut),
        (first + between + second, Rig.mend),
    ]
    what = f"{victim}, {first:.1f} s, again after {between:.1f} s, {second:.1f} s"
    return Fault("twice" + "-reset" * reset, what, steps)


def slow(rng: random.Random, nodes: list[str]) -> Fault:
    """What one node sends to the others is late, or some of it lost."""
    victim, seconds = rng.choice(nodes), rng.uniform(5.0, 15.0)
    delay = rng.choice((5, 20, 80, 200))
    words = ["delay", f"{delay}ms", f"{delay // 2}ms", "loss", f"{rng.choice((0, 1, 5, 20))}%"]
    steps: list[tuple[float, Step]] = [
        (0.0, lambda rig: rig.slow(victim, words)),
        (seconds, lambda rig: rig.fast(victim)),
    ]
    return Fault("slow", f"{victim}, {' '.join(words)}, {seconds:.1f} s", steps)


def loss(rng: random.Random, nodes: list[str]) -> Fault:
    """Some of what the others send to one node is lost."""
    victim, percent, seconds = rng.choice(nodes), rng.choice((1, 5, 20, 40)), rng.uniform(5.0, 15.0)
    steps: list[tuple[float, Step]] = [(0.0, lambda rig: rig.lose(victim, percent)), (seconds, Rig.mend)]
    return Fault("loss", f"{victim}, {percent} %, {seconds:.1f} s", steps)


def full_disk(rng: random.Random, nodes: list[str]) -> Fault:
    """The disk of one node has no byte left."""
    victim, seconds = rng.choice(nodes), rng.uniform(5.0, 12.0)
    steps: list[tuple[float, Step]] = [(0.0, lambda rig: rig.fill(victim)), (seconds, lambda rig: rig.free(victim))]
    return Fault("full-disk", f"{victim}, {seconds:.1f} s", steps, small=[victim])


def wiped_disk(rng: random.Random, nodes: list[str]) -> Fault:
    """kill -9, an empty disk, and a start under the same id."""
    victim, away = rng.choice(nodes), rng.uniform(0.5, 5.0)

    def begin(rig: Rig) -> None:
        rig.kill(victim)
        rig.wipe(victim)

    steps: list[tuple[float, Step]] = [(0.0, begin), (away, lambda rig: rig.start(victim))]
    return Fault("wiped-disk", f"{victim}, {away:.1f} s", steps, takes=(0,))


def old_folder(rng: random.Random, nodes: list[str], *, twice: bool = False) -> Fault:
    """A copy of a node's folder is kept, and put in its place later.

    Twice: the second time as a virtual machine is reset to a snapshot. The node is not heard while its process is
    replaced, so the others do not learn that it has ended, and soon hear one with the same folder again.
    """
    victim, away, unheard = rng.choice(nodes), rng.uniform(0.05, 1.0), rng.uniform(0.8, 1.8)
    pairs = both([victim], nodes)

    def keep(rig: Rig) -> None:
        rig.kill(victim)
        rig.keep(victim)

    def restore(rig: Rig) -> None:
        rig.kill(victim)
        rig.restore(victim)

    def start(rig: Rig) -> None:
        rig.start(victim)

    def reset(rig: Rig) -> None:
        rig.cut(pairs)
        restore(rig)
        start(rig)

    at = away + rng.uniform(4.0, 8.0)
    steps: list[tuple[float, Step]] = [(0.0, keep), (away, start), (at, restore), (at + away, start)]
    takes: tuple[int, ...] = (2,)
    if twice:
        at += away + rng.uniform(4.0, 8.0)
        steps += [(at, reset), (at + unheard, Rig.mend)]
        takes = (2, 4)
    what = f"{victim}, {', '.join(f'{at:.1f}' for at, _ in steps)} s"
    return Fault("old-folder-twice" if twice else "old-folder", what, steps, takes=takes)


def clock_jump(rng: random.Random, nodes: list[str]) -> Fault:
    """The clock of one node is set, and set back."""
    victim, seconds = rng.choice(nodes), rng.uniform(4.0, 10.0)
    offset = rng.choice((-3600, -60, -5, 5, 60, 3600))
    steps: list[tuple[float, Step]] = [
        (0.0, lambda rig: rig.set_clock(victim, offset)),
        (seconds, lambda rig: rig.set_clock(victim, 0)),
    ]
    return Fault("clock-jump", f"{victim}, {offset:+d} s for {seconds:.1f} s", steps, clocks=[victim])


def clock_slow(rng: random.Random, nodes: list[str]) -> Fault:
    """The wall clock of one node runs slow; then it is cut off."""
    victim, rate = rng.choice(nodes), rng.choice((0.3, 0.5, 0.8))
    seconds = rng.uniform(5.0, 10.0)
    pairs = both([victim], nodes)

    def restart(rig: Rig, faketime: str) -> None:
        rig.terminate(victim)
        rig.start(victim, faketime=faketime)

    steps: list[tuple[float, Step]] = [
        (0.0, lambda rig: restart(rig, f"+0 x{rate}")),
        (6.0, lambda rig: rig.cut(pairs)),
        (6.0 + seconds, Rig.mend),
        (9.0 + seconds, lambda rig: restart(rig, "")),
    ]
    return Fault("clock-slow", f"{victim} at {rate}, cut off for {seconds:.1f} s", steps)


def rolling(rng: random.Random, nodes: list[str]) -> Fault:
    """SIGTERM and start of one node after the other."""
    steps, at = list[tuple[float, Step]](), 0.0
    order = rng.sample(nodes, len(nodes))

    def restart(victim: str) -> list[Step]:
        return [lambda rig: rig.terminate(victim), lambda rig: rig.start(victim)]

    for victim in order:
        down, up = restart(victim)
        steps += [(at, down), (at + 2.0, up)]
        at += rng.uniform(5.0, 8.0)
    return Fault("rolling", names(order), steps)


def leave_join(rng: random.Random, nodes: list[str]) -> Fault:
    """Two nodes leave at once, and join at once with empty disks (of three nodes, one)."""
    some = rng.sample(nodes, 2 if len(nodes) > 3 else 1)

    def leave(rig: Rig) -> None:
        for name in some:
            rig.leave(name)

    def join(rig: Rig) -> None:
        for name in some:
            if not rig.nodes[name].wait(10.0):
                rig.kill(name)
            rig.wipe(name)
        rig.start(*some)

    at = rng.uniform(6.0, 10.0)
    steps: list[tuple[float, Step]] = [(0.0, leave), (at, join), (at + 4.0, nothing)]
    return Fault("leave-join", f"{names(some)}, joining after {at:.1f} s", steps)


def nothing(rig: Rig) -> None:
    """A step that only marks a time."""


def clients(rng: random.Random, nodes: list[str]) -> Fault:
    """Clients do not reach some nodes, which notice nothing else."""
    some = rng.sample(nodes, rng.randrange(1, len(nodes)))
    seconds = rng.uniform(3.0, 10.0)

    def begin(rig: Rig) -> None:
        for name in some:
            rig.part_clients(name)

    return Fault("clients", f"{names(some)}, {seconds:.1f} s", [(0.0, begin), (seconds, Rig.mend)])


NEMESES: dict[str, Callable[[random.Random, list[str]], Fault]] = {
    "kill": kill,
    "kill-all": kill_all,
    "stop": stop,
    "stutter": stutter,
    "split": split,
    "partial": partial,
    "one-way": one_way,
    "bridge": bridge,
    "twice": twice,
    "split-reset": partial_of(split, reset=True),
    "partial-reset": partial_of(partial, reset=True),
    "bridge-reset": partial_of(bridge, reset=True),
    "twice-reset": partial_of(twice, reset=True),
    "slow": slow,
    "loss": loss,
    "full-disk": full_disk,
    "wiped-disk": wiped_disk,
    "old-folder": old_folder,
    "old-folder-twice": partial_of(old_folder, twice=True),
    "clock-jump": clock_jump,
    "clock-slow": clock_slow,
    "rolling": rolling,
    "leave-join": leave_join,
    "clients": clients,
}


def missing(name: str) -> str:
    """Why this machine cannot run a nemesis; empty if it can."""
    if name.startswith("clock") and not FAKETIME:
        return "libfaketime is missing (as root on Debian or Ubuntu: apt-get install faketime)"
    if (name == "loss" or name.endswith("-reset")) and shutil.which("nft") is None:
        return "nft is missing (as root on Debian or Ubuntu: apt-get install nftables)"
    if name == "slow" and not has_netem():
        return "the kernel has no netem"
    if name == "full-disk" and os.geteuid() != 0:
        return "mounting a small file system needs root"
    return ""


@cache
def has_netem() -> bool:
    """Whether the kernel can delay packets."""
    namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    words = [*namespace, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def draw(seed: int, nodes: list[str], seconds: float, wanted: Sequence[str]) -> list[Fault]:
    """The schedule of a run: one fault after the other, the same for the same arguments; in any order of `wanted`."""
    rng = random.Random(f"{seed}/schedule")
    found: list[Fault] = []
    at, bag = rng.uniform(3.0, 6.0), list[str]()
    while True:
        if not bag:
            bag = rng.sample(sorted(wanted), len(wanted))
        fault = NEMESES[bag.pop()](rng, nodes)
        fault.begin_s = round(at, 1)
        if found and fault.begin_s + fault.seconds > seconds:
            return found
        found.append(fault)
        at += fault.seconds + rng.uniform(3.0, 9.0)

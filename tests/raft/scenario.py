"""Scenarios that a person can read: commands, and what they do, in text files (`scenarios/*.txt`).

A file is a list of steps. A step is a line with a command, lines that begin with two spaces and say what happened, and
an empty line. Lines that begin with `#` are comments. `FOLKMOOT_REWRITE=1 pytest tests/raft/test_scenario.py` writes
what happens into the files: look at the difference before you commit it.

Commands:

    cluster N [spare M] [led A]   N voters begin, M more members know nothing yet, A has been elected
    set NAME VALUE           a setting of `Options`, before `cluster`
    plant NAME ...           bugs, before `cluster`
    pass T                   the clocks go on by T (an election timeout has 1000)
    wake A ...               the members do what is due, the clocks going on to when it is
    campaign A               an election timeout passes for all, and A is the first that notices
    propose A TEXT           also: read A N, transfer A B, compact A, change A add-learner|promote|demote|remove B
    ended A                  the others have a proof that the process of A has ended
    persist A ...            the oldest write of a member becomes durable; without members: all writes of all
    deliver [A->B ...]       the messages under way arrive, in their order; without links: those of all links, once
    drop [A->B ...]          they are lost
    repeat A->B              a copy of the oldest one is put behind the newest
    settle                   persist and deliver until nothing is under way
    run T                    time T passes: members do what is due, and all settles; only roles are told
    cut A-B A->B ...         what is sent over the links is lost; also: connect, connect A-B ...
    crash A, restart A       a process ends, with what is not durable; it starts again from its disk
    stall A, resume A        the disk of a member stands still: nothing more becomes durable there; it goes on
    status                   all members; also: log A, progress A, disk A
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from folkmoot.raft.configuration import CHANGES
from folkmoot.raft.message import Message
from folkmoot.raft.option import Options
from folkmoot.raft.ready import REASONS
from folkmoot.raft.role import LEADER, ROLES
from tests.raft.world import Checker, Dice, Node, Violation

__all__ = ["Scenario", "play"]

SETTLE_MAX = 100


class Scenario:
    """The members of one file and their messages."""

    def __init__(self) -> None:
        self.checker = Checker()
        self.options = Options()
        self.options.heartbeat_ns = 100
        self.options.hurry_ns = 50
        self.options.learner_heartbeat_ns = 100
        self.options.election_ns = 1000
        self.planted: list[str] = []
        self.nodes: dict[int, Node] = {}
        self.links: dict[tuple[int, int], list[Message]] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.stalled: set[int] = set()  # members whose disks stand still
        self.now = 0
        self.lines: list[str] = []
        self.roles: dict[int, str] = {}

    def do(self, line: str) -> list[str]:
        """Carry out a command; return what happened."""
        name, *words = line.split()
        command: Callable[[list[str]], None] = getattr(self, f"do_{name}")
        self.lines = []
        try:
            command(words)
        except (Violation, AssertionError) as error:
            self.lines.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return self.lines

    def turn(self, node: Node) -> None:
        """End a turn; tell what has changed."""
        role = self.roles.get(node.me, "")
        applied = node.applied
        for message in node.turn():
            if (message.sender, message.to) not in self.cuts and message.to in self.nodes:
                self.links.setdefault((message.sender, message.to), []).append(message)
        raft = node.raft
        now = f"{ROLES[raft.role]} of term {raft.term}"
        if now != role:
            self.lines.append(f"{node.me} is {now}")
        self.roles[node.me] = now
        for index in range(applied + 1, node.applied + 1):
            entry = self.checker.applied.get(index)
            self.lines.append(f"{node.me} applies {entry!r}" if entry is not None else f"{node.me} restores {index}")

    # Commands

    def do_set(self, words: list[str]) -> None:
        setattr(self.options, words[0], int(words[1]))

    def do_plant(self, words: list[str]) -> None:
        self.planted = words

    def do_cluster(self, words: list[str]) -> None:
        voters = int(words[0])
        spare = int(words[words.index("spare") + 1]) if "spare" in words else 0
        for me in range(1, voters + spare + 1):
            self.nodes[me] = Node(me, self.options, list(range(1, voters + 1)), self.checker, self.planted)
            self.turn(self.nodes[me])
        if "led" in words:
            self.do_campaign(words[words.index("led") + 1 :])
            self.do_settle([])
        self.lines = []

    def do_pass(self, words: list[str]) -> None:
        self.now += int(words[0])

    def do_wake(self, words: list[str]) -> None:
        for word in words:
            node = self.nodes[int(word)]
            self.now = max(self.now, node.raft.deadline())
            node.raft.wake(self.now)
            self.turn(node)

    def do_campaign(self, words: list[str]) -> None:
        self.now += self.options.election_ns
        self.do_wake(words)

    def do_propose(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        proposal = node.raft.propose(" ".join(words[1:]).encode(), self.now)
        self.lines.append(repr(proposal))
        self.turn(node)

    def do_read(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.read(int(words[1]), self.now)
        self.turn(node)

    def do_transfer(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        self.lines.append(REASONS[node.raft.transfer(int(words[1]), self.now)])
        self.turn(node)

    def do_compact(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.compact(self.now)
        self.turn(node)

    def do_change(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        kind = next(kind for kind, name in CHANGES.items() if name == words[1])
        self.lines.append(repr(node.raft.propose_change(kind, int(words[2]), b"", self.now)))
        self.turn(node)

    def do_ended(self, words: list[str]) -> None:
        for node in self.nodes.values():
            if node.is_up:
                node.raft.ended(int(words[0]), self.now)
                self.turn(node)

    def do_persist(self, words: list[str]) -> None:
        for node in self.nodes.values():
            count = 1 if str(node.me) in words else 0 if words or node.me in self.stalled else len(node.disk.queue)
            for _ in range(count):
                node.raft.persisted(node.disk.complete(), self.now)
                self.turn(node)

    def chosen(self, words: list[str]) -> list[tuple[int, int]]:
        """The links that are named, or all that have messages."""
        if words:
            return [(int(word.split("->")[0]), int(word.split("->")[1])) for word in words]
        return sorted(link for link, messages in self.links.items() if messages)

    def do_deliver(self, words: list[str]) -> None:
        arriving = [(link, self.links.pop(link, [])) for link in self.chosen(words)]
        for link, messages in arriving:
            node = self.nodes[link[1]]
            for message in messages:
                if node.is_up:
                    self.lines.append(repr(message))
                    node.raft.step(message, self.now)
                    self.turn(node)

    def do_drop(self, words: list[str]) -> None:
        for link in self.chosen(words):
            self.lines += [f"lost: {message!r}" for message in self.links.pop(link, [])]

    def do_repeat(self, words: list[str]) -> None:
        for link in self.chosen(words):
            self.links[link].append(self.links[link][0])

    def do_settle(self, words: list[str]) -> None:
        for _ in range(SETTLE_MAX):
            writing = any(node.disk.queue and node.me not in self.stalled for node in self.nodes.values())
            if not any(self.links.values()) and not writing:
                return
            self.do_persist([])
            self.do_deliver([])
        self.lines.append("it does not settle")

    def do_run(self, words: list[str]) -> None:
        end = self.now + int(words[0])
        told: list[str] = []
        while True:
            due, me = min((node.raft.deadline(), node.me) for node in self.nodes.values() if node.is_up)
            if due > end:
                break
            self.lines = []
            self.do_wake([str(me)])
            self.do_settle([])
            told += [line for line in self.lines if " is " in line]
        self.now = end
        self.lines = told

    def named(self, words: list[str]) -> list[tuple[int, int]]:
        """The links that are named, each in one direction."""
        links: list[tuple[int, int]] = []
        for word in words:
            one, other = word.replace(">", "").split("-")
            links.append((int(one), int(other)))
            if ">" not in word:
                links.append((int(other), int(one)))
        return links

    def do_cut(self, words: list[str]) -> None:
        self.cuts.update(self.named(words))

    def do_connect(self, words: list[str]) -> None:
        self.cuts.difference_update(self.named(words) if words else list(self.cuts))

    def do_crash(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.disk.queue = []
        node.crash(Dice(1))

    def do_restart(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.restart(self.now)
        self.turn(node)

    def do_stall(self, words: list[str]) -> None:
        self.stalled.add(int(words[0]))

    def do_resume(self, words: list[str]) -> None:
        self.stalled.discard(int(words[0]))

    def do_status(self, words: list[str]) -> None:
        self.lines += [repr(node.raft) if node.is_up else f"{node.me} is down" for node in self.nodes.values()]

    def do_log(self, words: list[str]) -> None:
        self.lines += [repr(entry) for entry in self.nodes[int(words[0])].raft.log.entries]

    def do_disk(self, words: list[str]) -> None:
        disk = self.nodes[int(words[0])].disk
        self.lines += [repr(disk.hard_state), repr(disk.snapshot), *[repr(entry) for entry in disk.entries]]

    def do_progress(self, words: list[str]) -> None:
        raft = self.nodes[int(words[0])].raft
        assert raft.role == LEADER, "only a leader has progress"
        assert raft._leader is not None
        self.lines += [repr(progress) for progress in raft._leader.progress.values()]


def play(path: Path) -> str:
    """Return the text of a file with what happens now."""
    scenario = Scenario()
    steps: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  ") or not line:
            continue
        if line.startswith("#"):
            steps.append(line)
            continue
        happened = "".join(f"\n  {text}" for text in scenario.do(line))
        steps.append(f"{line}{happened}\n")
    return "\n".join(steps) + "\n"

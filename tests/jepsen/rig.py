"""Real nodes in network namespaces, and everything that a nemesis does to them.

The state of the world is noted before something is broken and after it is mended, so that no effect of a fault lies
outside the time that the history gives for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.integration.cluster_net import Net
from tests.jepsen.history import Recorder

__all__ = ["ADMIN", "CLIENTS", "FAKETIME", "MQTT", "PARTITIONS", "Rig", "Unable", "faked", "sleep_until"]

CLIENTS = "clients"
MQTT, ADMIN, PEER = 1883, 8080, 7883
STOP_S = 15.0
START_S = 30.0
SMALL_BYTES = 256 << 20
PARTITIONS = 4  # of the stream

FAKETIME = next(map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), "")
"""The library that gives a process another clock (Debian and Ubuntu: the package `libfaketime`); empty if missing."""

CONFIG = """
[node]
partitions = {partitions}
[auth]
allow_anonymous = true
[admin]
token_file = "{folder}/token"
[cluster]
secret_file = "{folder}/secret"
split_policy = "{policy}"
{cluster}
[streams.{stream}]
filter = "{filter}"
partitions = {stream_partitions}
"""


class Unable(Exception):
    """The machine does not allow what a run needs."""


class Node:
    """One node: its command, its folder, and its process while it runs."""

    def __init__(self, name: str, command: list[str], folder: Path, log: Path) -> None:
        self.name = name
        self.command = command
        self.folder = folder
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.told_to_end = False
        self.stopped = False
        self._begins_at = 0  # in the log

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, environment: dict[str, str]) -> None:
        self.told_to_end = self.stopped = False
        with self.log.open("ab") as log:
            self._begins_at = log.tell()
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}
            )

    def wait_for_start(self, wait_s: float) -> None:
        """Wait until the process has opened its store, or has ended."""
        end = time.monotonic() + wait_s
        while self.runs and time.monotonic() < end:
            with self.log.open("rb") as log:
                log.seek(self._begins_at)
                if b"ready node=" in log.read():
                    return
            time.sleep(0.05)

    def send(self, number: int) -> None:
        if self.process is not None and self.runs:
            os.kill(self.process.pid, number)

    def wait(self, wait_s: float) -> bool:
        """Whether the process has ended in time."""
        if self.process is not None:
            try:
                self.process.wait(wait_s)
            except subprocess.TimeoutExpired:
                return False
        return True


class Rig:
    """Nodes n1 to nN in `net`, each with one address.

    cluster: further lines of the section [cluster] of their configuration.
    small: those whose disk can be filled; clocks: those whose clock can be set.
    """

    def __init__(
        self,
        folder: Path,
        net: Net,
        names: Sequence[str],
        recorder: Recorder,
        *,
        policy: str,
        replicas: int,
        partitions: int,
        cluster: Sequence[str],
        stream: tuple[str, str],
        small: Iterable[str] = (),
        clocks: Iterable[str] = (),
        witnesses: Iterable[str] = (),
    ) -> None:
        self.folder, self.net, self.names, self.recorder = folder, net, list(names), recorder
        self.token = "a-token-of-the-history-checker"
        self.post: Callable[[str, str], None] = lambda node, path: None
        self.cuts: set[tuple[str, str]] = set()
        self.muted: set[tuple[str, str]] = set()  # of these, without a word
        self.filtered: set[str] = set()  # nodes with rules of nftables
        self.deaf: set[str] = set()  # nodes that clients do not reach
        self.died: set[str] = set()
        self.mounts: list[Path] = []
        (folder / "token").write_text(self.token)
        (folder / "secret").write_text("a-secret-of-the-history-checker")
        for name in ("token", "secret"):
            (folder / name).chmod(0o600)
        settings: dict[str, object] = {
            "policy": policy,
            "partitions": partitions,
            "stream": stream[0],
            "filter": stream[1],
        }
        settings |= {"stream_partitions": PARTITIONS, "cluster": "\n".join(cluster)}
        (folder / "node.toml").write_text(CONFIG.format(folder=folder, **settings))
        for name in clocks:
            self._clock(name).write_text("+0s\n")
        for name in small:
            self._mount(folder / f"disk-{name}")
        self.witnesses = set(witnesses)
        self.nodes = {name: self._node(name, replicas, name in set(small)) for name in self.names}

    def address(self, name: str, port: int) -> tuple[str, int]:
        return self.net.address(name), port

    def close(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            node.told_to_end = True
            node.send(signal.SIGCONT)
            node.send(signal.SIGKILL)
            node.wait(STOP_S)
        for place in self.mounts:
            subprocess.run(["umount", "--lazy", str(place)], check=False)

    # --- processes

    def start(self, *names: str, faketime: str = "") -> None:
        """Start nodes; one that was told to end is waited for. faketime: what libfaketime makes of the clock."""
        for name in names:
            node = self.nodes[name]
            if not node.wait(STOP_S):
                node.send(signal.SIGKILL)
                node.wait(STOP_S)
            node.start(self._environment(name, faketime))
        self.note()

    def kill(self, *names: str) -> None:
        """kill -9."""
        self._end(signal.SIGKILL, names)
        for name in names:
            self.nodes[name].wait(STOP_S)

    def terminate(self, *names: str) -> None:
        """SIGTERM, as an operator does; nobody waits."""
        self._end(signal.SIGTERM, names)

    def _end(self, number: signal.Signals, names: tuple[str, ...]) -> None:
        for name in names:
            self.nodes[name].told_to_end = True
        self.note(down=names)
        for name in names:
            self.nodes[name].send(number)

    def leave(self, name: str) -> None:
        """Tell a node to leave the cluster for good; its process ends by itself."""
        self.nodes[name].told_to_end = True
        self.note(down=[name])
        self.post(name, f"/api/v1/nodes/{name}/leave")

    def freeze(self, name: str) -> None:
        self.nodes[name].stopped = True
        self.note()
        self.nodes[name].send(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.nodes[name].send(signal.SIGCONT)
        self.nodes[name].stopped = False
        self.note()

    # --- disks

    def wipe(self, name: str) -> None:
        """Remove all that a node, which does not run, has on disk."""
        shutil.rmtree(self.nodes[name].folder, ignore_errors=True)

    def keep(self, name: str) -> None:
        """Copy the folder of a node that does not run."""
        shutil.rmtree(self._kept(name), ignore_errors=True)
        shutil.copytree(self.nodes[name].folder, self._kept(name))

    def restore(self, name: str) -> None:
        """Put the copy in the place of the folder of a node that does not run."""
        self.wipe(name)
        shutil.copytree(self._kept(name), self.nodes[name].folder)

    def fill(self, name: str) -> None:
        """Use up the disk of a node, to the last byte; one that starts meanwhile would refuse to, by right."""
        self.nodes[name].wait_for_start(START_S)
        self.note()
        with (self._disk(name) / "filler").open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2

    def free(self, name: str) -> None:
        (self._disk(name) / "filler").unlink(missing_ok=True)

    # --- clocks

    def set_clock(self, name: str, offset_s: int) -> None:
        """Let the clock of a node differ from that of the machine from now on; its monotonic clock goes on."""
        clock = self._clock(name)
        new = clock.with_suffix(".new")
        new.write_text(f"{offset_s:+d}s\n")
        new.replace(clock)

    # --- the network

    def cut(self, pairs: Iterable[tuple[str, str]], *, reset: bool = False) -> None:
        """Lose all that one node sends to another, for each pair; or refuse it with TCP resets, as firewalls do."""
        pairs = [pair for pair in pairs if pair not in self.cuts]
        self.cuts |= set(pairs)
        self.note()
        for one, other in pairs:
            if reset:
                self._filter(
                    one, "output", f"ip daddr {self.net.address(other)} meta l4proto tcp reject with tcp reset"
                )
            else:
                self.net.mute(one, other)
                self.muted.add((one, other))

    def mend(self) -> None:
        """Undo all cuts."""
        for one, other in sorted(self.muted):
            self.net.unmute(one, other)
        for name in sorted(self.filtered):
            self._nft(name, "delete table inet jepsen")
        self.muted.clear()
        self.filtered.clear()
        for name in sorted(self.deaf):
            self.net.unmute(CLIENTS, name)
            self.net.unmute(name, CLIENTS)
        self.cuts.clear()
        self.deaf.clear()
        self.note()

    def part_clients(self, name: str) -> None:
        """Lose all between a node and the clients."""
        self.deaf.add(name)
        self.note()
        self.net.mute(CLIENTS, name)
        self.net.mute(name, CLIENTS)

    def slow(self, name: str, words: Sequence[str]) -> None:
        """Let what a node sends to other nodes be late or lost, as tc-netem says; what it sends to clients is not."""
        self._tc(name, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "prio", "bands", "4")
        self._tc(name, "qdisc", "add", "dev", "eth0", "parent", "1:4", "handle", "40:", "netem", *words)
        for other in self.names:
            if other != name:
                match = ["u32", "match", "ip", "dst", f"{self.net.address(other)}/32", "flowid", "1:4"]
                self._tc(name, "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", *match)

    def lose(self, name: str, percent: int) -> None:
        """Lose a part of what other nodes send to a node."""
        others = ", ".join(self.net.address(other) for other in self.names if other != name)
        self._filter(name, "input", f"ip saddr {{ {others} }} numgen random mod 100 < {percent} drop")

    def fast(self, name: str) -> None:
        self._tc(name, "qdisc", "del", "dev", "eth0", "root")

    # --- what is noted

    def note(self, down: Iterable[str] = ()) -> None:
        """Write the state of the world; down: nodes that will not run from now on."""
        gone = {name for name, node in self.nodes.items() if not node.runs} | set(down)
        gone |= {name for name, node in self.nodes.items() if node.told_to_end}
        stopped = sorted(name for name, node in self.nodes.items() if node.stopped)
        cut = sorted([one, other] for one, other in self.cuts)
        self.recorder.add("world", cut=cut, down=sorted(gone), stopped=stopped, clients=sorted(self.deaf))

    def watch(self) -> None:
        """Note processes that have ended though nobody told them to."""
        for name, node in self.nodes.items():
            if node.process is not None and not node.runs and not node.told_to_end and name not in self.died:
                self.died.add(name)
                self.recorder.add("died", node=name, status=node.process.returncode)

    # --- inside

    def _node(self, name: str, replicas: int, small: bool) -> Node:
        def at(other: str, port: int) -> str:
            return f"{self.net.address(other)}:{port}"

        data = (self._disk(name) if small else self.folder) / f"data-{name}"
        words = [*self.net.enter(name), sys.executable, "-m", "folkmoot", "serve", "--node-id", name]
        words += ["--config", str(self.folder / "node.toml"), "--data", str(data), "--replicas", str(replicas)]
        words += ["--peer", at(name, PEER)]
        if name in self.witnesses:
            words += ["--witness"]
        else:
            words += ["--mqtt", at(name, MQTT), "--admin", at(name, ADMIN)]
        for other in self.names:
            if other != name:
                words += ["--seed", at(other, PEER)]
        return Node(name, words, data, self.folder / f"{name}.log")

    def _environment(self, name: str, faketime: str) -> dict[str, str]:
        if not FAKETIME or not (faketime or self._clock(name).exists()):
            return {}
        return faked(FAKETIME=faketime) if faketime else faked(FAKETIME_TIMESTAMP_FILE=str(self._clock(name)))

    def _clock(self, name: str) -> Path:
        return self.folder / f"{name}.clock"

    def _kept(self, name: str) -> Path:
        return self.folder / f"kept-{name}"

    def _disk(self, name: str) -> Path:
        return self.folder / f"disk-{name}"

    def _mount(self, place: Path) -> None:
        place.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(place)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unable(f"mounting a small file system needs root: {done.stderr.strip()}")
        self.mounts.append(place)

    def _filter(self, name: str, hook: str, rule: str) -> None:
        """Add a rule of nftables in the namespace of a node."""
        chain = f"add chain inet jepsen {hook} {{ type filter hook {hook} priority 0; }}"
        self._nft(name, f"add table inet jepsen; {chain}; add rule inet jepsen {hook} {rule}")
        self.filtered.add(name)

    def _nft(self, name: str, text: str) -> None:
        done = subprocess.run([*self.net.enter(name), "nft", text], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unable(f"nft {text}: {done.stderr.strip()}")

    def _tc(self, name: str, *words: str) -> None:
        done = subprocess.run([*self.net.enter(name), "tc", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unable(f"tc {' '.join(words)}: {done.stderr.strip()}")


def faked(**clock: str) -> dict[str, str]:
    """Return the environment of a process whose wall clock libfaketime makes; clock: the variable that says how.

    Its monotonic clock goes on: leases take that of a machine for right within 1 % (ADR 14).
    """
    return {"LD_PRELOAD": FAKETIME, "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", **clock}


def sleep_until(at_s: float) -> None:
    """Wait until a time of the monotonic clock."""
    left = at_s - time.monotonic()
    if left > 0:
        time.sleep(left)

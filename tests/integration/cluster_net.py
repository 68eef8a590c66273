"""A network of namespaces that a test makes for itself: one for each node, and a hub with a bridge between them.

Nothing of it is seen outside: no address, no interface and no rule of the machine changes. Root is not needed where
user namespaces are allowed. All ends with the processes that hold the namespaces, and those end with the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pytest

__all__ = ["HUB", "Net", "Space"]

HUB = "hub"
NOWHERE = "02:00:00:00:ff:ff"
WAIT_S = 10.0


class Space:
    """A network namespace, held by a process that reads its standard input and so ends with this one."""

    def __init__(self, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [*words, "sh", "-c", "echo held; exec cat > /dev/null"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.held = self.process.stdout.readline().strip() == "held"

    def end(self) -> str:
        """Let go; what the process said on standard error."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stderr is not None
        assert self.process.stdout is not None
        said = self.process.stderr.read()
        self.process.wait(WAIT_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return said.strip()


class Net:
    """Namespaces with one address each, wired to a bridge; cables can be pulled, and single directions muted."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [*names, HUB]
        self.spaces: dict[str, Space] = {}
        self.user = False

    def __enter__(self) -> Self:
        for tool in ("ip", "unshare", "nsenter"):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is missing (Debian and Ubuntu: apt-get install iproute2 util-linux)")
        self._open_hub()
        try:
            for name in self.names[:-1]:
                self.spaces[name] = Space([*self._user_words(), "unshare", "--net"])
                assert self.spaces[name].held, self.spaces[name].end()
            self._wire()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for space in self.spaces.values():
            space.end()
        self.spaces.clear()

    def address(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def enter(self, name: str) -> list[str]:
        """The words before a command that runs there; the process that they start becomes the command."""
        words = ["--preserve-credentials", "--user"] if self.user else []
        return ["nsenter", "--target", str(self.spaces[name].process.pid), *words, "--net"]

    def pull(self, name: str) -> None:
        """Pull the cable of a node at the hub: nothing arrives from it or at it, and nobody is told."""
        self._ip(HUB, "link", "set", f"to-{name}", "down")

    def plug(self, name: str) -> None:
        self._ip(HUB, "link", "set", f"to-{name}", "up")

    def mute(self, source: str, target: str) -> None:
        """Lose all that goes from `source` to `target`, and nothing that goes the other way."""
        self._neighbour(source, target, NOWHERE)

    def unmute(self, source: str, target: str) -> None:
        self._neighbour(source, target, self._mac(target))

    def cut(self, ones: Sequence[str], others: Sequence[str]) -> None:
        """Lose all between two groups, both ways."""
        for one in ones:
            for other in others:
                self.mute(one, other)
                self.mute(other, one)

    def mend(self) -> None:
        """Undo all that was muted, cut and pulled."""
        for source in self.names:
            if source != HUB:
                self.plug(source)
            for target in self.names:
                if source != target:
                    self.unmute(source, target)

    def _open_hub(self) -> None:
        """The first namespace: as root plainly, else in a user namespace of its own; skip where neither may be."""
        said = ""
        for user in (False, True) if os.geteuid() == 0 else (True,):
            words = ["unshare", "--user", "--map-root-user", "--net"] if user else ["unshare", "--net"]
            space = Space(words)
            if space.held:
                self.spaces[HUB], self.user = space, user
                return
            said = space.end()
        pytest.skip(f"network namespaces are not permitted here: {said}")

    def _user_words(self) -> list[str]:
        if not self.user:
            return []
        return ["nsenter", "--target", str(self.spaces[HUB].process.pid), "--preserve-credentials", "--user"]

    def _wire(self) -> None:
        self._ip(HUB, "link", "add", "bridge0", "type", "bridge")
        self._ip(HUB, "link", "set", "bridge0", "address", self._mac(HUB))
        self._up(HUB, "bridge0")
        for name in self.names[:-1]:
            other = str(self.spaces[name].process.pid)
            self._ip(HUB, "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", other)
            self._ip(HUB, "link", "set", f"to-{name}", "master", "bridge0", "up")
            self._ip(name, "link", "set", "eth0", "address", self._mac(name))
            self._up(name, "eth0")
        for source in self.names:
            for target in self.names:
                if source != target:
                    self.unmute(source, target)

    def _up(self, name: str, device: str) -> None:
        self._ip(name, "address", "add", f"{self.address(name)}/24", "dev", device)
        self._ip(name, "link", "set", device, "up")
        self._ip(name, "link", "set", "lo", "up")

    def _mac(self, name: str) -> str:
        return f"02:00:00:00:00:{self.names.index(name) + 1:02x}"

    def _neighbour(self, source: str, target: str, mac: str) -> None:
        """Tell `source` which MAC has the address of `target`: no ARP, and a wrong one loses frames without a word."""
        device = "bridge0" if source == HUB else "eth0"
        words = ["lladdr", mac, "dev", device, "nud", "permanent"]
        self._ip(source, "neighbour", "replace", self.address(target), *words)

    def _ip(self, name: str, *words: str) -> None:
        done = subprocess.run([*self.enter(name), "ip", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"

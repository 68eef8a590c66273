"""The machines of a run, and the choice among them by a client or by a load balancer in front of the cluster.

A balancer knows which machines accept connections and nothing else. Owns the list of hosts, including those that have
not joined.
"""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.sim.host import Host

__all__ = ["BALANCED", "FAITHFUL", "ROAMING", "Site", "peer_address"]

FAITHFUL = "faithful"  # uses its last node, as long as it is accepted there
ROAMING = "roaming"  # uses any node, also one that does not listen
BALANCED = "balanced"  # uses the node of the balancer: round robin over those that accept


def peer_address(number: int) -> str:
    """Return the address at which machine `number` (from 1) listens for others."""
    return f"10.0.0.{number}:7946"


class Site:
    """All machines; `hosts` keeps its order for the whole run."""

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts
        self._next = 0

    @property
    def doors(self) -> list[Host]:
        """The machines that clients may try: all but witnesses."""
        return [host for host in self.hosts if not host.witness]

    def host(self, name: str) -> Host | None:
        """Return the machine with this name, or None."""
        for host in self.hosts:
            if host.name == name:
                return host
        return None

    @property
    def running(self) -> list[Host]:
        """The machines whose process is there, hanging or not."""
        return [host for host in self.hosts if host.node is not None]

    @property
    def running_with_data(self) -> list[Host]:
        """The running ones without witnesses: those that hold copies, or may."""
        return [host for host in self.running if not host.witness]

    def pick(self, rng: Rng, habit: str, last: Host | None, *, failed: bool) -> Host:
        """Choose a host for a client; `failed`: the last attempt, at `last`, failed."""
        hosts = self.doors
        if len(hosts) == 1:
            return hosts[0]
        if habit == FAITHFUL and last is not None and not failed:
            return last
        if habit == ROAMING and failed and last is not None:  # by chance it might miss the running ones for minutes
            return hosts[(hosts.index(last) + 1) % len(hosts)]
        if habit == ROAMING:
            return hosts[rng.below(len(hosts))]
        return self._balance(hosts)

    def _balance(self, hosts: list[Host]) -> Host:
        count = len(hosts)
        for step in range(count):
            host = hosts[(self._next + step) % count]
            if host.node is not None and not host.dark:
                self._next = (self._next + step + 1) % count
                return host
        return hosts[self._next % count]

"""Folkmoot as one of the brokers of the comparison.

Owns the options that it runs with here. Nothing has to be obtained.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.nodes import Cluster, Nodes
from benchmarks.peers.peer import NODES, Peer
from folkmoot.cli.version import version_line

__all__ = ["Own"]


class Own(Peer):
    """Three nodes, three copies, durability `fsync`."""

    name = "Folkmoot"
    promise = "on the disks of all in-sync copies"

    def obtain(self) -> str:
        return version_line()

    def start(self, folder: Path) -> Cluster:
        return Nodes(folder, NODES, NODES, "--durability", "fsync")

"""A member of the cluster, as every node knows it: its id, disk, incarnation, address, zone and state."""

from __future__ import annotations

from typing import Final

__all__ = ["ACTIVE", "LEAVING", "Member"]

ACTIVE: Final = 1
LEAVING: Final = 2  # hands over its copies; the placement does not count on it


class Member:
    """A process of a node, as a view or a handshake introduces it.

    Its id is kept on its disk, its incarnation is another one at each start, its address is the one for peers.
    `wire_min`, `wire_max`: versions of the wire between nodes that it speaks; `software`: its version, for people.
    `disk`: the identity of its data folder, 0 if it is not known. `host`: the machine, for spreading where several
    nodes share one. `witness`: it votes on the configuration and holds no data.
    """

    def __init__(
        self,
        node_id: str,
        incarnation: int,
        address: str,
        zone: str,
        state: int,
        wire_min: int = 1,
        wire_max: int = 1,
        software: str = "",
        disk: int = 0,
        host: str = "",
        witness: bool = False,
    ) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.address = address
        self.zone = zone
        self.state = state
        self.wire_min = wire_min
        self.wire_max = wire_max
        self.software = software
        self.disk = disk
        self.host = host
        self.witness = witness

    def __repr__(self) -> str:
        return f"Member({self.node_id!r} incarnation={self.incarnation} zone={self.zone!r} state={self.state})"

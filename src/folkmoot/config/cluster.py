"""The section `[cluster]`: addresses of nodes, number of copies, failure detection, limits between nodes.

Mirrors `folkmoot.peer.config.ClusterConfig`, except that names of durations have no unit. Without `listen` there is
no cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from folkmoot.config.base import Section
from folkmoot.config.tls import PeerTlsSettings
from folkmoot.config.unit import NEVER_US, Address, AddressField, Duration, Size, parse_address
from folkmoot.kernel.clock import MILLISECOND, SECOND

__all__ = ["ClusterSettings", "parse_seed"]


def parse_seed(value: object) -> Address:
    """Return the address of another node; raises ValueError if it is invalid or has a port that cannot be dialled."""
    try:
        address = parse_address(value)
    except ValueError:
        address = Address("", 0)
    if not address.port or address.is_wildcard():
        raise ValueError('a seed is the "HOST:PORT" at which another node listens for peers, such as "10.0.0.2:7883"')
    return address


def split_list(value: object) -> object:
    """Return the parts of a text with commas, the form of environment variables; anything else unchanged."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


SeedField = Annotated[Address, BeforeValidator(parse_seed), PlainSerializer(str), "address"]
SeedList = Annotated[list[SeedField], BeforeValidator(split_list), "addresses"]


class ClusterSettings(Section):
    """Addresses of nodes, number of copies, failure detection, limits between nodes."""

    listen: AddressField | None = Field(
        None,
        description=(
            "HOST:PORT where other nodes connect, on the network that the nodes share. Unset: no cluster, and nothing"
            " else in this section may be set. Use a fixed port, at which other nodes find this one again; 0 picks a "
            "free port, for tests."
        ),
    )
    advertise: AddressField | None = Field(
        None,
        description=(
            "HOST:PORT at which other nodes reach this one, if it differs from `listen` (all interfaces, containers, "
            "address translation); port 0 stands for the port of `listen`. Unset: `listen`."
        ),
    )
    seeds: SeedList = Field(
        default_factory=list,
        max_length=256,
        description=(
            "Peer addresses of nodes to contact first; one that answers is enough to learn of all others. Best the "
            "same list on all nodes: the first of it founds the cluster. Separated by commas in an environment "
            "variable. Empty: the node founds a cluster, and waits for other nodes to contact it."
        ),
    )
    expect: int = Field(
        0,
        ge=0,
        le=1024,
        description=(
            "How many nodes found the cluster together, witnesses included; equal on all nodes. None of them serves "
            "before they have all met, so no two clusters arise, whatever is unreachable at the first start. Later it "
            "has an effect on nodes with empty folders only, if so many of them reach one another and no member. 0: "
            "the seeds decide which node founds it."
        ),
    )
    witness: bool = Field(
        False,
        description=(
            "This node votes on who belongs to the cluster, and holds no data: it has no listeners and no copies, and "
            "needs little of anything. Two nodes and a witness survive the loss of any one of them. Fixed for a data "
            "folder."
        ),
    )
    replicas: int = Field(
        3,
        ge=1,
        le=16,
        description=(
            "Copies of all stored data; equal on all nodes (otherwise the highest value applies, and the log has "
            "`settings_differ`: to reduce it, change all nodes). A message is acknowledged when this many nodes have "
            "it on disk: all but one of them may be lost. Each copy costs disk, network and CPU. With fewer nodes "
            "there are as many copies as nodes, and the status is under-replicated."
        ),
    )
    min_in_sync: int = Field(
        1,
        ge=1,
        le=16,
        description=(
            "Copies that have to be in sync, or a partition takes nothing; equal on all nodes, and at most `replicas`. "
            "With 1, the last copy that is left goes on, and what it acknowledges is on one disk until others have "
            "caught up. With 2, nothing is acknowledged that is on one disk only, and while one copy is left, what "
            "needs the partition is refused. A single node with 2 serves nobody."
        ),
    )
    zone: str = Field(
        "",
        pattern=r"^[!-~]{0,64}$",
        description=(
            "Failure domain of this node: a host, rack or data centre. Copies are placed in different zones as long "
            "as there are enough. Empty: every node is a zone of its own."
        ),
    )
    split_policy: Literal["available", "majority"] = Field(
        "available",
        description=(
            "Behaviour when the network splits; equal on all nodes. 'available': a side without a quorum of the voters "
            "goes on by itself after three seconds, with the copies that it has, and what it accepted is merged "
            "afterwards; at worst, messages are delivered twice. 'majority': it serves nobody until it has a quorum."
        ),
    )
    name: str = Field(
        "folkmoot",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description=(
            "Name of the cluster, equal on all nodes: a node of another cluster that connects by mistake is refused."
        ),
    )
    secret_file: Path | None = Field(
        None,
        description=(
            "File with a secret of at least 16 characters that all nodes share; a node without it is refused. Required "
            "if an address above is not loopback. It authenticates nodes, but encrypts nothing: see `tls`."
        ),
    )
    tls: PeerTlsSettings | None = Field(
        None,
        description=(
            "Encryption between nodes, with certificates that both sides check: [cluster.tls], on all nodes or none. "
            "Costs CPU for every byte that is copied."
        ),
    )
    # Membership
    heartbeat: Duration = Field(
        100 * MILLISECOND,
        ge=10 * MILLISECOND,
        le=250 * MILLISECOND,
        description=(
            "Time between two heartbeats of a node to the controller, whose answers extend its lease of one second. A "
            "shorter time costs a packet and its answer each time."
        ),
    )
    silence: Duration = Field(
        2 * SECOND,
        ge=200 * MILLISECOND,
        le=60 * SECOND,
        description=(
            "Silence after which a connection to another node counts as broken and is made anew; equal on all nodes."
        ),
    )
    clock_offset_max: Duration = Field(
        10 * SECOND,
        ge=SECOND,
        le=3600 * SECOND,
        description=(
            "How far the clock of a node may be from the time on which most of the nodes agree; equal on all nodes. "
            "A clock that is further off is reported, and nothing is dated or expires by it. A larger value "
            "hides clocks that are wrong."
        ),
    )
    join_wait: Duration = Field(
        2 * SECOND,
        le=600 * SECOND,
        description=(
            "How long the node that is to found a cluster waits for seeds that do not answer (for ever, if they name "
            "only the others). Matters when a cluster is made, and for nodes with empty folders that do not reach "
            "their cluster."
        ),
    )
    gone: Duration = Field(
        30 * SECOND,
        ge=SECOND,
        le=NEVER_US,
        description=(
            "After this time without a node its copies are made anew on others, if there are enough. A longer time "
            "saves copying where nodes are often away for a while; meanwhile there is a copy less."
        ),
    )
    link_patience: Duration = Field(
        500 * MILLISECOND,
        ge=100 * MILLISECOND,
        le=600 * SECOND,
        description=(
            "How long two live nodes may be without a connection before the controller goes on without one of them. "
            "Meanwhile, operations that need both of them wait. A shorter time ends the wait sooner, but removes nodes "
            "whose network only flaps."
        ),
    )
    stall: Duration = Field(
        2 * SECOND,
        ge=200 * MILLISECOND,
        le=60 * SECOND,
        description=(
            "How long the disk of a node may stall before it gets no lease, and others go on without it (a process "
            "that stalls has none either). A disk that pauses for longer under load costs the node its partitions each "
            "time."
        ),
    )
    # Links
    link_buffer_bytes_max: Size = Field(
        64 << 20,
        ge=1 << 20,
        description=(
            "Bytes kept in memory for another node until it has acknowledged them, so that a broken connection loses "
            "nothing. At the limit, publishers are read more slowly. Costs this much memory for each slow node."
        ),
    )
    link_keep: Duration = Field(
        60 * SECOND,
        ge=SECOND,
        le=3600 * SECOND,
        description=(
            "How long these bytes are kept for a node without a connection. A node that returns later gets what it "
            "lacks from the store, which is slower."
        ),
    )
    # Copies
    recent_bytes_max: Size = Field(
        32 << 20,
        ge=0,
        description=(
            "Bytes of the newest changes that are kept in memory: a copy that lacks only these catches up from "
            "memory, others by a comparison of the store. More memory means faster catch-up after short pauses."
        ),
    )
    copy_bytes_per_s: Size = Field(
        64 << 20,
        ge=1 << 16,
        description=(
            "Maximum rate at which this node sends data to fill the copies of other nodes. A higher rate restores all"
            " copies sooner, but takes network, disk and CPU from clients meanwhile."
        ),
    )
    copy_parallel: int = Field(
        4,
        ge=1,
        le=256,
        description="Partitions that are copied to this node at the same time; each holds a page in memory.",
    )
    copy_latency: Duration = Field(
        20 * MILLISECOND,
        ge=MILLISECOND,
        le=10 * SECOND,
        description=(
            "Copying slows down while messages take longer than this to become durable, and twice as long as without "
            "copying. A lower value spares clients, but leaves too few copies for longer."
        ),
    )
    digest: Duration = Field(
        100 * MILLISECOND,
        le=3600 * SECOND,
        description=(
            "Time between two comparisons of a page of rows with the other copies, which find damage that no read has"
            " met; at least a second after the last page of a partition. A shorter time finds it sooner, but reads more"
            " from the disk; 0 disables the comparison."
        ),
    )

    def peer_address(self, port: int) -> str:
        """Return the "HOST:PORT" for other nodes, given the port of the listener; "" without a cluster."""
        told = self.advertise or self.listen
        if told is None:
            return ""
        fixed = told.port or (0 if self.listen is None else self.listen.port)
        return str(Address(told.host, fixed or port))

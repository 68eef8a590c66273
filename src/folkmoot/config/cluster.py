"""The section `[cluster]`: where nodes meet, how many copies there are, when a node counts as gone.

Mirrors `folkmoot.peer.config.ClusterConfig`; durations lose the unit in their names. Without `listen` there is no
cluster, and the node is alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from folkmoot.config.base import Section
from folkmoot.config.tls import PeerTlsSettings
from folkmoot.config.unit import Address, AddressField, Duration, Size, parse_address
from folkmoot.kernel.clock import MILLISECOND, SECOND

__all__ = ["ClusterSettings", "parse_seed"]


def parse_seed(value: object) -> Address:
    """The address of another node; ValueError for what is none, and for a port that nobody can connect to."""
    try:
        address = parse_address(value)
    except ValueError:
        address = Address("", 0)
    if not address.port or address.is_wildcard():
        raise ValueError('a seed is the "HOST:PORT" at which another node listens for peers, such as "10.0.0.2:7883"')
    return address


def split_list(value: object) -> object:
    """The parts of a text with commas, as variables of the environment have it; anything else as it is."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


SeedField = Annotated[Address, BeforeValidator(parse_seed), PlainSerializer(str), "address"]
SeedList = Annotated[list[SeedField], BeforeValidator(split_list), "addresses"]


class ClusterSettings(Section):
    """Where nodes meet, how many copies there are, when a node counts as gone."""

    listen: AddressField | None = Field(
        None,
        description=(
            "HOST:PORT where other nodes connect, on the network that nodes share. Left out: no cluster, and nothing "
            "else of this section may be set. Use a fixed port, by which the others find the node again; 0 picks one, "
            "for tests."
        ),
    )
    advertise: AddressField | None = Field(
        None,
        description=(
            "HOST:PORT that this node tells the others to connect to, where it differs from `listen` (all interfaces, "
            "containers, address translation); port 0 stands for the one of `listen`. Left out: `listen`."
        ),
    )
    seeds: SeedList = Field(
        default_factory=list,
        max_length=256,
        description=(
            "Peer addresses of nodes to ask first; one that answers is enough to learn of all others. The same list "
            "may stand on all nodes. In a variable, with commas between. Empty: the node waits to be asked."
        ),
    )
    replicas: int = Field(
        3,
        ge=1,
        le=16,
        description=(
            "Copies of everything that is stored; equal on all nodes (else the most counts, and the log says "
            "`settings_differ`: to have fewer, change all nodes). A message is acknowledged when so many nodes "
            "have it on disk: all but one of them may be lost. Each copy costs disk, network and CPU. With fewer nodes "
            "there are as many copies as nodes, and the status says under-replicated."
        ),
    )
    zone: str = Field(
        "",
        pattern=r"^[!-~]{0,64}$",
        description=(
            "What fails together: a host, rack or data centre. Copies stand in different zones as long as there are "
            "enough. Empty: every node is a zone of its own."
        ),
    )
    split_policy: Literal["available", "majority"] = Field(
        "available",
        description=(
            "What holds when the network falls apart; equal on all nodes. 'available': each part goes on and what they "
            "accepted is merged afterwards, with messages delivered twice at worst. 'majority': a part without a "
            "majority of the last full membership refuses writes until it has one again."
        ),
    )
    name: str = Field(
        "folkmoot",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description=(
            "Name of the cluster, equal on all nodes: a node of another cluster that comes by mistake is refused."
        ),
    )
    secret_file: Path | None = Field(
        None,
        description=(
            "File with a word of at least 16 characters that all nodes share: who does not know it is no peer. It must "
            "be set when an address above is not loopback. It proves who speaks and hides nothing: see `tls`."
        ),
    )
    tls: PeerTlsSettings | None = Field(
        None,
        description=(
            "Encryption between nodes, with certificates checked by both sides: [cluster.tls], on all nodes or none. "
            "Costs CPU for every byte that is copied."
        ),
    )
    # Membership
    heartbeat: Duration = Field(
        100 * MILLISECOND,
        ge=10 * MILLISECOND,
        le=10 * SECOND,
        description=(
            "Time between signs of life to every other node; equal on all nodes. Shorter notices earlier that a node "
            "is cut off, and costs a packet to each node each time."
        ),
    )
    silence: Duration = Field(
        2 * SECOND,
        ge=200 * MILLISECOND,
        le=60 * SECOND,
        description=(
            "Silence after which a node is taken for hung or cut off, and others lead what it led; equal on all nodes. "
            "Shorter is a shorter pause for clients, and more nodes put out for a disk or network that only paused: "
            "each time their copies must catch up. A killed process is noticed at once, by its closed connections."
        ),
    )
    join_wait: Duration = Field(
        2 * SECOND,
        le=600 * SECOND,
        description=(
            "Time that a starting node waits for the others to take it in before it serves alone with what it has "
            "(only with 'available'; with 'majority' it waits on). Longer is safer where machines boot side by side, "
            "and a longer start for a node that is really alone."
        ),
    )
    view_pause: Duration = Field(
        500 * MILLISECOND,
        le=60 * SECOND,
        description=(
            "Least time between two planned changes of the membership; nodes that come or go in between are taken "
            "together. A crash does not wait for it. Longer is less work where many nodes start, and later joins."
        ),
    )
    link_patience: Duration = Field(
        2 * SECOND,
        ge=100 * MILLISECOND,
        le=600 * SECOND,
        description=(
            "How long two nodes that both live may be unable to reach each other before one of them is put out. "
            "Meanwhile what needs both of them waits; shorter ends that sooner, for a network that may only flap."
        ),
    )
    stall: Duration = Field(
        2 * SECOND,
        ge=200 * MILLISECOND,
        le=60 * SECOND,
        description=(
            "How long the disk of a node may stand still before the others go on without it (a process that stands "
            "still is silent, see silence). A disk that pauses longer than this under load costs the node its place "
            "each time."
        ),
    )
    promise: Duration = Field(
        3 * SECOND,
        ge=200 * MILLISECOND,
        le=60 * SECOND,
        description=(
            "How long a change of the membership waits for the answer of a node that gives signs of life. Nothing "
            "moves meanwhile; who does not answer by then is left out."
        ),
    )
    # Links
    link_buffer_bytes_max: Size = Field(
        64 << 20,
        ge=1 << 20,
        description=(
            "Bytes kept in memory for one other node until it has confirmed them, so that a broken connection loses "
            "nothing. At the limit publishers are read more slowly. Costs that much memory for each slow node."
        ),
    )
    link_keep: Duration = Field(
        60 * SECOND,
        ge=SECOND,
        le=3600 * SECOND,
        description=(
            "How long these bytes are kept for a node without a connection. One that comes back later is told what it "
            "lacks from the store, which is slower."
        ),
    )
    # Copies
    recent_bytes_max: Size = Field(
        32 << 20,
        ge=0,
        description=(
            "Newest changes kept in memory: a copy that lacks only these is brought up from there, others by "
            "comparing the store. More memory, shorter catching up after short pauses."
        ),
    )
    copy_bytes_per_s: Size = Field(
        64 << 20,
        ge=1 << 16,
        description=(
            "Most that this node sends in a second to nodes whose copies it fills. More restores all copies sooner, "
            "and takes network, disk and CPU from clients meanwhile."
        ),
    )
    copy_parallel: int = Field(
        4, ge=1, le=256, description="Partitions that are copied to this node at a time; each holds a page in memory."
    )
    copy_latency: Duration = Field(
        20 * MILLISECOND,
        ge=MILLISECOND,
        le=10 * SECOND,
        description=(
            "Copying slows down while messages take longer than this to become safe, and twice as long as without "
            "copying. Lower spares clients, and leaves too few copies for longer."
        ),
    )
    digest: Duration = Field(
        100 * MILLISECOND,
        le=3600 * SECOND,
        description=(
            "Time between two comparisons of a page of rows with the other copies, by which damage is found that no "
            "reader has met. Shorter finds it sooner and reads more from the disk; 0 compares nothing."
        ),
    )

    def peer_address(self, port: int) -> str:
        """The "HOST:PORT" that other nodes are told, where the listener has got `port`; "" without a cluster."""
        told = self.advertise or self.listen
        if told is None:
            return ""
        fixed = told.port or (0 if self.listen is None else self.listen.port)
        return str(Address(told.host, fixed or port))

"""All settings of a node: owns the sections and fields of the configuration file, with defaults, bounds and reasons.

It reads no file and opens nothing; see `load` for where values come from, `check` for what they must fulfil together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from folkmoot.auth.acl import check_template
from folkmoot.config.base import Section
from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.limit import LimitSettings
from folkmoot.config.tls import TlsSettings
from folkmoot.config.unit import Address, AddressField, Duration, Size
from folkmoot.streams.config import PARTITIONS_MAX, check_name
from folkmoot.topics.name import check_filter

__all__ = [
    "AdminSettings",
    "AuthSettings",
    "ListenerSettings",
    "LogSettings",
    "NodeSettings",
    "RuleSettings",
    "Settings",
    "StreamSettings",
    "TlsSettings",
]


def valid_filter(text: str) -> str:
    """Refuse what is no topic filter, with the reason."""
    if fault := check_filter(text.encode(), 32_768):
        raise ValueError(fault)
    return text


def valid_template(text: str) -> str:
    """Refuse what is no filter with placeholders, with the reason."""
    if fault := check_template(text.encode()):
        raise ValueError(fault)
    return text


def valid_stream_name(name: str) -> str:
    """Refuse what cannot name a stream, with the reason."""
    if fault := check_name(name):
        raise ValueError(fault)
    return name


FilterField = Annotated[str, AfterValidator(valid_filter), "filter"]
TemplateField = Annotated[str, AfterValidator(valid_template), "filter"]
StreamName = Annotated[str, AfterValidator(valid_stream_name)]


class NodeSettings(Section):
    """Who this node is and where it keeps what it knows."""

    id: str = Field(
        "node1",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description=(
            "Name of the node, 1 to 64 letters, digits, '.', '_', '-'. Must differ between nodes, and stays with the "
            "data folder. Left out in a cluster: one is made at the first start and kept in the data folder."
        ),
    )
    data: Path = Field(
        Path("folkmoot-data"),
        description="Folder of the store, made when missing. One node at a time may have it open.",
    )
    durability: Literal["fsync", "os"] = Field(
        "fsync",
        description=(
            "When a message counts as safe: 'fsync' when it is on disk (survives a power cut), "
            "'os' when the operating system has it (survives a killed process; faster)."
        ),
    )
    partitions: int = Field(
        256,
        ge=1,
        le=4096,
        description=(
            "Parts of the data, the unit that nodes share out; equal on all nodes. Fixed when the data folder is made. "
            "Many spread the load more evenly, and make each change of the membership more work."
        ),
    )
    free_bytes_min: Size = Field(
        64 << 20,
        ge=0,
        description=(
            "Free space on the disk below which nothing more is stored: messages that would have to be are refused "
            "with 0x97. Keeps the store from failing in the middle of a write."
        ),
    )
    salvage: bool = Field(
        False,
        description=(
            "For one start after damage to the log of the store: keep what was written before the damage and accept "
            "the loss of the rest. Otherwise a damaged store is refused."
        ),
    )
    server_reference: str = Field(
        "",
        pattern=r"^[ -~]{0,1024}$",
        description=(
            'Where version 5 clients may go, such as "other.example:1883", when this node has too many of them or '
            "stops: they are told 0x9C with this Server Reference. Empty: they are told 0x89 or 0x8B."
        ),
    )
    response_information: str = Field(
        "",
        pattern=r"^[ -~]{0,1024}$",
        description=(
            "What version 5 clients get that ask for Response Information: the topic where their answers may go, with "
            '%c for the client id, such as "answers/%c". Empty: nothing.'
        ),
    )


class ListenerSettings(Section):
    """One place where clients connect."""

    protocol: Literal["mqtt", "mqtts", "ws", "wss"] = Field(
        "mqtt", description="TCP (mqtt), TLS (mqtts), WebSocket (ws) or WebSocket over TLS (wss)."
    )
    address: AddressField = Field(
        Address("127.0.0.1", 1883), description='HOST:PORT; port 0 picks a free one, host "0.0.0.0" is all interfaces.'
    )
    path: str = Field("/mqtt", pattern=r"^/[!-~]*$", description="Path of the WebSocket; only for ws and wss.")
    tls: TlsSettings | None = Field(
        None, description="Certificates of this listener alone; without it those of the section [tls]."
    )


class AdminSettings(Section):
    """The HTTP server: streams, health, metrics."""

    address: AddressField | None = Field(
        None, description="HOST:PORT of the HTTP server; without it there is none, and streams cannot be read by HTTP."
    )
    token_file: Path | None = Field(
        None, description="File with the token that requests must carry (Authorization: Bearer TOKEN)."
    )


class RuleSettings(Section):
    """One access rule; the first that fits decides."""

    verdict: Literal["allow", "deny"] = Field("allow", description="What the rule says.")
    action: Literal["publish", "subscribe", "both"] = Field("both", description="For which action.")
    user: str = Field("*", description="Pattern of the user name with * and ?; '' fits only clients without one.")
    client: str = Field("*", description="Pattern of the client id with * and ?.")
    topics: list[TemplateField] = Field(
        min_length=1, description="Topic filters, with %u for the user name and %c for the client id."
    )


class AuthSettings(Section):
    """Who may connect, and who may publish and subscribe where."""

    allow_anonymous: bool | None = Field(
        None,
        description=(
            "Whether clients may connect without proving who they are. Left out: only as long as no password file is "
            "set, and then only on loopback addresses."
        ),
    )
    password_file: Path | None = Field(
        None, description="File of user names and hashed passwords, written by `folkmoot passwd FILE USER`."
    )
    user_from_certificate: bool = Field(
        False, description="Whether the common name of a client certificate stands for user name and password."
    )
    default: Literal["allow", "deny"] | None = Field(
        None, description="What holds where no rule fits. Left out: allow without rules, deny with them."
    )
    rules: list[RuleSettings] = Field(
        default_factory=list, description="Access rules, in order: [[auth.rules]] for each one."
    )


class StreamSettings(Section):
    """A replayable log of all messages that match a filter."""

    filter: FilterField = Field(description="Topic filter of the messages that are kept.")
    partitions: int = Field(
        8, ge=1, le=PARTITIONS_MAX, description="Parts that readers read side by side; order holds within a topic."
    )
    retention: Duration = Field(
        0, description='Age at which records may go, such as "7d"; 0 or "never" keeps them whatever their age.'
    )
    retention_bytes: Size = Field(
        0, ge=0, description='Size of one partition, such as "10GB", beyond which its oldest records go; 0: no bound.'
    )


class LogSettings(Section):
    """What the node says on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least important that is said.")
    format: Literal["text", "json"] = Field("text", description="Lines for people, or one JSON object per line.")


class Settings(Section):
    """The whole configuration of a node."""

    node: NodeSettings = Field(default_factory=NodeSettings, description="Who this node is.")
    listeners: list[ListenerSettings] = Field(
        default_factory=lambda: [ListenerSettings()],
        min_length=1,
        max_length=64,
        description="Where clients connect: [[listeners]] for each. Without any: mqtt on 127.0.0.1:1883.",
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Certificates of all TLS listeners.")
    admin: AdminSettings = Field(default_factory=AdminSettings, description="The HTTP server.")
    auth: AuthSettings = Field(default_factory=AuthSettings, description="Who may do what.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="What is accepted, and how much.")
    streams: dict[StreamName, StreamSettings] = Field(
        default_factory=dict, description="Replayable logs: [streams.NAME] for each."
    )
    cluster: ClusterSettings = Field(
        default_factory=ClusterSettings, description="The other nodes; without cluster.listen there are none."
    )
    log: LogSettings = Field(default_factory=LogSettings, description="What is said on stderr.")

    def tls_of(self, listener: ListenerSettings) -> TlsSettings | None:
        """The certificates that a listener uses: its own, else those of the section; None for mqtt and ws."""
        if listener.protocol in ("mqtt", "ws"):
            return None
        return listener.tls or self.tls

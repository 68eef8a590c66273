"""All settings of a node: the sections and fields of the configuration file, with defaults, bounds and descriptions.

Reads no file and opens nothing. `load` has the sources of values, `check` the rules across sections.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from folkmoot.auth.access import check_client_pattern
from folkmoot.auth.acl import check_group, check_template
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
    """Return a valid topic filter; raises ValueError with the reason if it is invalid."""
    if fault := check_filter(text.encode(), 32_768):
        raise ValueError(fault)
    return text


def valid_template(text: str) -> str:
    """Return a valid filter with placeholders; raises ValueError with the reason if it is invalid."""
    if fault := check_template(text.encode()):
        raise ValueError(fault)
    return text


def valid_stream_name(name: str) -> str:
    """Return a valid stream name; raises ValueError with the reason if it is invalid."""
    if fault := check_name(name):
        raise ValueError(fault)
    return name


def valid_host(text: str) -> str:
    """Return a host name in lower case, or "*"; raises ValueError if it is neither."""
    if text != "*" and not HOST.fullmatch(text):
        raise ValueError('a name such as "broker.example.com", without scheme and port, or "*"')
    return text.lower()


def valid_origin(text: str) -> str:
    """Return an origin in lower case, with * for any text, or "null"; raises ValueError if it is neither."""
    if text not in ("*", "null") and not ORIGIN.fullmatch(text):
        raise ValueError('an origin such as "https://example.com" or "https://*.example.com:8443", "null", or "*"')
    return text.lower()


HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
ORIGIN: Final = re.compile(
    r"[A-Za-z*][A-Za-z0-9+.*-]*://([A-Za-z0-9._*-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:(\*|[0-9]{1,5}))?"
)

HostField = Annotated[str, AfterValidator(valid_host), "host"]
OriginField = Annotated[str, AfterValidator(valid_origin), "origin"]


def valid_client_pattern(text: str) -> str:
    """Return a valid pattern of client ids; raises ValueError with the reason if it is invalid."""
    if fault := check_client_pattern(text):
        raise ValueError(fault)
    return text


def valid_group(text: str) -> str:
    """Return a valid pattern of groups; raises ValueError with the reason if it is invalid."""
    if fault := check_group(text):
        raise ValueError(fault)
    return text


GroupPattern = Annotated[str, AfterValidator(valid_group)]
ClientPattern = Annotated[str, AfterValidator(valid_client_pattern)]
FilterField = Annotated[str, AfterValidator(valid_filter), "filter"]
TemplateField = Annotated[str, AfterValidator(valid_template), "filter"]
StreamName = Annotated[str, AfterValidator(valid_stream_name)]


class NodeSettings(Section):
    """Identity and storage of this node."""

    id: str = Field(
        "node1",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description=(
            "Name of the node, 1 to 64 letters, digits, '.', '_', '-'. It must be unique and belongs to the data "
            "folder. Unset in a cluster: a random id is generated at the first start and kept in the data folder."
        ),
    )
    data: Path = Field(
        Path("folkmoot-data"),
        description="Folder of the store, created if it is missing. Only one node at a time may have it open.",
    )
    durability: Literal["fsync", "os"] = Field(
        "fsync",
        description=(
            "When a message counts as safe: 'fsync' when it is on disk (survives a power failure), 'os' when the "
            "operating system has it (survives a killed process; faster)."
        ),
    )
    partitions: int = Field(
        256,
        ge=1,
        le=4096,
        description=(
            "Number of partitions, the unit in which data is distributed over nodes; equal on all nodes. Fixed when "
            "the data folder is created. More partitions balance the load better, but make each change of the "
            "membership more work."
        ),
    )
    free_bytes_min: Size = Field(
        64 << 20,
        ge=0,
        description=(
            "Free space on disk below which nothing more is stored: messages that would have to be stored are refused"
            " with 0x97. Prevents the store from failing in the middle of a write."
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
            'Another server for MQTT 5 clients, such as "other.example:1883", used when this node has too many '
            "clients or stops: they get 0x9C with this Server Reference. Empty: they get 0x89 or 0x8B."
        ),
    )
    response_information: str = Field(
        "",
        pattern=r"^[ -~]{0,1024}$",
        description=(
            "Answer to MQTT 5 clients that request Response Information: the topic for their responses, with %c for "
            'the client id, such as "answers/%c". Empty: no answer.'
        ),
    )


class ListenerSettings(Section):
    """One address at which clients connect."""

    protocol: Literal["mqtt", "mqtts", "ws", "wss"] = Field(
        "mqtt", description="TCP (mqtt), TLS (mqtts), WebSocket (ws) or WebSocket over TLS (wss)."
    )
    address: AddressField = Field(
        Address("127.0.0.1", 1883), description='HOST:PORT; port 0 picks a free one, host "0.0.0.0" is all interfaces.'
    )
    path: str = Field("/mqtt", pattern=r"^/[!-~]*$", description="Path of the WebSocket; only for ws and wss.")
    origins: list[OriginField] = Field(
        default_factory=list,
        description=(
            "Origins of web pages that may connect to ws and wss, in addition to those on the same host: "
            '"https://example.com", "https://*.example.com", "null", or "*" for all. A client without the header '
            "Origin is no browser and is not restricted."
        ),
    )
    tls: TlsSettings | None = Field(
        None, description="Certificates of this listener only; unset: those of the section [tls]."
    )


class AdminSettings(Section):
    """The HTTP server: streams, health, metrics."""

    address: AddressField | None = Field(
        None, description="HOST:PORT of the HTTP server; unset: there is none, and streams cannot be read over HTTP."
    )
    token_file: Path | None = Field(
        None, description="File with the token that requests must have (Authorization: Bearer TOKEN)."
    )
    metrics_token_file: Path | None = Field(
        None,
        description=(
            "File with another token, which opens /metrics and nothing else: for programs that collect them. The token "
            "of `token_file` lets its owner read all streams and publish to all topics."
        ),
    )
    hosts: list[HostField] = Field(
        default_factory=list,
        description=(
            "Names by which requests without a token may call this server (header Host), in addition to the address, "
            'localhost and loopback addresses; "*" allows every name. Prevents web pages from reading the server '
            "through a browser on this machine (DNS rebinding). With a token any name is allowed."
        ),
    )
    connections_max: int = Field(
        256,
        ge=16,
        le=65_536,
        description="Connections to this server; above it, one that waits for its client is closed, or the new one.",
    )
    connections_per_address_max: int = Field(
        128,
        ge=4,
        le=65_536,
        description="Connections to this server from one address (a /64 network of IPv6), as above.",
    )


class RuleSettings(Section):
    """One access rule; the first that matches decides."""

    verdict: Literal["allow", "deny"] = Field("allow", description="Whether the rule allows or denies.")
    action: Literal["publish", "subscribe", "both"] = Field("both", description="The action that the rule is about.")
    user: str = Field("*", description="Pattern of the user name with * and ?; '' matches only clients without one.")
    client: str = Field("*", description="Pattern of the client id with * and ?.")
    group: GroupPattern = Field(
        "*",
        description=(
            "Pattern of the group of a shared subscription with * and ?, and %u and %c as in `topics`; '' matches only "
            "subscriptions that are not shared. With another pattern than * the rule is not about publishing."
        ),
    )
    topics: list[TemplateField] = Field(
        min_length=1, description="Topic filters, with %u for the user name and %c for the client id."
    )


class AuthSettings(Section):
    """Authentication, and the rules for publishing and subscribing."""

    allow_anonymous: bool | None = Field(
        None,
        description=(
            "Whether clients may connect without authentication. Unset: only if there is no password file, and then "
            "only on loopback addresses."
        ),
    )
    password_file: Path | None = Field(
        None, description="File of user names and hashed passwords, written by `folkmoot passwd FILE USER`."
    )
    user_from_certificate: bool = Field(
        False, description="Whether the common name of a client certificate replaces user name and password."
    )
    client_id_owner: bool = Field(
        True,
        description=(
            "Whether a client id belongs to the user of its session, where there are users: another user that connects "
            "with it is refused with 0x87. False: that user begins a new session, and the first one ends."
        ),
    )
    client_ids: list[ClientPattern] = Field(
        default_factory=list,
        description=(
            'The client ids that a user may have: patterns with * and ?, and %u for the user name, such as "%u-*". '
            "Others are refused with 0x85. Empty: any."
        ),
    )
    default: Literal["allow", "deny"] | None = Field(
        None, description="What applies if no rule matches. Unset: allow without rules, deny with them."
    )
    rules: list[RuleSettings] = Field(
        default_factory=list, description="Access rules, in order: one [[auth.rules]] for each."
    )


class StreamSettings(Section):
    """A replayable log of all messages that match a filter."""

    filter: FilterField = Field(description="Topic filter of the messages that the stream keeps.")
    partitions: int = Field(
        8,
        ge=1,
        le=PARTITIONS_MAX,
        description="Partitions, which readers can read in parallel; the order within a topic is kept.",
    )
    retention: Duration = Field(
        0, description='Age at which records may be removed, such as "7d"; 0 or "never" keeps them regardless of age.'
    )
    retention_bytes: Size = Field(
        0,
        ge=0,
        description='Size of one partition, such as "10GB", above which its oldest records are removed; 0: no limit.',
    )


class LogSettings(Section):
    """The log of the node on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The lowest level that is logged.")
    format: Literal["text", "json"] = Field("text", description="Text lines, or one JSON object per line.")
    audit: str = Field(
        "",
        description=(
            'The audit log: a file, or "stderr"; empty: none. JSON lines about logins, refusals, orders to the admin '
            "server and reloads. The file is appended to, created for its owner alone, and opened again on SIGHUP."
        ),
    )


class Settings(Section):
    """The whole configuration of a node."""

    node: NodeSettings = Field(default_factory=NodeSettings, description="Identity and storage of this node.")
    listeners: list[ListenerSettings] = Field(
        default_factory=lambda: [ListenerSettings()],
        min_length=1,
        max_length=64,
        description="Where clients connect: one [[listeners]] for each. Default: mqtt on 127.0.0.1:1883.",
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Certificates of all TLS listeners.")
    admin: AdminSettings = Field(default_factory=AdminSettings, description="The HTTP server.")
    auth: AuthSettings = Field(default_factory=AuthSettings, description="Authentication and access rules.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="What the node accepts, and how much.")
    streams: dict[StreamName, StreamSettings] = Field(
        default_factory=dict, description="Replayable logs: one [streams.NAME] for each."
    )
    cluster: ClusterSettings = Field(
        default_factory=ClusterSettings, description="The cluster; without cluster.listen there is none."
    )
    log: LogSettings = Field(default_factory=LogSettings, description="The log on stderr.")

    def tls_of(self, listener: ListenerSettings) -> TlsSettings | None:
        """Return the certificates of a listener: its own, else those of the section [tls]; None for mqtt and ws."""
        if listener.protocol in ("mqtt", "ws"):
            return None
        return listener.tls or self.tls

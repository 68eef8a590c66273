"""The conversion of settings to the configuration of the core: the only module that knows both."""

from __future__ import annotations

from folkmoot import __version__
from folkmoot.auth.access import Access
from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule
from folkmoot.auth.policy import Policy
from folkmoot.config.check import allows_anonymous
from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.field import kind
from folkmoot.config.limit import LimitSettings
from folkmoot.config.secret import read_words
from folkmoot.config.settings import AuthSettings, RuleSettings, Settings
from folkmoot.config.unit import NEVER_US
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.limits import Limits
from folkmoot.node.config import NodeConfig
from folkmoot.peer.config import ClusterConfig
from folkmoot.streams.config import StreamConfig

__all__ = [
    "access_of",
    "cluster_config",
    "limits_of",
    "node_config",
    "policy_of",
    "secrets_of",
    "stream_configs",
]

ACTIONS = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "both": BOTH}
MICROSECONDS_PER_SECOND = 1_000_000


def node_config(settings: Settings) -> NodeConfig:
    """Return the configuration of the core; raises FolkmootError if the secret of the cluster cannot be read.

    The driver reads the other files (passwords, certificates).
    """
    config = NodeConfig()
    config.node_id = settings.node.id
    config.partitions = settings.node.partitions
    config.limits = limits_of(settings.limits)
    config.streams = stream_configs(settings)
    config.policy = policy_of(settings.auth)
    config.allow_anonymous = allows_anonymous(settings)
    config.check_passwords = settings.auth.password_file is not None
    config.user_from_certificate = settings.auth.user_from_certificate
    config.client_id_owner = settings.auth.client_id_owner
    config.client_ids = list(settings.auth.client_ids)
    config.server_reference = settings.node.server_reference
    config.response_information = settings.node.response_information
    config.version = __version__
    config.cluster = cluster_config(settings.cluster)
    if config.cluster is not None:
        config.cluster.partitions = settings.node.partitions
        config.cluster.streams = streams_text(config.streams)
    return config


def cluster_config(settings: ClusterSettings) -> ClusterConfig | None:
    """Return the cluster's configuration, including the secret; None without a cluster.

    `peer_address` has port 0 if the system picks one: the code that binds it calls `ClusterSettings.peer_address`.
    """
    if settings.listen is None:
        return None
    config = ClusterConfig()
    config.peer_address = settings.peer_address(0)
    config.seeds = [str(seed) for seed in settings.seeds]  # this node's own address keeps its place in the list
    if settings.secret_file is not None:
        config.secret, *config.secrets_accepted = secrets_of(settings)
    for name, field in ClusterSettings.model_fields.items():
        attribute = f"{name}_us" if kind(field) == "duration" else name
        if name != "seeds" and hasattr(config, attribute):
            setattr(config, attribute, getattr(settings, name))
    return config


def secrets_of(settings: ClusterSettings) -> list[bytes]:
    """Return the secrets of the cluster, first the one to use; none without a file. Raises FolkmootError."""
    if settings.secret_file is None:
        return []
    return [word.encode() for word in read_words(settings.secret_file, "the secret of the peers")]


def access_of(settings: Settings, users: dict[str, str] | None) -> Access:
    """Return who may connect, and what clients may do; `users`: what the password file says."""
    access = Access(policy_of(settings.auth))
    access.allow_anonymous = allows_anonymous(settings)
    access.check_passwords = settings.auth.password_file is not None
    access.user_from_certificate = settings.auth.user_from_certificate
    access.client_id_owner = settings.auth.client_id_owner
    access.client_ids = list(settings.auth.client_ids)
    access.users = users
    return access


def limits_of(settings: LimitSettings) -> Limits:
    """Return the limits of the core; a duration is converted to the unit of its attribute (`_us` or `_s`)."""
    limits = Limits()
    for name, field in LimitSettings.model_fields.items():
        value: int = getattr(settings, name)
        if kind(field) != "duration":
            setattr(limits, name, value)
        elif hasattr(limits, f"{name}_us"):
            setattr(limits, f"{name}_us", value)
        else:
            setattr(limits, f"{name}_s", value // MICROSECONDS_PER_SECOND)
    return limits


def stream_configs(settings: Settings) -> list[StreamConfig]:
    """Return the streams sorted by name, so that every node has the same list."""
    return [
        StreamConfig(
            name,
            stream.filter.encode(),
            stream.partitions,
            0 if stream.retention == NEVER_US else stream.retention,
            stream.retention_bytes,
        )
        for name, stream in sorted(settings.streams.items())
    ]


def streams_text(streams: list[StreamConfig]) -> str:
    """Return the number of streams and a hash of their declarations, to compare nodes of all versions."""
    if not streams:
        return "none declared"
    declared = [(one.name, one.filter, one.partitions, one.retention_us, one.retention_bytes) for one in streams]
    return f"{len(streams)} declared, hash {hash64(repr(declared).encode()):016x}"


def policy_of(auth: AuthSettings) -> Policy:
    """Return the access policy; unless a default is set, rules imply that everything else is denied."""
    default_allow = not auth.rules if auth.default is None else auth.default == "allow"
    return Policy([rule_of(rule) for rule in auth.rules], default_allow)


def rule_of(rule: RuleSettings) -> Rule:
    """Return one rule of the access policy."""
    templates = [topic.encode() for topic in rule.topics]
    return Rule(rule.verdict == "allow", ACTIONS[rule.action], rule.user, rule.client, templates, rule.group)

"""From settings to what a core is told: owns the mapping of fields; the one place that knows both sides."""

from __future__ import annotations

from folkmoot import __version__
from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule
from folkmoot.auth.policy import Policy
from folkmoot.config.check import allows_anonymous
from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.field import kind
from folkmoot.config.limit import LimitSettings
from folkmoot.config.secret import read_word
from folkmoot.config.settings import AuthSettings, RuleSettings, Settings
from folkmoot.config.unit import NEVER_US
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.limits import Limits
from folkmoot.node.config import NodeConfig
from folkmoot.peer.config import ClusterConfig
from folkmoot.streams.config import StreamConfig

__all__ = ["cluster_config", "limits_of", "node_config", "policy_of", "stream_configs"]

ACTIONS = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "both": BOTH}
MICROSECONDS_PER_SECOND = 1_000_000


def node_config(settings: Settings) -> NodeConfig:
    """The settings as the core takes them; FolkmootError when the secret of the peers cannot be read.

    Other files (passwords, certificates) stay the driver's business.
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
    config.server_reference = settings.node.server_reference
    config.response_information = settings.node.response_information
    config.version = __version__
    config.cluster = cluster_config(settings.cluster)
    if config.cluster is not None:
        config.cluster.partitions = settings.node.partitions
        config.cluster.streams = streams_text(config.streams)
    return config


def cluster_config(settings: ClusterSettings) -> ClusterConfig | None:
    """The cluster as the core takes it, with the secret in it; None for a node alone.

    `peer_address` has port 0 where the system picks one: whoever binds it asks `ClusterSettings.peer_address`.
    """
    if settings.listen is None:
        return None
    config = ClusterConfig()
    config.peer_address = settings.peer_address(0)
    # A list that is the same on all nodes names each of them too.
    config.seeds = [seed for seed in map(str, settings.seeds) if seed != config.peer_address]
    if settings.secret_file is not None:
        config.secret = read_word(settings.secret_file, "the secret of the peers").encode()
    for name, field in ClusterSettings.model_fields.items():
        attribute = f"{name}_us" if kind(field) == "duration" else name
        if name != "seeds" and hasattr(config, attribute):
            setattr(config, attribute, getattr(settings, name))
    return config


def limits_of(settings: LimitSettings) -> Limits:
    """The limits of the core; a duration goes where the attribute's unit says (`_us` or `_s`)."""
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
    """The streams in the order of their names, so that every node has the same list."""
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
    """The number of streams and a hash of what is declared of them, so that nodes of all versions can be compared."""
    if not streams:
        return "none declared"
    declared = [(one.name, one.filter, one.partitions, one.retention_us, one.retention_bytes) for one in streams]
    return f"{len(streams)} declared, hash {hash64(repr(declared).encode()):016x}"


def policy_of(auth: AuthSettings) -> Policy:
    """The access list; without a stated default, rules mean that everything else is denied."""
    default_allow = not auth.rules if auth.default is None else auth.default == "allow"
    return Policy([rule_of(rule) for rule in auth.rules], default_allow)


def rule_of(rule: RuleSettings) -> Rule:
    """One rule of the access list."""
    templates = [topic.encode() for topic in rule.topics]
    return Rule(rule.verdict == "allow", ACTIONS[rule.action], rule.user, rule.client, templates)

"""What the core is told: every limit arrives, in its own unit."""

from __future__ import annotations

import pytest

from folkmoot.config import load
from folkmoot.config.convert import limits_of, node_config
from folkmoot.config.limit import LimitSettings
from folkmoot.kernel.limits import Limits

# A compiled class has no __dict__.
ATTRIBUTES = [name for name in dir(Limits()) if not name.startswith("_")]


def bare(attribute: str) -> str:
    """The name in the file: durations lose their unit."""
    return attribute.removesuffix("_us") if attribute.endswith("_us") else attribute.removesuffix("_s")


def test_the_section_mirrors_every_limit() -> None:
    names = {bare(attribute) for attribute in ATTRIBUTES}
    assert set(LimitSettings.model_fields) == names


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_the_defaults_are_those_of_the_core(attribute: str) -> None:
    assert getattr(limits_of(LimitSettings()), attribute) == getattr(Limits(), attribute)


def test_durations_arrive_in_the_unit_of_the_attribute() -> None:
    limits = load(None, {}, {"limits": {"connect_timeout": "2s", "session_expiry_max": "1h"}}).limits
    assert limits_of(limits).connect_timeout_us == 2_000_000
    assert limits_of(limits).session_expiry_max_s == 3600


def test_the_core_is_told_streams_rules_and_who_may_come() -> None:
    config = node_config(
        load(
            None,
            {},
            {
                "node": {
                    "id": "n7",
                    "partitions": 16,
                    "server_reference": "n8:1883",
                    "response_information": "answers/%c",
                },
                "streams": {
                    "b": {"filter": "b/#", "retention": "never"},
                    "a": {"filter": "a/#", "retention": "1s", "retention_bytes": "1kB"},
                },
                "auth": {"rules": [{"verdict": "allow", "action": "publish", "topics": ["a/%c"]}]},
            },
        )
    )
    assert (config.node_id, config.partitions) == ("n7", 16)
    assert (config.server_reference, config.response_information) == ("n8:1883", "answers/%c")
    assert [(entry.name, entry.retention_us, entry.retention_bytes) for entry in config.streams] == [
        ("a", 1_000_000, 1000),
        ("b", 0, 0),
    ]
    assert config.allow_anonymous
    assert not config.check_passwords
    assert config.policy.may_publish("c1", None, b"a/c1")
    assert not config.policy.may_publish("c1", None, b"a/c2")
    assert not config.policy.may_subscribe("c1", None, b"a/c1")


def test_without_rules_everything_is_allowed_unless_the_default_says_no() -> None:
    assert node_config(load()).policy.open
    assert not node_config(load(None, {}, {"auth": {"default": "deny"}})).policy.may_publish("c", None, b"a")

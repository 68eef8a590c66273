"""Authorization: access rules for publishing and subscribing, and the decisions made from them.

Checks no password or certificate: clients are authenticated before.
"""

from __future__ import annotations

from folkmoot.auth.access import BY_CERTIFICATE, BY_PASSWORD, UNPROVED, Access, check_client_pattern
from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule, check_template
from folkmoot.auth.cover import covers, overlaps
from folkmoot.auth.policy import Grant, Policy

__all__ = [
    "BOTH",
    "BY_CERTIFICATE",
    "BY_PASSWORD",
    "PUBLISH",
    "SUBSCRIBE",
    "UNPROVED",
    "Access",
    "Grant",
    "Policy",
    "Rule",
    "check_client_pattern",
    "check_template",
    "covers",
    "overlaps",
]

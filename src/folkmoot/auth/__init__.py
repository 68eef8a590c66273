"""Authorization: access rules for publishing and subscribing, and the decisions made from them.

Checks no password or certificate: clients are authenticated before.
"""

from __future__ import annotations

from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule, check_template
from folkmoot.auth.cover import covers, overlaps
from folkmoot.auth.policy import Grant, Policy

__all__ = ["BOTH", "PUBLISH", "SUBSCRIBE", "Grant", "Policy", "Rule", "check_template", "covers", "overlaps"]

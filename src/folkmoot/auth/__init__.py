"""Who may publish and subscribe where: access rules and the decisions made from them.

It never checks a password or a certificate: who a client is has been settled before its rights are asked for.
"""

from __future__ import annotations

from folkmoot.auth.acl import BOTH, PUBLISH, SUBSCRIBE, Rule, check_template
from folkmoot.auth.cover import covers, overlaps
from folkmoot.auth.policy import Grant, Policy

__all__ = ["BOTH", "PUBLISH", "SUBSCRIBE", "Grant", "Policy", "Rule", "check_template", "covers", "overlaps"]

"""Who may connect, and as what: the settings of authentication and authorization that a reload replaces as a whole.

Owns the judgement about a client that is connected already or has left something behind: whether it would still be let
in. Checks no password or certificate; drivers do.
"""

from __future__ import annotations

from typing import Final

from folkmoot.auth.acl import is_like
from folkmoot.auth.policy import Policy

__all__ = ["BY_CERTIFICATE", "BY_PASSWORD", "UNPROVED", "Access", "check_client_pattern"]

# How a connection has proved its user name
UNPROVED: Final = 0  # not at all: it is anonymous, or nobody checks names
BY_PASSWORD: Final = 1
BY_CERTIFICATE: Final = 2

PERCENT: Final = "%"


class Access:
    """The rules for clients; every attribute is as in `node.config`.

    users: the stored hash of each user of the password file, None without one. removed: users that a former file had;
    it counts only where names may also come from certificates, and a missing name alone says nothing.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.allow_anonymous = True
        self.check_passwords = False
        self.user_from_certificate = False
        self.client_id_owner = True
        self.client_ids: list[str] = []
        self.users: dict[str, str] | None = None
        self.removed: dict[str, None] = {}

    @property
    def has_users(self) -> bool:
        """Whether user names are proved, so that something can belong to a user."""
        return self.check_passwords or self.user_from_certificate

    def succeeds(self, former: Access) -> None:
        """Take over from the former rules which users were removed since the start."""
        self.removed = dict(former.removed)
        if former.users is not None:
            self.removed.update(dict.fromkeys(former.users))
        if self.users is None:
            self.removed = {}
            return
        for name in list(self.removed):
            if name in self.users:
                del self.removed[name]

    def returns(self, certificate: str) -> None:
        """A certificate proves this name: its user is there, although a password file once had the name."""
        if self.user_from_certificate:
            self.removed.pop(certificate, None)

    def gone(self, username: str) -> str:
        """Return why a user who left something behind does not exist any more, "" if that is not known."""
        if not self.has_users:
            return ""
        if not username:
            return "" if self.allow_anonymous else "anonymous clients are not allowed any more"
        if self.users is None or username in self.users:
            return ""
        if self.user_from_certificate and username not in self.removed:
            return ""
        return "the user was removed"

    def refuses(self, proved: int, username: str, credential: str) -> str:
        """Return why a connected client would not be let in any more, "" if it would.

        credential: the stored hash by which its password was checked.
        """
        if proved == BY_CERTIFICATE:
            return "" if self.user_from_certificate else "certificates do not name users any more"
        if proved == BY_PASSWORD:
            if self.users is None:
                kept = self.check_passwords or self.allow_anonymous
                return "" if kept else "passwords are not accepted any more"
            known = self.users.get(username)
            if known is None:
                return "the user was removed"
            return "" if known == credential else "the password was changed"
        if not self.allow_anonymous:
            return "anonymous clients are not allowed any more"
        if username and self.check_passwords:
            return "this server wants a password now"
        if username and self.user_from_certificate:
            return "this server takes user names from certificates now"
        return ""

    def wrong_id(self, client_id: str, username: str) -> str:
        """Return why a client may not use this client id, "" if it may."""
        if not self.client_ids:
            return ""
        for pattern in self.client_ids:
            filled = fill_name(pattern, username)
            if filled and is_like(filled, client_id):
                return ""
        return "this client id is not one of those that the user may have"


def fill_name(pattern: str, username: str) -> str:
    """Insert the user name into a pattern of client ids; "" if that is impossible.

    A name with a wildcard is not inserted: its owner would get ids that are like it.
    """
    at = pattern.find(PERCENT)
    if at < 0:
        return pattern
    parts: list[str] = []
    begin = 0
    while at >= 0:
        parts.append(pattern[begin:at])
        if pattern[at + 1 : at + 2] == "u":
            if not username or "*" in username or "?" in username:
                return ""
            parts.append(username)
        else:
            parts.append(PERCENT)
        begin = at + 2
        at = pattern.find(PERCENT, begin)
    parts.append(pattern[begin:])
    return "".join(parts)


def check_client_pattern(pattern: str) -> str | None:
    """Return why `pattern` is not a pattern of client ids, or None."""
    if not pattern:
        return "the pattern is empty"
    at = pattern.find(PERCENT)
    while at >= 0:
        if pattern[at + 1 : at + 2] not in ("u", PERCENT):
            return "% must be followed by u (user name) or another %"
        at = pattern.find(PERCENT, at + 2)
    return None

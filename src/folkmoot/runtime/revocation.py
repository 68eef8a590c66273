"""Revocation lists (RFC 5280 section 5): which certificates of an open connection are revoked.

OpenSSL checks the certificates of a handshake by the lists of a context, their signatures and times included. It has no
way to check those of a handshake that is over, so this module reads the serial numbers in the lists (DER, X.690).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["Revocations"]

LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----(.*?)-----END X509 CRL-----", re.DOTALL)
# Tags of DER
INTEGER: Final = 0x02
SEQUENCE: Final = 0x30
TIMES: Final = (0x17, 0x18)
VERSION: Final = 0xA0  # of a certificate, [0] EXPLICIT

Part = tuple[int, bytes, bytes]
"""A tag, the content, and both with their length, as they are."""


class Revocations:
    """The lists of some authorities: by the name of each, the serial numbers that it has revoked."""

    def __init__(self, lists: dict[bytes, frozenset[int]]) -> None:
        self.lists = lists

    @classmethod
    def read(cls, path: Path) -> Revocations:
        """Return the lists in a PEM file; raises OSError, and ValueError for what is no list."""
        lists: dict[bytes, frozenset[int]] = {}
        for block in LIST.findall(path.read_bytes()):
            issuer, serials = read_list(base64.b64decode(block))
            lists[issuer] = lists.get(issuer, frozenset()) | serials
        if not lists:
            raise ValueError("there is none in it")
        return cls(lists)

    def refuses(self, chain: Iterable[bytes]) -> str:
        """Return why a chain of certificates (DER) is not accepted, "" if it is."""
        for certificate in chain:
            try:
                issuer, serial = read_certificate(certificate)
            except ValueError as error:  # OpenSSL has accepted it
                return f"the certificate cannot be compared with the revocation lists: {error}"
            found = self.lists.get(issuer)
            if found is None:
                return "there is no revocation list of the authority of the certificate"
            if serial in found:
                return "the certificate was revoked"
        return ""

    def adds_to(self, former: Revocations) -> bool:
        """Whether these lists refuse what the former ones did not."""
        if former.lists.keys() - self.lists.keys():
            return True
        return any(serials - former.lists.get(issuer, frozenset()) for issuer, serials in self.lists.items())


def read_list(data: bytes) -> tuple[bytes, frozenset[int]]:
    """Return the issuer of a list, and what it has revoked; raises ValueError."""
    parts = inside(data)
    if parts and parts[0][0] == INTEGER:  # the version
        parts = parts[1:]
    if len(parts) < 3 or parts[1][0] != SEQUENCE or parts[2][0] not in TIMES:
        raise ValueError("it is damaged")
    rest = parts[4:] if len(parts) > 3 and parts[3][0] in TIMES else parts[3:]
    revoked = parts_of(rest[0][1]) if rest and rest[0][0] == SEQUENCE else []
    return parts[1][2], frozenset(integer(parts_of(content)[0]) for _, content, _ in revoked)


def read_certificate(data: bytes) -> tuple[bytes, int]:
    """Return the issuer and the serial number of a certificate; raises ValueError."""
    parts = inside(data)
    if parts and parts[0][0] == VERSION:
        parts = parts[1:]
    if len(parts) < 3:
        raise ValueError("it is damaged")
    return parts[2][2], integer(parts[0])


def inside(data: bytes) -> list[Part]:
    """Return the parts of the signed part of a certificate or list."""
    outer = parts_of(data)
    signed = parts_of(outer[0][1]) if outer else []
    if not signed:
        raise ValueError("it is damaged")
    return parts_of(signed[0][1])


def parts_of(data: bytes) -> list[Part]:
    """Return the parts of a sequence, one after another; raises ValueError."""
    found: list[Part] = []
    at = 0
    while at < len(data):
        start, tag = at, data[at]
        size = data[at + 1] if at + 1 < len(data) else 0x80
        at += 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
            if not 0 < count <= 4:
                raise ValueError("it is damaged")
        if at + size > len(data):
            raise ValueError("it is damaged")
        found.append((tag, data[at : at + size], data[start : at + size]))
        at += size
    return found


def integer(part: Part) -> int:
    """Return the number that a part is; raises ValueError."""
    if part[0] != INTEGER:
        raise ValueError("it is damaged")
    return int.from_bytes(part[1], "big", signed=True)

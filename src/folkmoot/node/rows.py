"""Rows of a node's own: the newest view that it has installed, and the summaries of heals.

By them a restarted node knows which nodes to expect, and what was merged before.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.membership.view import View
from folkmoot.membership.view_format import decode_view, encode_view
from folkmoot.merge.heals import Heals, encode_heals
from folkmoot.store.key import META, plain_key
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, Writer

__all__ = ["put_heals", "put_view", "read_heals", "read_view"]

_KEY: Final = plain_key(0, META, b"view")
_HEALS_KEY: Final = plain_key(0, META, b"heals")


def read_view(reader: Reader) -> View | None:
    """Return the view that was installed last, or None; raises CorruptStore."""
    value = reader.get(_KEY)
    if value is None:
        return None
    try:
        return decode_view(value[VERSION_BYTES:])
    except ValueError as fault:
        raise CorruptStore(f"the row of the view is damaged: {fault}") from None


def put_view(writer: Writer, view: View) -> None:
    """Put the row into this turn's batch."""
    writer.private(_KEY, encode_view(view))


def read_heals(reader: Reader, heals: Heals) -> None:
    """Read the stored summaries into `heals`; raises CorruptStore."""
    value = reader.get(_HEALS_KEY)
    if value is not None:
        try:
            heals.learn(value[VERSION_BYTES:])
        except ValueError as fault:
            raise CorruptStore(f"the row of the heals is damaged: {fault}") from None
    heals.changed = False


def put_heals(writer: Writer, heals: Heals) -> None:
    """Put the row into this turn's batch."""
    heals.changed = False
    writer.private(_HEALS_KEY, encode_heals(heals.known))

"""Rows of a node's own: the summaries of heals, by which a restarted node knows what was merged before."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.merge.heals import Heals, encode_heals
from folkmoot.store.key import META, plain_key
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, Writer

__all__ = ["put_heals", "read_heals"]

_HEALS_KEY: Final = plain_key(0, META, b"heals")


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

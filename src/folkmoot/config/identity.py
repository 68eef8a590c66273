"""The id of a node that was given none: in a cluster every node has one of its own, and keeps it with its data."""

from __future__ import annotations

import base64
import secrets
from typing import Final

from folkmoot.config.settings import Settings

__all__ = ["with_own_id"]

# 50 bits: among a thousand nodes two alike once in two thousand million clusters.
ID_BYTES: Final = 7
ID_LETTERS: Final = 10


def with_own_id(settings: Settings, stored: str) -> Settings:
    """The settings with the node's id: the stated one, else `stored` ("" for a new data folder), else a new one.

    A node without a cluster stays what the settings say: nobody else could have the same name.
    """
    if settings.cluster.listen is None or "id" in settings.node.model_fields_set:
        return settings
    node = settings.node.model_copy(update={"id": stored or new_id()})
    return settings.model_copy(update={"node": node})


def new_id() -> str:
    """A random id of letters and digits."""
    return "n-" + base64.b32encode(secrets.token_bytes(ID_BYTES)).decode("ascii").lower()[:ID_LETTERS]

"""Generated node ids: in a cluster, every node has a unique id, which is kept in its data folder."""

from __future__ import annotations

import base64
import secrets
from typing import Final

from folkmoot.config.settings import Settings

__all__ = ["with_own_id"]

# 50 bits: two of a thousand nodes get the same id in one of two billion clusters.
ID_BYTES: Final = 7
ID_LETTERS: Final = 10


def with_own_id(settings: Settings, stored: str) -> Settings:
    """Return the settings with the node's id: the configured one, else `stored` ("" if there is none), else a new one.

    Without a cluster, the settings stay as they are: there is no other node with the same id.
    """
    if settings.cluster.listen is None or "id" in settings.node.model_fields_set:
        return settings
    node = settings.node.model_copy(update={"id": stored or new_id()})
    return settings.model_copy(update={"node": node})


def new_id() -> str:
    """Return a random id of letters and digits."""
    return "n-" + base64.b32encode(secrets.token_bytes(ID_BYTES)).decode("ascii").lower()[:ID_LETTERS]

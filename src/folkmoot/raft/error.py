"""What can be wrong with bytes: a message that no node sends, a state that no node wrote."""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore, FolkmootError

__all__ = ["DamagedState", "Malformed"]


class Malformed(FolkmootError):
    """The bytes are not an encoding of the thing that was expected, or exceed a limit."""


class DamagedState(CorruptStore):
    """What a node found on its disk cannot have been written by it: the node must not vote or acknowledge with it."""

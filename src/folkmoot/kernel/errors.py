"""The exceptions of the project: each names what is wrong and what to do; none is raised by remote input in a core."""

from __future__ import annotations

__all__ = ["CorruptStore", "FolkmootError", "SnapshotGone", "StoreError"]


class FolkmootError(Exception):
    """Base of all errors that are meant for a person: the text says what is wrong and what to do."""


class StoreError(FolkmootError):
    """The store cannot be opened, read or written."""


class CorruptStore(StoreError):
    """The store holds bytes that no version of this program wrote; nothing of it is dropped silently."""


class SnapshotGone(StoreError):
    """A snapshot of the store was closed while somebody still read it: begin again."""

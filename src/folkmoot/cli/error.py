"""The exception of a command that cannot do what was asked; its text says why, and what to do."""

from __future__ import annotations

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Refusal"]


class Refusal(FolkmootError):
    """A command refuses: `folkmoot` prints the text on stderr after `error:` and exits with `status`."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status

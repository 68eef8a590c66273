"""The exception by which a command says "this cannot be done, and here is what to do"; owns no printing."""

from __future__ import annotations

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Refusal"]


class Refusal(FolkmootError):
    """A command refuses: `str(error)` is printed on stderr after `error:` and the process exits with `status`."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status

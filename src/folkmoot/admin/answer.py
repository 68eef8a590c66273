"""The answer that says what is wrong with a request, the same for all parts of the HTTP interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

__all__ = ["failure"]


def failure(status: int, text: str, extra: Mapping[str, Any] | None = None) -> Response:
    """Return a JSON object with `error`, and with the fields of `extra`."""
    return JSONResponse({"error": text, **(extra or {})}, status_code=status)

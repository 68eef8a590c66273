"""The bearer token of the admin server (RFC 6750): owns the answers to requests without the right one."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

__all__ = ["refusal", "still_valid"]


def refusal(request: Request, token: str | None, lesser: str | None = None) -> Response | None:
    """Return 401 or 403 if the request does not have the right token, else None; token None admits every request.

    lesser: a token that is accepted, too, where it is enough. A request with one that is right is marked as trusted
    (`state` of its scope).
    """
    if token is None:
        return None
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return JSONResponse({"error": "a bearer token is needed"}, 401, {"www-authenticate": "Bearer"})
    accepted = [hmac.compare_digest(given.strip().encode(), one.encode()) for one in (token, lesser) if one is not None]
    if True not in accepted:
        return JSONResponse({"error": "the token is wrong"}, 403)
    request.scope["state"]["trusted"] = True
    return None


def still_valid(request: Request) -> bool:
    """Whether the token by which a request was admitted is in force yet: a body may take longer than a reload."""
    valid = request.scope["state"].get("valid")
    return valid is None or bool(valid())

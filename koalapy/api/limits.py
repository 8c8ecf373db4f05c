"""Refuses a request that is too large before it is read into memory."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from koalapy.api.refusals import too_large

_TOO_LARGE = 413


class BodyLimit:
    """ASGI middleware: at most `limit` bytes of a body are read, whether its length is said before or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _length(scope) > self._limit:
            await too_large(self._limit)(scope, receive, send)
        elif scope["type"] == "http":
            await self._app(scope, self._counted(receive), send)
        else:
            await self._app(scope, receive, send)

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counting() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise HTTPException(_TOO_LARGE, f"The request is larger than {self._limit:,} bytes")
            return message

        return counting


def _length(scope: Scope) -> int:
    """What the request says of its length, 0 if it does not."""
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0

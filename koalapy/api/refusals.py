"""Whatever is refused is a document koala.error/1: what is wrong, and what to do."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from koalapy.api import documents
from koalapy.model.errors import KoalaError, Reason, RequestError

_OF_CODE = {"no_such_job": 404, "wrong_state": 409, "not_asked": 409, "not_ended": 409}
_OF_WHOSE = {"transient": 503, "site": 502, "request": 422, "ours": 500}
_TOO_LARGE = 413
_API = "GET /openapi.json describes what there is."
_LONGEST = 100  # characters of what somebody sent, said back


def add_refusals(app: FastAPI) -> None:
    app.add_exception_handler(KoalaError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(Exception, _break)


class BodyLimit:
    """ASGI middleware that refuses a request that is too large before it is read into memory.

    At most `limit` bytes of a body are read, whether its length is said before or not.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _length(scope) > self._limit:
            await _too_large(self._limit)(scope, receive, send)
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


def _too_large(limit: int) -> JSONResponse:
    """The answer to a request whose body is not read: the connection ends with it."""
    message = f"The request is larger than {limit:,} bytes."
    reason = RequestError("too_large_request", message, "A job is a short text; stage data in.").reason
    answer = refusal(reason, 413)
    answer.headers["connection"] = "close"
    return answer


def refusal(reason: Reason, status: int) -> JSONResponse:
    """The answer koala.error/1 for this reason, with this HTTP status."""
    return JSONResponse(documents.error(reason), status_code=status)


def _refuse(request: HttpRequest, error: Exception) -> JSONResponse:
    assert isinstance(error, KoalaError)
    return refusal(error.reason, _OF_CODE.get(error.reason.code) or _OF_WHOSE[error.reason.whose])


def _refuse_fields(request: HttpRequest, error: Exception) -> JSONResponse:
    """The first mistake, in words."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        message = f"The request is not JSON: {first['ctx']['error']}."
    else:
        message = f"{_place(first['loc'])}: {_lowered(first['msg'])}{_said(first)}."
    return refusal(RequestError("bad_request", message, _API).reason, _OF_WHOSE["request"])


def _refuse_http(request: HttpRequest, error: Exception) -> JSONResponse:
    """What the router and the body's reader refuse."""
    assert isinstance(error, HTTPException)
    words = {
        404: f"koalad has nothing at {request.url.path[:_LONGEST]}",
        405: f"{request.url.path[:_LONGEST]} is not there for {request.method}",
    }
    message = words.get(error.status_code, str(error.detail).rstrip("."))
    answer = refusal(RequestError("bad_request", f"{message}.", _API).reason, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _break(request: HttpRequest, error: Exception) -> JSONResponse:
    """A mistake of koalad's own. The server's log gets its trace."""
    message = f"koalad made a mistake ({type(error).__name__})."
    reason = Reason("mistake", "ours", message, "Its log says more; please report it.")
    return refusal(reason, _OF_WHOSE["ours"])


def _place(steps: Sequence[Any]) -> str:
    """`body.directory` of what pydantic calls ("body", "directory")."""
    return ".".join(str(step) for step in steps)[:_LONGEST]


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _said(error: Any) -> str:
    """What was sent is said back, but for what answers a login: that may be a password."""
    value = None if "answers" in error["loc"] else error.get("input")
    return f", not {value[:_LONGEST]!r}" if isinstance(value, str) else ""


def _length(scope: Scope) -> int:
    """What the request says of its length, 0 if it does not."""
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0

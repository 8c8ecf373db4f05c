"""Errors of the HTTP API: each is an answer koala.error/1 that names the problem and what to do."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from koalapy.model.errors import KoalaError, Reason, RequestError
from koalapy.views import fields

_STATUS_BY_CODE = {"no_such_job": 404, "wrong_state": 409, "not_asked": 409, "not_ended": 409}
_STATUS_BY_WHOSE = {"transient": 503, "cluster": 502, "request": 422, "ours": 500}
_TOO_LARGE = 413
_API = "GET /openapi.json describes what there is."
_LONGEST = 100  # characters of a request that an error quotes


def add_errors(app: FastAPI) -> None:
    """Let the app answer every error with koala.error/1."""
    app.add_exception_handler(KoalaError, _koala_error)
    app.add_exception_handler(RequestValidationError, _invalid_fields)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _mistake)


class BodyLimit:
    """ASGI middleware that refuses a request that is too large before it is read into memory.

    At most `limit` bytes of a body are read, whether the request declares its length or not, but for paths that match
    `unlimited`.
    """

    def __init__(self, app: ASGIApp, limit: int, unlimited: re.Pattern[str]) -> None:
        self._app, self._limit, self._unlimited = app, limit, unlimited

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._unlimited.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and _length(scope) > self._limit:
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
    """Refuse a request without reading its body, and close the connection."""
    message = f"The request is larger than {limit:,} bytes."
    reason = RequestError("too_large_request", message, "A job is a short text; stage data in.").reason
    answer = error_answer(reason, 413)
    answer.headers["connection"] = "close"
    return answer


def error_answer(reason: Reason, status: int) -> JSONResponse:
    """Build the answer koala.error/1 for this reason, with this HTTP status."""
    return JSONResponse(fields.error(reason), status_code=status)


def _koala_error(request: HttpRequest, error: Exception) -> JSONResponse:
    assert isinstance(error, KoalaError)
    return error_answer(error.reason, _STATUS_BY_CODE.get(error.reason.code) or _STATUS_BY_WHOSE[error.reason.whose])


def _invalid_fields(request: HttpRequest, error: Exception) -> JSONResponse:
    """Describe the first invalid field in a sentence."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        message = f"The request is not JSON: {first['ctx']['error']}."
    else:
        message = f"{_location(first['loc'])}: {_lowered(first['msg'])}{_quoted(first)}."
    return error_answer(RequestError("bad_request", message, _API).reason, _STATUS_BY_WHOSE["request"])


def _http_error(request: HttpRequest, error: Exception) -> JSONResponse:
    """Answer an error of the router or of the reader of the body."""
    assert isinstance(error, HTTPException)
    messages = {
        404: f"There is nothing at {request.url.path[:_LONGEST]}",
        405: f"{request.url.path[:_LONGEST]} has no method {request.method}",
    }
    message = messages.get(error.status_code, str(error.detail).rstrip("."))
    answer = error_answer(RequestError("bad_request", f"{message}.", _API).reason, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _mistake(request: HttpRequest, error: Exception) -> JSONResponse:
    """Answer that koalad failed by its own mistake, whose traceback the server logs."""
    message = f"koalad made a mistake ({type(error).__name__})."
    reason = Reason("mistake", "ours", message, "Look at koalad's log, and report this.")
    return error_answer(reason, _STATUS_BY_WHOSE["ours"])


def _location(steps: Sequence[Any]) -> str:
    """Join a location of pydantic, such as ("body", "directory"), to `body.directory`."""
    return ".".join(str(step) for step in steps)[:_LONGEST]


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _quoted(error: Any) -> str:
    """Quote the invalid value, unless it answers a login: that may be a password."""
    value = None if "answers" in error["loc"] else error.get("input")
    return f", not {value[:_LONGEST]!r}" if isinstance(value, str) else ""


def _length(scope: Scope) -> int:
    """Return the declared length of the request's body in bytes, 0 without a declaration."""
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0

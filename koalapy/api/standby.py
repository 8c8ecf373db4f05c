"""The app behind koalad's socket, which is exchanged on a takeover, and the app of a koalad that stands by."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from koalapy.answers import koalad as answers
from koalapy.api.bodies import ShutdownBody
from koalapy.api.errors import add_errors, error_answer
from koalapy.api.koalad import Facts, status_answer
from koalapy.api.openapi import AnswerApp
from koalapy.common.locations import GRID_FILE_HEADER
from koalapy.model.errors import Reason, RequestError, TransientError

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


class ExchangeableApp:
    """An app that forwards each request to `app`, which may be exchanged at any time.

    A request that has begun ends with the app that it began with.
    A request for another grid file than koalad's is refused: two files may have the same grid name.
    """

    def __init__(self, app: ASGIApp, grid: str, grid_file: Path) -> None:
        self.app = app
        self._grid, self._grid_file = grid, grid_file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = _named_grid_file(scope)
        if named and not _is_same_file(named, self._grid_file):
            message = f"koalad of grid {self._grid} runs on {self._grid_file}, not {named}."
            advice = f"Change `grid:` in one of the files, or stop that koalad with `koala down --grid {self._grid}`."
            reason = RequestError("other_grid_file", message, advice).reason
            return await error_answer(reason, 409)(scope, receive, send)
        return await self.app(scope, receive, send)


def _named_grid_file(scope: Scope) -> str:
    """Return the client's grid file, or an empty text."""
    wanted = GRID_FILE_HEADER.encode()
    found = next((value for name, value in scope.get("headers", ()) if name == wanted), b"")
    return os.fsdecode(unquote_to_bytes(found))


def _is_same_file(named: str, grid_file: Path) -> bool:
    """Return whether both paths lead to one file, links followed; if it is missing, whether the paths are equal."""
    if named == str(grid_file):
        return True
    try:
        return os.path.samefile(named, grid_file)
    except (OSError, ValueError):
        return False


def create_standby_app(
    waiting: Callable[[], Reason], facts: Facts, shutdown: Callable[[bool], None], nothing: answers.Recovery
) -> FastAPI:
    """Build the app of a koalad that waits for another one's end; `waiting` names that one.

    It reports its status and can be shut down. It refuses all else with the code `standing_by`.
    """
    app = AnswerApp(title="koalad", docs_url=None, redoc_url=None, openapi_url=None)
    add_errors(app)

    @app.get("/v1/status")
    def status() -> answers.StatusAnswer:
        known = facts()
        troubles = [f"Standing by: {waiting().message} This koalad takes over when that one is gone."]
        return status_answer(known, [], troubles, nothing)

    @app.post("/v1/shutdown")
    def down(body: ShutdownBody | None = None) -> answers.DownAnswer:
        if body is not None and body.cancel:
            raise _refusal(waiting())
        shutdown(False)
        return {"schema": "koala.down/1", "grid": facts()["grid"], "cancel": False}

    @app.api_route("/{path:path}", methods=_METHODS, response_model=None)
    def other(path: str) -> NoReturn:
        raise _refusal(waiting())

    return app


def _refusal(reason: Reason) -> TransientError:
    advice = "Ask on that koalad's host, or wait until this one takes over."
    return TransientError("standing_by", f"This koalad only stands by: {reason.message}", advice)

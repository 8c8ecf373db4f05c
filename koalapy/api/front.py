"""What koalad's socket answers with: one app after another, and the one of a koalad that stands by."""

from collections.abc import Callable

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from koalapy.api import documents
from koalapy.api.bodies import ShutdownBody
from koalapy.api.documents import Document
from koalapy.api.itself import Facts
from koalapy.api.refusals import add_refusals
from koalapy.model.errors import Reason, TransientError
from koalapy.runtime.recovery import Recovered

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


class Front:
    """Serves `app`, which may be exchanged at any time; a request that has begun ends with the one it began with."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def standing_by(
    waiting: Callable[[], Reason], facts: Facts, shutdown: Callable[[bool], None], nothing: Recovered
) -> FastAPI:
    """Says whom it waits for (`waiting`), can be ended, and refuses all else with the code `standing_by`."""
    app = FastAPI(title="koalad", docs_url=None, redoc_url=None, openapi_url=None)
    add_refusals(app)

    @app.get("/v1/status")
    def status() -> Document:
        known = facts()
        troubles = [f"Standing by: {waiting().message} This koalad takes over when that one is gone."]
        return documents.status(known["pid"], known["grid"], known["state"], [], troubles, nothing)

    @app.post("/v1/shutdown")
    def down(body: ShutdownBody | None = None) -> Document:
        if body is not None and body.cancel:
            raise _refusal(waiting())
        shutdown(False)
        return {"schema": "koala.down/1", "grid": facts()["grid"], "cancel": False}

    @app.api_route("/{path:path}", methods=_METHODS)
    def other(path: str) -> Document:
        raise _refusal(waiting())

    return app


def _refusal(reason: Reason) -> TransientError:
    advice = "Ask on that koalad's host, or wait until this one takes over."
    return TransientError("standing_by", f"This koalad only stands by: {reason.message}", advice)

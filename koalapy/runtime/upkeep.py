"""Upkeep: a thread that looks after something of koalad when it may have changed, and from time to time."""

import threading
from collections.abc import Callable

import structlog

from koalapy.model.errors import KoalaError

_LOG = structlog.get_logger()
_AGAIN_S = 5.0  # after a failure


class Upkeep:
    """Calls `keep` at its start, soon after each `look_soon`, and after the seconds that `keep` returned, if any.

    `what`: the plural of what is kept, for the log. A failure of `keep` is logged, and it is called again.
    """

    def __init__(self, what: str, keep: Callable[[], float | None]) -> None:
        self._what, self._keep = what, keep
        self._look = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)

    def start(self) -> None:
        """Begin. A former koalad may have left something to do."""
        self._look.set()
        self._thread.start()

    def look_soon(self) -> None:
        self._look.set()

    def stop(self) -> None:
        """Stop; what is kept goes on by itself."""
        self._closed = True
        self._look.set()
        if self._thread.is_alive():
            self._thread.join(_AGAIN_S)

    def _run(self) -> None:
        wait_s: float | None = None
        while True:
            self._look.wait(wait_s)
            if self._closed:
                return
            self._look.clear()
            try:
                wait_s = self._keep()
            except KoalaError as error:
                _LOG.warning(f"{self._what}_not_kept", reason=str(error))
                wait_s = _AGAIN_S
            except Exception:
                _LOG.exception(f"{self._what}_failed")
                wait_s = _AGAIN_S

"""Stages the files that an attempt needs before its Submit is sent, by a thread of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from koalapy.model.commands import SubmitComponent
from koalapy.model.errors import KoalaError, Reason, TransientError
from koalapy.runtime.session import Session
from koalapy.runtime.staging import files_of, stage

Staged = Callable[[int, bool, list[list[Any]]], None]
NotStaged = Callable[[int, bool, Reason], None]


class Submitter:
    """Of one session. Of each attempt it tells once: `staged`, or `not_staged` with the reason."""

    def __init__(self, name: str, session: Session, staged: Staged, not_staged: NotStaged) -> None:
        self._session, self._staged, self._not_staged = session, staged, not_staged
        self._thread = ThreadPoolExecutor(1, f"stage-{name}")

    def stage(self, number: int, command: SubmitComponent, doubt: bool) -> None:
        """Returns at once."""
        self._thread.submit(self._stage, number, command, doubt)

    def close(self) -> None:
        """The session is over: what waits is sent again over the next."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _stage(self, number: int, command: SubmitComponent, doubt: bool) -> None:
        try:
            staged = stage(self._session, files_of(command))
        except TransientError:
            return  # the link is lost, and the command is sent again after the next connect
        except KoalaError as error:
            self._not_staged(number, doubt, error.reason)
        else:
            self._staged(number, doubt, staged)

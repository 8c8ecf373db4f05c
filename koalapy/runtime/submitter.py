"""Sends Submits: the files that an attempt needs are staged first, by a thread of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from koalapy_adapters.frames import FrameError

from koalapy.model.commands import SubmitComponent
from koalapy.model.errors import KoalaError, Reason, TransientError
from koalapy.model.identity import AttemptId
from koalapy.runtime import translate
from koalapy.runtime.cluster import Cluster
from koalapy.runtime.outstanding import Outstanding
from koalapy.runtime.session import Session
from koalapy.runtime.staging import files_of, stage

_NO_FILE: list[list[Any]] = [["staged", "", 0]]  # a staged file that no KCM can have

Fail = Callable[[int, AttemptId, Reason], None]


class Submitter:
    """Of one session. `fail` hears of what cannot be submitted, surely; the rest the KCM answers."""

    def __init__(self, cluster: Cluster, session: Session, outstanding: Outstanding, fail: Fail) -> None:
        self._cluster, self._session, self._outstanding, self._fail = cluster, session, outstanding, fail
        self._unstaged: dict[int, Reason] = {}  # why a Submit in doubt could not be staged again
        self._thread = ThreadPoolExecutor(1, f"stage-{cluster.name}")

    def submit(self, number: int, command: SubmitComponent, doubt: bool) -> None:
        """Returns at once."""
        if command.stage_in:
            self._thread.submit(self._stage_and_submit, number, command, doubt)
        else:
            self._say(number, command, [], doubt)

    def why_refused(self, number: int, reason: Reason) -> Reason:
        """The reason to give for a Submit that the KCM refused for this one."""
        return self._unstaged.pop(number, reason)

    def close(self) -> None:
        """The session is over: what waits is sent again over the next."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _stage_and_submit(self, number: int, command: SubmitComponent, doubt: bool) -> None:
        try:
            staged = stage(self._session, files_of(command))
        except TransientError:
            return  # the link is lost, and the command is sent again after the next connect
        except KoalaError as error:
            self._not_staged(number, command, doubt, error.reason)
        else:
            self._outstanding.unless_cancelled(number, lambda: self._say(number, command, staged, doubt))

    def _not_staged(self, number: int, command: SubmitComponent, doubt: bool, reason: Reason) -> None:
        """Without doubt that is the end of it. In doubt the batch job may exist: the KCM must look, and make none."""
        if not doubt:
            self._fail(number, command.attempt, reason)
            return
        self._unstaged[number] = reason
        self._outstanding.unless_cancelled(number, lambda: self._say(number, command, _NO_FILE, doubt))

    def _say(self, number: int, command: SubmitComponent, staged: list[list[Any]], doubt: bool) -> None:
        message = translate.submit(self._cluster.instance, number, command, staged, doubt, self._cluster.grace)
        try:
            self._session.send(message)
        except FrameError as error:
            advice = "Shorten its arguments and environment, or stage a file in."
            self._fail(number, command.attempt, Reason("too_large", "request", f"The component is {error}.", advice))

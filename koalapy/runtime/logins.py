"""Passes questions of logins to a person, passes the answers back, and keeps the state of each cluster's login.

Answers go from the API to the connection that asked. They are not kept, logged or shown.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from koalapy_adapters.connections.asking import LOGIN, Question
from koalapy_adapters.errors import ClusterError as Unanswered

from koalapy.answers import clusters as answers
from koalapy.model.errors import Reason, RequestError
from koalapy.runtime.current_grid import no_such_cluster
from koalapy.views.fields import reason as reason_of

LoginState = Literal["connected", "connecting", "login_required", "unreachable"]

ANSWER_S = 150.0  # for a person; sshd itself waits for 120 s (LoginGraceTime)
_NOBODY = Unanswered("asks", "A login asked something, and nobody has answered.", LOGIN)


class Login:
    """The login of one cluster, and the Asker of its connection.

    `serve` gives it the function that makes the link try at once.
    """

    def __init__(self, cluster: str, may_ask: bool, changed: threading.Condition) -> None:
        self.cluster, self._may_ask = cluster, may_ask
        self._changed = changed
        self._state: LoginState = "connecting"
        self._reason: Reason | None = None  # why it is not connected
        self._question: Question | None = None
        self._answers: list[str] | None = None
        self._number = self._version = 0
        self._notices: list[str] = []
        self._there_until = 0.0
        self._begun: int | None = None  # the link's try that a person waits for
        self._retry: Callable[[], int] = lambda: 0

    def serve(self, retry: Callable[[], int]) -> None:
        """Set the function that makes the link try at once. `retry` returns the number of that try."""
        self._retry = retry

    # ---- for the link and its connection

    def record_outcome(self, state: LoginState, reason: Reason | None, number: int) -> None:
        """Record the result of the link's try of this number, or that its connection was lost."""
        with self._changed:
            waits = reason is not None and reason.code in ("asks", "answer_refused")
            self._state, self._reason = "login_required" if waits else state, reason
            if self._begun is not None and number >= self._begun:
                self._begun, self._there_until = None, 0.0
            self._notify()

    def present(self) -> bool:
        return time.monotonic() < self._there_until

    def ask(self, question: Question) -> Sequence[str]:
        """Return the person's answers. Blocks. A question without prompts becomes a notice, and has no answers.

        Raises ClusterError of koalapy_adapters if there are no answers in time.
        """
        with self._changed:
            if not question.prompts:
                self._notices.append(" ".join(f"{question.title} {question.instructions}".split()))
                self._notify()
                return []
            self._number += 1
            self._question, self._answers = question, None
            self._notify()
            self._changed.wait_for(lambda: self._answers is not None or not self.present(), ANSWER_S)
            answers, self._question, self._answers = self._answers, None, None
            self._notify()
        if answers is None:
            raise _NOBODY
        return answers

    # ---- for the API

    def begin(self, present: bool) -> None:
        """Try at once if it is not connected. `present`: whether a person is there to answer questions."""
        with self._changed:
            if self._state == "connected":
                return
            if present:
                self._there_until = time.monotonic() + ANSWER_S
            self._notices.clear()
            self._begun = self._retry()
            self._notify()

    def answer(self, number: int, answers: Sequence[str]) -> None:
        """Pass on the answers to the question of this number.

        Raises RequestError if the question does not wait any more, or has another number of prompts.
        """
        with self._changed:
            if self._question is None or number != self._number or self._answers is not None:
                message = f"{self.cluster} does not wait for that answer any more."
                raise RequestError("not_asked", message, "Begin again with `koala login`.")
            if len(answers) != len(self._question.prompts):
                wanted = len(self._question.prompts)
                message = f"{self.cluster} asks {wanted} things, and there are {len(answers)} answers."
                raise RequestError("wrong_answers", message, "Answer each prompt.")
            self._answers = list(answers)
            self._there_until = time.monotonic() + ANSWER_S
            self._changed.notify_all()

    def leave(self) -> None:
        """Record that the person has left. A question that waits is given up."""
        with self._changed:
            self._there_until = 0.0
            self._changed.notify_all()

    def view(self) -> answers.Login:
        """Describe the state of the login: connected, connecting, unreachable, or login_required of a person."""
        with self._changed:
            waiting = self._question if self._answers is None else None
            return {
                "cluster": self.cluster,
                "state": "login_required" if waiting else self._state,
                "trying": self._begun is not None,
                "version": self._version,
                "reason": reason_of(self._reason) if self._reason else None,
                "notices": list(self._notices),
                "question": None
                if waiting is None
                else {
                    "number": self._number,
                    "title": waiting.title,
                    "instructions": waiting.instructions,
                    "prompts": [{"text": prompt.text, "echo": prompt.echo} for prompt in waiting.prompts],
                },
                "may_ask": self._may_ask,
            }

    def _notify(self) -> None:
        self._version += 1
        self._changed.notify_all()


class Logins:
    """The logins of all clusters, in the order of the grid file."""

    def __init__(self, clusters: Iterable[tuple[str, bool]]) -> None:
        """`clusters`: (name, whether a login there may ask questions) of each."""
        self._changed = threading.Condition()
        self._closed = False
        self._logins = {name: Login(name, may_ask, self._changed) for name, may_ask in clusters}

    def join(self, cluster: str, may_ask: bool) -> None:
        """Add the login of a cluster that has become a part of the grid."""
        self._logins[cluster] = Login(cluster, may_ask, self._changed)

    def leave(self, cluster: str) -> None:
        """Drop the login of a cluster that leaves. A question of it that waits is given up."""
        if (login := self._logins.pop(cluster, None)) is not None:
            login.leave()

    def of(self, cluster: str) -> Login:
        """Return the login of a cluster. Raises RequestError if the grid file has no such cluster."""
        found = self._logins.get(cluster)
        if found is None:
            raise no_such_cluster(cluster, self._logins)
        return found

    def views(self) -> list[answers.Login]:
        return [login.view() for login in list(self._logins.values())]

    def begin_all(self) -> None:
        """Try all logins that are not connected, without a person to answer questions."""
        for login in list(self._logins.values()):
            login.begin(present=False)

    def wait(self, cluster: str, version: int, timeout_s: float) -> answers.Login:
        """Return the state of the login once its version differs from `version`, or after `timeout_s`.

        Raises RequestError if the grid file has no such cluster.
        """
        login = self.of(cluster)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or login.view()["version"] != version, timeout_s)
        return login.view()

    def close(self) -> None:
        """Release all waiting calls. No question is asked any more."""
        with self._changed:
            self._closed = True
            for login in list(self._logins.values()):
                login._there_until = 0.0
            self._changed.notify_all()

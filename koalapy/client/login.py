"""The dialogue of a login: its questions are passed to a person until it has connected or failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from koalapy.client.calls import Calls
from koalapy.model.errors import KoalaError

if TYPE_CHECKING:
    from koalapy.answers.clusters import Asked, Login

    Answer = Callable[[Asked], Sequence[str]]
_LONGEST_POLL_S = 30.0


def log_in(calls: Calls, cluster: str, answer: Answer) -> Login:
    """Log in, and return the login's final state. `answer`: see Grid.login; if it raises, the login is given up.

    Raises KoalaError, and any error of `answer`.
    """
    path = _path(cluster)
    found: Login = calls.call("POST", path)["login"]
    try:
        return _answer_all(calls, path, found, answer)
    except BaseException:
        with suppress(KoalaError):
            calls.call("DELETE", path)
        raise


def await_logins(calls: Calls, logins: Iterable[Login], timeout_s: float) -> None:
    """Wait until each of these that may ask something has asked, connected or failed, at most `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    for each in logins:
        while each["may_ask"] and each["state"] == "connecting" and (left := deadline - time.monotonic()) > 0:
            each = _look(calls, _path(each["cluster"]), each["version"], left)


def _answer_all(calls: Calls, path: str, found: Login, answer: Answer) -> Login:
    answered, noticed = 0, 0
    while found["trying"] and found["state"] != "connected":
        for notice in found["notices"][noticed:]:
            answer({"title": "", "instructions": notice, "prompts": []})
        noticed = len(found["notices"])
        question = found["question"]
        if question is not None and question["number"] != answered:
            answered = question["number"]
            body = {"number": answered, "answers": list(answer(question))}
            calls.call("POST", f"{path}/answers", json=body)
        found = _look(calls, path, found["version"], _LONGEST_POLL_S)
    return found


def _look(calls: Calls, path: str, version: int, timeout_s: float) -> Login:
    """Return the login's state when it differs from that of `version`, or after `timeout_s` seconds."""
    parameters = {"version": version, "timeout": timeout_s}
    found: Login = calls.call("GET", path, params=parameters, wait_s=timeout_s)["login"]
    return found


def _path(cluster: str) -> str:
    return f"/v1/clusters/{quote(cluster, safe='')}/login"

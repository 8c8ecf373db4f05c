"""A login that asks: its questions are brought to somebody who answers, until it has come to an end."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from koalapy.calls import Calls
from koalapy.model.errors import KoalaError

Document = Mapping[str, Any]
Answer = Callable[[Document], Sequence[str]]
_LONGEST_LOOK_S = 30.0


def hold(calls: Calls, cluster: str, answer: Answer) -> Document:
    """How the cluster's login stands in the end. `answer`: see Grid.login; if it raises, the login is given up."""
    path = _path(cluster)
    found = dict(calls.call("POST", path)["login"])
    try:
        return _answer_all(calls, path, found, answer)
    except BaseException:
        with suppress(KoalaError):
            calls.call("DELETE", path)
        raise


def await_first_ends(calls: Calls, logins: Iterable[Document], timeout_s: float) -> None:
    """Until each of these that may ask something has asked, or connected, or failed; no longer than the time."""
    deadline = time.monotonic() + timeout_s
    for each in logins:
        while each["may_ask"] and each["state"] == "connecting" and (left := deadline - time.monotonic()) > 0:
            each = _look(calls, _path(each["cluster"]), each["version"], left)


def _answer_all(calls: Calls, path: str, found: Document, answer: Answer) -> Document:
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
        found = _look(calls, path, found["version"], _LONGEST_LOOK_S)
    return found


def _look(calls: Calls, path: str, version: int, timeout_s: float) -> Document:
    """How it stands once that is another than at this version, or after the time."""
    parameters = {"version": version, "timeout": timeout_s}
    return dict(calls.call("GET", path, params=parameters, wait_s=timeout_s)["login"])


def _path(cluster: str) -> str:
    return f"/v1/clusters/{quote(cluster, safe='')}/login"

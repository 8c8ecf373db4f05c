"""A link that waits for a person, and the questions of its login."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import linked
import pytest
from koalapy_adapters.connections.asking import Prompt, Question
from koalapy_adapters.errors import ClusterError as WireClusterError

from koalapy.model.errors import Reason, RequestError
from koalapy.model.events import ClusterConnected, ClusterLost
from koalapy.runtime import logins as asking
from koalapy.runtime.logins import Login, Logins

LinkTestbed = linked.LinkTestbed
threads_of, wait_until = linked.threads_of, linked.wait_until
ASKS = Reason("asks", "cluster", "fs0 asks for a second factor.", "Answer it.")


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[Any]:
    made = LinkTestbed(tmp_path)
    yield made
    made.close()


def test_a_link_that_waits_for_a_person_tries_only_on_request(testbed: Any) -> None:
    """It never tries by itself, since the login would ask a question that nobody answers."""
    testbed.connection.refusal = WireClusterError("asks", "fs0 asks.", "Answer it.")
    testbed.link.start()
    testbed.recorder.event(ClusterLost, lambda event: event.reason.code == "asks")
    for tries in (2, 3):
        assert testbed.link.retry() == tries - 1
        wait_until(lambda tries=tries: testbed.connection.tries == tries)  # type: ignore[misc]
    testbed.connection.refusal = None
    testbed.link.retry()
    testbed.recorder.event(ClusterConnected)
    assert testbed.connection.tries == 4


def test_a_link_that_waits_for_a_person_can_be_closed(testbed: Any) -> None:
    testbed.connection.refusal = WireClusterError("asks", "fs0 asks.", "Answer it.")
    testbed.link.start()
    testbed.recorder.event(ClusterLost)
    testbed.link.close()
    assert not threads_of(testbed)
    assert testbed.connection.tries == 1


# ---- logins


@pytest.fixture
def login() -> Login:
    made = Logins([("fs0", True)]).of("fs0")
    made.serve(lambda: 7)
    return made


QUESTION = Question("", "Second factor", (Prompt("Code:"),))


def test_a_login_s_question_is_shown_and_its_answer_returned(login: Login) -> None:
    login.record_outcome("unreachable", ASKS, 6)
    assert (login.view()["state"], login.present()) == ("login_required", False)
    login.begin(present=True)
    assert login.present()
    answers: list[Any] = []
    asker = threading.Thread(target=lambda: answers.append(login.ask(QUESTION)))
    asker.start()
    wait_until(lambda: login.view()["question"] is not None)
    asked = login.view()["question"]
    assert asked is not None
    assert (asked["instructions"], [each["text"] for each in asked["prompts"]]) == ("Second factor", ["Code:"])
    with pytest.raises(RequestError) as caught:
        login.answer(asked["number"], ["a", "b"])
    assert caught.value.reason.code == "wrong_answers"
    login.answer(asked["number"], ["123"])
    asker.join(30)
    assert answers == [["123"]]
    with pytest.raises(RequestError) as caught:
        login.answer(1, ["123"])
    assert caught.value.reason.code == "not_asked"


def test_the_outcome_of_an_older_try_does_not_end_a_person_s_login(login: Login) -> None:
    """The older try was under way when the person began."""
    login.begin(present=True)
    login.record_outcome("unreachable", ASKS, 6)
    assert (login.view()["trying"], login.present()) == (True, True)
    login.record_outcome("unreachable", ASKS, 7)
    assert (login.view()["trying"], login.present()) == (False, False)


@pytest.mark.parametrize("how", ["leaves", "closed", "time"])
def test_a_question_without_an_answer_ends_the_login(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = Logins([("fs0", True)])
    login = logins.of("fs0")
    login.begin(present=True)
    failed: list[WireClusterError] = []

    def ask() -> None:
        try:
            login.ask(QUESTION)
        except WireClusterError as error:
            failed.append(error)

    if how == "time":
        monkeypatch.setattr(asking, "ANSWER_S", 0.05)
    asker = threading.Thread(target=ask)
    asker.start()
    if how != "time":
        wait_until(lambda: login.view()["question"] is not None)
        (login.leave if how == "leaves" else logins.close)()
    asker.join(30)
    assert [each.code for each in failed] == ["asks"]
    assert login.view()["question"] is None


def test_a_wait_for_a_login_ends_with_its_next_change(login: Login) -> None:
    logins = Logins([("fs0", True)])
    seen = logins.views()[0]["version"]
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(logins.wait("fs0", seen, 30)))
    waiter.start()
    logins.of("fs0").record_outcome("connected", None, 0)
    waiter.join(30)
    assert [each["state"] for each in found] == ["connected"]
    with pytest.raises(RequestError):
        logins.of("nowhere")

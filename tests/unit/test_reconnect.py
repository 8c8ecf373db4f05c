"""When a link tries again, when it leaves that to a person, and how it notices that a cut network is back."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import linked
import pytest
from koalapy_adapters.connections.asking import Prompt, Question
from koalapy_adapters.connections.protocol import Channel, Lines
from koalapy_adapters.errors import SiteError as SiteFault

from koalapy.link.cluster import Timing
from koalapy.model.errors import Reason, RequestError
from koalapy.model.events import ClusterConnected, ClusterLost
from koalapy.runtime import logins as asking
from koalapy.runtime.logins import Login, Logins
from koalapy.runtime.uplink import outage
from koalapy.runtime.uplink.outage import OutageWatch
from koalapy.runtime.uplink.patience import FOR_A_PERSON, Patience

Haven = linked.Haven
wait_until = linked.wait_until
TIMING = Timing()
OUT_OF_REACH = Reason("refused", "transient", "fs0 refuses connections.", "Is it up?")
REFUSED = Reason("authentication", "site", "fs0 does not let me in.", "Check the key.")
ASKS = Reason("asks", "site", "fs0 asks for a second factor.", "Answer it.")


# ---- patience


@pytest.mark.parametrize(("failing_s", "most"), [(0.0, 1.5), (10.0, 1.5), (40.0, 5.0), (3600.0, 30.0)])
def test_what_was_away_for_seconds_is_looked_for_within_seconds(failing_s: float, most: float) -> None:
    assert Patience(TIMING).most(OUT_OF_REACH, failing_s) == most


def test_what_a_site_has_to_mend_waits_longer() -> None:
    assert Patience(TIMING).most(Reason("no_python", "site", "No Python."), 5.0) == 120.0


def test_a_refused_login_is_tried_three_times_and_then_by_a_person() -> None:
    patience, waits, advice = Patience(TIMING), [], []
    for _ in range(4):
        advice.append(patience.told(REFUSED).advice)
        waits.append(patience.most(REFUSED, 1.0))
        patience.told(OUT_OF_REACH)  # in between makes no difference to an account
    assert waits == [120.0, 600.0, FOR_A_PERSON, FOR_A_PERSON]
    assert advice[:2] == ["Check the key."] * 2
    assert "`koala login` or `koala up`" in advice[2]
    patience.renew()
    assert patience.told(REFUSED) == REFUSED


@pytest.mark.parametrize("code", ["asks", "answer_refused"])
def test_an_answer_is_a_persons(code: str) -> None:
    assert Patience(TIMING).most(Reason(code, "site", "?"), 0.0) == FOR_A_PERSON


@pytest.fixture
def haven(tmp_path: Path) -> Iterator[Any]:
    made = Haven(tmp_path)
    yield made
    made.close()


def test_a_link_waits_for_a_person_and_tries_when_told(haven: Any) -> None:
    """However often: what nobody can answer is not begun again by itself."""
    haven.connection.refusal = SiteFault("asks", "fs0 asks.", "Answer it.")
    haven.link.start()
    haven.ear.event(ClusterLost, lambda event: event.reason.code == "asks")
    for tries in (2, 3):
        assert haven.link.retry() == tries - 1
        wait_until(lambda tries=tries: haven.connection.tries == tries)  # type: ignore[misc]
    haven.connection.refusal = None
    haven.link.retry()
    haven.ear.event(ClusterConnected)
    assert haven.connection.tries == 4


def test_a_link_that_waits_for_a_person_can_be_closed(haven: Any) -> None:
    haven.connection.refusal = SiteFault("asks", "fs0 asks.", "Answer it.")
    haven.link.start()
    haven.ear.event(ClusterLost)
    haven.link.close()
    assert not haven.link._thread.is_alive()
    assert haven.connection.tries == 1


# ---- the watch over a silent session


class Way:
    """A connection whose way is open or not, as a list has it; the last word stays true."""

    where, python = "fs0", "python3"

    def __init__(self, *answers: bool | None, asked: bool = False) -> None:
        self.answers, self.asked = list(answers), asked
        self.looks = 0
        self.looked = threading.Event()

    def reachable(self, timeout_s: float) -> bool | None:
        self.looks += 1
        if len(self.answers) == 1:
            self.looked.set()
            return self.answers[0]
        return self.answers.pop(0)

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        raise AssertionError("nobody is to log in")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "_LOOK_S", 0.01)
    monkeypatch.setattr(outage, "_REVIVAL_S", 0.05)


@pytest.mark.usefixtures("quick")
def test_a_network_that_is_back_ends_a_session_that_stays_silent() -> None:
    ended: list[Reason] = []
    done = threading.Event()
    way = Way(False, False, False, True)
    with OutageWatch(way, lambda: 60.0, lambda why: (ended.append(why), done.set())):  # type: ignore[func-returns-value]
        assert done.wait(30)
    assert [each.code for each in ended] == ["network_cut"]
    assert way.looks == 4


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("answer", [True, None], ids=["open", "unknown"])
def test_a_silence_that_is_not_the_networks_is_left_alone(answer: bool | None) -> None:
    """It is looked at once: a head node that hangs is not to be bothered."""
    way, spoke = Way(answer), threading.Event()
    silences = iter([60.0] * 20)

    def silent() -> float:
        found = next(silences, None)
        if found is None:
            spoke.set()
        return found or 0.0

    with OutageWatch(way, silent, lambda why: pytest.fail(str(why))):
        assert spoke.wait(30)
    assert way.looks == 1


@pytest.mark.usefixtures("quick")
def test_a_connection_that_revives_is_kept() -> None:
    silence, spoke = [60.0], threading.Event()

    class Reviving(Way):
        def reachable(self, timeout_s: float) -> bool | None:
            found = super().reachable(timeout_s)
            if found:
                silence[0] = 0.0
            return found

    def silent() -> float:
        if silence[0] == 0.0:
            spoke.set()
        return silence[0]

    with OutageWatch(Reviving(False, True), silent, lambda why: pytest.fail(str(why))):
        assert spoke.wait(30)


def test_a_login_that_was_asked_for_is_left_to_revive() -> None:
    way = Way(False, asked=True)
    with OutageWatch(way, lambda: 60.0, lambda why: pytest.fail(str(why))) as watch:
        assert not watch._thread.is_alive()
    assert way.looks == 0


# ---- logins


@pytest.fixture
def login() -> Login:
    made = Logins([("fs0", True)]).of("fs0")
    made.serve(lambda: 7)
    return made


QUESTION = Question("", "Second factor", (Prompt("Code:"),))


def test_a_question_goes_to_whoever_is_there_and_its_answer_back(login: Login) -> None:
    login.told("unreachable", ASKS, 6)
    assert (login.view().state, login.present()) == ("asks", False)
    login.begin(present=True)
    assert login.present()
    got: list[Any] = []
    asker = threading.Thread(target=lambda: got.append(login.ask(QUESTION)))
    asker.start()
    wait_until(lambda: login.view().question is not None)
    assert login.view().question == QUESTION
    with pytest.raises(RequestError) as caught:
        login.answer(login.view().number, ["a", "b"])
    assert caught.value.reason.code == "wrong_answers"
    login.answer(login.view().number, ["123"])
    asker.join(30)
    assert got == [["123"]]
    with pytest.raises(RequestError) as caught:
        login.answer(1, ["123"])
    assert caught.value.reason.code == "not_asked"


def test_an_older_try_does_not_end_a_persons(login: Login) -> None:
    """The one that was under way when they came."""
    login.begin(present=True)
    login.told("unreachable", ASKS, 6)
    assert (login.view().trying, login.present()) == (True, True)
    login.told("unreachable", ASKS, 7)
    assert (login.view().trying, login.present()) == (False, False)


@pytest.mark.parametrize("how", ["leaves", "closed", "time"])
def test_a_question_is_given_up(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = Logins([("fs0", True)])
    login = logins.of("fs0")
    login.begin(present=True)
    failed: list[SiteFault] = []

    def ask() -> None:
        try:
            login.ask(QUESTION)
        except SiteFault as error:
            failed.append(error)

    if how == "time":
        monkeypatch.setattr(asking, "ANSWER_S", 0.05)
    asker = threading.Thread(target=ask)
    asker.start()
    if how != "time":
        wait_until(lambda: login.view().question is not None)
        (login.leave if how == "leaves" else logins.close)()
    asker.join(30)
    assert [each.code for each in failed] == ["asks"]
    assert login.view().question is None


def test_waiting_for_a_change(login: Login) -> None:
    logins = Logins([("fs0", True)])
    seen = logins.views()[0].version
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(logins.wait("fs0", seen, 30)))
    waiter.start()
    logins.of("fs0").told("connected", None, 0)
    waiter.join(30)
    assert [each.state for each in found] == ["connected"]
    with pytest.raises(RequestError):
        logins.of("nowhere")

"""`koala login`: a cluster behind a second factor, from the first question to a job that outlives a cut connection."""

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asking_server
import live
import pytest

from koalapy.api import openapi
from koalapy.client.calls import Calls

CODE = ("One-time password", [("Verification code:", False)], ["123 456"])
SECRET = "123 456"


@pytest.fixture
def asking(place: Path) -> Iterator[Any]:
    running = asking_server.AskingServer(place / "server", [CODE], key_first=True)
    yield running
    running.close()


@pytest.fixture
def grid(place: Path, asking: Any) -> Iterator[Any]:
    """A cluster of one machine, whose login asks."""
    cluster = {
        "batch": "local",
        "connect": f"ssh://{asking.user}@127.0.0.1:{asking.port}",
        "identity": str(asking.identity),
        "known_hosts": str(asking.known_hosts),
        "ssh_config": "none",
        "slots": 2,
        "poll": "500ms",
        "max_age": "1m",
        "shared": str(place / "shared"),
        "python": sys.executable,
    }
    made = live.Koala(place / "grid", {"here": cluster})
    yield made
    made.stop()


def with_lines(grid: Any, lines: str, *arguments: str) -> live.Answer:
    done = subprocess.run(
        [*live.COMMAND, *arguments], cwd=grid.work, env=grid.environment, input=lines.encode(), capture_output=True,
        timeout=live.CALL_S,
    )  # fmt: skip
    return live.Answer(done)


def here(grid: Any) -> Any:
    with grid.client() as client:
        return client.clusters()[0]


def test_a_second_factor_from_the_first_question_to_the_last(grid: Any, asking: Any) -> None:
    up = grid("up")
    assert up.status == 0, up
    assert "Answer with `koala login here`." in up.err
    assert here(grid)["connection"] == "login_required"
    assert "second factor" in here(grid)["reason"]
    status = grid("status", "--json").document
    assert [each["cluster"] for each in status["logins_required"]] == ["here"]
    assert "second factor" in status["troubles"][0]
    assert asking.begun == 0, "nobody was there to be asked"

    wrong = with_lines(grid, "000\n", "login", "here")
    assert wrong.status == 1, wrong
    assert "does not accept" in wrong.err
    assert "koala login" in wrong.err
    assert here(grid)["connection"] == "login_required"
    assert asking.begun == 1, "a wrong answer is not tried again"

    right = with_lines(grid, f"{SECRET}\n", "login", "--json")
    assert right.status == 0, right
    openapi.check(right.document)
    assert right.document["logins"][0]["state"] == "connected"
    grid.until(lambda: here(grid)["connection"] == "up" and here(grid)["idle"] == 2)
    assert with_lines(grid, "", "login").out == "all clusters are connected\n"

    flag = grid.work / "flag"
    job = grid.submit(live.sh(f"while [ ! -e {flag} ]; do sleep 0.1; done; echo outlived"))
    grid.until(lambda: grid.job(job)["state"] == "running")
    asking.cut()
    grid.until(lambda: here(grid)["connection"] == "login_required")
    flag.touch()
    assert with_lines(grid, f"{SECRET}\n", "login", "here").status == 0
    end = grid.end(job)
    assert (end["state"], end["components"][0]["attempt"]) == ("done", 1)
    assert (asking.begun, asking.logins) == (3, 2)
    for path in Path(grid.root).rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


class Terminal:
    """koala with a person at it. `said`: all that it has shown."""

    def __init__(self, grid: Any, *arguments: str) -> None:
        self.said = b""
        self.ours, self.theirs = pty.openpty()
        self.koala = subprocess.Popen(
            [*live.COMMAND, *arguments],
            env=grid.environment,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
        )

    def until(self, words: bytes) -> None:
        while words not in self.said:
            self.said += os.read(self.ours, 1024)

    def shows(self) -> bool:
        return bool(termios.tcgetattr(self.ours)[3] & termios.ECHO)

    def end(self) -> int:
        """The exit status."""
        try:
            return self.koala.wait(live.PATIENCE_S)
        finally:
            os.close(self.ours)
            os.close(self.theirs)


def answer(grid: Any, terminal: Terminal, then: bytes) -> None:
    """Type the code when it is asked for: no earlier, for what was typed before is thrown away."""
    terminal.until(b"Verification code:")
    grid.until(lambda: not terminal.shows())
    os.write(terminal.ours, SECRET.encode() + b"\n")
    terminal.until(then)
    assert SECRET.encode() not in terminal.said
    assert terminal.end() == 0


def test_on_a_terminal_it_is_asked_at_once_and_not_shown(grid: Any, asking: Any) -> None:
    terminal = Terminal(grid, "up")
    answer(grid, terminal, b"here is connected")
    assert b"One-time password" in terminal.said


def test_the_doctor_asks_the_person_at_a_terminal_and_reports_that_there_is_none(grid: Any, asking: Any) -> None:
    document = grid("doctor", "--json").document
    (login, *rest) = document["clusters"][0]["checks"]
    assert (login["failure"]["code"], login["failure"]["move"]) == ("asks", "you")
    assert "on a terminal" in login["failure"]["change"]
    assert {each["status"] for each in rest} == {"not_examined"}
    assert asking.begun == 0
    answer(grid, Terminal(grid, "doctor"), b"Nothing failed.")


def test_whoever_does_not_want_to_answer_the_doctor_is_let_go_at_once(grid: Any, asking: Any) -> None:
    """With a terminal that shows again what is typed."""
    terminal = Terminal(grid, "doctor")
    terminal.until(b"Verification code:")
    grid.until(lambda: not terminal.shows())
    terminal.koala.send_signal(signal.SIGINT)
    terminal.until(b"interrupted")
    assert terminal.koala.wait(live.PATIENCE_S) == 130
    assert terminal.shows()
    terminal.end()


def test_answers_that_nobody_wants(grid: Any) -> None:
    grid("up")
    with grid.client() as client:
        calls = Calls(client.locations, 60.0)
        for body, code in (
            ({"number": 1, "answers": ["not wanted"]}, "not_asked"),
            ({"number": "x", "answers": ["not wanted"]}, "bad_request"),
            ({"number": 1, "answers": "not wanted"}, "bad_request"),
        ):
            with pytest.raises(Exception, match=r".") as caught:
                calls.call("POST", "/v1/clusters/here/login/answers", json=body)
            assert caught.value.reason.code == code  # type: ignore[attr-defined]
            assert "not wanted" not in str(caught.value)
        with pytest.raises(Exception, match="is not in the grid file"):
            client.login("nowhere", lambda question: [])
    grid("login", "nowhere").refused(2, "nowhere")


def test_input_that_ends_before_the_answer(grid: Any, asking: Any) -> None:
    grid("up")
    answer = with_lines(grid, "", "login", "here")
    assert (answer.status, answer.out) == (2, ""), answer
    assert "Standard input ended before an answer to 'Verification code:'" in answer.err
    grid.until(lambda: here(grid)["connection"] == "login_required")
    assert asking.begun == 1

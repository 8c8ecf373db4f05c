"""Logins that ask a person: second factors, passwords, passphrases, and what becomes of wrong answers."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asking_server
import connection_ends as ends
import pytest
from koalapy_adapters.connections.asking import Prompt, Question
from koalapy_adapters.connections.ssh import SshConnection
from koalapy_adapters.errors import ClusterError

STARTED = ends.STARTED
error_of = ends.error_of
read_exactly = ends.read_exactly
server = ends.server
sshd = ends.sshd
ssh_to = ends.ssh_to
started = ends.started

CODE = ("One-time password", [("Verification code:", False)], ["123 456"])
MENU = ("Choose:\n 1. push", [("Option (1-1):", True)], ["1"])
NOTICE: tuple[str, list[tuple[str, bool]], list[str]] = ("Success. Logging you in...", [], [])


class Person:
    """Answers from a list, and remembers what was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = list(answers), list[Question]()

    def present(self) -> bool:
        return True

    def ask(self, question: Question) -> Sequence[str]:
        self.asked.append(question)
        return self.answers.pop(0) if question.prompts else []


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    running: list[Any] = []

    def make(*rounds: Any, **more: Any) -> Any:
        running.append(asking_server.AskingServer(tmp_path / f"server{len(running)}", list(rounds), **more))
        return running[-1]

    yield make
    for each in running:
        each.close()


def to(asking: Any, person: Any = None, **more: Any) -> SshConnection:
    said = {"identity": str(asking.identity), "known_hosts": str(asking.known_hosts), "config": "none"} | more
    return SshConnection(server.HOST, asking.user, asking.port, asker=person, **said)


def test_a_second_factor_after_the_key(serve: Any, tmp_path: Path) -> None:
    asking, person = serve(CODE, key_first=True), Person(["123 456"])
    connection = to(asking, person)
    with started(connection, tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED
    assert person.asked == [Question("", "One-time password", (Prompt("Verification code:", False),))]
    assert connection.asked


def test_rounds_echo_and_notices(serve: Any, tmp_path: Path) -> None:
    asking, person = serve(MENU, CODE, NOTICE), Person(["1"], ["123 456"])
    with started(to(asking, person), tmp_path):
        pass
    assert [[prompt.echo for prompt in each.prompts] for each in person.asked] == [[True], [False], []]
    assert person.asked[2].instructions == "Success. Logging you in..."


def test_nothing_is_begun_where_nobody_is_there(serve: Any, tmp_path: Path) -> None:
    """A server may ring somebody's telephone as soon as it is asked to ask."""
    asking = serve(CODE, key_first=True)
    error = error_of(to(asking), tmp_path)
    assert (type(error), error.code) == (ClusterError, "asks")
    assert "second factor" in error.message
    assert "`koala login`" in error.advice
    assert asking.begun == 0


def test_a_wrong_answer_is_an_error_of_its_own(serve: Any, tmp_path: Path) -> None:
    asking = serve(CODE)
    error = error_of(to(asking, Person(["wrong"])), tmp_path)
    assert (type(error), error.code) == (ClusterError, "answer_refused")
    assert (asking.refused, asking.begun) == (1, 1)
    assert "wrong" not in error.message + error.advice


def test_a_password(serve: Any, tmp_path: Path) -> None:
    asking, person = serve(password="sesame"), Person(["sesame"])
    with started(to(asking, person), tmp_path):
        pass
    assert [prompt.echo for each in person.asked for prompt in each.prompts] == [False]
    assert asking.user in person.asked[0].prompts[0].text
    assert error_of(to(asking, Person(["open"])), tmp_path).code == "answer_refused"


def test_a_password_is_not_asked_for_where_the_configuration_has_none(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("PasswordAuthentication no\n")
    asking, person = serve(password="sesame"), Person(["sesame"])
    error = error_of(to(asking, person, config=str(tmp_path / "config")), tmp_path)
    assert (error.code, person.asked) == ("authentication", [])


@pytest.fixture
def locked(sshd: Any, tmp_path: Path) -> Path:
    """A key that the server lets in, under a passphrase."""
    key = tmp_path / "locked"
    shutil.copy(sshd.identity, key)
    argv = ["ssh-keygen", "-q", "-p", "-N", server.PASSPHRASE, "-P", "", "-f", str(key)]
    subprocess.run(argv, check=True, capture_output=True)
    return key


@pytest.mark.usefixtures("serve")
def test_a_passphrase(sshd: Any, locked: Path, tmp_path: Path) -> None:
    person = Person([server.PASSPHRASE])
    with started(ssh_to(sshd, identity=str(locked), asker=person), tmp_path):
        pass
    assert str(locked) in person.asked[0].prompts[0].text
    error = error_of(ssh_to(sshd, identity=str(locked), asker=Person(["wrong"])), tmp_path)
    assert (error.code, "passphrase" in error.message) == ("answer_refused", True)


@pytest.mark.usefixtures("serve")
def test_a_key_may_be_left_locked(sshd: Any, locked: Path, tmp_path: Path) -> None:
    error = error_of(ssh_to(sshd, identity=str(locked), asker=Person([""])), tmp_path)
    assert error.code == "authentication"


def test_a_person_who_does_not_answer(serve: Any, tmp_path: Path) -> None:
    class CleanedUp(Person):
        def ask(self, question: Question) -> Sequence[str]:
            raise ClusterError("asks", "Nobody has answered.", "Answer it.")

    assert error_of(to(serve(CODE), CleanedUp()), tmp_path).code == "asks"


def test_too_few_answers(serve: Any, tmp_path: Path) -> None:
    two = ("", [("Password:", False), ("Code:", True)], ["a", "b"])
    assert error_of(to(serve(two), Person(["a"])), tmp_path).code == "answer_refused"
    with started(to(serve(two), Person(["a", "b"])), tmp_path):
        pass

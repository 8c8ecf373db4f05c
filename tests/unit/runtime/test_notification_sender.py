"""The sender of notifications over a real HTTP server, a program that is a sendmail, and real commands."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from koalapy.driver.driver import Delivery
from koalapy.model.commands import AnnounceNotification, SendNotification
from koalapy.model.errors import Reason
from koalapy.model.events import NotificationDue, NotificationTried
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.notification import (
    JobKind,
    Mail,
    Notification,
    NotificationId,
    NotifyOn,
    Outcome,
    Program,
    Recipient,
    Webhook,
)
from koalapy.model.units import SECOND, Instant
from koalapy.runtime.notifications.content import Content
from koalapy.runtime.notifications.sender import NotificationSender

PATIENCE_S = 60.0
REASON = Reason("exit_status", "request", "Its program ended with exit status 1.", "Look at its output.")


class Server:
    """An HTTP server on the loopback interface. `answer`: the status of each answer, or what it does instead."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: int | Callable[[Any], None] = 204
        self.headers: dict[str, str] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append((self.path, dict(self.headers), body))
                if callable(server.answer):
                    return server.answer(self)
                self.send_response(server.answer)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                return None

            do_GET = do_POST

            def log_message(self, *arguments: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class Sending:
    """A sender whose deliveries go into a queue."""

    def __init__(self, try_s: float = PATIENCE_S) -> None:
        self.deliveries: Queue[Delivery] = Queue()
        self.known = True
        content = Content("das", InstanceId("abcde"))
        self.sender = NotificationSender(
            content, self.deliveries.put, lambda job: self.known, lambda: Instant(time.time_ns() // 1000), try_s
        )

    def send(self, to: Recipient, **fields: Any) -> NotificationTried:
        """The outcome of one try."""
        self.sender.send(7, SendNotification(notification=a_notification(to, **fields)), doubt=False)
        return self.tried()

    def tried(self) -> NotificationTried:
        [event] = self.deliveries.get(timeout=PATIENCE_S).events
        assert isinstance(event, NotificationTried)
        return event


@pytest.fixture
def sending() -> Iterator[Sending]:
    made = Sending()
    yield made
    made.sender.close()


def a_notification(to: Recipient, **fields: Any) -> Notification:
    given: dict[str, Any] = {
        "id": NotificationId(JobId(7), NotifyOn.FAILED, 0), "to": to, "name": "solve ü\u202e\nx", "owner": "me",
        "kind": JobKind.JOB, "at": Instant(2 * SECOND), "submitted_at": Instant(SECOND), "reason": REASON,
    }  # fmt: skip
    return Notification(**given | fields)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---- webhooks


def test_a_webhook_gets_one_document(server: Server, sending: Sending) -> None:
    found = sending.send(Webhook(url=f"{server.url}/hook/s3cr3t?x=1"))
    assert (found.outcome, found.reason, found.number) == (Outcome.SENT, None, 1)
    [(path, headers, body)] = server.requests
    assert path == "/hook/s3cr3t?x=1"
    assert (headers["Content-Type"], headers["Idempotency-Key"]) == ("application/json", "abcde-7.failed.0")
    document = json.loads(body)
    assert (document["schema"], document["on"], document["grid"]) == ("koala.notification/1", "failed", "das")
    assert document["job"]["reason"].startswith("Its program ended with exit status 1.")
    assert (document["job"]["id"], document["job"]["kind"]) == (7, "job")
    assert document["at"] == "1970-01-01T00:00:02.000000Z"


@pytest.mark.parametrize("kind", JobKind)
def test_it_states_what_it_is_about(server: Server, sending: Sending, kind: JobKind) -> None:
    sending.send(Webhook(url=server.url), kind=kind)
    document = json.loads(server.requests[-1][2])
    assert document["job"]["kind"] == kind.value
    assert document["text"].startswith(f"{kind.capitalize()} 7 (solve")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.SENT),
        (202, Outcome.SENT),
        (301, Outcome.REFUSED),
        (307, Outcome.REFUSED),
        (400, Outcome.REFUSED),
        (404, Outcome.REFUSED),
        (410, Outcome.REFUSED),
        (408, Outcome.NOT_TAKEN),
        (429, Outcome.NOT_TAKEN),
        (500, Outcome.NOT_TAKEN),
        (503, Outcome.NOT_TAKEN),
        (502, Outcome.UNKNOWN),
        (504, Outcome.UNKNOWN),
    ],
)
def test_the_answer_of_a_webhook_decides(server: Server, sending: Sending, status: int, outcome: Outcome) -> None:
    server.answer, server.headers = status, {"Location": f"{server.url}/elsewhere"}
    found = sending.send(Webhook(url=f"{server.url}/s3cr3t"))
    assert found.outcome is outcome
    assert len(server.requests) == 1, "no redirect is followed"
    assert (found.reason is None) is (outcome is Outcome.SENT)
    assert found.reason is None or str(status) in found.reason.message
    assert "s3cr3t" not in str(found.reason)


def test_a_webhook_that_cannot_be_reached_has_certainly_not_got_it(sending: Sending) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens to nobody
        found = sending.send(Webhook(url=f"http://127.0.0.1:{taken.getsockname()[1]}/s3cr3t"))
    assert found.outcome is Outcome.NOT_TAKEN
    assert "could not be reached" in str(found.reason)
    assert "s3cr3t" not in str(found.reason)


def test_a_connection_that_breaks_after_the_request_leaves_it_unknown(server: Server, sending: Sending) -> None:
    server.answer = lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)
    found = sending.send(Webhook(url=f"{server.url}/s3cr3t"))
    assert found.outcome is Outcome.UNKNOWN
    assert "s3cr3t" not in str(found.reason)


def test_a_webhook_without_an_end_is_cut_off(server: Server) -> None:
    """It sends one byte of its headers after the other, each in time."""
    over = threading.Event()

    def trickle(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.wait(0.05):
            try:
                handler.wfile.write(b"x")
                handler.wfile.flush()
            except OSError:
                return

    server.answer = trickle
    sending = Sending(try_s=0.5)
    try:
        found = sending.send(Webhook(url=server.url))
        assert found.outcome is Outcome.UNKNOWN
        assert "not sent within" in str(found.reason)
    finally:
        over.set()
        sending.sender.close()


def test_httpx_logs_no_url(server: Server, sending: Sending, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        sending.send(Webhook(url=f"{server.url}/s3cr3t"))
    assert "s3cr3t" not in caplog.text


# ---- commands


def test_a_command_gets_the_document_and_no_shell(sending: Sending, tmp_path: Path) -> None:
    apply = script(
        tmp_path / "tell", f'cat > {tmp_path}/given; env > {tmp_path}/env; pwd > {tmp_path}/cwd; printf "%s|" "$@" '
        f"> {tmp_path}/arguments",
    )  # fmt: skip
    found = sending.send(Program(words=(str(apply), "$(touch x); a b", "ü")))
    assert found.outcome is Outcome.SENT
    assert (tmp_path / "arguments").read_text() == "$(touch x); a b|ü|"
    assert json.loads((tmp_path / "given").read_bytes())["id"] == "abcde-7.failed.0"
    environment = (tmp_path / "env").read_text()
    assert "KOALA_ON=failed\n" in environment
    assert "KOALA_JOB_ID=7\n" in environment
    assert f"PATH={os.environ['PATH']}\n" in environment
    assert (tmp_path / "cwd").read_text().strip() == str(Path.home())


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("exit 75", Outcome.NOT_TAKEN, "exit status 75, a temporary failure"),
        ("echo no such user >&2; exit 1", Outcome.REFUSED, "exit status 1: no such user"),
        ("kill -9 $$", Outcome.UNKNOWN, "killed by SIGKILL"),
        ("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3", Outcome.REFUSED, "exit status 3: xxx"),
        ("sleep 5 & exit 0", Outcome.SENT, ""),
    ],
)
def test_the_end_of_a_command_decides(
    sending: Sending, tmp_path: Path, text: str, outcome: Outcome, words: str
) -> None:
    found = sending.send(Program(words=(str(script(tmp_path / "tell", text)), "s3cr3t")))
    assert found.outcome is outcome
    assert words in str(found.reason)
    assert len(str(found.reason)) < 1000
    assert "s3cr3t" not in str(found.reason)


def test_a_command_that_does_not_exist_or_cannot_run_is_refused(sending: Sending, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    for program in ("/no/such/program", "no-such-program-of-ours", str(plain), str(broken), str(tmp_path)):
        found = sending.send(Program(words=(program,)))
        assert (found.outcome, program in str(found.reason)) == (Outcome.REFUSED, True)


def test_a_command_without_an_end_is_ended_with_its_children(tmp_path: Path) -> None:
    apply = script(tmp_path / "tell", f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/child; wait")
    sending = Sending(try_s=1.0)
    try:
        found = sending.send(Program(words=(str(apply),)))
    finally:
        sending.sender.close()
    assert found.outcome is Outcome.UNKNOWN
    if (tmp_path / "child").exists():
        child = int((tmp_path / "child").read_text())
        deadline = time.monotonic() + PATIENCE_S
        while is_alive(child):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


# ---- mail


def test_sendmail_gets_one_mail(sending: Sending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "sendmail", f'printf "%s|" "$@" > {tmp_path}/arguments; cat > {tmp_path}/mail')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert sending.send(Mail(address="me@example.org")).outcome is Outcome.SENT
    assert (tmp_path / "arguments").read_text() == "-i|me@example.org|"
    mail = message_from_bytes((tmp_path / "mail").read_bytes())
    assert (mail["To"], mail["Auto-Submitted"]) == ("me@example.org", "auto-generated")
    assert "Job 7 (solve" in str(mail["Subject"]) or "=?utf-8?" in str(mail["Subject"])
    assert mail["Message-ID"] == "<abcde-7.failed.0@koalapy.invalid>"
    assert mail.keys().count("To") == 1
    body = mail.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert "exit status 1" in body.decode()


def test_a_name_forges_no_header(sending: Sending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "sendmail", f"cat > {tmp_path}/mail")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("x\nBcc: a@b", "x\r\nBcc: a@b", "x\u2028Bcc: a@b", "x\udcff", "x" * 5000):
        assert sending.send(Mail(address="me@example.org"), name=name).outcome is Outcome.SENT, name
        assert message_from_bytes((tmp_path / "mail").read_bytes())["Bcc"] is None


def test_a_sendmail_that_refuses_and_none_at_all(
    sending: Sending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "sendmail", "echo 'relay denied' >&2; exit 67")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = sending.send(Mail(address="me@example.org"))
    assert found.outcome is Outcome.REFUSED
    assert "relay denied" in str(found.reason)
    script(tmp_path / "sendmail", "exit 75")
    assert sending.send(Mail(address="me@example.org")).outcome is Outcome.NOT_TAKEN


# ---- times, and the end


def test_it_waits_for_the_time_of_a_notification(sending: Sending) -> None:
    now = time.time_ns() // 1000
    for number, at in ((1, now + 400_000), (2, now)):
        notification = a_notification(Mail(address="me"), id=NotificationId(JobId(number), NotifyOn.DONE, 0))
        command = AnnounceNotification(notification=notification, due_at=Instant(at))
        sending.sender.send(number, command, doubt=True)
    found = [sending.deliveries.get(timeout=PATIENCE_S) for _ in range(2)]
    assert [each.confirmed for each in found] == [(2,), (1,)]
    assert all(isinstance(event, NotificationDue) for each in found for event in each.events)
    assert time.time_ns() // 1000 >= now + 400_000


def test_what_is_in_doubt_is_not_sent(server: Server, sending: Sending) -> None:
    command = SendNotification(notification=a_notification(Webhook(url=server.url)))
    sending.sender.send(7, command, doubt=True)
    assert sending.tried().outcome is Outcome.UNKNOWN
    assert server.requests == []


def test_the_end_waits_for_a_try_and_begins_none(server: Server) -> None:
    sending = Sending()
    asked, go_on = threading.Event(), threading.Event()

    def answer(handler: Any) -> None:
        asked.set()
        go_on.wait(PATIENCE_S)
        handler.send_response(204)
        handler.end_headers()

    server.answer = answer
    sending.sender.send(7, SendNotification(notification=a_notification(Webhook(url=server.url))), doubt=False)
    assert asked.wait(PATIENCE_S)
    threading.Timer(0.2, go_on.set).start()
    sending.sender.close()
    assert sending.tried().outcome is Outcome.SENT
    sending.sender.send(8, SendNotification(notification=a_notification(Webhook(url=server.url))), doubt=False)
    assert len(server.requests) == 1

"""No control character of a foreign text is printed, whichever command prints it, and nothing in it is markup."""

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Group
from rich.text import Text

from koalapy.answers.clusters import Asked
from koalapy.cli import clean, clusters, demo, doctor, explain, fetch, jobs, login, output, runners, show, status
from koalapy.cli.console import SafeConsole
from koalapy.cli.output import print_error, print_json, print_line, print_message, rich_table, table
from koalapy.cli.progress import TransferLines, transfer_line
from koalapy.doctor.checks import Failure, Finding, Report, Status
from koalapy.koalad import log
from koalapy.model.errors import KoalaError, OurError, RequestError
from koalapy.model.textfile.fields import as_line
from koalapy.model.textfile.words import visible

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
EVIL = "\x1b[31mRED\x1b]0;owned\a\x1b[2J [red]a[/red] :smile: \u202e\x9b\r\udcff"
TEXTS = st.text(st.characters() | st.sampled_from("\x00\x07\x1b\r\x7f\x85\x9b\u202e\u2066\u061c\u2028[]/\n\t"))
Document = dict[str, Any]


def printed(call: Callable[[], object]) -> str:
    """On both streams."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        call()
    return out.getvalue()


def drawn(renderable: Any) -> str:
    """On a terminal without colours, where rich writes no escape of its own for a text."""
    screen = io.StringIO()
    console = SafeConsole(file=screen, force_terminal=True, color_system=None, width=10_000)
    console.print(renderable)
    return screen.getvalue()


@given(TEXTS)
@example(EVIL)
def test_a_visible_text_holds_none(text: str) -> None:
    shown = visible(text)
    assert not FORBIDDEN.search(shown)
    assert shown.isprintable() or FORBIDDEN.search(shown) is None
    if not FORBIDDEN.search(text):
        assert shown == text


# ---- every way out, by the functions of the commands


def error(text: str) -> KoalaError:
    return OurError("broken", f"It is {text}.", f"Do {text}.")


def transfer(text: str) -> Any:
    return {
        "direction": "out", "cluster": text, "phase": "reading", "files": 3, "bytes": 9, "bytes_moved": 3, "file": text,
        "bytes_per_second": 1, "parameters": None, "parameters_done": None,
    }  # fmt: skip


def job(text: str) -> Any:
    component = {
        "index": 0, "cluster": text, "processors": 1, "state": "failed", "attempt": 1, "batch_id": text,
        "hosts": [text, text], "exit_status": 3, "reason": text, "silent_since": None,
    }  # fmt: skip
    return {
        "id": 7, "name": text, "state": "failed", "type": "ordered", "submitted_at": None, "reason": text,
        "started_at": None, "finished_at": None,
        "components": [component], "transfers": [transfer(text)], "sweep": None, "directory": text,
        "choice": 0, "choices": [{"clusters": [{"cluster": text, "processors": 1, "free": None}], "rank": None,
                                  "refused": {"message": text}}],
        "completion_failures": 0, "submission_failures": 0, "labels": {text: text}, "flow": None, "part_of": None,
        "site": text, "sent": {"job": 1, "state": text, "jobs": 2, "done": 1},
        "after": [], "suspended_for": None,
    }  # fmt: skip


def request(text: str) -> Document:
    """The request of a job."""
    program = {"processors": 1, "executable": text, "arguments": [text], "environment": {"A": text}, "setup": [text]}
    mapping = {"name": text, "components": [program], "stage_in": [text], "stage_out": [{"path": text, "to": text}]}
    sources = [
        {"names": ["x"], "loop": None, "values": [text], "file": None},
        {"names": ["y"], "loop": None, "values": [], "file": text},
    ]
    return {"directory": text, "job": mapping, "parameters": sources}


def lack(text: str) -> Document:
    reason = {"output": text, "command": text}
    lacks = [{"component": 0, "cluster": text, "message": text}]
    return {
        "summary": text,
        "lacks": lacks,
        "not_borrowed": [{"site": text, "reason": text}],
        "no_more_nodes": [{"cluster": text, "reason": text}],
        "reason": reason,
        "notes": [text],
    }


def tag(text: str) -> Document:
    return {
        "cluster": text, "tag": text, "store": text, "own": False, "attempt": text, "batch_id": text, "age_s": 5,
        "batch_state": text, "directory": True, "wrapper": "alive", "heartbeat_age_s": 1, "reason": text,
        "may_run": True,
    }  # fmt: skip


def store(text: str) -> Document:
    return {
        "store": text, "own": False, "clusters": [text], "tags": 2, "may_run": 1, "oldest_s": 5.0, "newest_s": 1.0,
    }  # fmt: skip


class Koalad:
    """Answers as a koalad whose clusters, programs and files send `text` wherever they can."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, _grid: object) -> "Koalad":
        return self

    def __enter__(self) -> "Koalad":
        return self

    def __exit__(self, *_: object) -> None: ...

    def jobs(self, *_: object, **__: object) -> list[Document]:
        return [job(self.text)]

    def unreadable(self) -> Document:
        record = {"record": "job/7", "kind": "job", "job": 7, "reason": self.text}
        return {"schema": "koala.unreadable/1", "records": [record]}

    def show(self, _job: int) -> Document:
        events = [{"at": "2026-01-01T00:00:00Z", "text": self.text}]
        candidate = {
            "component": 0, "attempt": 1, "cluster": self.text, "batch_id": self.text, "ended": None,
            "queued_at": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        return {
            "job": job(self.text), "request": request(self.text), "candidates": [candidate], "events": events,
            "notify": [],
        }  # fmt: skip

    def explain(self, _job: int) -> Document:
        return lack(self.text)

    def fetch(self, *_: object, **__: object) -> Document:
        return {"state": "fetched", "files": 1, "bytes": 2, "notes": [self.text], "lack": self.text}

    def status(self) -> Document:
        each = {"reason": self.text, "batch_id": self.text, "attempt": "7.0.1", "cluster": self.text}
        line = {"kind": "found", "text": self.text, "at": "2026-01-01T00:00:00Z"}
        recovery = {
            "lines": [line], "lines_dropped": 0, "at": "2026-01-01T00:00:00Z", "attempts_unreported": 0, "attempts": 1,
        }  # fmt: skip
        return {
            "version": "1", "grid": self.text, "state": "ready", "pid": 5, "troubles": [self.text],
            "pending_cancels": [each],
            "runners": {"active": 0, "waiting": 0},
            "unknown_tags": {"count": 1, "first": [tag(self.text)], "stores": [store(self.text)]},
            "recovery": recovery, "grid_file_changed": True, "grid_file": self.text,
        }  # fmt: skip

    def clusters(self) -> list[Document]:
        return [
            {
                "name": self.text, "batch": "slurm", "version": self.text, "connection": "up", "total": 1, "idle": 1,
                "ours": 0, "scavenged": 0, "others": 0, "waiting_local": 0, "age_s": 1, "reason": self.text,
                "draining": False, "candidates": 1, "added_by_command": True,
            }
        ]  # fmt: skip

    def unknown(self) -> Document:
        return {"clusters": [tag(self.text)], "tags": [tag(self.text)], "stores": [store(self.text)]}

    def admission(self, _states: object) -> Document:
        admission = {"expected_nodes": 0.0, "nodes": None}
        cluster = {"cluster": self.text, "nodes": 1, "starting": 0, "black_holes": [self.text], "suspended": 1}
        runner = {
            "id": 7, "name": self.text, "state": "running", "done": 0, "parameters": 1, "running": 1, "failed": 0,
            "preempted": 0, "parameters_per_minute": None, "ends_at": None, "charged_processor_seconds": 1,
            "clusters": [cluster], "reason": self.text,
        }  # fmt: skip
        return {"runners": [runner], "admission": admission}

    def logins(self) -> list[Document]:
        return [{"cluster": self.text, "state": "login_required"}]

    def login(self, *_: object) -> Document:
        return {"cluster": self.text, "state": "login_required", "reason": {"message": self.text, "advice": self.text}}


COMMANDS: dict[str, tuple[Any, Callable[[], object]]] = {
    "jobs": (jobs, lambda: jobs.jobs(None)),
    "show": (show, lambda: show.show(["7"])),
    "explain": (explain, lambda: explain.explain(7)),
    "fetch": (fetch, lambda: fetch.fetch(7, None)),
    "status": (status, lambda: status.status()),
    "clusters": (clusters, lambda: clusters.clusters()),
    "unknown": (clean, lambda: clean.show_unknown(None, False)),
    "runners": (runners, lambda: runners.runners(False)),
    "login": (login, lambda: login.login(None)),
    "jobs --json": (jobs, lambda: jobs.jobs(None, json=True)),
    "show --json": (show, lambda: show.show(["7"], json=True)),
    "status --json": (status, lambda: status.status(json=True)),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_none(command: str) -> None:
    module, call = COMMANDS[command]

    @given(TEXTS)
    @example(EVIL)
    def holds(text: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "Grid", Koalad(text))
            shown = printed(lambda: _run(call))
        assert not FORBIDDEN.search(shown), shown
        if command.endswith("--json"):
            document = json.loads(shown)
            assert text in _texts(document)
        elif text == EVIL:
            assert r"\x1b[31mRED\x1b]0;owned\x07\x1b[2J [red]a[/red] :smile: \u202e\x9b\r\udcff" in shown

    holds()


def _run(call: Callable[[], object]) -> None:
    with suppress(SystemExit, typer.Exit):
        call()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


@given(TEXTS)
@example(EVIL)
def test_plain_ways_out_print_none(text: str) -> None:
    finding = Finding(
        "login", Status.FAILED, text, failure=Failure("x", text, text, "you", output=text, command=text, exit_status=1)
    )
    question: Asked = {"title": text, "instructions": text, "prompts": [{"text": text, "echo": False}]}
    calls: list[Callable[[], object]] = [
        lambda: print_message(text),
        lambda: print_error(error(text)),
        lambda: print_line(text),
        lambda: print_json({text: [text]}),
        lambda: table((text, "X"), [(text, 1)]),
        lambda: doctor._Lines().finished(text, finding),
        lambda: doctor._conclude([Report(text, (finding,), (text,))], True),
        lambda: demo._summary([job(text)], {}, 1.0),
        lambda: TransferLines().show(job(text)),
        lambda: _answered(question),
    ]
    for call in calls:
        shown = printed(call)
        assert not FORBIDDEN.search(shown), shown


def _answered(question: Asked) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(""))
        try:
            login.answers(question)
        except RequestError as missing:
            print_error(missing)


@given(TEXTS)
@example(EVIL)
def test_what_is_drawn_on_a_terminal_holds_none(text: str) -> None:
    finding = Finding("login", Status.OK, text)
    line = transfer_line(transfer(text))
    for each in (rich_table(("A", text), [[text, text]]), Text(text), Group(doctor._line(finding)), text, line):
        shown = drawn(each)
        assert not FORBIDDEN.search(shown), shown
        if text == EVIL:
            assert "[red]a[/red] :smile:" in shown
    assert r"\x1b[31mRED\x1b]0;owned\x07\x1b[2J" in drawn(rich_table(("A",), [[EVIL]]))


@given(TEXTS)
@example(EVIL)
def test_json_is_valid_and_holds_none(text: str) -> None:
    shown = printed(lambda: print_json({"text": text, text: 1}))
    assert not FORBIDDEN.search(shown)
    assert json.loads(shown)["text"] == text or text == "text"


@pytest.mark.parametrize("character", [*"\x00\x1b\n\r\x7f\x9b\u2028\u202e\u2066\u200f\u061c"])
def test_a_name_holds_none(character: str) -> None:
    with pytest.raises(Exception, match=r"control character|NUL"):
        as_line(f"a{character}b")
    assert as_line("a\tü–\u0627b") == "a\tü–\u0627b"


# ---- the log


@given(TEXTS)
@example(f"x\n2026-01-01T00:00:00Z [info     ] forged {EVIL}")
def test_an_event_is_one_line_of_the_log(text: str) -> None:
    for form in log.LogFormat:
        event: Any = {"event": "kcm_said", "line": text, "more": [text], "level": "info", "timestamp": "now"}
        for step in log._renderers(form):
            event = step(None, "info", event)
        bare = re.sub(r"\x1b\[[0-9;]*m", "", event) if form is log.LogFormat.TEXT and "\x1b" not in text else event
        assert "\n" not in event
        assert not FORBIDDEN.search(bare), bare


def test_a_traceback_cannot_be_taken_for_an_event() -> None:
    stream = io.StringIO()
    try:
        raise ValueError(f"bad\n2026-01-01T00:00:00Z [info     ] forged {EVIL}")
    except ValueError as raised:
        log._indented(stream, (ValueError, raised, raised.__traceback__))
    lines = stream.getvalue().splitlines()
    assert not FORBIDDEN.search(stream.getvalue())
    assert all(line.startswith("    ") for line in lines)
    assert any("forged" in line for line in lines)


def test_a_piece_of_a_document_may_end_within_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", screen)
    data = f"ü{EVIL}".encode("utf-8", "surrogateescape")
    output.pass_on(data[i : i + 1] for i in range(len(data)))
    assert not FORBIDDEN.search(raw.getvalue().decode())
    assert raw.getvalue().decode().startswith("ü\\x1b[31m")


def test_a_message_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of several threads are not mixed."""
    written: list[str] = []
    screen = io.StringIO()
    monkeypatch.setattr(screen, "write", written.append)
    monkeypatch.setattr("sys.stderr", screen)
    print_message("Looking at delft.")
    assert written == ["Looking at delft.\n"]

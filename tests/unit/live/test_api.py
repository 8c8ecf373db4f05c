"""The HTTP API of a real koalad: who may connect, what it describes, what it refuses, and how many it bears."""

import concurrent.futures
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from koalapy import __version__
from koalapy.api import openapi
from koalapy.api.app import MAX_BODY
from koalapy.client import Grid

Document = dict[str, Any]
PATIENCE_S = 200


class Connection(http.client.HTTPConnection):
    """HTTP over koalad's socket, byte by byte if need be."""

    def __init__(self, path: Path) -> None:
        super().__init__("koalad", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self._path))


@pytest.fixture
def http_(koala: Any) -> Iterator[Connection]:
    connection = Connection(socket_of(koala))
    yield connection
    connection.close()


def socket_of(koala: Any) -> Path:
    return Path(koala.root / "run" / "koala" / "live.sock")


def ask(connection: Connection, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Document]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    if data is not None:
        headers.setdefault("Content-Type", "application/json")
    connection.request(method, path, data, headers)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()  # koalad closes one that has been idle for a while, just as the next request comes perhaps
    if "openapi" not in document:
        openapi.check(document)
    return answer.status, document


def hello(koala: Any, **fields: Any) -> Document:
    component = {"processors": 1, "executable": "true"}
    return {"job": {"components": [component]}, "directory": str(koala.work), **fields}


# ---- who may connect


def test_only_its_owner_can_reach_the_socket(koala: Any) -> None:
    assert socket_of(koala).stat().st_mode & 0o777 == 0o600
    assert socket_of(koala).parent.stat().st_mode & 0o777 == 0o700


AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
plug = socket.socket(socket.AF_UNIX)
plug.settimeout(30)
try:
    plug.connect(sys.argv[1])
    plug.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: koalad\\r\\n\\r\\n")
    print(len(plug.recv(1000)))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_another_user_is_turned_away_by_the_directory_and_by_koalad(koala: Any) -> None:
    path = socket_of(koala)
    assert as_nobody(path) == "PermissionError"
    before = [(each, each.stat().st_mode & 0o777) for each in (path, path.parent, koala.root / "run", koala.root)]
    try:
        for each, mode in before:
            each.chmod(mode | 0o777)  # as if the file system did not protect it
        assert as_nobody(path) in ("0", "ConnectionResetError", "BrokenPipeError")
    finally:
        for each, mode in before:
            each.chmod(mode)
    assert "connection_refused" in (koala.root / "state" / "koala" / "live" / "koalad.log").read_text()
    assert koala("status").status == 0


def as_nobody(path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, path], capture_output=True, text=True, check=True)
    return done.stdout.strip()


IMPOSTOR = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ear = socket.socket(socket.AF_UNIX)
ear.bind(sys.argv[1]); ear.listen()
print("listening", flush=True)
guest, _ = ear.accept()
print(guest.recv(1000), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_nothing_is_sent_to_a_socket_of_another_user(small: Any) -> None:
    """Which one may leave where koalad's is to be, if that is a place where all may write."""
    path = socket_of(small)
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    small.root.chmod(0o711)
    with subprocess.Popen([sys.executable, "-c", IMPOSTOR, path], stdout=subprocess.PIPE, text=True) as impostor:
        assert impostor.stdout is not None
        assert impostor.stdout.readline() == "listening\n"
        small("status").refused(3, f"The socket {path} is another user's (uid 65534). Nothing was sent to it.")
        assert impostor.stdout.read() == "b''\n"
    assert small("up").status == 0, "koalad takes its place"
    assert small("status").status == 0


# ---- what it describes


def test_it_describes_itself(http_: Connection) -> None:
    status, document = ask(http_, "GET", "/openapi.json")
    assert status == 200
    assert document["info"] == {"title": "koalad", "version": __version__}
    methods = {(method, path) for path, item in document["paths"].items() for method in item}
    assert methods == {
        ("post", "/v1/jobs"),
        ("get", "/v1/jobs"),
        ("get", "/v1/wait"),
        ("get", "/v1/jobs/{job}"),
        ("get", "/v1/jobs/{job}/explain"),
        ("get", "/v1/jobs/{job}/tree"),
        ("get", "/v1/jobs/{job}/output"),
        ("post", "/v1/jobs/{job}/follow"),
        ("post", "/v1/jobs/batch"),
        ("post", "/v1/jobs/check"),
        ("post", "/v1/jobs/cancel"),
        ("post", "/v1/jobs/hold"),
        ("post", "/v1/jobs/release"),
        ("post", "/v1/jobs/{job}/cancel"),
        ("post", "/v1/jobs/{job}/hold"),
        ("post", "/v1/jobs/{job}/release"),
        ("post", "/v1/jobs/{job}/fetch"),
        ("get", "/v1/jobs/{job}/forward"),
        ("post", "/v1/jobs/{job}/forward"),
        ("get", "/v1/jobs/{job}/terminal"),
        ("post", "/v1/jobs/{job}/terminal"),
        ("post", "/v1/jobs/{job}/resubmit"),
        ("get", "/v1/runners"),
        ("get", "/v1/sweeps/{sweep}/results"),
        ("get", "/v1/clusters"),
        ("post", "/v1/clusters"),
        ("delete", "/v1/clusters/{cluster}"),
        ("post", "/v1/clusters/{cluster}/drain"),
        ("post", "/v1/clusters/{cluster}/resume"),
        ("post", "/v1/reload"),
        ("get", "/v1/clusters/ads"),
        ("post", "/v1/match"),
        ("get", "/v1/sites"),
        ("get", "/v1/sites/invitation"),
        ("post", "/v1/sites/key"),
        ("post", "/v1/sites/neighbours"),
        ("delete", "/v1/sites/neighbours/{neighbour}"),
        ("post", "/v1/sites/neighbours/{neighbour}/check"),
        ("get", "/v1/leases"),
        ("post", "/v1/leases/{lease}/end"),
        ("get", "/v1/pilots"),
        ("post", "/v1/pilots"),
        ("post", "/v1/pilots/{pilot}/close"),
        ("get", "/v1/clusters/{cluster}/login"),
        ("post", "/v1/clusters/{cluster}/login"),
        ("delete", "/v1/clusters/{cluster}/login"),
        ("post", "/v1/clusters/{cluster}/login/answers"),
        ("get", "/v1/logins"),
        ("post", "/v1/logins"),
        ("get", "/v1/status"),
        ("get", "/v1/unknown"),
        ("get", "/v1/maintenance"),
        ("post", "/v1/maintenance/{name}/run"),
        ("get", "/v1/unreadable"),
        ("get", "/v1/usage"),
        ("get", "/v1/disk"),
        ("get", "/v1/journal"),
        ("post", "/v1/unknown/{tag}/clean"),
        ("post", "/v1/shutdown"),
    }
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["description"], (method, path)
            answers = operation["responses"]
            assert set(answers) == {"200", "default"}, (method, path)
            assert answers["default"]["content"]["application/json"]["schema"] == {
                "$ref": "#/components/schemas/ErrorAnswer"
            }
            of_bytes = path.endswith(("/output", "/follow")) or (
                method == "post" and path.endswith(("/forward", "/terminal"))
            )
            if not of_bytes:
                assert answers["200"]["content"]["application/json"]["schema"]["$ref"].endswith("Answer")
    assert document["components"]["schemas"]["Job"]["properties"]["held_processor_seconds"]


def test_many_jobs_are_taken_together_or_not_at_all(koala: Any, http_: Connection) -> None:
    jobs = [hello(koala, key=f"many {number % 3}") for number in range(4)]
    status, document = ask(http_, "POST", "/v1/jobs/batch", {"jobs": jobs})
    assert (status, document["schema"]) == (200, "koala.submits/1")
    first, second, third, again = document["ids"]
    assert len({first, second, third}) == 3
    assert again == first
    more = [hello(koala, key="many 4"), hello(koala, key="many 1")]
    status, document = ask(http_, "POST", "/v1/jobs/batch", {"jobs": more})
    assert document["ids"][1] == second
    before = koala.ids()
    wrong = {"job": {"components": []}, "directory": "/"}
    status, document = ask(http_, "POST", "/v1/jobs/batch", {"jobs": [hello(koala), wrong, hello(koala)]})
    assert (status, document["error"]["whose"]) == (422, "request")
    assert document["error"]["message"].startswith("Job 2 of 3: ")
    assert koala.ids() == before
    status, document = ask(http_, "POST", "/v1/jobs/batch", {"jobs": []})
    assert status == 422


def test_many_jobs_are_held_released_and_cancelled_together(koala: Any, http_: Connection) -> None:
    component = {"processors": 4, "executable": "sleep", "arguments": ["1000"], "cluster": "amsterdam"}
    body = {"job": {"components": [component], "when_busy": "wait"}, "directory": "/"}
    blocker = koala.submit(component)
    koala.until(lambda: koala.job(blocker)["state"] == "running")
    _, document = ask(http_, "POST", "/v1/jobs/batch", {"jobs": [body] * 3})
    ids = document["ids"]
    wanted = {"ids": [*ids, 10**6, ids[0]]}
    for change, state in (("hold", "held"), ("release", "waiting"), ("cancel", "cancelled")):
        status, document = ask(http_, "POST", f"/v1/jobs/{change}", wanted)
        assert (status, document["schema"]) == (200, "koala.changed/1")
        assert [(job["id"], job["state"]) for job in document["jobs"]] == [(job, state) for job in ids], change
        assert [(each["id"], each["error"]["code"]) for each in document["refused"]] == [(10**6, "no_such_job")]
    _, document = ask(http_, "POST", "/v1/jobs/cancel", {"ids": [blocker, *ids], "force": True})
    assert [job["id"] for job in document["jobs"]] == [blocker]
    assert {each["error"]["code"] for each in document["refused"]} == {"wrong_state"}


def test_every_answer_is_as_described(koala: Any, http_: Connection, shell: Callable[..., Document]) -> None:
    status, document = ask(http_, "POST", "/v1/jobs", hello(koala))
    assert (status, document["schema"]) == (200, "koala.submit/1")
    job = document["id"]
    koala.end(job)
    for path in (
        "/v1/jobs",
        f"/v1/jobs/{job}",
        f"/v1/jobs/{job}/explain",
        "/v1/clusters",
        "/v1/status",
        "/v1/unknown",
        "/v1/journal",
    ):
        assert ask(http_, "GET", path)[0] == 200
    held = ask(http_, "POST", "/v1/jobs", hello(koala, job={"components": [shell("true", 4)] * 3}))[1]["id"]
    for change in ("hold", "release", "cancel"):
        status, document = ask(http_, "POST", f"/v1/jobs/{held}/{change}")
        assert status in (200, 409), document


# ---- what it refuses


BAD_REQUESTS: dict[str, tuple[str, str, Any, int, tuple[str, ...]]] = {
    "nothing there": ("GET", "/v2/jobs", None, 404, ("/v2/jobs",)),
    "no such method": ("DELETE", "/v1/jobs", None, 405, ("DELETE",)),
    "no body": ("POST", "/v1/jobs", None, 422, ("body", "required")),
    "no JSON": ("POST", "/v1/jobs", b"processors: 4", 422, ("not JSON",)),
    "broken JSON": ("POST", "/v1/jobs", b'{"job": {', 422, ("not JSON",)),
    "binary": ("POST", "/v1/jobs", b"\xff\xfe\x00\x01", 422, ("not JSON",)),
    "deep JSON": ("POST", "/v1/jobs", b"[" * 200_000, 400, ("body",)),
    "a list": ("POST", "/v1/jobs", [1, 2], 422, ("body",)),
    "no directory": ("POST", "/v1/jobs", {"text": "x"}, 422, ("body.directory", "required")),
    "unknown field": ("POST", "/v1/jobs", {"directory": "/", "text": "", "jib": 1}, 422, ("body.jib",)),
    "no job": ("POST", "/v1/jobs", {"directory": "/"}, 422, ("holds no job",)),
    "a relative directory": ("POST", "/v1/jobs", {"directory": ".", "text": "x"}, 422, ("directory", "absolute")),
    "both": ("POST", "/v1/jobs", {"directory": "/", "text": "x", "job": {}}, 422, ("text", "job")),
    "a number for a job": ("POST", "/v1/jobs", {"directory": "/", "job": 7}, 422, ("body.job",)),
    "an empty job": ("POST", "/v1/jobs", {"directory": "/", "job": {}}, 422, ("components",)),
    "no number": ("POST", "/v1/jobs", b'{"directory": "/", "job": {"components": [{"processors": NaN}]}}', 422, ()),
    "a NUL in the directory": (
        "POST",
        "/v1/jobs",
        {"directory": "/tmp/a\0b", "text": "x"},
        422,
        ("body.directory", "control"),
    ),
    "a line break in the directory": (
        "POST",
        "/v1/jobs",
        {"directory": "/a\nb", "text": "x"},
        422,
        ("body.directory",),
    ),
    "a NUL in the source": ("POST", "/v1/jobs", {"directory": "/", "text": "x", "source": "\0"}, 422, ("body.source",)),
    "a NUL in the key": ("POST", "/v1/jobs", {"directory": "/", "text": "x", "key": "a\0"}, 422, ("body.key",)),
    "a NUL in the text": ("POST", "/v1/jobs", {"directory": "/", "text": "name: a\0b"}, 422, ("not text",)),
    "a NUL in the mapping": ("POST", "/v1/jobs", {"directory": "/", "job": {"name": "a\0"}}, 422, ("name", "NUL")),
    "a NUL in an override": (
        "POST",
        "/v1/jobs",
        {"directory": "/", "text": "components: []", "overrides": {"name": "a\0"}},
        422,
        ("NUL",),
    ),
    "a NUL in an override's key": (
        "POST",
        "/v1/jobs",
        {"directory": "/", "text": "x", "overrides": {"na\0me": "a"}},
        422,
        ("body.overrides",),
    ),
    "a NUL in a path to fetch": ("POST", "/v1/jobs/1/fetch", {"paths": ["a\0"]}, 422, ("body.paths.0",)),
    "a NUL in a place to fetch to": ("POST", "/v1/jobs/1/fetch", {"directory": "/a\0"}, 422, ("body.directory",)),
    "a NUL in a cluster's name": ("POST", "/v1/unknown/k0/clean", {"cluster": "a\0"}, 422, ("body.cluster",)),
    "a NUL in a login's answer": (
        "POST",
        "/v1/clusters/here/login/answers",
        {"number": 1, "answers": ["a\0"]},
        422,
        ("body.answers.0",),
    ),
    "a long key": ("POST", "/v1/jobs", {"directory": "/", "text": "", "key": "k" * 201}, 422, ("body.key",)),
    "a word for an id": ("GET", "/v1/jobs/one", None, 422, ("path.job", "integer")),
    "no such job": ("GET", "/v1/jobs/999999", None, 404, ("no job 999999",)),
    "an impossible id": ("GET", f"/v1/jobs/{10**40}", None, 404, ("no job",)),
    "a negative id": ("POST", "/v1/jobs/-1/cancel", {}, 404, ("no job -1",)),
    "no such state": ("GET", "/v1/jobs?state=lost", None, 422, ("query.state", "'lost'")),
    "an id that is none": ("GET", "/v1/jobs?id=x", None, 422, ("query.id",)),
    "a wait for nothing": ("GET", "/v1/wait", None, 422, ("query.id",)),
    "a wait for ever": ("GET", "/v1/wait?id=1&timeout=inf", None, 422, ("query.timeout",)),
    "no time": ("GET", "/v1/wait?id=1&timeout=nan", None, 422, ("query.timeout",)),
    "negative time": ("GET", "/v1/wait?id=1&timeout=-1", None, 422, ("query.timeout",)),
    "a wait for no job": ("GET", "/v1/wait?id=999999&timeout=1", None, 404, ("no job 999999",)),
    "no such stream": ("GET", "/v1/jobs/1/output?stream=input", None, 422, ("query.stream",)),
    "output of no job": ("GET", "/v1/jobs/999999/output", None, 404, ("no job 999999",)),
    "a word to shut down": ("POST", "/v1/shutdown", {"cancel": "perhaps"}, 422, ("body.cancel",)),
    "an unknown wish": ("POST", "/v1/shutdown", {"now": True}, 422, ("body.now",)),
}


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_wrong_request_is_refused_in_words(
    http_: Connection, method: str, path: str, body: Any, status: int, words: tuple[str, ...]
) -> None:
    found, document = ask(http_, method, path, body)
    assert found == status, document
    error = document["error"]
    assert error["message"].endswith((".", "?")), error
    assert error["advice"], error
    for word in words:
        assert word in error["message"], error
    assert "Traceback" not in json.dumps(document)


def test_garbage_is_no_request(koala: Any) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01" * 50 + b"\r\n\r\n", b"GET\r\n\r\n", b"\0" * 70_000):
        with socket.socket(socket.AF_UNIX) as plug:
            plug.settimeout(PATIENCE_S)
            plug.connect(str(socket_of(koala)))
            plug.sendall(garbage)
            assert plug.recv(1000).startswith((b"HTTP/1.1 400", b"HTTP/1.1 4")), garbage[:20]
    assert koala("status").status == 0


def memory(pid: int) -> int:
    """Bytes that the process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_request_that_is_too_large_is_refused_unread(koala: Any, http_: Connection) -> None:
    http_.putrequest("POST", "/v1/jobs")
    http_.putheader("Content-Length", str(MAX_BODY + 1))
    http_.putheader("Content-Type", "application/json")
    http_.endheaders()  # and no body: it is refused by its own headers
    answer = http_.getresponse()
    document = json.loads(answer.read())
    assert (answer.status, document["error"]["code"]) == (413, "too_large_request")
    assert answer.headers["connection"] == "close"


def test_a_request_without_a_length_is_cut_where_it_is_too_large(koala: Any) -> None:
    pid = koala("status", "--json").document["pid"]
    before, sent = memory(pid), 0
    with socket.socket(socket.AF_UNIX) as plug:
        plug.settimeout(PATIENCE_S)
        plug.connect(str(socket_of(koala)))
        plug.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: koalad\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        try:
            while sent < 200 << 20:
                plug.sendall(chunk)
                sent += 1 << 20
        except OSError:
            pass
        said = plug.recv(65_536)
    assert b" 413 " in said.partition(b"\r\n")[0]
    assert b'"koala.error/1"' in said
    assert memory(pid) - before < 100 << 20
    assert koala("status").status == 0


def test_a_job_of_just_the_size_is_read(koala: Any, http_: Connection) -> None:
    text = "components: [{processors: 1, executable: 'true'}]\n#" + "x" * 9_900_000
    status, document = ask(http_, "POST", "/v1/jobs", {"text": text, "directory": str(koala.work)})
    assert (status, document["schema"]) == (200, "koala.submit/1")
    text += "x" * 200_000
    status, document = ask(http_, "POST", "/v1/jobs", {"text": text, "directory": str(koala.work)})
    assert (status, document["error"]["code"]) == (422, "too_large")


# ---- keys


def test_the_same_key_again_is_the_same_job(koala: Any, http_: Connection) -> None:
    before = koala.ids()
    answers = [ask(http_, "POST", "/v1/jobs", hello(koala, key="once")) for _ in range(3)]
    assert {document["id"] for _, document in answers} == {koala.ids()[-1]}
    assert len(koala.ids()) == len(before) + 1


def test_the_same_key_at_the_same_time_is_the_same_job(koala: Any) -> None:
    def submit(_: int) -> int:
        connection = Connection(socket_of(koala))
        try:
            return int(ask(connection, "POST", "/v1/jobs", hello(koala, key="at once"))[1]["id"])
        finally:
            connection.close()

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(submit, range(32)))) == 1


# ---- how many it bears


def test_many_who_wait_hold_nobody_up(koala: Any, shell: Callable[..., Document]) -> None:
    """300 clients wait for one job, which ends once koalad has answered all else meanwhile."""
    gate = koala.work / "gate"
    job = koala.submit(shell(f"while [ ! -e {gate} ]; do sleep 0.1; done"))
    plugs = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    wait = f"GET /v1/wait?id={job}&timeout=60 HTTP/1.1\r\nHost: koalad\r\n\r\n".encode()
    try:
        for plug in plugs:
            plug.settimeout(PATIENCE_S)
            plug.connect(str(socket_of(koala)))
            plug.sendall(wait)
        assert koala("status").status == 0
        other = koala.submit(shell("echo meanwhile"))
        assert koala.end(other)["state"] == "done"
        assert koala("logs", other).out == "meanwhile\n"
        gate.touch()
        for plug in plugs:
            while b'"state":"done"' not in answer_of(plug):
                plug.sendall(wait)  # nobody is let wait longer than a minute
    finally:
        for plug in plugs:
            plug.close()


def answer_of(plug: socket.socket) -> bytes:
    said = plug.recv(65_536)
    length = int(said.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(said.partition(b"\r\n\r\n")[2]) < length:
        said += plug.recv(65_536)
    return said


def test_many_who_follow_an_output_hold_nobody_up(koala: Any, shell: Callable[..., Document]) -> None:
    gate = koala.work / "gate-follow"
    job = koala.submit(shell(f"echo one; while [ ! -e {gate} ]; do sleep 0.1; done; echo two"))
    koala.until(lambda: koala("logs", job).out == "one\n")
    said: list[bytes] = []

    def follow(client: Grid) -> None:
        with client as grid:
            said.append(b"".join(grid.output(job, follow=True)))

    threads = [threading.Thread(target=follow, args=(koala.client(),)) for _ in range(60)]
    for thread in threads:
        thread.start()
    assert koala("status").status == 0
    assert koala.end(koala.submit(shell("true")))["state"] == "done"
    gate.touch()
    for thread in threads:
        thread.join()
    assert said == [b"one\ntwo\n"] * 60


def test_down_does_not_wait_for_those_who_wait(small: Any, shell: Callable[..., Document]) -> None:
    small("up")
    job = small.submit(shell("echo one; sleep 1000"))
    small.until(lambda: small("logs", job).out == "one\n")
    processes = [small.start("wait", job), small.start("logs", "-f", job, "--reconnect", 0)]
    assert processes[1].stdout.readline() == b"one\n"
    assert small("down").status == 0
    answers = [(process.communicate(timeout=PATIENCE_S), process.returncode) for process in processes]
    for (_, err), status in answers:
        assert status in (1, 3)
        assert err.startswith(b"koala: ")
        assert b"Traceback" not in err
    small("up")

"""`koala forward` to programs on compute nodes of a real cluster: a web server, and one whose network is cut."""

import hashlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
import real_grid
from echoed import Echoed
from host_rule import input_rule
from programs import need

SLURM, GRID_ENGINE = "alpha", "gamma"
# A page that names the rank and its node, and bytes with their checksum.
SERVER = """
echo "<html><body><h1>rank $KOALA_RANK on $(hostname)</h1></body></html>" > index.html.$KOALA_RANK
mkdir -p web$KOALA_RANK
mv index.html.$KOALA_RANK web$KOALA_RANK/index.html
head -c 3000000 /dev/urandom > web$KOALA_RANK/data
sha256sum web$KOALA_RANK/data | cut -d' ' -f1 > web$KOALA_RANK/sum
exec python3 -m http.server --bind 127.0.0.1 --directory web$KOALA_RANK 18473
"""
BROWSER = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

PORT = 18475
# A server that sends everything back, and prints how each connection ended.
ECHO = f"""
import socket
listening = socket.create_server(("127.0.0.1", {PORT}))
while True:
    plug = listening.accept()[0]
    try:
        while data := plug.recv(1 << 16):
            plug.sendall(data)
        print("ended", flush=True)
    except ConnectionResetError:
        print("reset", flush=True)
    plug.close()
"""
CUT = ["-p", "tcp", "--dport", "22", "-j", "DROP"]


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = real_grid.Koalad(testgrid, tmp_path, {SLURM: {}, GRID_ENGINE: {}})
    yield made
    made.stop()


@pytest.mark.parametrize("cluster", [SLURM, GRID_ENGINE])
def test_web_servers_on_two_nodes_are_read_from_here(koalad: Any, cluster: str) -> None:
    koalad.idle()
    job = koalad.submit(real_grid.sh(8, SERVER, cluster=cluster, processors_per_node=4, launch="per-node"))
    koalad.until(lambda: koalad.job(job)["state"] in ("running", "failed"))
    pages: list[str] = []
    for rank in (0, 1):
        with koalad.grid.forward(job, 18473, rank=rank) as forwarding:
            host, port = forwarding.address
            url = f"http://{host}:{port}"
            page = koalad.until(lambda: answer_of(f"{url}/"))  # noqa: B023
            assert f"rank {rank} on" in page
            pages.append(page.partition(" on ")[2])
            data = httpx.get(f"{url}/data", timeout=real_grid.PATIENCE_S).content
            assert sum_of(data) == httpx.get(f"{url}/sum", timeout=real_grid.PATIENCE_S).text.strip()
    assert len(set(pages)) == 2  # nodes


def test_a_browser_shows_the_page_of_a_node(koalad: Any, tmp_path: Path) -> None:
    program = need("chromium")
    koalad.idle()
    job = koalad.submit(real_grid.sh(1, SERVER, cluster=SLURM))
    koalad.until(lambda: koalad.job(job)["state"] in ("running", "failed"))
    with koalad.grid.forward(job, 18473) as forwarding:
        host, port = forwarding.address
        url = f"http://{host}:{port}/"
        koalad.until(lambda: answer_of(url))
        command = [program, *BROWSER, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", url]
        shown = subprocess.run(command, check=True, capture_output=True, timeout=real_grid.PATIENCE_S)
        assert b"<h1>rank 0 on" in shown.stdout


def answer_of(url: str) -> str:
    """The page; empty while nothing listens there."""
    try:
        return httpx.get(url, timeout=30).text
    except httpx.TransportError:
        return ""


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def start(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Starts a koalad with a `stream_timeout`, over one cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made: list[Any] = []

    def starts(stream_timeout: str) -> Any:
        made.append(real_grid.Koalad(testgrid, tmp_path, {SLURM: {}}, stream_timeout=stream_timeout))
        return made[0]

    yield starts
    for each in made:
        each.stop()


def cut(testgrid: Any) -> AbstractContextManager[None]:
    """Nothing from outside reaches the head node's SSH server; no connection is reported."""
    return input_rule(testgrid.containers, SLURM, *CUT)


def echoing(koalad: Any) -> int:
    """Start a job with the echo server, and wait until it listens."""
    koalad.idle()
    component = {"processors": 1, "executable": "python3", "arguments": ["-c", ECHO], "cluster": SLURM}
    job: int = koalad.submit(component)

    def answers() -> bool:
        if koalad.job(job)["state"] != "running":
            return False
        with koalad.grid.forward(job, PORT) as forwarding, socket.create_connection(forwarding.address) as plug:
            try:
                plug.settimeout(real_grid.PATIENCE_S)
                plug.sendall(b"x")
                return plug.recv(1) == b"x"
            except ConnectionResetError:
                return False

    koalad.until(answers)
    return job


def test_no_byte_is_lost_or_repeated_while_the_network_is_cut(start: Callable[[str], Any], testgrid: Any) -> None:
    koalad = start("10m")
    job = echoing(koalad)
    failed: list[Exception] = []
    forwarded = koalad.grid.forward(job, PORT, failed=failed.append)
    with forwarded as forwarding, socket.create_connection(forwarding.address) as plug:
        plug.settimeout(2 * real_grid.PATIENCE_S)
        echoed = Echoed(plug, 32_000)
        echoed.receive()
        with cut(testgrid):
            koalad.until(lambda: connection_of(koalad) != "up")
        koalad.until(lambda: connection_of(koalad) == "up")
        echoed.receive()
        assert echoed.comes_back_whole()
    assert failed == []


@pytest.mark.slow
def test_both_ends_are_reset_if_the_network_is_cut_for_too_long(start: Callable[[str], Any], testgrid: Any) -> None:
    koalad = start("4s")
    job = echoing(koalad)
    failed: list[Exception] = []
    forwarded = koalad.grid.forward(job, PORT, failed=failed.append)
    with forwarded as forwarding, socket.create_connection(forwarding.address) as plug:
        plug.settimeout(real_grid.PATIENCE_S)
        plug.sendall(b"x")
        assert plug.recv(1) == b"x"
        with cut(testgrid), pytest.raises(ConnectionResetError):
            plug.recv(1)
    (error,) = failed
    assert "has not answered in time" in str(error)
    koalad.until(lambda: connection_of(koalad) == "up" and b"reset" in b"".join(koalad.grid.output(job)))


def connection_of(koalad: Any) -> str:
    (found,) = koalad.grid.clusters()
    return str(found["connection"])

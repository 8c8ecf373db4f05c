"""`koala forward` to a web server on a compute node of a real cluster, read by an HTTP client and by a browser."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import real_grid

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
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = real_grid.Koalad(testgrid, tmp_path, {SLURM: {}, GRID_ENGINE: {}})
    yield made
    made.stop()


@pytest.mark.parametrize("cluster", [SLURM, GRID_ENGINE])
def test_web_servers_on_two_nodes_are_read_from_here(koalad: Any, cluster: str, tmp_path: Path) -> None:
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
            if rank == 0 and shutil.which("chromium"):
                command = [*BROWSER, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", f"{url}/"]
                shown = subprocess.run(command, check=True, capture_output=True, timeout=real_grid.PATIENCE_S)
                assert b"<h1>rank 0 on" in shown.stdout
    assert len(set(pages)) == 2  # nodes


def answer_of(url: str) -> str:
    """The page; empty while nothing listens there."""
    try:
        return httpx.get(url, timeout=30).text
    except httpx.TransportError:
        return ""


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

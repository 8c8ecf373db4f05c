"""Metrics of a real koalad: read from its socket, and by a real Prometheus that runs the dashboard's queries."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import live
import programs
import pytest
import yaml
from scrapes import metrics_of, value

from koalapy.common.data import data_path

TOKEN = "a7b1c9d2e3f4a7b1c9d2e3f4"
PATIENCE_S = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, int]]:
    """A koalad with metrics on a port, on which a job has ended; and the port."""
    port = free_port()
    koala = live.Koala(tmp_path_factory.mktemp("m"), metrics={"port": port, "token": TOKEN})
    koala.grid_file.chmod(0o600)
    assert koala("up").status == 0
    koala.known()
    koala.end(koala.submit(live.sh("sleep 1", 2, cluster="delft"), live.sh("true", cluster="leiden")))
    yield koala, port
    koala.stop()


def scraped(port: int, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}/metrics", headers=headers, timeout=PATIENCE_S)


def test_the_socket_reports_what_koalad_knows(metered: tuple[Any, int]) -> None:
    koala, _ = metered
    text = metrics_of(koala)
    assert value(text, "koala_jobs_ended_total", state="done") == 1
    assert value(text, "koala_cluster_capacity_processors", cluster="leiden") == 2
    assert value(text, "koala_processor_seconds_total", cluster="delft", kind="run") > 0
    assert value(text, "koala_attempts_ended_total", cluster="leiden", kind="run") == 1
    assert value(text, "koala_jobs", state="waiting") == 0
    assert "job=" not in text


def test_the_port_is_for_those_who_send_the_token(metered: tuple[Any, int]) -> None:
    _, port = metered
    assert scraped(port).status_code == 401
    assert scraped(port, Authorization=f"Bearer {TOKEN}x").status_code == 401
    assert "koala_info" in scraped(port, Authorization=f"Bearer {TOKEN}").text


@pytest.mark.parametrize("way", ["/v1/status", "/v1/shutdown", "/metrics/../v1/jobs", "/"])
def test_the_port_has_nothing_but_metrics(metered: tuple[Any, int], way: str) -> None:
    _, port = metered
    for method in ("GET", "POST"):
        url = httpx.URL(f"http://127.0.0.1:{port}").copy_with(raw_path=way.encode())
        answer = httpx.request(method, url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE_S)
        assert answer.status_code == 404


def test_how_many_series_there_are_does_not_depend_on_jobs(metered: tuple[Any, int]) -> None:
    koala, port = metered

    def series() -> set[str]:
        text = scraped(port, Authorization=f"Bearer {TOKEN}").text
        return {line.rsplit(" ", 1)[0] for line in text.splitlines() if line and not line.startswith("#")}

    before = series()
    koala.end(koala.submit(live.sh("false", cluster="amsterdam"), name="another"))
    assert series() == before


def test_a_token_in_a_file_that_others_can_read_is_refused(place: Path) -> None:
    koala = live.Koala(place, metrics={"port": free_port(), "token": TOKEN})
    koala.grid_file.chmod(0o644)
    koala("up").refused(2, "others than you may read it", "chmod 600")


def test_a_port_that_is_taken_is_reported(place: Path, metered: tuple[Any, int]) -> None:
    koala = live.Koala(place, metrics={"port": metered[1], "token": TOKEN})
    koala.grid_file.chmod(0o600)
    koala("up").refused(1, f"Port {metered[1]}", "`metrics`")


def test_promtool_finds_nothing_wrong_with_the_metrics(metered: tuple[Any, int]) -> None:
    promtool = programs.need("promtool")
    text = scraped(metered[1], Authorization=f"Bearer {TOKEN}").text
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@contextmanager
def prometheus(directory: Path, port: int) -> Iterator[httpx.Client]:
    """A real one that scrapes the port once a second; a client of its HTTP API."""
    program, own = programs.need("prometheus"), free_port()
    scrape = {
        "job_name": "koala",
        "scrape_interval": "1s",
        "authorization": {"credentials": TOKEN},
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }
    config = directory / "prometheus.yml"
    config.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{own}", "--log.level=error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{own}", timeout=PATIENCE_S) as client:
                yield client
        finally:
            process.terminate()


def answered(client: httpx.Client, query: str) -> list[Any]:
    """Return the series that Prometheus finds once it has scraped long enough; empty if there is none."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            answer = client.get("/api/v1/query", params={"query": query}).json()
        except (httpx.TransportError, json.JSONDecodeError):
            answer = {"status": "starting"}
        assert answer["status"] != "error", (query, answer)
        if answer["status"] == "success" and answer["data"]["result"]:
            return list(answer["data"]["result"])
        time.sleep(0.2)
    return []


def dashboard_queries() -> list[str]:
    board = json.loads((data_path("configs") / "grafana" / "koala.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_every_query_of_the_dashboard_finds_something(metered: tuple[Any, int], tmp_path: Path) -> None:
    with prometheus(tmp_path, metered[1]) as client:
        assert answered(client, 'up{job="koala"} == 1')
        for query in dashboard_queries():
            found = answered(client, query.replace("$__rate_interval", "1m"))
            assert found, query
        assert not client.get("/api/v1/query", params={"query": "koala_no_such_metric"}).json()["data"]["result"]

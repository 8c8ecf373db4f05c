"""The app of a koalad that stands by: its status, its shutdown, and the refusal of all else."""

import asyncio
from typing import Any

import httpx
import pytest

from koalapy.answers.koalad import KoaladFacts
from koalapy.api import openapi
from koalapy.api.standby import create_standby_app
from koalapy.model.change import Snapshot
from koalapy.model.errors import Reason
from koalapy.model.identity import InstanceId
from koalapy.model.units import Instant
from koalapy.views.recovery import Recovery

FACTS: KoaladFacts = {
    "pid": 7,
    "grid": "vu",
    "grid_file": "/home/me/grid.yaml",
    "grid_file_changed": False,
    "state": "standing_by",
}


@pytest.fixture
def shutdowns() -> list[bool]:
    return []


class Client:
    """Sends requests to an app without a server."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://koalad") as client:
                return await client.request(method, path, json=body)

        return asyncio.run(request())


@pytest.fixture
def client(shutdowns: list[bool]) -> Client:
    holder = Reason("store_locked", "transient", "Another koalad has the store.")
    nothing = Recovery(Instant(1), Snapshot(instance=InstanceId(""))).recovered
    return Client(create_standby_app(lambda: holder, lambda: FACTS, shutdowns.append, nothing))


def test_its_status_names_the_koalad_that_has_the_store(client: Client) -> None:
    answer = client.request("GET", "/v1/status")
    assert answer.status_code == 200
    openapi.check(answer.json())
    assert "Another koalad has the store." in answer.json()["troubles"][0]


def test_it_can_be_shut_down_but_cancels_no_job(client: Client, shutdowns: list[bool]) -> None:
    assert client.request("POST", "/v1/shutdown", {"cancel": True}).status_code == 503
    assert shutdowns == []
    answer = client.request("POST", "/v1/shutdown")
    openapi.check(answer.json())
    assert shutdowns == [False]


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("DELETE", "/v1/nonsense")])
def test_it_refuses_all_else(client: Client, method: str, path: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 503
    openapi.check(answer.json())
    assert answer.json()["error"]["code"] == "standing_by"

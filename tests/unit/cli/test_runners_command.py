"""`koala runners` for a person: each sweep in a line, what stands still or is left out, and what was predicted."""

from collections.abc import Collection
from typing import Any, Self, cast

import pytest
from typer.testing import CliRunner

from koalapy.answers.sweeps import Runner, RunnerCluster, RunnersAnswer
from koalapy.api import openapi
from koalapy.cli import runners
from koalapy.cli.main import app
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.intervals import Intervals
from koalapy.model.learned import Check, Learned
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import MINUTE, SECOND, Instant
from koalapy.scavenging.prediction import Prediction
from koalapy.views.sweeps import forecast, runner

NOW = Instant(1_700_000_000 * SECOND)


class Koalad:
    """A koalad with these answers."""

    def __init__(self, document: RunnersAnswer) -> None:
        self._document = document

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def admission(self, states: Collection[str]) -> RunnersAnswer:
        return self._document


def place(cluster: str, **numbers: Any) -> RunnerCluster:
    nothing = dict.fromkeys(("nodes", "processors", "starting", "stopping", "suspended", "assigned", "reclaimed"), 0)
    return cast(RunnerCluster, {"cluster": cluster, **nothing, "running": 0, "black_holes": [], **numbers})


def report() -> Runner:
    request = Request(name="scan", components=(ComponentRequest(processors=1, executable="x"),))
    sweep = Sweep(
        id=JobId(7), owner="me", request=request, state=JobState.RUNNING, position=1, submitted_at=NOW,
        count=100, done=Intervals(((1, 40),)), failed=Intervals(((3, 4),)), preempted=5, charged=450 * MINUTE,
        reason=Reason("waits", "transient", "Nothing moves.", ""),
    )  # fmt: skip
    clusters = [
        place("alpha", nodes=3, suspended=1, running=6, assigned=8, black_holes=["n1", "n2"]),
        place("beta", starting=2),
        place("gamma", reclaimed=1),
    ]
    return {**runner(sweep, (), {}, 12.4, NOW), "clusters": clusters, "running": 6, "ends_at": None}


def reported(monkeypatch: pytest.MonkeyPatch, prediction: Prediction, *, idle: bool = False) -> list[str]:
    document = cast(
        RunnersAnswer,
        {
            "schema": "koala.runners/1",
            "runners": [] if idle else [report()],
            "admission": forecast(prediction, NOW),
        },
    )
    openapi.check(document)
    monkeypatch.setattr(runners, "Grid", lambda grid: Koalad(document))
    answer = CliRunner().invoke(app, ["runners"])
    assert answer.exit_code == 0, answer.output
    return answer.stdout.splitlines()


def test_a_sweep_is_a_line_and_what_is_out_of_order_another(monkeypatch: pytest.MonkeyPatch) -> None:
    headings, line, *more = reported(monkeypatch, Prediction())
    assert headings.split("  ")[-1] == "NODES"
    assert line.split() == [
        "7",
        "scan",
        "running",
        "40",
        "100",
        "6",
        "2",
        "5",
        "12",
        "-",
        "7.50",
        "alpha:3,",
        "beta:0+2",
    ]
    assert more == [
        "7: Nothing moves.",
        "7: excluded on alpha: n1, n2",
        "7: suspended by alpha: 1 of its 3 nodes",
        "sweeps can expect 0.0 nodes in the next hour",
    ]


def test_where_there_was_no_sweep_nothing_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(reported(monkeypatch, Prediction(), idle=True)) == 1


def test_the_prediction_of_the_last_hour_is_shown_beside_what_came_true(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Check(NOW, 9.0, 3.0), Check(NOW, 5.0, 4.0)
    prediction = Prediction(learned=Learned(checks=checks))
    prediction.observe(NOW, "alpha", 7)
    assert reported(monkeypatch, prediction)[-1] == (
        "sweeps can expect 7.0 nodes in the next hour; "
        "of the last hour 5.0 were predicted, 4.0 came true (mean error 3.5)"
    )

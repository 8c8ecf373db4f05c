"""A KCM on a lease takes from a borrower's koalad what concerns isolated programs, whatever else it receives."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters import kcm
from koalapy_adapters.allocation import client, jobs, journal
from koalapy_adapters.clock import SECOND
from koalapy_adapters.errors import RequestError
from koalapy_adapters.kcm import confinement
from koalapy_adapters.kcm.execution.queue_requests import requester
from koalapy_adapters.kcm.session import KcmSession, Serve
from koalapy_adapters.kcm.state.actions import Prepare, Send
from koalapy_adapters.messages import files, koalad, streams
from koalapy_adapters.messages.kcm import Welcome
from koalapy_adapters.messages.koalad import ClusterConfig, Hello, Submit

T0 = 1_000 * SECOND
TAG = "kabcde000000001"
OF_LENDER = {"name": "pilot~9", "batch": "allocation", "python": "python3.9", "shared": ".koala", "relay": "files"}
LEASE = confinement.read(json.dumps(OF_LENDER))
PROGRAM = {"executable": "a.out", "arguments": [], "grace": 2.0}
WELCOME = Welcome(1, "0", T0, "3.11", "node", "1.0", [], None)


def test_the_cluster_is_as_its_lender_describes_it() -> None:
    asked = ClusterConfig(
        "lyon~3", "slurm", python="./evil", shared="/home/lender", setup=["./evil"], native=["--wrap=evil"],
        drmaa="/tmp/evil.so", relay_network=["0.0.0.0/0"], launchers_environment="x", grace=9.0,
    )  # fmt: skip
    found = LEASE.configured(asked, "abcde")
    shared = os.path.abspath(".koala")
    assert found == LEASE.config._replace(name="lyon~3", shared=shared, grace=9.0)
    assert (found.batch, found.python, found.relay, found.setup, found.native) == (
        "allocation",
        "python3.9",
        "files",
        [],
        [],
    )


@pytest.mark.parametrize(("name", "instance"), [("../up", "abcde"), ("", "abcde"), ("a", "bin"), ("a", "allocations")])
def test_a_name_that_leads_elsewhere_is_refused(name: str, instance: str) -> None:
    with pytest.raises(RequestError, match="is no name"):
        LEASE.configured(ClusterConfig(name, "allocation"), instance)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Submit(1, TAG, {"native": ['command=["evil"]']}, PROGRAM), "`native`"),
        (Submit(1, TAG, {"probe": {"addresses": [], "port": 0}}, PROGRAM), "`probe`"),
        (Submit(1, TAG, {"gpus": 1}, PROGRAM), "`gpus`"),
        (Submit(1, TAG, {}, {**PROGRAM, "sweep": {"sweep": 1}}), "`sweep`"),
        (streams.OpenStream(TAG, 1, 0, 0, SECOND, "evil"), "a command of another site"),
        (koalad.Diagnose(1, "shared"), "Diagnose"),
        (koalad.TrustLauncher(TAG), "TrustLauncher"),
        (koalad.FeedSweep(1, [[1, 2]]), "FeedSweep"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_could_start_a_process_that_is_not_isolated_is_refused(message: Any, words: str) -> None:
    with pytest.raises(RequestError, match="On a lease of another site") as refused:
        LEASE.admit(message)
    assert words in refused.value.message


@pytest.mark.parametrize(
    "message",
    [Submit(1, TAG, {}, {**PROGRAM, "sweep": {"sweep": 1}}), koalad.TrustLauncher(TAG), koalad.FeedSweep(1, [[1, 2]])],
    ids=lambda each: type(each).__name__,
)
def test_orders_about_launchers_are_taken_of_a_lender_that_isolates_nothing(message: Any) -> None:
    open_lease = confinement.read(json.dumps({**OF_LENDER, "launchers": True}))
    assert open_lease.config == LEASE.config
    assert open_lease.admit(message) == message
    with pytest.raises(RequestError, match="`native`"):
        open_lease.admit(Submit(1, TAG, {"native": ["x"]}, PROGRAM))


@pytest.mark.parametrize("launchers", [False, "yes", 1, None], ids=repr)
def test_launchers_are_taken_by_a_clear_word_only(launchers: object) -> None:
    assert not confinement.read(json.dumps({**OF_LENDER, "launchers": launchers})).launchers


def test_of_a_batch_job_only_known_wishes_are_taken() -> None:
    batch = {"processors": 2, "walltime_s": 60, "tag": "x", "directory": "/", "command": ["evil"], "account": "a"}
    admitted = LEASE.admit(Submit(1, TAG, batch, PROGRAM))
    assert admitted == Submit(1, TAG, {"processors": 2, "walltime_s": 60}, PROGRAM)


def opened(lease: confinement.Confinement | None) -> KcmSession:
    session = KcmSession(T0, lease=lease)
    session.received(T0, Hello(1, "0", 7, "abcde", T0, {}))
    session.opened(T0, ClusterConfig("here", "allocation"), False, WELCOME, True)
    return session


@pytest.mark.parametrize("lease", [LEASE, None], ids=["on a lease", "elsewhere"])
def test_a_session_obeys_no_order_out_of_bounds_and_answers_it(lease: confinement.Confinement | None) -> None:
    session = opened(lease)
    order = Submit(4, TAG, {"processors": 1, "native": ["x"]}, PROGRAM)
    actions = session.received(T0, order)
    assert any(isinstance(each, Prepare) for each in actions) is (lease is None)
    if lease is not None:
        (refused,) = [each.message for each in actions if isinstance(each, Send)]
        assert (refused.id, refused.error["code"]) == (4, "not_on_a_lease")
        (reset,) = session.received(T0, streams.OpenStream(TAG, 1, 0, 0, SECOND, "evil"))
        assert (reset.message.stream, reset.message.code) == (1, "not_on_a_lease")
        assert session.received(T0, koalad.TrustLauncher(TAG)) == []
    stat = files.Stat(9, TAG, ["a"])
    assert session.received(T0, stat) == [Serve(stat)]


@pytest.mark.parametrize("argv", [["{"], ["{}"], ["[]"], [json.dumps(OF_LENDER), "more"]])
def test_a_kcm_does_not_start_with_a_description_that_is_none(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kcm.main(argv) == 2
    assert "a lender's description" in capsys.readouterr().err


def test_no_queue_is_asked_or_started_where_a_batch_id_points(tmp_path: Path) -> None:
    """A program writes a queue in its directory, with a job that waits; its koalad names it in a batch id."""
    place, made = tmp_path / "allocations", tmp_path / "abcde" / TAG / "work" / "slurm-2"
    place.mkdir()
    made.mkdir(parents=True)
    waiting = jobs.Job(1, TAG, str(made), str(made / "out"), ["touch", str(tmp_path / "evil")], 1, 60, 0.0)
    written = journal.Journal(str(made))
    written.write([waiting], {})
    written.close()
    before = sorted(made.iterdir())
    asked = client.Client(str(place), ["false"], {"SLURM_JOB_ID": "2"})
    for batch_id in (f"1@{made}", f"1@{place}/../abcde/{TAG}/work/slurm-2", f"1@{place}/.."):
        assert asked.run(["status", batch_id]) == {"jobs": []}
        assert asked.run(["cancel", batch_id]) == {}
    run = requester(["false"], str(place), None)
    ran = run([f"{made.parent}/queue", "status", f"1@{made}"], 1.0, None)
    assert json.loads(ran.result.stdout) == {"jobs": []}
    assert sorted(made.iterdir()) == before

"""OpenPBS's dialect on output captured from a real 23.06, and on such output changed in one respect."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import pbs
from koalapy_adapters.batch.protocol import BatchSettings, Host, JobStatus
from koalapy_adapters.errors import (
    BatchError,
    ClusterError,
    Result,
    TransientError,
    UnreadableError,
)

SAMPLES = Path(__file__).parents[1] / "samples" / "pbs"
CLUSTER = BatchSettings(user="kuser")
TAG = "kaaaaa000000001"
DOWN = "Connection refused\nqstat: cannot connect to server pbs-head (errno=111)\n"
NO_HISTORY = "qstat: PBS is not configured to maintain job history\n"


def said(name: str, exit_status: int = 0, stderr: str = "") -> Result:
    return Result(["qstat"], exit_status, (SAMPLES / name).read_text(), stderr)


def printed(text: str, exit_status: int = 0, stderr: str = "") -> Result:
    return Result(["qstat"], exit_status, text, stderr)


def one_job(sample: str, **changes: Any) -> Result:
    """The job of a sample, some of its attributes changed, or taken out by None."""
    answer = json.loads((SAMPLES / sample).read_text())
    (fields,) = answer["Jobs"].values()
    fields.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del fields[name]
    return printed(json.dumps(answer))


def status(sample: str, **changes: Any) -> JobStatus:
    (found,) = pbs.parse_status(one_job(sample, **changes)).values()
    return found


# ---- describe --------------------------------------------------------------------------------------------------------


def test_describe_gives_the_version_and_whether_history_is_kept() -> None:
    assert pbs.parse_describe(said("qstat-B-f.json")) == ("23.06.06", ["accounting"])
    off = said("qstat-B-f.json").stdout.replace('"job_history_enable":\t"True"', '"job_history_enable":\t"False"')
    assert pbs.parse_describe(printed(off)) == ("23.06.06", [])


def test_torque_is_recognized() -> None:
    with pytest.raises(ClusterError) as caught:
        pbs.parse_describe(printed("", 2, "qstat: invalid option -- 'F'\nusage: qstat [-f [-1]] [-W site_specific]"))
    assert "torque" in caught.value.advice


def test_a_server_without_a_version_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        pbs.parse_describe(said("qstat-empty.json"))


# ---- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letter", "state"),
    [*(dict.fromkeys("QTWM", "queued").items()), ("H", "held"), *(dict.fromkeys("REB", "running").items())],
)
def test_states(letter: str, state: str) -> None:
    assert status("job-queued-busy.json", job_state=letter).state == state


@pytest.mark.parametrize("letter", ["S", "U"])
def test_suspended_by_the_scheduler_or_by_the_owner_of_the_desk(letter: str) -> None:
    assert status("job-running.json", job_state=letter).state == "suspended"


@pytest.mark.parametrize("letter", ["", "?", "QQ", None, 5])
def test_an_unknown_state_is_named(letter: object) -> None:
    with pytest.raises(UnreadableError, match="in a state named"):
        status("job-queued-busy.json", job_state=letter)


@pytest.mark.parametrize(
    ("reported", "substate", "ending", "exit_status"),
    [
        (0, 92, "exited", 0),
        (3, 93, "exited", 3),
        (127, 93, "exited", 127),
        (254, 93, "exited", 254),
        (137, 93, "killed", 137),
        (265, 93, "killed", 137),
        (271, 91, "cancelled", 143),
        (143, 91, "cancelled", 143),
        (-29, 93, "walltime", None),
        (-28, 93, "walltime", None),
        (-27, 93, "memory", None),
        (-26, 93, "memory", None),
        (-24, 93, "killed", None),
        (-2, 93, "lost", None),
        (-10, 93, "lost", None),
        ("3", 93, "exited", 3),
        (None, 91, "cancelled", None),
        (None, 92, "lost", None),
    ],
)
def test_how_jobs_ended(reported: object, substate: int, ending: str, exit_status: int | None) -> None:
    found = status("job-failed-exit3.json", Exit_status=reported, substate=substate)
    assert (found.state, found.ending, found.exit_status) == ("ended", ending, exit_status)


def test_a_job_that_could_not_be_started_has_its_reason() -> None:
    found = status("job-failed-exit3.json", Exit_status=-2, comment=None)
    assert "home directory" in found.reason
    commented = status("job-failed-exit3.json", Exit_status=-2)
    assert commented.reason.startswith(found.reason)
    assert "Job run at" in commented.reason


@pytest.mark.parametrize("reported", [-99, True, 1.5, "soon", [1]])
def test_an_unknown_exit_status_is_unreadable(reported: object) -> None:
    with pytest.raises(UnreadableError):
        status("job-failed-exit3.json", Exit_status=reported)


def test_restarts() -> None:
    assert [status("job-running.json", run_count=count).restarts for count in (None, 0, 1, 3)] == [0, 0, 0, 2]


def test_an_array_does_not_show_how_its_subjobs_ended() -> None:
    (parent,) = pbs.parse_status(said("array-finished.json")).values()
    assert (parent.ending, parent.exit_status) == ("exited", None)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"comment": "Can Never Run: Not enough total nodes available"}, "can_never_run"),
        ({"comment": "Not Running: Not enough free nodes available"}, ""),
        ({"comment": "Not Running: User has reached queue workq running job limit."}, ""),
        ({"job_state": "H", "Hold_Types": "u", "comment": None}, ""),
        ({"job_state": "H", "Hold_Types": "s", "comment": None}, "held_by_site"),
        ({"job_state": "H", "Hold_Types": "uo", "comment": None}, "held_by_site"),
        ({"job_state": "H", "Hold_Types": "s", "comment": None, "depend": "afterok:1.pbs-head"}, ""),
        (
            {"job_state": "H", "Hold_Types": "s", "comment": "job held, too many failed attempts to run"},
            "too_many_failed_starts",
        ),
        ({"job_state": "R", "comment": "Can Never Run: it does"}, ""),
    ],
)
def test_what_cannot_clear(changes: dict[str, Any], code: str) -> None:
    assert status("job-queued-busy.json", **changes).stuck == code


# ---- status, find, history, cancel -----------------------------------------------------------------------------------


def test_jobs_that_are_no_longer_listed_have_no_status() -> None:
    both = said("err-qstat-two-one-unknown", 153, "qstat: Unknown Job Id 99999.pbs-head\n")
    assert list(pbs.parse_status(both)) == ["28.pbs-head"]
    gone = "qstat: 10.pbs-head Job has finished, use -x or -H to obtain historical job information\n"
    assert pbs.parse_status(said("err-qstat-finished-no-x.json", 35, gone)) == {}
    assert pbs.parse_status(printed("", 153, "qstat: Unknown Job Id 99999.pbs-head\n")) == {}


def test_jobs_that_are_no_longer_listed_do_not_hide_another_failure() -> None:
    with pytest.raises(TransientError):
        pbs.parse_status(printed("", 153, "qstat: Unknown Job Id 99999.pbs-head\n" + DOWN))


def test_retyped_variables_do_no_harm() -> None:
    """007 became 7, 1e5 became 100000, true a boolean: of variables nothing is read."""
    assert status("job-odd-variables.json").name == "odd"


def test_variables_that_make_no_json_do_no_harm() -> None:
    """As PBS Pro 19 wrote them."""
    broken = said("job-odd-variables.json").stdout.replace('"B":\t7,', '"B":\t007,\n\t\t\t\t"Z":\t"a"b\\c",')
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(broken)
    assert [found.name for found in pbs.parse_status(printed(broken)).values()] == ["odd"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_output_that_is_cut_off_is_unreadable(share: float) -> None:
    whole = said("qstat-x-all.json").stdout
    with pytest.raises(UnreadableError):
        pbs.parse_status(printed(whole[: int(len(whole) * share)]))


def test_find_gives_the_one_that_lives_else_the_latest() -> None:
    answer = json.loads(said("job-finished-ok.json").stdout)
    (ended,) = answer["Jobs"].values()
    ended["Job_Name"] = TAG
    answer["Jobs"] = {"9.pbs-head": {**ended, "job_state": "R"}, "10.pbs-head": ended, "100.pbs-head": ended}
    found = pbs.parse_find(printed(json.dumps(answer)), TAG)
    assert found is not None
    assert (found.batch_id, found.state) == ("9.pbs-head", "running")
    del answer["Jobs"]["9.pbs-head"]
    found = pbs.parse_find(printed(json.dumps(answer)), TAG)
    assert found is not None
    assert found.batch_id == "100.pbs-head"
    assert pbs.parse_find(said("qstat-empty.json"), TAG) is None


def test_history_by_id_is_of_that_tag_only() -> None:
    assert pbs.history_argv(CLUSTER, TAG, "11.pbs-head") == ["qstat", "-x", "-f", "-F", "json", "11.pbs-head"]
    found = pbs.parse_history(one_job("job-failed-exit3.json", Job_Name=TAG), TAG)
    assert found is not None
    assert (found.ending, found.exit_status) == ("exited", 3)
    assert pbs.parse_history(said("job-failed-exit3.json"), TAG) is None


def test_history_by_tag_never_asks_for_all_of_it() -> None:
    argv = pbs.history_argv(CLUSTER, TAG, "")
    assert argv is not None
    assert argv[-2:] == [TAG, "kuser"]
    assert pbs.parse_history(Result(argv, 0, "", ""), TAG) is None
    with pytest.raises(TransientError):
        pbs.parse_history(Result(argv, 162, "", DOWN), TAG)
    with pytest.raises(ClusterError, match="qstat was not found"):
        pbs.parse_history(Result(argv, 127, "", "qselect: 1: qselect: not found"), TAG)


def test_a_server_without_history_has_no_accounting() -> None:
    assert pbs.parse_history(printed("", 0, NO_HISTORY), TAG) is None


@pytest.mark.parametrize(
    "words",
    [
        "qdel: Unknown Job Id 99999.pbs-head",
        "qdel: Job has finished 10.pbs-head",
        "qdel: Request invalid for state of job 10.pbs-head",
        "qdel: Delete already in progress 10.pbs-head\nqdel: Unknown Job Id 9.pbs-head",
    ],
)
def test_cancelling_what_has_ended_is_no_error(words: str) -> None:
    pbs.parse_cancel(printed("", 35, words))


@pytest.mark.parametrize(
    ("result", "error", "code"),
    [
        (printed("", 162, DOWN), TransientError, "batch_system_unreachable"),
        (printed("", 222, "qdel: Server could not connect to MOM 5.pbs-head"), TransientError, "node_unreachable"),
        (printed("", 159, "qdel: Unauthorized Request  5.pbs-head"), ClusterError, "not_permitted"),
        (printed("", None, ""), TransientError, "no_answer"),  # type: ignore[arg-type]
        (printed("", 1, ""), ClusterError, "unknown_words"),
        (printed("", 127, "env: 'qdel': No such file or directory"), ClusterError, "command_missing"),
    ],
)
def test_a_cancel_that_reached_nobody_is_one(result: Result, error: type[BatchError], code: str) -> None:
    with pytest.raises(error) as caught:
        pbs.parse_cancel(result)
    assert caught.value.code == code


# ---- inside a job ----------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The environment of a real job."""
    lines = (SAMPLES / "job-environment.job-output").read_text().splitlines()
    return {line.partition("=")[0]: line.partition("=")[2] for line in lines if re.match(r"\w+=", line)}


def test_hosts_come_from_the_host_file() -> None:
    files = {environment()["PBS_NODEFILE"]: "node02\nnode01\nnode02\n\n"}
    assert pbs.hosts(environment(), files.__getitem__) == [Host("node02", 2), Host("node01", 1)]
    assert pbs.batch_id(environment()) == "42.pbs-head"
    assert pbs.restarts(environment()) == 0


def test_without_a_host_file_it_is_no_job() -> None:
    with pytest.raises(UnreadableError):
        pbs.hosts({}, str)
    with pytest.raises(UnreadableError):
        pbs.hosts({"PBS_NODEFILE": "/x"}, lambda path: "no host\n")


def test_agents_of_other_nodes_are_started_over_a_bridge() -> None:
    command = ["python3", "-I", "-S", "/home/me/it's.pyz"]
    (launch,) = pbs.launch(environment(), ["node02", "node03"], [*command, "agent", "node02,node03"])
    assert launch.argv == [*command, "pbs-bridge", "node02,node03", *command, "agent", "node02,node03"]
    assert launch.hosts == ["node02", "node03"]


def test_a_job_of_a_dead_node_can_be_forgotten() -> None:
    assert pbs.forget_argv(["17.pbs-head"]) == ["qdel", "-W", "force", "17.pbs-head"]

"""A job's history in sentences: no kind of line that the engine writes is shown as a bare code word."""

from typing import Any

import pytest

from koalapy.cli.clean import attempt_in_words
from koalapy.model.header import Outcome
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, JobId
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import Instant
from koalapy.views.history import SENTENCES, sentence

AT = Instant(1_700_000_000_000_000)
ATTEMPT = {"component": 1, "attempt": 2, "cluster": "delft"}


def shown(kind: str, **details: Any) -> str:
    return sentence(History(job=JobId(7), at=AT, kind=kind, details=details))


def test_every_kind_of_line_has_its_sentence() -> None:
    assert set(SENTENCES) == set(HistoryKind)


def test_every_state_that_is_noted_is_a_kind() -> None:
    noted = {f"attempt_{state}" for state in AttemptState if state is not AttemptState.SUBMITTING}
    assert noted | {f"work_{state}" for state in JobState if state.final} <= set(HistoryKind)


@pytest.mark.parametrize("kind", sorted(SENTENCES))
@pytest.mark.parametrize("details", [{}, ATTEMPT, {**ATTEMPT, "message": "It was lost.", "code": "lost"}])
def test_every_sentence_is_one_with_and_without_details(kind: str, details: dict[str, Any]) -> None:
    """Lines of an earlier koalapy had fewer details."""
    text = shown(kind, **details)
    assert text[0].isupper()
    assert text.endswith(".")
    assert "\n" not in text
    assert "_" not in text


def test_a_pending_cancel_on_a_reachable_cluster_is_shown_with_its_reason() -> None:
    assert "is out of reach" in shown("cancel_pending", **ATTEMPT)
    stuck = shown("cancel_pending", **ATTEMPT, message="Grid Engine lists it still.")
    assert stuck == "Attempt 7.1.2 on delft cannot be ended now; its cancel is pending: Grid Engine lists it still."


@pytest.mark.parametrize("outcome", Outcome)
def test_no_outcome_is_a_code_word(outcome: Outcome) -> None:
    text = shown("work_stopping", outcome=str(outcome), message="delft: It was lost.")
    assert text.endswith(": delft: It was lost.")
    assert "(" not in text
    assert "_" not in text


@pytest.mark.parametrize(
    ("kind", "details", "text"),
    [
        ("job_claimed", {"clusters": {"0": "vu", "1": "delft"}}, "Claimed: component 0 on vu, component 1 on delft."),
        (
            "attempt_submitted",
            {**ATTEMPT, "batch_id": "41"},
            "Attempt 7.1.2 on delft is in the batch system, as job 41.",
        ),
        (
            "submission_failed",
            {**ATTEMPT, "message": "No such queue. Name another.", "output": "qsub: unknown queue"},
            "Attempt 7.1.2 on delft could not be submitted: No such queue. Name another. "
            "The batch system said: qsub: unknown queue",
        ),
        (
            "attempt_found",
            {**ATTEMPT, "batch_id": "41", "found": "at_barrier", "by": "wrapper", "was": "at_barrier"},
            "Attempt 7.1.2 on delft (batch job 41) was found again when koalad reconnected: it waits at its barrier "
            "(it was at barrier before).",
        ),
        (
            "attempt_found",
            {**ATTEMPT, "batch_id": "41", "found": "ended", "by": "batch system", "was": "running"},
            "Attempt 7.1.2 on delft (batch job 41) had ended before koalad reconnected, by its batch system.",
        ),
        (
            "attempt_ended",
            {**ATTEMPT, "batch_id": "41", "exit_status": 3, "code": "exit_status", "message": "It ended with 3."}
            | {"state": "failed", "started_at": AT, "ended_at": AT + 1_500_000},
            "Attempt 7.1.2 on delft (batch job 41) ended, with exit status 3 (started 2023-11-14T22:13:20.000000Z, "
            "ended 2023-11-14T22:13:21.500000Z): It ended with 3.",
        ),
        (
            "attempt_ended",
            {**ATTEMPT, "exit_status": 0, "state": "done"},
            "Attempt 7.1.2 on delft ended well, with exit status 0.",
        ),
        (
            "work_requeued",
            {"state": "waiting", "submission_failures": 1, "completion_failures": 2, "message": "vu: It was lost."},
            "It waits in the queue again, after 1 submission failure and 2 completion failures: vu: It was lost.",
        ),
        ("work_requeued", {"state": "held"}, "It is held."),
        ("work_submitted", {"owner": "mona", "type": "sweep"}, "Submitted by mona; it is a sweep."),
        ("sweep_admitted", {"runners": 1}, "It is admitted; no other sweep is active now."),
        ("sweep_admitted", {"runners": 3}, "It is admitted; 3 sweeps are active now."),
        (
            "sweep_suspended",
            {"cluster": "delft", "nodes": 2},
            "The batch system suspends 2 nodes on delft: nothing is lost, and the programs there pause.",
        ),
        ("work_stopping", {"outcome": "done", "sweep": True}, "All its parameters are done, and its Launchers end."),
        ("cancel_requested", {"force": True}, "Its user cancelled it, without waiting for unreachable clusters."),
        (
            "cluster_excluded",
            {**ATTEMPT, "until_at": AT},
            "The cluster delft is excluded for this job until 2023-11-14T22:13:20.000000Z.",
        ),
        ("attempt_ended", {"component": 1, "exit_status": 0}, "Component 1 ended well, with exit status 0."),
    ],
)  # fmt: skip
def test_the_sentence_of_a_line(kind: str, details: dict[str, Any], text: str) -> None:
    assert shown(kind, **details) == text


def test_a_kind_of_a_newer_koalapy_is_shown_by_its_name_and_details() -> None:
    assert shown("job_lent", site="delft", until=None) == "Job lent: site delft."
    assert shown("job_lent") == "Job lent."


def test_a_pilot_is_shown_by_its_own_number() -> None:
    line = History(job=JobId(FIRST_LAUNCHER + 8), at=AT, kind="attempt_running", details=ATTEMPT)
    assert sentence(line) == "Launcher p9 on delft runs."
    assert attempt_in_words("p9") == "Launcher p9"
    assert attempt_in_words("7.0.1") == "attempt 7.0.1"


def test_one_process_is_shown_in_the_singular() -> None:
    line = History(job=JobId(7), at=AT, kind="job_released", details={"processes": 1})
    assert sentence(line).endswith("are released, with 1 process.")

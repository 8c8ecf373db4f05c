"""Refusals are classified by the batch system's words, not by the user's, and reasons for waiting by their codes."""

import pytest
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.classify import batch_systems_words, failure
from koalapy_adapters.batch.slurm_errors import REFUSALS
from koalapy_adapters.errors import BatchError, Result
from refusal_words import FAILED, PBS, ROWS, refusal


@pytest.mark.parametrize(("batch", "words", "whose", "code"), ROWS, ids=[f"{b}-{w.strip()[-60:]}" for b, w, *_ in ROWS])
def test_a_refusal_is_classified_by_its_words(batch: str, words: str, whose: str, code: str) -> None:
    error = refusal(batch, words)
    assert (error.whose, error.code) == (whose, code)
    assert "Report it as a bug" not in error.advice
    assert error.message.endswith(".")
    assert error.advice.endswith(".")


@pytest.mark.parametrize(("words", "whose"), [(words, whose) for words, whose, _ in PBS], ids=[row[0] for row in PBS])
def test_torque_reads_the_words_of_the_pbs_family(words: str, whose: str) -> None:
    assert refusal("torque", words).whose == whose


@pytest.mark.parametrize(
    "words",
    [
        "Socket timed out on send/recv operation",
        "Unable to contact slurm controller (connect failure)",
        "Unexpected message received",
        "Zero Bytes were transmitted or received",
        "Connection timed out reading",
        "Connection forced closed by quiesce timeout",
        "Slurm backup controller in standby mode",
    ],
)
def test_a_list_that_slurm_does_not_give_is_asked_for_again(words: str) -> None:
    with pytest.raises(BatchError) as caught:
        slurm.parse_status(Result(["squeue"], 1, "", f"slurm_load_jobs error: {words}\n"))
    assert (caught.value.whose, caught.value.code) == ("transient", "batch_system_unreachable")


@pytest.mark.parametrize(
    "chosen",
    ["/scratch/invalid_partition/x", "'invalid partition'", '"munge encode"', "https://wiki.example/invalid/gres"],
)
def test_what_a_user_chose_decides_nothing(chosen: str) -> None:
    result = Result(["sbatch"], 1, "", f"sbatch: error: Batch job submission failed: {chosen}: odd\n")
    assert failure(result, REFUSALS).code == "unknown_words"


def test_the_path_of_the_script_is_left_out_whatever_signs_it_has() -> None:
    script = "/home/ann lee/invalid partition (gpu)/script"
    result = Result(["sbatch", script], 1, "", f"sbatch: error: Unable to open file {script}\n")
    assert batch_systems_words(result).strip() == "sbatch: error: Unable to open file"
    assert failure(result, REFUSALS).code == "script_missing"


def test_words_with_a_slash_or_an_apostrophe_are_kept() -> None:
    words = "user's size and/or time, accounting/QOS, the queue's limit: I/O error"
    assert batch_systems_words(Result([], 1, "", words)).strip() == words


def test_a_qos_or_account_or_queue_that_is_absent_is_to_be_set() -> None:
    for words in ("Invalid qos specification", "No partition specified or system default partition"):
        assert refusal("slurm", FAILED + words).advice.startswith("Set ")
    assert refusal("pbs", "qsub: No default queue specified").advice.startswith("Set ")


# ---- the reasons of waiting jobs -------------------------------------------------------------------------------------

REASONS = """\
1|PENDING|koala|cpu|4|0|0|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions|k1
2|PENDING|koala|cpu|4|0|0|ReqNodeNotAvail, UnavailableNodes:|k2
3|PENDING|koala|cpu|4|0|0|ReqNodeNotAvail, UnavailableNodes:d[001-032],f[001-024]|k3
4|PENDING|koala|cpu|4|0|1|launch failed requeued held|k4
5|PENDING|koala|cpu|4|0|0|ReqNodeNotAvail, May be reserved for other job|k5
7|REVOKED|koala|cpu|4|0|0|None|k7
8|SPECIAL_EXIT|koala|cpu|4|256|1|None|k8
9|OUT_OF_MEMORY|CORP\\ann|cpu|4|125|0|OutOfMemory|k9
10|NODE_FAIL|ann@corp.example|cpu|4|0|0|NodeDown|k10
11|PENDING|koala|cpu|4|0|0|QOSGrpNodeLimit|k11
12|PENDING|koala|cpu|4|0|0|BadConstraints|k12
13|PENDING|koala|cpu|4|0|0|user env retrieval failed requeued held|k13
14|RESV_DEL_HOLD|koala|cpu|4|0|0|Reservation lab7 was deleted|k14
15|PENDING|koala|cpu|4|0|0|Reservation lab7 was deleted|k15
16|RESV_DEL_HOLD|koala|cpu|4|0|0|None|k16
"""


def test_a_job_is_stuck_only_where_nothing_can_clear_its_reason() -> None:
    found = slurm.parse_status(Result(["squeue"], 0, REASONS, ""))
    assert {number: (each.state, each.stuck) for number, each in found.items() if each.state != "ended"} == {
        "1": ("queued", ""),
        "2": ("queued", ""),
        "3": ("queued", ""),
        "4": ("held", "launch_failed"),
        "5": ("queued", ""),
        "8": ("held", ""),
        "11": ("queued", ""),
        "12": ("queued", "bad_constraints"),
        "13": ("held", ""),
        "14": ("held", "reservation_deleted"),
        "15": ("queued", "reservation_deleted"),
        "16": ("held", "reservation_deleted"),
    }
    ended = {number: each.ending for number, each in found.items() if each.state == "ended"}
    assert ended == {"7": "lost", "9": "memory", "10": "lost"}

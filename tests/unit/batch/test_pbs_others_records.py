"""Other users' records, which may be of any text, hide neither our jobs nor the cluster: `tests/data/cases`."""

import json
from pathlib import Path

import pytest
from koalapy_adapters.batch import pbs, pbs_jobs, pbs_records
from koalapy_adapters.batch.pbs_jobs import Job
from koalapy_adapters.batch.pbs_limits import Use, room
from koalapy_adapters.batch.pbs_states import OPENPBS
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import Result, UnreadableError

CASES = Path(__file__).parents[2] / "data" / "cases"
TAG = "kj1a2b3c4d5e6f7"
OURS = """        "102.pbs1":{
            "Job_Name":"kj1a2b3c4d5e6f7",
            "Job_Owner":"koala@login1",
            "job_state":"R",
            "queue":"workq"
        }
"""


def printed(text: str) -> Result:
    return Result(["qstat", "-f", "-F", "json"], 0, text, "")


def case(name: str) -> Result:
    return printed(next(CASES.glob(f"{name}-*")).read_text())


def jobs(result: Result) -> dict[str, Job]:
    return {job.status.batch_id: job for job in pbs_jobs.everybodys(result, OPENPBS)}


@pytest.mark.parametrize("name", ["01", "10", "11"])
def test_the_tagged_job_is_read_whatever_another_users_record_has(name: str) -> None:
    found = jobs(case(name))
    assert found["102.pbs1"].status.name == TAG
    assert (found["102.pbs1"].status.state, found["102.pbs1"].user) == ("running", "koala")
    assert pbs.parse_status(case(name)).keys() == {"101.pbs1", "102.pbs1"}
    asked = pbs.parse_find(case(name), TAG)
    assert asked is not None
    assert asked.batch_id == "102.pbs1"


def test_the_other_users_job_is_read_too() -> None:
    other = jobs(case("01"))["101.pbs1"]
    assert (other.user, other.processors) == ("CORP\\mary", 4)


@pytest.mark.parametrize(
    "value",
    [
        r'"CORP\bob"',
        '"say "hi", she said"',
        "007",
        r'"a\,b"',
        r'"\u12"',
        '"{"',
        '"}"',
        '"\ttab"',
        r'"C:\"',
        '[1,"a\\,b"]',
    ],
)
def test_one_value_that_is_no_json_costs_at_most_its_own_record(value: str) -> None:
    other = f'        "101.pbs1":{{\n            "job_state":"R",\n            "comment":{value},\n' + (
        '            "Job_Owner":"mary@login1",\n            "Job_Name":"x"\n        },\n'
    )
    text = '{\n    "timestamp":1,\n    "Jobs":{\n' + other + OURS + "    }\n}\n"
    assert jobs(printed(text))["102.pbs1"].user == "koala"


def test_records_without_a_comma_between_them_and_two_documents_are_read() -> None:
    first = OURS.replace("102.", "103.")
    begin, end = '{\n    "Jobs":{\n', "    }\n}\n"
    assert jobs(printed(begin + first + OURS + end)).keys() == {"103.pbs1", "102.pbs1"}
    assert jobs(printed(begin + first + end + begin + OURS + end)).keys() == {"103.pbs1", "102.pbs1"}


@pytest.mark.parametrize("lines", [4, 8, 12, 20])
def test_a_list_that_is_cut_off_is_no_shorter_list(lines: int) -> None:
    text = case("01").stdout
    with pytest.raises(UnreadableError):
        jobs(printed("\n".join(text.splitlines()[:lines]) + "\n"))


def test_an_error_has_no_text_of_anybodys_job() -> None:
    text = case("01").stdout.replace('"egroup"', 'secret of mary "egroup"')
    with pytest.raises(UnreadableError) as caught:
        jobs(printed(text))
    said = str(caught.value) + str(caught.value.advice) + (caught.value.result.words if caught.value.result else "")
    assert "mary" not in said
    assert "line 1" in said


def test_a_job_that_is_left_out_is_looked_for_in_the_history() -> None:
    assert jobs(case("07")).keys() == {"102.pbs1"}
    assert pbs.parse_find(case("07"), "kother000000001") is None
    assert pbs.history_argv(BatchSettings("koala"), "kother000000001", "103.pbs1") is not None


@pytest.mark.parametrize(
    ("owner", "euser", "user"),
    [
        ("ann@corp.example@login1", "ann@corp.example", "ann@corp.example"),
        ("ann@corp.example@login1", "", "ann@corp.example"),
        ("CORP\\mary@login1", "", "CORP\\mary"),
        ("CORP\bob@login1", "", "CORP\\bob"),
        ("CORP\new@login1", "CORP\new", "CORP\\new"),
        ("koala", "", "koala"),
        ("koala@login1", "service", "koala"),
        ("", "koala", "koala"),
    ],
)
def test_the_user_is_what_precedes_the_last_at_sign(owner: str, euser: str, user: str) -> None:
    fields = {"Job_Owner": owner, "euser": euser, "job_state": "R", "Job_Name": TAG}
    (found,) = jobs(printed(json.dumps({"Jobs": {"102.pbs1": fields}}))).values()
    assert found.user == user


def test_own_jobs_are_own_for_a_user_with_an_at_sign() -> None:
    (found,) = jobs(case("08")).values()
    assert found.user == "ann@corp.example"


def test_all_values_of_a_repeated_limit_count() -> None:
    (queue,) = pbs_records.records(case("05"), "Queue")
    assert room(queue, "koala", Use(0, 0, 0, 0), case("05")) == 4
    assert room(queue, "koala", Use(1, 2, 1, 2), case("05")) == 0, "only one job at a time"
    assert room(queue, "tom", Use(4, 5, 4, 5), case("05")) == 10
    assert room(queue, "eve", Use(0, 0, 0, 998), case("05")) == 2


def test_vnodes_with_brackets_are_nodes() -> None:
    found = pbs_records.nodes(case("09"))
    assert [node.name for node in found] == ["big", "big[3]", "big[4]"]
    assert [node.fields.get("resources_available.ncpus") for node in found] == [None, 8, 8]

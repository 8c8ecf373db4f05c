"""Matchmaking from end to end: ads of embedded clusters, `koala match`, groups, and a first choice that is refused."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest

from koalapy.api import openapi

pytest.importorskip("classad2")

Document = dict[str, Any]
SLOTS = {"amsterdam": 4, "delft": 4, "leiden": 10, "porto": 8}
ATTRIBUTES = {
    "amsterdam": {"AverageSI": 1500},
    "delft": {"GlueHostBenchmarkSI00": 1000},
    "leiden": {"AverageSI": 2000, "RunTimeEnvironment": ["MPICH-G2"]},
    "porto": {"OpSys": "BSD", "Speed": 7},
}
GROUP = """\
components:
  - processors: 6
    executable: sh
    arguments: [-c, "echo $KOALA_SIZE"]
    requirements: OpSys == "Linux"
    rank: AverageSI
    spread: true
"""


@pytest.fixture(scope="module")
def matched() -> Iterator[Any]:
    """A grid whose best cluster refuses every job, since its queue does not exist."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as root:
        clusters: Document = {
            name: {
                "batch": "local", "connect": "local:", "slots": slots, "shared": f"{root}/{name}", "poll": "200ms",
                "max_age": "1m", "attributes": ATTRIBUTES[name],
            }
            for name, slots in SLOTS.items()
        }  # fmt: skip
        clusters["leiden"]["native"] = ["queue=closed"]
        made = live.Koala(Path(root), clusters, queue_after="1h")
        assert made("up").status == 0
        made.until(lambda: all(each["total"] for each in made("clusters", "--json").document["clusters"]))
        yield made
        made.stop()


def job_file(koala: Any, text: str, name: str = "job.yaml") -> Path:
    path = Path(koala.work / name)
    path.write_text(text)
    return path


def test_an_ad_has_what_the_grid_file_states_and_what_is_measured(matched: Any) -> None:
    document = matched("clusters", "--ads", "--json").document
    openapi.check(document)
    ads = {each["cluster"]: each["attributes"] for each in document["ads"]}
    assert ads["amsterdam"]["GlueHostBenchmarkSI00"] == ads["amsterdam"]["AverageSI"] == 1500
    assert ads["delft"]["AverageSI"] == 1000
    assert ads["leiden"]["RunTimeEnvironment"] == ["MPICH-G2"]
    assert (ads["amsterdam"]["OpSys"], ads["porto"]["OpSys"]) == ("Linux", "BSD")
    assert ads["leiden"]["TotalCPUs"] == ads["leiden"]["GlueCEStateFreeCPUs"] == 10
    assert ads["leiden"]["Architecture"]
    flavours = [each for each in ("mpich", "openmpi") if shutil.which(f"mpirun.{each}")]
    assert ads["leiden"].get("MPI", []) == flavours, "of Debian's packages"
    assert ads["leiden"]["Speed"] > 100
    assert ads["porto"]["Speed"] == 7, "from the grid file"
    assert ads["leiden"]["Memory"] == ads["leiden"]["GlueHostMainMemoryRAMSize"] > 100
    assert "AverageSI  " in matched("clusters", "--ads").out


def test_a_match_lists_groups_and_submits_nothing(matched: Any) -> None:
    path = job_file(matched, GROUP)
    lines = matched("match", path).out.splitlines()
    assert lines[:11] == [
        "[Groups with 1 CEs]", "[Rank=2000]", "leiden", "freeCPUs = 10", "", "[Groups with 2 CEs]", "[Rank=1000]",
        "amsterdam", "freeCPUs = 4", "delft", "freeCPUs = 4",
    ]  # fmt: skip
    assert lines[12].startswith("porto: its ad does not meet the requirements.")
    document = matched("match", path, "--json").document
    openapi.check(document)
    assert [each["rank"] for each in document["components"][0]["choices"]] == [2000, 1000]
    assert matched("jobs", "--json").document["jobs"] == []


def test_a_refused_first_choice_is_followed_by_a_group_at_once(matched: Any) -> None:
    answer = matched("submit", job_file(matched, GROUP), "--wait", "--json")
    assert answer.status == 0, answer
    identity = answer.document["id"]
    found = matched("show", identity, "--json").document
    openapi.check(found)
    job = found["job"]
    assert [(each["cluster"], each["processors"]) for each in job["components"]] == [("amsterdam", 4), ("delft", 2)]
    assert (job["submission_failures"], job["choice"]) == (0, 1)
    first, second = job["choices"]
    assert ([each["cluster"] for each in first["clusters"]], second["refused"]) == (["leiden"], None)
    assert first["refused"]["message"].startswith("leiden: ")
    assert found["request"]["job"]["components"][0]["processors"] == 6
    assert matched("logs", identity).out.split() == ["6"] * 6
    shown = matched("show", identity).out
    assert "It did not start on choice 1 of 2, leiden: leiden: " in shown
    assert "\nrefused: leiden: " in shown


def test_explain_and_match_name_the_attribute_that_no_cluster_has(matched: Any) -> None:
    path = job_file(matched, GROUP.replace('OpSys == "Linux"', 'Colour == "red"'))
    missing = [each["missing"] for each in matched("match", path, "--json").document["components"][0]["others"]]
    assert missing == [["Colour"]] * 4
    identity = matched("submit", path, "--json").document["id"]
    matched.until(lambda: "it has no Colour" in matched("explain", identity).out)
    assert matched("cancel", identity).status == 0


def test_a_check_of_requirements_that_no_cluster_meets_has_the_words_of_a_match(matched: Any) -> None:
    path = job_file(matched, GROUP.replace('OpSys == "Linux"', 'OpSys == "Plan9"'))
    answer, listed = matched("submit", "--check", path), matched("match", path).out.splitlines()
    assert answer.status == 0, answer
    assert "It would wait: the clusters that meet its requirements now are not enough." in answer.err
    assert [line for line in answer.out.splitlines() if "requirements." in line] == listed[1:]
    assert len(listed) == 5
    found = matched("submit", "--check", "--json", path).document
    openapi.check(found)
    assert [each["code"] for each in found["jobs"][0]["lacks"]] == ["no_match"] * 4
    found = matched("submit", "--check", "--json", job_file(matched, GROUP)).document
    assert (found["jobs"][0]["fits"], found["jobs"][0]["lacks"]) == ("yes", [])


def test_a_range_takes_what_a_match_lists(matched: Any) -> None:
    """No cluster and no group has 20 processors of clusters that suit, but one group has 18."""
    path = job_file(matched, GROUP.replace("processors: 6", "processors: {want: 20, least: 4}"))
    (component,) = matched("match", path, "--json").document["components"]
    assert component["processors"] == 18
    clusters = [[each["cluster"], each["processors"]] for each in component["choices"][0]["clusters"]]
    identity = matched("submit", path, "--json").document["id"]
    matched.until(lambda: lists_of(matched, identity))
    assert lists_of(matched, identity)[0]["choices"][0]["clusters"] == clusters
    assert matched("cancel", identity).status == 0


def lists_of(matched: Any, job: int) -> list[Document]:
    """The lists of choices that were made for the job, in their order."""
    return [each for each in matched("show", job, "--json").document["events"] if each["kind"] == "choices_made"]


def test_a_job_in_jdl_runs(matched: Any) -> None:
    text = """\
# One processor
Executable = "/bin/echo"; Arguments = "hello 'big grid'"; StdOutput = "out.txt"; OutputSandbox = {"out.txt"};
Requirements = other.OpSys == "Linux" && other.AverageSI < 2000; Rank = -other.AverageSI
"""
    answer = matched("submit", job_file(matched, text, "hello.jdl"), "--wait", "--json")
    assert answer.status == 0, answer
    job = matched("show", answer.document["id"], "--json").document["job"]
    assert job["components"][0]["cluster"] == "delft"
    assert (matched.work / "out.txt").read_text() == "hello big grid\n"


def test_an_expression_that_may_not_be_evaluated_is_refused_at_once(matched: Any) -> None:
    path = job_file(matched, GROUP.replace('OpSys == "Linux"', "time() > 1"))
    matched("match", path).refused(2, "components.0.requirements is wrong at column 1", "time is not a function")
    matched("submit", path).refused(2, "time is not a function")

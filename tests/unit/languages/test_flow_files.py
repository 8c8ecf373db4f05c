"""The file of a flow: the jobs in it, the order that their names give, and the mistakes in it."""

import re
from pathlib import Path
from typing import Any

import pytest
from job_languages import read_native as read

from koalapy.languages.flow import json_schema
from koalapy.languages.mapping import job_mapping
from koalapy.languages.reading import from_mapping
from koalapy.languages.spaces import PARAMETER_WALLTIME
from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.request import FOREVER, OnFailure, Request
from koalapy.runtime.parameters import open_regular

ONE = "components: [{processors: 1, executable: hostname}]"


def flow(text: str) -> Request:
    return read(text.replace("ONE", ONE), "tree.yaml", "/home/me", {"vu": 1})


def refused(text: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        flow(text)
    return caught.value


def waits(request: Request) -> dict[str, list[str]]:
    names = [job.request.name for job in request.jobs]
    return {job.request.name: [names[place] for place in job.after] for job in request.jobs}


def test_jobs_wait_for_those_that_they_name_and_for_the_stage_before() -> None:
    found = flow(
        """
name: tree
jobs:
  - {name: d, after: [c, b, c], ONE}
  - {name: a, ONE}
  - {name: b, ONE, priority: 3, on_error: n}
  - {name: c, ONE, on_error: 2}
stages: [[a], [b, c]]
after: [7]
on_failure: stop
labels: {project: x}
"""
    )
    assert waits(found) == {"a": [], "b": ["a"], "c": ["a"], "d": ["c", "b"]}
    assert (found.name, found.after, found.on_failure) == ("tree", (JobId(7),), OnFailure.STOP)
    assert [job.request.retrials for job in found.jobs] == [None, None, FOREVER, 2]
    assert found.jobs[2].request.priority == 3
    assert not found.components


def test_a_job_may_be_a_sweep_whose_files_are_read_when_it_is_submitted(tmp_path: Path) -> None:
    (tmp_path / "values").write_text("1\n2\n3\n")
    found = read(
        """
jobs:
  - {name: a, components: [{processors: 1, executable: hostname}]}
  - name: swept
    after: [a]
    components: [{processors: 1, executable: solve, arguments: ["{x}", "{y}"]}]
    parameters: {x: 1:4, y: "@values"}
    order: back-home
  - {name: last, after: [swept], components: [{processors: 1, executable: hostname}]}
""",
        "tree.yaml",
        str(tmp_path),
        None,
        open_file=open_regular,
    )
    assert waits(found) == {"a": [], "swept": ["a"], "last": ["swept"]}
    swept = found.jobs[1].request
    assert swept.parameters is not None
    assert (swept.parameters.count, swept.order, swept.stage_in) == (12, "back-home", ("values",))
    assert swept.components[0].walltime == PARAMETER_WALLTIME
    assert [job.request.parameters for job in found.jobs].count(None) == 2


def test_a_flow_written_as_a_mapping_is_read_again_as_it_was() -> None:
    found = flow(
        "jobs: [{name: a, ONE}, {name: b, after: [a], ONE, on_error: forever}]\non_failure: stop\nafter: [4]\n"
    )
    again = from_mapping(job_mapping(found), "again", "/home/me")
    assert again == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "jobs: [{name: a, ONE},\n {name: a, ONE}]",
            ("tree.yaml:2:3: jobs.1.name is", "jobs.0 is named already"),
        ),
        ("jobs:\n- {name: a, ONE, after: [bb]}\n- {name: b, ONE}", ("tree.yaml:2:74: jobs.0.after.0 is", "no job")),
        ("jobs:\n- {name: a, ONE, after: [a]}", ("tree.yaml:2:66: jobs.0.after closes a circle:", "waits for")),
        ("jobs: []", ("jobs is empty",)),
        ("jobs: [{ONE}]", ("jobs.0.name is missing",)),
        ("jobs: [{name: a, ONE}]\nstages: [[a], [a]]", ("tree.yaml:2:16: stages.1.0 is", "stands in stages.0")),
        ("jobs: [{name: a, ONE}]\nstages: [[x]]", ("stages.0.0 is", "no job")),
        (
            "jobs:\n- {name: a, ONE}\n- {name: b, ONE, parameters: {x: [1]}}",
            ("tree.yaml:3:79: jobs.1.parameters.x is used nowhere",),
        ),
        (
            "jobs:\n- {name: a, components: [{processors: 2, executable: a, arguments: ['{x}']}], parameters: {x: 1}}",
            ("tree.yaml:2:27: jobs.0.components.0.processors is 2, but each parameter is one process of 1",),
        ),
        ("jobs: [{name: a, ONE, combine: zip}]", ("jobs.0.combine needs parameters",)),
        (
            "jobs:\n- name: a\n  site: lyon\n  components: [{processors: 1, executable: a, arguments: ['{x}']}]\n"
            "  parameters: {x: [1]}\n",
            ("tree.yaml:2:3: jobs.0 is a sweep, which no other site runs",),
        ),
        ("jobs: [{name: a, ONE, on_error: -1}]", ("jobs.0.on_error is -1",)),
        ("jobs: [{name: a, ONE}]\ncomponents: []", ("components",)),
        ("jobs: [{name: a, ONE}]\nafter: [a]", ("after.0 is",)),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, words: tuple[str, ...]) -> None:
    error = refused(text)
    for each in words:
        assert each in error.reason.message
    assert re.match(r"tree\.yaml:\d+:\d+: ", error.reason.message)
    assert error.reason.advice


def test_a_circle_names_its_jobs_and_none_that_only_wait_for_it() -> None:
    error = refused(
        "jobs:\n- {name: z, after: [a], ONE}\n- {name: a, after: [b], ONE}\n"
        "- {name: b, after: [c], ONE}\n- {name: c, after: [a], ONE}"
    )
    assert "waits for" in error.reason.message
    assert '"z"' not in error.reason.message


def test_a_chain_of_thousands_of_jobs_is_read_and_one_that_bites_its_tail_is_refused() -> None:
    component = [{"processors": 1, "executable": "hostname"}]
    jobs: list[dict[str, Any]] = [
        {"name": f"j{number}", "components": component, "after": [f"j{number - 1}"] if number else []}
        for number in range(10_000)
    ]
    assert len(from_mapping({"jobs": jobs}, "job", "/").jobs) == 10_000
    jobs[0]["after"] = ["j9999"]
    with pytest.raises(RequestError, match="over 9994 others"):
        from_mapping({"jobs": jobs}, "job", "/")
    with pytest.raises(RequestError, match="more than 10,000"):
        from_mapping({"jobs": [*jobs, jobs[0]]}, "job", "/")


def test_too_many_prerequisites_are_refused() -> None:
    component = [{"processors": 1, "executable": "hostname"}]
    names = [[f"{stage}.{number}" for number in range(1001)] for stage in range(2)]
    jobs = [{"name": name, "components": component} for stage in names for name in stage]
    with pytest.raises(RequestError, match="1,002,001 others together"):
        from_mapping({"jobs": jobs, "stages": names}, "job", "/")


def test_the_schema_has_all_keys() -> None:
    assert set(json_schema()["properties"]) == {
        "koala",
        "name",
        "jobs",
        "stages",
        "after",
        "on_failure",
        "labels",
        "notify",
    }

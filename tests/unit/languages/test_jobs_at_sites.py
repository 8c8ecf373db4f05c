"""Jobs and subtrees that name a site, in each language that has a word for it."""

from typing import Any

import pytest
from job_languages import read_coallocate, read_native, read_rsl

from koalapy.languages.mapping import job_mapping
from koalapy.languages.reading import from_mapping
from koalapy.model.errors import RequestError
from koalapy.model.request import Request
from koalapy.model.sent import MOST_BYTES

ONE = "components: [{processors: 1, executable: a}]"
CLUSTERS = ["alpha"]


def yaml(text: str) -> Request:
    return read_native(text.replace("ONE", ONE), "tree.yaml", "/", CLUSTERS)


def rsl(text: str) -> Request:
    return read_rsl(text, "tree.rsl", "/", CLUSTERS)


def xml(text: str) -> Request:
    return read_coallocate(text, "tree.xml", "/", CLUSTERS)


A = "(&(executable=/a)(label=a))"
SITE = "(resourceManagerContact=site:lyon)"
X = "<resource><executable>/a</executable></resource>"
RHONE = X.replace("<resource>", '<resource name="rhone">')
Shape = list[tuple[str, str | None, tuple[int, ...], Any]]


def shape(request: Request) -> Shape:
    """The name of each job, its site, the jobs that it waits for, and the shape of the jobs inside it."""
    return [
        (each.request.name, each.request.site, each.after, shape(each.request) if each.request.jobs else None)
        for each in request.jobs
    ]


INNER = [("b", None, (), None), ("c", None, (0,), None)]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            yaml(
                "jobs: [{name: a, ONE}, {name: s, site: lyon, after: [a],"
                " jobs: [{name: b, ONE}, {name: c, ONE, after: [b]}]}]"
            ),
            [("a", None, (), None), ("s", "lyon", (0,), INNER)],
        ),
        (
            yaml("jobs: [{name: s, site: lyon, jobs: [{name: b, ONE}, {name: c, ONE}], stages: [[b], [c]]}]"),
            [("s", "lyon", (), INNER)],
        ),
        (
            rsl(f"*{A}(*{SITE}(label=s)(&(executable=/b)(label=b))(*(&(executable=/c)(label=c))))"),
            [("a", None, (1,), None), ("s", "lyon", (), [("b", None, (1,), None), ("c", None, (), None)])],
        ),
        (
            rsl(f"*{A}(*{SITE}(label=s)(wait=1)(&(executable=/b)(label=b))(&(executable=/c)(label=c)(wait=1)))"),
            [("a", None, (), None), ("s", "lyon", (0,), INNER)],
        ),
        (rsl(f"*(+{SITE}(label=s)(&(executable=/a))(&(executable=/b)))"), [("s", "lyon", (), None)]),
        (
            xml(
                f'<coallocate><coallocate name="s" site="lyon"><coallocate name="b">{X}</coallocate></coallocate>'
                f'<coallocate name="c" site="paris">{X}</coallocate></coallocate>'
            ),
            [("s", "lyon", (), [("b", None, (), None)]), ("c", "paris", (0,), None)],
        ),
    ],
)
def test_a_stage_names_its_site_and_is_one_job_of_the_flow_around_it(request_: Request, expected: Shape) -> None:
    assert shape(request_) == expected
    assert from_mapping(job_mapping(request_), "again", "/", CLUSTERS) == request_


def test_a_job_by_itself_names_a_site_and_clusters_of_that_site() -> None:
    for found in (
        yaml("name: job\nsite: lyon\ncomponents: [{processors: 1, executable: /a, cluster: rhone}]"),
        xml(f'<coallocate site="lyon" name="job">{RHONE}</coallocate>'),
    ):
        assert (found.name, found.site, found.components[0].cluster) == ("job", "lyon", "rhone")
    with pytest.raises(RequestError, match="which the grid does not have"):
        yaml("components: [{processors: 1, executable: a, cluster: rhone}]")
    with pytest.raises(RequestError, match="which the grid does not have"):
        yaml("jobs: [{name: a, site: b, ONE}, {name: c, components: [{processors: 1, executable: a, cluster: rhone}]}]")


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (yaml, "site: lyon\nstage_in: [x]\nONE", "tree.yaml:1:1: the file stages files in, which are not brought"),
        (yaml, "jobs:\n- {name: a, site: lyon, stage_out: [x], ONE}", "tree.yaml:2:3: jobs.0 brings files home"),
        (yaml, "jobs:\n- {name: a, site: lyon, keep_output: home, ONE}", "jobs.0 brings files home"),
        (yaml, "site: lyon\ninteractive: true\nONE", "the file is interactive"),
        (
            yaml,
            "site: lyon\nparameters: {x: [1, 2]}\ncomponents: [{processors: 1, executable: '{x}'}]",
            "the file is a sweep",
        ),
        (yaml, "jobs:\n- name: a\n  site: b\n  jobs: [{name: c, site: d, ONE}]", "jobs.0 names a site inside"),
        (
            yaml,
            "jobs:\n- name: a\n  jobs: [{name: c, ONE}]",
            "tree.yaml:3:3: jobs.0.jobs stand inside of a job that names",
        ),
        (yaml, "jobs:\n- {name: a, site: b, priority: 3, jobs: [{name: c, ONE}]}", "jobs.0.priority is of a job with"),
        (yaml, "jobs:\n- {name: a, stages: [[a]], ONE}", "jobs.0.stages belongs to a job with `jobs`"),
        (yaml, "jobs:\n- {name: a}", "tree.yaml:2:3: jobs.0.components is missing"),
        (
            yaml,
            "jobs:\n- name: a\n  site: b\n  jobs:\n  - {name: c, after: [d], ONE}",
            "tree.yaml:5:23: jobs.0.jobs.0.after",
        ),
        (
            yaml,
            "jobs:\n- name: a\n  site: b\n  jobs: [{name: c, after: [c], ONE}]",
            "jobs.0.jobs.0.after closes a circle",
        ),
        (rsl, f"*{SITE}{A}", "tree.rsl:1:3: resourceManagerContact names a site beside the outermost *"),
        (rsl, f"+(&(executable=a){SITE})(&(executable=b))", "names a site, which runs whole jobs, in one subrequest"),
        (rsl, f"*(*{SITE}(*{SITE}{A}))", "names a site inside of a job that is sent to one"),
        (xml, f'<coallocate site="b"><coallocate>{X}</coallocate></coallocate>', "names a site beside the outermost *"),
    ],
)
def test_what_no_site_can_run_is_refused_with_its_place(read: Any, text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(text)
    assert words in caught.value.reason.message
    assert caught.value.reason.advice


def test_no_more_is_sent_than_fits_into_a_message() -> None:
    large = "{processors: 1, executable: a, arguments: [" + "x" * 60_000 + "]}"
    with pytest.raises(RequestError, match=f"more than the {MOST_BYTES:,} that are sent to a site"):
        yaml(f"site: lyon\ncomponents: [{', '.join([large] * 5)}]")

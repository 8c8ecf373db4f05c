"""Requests in Globus RSL over a real koalad: a multirequest is one co-allocated job, and what cannot run is refused."""

import io
from typing import Any

import live

MULTIREQUEST = b"""+ (label = climate)
  (file_stage_in = (greet.txt greet.txt))
  (& (resourceManagerContact = delft) (executable = /bin/cat) (arguments = greet.txt) (count = 1) (maxWallTime = 2))
  (& (rsl_substitution = (NAME world)) (resourceManagerContact = leiden) (count = 2) (maxWallTime = 2)
     (executable = /bin/sh) (arguments = -c 'echo "$0 $WHERE" $KOALA_SIZE' "hello " # $(NAME))
     (environment = (WHERE "a b")))
"""


def test_a_multirequest_runs_as_one_job(koala: Any) -> None:
    koala.write("greet.txt", b"hello\n")
    file = koala.write("climate.rsl", MULTIREQUEST)
    checked = koala("submit", "--check", file)
    assert checked.status == 0, checked
    assert "climate, not submitted" in checked.out
    answer = koala("submit", "--wait", file)
    assert answer.status == 0, answer
    job = koala.job(koala.ids()[-1])
    assert (job["name"], job["state"]) == ("climate", "done")
    assert [each["cluster"] for each in job["components"]] == ["delft", "leiden"]
    output = koala("logs", job["id"]).out
    assert output.count("hello world a b 3") == 2
    assert output.replace("hello world a b 3", "").count("hello") == 1


def test_a_request_without_a_file_name_is_known_by_its_text(koala: Any) -> None:
    with koala.client() as grid:
        job = grid.submit(io.BytesIO(b"&(executable=/bin/true)(jobType=single)(count=2)(maxWallTime=1)"))
        found = grid.wait([job], live.PATIENCE_S)[0]
    assert found["state"] == "done"
    assert [each["processors"] for each in found["components"]] == [2]


def test_what_cannot_run_is_refused_with_its_place(koala: Any) -> None:
    before = koala.ids()
    mixed = koala.write("mixed.rsl", b"(* first a *)\n*(|(executable=/bin/a)(executable=/bin/b))(&(executable=/bin/c))")
    koala("submit", mixed).refused(2, f"{mixed}:2:3")
    unknown = koala.write("unknown.rsl", b"&(executable=/bin/true)\n (maxWaltime=5)")
    koala("submit", "--check", unknown).refused(2, f"{unknown}:2:3: maxWaltime", "Did you mean maxWallTime?")
    cluster = koala.write("cluster.rsl", b"&(executable=/bin/true)\n (resourceManagerContact=delftt)")
    koala("submit", cluster).refused(2, f"{cluster}:2:3: components.0.cluster", "delft")
    assert koala.ids() == before

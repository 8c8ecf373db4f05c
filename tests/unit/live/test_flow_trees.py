"""Each request of "Flow-based Multistage Co-allocation Service" by `koala submit`, with real programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from flow_trees import LANGUAGES, TREES, is_in_order, letters, written

# It writes that it began, waits until the others have begun too, and writes that it ends. It fails after a minute.
PROGRAM = """#!/bin/sh
trace=$1 name=$2 left=600
shift 2
echo "began $name" >>"$trace"
for other; do
    until grep -qx "began $other" "$trace"; do
        left=$((left - 1))
        [ $left -gt 0 ] || exit 3
        sleep 0.1
    done
done
echo "ended $name" >>"$trace"
"""

FIGURE_3 = """<coallocate name="climate-model">
  <resource="delft" type="compute">
    <executable="{executable}"/>
    <arguments="{trace} europe America"/>
  </resource>
  <resource="leiden" type="compute">
    <executable="{executable}"/>
    <arguments="{trace} America europe"/>
  </resource>
</coallocate>
"""

LIVE = {"xml": [*TREES][-2:]}  # trees, by language: in another one than RSL most are siblings of those in RSL
ROWS = [
    pytest.param(tree, language, marks=() if tree in LIVE.get(language, TREES) else pytest.mark.slow)
    for tree in TREES
    for language in LANGUAGES
]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


def moments(trace: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The beginning and the end of each job, as places in the trace. No job has two."""
    lines = trace.read_text().splitlines()
    assert len({*lines}) == len(lines), lines
    began, ended = (
        {line.removeprefix(word): at for at, line in enumerate(lines) if line.startswith(word)}
        for word in ("began ", "ended ")
    )
    assert began.keys() == ended.keys()
    return began, ended


def others(name: str, of: set[str], waits: Mapping[str, str]) -> list[str]:
    """All that must begin though this one has not ended."""
    return sorted(each for each in of - {name} if name not in waits.get(each, ""))


@pytest.mark.parametrize(("tree", "language"), ROWS)
def test_a_tree_runs_in_the_order_of_the_paper(
    koala: Any, program: Path, tmp_path: Path, tree: str, language: str
) -> None:
    trace, waits, names = tmp_path / "trace", TREES[tree], letters(tree)
    text = written(language, tree, lambda name: (str(program), [str(trace), name, *others(name, names, waits)]))
    answer = koala("submit", "--wait", "--json", koala.write(f"tree.{language}", text))
    assert answer.status == 0, answer
    began, ended = moments(trace)
    assert began.keys() == names
    assert is_in_order(waits, began, ended), trace.read_text()
    with koala.client() as grid:
        assert {job["name"]: job["state"] for job in grid.flow(answer.document["id"])} == dict.fromkeys(names, "done")


def test_the_request_of_figure_3_runs_on_both_clusters_at_once(koala: Any, program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    text = FIGURE_3.format(executable=program, trace=trace)
    answer = koala("submit", "--wait", "--json", koala.write("climate.xml", text))
    assert answer.status == 0, answer
    began, _ = moments(trace)
    assert began.keys() == {"europe", "America"}
    job = koala.job(answer.document["id"])
    assert (job["name"], [each["cluster"] for each in job["components"]]) == ("climate-model", ["delft", "leiden"])


def test_the_text_of_figure_3_as_it_is_printed_names_what_is_refused(koala: Any) -> None:
    text = FIGURE_3.format(executable="climate.out", trace="europe")
    printed = text.replace("    <arg", '    <directory="/gregor/coalloc"/>\n    <arg', 1)
    file = koala.write("printed.xml", printed)
    koala("submit", file).refused(2, f"{file}:4:5: directory", "a directory of its own")

"""How a sweep goes, as `koala runners` and its story show it, while others want its nodes."""

import re
from collections.abc import Callable
from typing import Any

from koalapy.api import openapi

Document = dict[str, Any]


def table(koala: Any) -> tuple[dict[str, str], str]:
    """The one sweep's cells by their headings, and the last line."""
    headings, cells, *_, last = (re.split(r" {2,}", line) for line in koala("runners").out.splitlines())
    return dict(zip(headings, cells, strict=True)), "  ".join(last)


def test_a_grid_job_gets_a_sweeps_nodes_and_all_of_it_is_reported(koala: Any, shell: Callable[..., Document]) -> None:
    """Four parameters end, at intervals, one of them badly; eight wait for a gate."""
    koala.known()
    gate, ran = koala.work / "gate", koala.work / "ran"
    ends = "if [ $0 -le 4 ]; then sleep $0; [ $0 -ne 2 ]; exit; fi"
    script = f"{ends}; while [ ! -e {gate} ]; do sleep 0.1; done; echo $0 >>{ran}"
    answer = koala("sweep", "--json", "-p", "x=1:12", "--name", "scan", "--", "sh", "-c", script, "{x}")
    sweep = answer.document["id"]

    def runner() -> Document:
        document = koala("runners", "--json").document
        openapi.check(document)
        return dict(document["runners"][0])

    koala.until(lambda: (runner()["done"], runner()["running"]) == (4, 8))
    found, (cells, last), later = runner(), table(koala), runner()
    assert list(cells) == [
        "ID", "NAME", "STATE", "DONE", "OF", "RUNNING", "FAILED", "PREEMPTED",
        "PER MIN", "ENDS IN", "PROC HOURS", "NODES",
    ]  # fmt: skip
    reported = [cells[name] for name in ("ID", "NAME", "STATE", "DONE", "OF", "RUNNING", "FAILED", "PREEMPTED")]
    assert reported == [str(sweep), "scan", "running", "4", "12", "8", "1", "0"]
    assert re.fullmatch(r"\d+(\.\d)?", cells["PER MIN"])
    assert re.fullmatch(r"\d+[smhd]", cells["ENDS IN"])
    least, most = (f"{each['charged_processor_seconds'] / 3600:.2f}" for each in (found, later))
    assert 0 < float(least) <= float(cells["PROC HOURS"]) <= float(most)
    assert cells["NODES"] == ", ".join(f"{each['cluster']}:{each['nodes']}" for each in found["clusters"])
    assert re.fullmatch(r"sweeps can expect \d\.\d nodes in the next hour", last)

    began = next(each["running"] for each in found["clusters"] if each["cluster"] == "delft")
    assert koala.end(koala.submit(shell("true", processors=4, cluster="delft")))["state"] == "done"
    koala.until(lambda: runner()["preempted"] == began)
    reported = koala("show", sweep).out
    assert "It is admitted; no other sweep is active now." in reported
    assert "It grows by 1 node on delft." in reported
    assert "Others' jobs reclaim 1 node on delft at once" in reported
    gate.touch()
    assert koala("wait", sweep).status == 1
    assert sorted(map(int, ran.read_text().split())) == list(range(5, 13))

"""Chaos on real clusters: every fault of the bench's table, after which the promises must hold.

By default only the rows that show most in the shortest time; `tests/run --all` performs all.
"""

from typing import Any

import pytest
from _faults import perform, programs, table

from koalapy.testgrid import Running, repair

PARAMETERS = [pytest.param(row, id=row.name, marks=[] if row.quick else pytest.mark.slow) for row in table.ROWS]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", PARAMETERS)
def test_nothing_is_lost_and_nothing_runs_twice(testgrid_session: Running, row: Any) -> None:
    verdict = perform.perform(row, testgrid_session).verdict
    assert verdict.holds, "\n".join([*verdict.lost, *verdict.twice, *verdict.left])


def test_jobs_wait_for_a_batch_system_that_is_down_from_the_start(testgrid: Running) -> None:
    testgrid.containers.kill_process("beta", "slurmctld")
    with perform.koalad_over(testgrid, idle=("alpha", "gamma"), claim={"timeout": "3m"}) as koalad:
        koalad.until(lambda: "Slurm's controller" in (koalad.cluster("beta")["reason"] or ""), "it is said why")
        named = koalad.submit(programs.program(4, 1, cluster="beta"))
        over_all = koalad.submit(*[programs.program(4, 1, cluster=name) for name in ("alpha", "beta")])
        free = koalad.submit(programs.program(4, 1))
        assert koalad.grid.wait([free], 300)[0]["state"] == "done"
        for job in (named, over_all):
            assert koalad.job(job)["state"] == "waiting"
            assert "beta" in str(koalad.grid.explain(job))
        repair.start_services(testgrid.containers, "beta")
        for ended in koalad.grid.wait([named, over_all], 300):
            assert ended["state"] == "done", ended["reason"]
            assert ended["submission_failures"] == ended["completion_failures"] == 0

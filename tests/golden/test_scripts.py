"""Whole batch scripts. Read the difference, then bless: KOALA_BLESS=1 pytest tests/golden"""

import os
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from koalapy_adapters.batch import allocation, pbs, sge, slurm, torque
from koalapy_adapters.batch.protocol import BatchJob

HERE = Path(__file__).parent

SMALL = BatchJob(
    tag="k7q2mz000000001",
    directory="/home/me/.koala/7q2mz/k7q2mz000000001",
    command=["python3", "/home/me/.koala/bin/3f9a.pyz", "wrapper", "/home/me/.koala/7q2mz/k7q2mz000000001"],
    processors=1,
    walltime_s=3600,
)
MULTI_NODE = SMALL._replace(processors=8, processors_per_node=4, walltime_s=905, parallel_environment="mpi")
EVERYTHING = BatchJob(
    tag="k7q2mz000000002",
    directory="/scratch/my project/7q2mz/k7q2mz000000002",
    command=["/opt/python3/bin/python3", "/scratch/my project/bin/3f9a.pyz", "wrapper", 'it\'s $HOME; `rm` \\ "*"'],
    processors=6,
    walltime_s=86400,
    processors_per_node=3,
    memory_per_processor=1536 * 1024**2,
    exclusive=True,
    queue="defq",
    account="physics",
    reservation="17",
    constraint="haswell",
    parallel_environment="mpi",
    native=["--licenses=matlab:1", "--mail-type=FAIL"],
)


class Writes(Protocol):
    """A dialect, as far as scripts go."""

    def script(self, job: BatchJob, /) -> str: ...


class Golden(NamedTuple):
    name: str
    dialect: Writes
    job: BatchJob


# As the Launchers of a sweep go in: behind everybody, and not where everything has failed at once.
MODEST = SMALL._replace(processors=4, processors_per_node=4, parallel_environment="mpi", queue="defq", lowest=True)
AVOIDING = MODEST._replace(avoid=["node7", "node3.cluster"])

GOLDEN = [
    Golden("slurm-small", slurm, SMALL),
    Golden("slurm-multi-node", slurm, MULTI_NODE),
    Golden("slurm-everything", slurm, EVERYTHING._replace(qos="high", gpus=2)),
    Golden("slurm-modest", slurm, AVOIDING._replace(native=["--exclude=node1", "--nice=5"])),
    Golden("sge-small", sge, SMALL),
    Golden("sge-multi-node", sge, MULTI_NODE),
    Golden("sge-everything", sge, EVERYTHING._replace(native=["-l matlab=1", "-m a"])),
    Golden("sge-modest", sge, AVOIDING._replace(native=["-p 5"])),
    Golden("pbs-small", pbs, SMALL),
    Golden("pbs-multi-node", pbs, MULTI_NODE._replace(processors=9)),
    Golden("pbs-everything", pbs, EVERYTHING._replace(constraint="model=haswell", gpus=2, native=["-l matlab=1"])),
    Golden("pbs-modest", pbs, MODEST),
    Golden("allocation-multi-node", allocation, MULTI_NODE),
    Golden("allocation-modest", allocation, MODEST._replace(native=["walltime=60"])),
    Golden("torque-small", torque, SMALL),
    Golden("torque-multi-node", torque, MULTI_NODE._replace(processors=9)),
    Golden("torque-everything", torque, EVERYTHING._replace(reservation=None, gpus=2, native=["-W x=QOS:high"])),
]


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])
def test_script(golden: Golden) -> None:
    path = HERE / f"{golden.name}.txt"
    script = golden.dialect.script(golden.job)
    if os.environ.get("KOALA_BLESS"):
        path.write_text(script)
    assert script == path.read_text()


def test_every_file_belongs_to_a_script() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == {golden.name for golden in GOLDEN}

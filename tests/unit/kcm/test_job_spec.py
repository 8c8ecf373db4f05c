"""A batch job is made of koalad's command and of the grid file's settings for the cluster."""

from pathlib import Path

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.kcm.execution.job_spec import SharedJobSpec, batch_job
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.koalad import ClusterConfig

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

INSTANCE = InstanceId("aaaaa")


def made(tmp_path: Path, job: int, **cluster: str) -> BatchJob:
    config = ClusterConfig("here", "sge", parallel_environment="mpi", **cluster)  # type: ignore[arg-type]
    recipe = SharedJobSpec(config, Directories(str(tmp_path), INSTANCE, "here", 1), "/pushed")
    tag = tag_of(INSTANCE, AttemptId(JobId(job), 0, 1))
    return batch_job(recipe, do.Prepare(tag, {"processors": 4, "walltime_s": 60}, {}, []))


def test_launchers_may_have_a_parallel_environment_of_their_own(tmp_path: Path) -> None:
    assert made(tmp_path, FIRST_LAUNCHER).parallel_environment == "mpi"
    assert made(tmp_path, FIRST_LAUNCHER, launchers_environment="loose").parallel_environment == "loose"
    assert made(tmp_path, 1, launchers_environment="loose").parallel_environment == "mpi"

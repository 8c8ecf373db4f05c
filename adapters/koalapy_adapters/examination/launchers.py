"""The parallel environment of the batch jobs of sweeps, and a better one if there is one."""

from typing import Any, Dict, Optional

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, load
from koalapy_adapters.messages import ClusterConfig

_NOBODYS = "k" + 14 * "0"  # a tag that no job has


def environment(config: ClusterConfig, batch: BatchSystem) -> Optional[Dict[str, Any]]:
    """The environment of Launchers. Raises BatchError.

    `environment`: theirs, or None. `named`: the grid file names it. `loose`: the best one that controls no slaves, or
    None.
    """
    if not hasattr(load(config.batch), "launchers_environment"):
        return None
    own, named = config.parallel_environment, config.launchers_environment
    chosen = batch.launchers_environment(_job(batch, named or own))
    best = chosen.environment if chosen else own
    loose = chosen.environment if chosen and not chosen.controls else None
    return {"environment": named or best, "named": named is not None, "loose": loose}


def _job(batch: BatchSystem, environment: Optional[str]) -> BatchJob:
    """A batch job like that of a Launcher, as far as it is known in advance."""
    fields: Dict[str, Any] = {
        name: value for name, value in batch.cluster._asdict().items() if name in BatchJob._fields
    }
    fields.update(tag=_NOBODYS, command=["true"], processors=batch.cluster.processors_per_node or 1, walltime_s=60)
    return BatchJob(**dict(fields, parallel_environment=environment, lowest=True))

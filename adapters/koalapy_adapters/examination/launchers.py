"""In which parallel environment the batch jobs of sweeps are, and which would be better."""

from typing import Any, Dict, Optional

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, load
from koalapy_adapters.messages import ClusterConfig

_NOBODYS = "k" + 14 * "0"  # a tag that no job has


def environment(config: ClusterConfig, batch: BatchSystem) -> Optional[Dict[str, Any]]:
    """`environment`: theirs; `named`: by the grid file; `loose`: the best that controls no slaves. None where there is
    no such thing. Raises BatchError.
    """
    if not hasattr(load(config.batch), "launchers_environment"):
        return None
    own, named = config.parallel_environment, config.launchers_environment
    chosen = batch.launchers_environment(_job(batch, named or own))
    best = chosen.environment if chosen else own
    loose = chosen.environment if chosen and not chosen.controls else None
    return {"environment": named or best, "named": named is not None, "loose": loose}


def _job(batch: BatchSystem, environment: Optional[str]) -> BatchJob:
    """A Launcher's, as far as it can be told before there is one."""
    fields: Dict[str, Any] = {
        name: value for name, value in batch.cluster._asdict().items() if name in BatchJob._fields
    }
    fields.update(tag=_NOBODYS, command=["true"], processors=batch.cluster.processors_per_node or 1, walltime_s=60)
    return BatchJob(**dict(fields, parallel_environment=environment, lowest=True))

"""Inside a Torque job: the functions of the PBS family or, where Slurm imitates Torque, those of Slurm."""

from typing import Callable, List, Mapping, Sequence

from koalapy_adapters.batch import pbs_launch, slurm_launch
from koalapy_adapters.batch.protocol import Argv, Host, Launch


def batch_id(environment: Mapping[str, str]) -> str:
    return pbs_launch.batch_id(environment) or slurm_launch.batch_id(environment)


def restarts(environment: Mapping[str, str]) -> int:
    return slurm_launch.restarts(environment) if _is_slurm(environment) else pbs_launch.restarts(environment)


def hosts(environment: Mapping[str, str], read: Callable[[str], str]) -> List[Host]:
    if _is_slurm(environment):
        return slurm_launch.hosts(environment, read)
    return pbs_launch.hosts(environment, read)


def launch(environment: Mapping[str, str], names: Sequence[str], agent: Argv) -> List[Launch]:
    if _is_slurm(environment):
        return slurm_launch.launch(environment, names, agent)
    return pbs_launch.launch(environment, names, agent)


def _is_slurm(environment: Mapping[str, str]) -> bool:
    """Return whether Slurm runs the job, in whose environment SLURM_JOB_NODELIST is always set.

    Slurm sets PBS_* only with its plugin spank_pbs, and never PBS_NODEFILE.
    """
    return "SLURM_JOB_NODELIST" in environment and "PBS_NODEFILE" not in environment

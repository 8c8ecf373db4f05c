"""The settings that the engine decides by, as the grid file gives them."""

from dataclasses import dataclass

from koalapy.model.cluster import ClusterSettings
from koalapy.model.units import MINUTE, SECOND, Duration

DEFAULT_QUEUE = "fpfs"
DEFAULT_PLACEMENT = "worst-fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything of the grid file that decisions depend on. `queue` and `placement` are names of registered policies.

    `claim_timeout` counts from the claim until the last batch job has started, `barrier_timeout` from the first
    component at its barrier until release. A job is resubmitted while its failures do not exceed their maximum.
    `grace` is what a program has between SIGTERM and SIGKILL.
    """

    clusters: tuple[ClusterSettings, ...]
    queue: str = DEFAULT_QUEUE
    placement: str = DEFAULT_PLACEMENT
    max_overtakes: int = 20
    claim_timeout: Duration = Duration(2 * MINUTE)
    barrier_timeout: Duration = Duration(5 * MINUTE)
    max_submission_failures: int = 3
    max_completion_failures: int = 3
    queue_after: Duration = Duration(5 * MINUTE)
    orphan_timeout: Duration = Duration(10 * MINUTE)
    grace: Duration = Duration(10 * SECOND)

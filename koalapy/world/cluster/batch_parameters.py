"""The differences between the simulated batch systems, modelled on the real ones."""

from dataclasses import dataclass, replace

from koalapy.model.units import MILLISECOND, SECOND, Duration

Span = tuple[Duration, Duration]


def _span(least: float, most: float) -> Span:
    return Duration(round(least * SECOND)), Duration(round(most * SECOND))


_CYCLE = _span(0.1, 3)
_LAUNCH = _span(0.02, 1)
_EPILOGUE = _span(0.01, 1)
_LISTED_AFTER = _span(0.01, 2)
_LIMIT_LAG = _span(1, 20)
_ACCOUNTING_DELAY = _span(0.3, 5)
_NOTICES = _span(10, 40)
_REQUEUE_WAIT = _span(1, 121)
_COMMAND = (Duration(5 * MILLISECOND), Duration(500 * MILLISECOND))
_KILL_WAIT = Duration(5 * SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchParameters:
    """The parameters of a batch system. A span has the bounds of a random duration."""

    strict: bool = False  # first come, first served; else whatever fits may start
    exclusive: bool = False  # whole nodes are allocated
    cycle: Span = _CYCLE  # from a change in the queue to the scheduling that takes it into account
    launch: Span = _LAUNCH  # from there to the batch script
    epilogue: Span = _EPILOGUE  # from the script's end to the job's
    listed_after: Span = _LISTED_AFTER  # how long the queue still lists a job that ended
    limit_lag: Span = _LIMIT_LAG  # a walltime is checked now and then
    accounting: bool = True
    accounting_delay: Span = _ACCOUNTING_DELAY
    forgets_unstarted: bool = False  # a job cancelled while it waited is in no accounting
    kill_wait: Duration = _KILL_WAIT  # between SIGTERM and SIGKILL; 0: SIGKILL at once
    notices: Span = _NOTICES  # that a node does not answer
    reruns_lost: float = 0.0  # how often a job of a lost node is started again though it asked not to be
    requeue_wait: Span = _REQUEUE_WAIT
    command: Span = _COMMAND


BATCH_PARAMETERS = {
    "slurm": BatchParameters(),
    "sge": BatchParameters(
        cycle=_span(0.1, 13),
        listed_after=_span(0.3, 1),
        accounting_delay=_span(0.5, 15),
        forgets_unstarted=True,
        kill_wait=Duration(0),
    ),
    "pbs": BatchParameters(strict=True, accounting=False, listed_after=_span(0.5, 300)),
    "local": BatchParameters(
        strict=True,
        cycle=_span(0.01, 0.2),
        launch=_span(0.01, 0.1),
        listed_after=_span(600, 900),
        kill_wait=Duration(2 * SECOND),
    ),
}


def batch_parameters_of(batch: str, exclusive: bool, reruns_lost: float) -> BatchParameters:
    """Return the parameters of a batch system that the grid file names; Slurm's for one that is unknown here."""
    return replace(BATCH_PARAMETERS.get(batch, BATCH_PARAMETERS["slurm"]), exclusive=exclusive, reruns_lost=reruns_lost)

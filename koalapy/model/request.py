"""What a user asks for: a request of several components, as every job language carries it (DESIGN: job files)."""

from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.labels import Labels
from koalapy.model.sweep import Space
from koalapy.model.units import HOUR, Duration

MAX_PROCESSORS = 1_000_000
LOWEST_PRIORITY = 20
DEFAULT_PRIORITY = 10


class Launch(StrEnum):
    """How many processes a component starts."""

    PER_PROCESSOR = "per-processor"
    PER_NODE = "per-node"
    ONCE = "once"


class WhenBusy(StrEnum):
    """What a job does that does not fit: wait for idle processors, or go into a batch queue."""

    WAIT = "wait"
    QUEUE = "queue"


class RetryOn(StrEnum):
    """What counts as a completion failure."""

    LOST = "lost"
    KILLED = "killed"
    EXIT = "exit"


class KeepOutput(StrEnum):
    """Where what a job's processes wrote is kept once the job is over: on its clusters alone, or at home too."""

    CLUSTER = "cluster"
    HOME = "home"


class RequestType(StrEnum):
    """DCS, section 2.3: ordered names every cluster, unordered none."""

    ORDERED = "ordered"
    UNORDERED = "unordered"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRequest:
    """Processors of one cluster and the program on them."""

    processors: int
    executable: str
    arguments: tuple[str, ...] = ()
    cluster: str | None = None
    walltime: Duration = HOUR
    launch: Launch = Launch.PER_PROCESSOR
    processors_per_node: int | None = None
    threads_per_process: int = 1
    memory_per_processor: int | None = None  # bytes
    gpus: int = 0
    exclusive: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()
    account: str | None = None
    queue: str | None = None
    qos: str | None = None
    constraint: str | None = None
    native: tuple[str, ...] = ()
    optional: bool = False

    def processes(self, nodes: int) -> int:
        """How many it starts in all where it is given so many nodes."""
        if self.launch is Launch.PER_NODE:
            return nodes
        return 1 if self.launch is Launch.ONCE else max(1, self.processors // self.threads_per_process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job as its user wrote it. `directory` is absolute: the paths of the job are relative to it.

    `stage_out_to`: (pattern, place) of what is staged out to another place than the job's directory. `files` names the
    list of what is staged in, as it was when the job was submitted; '' if there is none. `parameters`: it is a sweep
    of its one component, in whose arguments, environment and paths `{name}` stands for a parameter's value. `order`:
    the name of the policy that says which of them run next, '' for the grid file's. `keep_output`: None until the job
    is submitted, for the grid file's. `labels`: (key, value), each key once.
    """

    name: str
    components: tuple[ComponentRequest, ...]
    priority: int = DEFAULT_PRIORITY
    when_busy: WhenBusy = WhenBusy.WAIT
    retry_on: tuple[RetryOn, ...] = (RetryOn.LOST, RetryOn.KILLED)
    communication: bool = True
    stage_in: tuple[str, ...] = ()
    stage_out: tuple[str, ...] = ()
    directory: str = "/"
    stage_out_to: tuple[tuple[str, str], ...] = ()
    files: str = ""
    parameters: Space | None = None
    order: str = ""
    keep_output: KeepOutput | None = None
    labels: Labels = ()

    @property
    def type(self) -> RequestType:
        named = sum(component.cluster is not None for component in self.components)
        if named == len(self.components):
            return RequestType.ORDERED
        return RequestType.MIXED if named else RequestType.UNORDERED

    @property
    def processors(self) -> int:
        return sum(component.processors for component in self.components)

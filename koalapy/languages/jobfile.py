"""The schema of the job file (docs/job-file.md): its keys, their defaults, and the rules between them."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from koalapy.languages.parameters import Combination, Parameters, Tables
from koalapy.languages.paths import (
    PLACEHOLDERS,
    as_executable,
    as_place,
    as_staged_in,
    as_staged_out,
    twice,
    unknown_in,
)
from koalapy.model.identity import FIRST_LAUNCHER, MAX_COMPONENTS
from koalapy.model.labels import KEY, LONGEST_KEY, LONGEST_VALUE, MOST_LABELS, InvalidLabel, check_key, check_value
from koalapy.model.lease import MOST_LINKS, is_temporary
from koalapy.model.request import (
    DEFAULT_PRIORITY,
    FOREVER,
    LEAST_OF_PILOT,
    LOWEST_PRIORITY,
    MAX_PROCESSORS,
    ComponentRequest,
    Fill,
    Interactive,
    KeepOutput,
    Launch,
    MpiFlavour,
    RetryOn,
    WhenBusy,
)
from koalapy.model.settings import DEFAULT_QUEUES, MOST_QUEUES
from koalapy.model.textfile import place_at
from koalapy.model.textfile.classad import MAX_TEXT, ClassAdError, Expression, Kind, check_expression
from koalapy.model.textfile.fields import (
    Between,
    Flag,
    Line,
    Number,
    Positive,
    ProcessorHours,
    Section,
    Size,
    Span,
    Text,
    Version,
    When,
    Word,
    as_entries,
    as_flag,
    as_line,
    as_list,
    as_mapping,
    as_number,
    as_text,
    lasting,
    one_of,
    wrong,
)
from koalapy.model.textfile.notify import NotifyEntries
from koalapy.model.textfile.words import shown, use_known
from koalapy.model.units import DAY, HOUR, SECOND, format_duration

MOST_FILES = 1_000
MOST_RETRIALS = 1_000_000
UNBOUNDED = ["n", "forever"]  # as `on_error`: the first is the word of the multistage co-allocation service
MOST_BYTES = 262_144  # of a component, and of the lists of files: each has to fit into a message to a cluster
_MOST_GPUS = 10_000
_LONGEST_VALUE = 131_071  # bytes of one argument or variable that Linux passes to a program: MAX_ARG_STRLEN, execve(2)
_LONGEST_NAME = 128
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = "KOALA_"
_KINDS = {Kind.NUMBER: "a number", Kind.TEXT: "a text"}


class Communication(StrEnum):
    """Whether the components reach each other."""

    ALL = "all"
    NONE = "none"


def _cluster(value: object, info: ValidationInfo) -> str:
    """Return the cluster's name as the grid file spells it. Raises an error of the file for an unknown name."""
    text = as_line(value)
    known = info.context and info.context.get("clusters")
    spelled = {name.casefold(): name for name in known} if known is not None else {text.casefold(): text}
    if text.casefold() not in spelled:
        raise wrong(
            f"is {shown(text)}, which the grid does not have",
            use_known(text, list(spelled.values())),
            "unknown_cluster",
        )
    return spelled[text.casefold()]


def _variable(value: object) -> str:
    text = as_line(value)
    if not _VARIABLE.fullmatch(text):
        raise wrong(
            "is not the name of an environment variable", "Use letters, digits and _, and do not begin with a digit."
        )
    if text.startswith(_RESERVED):
        raise wrong(f"is a name that koalapy sets ({_RESERVED}…)", "Choose another name.")
    return text


def _label_key(value: object) -> str:
    try:
        return check_key(as_text(value))
    except InvalidLabel as error:
        raise wrong(error.what, error.advice, "bad_label") from None


def _label_value(value: object) -> str:
    try:
        return check_value("" if value is None else as_text(value))
    except InvalidLabel as error:
        raise wrong(error.what, error.advice, "bad_label") from None


def as_requirements(value: object) -> str:
    """Return the checked expression, each attribute with its scope; '' for none. Raises an error of the file."""
    found = _checked(value)
    if found.constant in _KINDS:
        what = f"is {_KINDS[found.constant]}, where a condition belongs"
        raise wrong(what, 'Write one such as FreeCPUs >= 4 && OpSys == "Linux".', "bad_expression")
    return found.text


def as_rank(value: object) -> str:
    """Return the checked expression, each attribute with its scope; '' for none. Raises an error of the file."""
    found = _checked(value)
    if found.constant is Kind.TEXT or found.text in ("true", "false", "undefined", "error"):
        what = "is no number, so that it orders nothing"
        raise wrong(what, "Write one such as FreeCPUs, or -WaitingJobs.", "bad_expression")
    return found.text


def _checked(value: object) -> Expression:
    text = as_text(value)
    if not text.strip():
        return Expression("")
    try:
        return check_expression(text)
    except ClassAdError as error:
        line, column = place_at(text, error.at)
        where = f"at column {column}" if "\n" not in text else f"in its line {line}, at column {column}"
        raise wrong(f"is wrong {where}: {error.what}", error.advice, error.code) from None


def _labels(value: object) -> dict[object, object]:
    labels = as_mapping(value)
    if len(labels) > MOST_LABELS:
        raise wrong(f"has {len(labels)} labels, more than {MOST_LABELS}", "Remove some.", "too_many")
    return labels


def _name(text: str) -> str:
    if len(text) > _LONGEST_NAME:
        raise wrong(f"has {len(text)} characters, more than {_LONGEST_NAME}", "Write a shorter one.")
    return text


def _retrials(value: object) -> int:
    if isinstance(value, str) and value in UNBOUNDED:
        return FOREVER
    number = as_number(value)
    if not 0 <= number <= MOST_RETRIALS:
        raise wrong(f"is {number}", f"Write 0 to {MOST_RETRIALS:,}, or n to try it again for ever.")
    return number


def _no_more_files(files: list[Any]) -> list[Any]:
    if len(files) > MOST_FILES:
        raise wrong(f"names {len(files)} files, more than {MOST_FILES}", "Pack them into an archive.")
    return files


def check_components(components: list[Any]) -> list[Any]:
    """Return the components of a job. Raises an error of the file if there are none, or too many."""
    if not components:
        raise wrong("is empty", "Write at least one component, such as `- {processors: 4, executable: hostname}`.")
    if len(components) > MAX_COMPONENTS:
        raise wrong(f"lists {len(components)} components, more than {MAX_COMPONENTS}", "Write fewer.", "too_many")
    return components


Variable = Annotated[
    str,
    BeforeValidator(_variable),
    WithJsonSchema({"type": "string", "pattern": f"^(?!{_RESERVED}){_VARIABLE.pattern}$"}),
]
LabelKey = Annotated[
    str,
    BeforeValidator(_label_key),
    WithJsonSchema({"type": "string", "pattern": f"^{KEY.pattern}$", "maxLength": LONGEST_KEY}),
]
LabelValue = Annotated[
    str,
    BeforeValidator(_label_value),
    WithJsonSchema({"type": ["string", "number", "boolean"], "minLength": 1, "maxLength": LONGEST_VALUE}),
]
Cluster = Annotated[str, BeforeValidator(_cluster), WithJsonSchema({"type": "string"})]
Executable = Annotated[str, BeforeValidator(as_executable), WithJsonSchema({"type": "string", "minLength": 1})]
StagedIn = Annotated[str, BeforeValidator(as_staged_in), WithJsonSchema({"type": "string", "minLength": 1})]
StagedOut = Annotated[str, BeforeValidator(as_staged_out), WithJsonSchema({"type": "string", "minLength": 1})]
Place = Annotated[str, BeforeValidator(as_place), WithJsonSchema({"type": "string", "minLength": 1})]
Requirements = Annotated[
    str, BeforeValidator(as_requirements), WithJsonSchema({"type": ["string", "boolean"], "maxLength": MAX_TEXT})
]
Rank = Annotated[str, BeforeValidator(as_rank), WithJsonSchema({"type": ["string", "number"], "maxLength": MAX_TEXT})]
Listed = Annotated[tuple[Line, ...], Field(strict=False), BeforeValidator(as_list)]
Files = BeforeValidator(lambda value: _no_more_files(as_list(value)))


Name = Annotated[Line, AfterValidator(_name)]
JobLabels = Annotated[
    dict[LabelKey, LabelValue],
    Field(json_schema_extra={"maxProperties": MOST_LABELS, "additionalProperties": False}),
    BeforeValidator(_labels),
]
JobIds = Annotated[
    tuple[Annotated[Number, Between(1, FIRST_LAUNCHER - 1)], ...], Field(strict=False), BeforeValidator(as_list)
]
Retrials = Annotated[
    int,
    BeforeValidator(_retrials),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST_RETRIALS}, {"enum": UNBOUNDED}]}),
]


@dataclass(frozen=True, slots=True)
class Amount:
    """Processors of a component. `least`: so few may do if it does not get them; None if it needs all of them."""

    want: int
    least: int | None = None


def _amount(value: object) -> Amount:
    if isinstance(value, Amount):
        return value
    if not isinstance(value, dict):
        return Amount(_processors.check(as_number(value)))
    for key in value:
        if key not in ("want", "least"):
            raise wrong(
                f"has the unknown key {shown(str(key), quote='')}", "Write {want: 16, least: 4}.", "unknown_key"
            )
    if "want" not in value or "least" not in value:
        raise wrong("needs both want and least", _BOTH, "missing_key")
    want, least = (_processors.check(as_number(value[key])) for key in ("want", "least"))
    if least > want:
        raise wrong(f"wants {want}, fewer than the least, {least}", "Exchange the two.")
    return Amount(want, least if least < want else None)


def _written(amount: Amount) -> object:
    return amount.want if amount.least is None else {"want": amount.want, "least": amount.least}


_BOTH = "Write {want: 16, least: 4}."
_processors = Between(1, MAX_PROCESSORS)
_COUNT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSORS}
Processors = Annotated[
    Amount,
    BeforeValidator(_amount),
    PlainSerializer(lambda amount: _written(amount)),
    WithJsonSchema(
        {
            "anyOf": [
                _COUNT_SCHEMA,
                {
                    "type": "object",
                    "properties": {"want": _COUNT_SCHEMA, "least": _COUNT_SCHEMA},
                    "required": ["want", "least"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class ComponentFile(Section):
    """Processors of one cluster and the program on them."""

    processors: Processors = Field(description="how many processors; `{want: 16, least: 4}`: fewer if need be")
    executable: Executable = Field(description="the program")
    arguments: Annotated[tuple[Text, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        default=(), description="its arguments; numbers arrive as they are written"
    )
    cluster: Cluster | None = Field(default=None, description="cluster to run on; by default any")
    walltime: Annotated[Span, lasting(SECOND)] = Field(default=HOUR, description="how long the program may run")
    launch: Annotated[Launch, one_of(Launch)] = Field(default=Launch.PER_PROCESSOR, description="how many processes")
    mpi: Annotated[MpiFlavour | None, one_of(MpiFlavour)] = Field(
        default=None, description="whose mpirun starts the processes of `launch: mpi`"
    )
    processors_per_node: Positive | None = Field(default=None, description="processors of each node")
    threads_per_process: Positive = Field(default=1, description="processors of each process")
    memory_per_processor: Size | None = Field(default=None, description="memory of each processor")
    gpus: Annotated[Number, Between(0, _MOST_GPUS)] = Field(default=0, description="GPUs of each node")
    exclusive: Flag = Field(default=False, description="whole nodes only")
    environment: Annotated[dict[Variable, Text], BeforeValidator(as_mapping)] = Field(
        default={}, description="variables of the program", json_schema_extra={"additionalProperties": False}
    )
    setup: Listed = Field(default=(), description="lines for a shell on each node, once, before the program")
    account: Word | None = Field(default=None, description="account or project, instead of the grid file's")
    queue: Word | None = Field(default=None, description="queue or partition, instead of the grid file's")
    qos: Word | None = Field(default=None, description="quality of service, instead of the grid file's")
    constraint: Word | None = Field(default=None, description="features of the nodes, instead of the grid file's")
    native: Listed = Field(default=(), description="further options of the batch system's submit command")
    optional: Flag = Field(default=False, description="the job may start without it")
    requirements: Requirements = Field(
        default="", description="a ClassAd expression that is true of the clusters on which it may run"
    )
    rank: Rank = Field(default="", description="a ClassAd expression; clusters where it is larger go first")
    spread: Flag = Field(default=False, description="its processors may be those of a group of clusters")

    @model_validator(mode="after")
    def _check_nodes(self) -> Self:
        per_node, most, least = self.processors_per_node, self.processors.want, self.processors.least
        if per_node is not None and per_node > (least or most):
            what = f"is {per_node}, more than the component's {least or most} processors"
            raise wrong(what, f"Write {least or most} or less.", at=("processors_per_node",))
        if per_node is not None and least is not None and (least % per_node or most % per_node):
            what = f"is {per_node}, which does not divide both numbers of processors"
            raise wrong(what, f"Write a divisor of {most} and {least}.", at=("processors_per_node",))
        for whole, of in ((most, "processors"), (least, "least"), (per_node, "processors_per_node")):
            if whole is not None and whole % self.threads_per_process:
                what = f"is {self.threads_per_process}, which does not divide {of} ({whole})"
                raise wrong(what, f"Write a divisor of {whole}.", at=("threads_per_process",))
        return self

    @model_validator(mode="after")
    def _check_mpi(self) -> Self:
        if self.mpi is not None and self.launch is not Launch.MPI:
            raise wrong("is for an MPI program", "Write launch: mpi, or remove mpi.", at=("mpi",))
        return self

    @model_validator(mode="after")
    def _check_spread(self) -> Self:
        """Refuse what has no meaning for the parts of a component that is divided."""
        for key in ("cluster", "processors_per_node", "exclusive", "optional") if self.spread else ():
            if getattr(self, key):
                what = "is for one cluster, but the component has spread: true"
                raise wrong(what, "Remove one of the two.", at=(key,))
        return self

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        size = len(json.dumps([self.executable, self.arguments, self.environment, self.setup, self.native]))
        if size > MOST_BYTES:
            what = f"has arguments, environment and setup of {size} bytes, more than {MOST_BYTES}"
            raise wrong(what, "Put them into a file, and stage it in.", "too_large")
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        for key, values in (("arguments", self.arguments), ("environment", variables)):
            if (
                longest := max((len(value.encode(errors="surrogatepass")) for value in values), default=0)
            ) > _LONGEST_VALUE:
                what = f"has a value of {longest} bytes, and no program can be given more than {_LONGEST_VALUE} in one"
                raise wrong(what, "Put it into a file, and stage it in.", "too_large", at=(key,))
        return self

    def request(self) -> ComponentRequest:
        """The component as the engine knows it."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        fields |= {"processors": self.processors.want, "environment": tuple(self.environment.items())}
        if self.processors.least is not None:
            fields |= {"most": self.processors.want, "least": self.processors.least}
        if self.cluster is not None and is_temporary(self.cluster) and "walltime" not in self.model_fields_set:
            fields |= {"walltime": LEAST_OF_PILOT, "until_end": True}
        return ComponentRequest(**fields)


class StageOut(Section):
    """A path that koalapy fetches when the job is done, and its destination."""

    path: StagedOut = Field(description="a file, a directory or a pattern in the attempt's directory")
    to: Place | None = Field(default=None, description="where it goes; by default beside the job file")


def _stage_out(value: object) -> object:
    """Return the mapping of an entry. A path without a destination is staged out beside the job file."""
    return value if isinstance(value, dict | StageOut) else {"path": value}


StagesOut = Annotated[
    StageOut,
    BeforeValidator(_stage_out),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, StageOut.model_json_schema()]}),
]


def _interactive(value: object) -> Interactive | None:
    """Return the word, or that for a truth value. Raises PydanticCustomError for other values."""
    if value is None or value in [*Interactive]:
        return None if value is None else Interactive(str(value))
    return Interactive.TERMINAL if as_flag(value) else None


Attachable = Annotated[
    Interactive | None,
    BeforeValidator(_interactive),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": [*map(str, Interactive)]}, {"type": "null"}]}),
]


class JobBarrier(Section):
    """How long components wait for each other."""

    wait: Span | None = Field(
        default=None,
        description="how long a component that came through a queue waits at its barrier for those in queues",
    )
    processor_hours: ProcessorHours | None = Field(
        default=None, description="how much processor time such components may wait there in all"
    )
    fill: Annotated[Fill, one_of(Fill)] | None = Field(
        default=None, description="sweeps of the job's user have their processors meanwhile; none: nobody has"
    )


class JobRace(Section):
    """In how many batch queues a waiting component has a place at once."""

    most: Annotated[Number, Between(1, MOST_QUEUES)] = Field(
        default=DEFAULT_QUEUES, description="queues of each component; 1: no race"
    )


class JobKeys(Section):
    """The keys of a job of one or more components that start together, by itself or in a flow."""

    name: Name | None = Field(default=None, description="the file's name")
    components: Annotated[
        tuple[ComponentFile, ...],
        Field(strict=False, json_schema_extra={"minItems": 1, "maxItems": MAX_COMPONENTS}),
        BeforeValidator(lambda value: check_components(as_entries(value))),
    ] = Field(description="what runs, in order of rank")
    labels: JobLabels = Field(default={}, description="texts by which `koala jobs --label` finds the job")
    priority: Annotated[Number, Between(0, LOWEST_PRIORITY)] = Field(
        default=DEFAULT_PRIORITY, description="lower goes first"
    )
    when_busy: Annotated[WhenBusy, one_of(WhenBusy)] | None = Field(
        default=None, description="queue for one component, wait for more"
    )
    retry_on: Annotated[
        tuple[Annotated[RetryOn, one_of(RetryOn)], ...], Field(strict=False), BeforeValidator(as_list)
    ] = Field(default=(RetryOn.LOST, RetryOn.KILLED), description="what is tried again")
    relax_after: Annotated[Span, lasting(SECOND)] | None = Field(
        default=None, description="after a failed claim, how long it waits before it asks for fewer; the queue_after"
    )
    on_error: Retrials | None = Field(
        default=None,
        description="how often a claim that failed is tried again: a number, or n for ever; the grid file's",
    )
    begin: When | None = Field(
        default=None,
        description="it is placed no sooner: an instant, or a time after its submission; by default at once",
    )
    claim_before: Annotated[Span, lasting(SECOND)] | None = Field(
        default=None,
        description="so long before its `begin` its components are claimed; they are held until then. Not by default",
    )
    expires: When | None = Field(
        default=None,
        description="it fails if it has not started by this instant, or so long after its submission; "
        "by default it waits on",
    )
    barrier: JobBarrier | None = Field(default=None, description="how long components wait; the grid file's")
    race: JobRace | None = Field(default=None, description="queues in which it waits at once; the grid file's")
    communication: Annotated[Communication, one_of(Communication)] = Field(
        default=Communication.ALL, description="none: components may lie in different networks"
    )
    dttl: Annotated[Number, Between(0, MOST_LINKS)] | None = Field(
        default=None, description="over how many links neighbouring sites are asked for processors; the grid file's"
    )
    stage_in: Annotated[tuple[StagedIn, ...], Field(strict=False), Files] = Field(
        default=(), description="files, directories and patterns: what every component gets"
    )
    stage_out: Annotated[tuple[StagesOut, ...], Field(strict=False), Files] = Field(
        default=(), description="files, directories and patterns: what is fetched when the job is done"
    )
    keep_output: Annotated[KeepOutput, one_of(KeepOutput)] | None = Field(
        default=None, description="home: bring standard output and error home at the end; the grid file's"
    )
    notify: NotifyEntries | None = Field(
        default=None, description="who is notified of the job's end; [] for nobody; the grid file's"
    )
    interactive: Attachable = Field(
        default=None, description="true, or terminal: `koala attach` has the terminal of rank 0; input: its input alone"
    )
    parameters: Parameters | None = Field(default=None, description="a sweep: names, and the values that they take")
    csv: Tables = Field(default=(), description="a sweep: files whose columns are parameters, each row one of them")
    combine: Combination | None = Field(
        default=None, description="cross, every value with every other; zip; or lists of names that vary together"
    )
    order: Word | None = Field(
        default=None, description="a sweep: which parameters run next, as registered; the grid file's"
    )
    site: Word | None = Field(default=None, description="the neighbouring site that runs the job; by default this")

    @model_validator(mode="wrap")
    @classmethod
    def _read_at_site(cls, value: Any, read: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Read a job that another site runs without a look at this grid's clusters: it names those of that site."""
        if not isinstance(value, dict) or not value.get("site") or not info.context:
            return read(value)
        clusters, info.context["clusters"] = info.context.get("clusters"), None
        try:
            return read(value)
        finally:
            info.context["clusters"] = clusters

    @model_validator(mode="after")
    def _check_optional(self) -> Self:
        if self.components and all(component.optional for component in self.components):
            advice = "Leave `optional` out of one at least."
            raise wrong("are all optional, so that nothing need run", advice, at=("components",))
        return self

    @model_validator(mode="after")
    def _check_interactive(self) -> Self:
        if self.race is not None and self.interactive is not None:
            raise wrong("is not for an interactive job, whose user waits at one place", "Remove it.", at=("race",))
        if self.race is not None and self.when_busy is WhenBusy.WAIT:
            raise wrong("is for jobs that wait in queues", "Remove it, or write `when_busy: queue`.", at=("race",))
        if self.interactive is not None and self.components and self.components[0].launch is Launch.MPI:
            what = "is not for `launch: mpi`, whose first process is mpirun"
            raise wrong(what, "Remove it, or start mpirun in the program.", at=("interactive",))
        return self

    @model_validator(mode="after")
    def _check_claim_before(self) -> Self:
        if self.claim_before is None:
            return self
        if self.begin is None:
            raise wrong("needs a begin", "Write `begin`, or remove it.", at=("claim_before",))
        if len(self.components) == 1:
            raise wrong("is for a job of several components", "Remove it.", at=("claim_before",))
        if self.claim_before > DAY:
            what = f"is {format_duration(self.claim_before)}, longer than 1d"
            raise wrong(what, "Write 1d or less.", at=("claim_before",))
        return self

    @model_validator(mode="after")
    def _check_matching(self) -> Self:
        is_sweep = self.parameters is not None or bool(self.csv)
        for index, component in enumerate(self.components):
            for key in ("requirements", "rank", "spread"):
                if is_sweep and getattr(component, key):
                    what = "is not for a sweep, which takes any idle nodes"
                    raise wrong(what, "Remove it.", at=("components", index, key))
            if component.spread and len(self.components) > 1:
                what = "is for a job of one component only"
                raise wrong(what, "Remove it, or write the job as one component.", at=("components", index, "spread"))
            if component.spread and self.race is not None:
                what = "is for components that wait in queues, and one with spread: true waits for idle processors"
                raise wrong(what, "Remove it.", at=("race",))
            if component.spread and self.when_busy is WhenBusy.QUEUE:
                what = "is queue, but a component with spread: true waits for idle processors"
                raise wrong(what, "Remove it.", at=("when_busy",))
        return self

    @model_validator(mode="after")
    def _check_sweep(self) -> Self:
        if self.parameters is not None or self.csv:
            if self.keep_output is not None:
                what = "is not for a sweep, whose parameters' output `koala logs --parameter` reads"
                raise wrong(what, "Remove it.", at=("keep_output",))
            if self.barrier is not None:
                raise wrong("is not for a sweep, whose nodes wait for no other", "Remove it.", at=("barrier",))
            if self.race is not None:
                raise wrong("is not for a sweep, which waits in no queue", "Remove it.", at=("race",))
            for key in ("begin", "expires"):
                if getattr(self, key) is not None:
                    raise wrong("is not for a sweep, which takes what is idle", "Remove it.", at=(key,))
            if self.interactive is not None:
                raise wrong("is not for a sweep, whose programs nobody attends", "Remove it.", at=("interactive",))
            return self
        for index, each in enumerate(self.stage_out):
            if each.to is not None and (name := unknown_in(each.to)):
                what = f"is {shown(each.to)}, with the unknown {name}"
                raise wrong(what, f"Known are {', '.join(PLACEHOLDERS)}.", at=("stage_out", index, "to"))
        for key in ("combine", "order"):
            if getattr(self, key) is not None:
                raise wrong("needs parameters", "Write `parameters`, or remove it.", at=(key,))
        return self

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        for key, paths in (("stage_in", self.stage_in), ("stage_out", [each.path for each in self.stage_out])):
            if found := twice(paths):
                what = f"names {shown(paths[found[0]])}, where another file lies already ({shown(found[1])})"
                raise wrong(what, "Rename one of them.", at=(key,))
            if len(json.dumps(paths)) > MOST_BYTES:
                raise wrong(f"has paths of more than {MOST_BYTES} bytes", "Pack the files into an archive.", at=(key,))
        return self


class JobFile(JobKeys):
    """A job that is submitted by itself."""

    koala: Version = Field(default=1, description="version of this file's format")
    after: JobIds = Field(default=(), description="ids of jobs that must be done before this one may begin")

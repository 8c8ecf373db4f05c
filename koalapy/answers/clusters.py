"""Clusters, their logins, and tags on them that the store does not know."""

from typing import Literal

from typing_extensions import TypedDict

from koalapy.answers.errors import Reason
from koalapy.answers.fields import Instant


class Cluster(TypedDict):
    """A cluster. Numbers are processors, null until they are known."""

    name: str
    batch: str
    version: str | None
    connection: Literal["up", "down", "connecting", "login_required"]
    """`login_required`: a person must log in."""
    total: int | None
    ours: int | None
    scavenged: int | None
    others: int | None
    waiting_local: int | None
    """Others' jobs that wait for resources."""
    idle: int | None
    """Processors that a job can have now."""
    committed: int
    """Processors of attempts that the newest measurement does not show yet."""
    candidates: int
    """Batch jobs of ours that wait in its queue beside another one of the same component."""
    unit: str | None
    """Core or thread."""
    walltime_limit_s: float | None
    """The longest walltime of a batch job in its queue; null: none is known. The time at the barrier counts too."""
    age_s: float | None
    reason: str | None
    """Why no job is placed there."""
    foreign_reports: int
    """Reports about other clusters' attempts since koalad's start; ignored."""
    draining: bool
    """Nothing is placed there any more."""
    added_by_command: bool
    """The grid file does not have it."""


class ClustersAnswer(TypedDict):
    """All clusters."""

    schema: Literal["koala.clusters/1"]
    clusters: list[Cluster]


class ClusterAd(TypedDict):
    """The attributes of a cluster that requirements and ranks may read."""

    cluster: str
    attributes: dict[str, bool | int | float | str | list[bool | int | float | str]]
    """By name. An attribute that is not known is missing."""


class AdsAnswer(TypedDict):
    """The ads of all clusters."""

    schema: Literal["koala.ads/1"]
    ads: list[ClusterAd]


class ChosenCluster(TypedDict):
    """A cluster of a choice."""

    cluster: str
    processors: int
    """Processors that the job gets there."""
    free: int | None
    """Processors that it could have there now; null: that was not looked at."""


class Choice(TypedDict):
    """A cluster, or a group of clusters, on which a job can run."""

    clusters: list[ChosenCluster]
    """In the order of their ranks."""
    rank: float | None
    """That of its lowest cluster; null: the job has no rank, or it is not a number there."""
    refused: Reason | None
    """Why the job could not start there."""


class UnsuitedCluster(TypedDict):
    """A cluster in none of the choices."""

    cluster: str
    reason: Reason
    missing: list[str]
    """Attributes that the requirements read, and that the cluster does not say."""


class MatchedComponent(TypedDict):
    """A component, and where it fits now."""

    index: int
    processors: int
    requirements: str | None
    """Null: any cluster suits."""
    rank: str | None
    choices: list[Choice]
    """The first choice first: fewer clusters, then the higher rank."""
    others: list[UnsuitedCluster]


class MatchAnswer(TypedDict):
    """Where a job would fit; it was not submitted."""

    schema: Literal["koala.match/1"]
    name: str
    components: list[MatchedComponent]


class LeftOnCluster(TypedDict):
    """The jobs, pending cancels and files of koalapy on a cluster."""

    jobs: list[int]
    """Jobs and sweeps with batch jobs there."""
    pending_cancels: int
    collecting: list[int]
    """Jobs whose output is on its way."""
    naming: list[int]
    """Jobs and sweeps that can run nowhere else."""
    text: str
    """All of it in words; empty if there is nothing."""


class ClusterChangeAnswer(TypedDict):
    """A cluster that was added, drained, resumed or removed."""

    schema: Literal["koala.cluster/1"]
    cluster: str
    state: Literal["added", "draining", "resumed", "removed"]
    left: LeftOnCluster
    """What is there now; after a forced removal, what was given up."""
    added_by_command: bool
    """If not, the grid file has it, and a removed cluster comes back when koalad reads the file again."""


class ChangedKey(TypedDict):
    """A key of the grid file with its values before and after, as text."""

    cluster: str | None
    """Null: a key of the whole grid."""
    key: str
    before: str
    after: str


class ReloadAnswer(TypedDict):
    """The changes of a grid file that was read again."""

    schema: Literal["koala.reload/1"]
    grid: str
    grid_file: str
    done: bool
    """False: it was only checked."""
    added: list[str]
    removed: list[str]
    moved: list[str]
    """Clusters that leave and join again, since their batch system, connection or shared directory is another."""
    changed: list[ChangedKey]
    refused: list[str]
    """Why it would be refused, as sentences."""


class Prompt(TypedDict):
    """A prompt of a question."""

    text: str
    echo: bool
    """Whether typed text may be shown."""


class Asked(TypedDict):
    """A question to a person, or a notice, which has no prompts, in the words of a login's server."""

    title: str
    instructions: str
    prompts: list[Prompt]


class Question(Asked):
    """A question of a login, with its number."""

    number: int


class Login(TypedDict):
    """The state of the login on a cluster."""

    cluster: str
    state: Literal["connected", "connecting", "login_required", "unreachable"]
    trying: bool
    """A login that a person began is not complete yet."""
    version: int
    """Grows with every change."""
    reason: Reason | None
    """Why it is not connected."""
    notices: list[str]
    """Messages of the login that need no answer."""
    question: Question | None
    """Question that waits for an answer."""
    may_ask: bool
    """A login of this kind can ask something."""


class LoginAnswer(TypedDict):
    """The login on one cluster."""

    schema: Literal["koala.login/1"]
    login: Login


class LoginsAnswer(TypedDict):
    """The logins on all clusters."""

    schema: Literal["koala.logins/1"]
    logins: list[Login]


class UnknownTag(TypedDict):
    """A tag on a cluster that this store does not know: a batch job, a directory or both."""

    cluster: str
    tag: str
    store: str
    """Store that the tag names."""
    own: bool
    """It names this store: an attempt from after a backup, or of a pruned job."""
    attempt: str
    """Written as job.component.number, in the store that the tag names."""
    batch_id: str | None
    batch_state: str | None
    directory: bool
    wrapper: Literal["alive", "silent", "ended", "none"]
    heartbeat_age_s: float | None
    """Time since the last sign of life of its wrapper."""
    age_s: float | None
    """Age of its directory."""
    may_run: bool
    """It has a batch job, or gave a sign of life within a day and has no exit record."""


class StoreTags(TypedDict):
    """The unknown tags of one store."""

    store: str
    own: bool
    """It is this store."""
    clusters: list[str]
    tags: int
    may_run: int
    """Tags among them that may run."""
    oldest_s: float | None
    """Age of the oldest of its directories."""
    newest_s: float | None


class UnknownTags(TypedDict):
    """The tags that the last survey of each cluster found: when it connected, or on request."""

    count: int
    first: list[UnknownTag]
    stores: list[StoreTags]


class Surveyed(TypedDict):
    """The outcome of the last survey of a cluster."""

    cluster: str
    at: Instant
    reason: str | None
    """Why the survey failed; the tags of the cluster are then those of the survey before."""


class UnknownAnswer(TypedDict):
    """Tags that the store does not know."""

    schema: Literal["koala.unknown/1"]
    tags: list[UnknownTag]
    stores: list[StoreTags]
    """This store first, then by the number of tags."""
    clusters: list[Surveyed]


class CleanAnswer(TypedDict):
    """The clean-up of an unknown tag."""

    schema: Literal["koala.clean/1"]
    cluster: str
    tag: str
    state: Literal["cleaned", "cleaning"]

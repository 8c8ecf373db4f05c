"""The tables of the newest schema. `migrations` makes them, one step a version; a test holds the two together."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION = "0001"  # that of the last migration; versions are ordered as texts
FORMAT = "koalapy.store"

metadata = MetaData()

_Count = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER increments by itself in SQLite

meta = Table(
    "meta",
    metadata,
    Column("instance", Text, primary_key=True),
    Column("format", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),  # number of openings: the last opener may commit
    Column("last_number", BigInteger, nullable=False),  # the highest number of the outbox so far
    Column("written_by", Text, nullable=False),  # the version of koalapy that opened it last
    Column("commits", BigInteger, nullable=False, server_default="0"),  # number of commits so far
)

# Work and Launchers never share an id. Without its row here none of them has a record or a history.
identities = Table(
    "identities",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("owner", Text),  # who used the key; null without one
    Column("key", Text),  # null without a key of the client: nulls are never equal
    UniqueConstraint("owner", "key", name="identities_owner_key"),
)


def _identity(name: str) -> ForeignKey:
    return ForeignKey("identities.id", ondelete="CASCADE", name=name)


work = Table(
    "work",
    metadata,
    Column("id", Integer, _identity("work_identity"), primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),  # job, sweep, flow or sent-job
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("record", Text, nullable=False),
    Index("work_state", "state"),
    Index("work_finished", "finished_at"),
)

# A pending cancel outlives its job, and so does a command of the outbox: neither refers to the table of work.
attempts = Table(
    "attempts",
    metadata,
    Column("job", Integer, primary_key=True, autoincrement=False),
    Column("component", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("cluster", Text, nullable=False),
    Column("superseded", Integer, nullable=False),  # 0 or 1: its job is beyond this try
    Column("pending_cancel", Integer, nullable=False),  # 0 or 1
    Column("owner_kind", Text),  # null unless it is a Launcher
    Column("owner", Integer),
    Column("let_go", Integer, nullable=False),  # 0 or 1: it is cleaned up, or its owner does not wait for it any more
    Column("record", Text, nullable=False),
    Index("attempts_pending_cancel", "pending_cancel"),
    Index("attempts_of_owner", "owner_kind", "owner", "let_go"),
)

# A pilot that has not ended. Its job may be final, and pruned, before.
pilots = Table(
    "pilots",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # of its job
    Column("record", Text, nullable=False),
)

outbox = Table(
    "outbox",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("cluster", Text),
    Column("kind", Text, nullable=False),
    Column("command", Text, nullable=False),
)

history = Table(
    "history",
    metadata,
    Column("sequence", _Count, primary_key=True),
    Column("job", Integer, _identity("history_identity"), nullable=False),  # or a sweep, or a Launcher
    Column("at", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("details", Text, nullable=False),
    Index("history_of_job", "job", "sequence"),
)

results = Table(
    "results",
    metadata,
    Column("sequence", _Count, primary_key=True),
    Column("sweep", Integer, ForeignKey("work.id", ondelete="CASCADE", name="results_sweep"), nullable=False),
    Column("cluster", Text, nullable=False),
    Column("job", Integer, nullable=False),
    Column("component", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("results", Text, nullable=False),  # of all parameters that the attempt reported together
    Column("lowest", BigInteger, nullable=False),  # the lowest number of those parameters
    Column("highest", BigInteger, nullable=False),
    Index("results_of_sweep", "sweep", "sequence"),
    Index("results_of_parameter", "sweep", "highest", "lowest"),
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

learned = Table(
    "learned",
    metadata,
    Column("name", Text, primary_key=True),  # of the observation
    Column("record", Text, nullable=False),
)

neighbours = Table(
    "neighbours",
    metadata,
    Column("name", Text, primary_key=True),
    Column("record", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("neighbour", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("lent", Integer, primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False),
)

# The requests of neighbours in the past hour. `site` and `number`: of the site where the request began, and there.
requests_seen = Table(
    "requests_seen",
    metadata,
    Column("site", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
)

# Usage is inserted before its job's next state. Therefore it does not refer to the table of jobs.
usage = Table(
    "usage",
    metadata,
    Column("job", Integer, primary_key=True, autoincrement=False),
    Column("component", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("charged", Integer, nullable=False),  # the job, or the sweep of a Launcher
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("processors", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("released_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("batch_id", Text, nullable=False),
    Column("accounted", Integer, nullable=False),
    Index("usage_ended", "ended_at"),
)

# The usage of removed jobs. `day`: the instant of its midnight in UTC; the others in processor-microseconds.
usage_days = Table(
    "usage_days",
    metadata,
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", Text, primary_key=True),
    Column("cluster", Text, primary_key=True),
    Column("held", BigInteger, nullable=False),
    Column("run", BigInteger, nullable=False),
    Column("lost", BigInteger, nullable=False),
    Column("scavenged", BigInteger, nullable=False),
    Column("estimated", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
)

# The accounts of leases that have ended, by the clock of this side.
ended_leases = Table(
    "ended_leases",
    metadata,
    Column("neighbour", Text, primary_key=True),
    Column("lent", Integer, primary_key=True, autoincrement=False),  # 0 or 1
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("asked_at", BigInteger, primary_key=True, autoincrement=False),
    Column("began_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("processors", Integer, nullable=False),
    Column("charge", BigInteger, nullable=False),
    Column("measured", BigInteger, nullable=False),
    Column("reported", Integer, nullable=False),  # 0 or 1
    Column("job", Integer),
    Column("cluster", Text, nullable=False),
    Column("beyond", Text, nullable=False),
    Column("links", Integer, nullable=False),
    Column("site", Text, nullable=False),
    Column("request", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("message", Text, nullable=False),
    Index("ended_leases_ended", "ended_at"),
)

# Those of removed accounts. `day`: the instant of its midnight in UTC; the others in processor-microseconds.
lease_days = Table(
    "lease_days",
    metadata,
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("neighbour", Text, primary_key=True),
    Column("lent", BigInteger, nullable=False),
    Column("borrowed", BigInteger, nullable=False),
    Column("measured", BigInteger, nullable=False),
    Column("leases", BigInteger, nullable=False),
)

maintenance = Table(
    "maintenance",
    metadata,
    Column("name", Text, primary_key=True),
    Column("task", Text, nullable=False),
    Column("began", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("well", Integer, nullable=False),  # 0 or 1
    Column("message", Text, nullable=False),
)

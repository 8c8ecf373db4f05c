"""The promises by name, and the exception for a broken promise."""

from enum import StrEnum


class Promise(StrEnum):
    """The promises of koalapy. Users rely on the first nine; the others are invariants on which those depend."""

    ONCE = "no program runs twice for one attempt"
    ALONE = "no two attempts of a component run at one time"
    WHOLE = "no component starts before the barrier is whole"
    ENDS = "every job ends in exactly one final state within its retry bounds"
    OUTLIVED = "no batch job of koalapy outlives its job"
    OTHERS = "no job of another store is touched"
    PROCESSORS = "commitments never exceed the processors known at the time"
    ORDER = "jobs start in the order of the queueing policy"
    AGREE = "records and world agree"
    COMMITTED = "nothing is done before it is committed"
    DOUBT = "no doubtful submit is repeated before a search for it"
    DEADLINE = "no wrapper waits at its barrier past the deadline"
    OPTIONAL = "optional components may be missing"
    RECORDED = "every parameter of a sweep has one result"
    REPEATED = "no parameter that is done runs again"
    GIVEN_BACK = "sweeps give back the nodes that other jobs want"
    PRUNED = "only final jobs are pruned, once, and their directories first"
    SOUND = "no part fails by itself"
    NETWORK = "components that communicate share one network"
    CLAIM = "no job holds a claim past its time"
    BEGINS = "a job enters the wait queue and starts no sooner than its user wants it, and then at once"
    EXPIRES = "no job waits for its first start past the time that its user allows"
    FILLED = "no program of a sweep runs on processors of a component that starts"
    HELD = "components held for those in queues keep to their bound, and only they are given back, uncounted"
    RACE = "of the attempts of a component one is released, and the others leave their queues, uncounted"
    BACKLOG = "no more batch jobs of koalapy wait in a queue than its backlog allows"
    LIMITS = "sweeps keep within the limits of each cluster"
    FITS = "no job that fits waits"
    ANSWERED = "no waiting job is placed after a start that may have run on a cluster which has not answered yet"
    LOGINS = "a refused login is tried three times, and then by a person only"
    RECONNECTED = "a cluster is connected again at once after a session that lasted"
    STRAYS = "koalad keeps no connection that none of its links uses"
    CONTENTS = "staged files arrive byte for byte"
    NOTIFIED = "nobody is notified twice of one change of a job, and every outcome is recorded"
    AFTER = "no job begins before its prerequisites are done, or waits for what has failed"
    CHOICES = "a job takes its choices in their order, and only clusters that suit it"
    RANGES = "a job with a range gets a size within it, and the most that is idle"
    BACK = "a wrapper is back at its relay soon after the way is open"
    STREAMS = "every byte of a stream arrives once and in order, or both ends are reset"
    DEPARTED = "a cluster that is drained or has left gets nothing, and keeps no row"
    PILOT = "a pilot leaves after all that ran on it"
    PREEMPTS = "jobs make room with the claim of one that fits without them, and no more than it needs"
    COMES_BACK = "a vacated job comes back at its position, uncounted"
    SUSPENDED = "a job is suspended for one job that has its processors, a few times at most, and goes on after it"
    POOL = "a processor of a lease is in one pool at a time"
    LEASE_ENDS = "every lease ends on all sides"
    CHARGES = "both ends of a link agree on what was lent"
    AFTER_LEASE = "nothing of a borrower runs after the end of its lease"
    EXAMINED = "no lease is offered before its nodes are known to isolate programs, if they must"
    SERVED = "no request of a neighbour is served twice"
    PAUSED = "no job is submitted to a cluster during its pause after a refusal"
    PARAMETERS = "no parameter of a sweep is lost with a lease"
    UNSUITED = "a job that a lease cannot run is not ended by it, and its lender is not asked for it again"


class Violation(Exception):
    """A promise was broken. `details` describe how, in one line that is the same in every run of the seed."""

    def __init__(self, promise: Promise, details: str) -> None:
        super().__init__(f"{promise}: {details}")
        self.promise, self.details = promise, details


def promise(holds: object, name: Promise, *details: object) -> None:
    """Check a promise. Raises Violation, with the joined details, if `holds` is false."""
    if not holds:
        raise Violation(name, " ".join(str(each) for each in details))

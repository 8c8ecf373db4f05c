"""The promises by name, and the exception for a broken one."""

from enum import StrEnum


class Promise(StrEnum):
    """The first nine are the invariants that users rely on; the others are what those rest on (DESIGN, section 5)."""

    ONCE = "no program runs twice for one attempt"
    ALONE = "no two attempts of a component run at one time"
    WHOLE = "no component starts before the barrier is whole"
    ENDS = "every job ends in exactly one final state within its retry bounds"
    NOTHING_LEFT = "no batch job of ours outlives its job"
    OTHERS = "no job of another store is touched"
    PROCESSORS = "promised processors never exceed those known at the time"
    ORDER = "queue order is what the policy says"
    AGREE = "records and world agree"
    COMMITTED = "nothing is done before it is committed"
    DOUBT = "nothing is sent again before it was looked for"
    DEADLINE = "nobody waits at a barrier past its deadline"
    OPTIONAL = "optional components may be missing"
    RECORDED = "every parameter of a sweep has one result"
    REPEATED = "no parameter that is done runs again"
    GIVEN_BACK = "sweeps give back what others want"
    PRUNED = "what is pruned is over, once, directories first"
    SOUND = "no part fails by itself"
    NETWORK = "components that communicate share one network"
    CLAIM = "no job holds a claim past its time"
    BACKLOG = "no more of ours wait in a batch queue than are allowed"
    LIMITS = "sweeps keep to what clusters let them have"
    FITS = "no job waits that fits"
    LOGINS = "a login that is refused is tried three times, and then by a person only"
    RECONNECTED = "a cluster is connected again at once after a session that lasted"
    CONTENTS = "what is staged is byte for byte what was meant"


class Violation(Exception):
    """A promise was broken. `details` say by what, in one line that is the same in every run of the seed."""

    def __init__(self, promise: Promise, details: str) -> None:
        super().__init__(f"{promise}: {details}")
        self.promise, self.details = promise, details


def promise(kept: object, name: Promise, *details: object) -> None:
    """Raises Violation unless it is kept."""
    if not kept:
        raise Violation(name, " ".join(str(each) for each in details))

"""The checks, in their order, with their dependencies. A check that depends on a failed one is not examined."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one cluster. `after`: ids of checks whose failure would make this one fail too.

    `agent`: whether it asks the KCM.
    """

    id: str
    title: str
    after: tuple[str, ...] = ()
    agent: bool = True


CHECKS = (
    Check("login", "login", agent=False),
    Check("python", "Python on the head node", ("login",), agent=False),
    Check("shared", "shared directory", ("python",), agent=False),
    Check("clock", "clock of the head node", ("python",)),
    Check("batch", "batch system", ("python",)),
    Check("queue", "queue", ("batch",)),
    Check("access", "permission to submit", ("queue",)),
    Check("lowest", "lowest priority", ("queue",)),
    Check("drmaa", "DRMAA", ("batch",)),
    Check("node", "a batch job starts", ("shared", "queue", "access")),
    Check("node_shared", "shared directory on a compute node", ("node",)),
    Check("node_relay", "relay reached from a compute node", ("node",)),
    Check("node_clock", "clock of a compute node", ("node_shared",)),
    Check("canary", "canary job", ("node_shared", "node_relay")),
    Check("launch", "processes on two nodes", ("canary",)),
    Check("isolation", "isolation of borrowers' programs", ("canary",)),
)
BY_ID = {check.id: check for check in CHECKS}
TITLES = {check.id: check.title for check in CHECKS}
QUICK = CHECKS[: CHECKS.index(BY_ID["node"])]  # the checks without a batch job

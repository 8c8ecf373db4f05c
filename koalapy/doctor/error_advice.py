"""A table from error codes to the party that has to act, and to the grid file's key that the error concerns."""

from typing import NamedTuple

from koalapy.doctor.checks import Failure, Move
from koalapy.model.errors import Reason, Whose


class Remedy(NamedTuple):
    move: Move
    key: str | None = None


_BY_CODE = {
    "account_not_permitted": Remedy("you", "account"),
    "answer_refused": Remedy("you"),
    "asks": Remedy("you"),
    "authentication": Remedy("you", "identity"),
    "bad_native": Remedy("you", "native"),
    "agents_not_started": Remedy("administrator"),
    "budget_used_up": Remedy("you", "account"),
    "batch_system_misconfigured": Remedy("administrator"),
    "batch_system_other": Remedy("you", "batch"),
    "batch_system_unreachable": Remedy("administrator"),
    "cluster_refuses": Remedy("you"),  # the words of a cluster's own rules are for its users
    "command_missing": Remedy("you"),
    "directory_full": Remedy("you", "shared"),
    "directory_not_writable": Remedy("you", "shared"),
    "no_account": Remedy("you", "account"),
    "no_command": Remedy("you", "connect"),
    "no_container": Remedy("you", "connect"),
    "no_control_slaves": Remedy("you", "parallel_environment"),
    "no_drmaa_library": Remedy("you", "drmaa"),
    "no_drmaa_session": Remedy("you", "drmaa"),
    "no_isolation": Remedy("administrator"),
    "no_identity": Remedy("you", "identity"),
    "no_known_hosts": Remedy("you", "known_hosts"),
    "no_parallel_environment": Remedy("you", "parallel_environment"),
    "no_python": Remedy("you", "python"),
    "no_python_on_node": Remedy("you", "python"),
    "no_such_constraint": Remedy("you", "constraint"),
    "no_such_parallel_environment": Remedy("you", "parallel_environment"),
    "no_such_qos": Remedy("you", "qos"),
    "no_such_queue": Remedy("you", "queue"),
    "no_such_reservation": Remedy("you", "reservation"),
    "noisy_login": Remedy("you"),
    "login_ended": Remedy("you"),
    "parallel_environment_not_in_queue": Remedy("you", "parallel_environment"),
    "python_incomplete": Remedy("you", "python"),
    "python_too_old": Remedy("you", "python"),
    "queue_closed": Remedy("administrator", "queue"),
    "refused": Remedy("administrator", "connect"),
    "relay_blocked": Remedy("administrator", "relay"),
    "shared_full": Remedy("you", "shared"),
    "shared_gone": Remedy("you", "shared"),
    "shared_not_seen": Remedy("you", "shared"),
    "shared_not_writable": Remedy("you", "shared"),
    "shared_open_to_others": Remedy("you", "shared"),
    "unknown_host": Remedy("you", "connect"),
    "unknown_host_key": Remedy("you", "known_hosts"),
    "unreachable": Remedy("administrator", "connect"),
    "wrong_host_key": Remedy("administrator", "known_hosts"),
}
_BY_WHOSE: dict[Whose, Move] = {
    "transient": "nobody",
    "cluster": "administrator",
    "request": "you",
    "ours": "koalapy",
}


def failure(cluster: str, reason: Reason, value: str = "") -> Failure:
    """Return the failure that a report shows for this reason.

    `value`: what the grid file should have, '' if that is not known.
    """
    remedy = _BY_CODE.get(reason.code) or Remedy(_BY_WHOSE[reason.whose])
    change = reason.advice
    if value and remedy.key:
        change = f"{change} Write `{remedy.key}: {value}` for {cluster} in the grid file.".lstrip()
    return Failure(
        code=reason.code,
        cause=reason.message,
        change=change,
        move=remedy.move,
        key=remedy.key,
        value=value or None,
        command=reason.command,
        exit_status=reason.exit_status,
        output=reason.words,
    )

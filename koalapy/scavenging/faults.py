"""What is wrong with the answers of policies, most of which koalapy does without: it is said of each sweep."""

from koalapy.model.identity import JobId
from koalapy.model.records import Records
from koalapy.model.units import Instant
from koalapy.scavenging.heard import Heard


def heed(records: Records, heard: Heard, now: Instant, sweep: JobId, asked: str, wrong: str) -> None:
    """`asked`: what a policy was asked for; `wrong`: what is wrong with its answer, '' if nothing is.

    The sweep's story tells it once: policies are asked in every step.
    """
    key = sweep, asked
    if not wrong:
        heard.faults.pop(key, None)
        return
    heard.faults[key] = f"{asked[:1].upper()}{asked[1:]} failed: {wrong}."
    if key not in heard.blamed:
        heard.blamed[key] = None
        records.note(now, sweep, "policy_failed", message=heard.faults[key])


def of(heard: Heard, sweep: JobId) -> tuple[str, ...]:
    """Those of the last answers, in sentences."""
    return tuple(message for (concerned, _), message in heard.faults.items() if concerned == sweep)

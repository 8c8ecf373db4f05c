"""Process groups that tests have ended: whoever was killed may be dying still, and be nobody's zombie for a moment."""

import os
import time

PATIENCE_S = 60.0


def await_end(group: int) -> None:
    """Until nobody is left in it."""
    deadline = time.monotonic() + PATIENCE_S
    while _is_there(group):
        assert time.monotonic() < deadline, f"somebody of process group {group} lives"
        time.sleep(0.01)  # whoever was not our child sends us nothing


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

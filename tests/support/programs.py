"""Programs that tests run themselves, and that a machine may lack. `tests/install-programs` sees to them."""

import os
import shutil
from typing import NoReturn

import pytest

LEFT_OUT = "Not tested: "  # so begins why; the end of a run shows it


def need(program: str) -> str:
    """Its path; where there is none, the test is left out."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return path or leave_out(f"there is no {program} here (on Debian: tests/install-programs, as root)")


def leave_out(why: str) -> NoReturn:
    """The test is skipped; under CI=true it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{why}.", pytrace=False)
    pytest.skip(f"{LEFT_OUT}{why}.")

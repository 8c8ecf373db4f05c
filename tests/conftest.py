"""For every test: how many minutes each folder took is said at the end."""

from collections import defaultdict
from pathlib import Path

import pytest

_SECONDS: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = Path(report.nodeid).parts[1] if len(Path(report.nodeid).parts) > 1 else "."
    _SECONDS[folder] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("minutes per folder")
    for folder, seconds in sorted(_SECONDS.items()):
        terminalreporter.write_line(f"{seconds / 60:6.1f}  tests/{folder}")

"""The test grid as a fixture (see tests/conftest.py): reset before each test that changes it."""

from pathlib import Path

import pytest

from koalapy.testgrid import Running, repair

TEST_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.grid)
            # The fixture may build images or wait for another run; only the test itself is bounded.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, func_only=True))


@pytest.fixture
def testgrid(testgrid_session: Running) -> Running:
    """The test grid with everything running and nothing on it."""
    testgrid_session.reset()
    return testgrid_session


@pytest.fixture
def standing_testgrid(testgrid_session: Running) -> Running:
    """The test grid with everything running and whatever is on it, for tests that only look."""
    repair.mend(testgrid_session.containers)
    return testgrid_session

"""Operations that a KCM refuses until its shared directory is ready."""

from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.koalad import ClusterConfig

TAG = "kabcde000000001"


@pytest.fixture
def operations(tmp_path: Path) -> Operations:
    directories = Directories(str(tmp_path / "shared"), "abcde", "here", 3)
    directories.create()
    nobody: Any = None  # these operations run no command
    return Operations(ClusterConfig("here", "local"), nobody, directories, lambda: 0)


def test_no_directory_is_removed_before_older_kcms_can_see_that_they_are_replaced(operations: Operations) -> None:
    assert operations.perform(do.TakeStartLock(TAG)) == do.StartLockTaken(TAG, won=True)
    refused = operations.perform(do.Remove(TAG))
    assert refused.error["code"] == "shared_gone"
    operations.pushed = "/shared/bin/koala.pyz"
    assert operations.perform(do.Remove(TAG)) == do.Removed(TAG)
    assert operations.perform(do.Remove(TAG)) == do.Removed(TAG)


def test_nothing_is_prepared_before_the_shared_directory_is_ready(operations: Operations) -> None:
    assert operations.perform(do.Prepare(TAG, {}, {}, [])).error["code"] == "shared_gone"

"""The contract of batch systems on recorded output: `recorded/ROW` is from a live run with `--record`."""

from pathlib import Path

from koalapy_adapters.contract.test_recorded import *  # noqa: F403  # the suite's own tests

RECORDED = [Path(__file__).parent / "recorded"]

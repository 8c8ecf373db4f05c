"""The KCM ends with its connection, even if nobody reads its errors."""

import subprocess
import sys
from pathlib import Path

import pytest
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.frames import Control, encode
from koalapy_adapters.messages import PROTOCOL, to_json
from koalapy_adapters.messages.koalad import Hello, Ping

PIPE = subprocess.PIPE


@pytest.fixture
def kcm(tmp_path: Path) -> "subprocess.Popen[bytes]":
    pushed = tmp_path / "pushed.pyz"
    pushed.write_bytes(packed().data)
    argv = [sys.executable, "-W", "error", "-I", "-S", str(pushed), "kcm"]
    return subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, bufsize=0)


def test_a_kcm_whose_stderr_is_closed_still_ends_with_its_connection(
    kcm: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    assert kcm.stdin is not None
    assert kcm.stdout is not None
    assert kcm.stderr is not None
    cluster = {"name": "here", "batch": "local", "slots": 1, "shared": str(tmp_path), "python": sys.executable}
    for message in (Hello(PROTOCOL, "0", 1, "abcde", 0, cluster, []), Ping(1, 0)):
        kcm.stdin.write(encode(Control(to_json(message))))
    assert kcm.stdout.read(1)  # the KCM runs
    kcm.stderr.close()
    kcm.stdout.close()
    kcm.stdin.close()
    try:
        assert kcm.wait(120) in (0, 120)  # 120: Python could not flush what nobody reads
    finally:
        kcm.kill()
        kcm.wait()

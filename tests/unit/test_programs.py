"""What a machine lacks for the tests: it may leave some out, but none of a run that lands something."""

import pytest
from programs import LEFT_OUT, need


def test_a_test_whose_program_is_missing_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"^{LEFT_OUT}there is no no-such-program here"):
        need("no-such-program")


def test_under_ci_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program"):
        need("no-such-program")


def test_what_only_root_has_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert need("chroot").endswith("/chroot")

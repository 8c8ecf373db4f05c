"""Files that strangers wrote: JSDL of other programs, values that no program can be given, and ssh configurations."""

import errno
import os
import shlex
from pathlib import Path

import pytest
from job_languages import read_jsdl, read_native
from koalapy_adapters.wrapper.failure_texts import cannot_start

from koalapy.common.registry import load, registered
from koalapy.init.ssh_hosts import ssh_hosts
from koalapy.languages import read_job
from koalapy.model.errors import RequestError
from koalapy.model.request import Request

CASES = Path(__file__).parents[2] / "data" / "cases"
READERS = {name: load("koalapy.languages", name) for name in registered("koalapy.languages")}
LATIN = """<?xml version="1.0" encoding="{}"?>
<JobDefinition xmlns="http://schemas.ggf.org/jsdl/2005/11/jsdl" xmlns:p="http://schemas.ggf.org/jsdl/2005/11/jsdl-posix">
<JobDescription><Application><p:POSIXApplication><p:Executable>/bin/echo</p:Executable><p:Argument>Zoë</p:Argument>
</p:POSIXApplication></Application></JobDescription></JobDefinition>
"""


def jsdl(text: str | bytes) -> Request:
    return read_jsdl(text, "job.jsdl", "/here", ["vu"])


def native(lines: str) -> Request:
    text = f"components:\n- {{processors: 1, executable: /bin/true, {lines}}}\n"
    return read_native(text, "job.yaml", "/here", ["vu"])


def refusal(name: str, *changes: tuple[str, str]) -> str:
    text = next(CASES.glob(f"{name}-*")).read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    with pytest.raises(RequestError) as caught:
        jsdl(text)
    return str(caught.value.reason)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("job.yaml", "name: {}"),
        ("job.jsdl", "<JobDefinition>{}</JobDefinition>"),
        ("job.xml", "<coallocate>{}</coallocate>"),
        ("job.rsl", "&(executable={})"),
        ("job.jdl", 'Executable = "{}";'),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_in_every_language(source: str, text: str) -> None:
    with pytest.raises(RequestError, match=source):
        read_job(text.format("\ud800"), source, "/here", readers=READERS)


def test_linux_may_be_written_as_it_is_spelled() -> None:
    assert "OperatingSystemVersion is not a resource" in refusal("50")
    version = ("<jsdl:OperatingSystemVersion>2.6.11</jsdl:OperatingSystemVersion>", "")
    assert "CPUArchitecture is not a resource" in refusal("50", version)
    assert "OperatingSystemName is 'Windows'" in refusal("50", ("Name>Linux<", "Name>Windows<"))


def test_an_upper_bound_is_refused_as_one() -> None:
    assert "TotalPhysicalMemory states an upper bound only" in refusal("51")
    ranged = ("UpperBoundedRange exclusiveBound", "Range><jsdl:UpperBound exclusiveBound")
    assert "states an upper bound only" in refusal("51", ranged, ("UpperBoundedRange>", "UpperBound></jsdl:Range>"))


def test_a_function_of_a_sweep_in_the_namespace_of_sweeps_is_refused_with_the_one_it_needs() -> None:
    assert "ns3:LoopInteger" in refusal("52")
    assert "http://schemas.ogf.org/jsdl/2009/03/sweep/functions" in refusal("52")


@pytest.mark.parametrize("name", ["ISO-8859-1", "windows-1252", "iso-8859-15", "latin-1"])
@pytest.mark.parametrize("is_text", [False, True], ids=["bytes", "text"])
def test_xml_is_read_in_the_encoding_that_it_declares(name: str, is_text: bool) -> None:
    data = LATIN.format(name).encode(name)
    text = data.decode("utf-8", "surrogateescape") if is_text else data
    assert jsdl(text).components[0].arguments == ("Zoë",)


def test_xml_that_was_converted_to_utf_8_and_declares_its_former_encoding_is_read_as_utf_8() -> None:
    assert jsdl(LATIN.format("ISO-8859-1")).components[0].arguments == ("Zoë",)
    assert jsdl(LATIN.format("UTF-8").encode()).components[0].arguments == ("Zoë",)


@pytest.mark.parametrize("name", ["UTF-8", "UTF-7", "ISO-8859-99", "koala"])
def test_xml_in_no_encoding_that_it_declares_is_refused(name: str) -> None:
    with pytest.raises(RequestError):
        jsdl(LATIN.format(name).encode("latin-1"))


def test_a_value_that_linux_passes_to_no_program_is_refused_at_once() -> None:
    native(f"arguments: [{'x' * 131_071}]")
    native(f"environment: {{A: {'x' * 131_069}}}")
    for key, lines in (
        ("arguments", f"arguments: [{'x' * 131_072}]"),
        ("arguments", f"arguments: [{'é' * 65_536}]"),
        ("environment", f"environment: {{A: {'x' * 131_070}}}"),
    ):
        with pytest.raises(RequestError, match=key) as caught:
            native(lines)
        assert caught.value.reason.code == "too_large"


def test_too_long_arguments_are_no_matter_of_a_scripts_first_line() -> None:
    advice = cannot_start("n1", "start", "/bin/true", os.strerror(errno.E2BIG))["advice"]
    assert "into a file" in advice
    assert "#!" not in advice
    assert "#!" in cannot_start("n1", "start", "a.sh", os.strerror(errno.ENOEXEC))["advice"]


def test_an_include_with_a_nul_includes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Include a\0b\nHost fs0\n")
    assert ssh_hosts(own=tmp_path) == ["fs0"]


@pytest.mark.parametrize(
    "line", ["x" * 500_000, '"' + "x" * 500_000 + '"', "a " * 250_000, '"a' * 250_001, "'\"" * 250_000]
)
def test_no_long_text_is_read_in_a_time_that_grows_with_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """As shlex does."""
    split, lengths = shlex.split, [0]

    def measured(text: str, comments: bool = False) -> list[str]:
        lengths.append(len(text))
        return split(text, comments)

    monkeypatch.setattr(shlex, "split", measured)
    (tmp_path / "config").write_text(f"Host {line}\nHost fs0\n")
    assert "fs0" in ssh_hosts(own=tmp_path)
    assert max(lengths) <= 4096


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("a b", ["a", "b"]),
        ('"a b" c', ["a b", "c"]),
        ("a # b", ["a"]),
        ("a\\ b 'c d'e", ["a b", "c de"]),
        ('a "b', []),
        ("a 'b", []),
        ('"a#b"', ["a#b"]),
    ],
)
def test_words_of_a_host_line(tmp_path: Path, line: str, hosts: list[str]) -> None:
    (tmp_path / "config").write_text(f"Host {line}\n")
    assert ssh_hosts(own=tmp_path) == hosts


def test_the_hosts_of_a_strangers_ssh_configuration(tmp_path: Path) -> None:
    (tmp_path / "more hosts").write_text("Host included\n")
    found = ssh_hosts(CASES / "75-ssh-config", tmp_path)
    named = ["github.com", "gitlab.example", "FS0", "fs0.uni.example", "vm-1", "vm-2", "equal"]
    assert [host for host in found if host in named or host == "included"] == ["included", *named]
    assert not [host for host in found if set(host) & set("*!?")]

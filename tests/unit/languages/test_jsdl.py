"""JSDL 1.0 and its parameter sweeps (GFD.149): what is carried, what is refused; and XML that grows or reaches out."""

import re
import subprocess
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_languages import read_jsdl as read
from koalapy_adapters.launcher import space as evaluator

from koalapy.common.registry import load
from koalapy.languages import language_of, read_job
from koalapy.languages.jsdl import document_of
from koalapy.model.errors import Reason, RequestError
from koalapy.model.request import ComponentRequest, Launch, Request
from koalapy.model.units import MINUTE, Duration
from koalapy.runtime.parameters import with_staged

NAMESPACES = """xmlns="http://schemas.ggf.org/jsdl/2005/11/jsdl" xmlns:posix="http://schemas.ggf.org/jsdl/2005/11/jsdl-posix"
 xmlns:hpc="http://schemas.ggf.org/jsdl/2006/07/jsdl-hpcpa" xmlns:s="http://schemas.ogf.org/jsdl/2009/03/sweep"
 xmlns:f="http://schemas.ogf.org/jsdl/2009/03/sweep/functions\""""
PROGRAM = """<posix:Executable> ./solve </posix:Executable>
<posix:Argument>a{0}</posix:Argument>
<posix:Argument>file-000.dat</posix:Argument>
<posix:Environment name="SEED">1</posix:Environment>"""


def jsdl(program: str = PROGRAM, *, more: str = "", sweep: str = "") -> str:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<JobDefinition {NAMESPACES}>
<JobDescription>
<Application><posix:POSIXApplication>
{program}
</posix:POSIXApplication></Application>
{more}
</JobDescription>
{sweep}
</JobDefinition>
"""


def job(text: str) -> Request:
    return read(text, "job.jsdl", "/here", ["vu", "delft"])


def component(text: str) -> ComponentRequest:
    return job(text).components[0]


def refused(text: str | bytes) -> Reason:
    with pytest.raises(RequestError) as caught:
        read(text, "job.jsdl", "/here", ["vu", "delft"])
    assert "\n" not in caught.value.reason.message
    assert caught.value.reason.advice
    return caught.value.reason


def assign(match: str, function: str, *more: str) -> str:
    nodes = "".join(
        f'<s:DocumentNode><s:NamespaceBinding ns="http://schemas.ggf.org/jsdl/2005/11/jsdl-posix" prefix="p"/>'
        f"<s:Match>{each}</s:Match></s:DocumentNode>"
        for each in (match, *more)
    )
    return f"<s:Assignment>{nodes}{function}</s:Assignment>"


def swept(*parts: str) -> str:
    return f"<s:Sweep>{''.join(parts)}</s:Sweep>"


def some(*texts: str) -> str:
    return f"<f:Values>{''.join(f'<f:Value>{text}</f:Value>' for text in texts)}</f:Values>"


def commands(text: str) -> list[list[str]]:
    """The words that each parameter runs, then its variables."""
    request = job(text)
    assert request.parameters is not None
    program = request.components[0]
    texts = [program.executable, *program.arguments, *(value for _, value in program.environment)]
    compiled = evaluator.Compiled(asdict(request.parameters), texts)
    return [[word.decode() for word in compiled.of(number)] for number in range(1, request.parameters.count + 1)]


def test_a_job_arrives() -> None:
    found = job(
        jsdl(
            PROGRAM + "<posix:WallTimeLimit>600</posix:WallTimeLimit>",
            more="""<JobIdentification><JobName>rays</JobName><Description>for people</Description>
            <JobProject>physics</JobProject></JobIdentification>
            <Resources><CandidateHosts><HostName>VU</HostName></CandidateHosts>
            <ExclusiveExecution>true</ExclusiveExecution>
            <OperatingSystem><OperatingSystemType><OperatingSystemName>LINUX</OperatingSystemName></OperatingSystemType>
            </OperatingSystem>
            <IndividualCPUCount><Exact>4.0</Exact></IndividualCPUCount>
            <IndividualPhysicalMemory><LowerBoundedRange>4294967296</LowerBoundedRange></IndividualPhysicalMemory>
            <TotalResourceCount><Exact>2</Exact></TotalResourceCount></Resources>
            <DataStaging><FileName>in/a b.txt</FileName><CreationFlag>overwrite</CreationFlag>
            <Source><URI>in/a%20b.txt</URI></Source></DataStaging>
            <DataStaging><FileName>c.txt</FileName><Source><URI>file:///data/c.txt</URI></Source></DataStaging>
            <DataStaging><FileName>out.txt</FileName><Target><URI>out.txt</URI></Target></DataStaging>
            <DataStaging><FileName>log</FileName><Target><URI>file:///keep/logs/log</URI></Target></DataStaging>""",
        )
    )
    assert found.components == (
        ComponentRequest(
            processors=8,
            executable="./solve",
            arguments=("a{0}", "file-000.dat"),
            cluster="vu",
            walltime=Duration(10 * MINUTE),
            launch=Launch.ONCE,
            processors_per_node=4,
            memory_per_processor=1 << 30,
            exclusive=True,
            environment=(("SEED", "1"),),
            account="physics",
        ),
    )
    assert (found.name, found.stage_in, found.stage_out) == ("rays", ("in/a b.txt", "/data/c.txt"), ("out.txt", "log"))
    assert found.stage_out_to == (("log", "/keep/logs"),)
    assert found.parameters is None


def test_the_profile_of_hpc_is_read_too() -> None:
    assert component(jsdl().replace("posix:POSIX", "hpc:HPCProfile").replace("posix:", "hpc:")).executable == "./solve"


def test_texts_are_normalised_as_the_schema_has_it() -> None:
    found = component(
        jsdl("<posix:Executable>\n a\n</posix:Executable><posix:Argument> b\n\tc </posix:Argument><posix:Argument/>")
    )
    assert (found.executable, found.arguments) == ("a", (" b  c ", ""))


def test_it_is_chosen_by_its_ending_or_its_beginning() -> None:
    assert language_of("a.jsdl") == language_of("a.xml") == "jsdl"
    assert language_of("job", "<?xml ...") == language_of("-", b"\xef\xbb\xbf \n<JobDefinition/>") == "jsdl"
    assert language_of("job.yaml", "<a/>") == language_of("job", "a: 1") == language_of("job", "<<: 1") == "yaml"
    assert load("koalapy.languages", "jsdl") is document_of
    assert read_job(jsdl(), "job", "/", readers={"jsdl": document_of}).name == "job"


def test_the_example_is_read() -> None:
    path = Path(__file__).parents[3] / "configs" / "examples" / "sweep.jsdl"
    found = [[*words[2:]] for words in commands(path.read_text())]
    scenes = [
        ("0.00", "scene-001.pov"),
        ("0.25", "scene-002.pov"),
        ("0.75", "scene-003.pov"),
        ("1.00", "scene-004.pov"),
    ]
    assert found == [[angle, scene, seed] for angle, scene in scenes for seed in "ab"]


def test_other_values_for_once() -> None:
    assert read(jsdl(), "job.jsdl", "/", overrides={"components.0.walltime": "5m", "priority": "3"}).priority == 3


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["Output"], {"out": "said\n"}),
        (["Error"], {"err": "wrong\n"}),
        (["Input", "Output", "Error"], {"out": "said\nread", "err": "wrong\n"}),
        (["Error", "Input"], {"err": "wrong\n"}),
    ],
)
def test_files_are_opened_for_the_program(tmp_path: Path, names: list[str], files: dict[str, str]) -> None:
    """By a shell that never reads a word of the user's: the names and arguments are hostile, and it runs for real."""
    (tmp_path / "in").write_text("read")
    place = {"Input": "in", "Output": "out", "Error": "err"}
    argument = "$(touch hacked); `touch hacked` &amp; \" ' {x} *"
    program = "<posix:Executable>sh</posix:Executable><posix:Argument>-c</posix:Argument>"
    program += (
        '<posix:Argument>echo said; echo wrong >&amp;2; [ -t 0 ] || cat; printf %s "$0" >argument</posix:Argument>'
    )
    program += f"<posix:Argument>{argument}</posix:Argument>"
    program += "".join(f"<posix:{name}>{place[name]}</posix:{name}>" for name in names)
    found = component(jsdl(program))
    done = subprocess.run(
        [found.executable, *found.arguments], cwd=tmp_path, check=True, capture_output=True, stdin=subprocess.DEVNULL
    )
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert (done.stdout == b"") is ("Output" in names)
    assert (tmp_path / "argument").read_text() == "$(touch hacked); `touch hacked` & \" ' {x} *"
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("redirected", ["", "<posix:Output>out</posix:Output>", "<posix:Input>in</posix:Input>"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../solve", "is '../solve', outside the attempt's directory"),
        ("bin/", "is 'bin/', a directory"),
        ("~/solve", "is '~/solve', which no shell expands"),
        ("", "is empty"),
    ],
)
def test_the_path_of_a_program_is_checked_with_and_without_redirection(redirected: str, path: str, words: str) -> None:
    reason = refused(jsdl(f"\n<posix:Executable>{path}</posix:Executable>{redirected}"))
    assert words in reason.message
    assert re.match(r"job\.jsdl:\d+: ", reason.message)
    assert reason.advice


def test_output_and_error_may_be_one_file(tmp_path: Path) -> None:
    program = "<posix:Executable>sh</posix:Executable><posix:Argument>-c</posix:Argument>"
    program += "<posix:Argument>echo one; echo two >&amp;2; echo three</posix:Argument>"
    program += "<posix:Output>all $x</posix:Output><posix:Error>all $x</posix:Error>"
    found = component(jsdl(program))
    subprocess.run([found.executable, *found.arguments], cwd=tmp_path, check=True)
    assert (tmp_path / "all $x").read_text() == "one\ntwo\nthree\n"


REFUSED = [
    (
        "<posix:WorkingDirectory>/w</posix:WorkingDirectory>",
        "posix:WorkingDirectory is not supported. A program runs in",
    ),
    (
        "<posix:UserName>me</posix:UserName>",
        "posix:UserName is not supported. Remove it; jobs run as you",
    ),
    (
        "<posix:StackSizeLimit>1</posix:StackSizeLimit>",
        "job.jsdl:11: posix:StackSizeLimit is not supported.",
    ),
    ("<posix:Executable>x</posix:Executable>", "posix:Executable stands here a second time."),
    ('<posix:Argument filesystemName="HOME">x</posix:Argument>', "posix:Argument names a file system"),
    ('<posix:Environment name="SEED">x</posix:Environment>', "posix:Environment names 'SEED' a second time."),
    ("<posix:Environment>x</posix:Environment>", "posix:Environment has no name."),
    (
        '<posix:Environment name="A B">x</posix:Environment>',
        "components.0.environment.A B is not the name of an environment",
    ),
    ("<posix:WallTimeLimit>soon</posix:WallTimeLimit>", "posix:WallTimeLimit is 'soon', no number of seconds."),
    ("<posix:WallTimeLimit>0</posix:WallTimeLimit>", "job.jsdl:11: components.0.walltime is 0s"),
    ("<other/>", "other is not supported."),
]


@pytest.mark.parametrize(("program", "words"), REFUSED)
def test_what_a_program_cannot_have(program: str, words: str) -> None:
    assert words in str(refused(jsdl(f"{PROGRAM}\n{program}")))


def resources(text: str) -> str:
    return jsdl(more=f"<Resources>{text}</Resources>")


def exactly(name: str, number: object) -> str:
    return f"<{name}><Exact>{number}</Exact></{name}>"


MORE = [
    (resources(exactly("TotalDiskSpace", 1)), "TotalDiskSpace is not a resource that koalapy can ask for."),
    (resources(exactly("TotalCPUCount", "many")), "Exact is 'many', no count."),
    (resources(exactly("TotalCPUCount", "1.5")), "Exact is '1.5', no count."),
    (resources(exactly("TotalCPUCount", "1/0")), "Exact is '1/0', no count."),
    (resources(exactly("TotalCPUCount", 0)), "Exact is '0', no count."),
    (resources(exactly("TotalCPUCount", "1e999999999")), "no count."),
    (
        resources("<TotalCPUCount><UpperBoundedRange>4</UpperBoundedRange></TotalCPUCount>"),
        "TotalCPUCount states an upper bound only, and no number of what the job needs.",
    ),
    (
        resources(exactly("TotalCPUCount", 7) + exactly("IndividualCPUCount", 2) + exactly("TotalResourceCount", 3)),
        "contradicts itself: 3 resources of 2 processors are not 7.",
    ),
    (resources(exactly("IndividualPhysicalMemory", 1 << 30)), "IndividualPhysicalMemory is of a node, but"),
    (
        resources("<CandidateHosts><HostName>a</HostName><HostName>b</HostName></CandidateHosts>"),
        "CandidateHosts names 2 hosts.",
    ),
    (
        resources("<CandidateHosts><HostName>mars</HostName></CandidateHosts>"),
        "components.0.cluster is 'mars', which the grid does not have.",
    ),
    (
        resources(
            "<OperatingSystem><OperatingSystemType><OperatingSystemName>Solaris</OperatingSystemName></OperatingSystemType></OperatingSystem>"
        ),
        "OperatingSystemName is 'Solaris'.",
    ),
    (jsdl(more="<DataStaging><FileName>a</FileName></DataStaging>"), "DataStaging stages nothing."),
    (
        jsdl(more="<DataStaging><FileName>a</FileName><Source><URI>gsiftp://h/a</URI></Source></DataStaging>"),
        "URI is 'gsiftp://h/a', no file of this machine.",
    ),
    (jsdl(more="<DataStaging><FileName>a</FileName><Source/></DataStaging>"), "Source has no URI."),
    (
        jsdl(more="<DataStaging><FileName>a</FileName><Source><URI>/x/b</URI></Source></DataStaging>"),
        "URI is '/x/b', which lies at 'b' on the cluster, not at 'a'.",
    ),
    (
        jsdl(more="<DataStaging><FileName>a</FileName><Target><URI>b</URI></Target></DataStaging>"),
        "URI is 'b', another name than 'a'.",
    ),
    (
        jsdl(more="<DataStaging><FilesystemName>T</FilesystemName></DataStaging>"),
        "FilesystemName is not supported.",
    ),
    (jsdl(""), "JobDescription has no program."),
    (jsdl().replace("posix:POSIXApplication", "posix:Other"), "posix:Other is an application that koalapy cannot run."),
    (jsdl(more="<Application/><Unknown/>"), "Unknown is not supported."),
    (jsdl(more="</JobDescription><JobDescription>"), "JobDescription stands here a second time."),
    ("<a/>", "job.jsdl:1: the file is XML, but a begins no JSDL."),
    (f"<JobDefinition {NAMESPACES}/>", "components.0.executable is missing."),
]


@pytest.mark.parametrize(("text", "words"), MORE)
def test_what_a_job_cannot_have(text: str, words: str) -> None:
    assert words in str(refused(text))


# XML


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
<!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">]>
<JobDefinition>&lol3;</JobDefinition>"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, "job.jsdl:2:1: the file declares a document type or entities, which are not read."),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "job.jsdl:1:1: the file declares a document type"),
        ('<!DOCTYPE a [<!ENTITY % x SYSTEM "http://h/x">%x;]><a/>', "declares a document type"),
        (b"\xff\xfe<\x00!\x00D\x00", "this is not XML"),
        (jsdl().encode("utf-16"), "this is not XML"),
        (
            jsdl("<posix:Executable>&who;</posix:Executable>"),
            "job.jsdl:7:24: this is not XML: Entity 'who' not defined",
        ),
        ("", "this is not XML"),
        ("<a>", "this is not XML"),
        ("<a></b>", "this is not XML"),
        ("<a>" * 5_000 + "</a>" * 5_000, "this is not XML"),
        ("<a>" + "<b/>" * 250_001 + "</a>", "has more than 250,000 elements."),
        (" " * 10_000_001, "has 10,000,001 bytes, more than 10,000,000."),
        (jsdl("<posix:Executable>a\udcff</posix:Executable>"), "this is not XML"),
        ("<posix:a/>", "this is not XML"),
    ],
    ids=range(14),
)
def test_what_is_no_harmless_xml(text: str | bytes, words: str) -> None:
    assert words in str(refused(text))


@given(st.text() | st.binary())
def test_whatever_comes_is_refused_in_words(text: str | bytes) -> None:
    refused(text)


@given(
    st.sampled_from(["posix:Executable", "posix:Argument", "s:Sweep", "Resources", "Exact", ">", "</", '"', "2009"]),
    st.text(max_size=5),
)
def test_a_damaged_job_is_read_or_refused(what: str, instead: str) -> None:
    text = jsdl(
        more=f"<Resources>{exactly('TotalCPUCount', 1)}</Resources>", sweep=swept(assign("//p:Argument", some("a")))
    )
    try:
        job(text.replace(what, instead, 1))
    except RequestError as error:
        _ = error


# Sweeps


def test_values_go_where_the_xpath_points() -> None:
    text = jsdl(sweep=swept(assign("//p:Argument[2]", some("x", "{y}", "", "a&amp;b"))))
    assert commands(text) == [["./solve", "a{0}", value, "1"] for value in ("x", "{y}", "", "a&b")]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("//p:Executable", 0),
        ("/*/*/*/*/p:Argument[1]", 1),
        ("//p:Argument[1]/text()", 1),
        ("//*[local-name()='Argument'][last()]", 2),
        ("//p:Environment[@name='SEED']", 3),
        ("//p:Environment[@name!='a..b//c]'][1]", 3),
    ],
)
def test_any_xpath_to_a_text_of_the_program(path: str, place: int) -> None:
    found = commands(jsdl(sweep=swept(assign(path, some("v")))))
    assert [index for index, word in enumerate(found[0]) if word == "v"] == [place]


def test_one_assignment_may_fill_several_texts() -> None:
    found = commands(jsdl(sweep=swept(assign("//p:Argument", some("v", "w"), "//p:Environment"))))
    assert found == [["./solve", "v", "v", "v"], ["./solve", "w", "w", "w"]]


def test_file_names_vary() -> None:
    text = jsdl(
        PROGRAM + "<posix:Output>o-N.txt</posix:Output>",
        sweep=swept(assign("substring(//p:Output, 3, 1)", some("1", "2"))),
    )
    assert [words[4] for words in commands(text)] == ["o-1.txt", "o-2.txt"]


def test_assignments_of_a_sweep_vary_together_and_inner_sweeps_faster() -> None:
    inner = swept(assign("//p:Environment", some("e", "f")))
    text = jsdl(
        sweep=swept(assign("//p:Argument[1]", some("a", "b")), assign("//p:Argument[2]", some("c", "d")), inner)
    )
    assert [words[1:] for words in commands(text)] == [
        [*pair, last] for pair, last in product([("a", "c"), ("b", "d")], "ef")
    ]


def test_three_deep() -> None:
    text = jsdl(
        sweep=swept(
            assign("//p:Executable", some("x", "y")),
            swept(assign("//p:Argument[1]", some("1", "2")), swept(assign("//p:Argument[2]", some("p", "q")))),
        )
    )
    assert [tuple(words[:3]) for words in commands(text)] == list(product("xy", "12", "pq"))


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        ('<f:LoopInteger start="1" end="4"/>', ["1", "2", "3", "4"]),
        ('<f:LoopInteger f:start="01" f:end="+10" f:step="4"/>', ["1", "5", "9"]),
        ('<f:LoopInteger start="3" end="-3" step="-3"/>', ["3", "0", "-3"]),
        (
            '<f:LoopInteger start="1" end="5"><f:Exception value="2"/><f:Exception>4</f:Exception></f:LoopInteger>',
            ["1", "3", "5"],
        ),
        ('<f:LoopDouble start="0.1" end="0.4" step="0.1"/>', ["0.1", "0.2", "0.3", "0.4"]),
        (
            '<f:LoopDouble start="1E-1" end="3e-1" step="1.0e-1"><f:Exception value="0.20"/></f:LoopDouble>',
            ["0.10", "0.30"],
        ),
        ('<f:LoopDouble start="1" end="2" step=".5"/>', ["1.0", "1.5", "2.0"]),
    ],
)
def test_loops(function: str, wanted: list[str]) -> None:
    assert [float(words[1]) for words in commands(jsdl(sweep=swept(assign("//p:Argument[1]", function))))] == [
        float(each) for each in wanted
    ]


def test_a_loop_stays_a_loop() -> None:
    found = job(jsdl(sweep=swept(assign("//p:Argument[1]", '<f:LoopInteger start="1" end="1000000"/>'))))
    assert found.parameters is not None
    assert found.parameters.count == 1_000_000
    assert found.parameters.axes[0].sources[0].loop == ("1", "1000000", "1")


def test_parts_of_a_text_vary() -> None:
    part = "substring(//p:Argument[2], {})"
    text = jsdl(
        sweep=swept(assign(part.format("6, 1"), some("7", "8")), swept(assign(part.format("8,1"), some("9")))),
    )
    assert [words[2] for words in commands(text)] == ["file-709.dat", "file-809.dat"]
    whole = jsdl(sweep=swept(assign("substring(//p:Argument[2], 6)", some("x"))))
    assert commands(whole)[0][2] == "file-x"


def test_names_are_those_of_what_varies() -> None:
    found = job(
        jsdl(
            sweep=swept(
                assign("//p:Argument[2]", some("1")),
                assign("//p:Environment", some("1")),
                assign("substring(//p:Argument[1], 1, 1)", some("1")),
                assign("substring(//p:Argument[1], 2, 1)", some("1")),
            )
        )
    )
    assert found.parameters is not None
    assert evaluator.names(asdict(found.parameters)) == ["argument2", "SEED", "argument1", "argument1_2"]


def test_processors_of_a_sweep_are_those_of_one_process() -> None:
    found = component(
        jsdl(
            more=f"<Resources>{exactly('TotalCPUCount', 4)}</Resources>",
            sweep=swept(assign("//p:Argument[1]", some("1"))),
        )
    )
    assert (found.processors, found.threads_per_process, found.launch) == (4, 4, Launch.PER_PROCESSOR)


BAD_SWEEPS = [
    (swept(assign("//p:Argument[9]", some("1"))), "s:Match is '//p:Argument[9]', which selects nothing."),
    (swept(assign("//p:Argument[", some("1"))), "s:Match is '//p:Argument[', no XPath: Invalid expression."),
    (swept(assign("//q:Argument", some("1"))), "s:Match is '//q:Argument', no XPath: Undefined namespace prefix."),
    (swept(assign("count(//p:Argument)", some("1"))), "which selects no node but is '2.0'."),
    (swept(assign("concat('a', 'b')", some("1"))), "which selects no node but is 'ab'."),
    (swept(assign("//p:Environment/@name", some("1"))), "s:Match selects an attribute, which cannot vary."),
    (swept(assign("/*", some("1"))), "s:Match selects JobDefinition, which cannot vary. Executable, Argument,"),
    (swept(assign("substring(//p:Argument[2], 11, 9)", some("1"))), "beyond the 12 characters of 'file-000.dat'."),
    (swept(assign("substring(//p:Argument[2], 0)", some("1"))), "beyond the 12 characters"),
    (swept(assign(f"//p:Argument[{'1' * 1000}]", some("1"))), "s:Match has more than 1000 characters."),
    (swept(assign("//p:Argument[1]", some("1")), swept(assign("//p:Argument", some("1")))), "which varies already."),
    (swept(assign("//p:Argument[1]", some("1"))) * 2, "s:Sweep stands beside another one. Put it into the other one"),
    (swept(assign("//p:Argument[1]", some("1")), swept(), swept()), "s:Sweep stands beside another one."),
    (swept(), "s:Sweep assigns nothing."),
    (swept("<s:Assignment/>"), "s:Assignment has 0 parameters and 0 functions."),
    (swept(assign("//p:Argument[1]", some("1") + some("2"))), "s:Assignment has 1 parameter and 2 functions."),
    (
        swept("<s:Assignment><s:FileSweep/>" + some("1") + "</s:Assignment>"),
        "s:FileSweep is not a supported parameter.",
    ),
    (swept("<s:Assignment><s:DocumentNode/>" + some("1") + "</s:Assignment>"), "s:DocumentNode has no Match."),
    (swept(assign("//p:Argument[1]", "<f:Random/>")), "f:Random is a function that koalapy does not know."),
    (swept(assign("//p:Argument[1]", some())), "parameters.argument1 has no values."),
    (swept(assign("//p:Argument[1]", '<f:LoopInteger start="1" end="0"/>')), "steps of 1 from 1 never reach 0."),
    (swept(assign("//p:Argument[1]", '<f:LoopInteger start="1" end="9" step="0"/>')), "with a step of zero."),
    (
        swept(assign("//p:Argument[1]", '<f:LoopInteger start="1.5" end="9"/>')),
        "f:LoopInteger has '1.5', which is no whole number.",
    ),
    (swept(assign("//p:Argument[1]", '<f:LoopInteger start="1"/>')), "f:LoopInteger lacks a whole number."),
    (
        swept(assign("//p:Argument[1]", '<f:LoopDouble start="1" end="INF"/>')),
        "f:LoopDouble has 'INF', which is no number.",
    ),
    (
        swept(assign("//p:Argument[1]", '<f:LoopInteger start="1" end="1"><f:Exception value="1"/></f:LoopInteger>')),
        "and all of it is left out.",
    ),
    (
        swept(assign("//p:Argument[1]", some("1")), assign("//p:Argument[2]", some("1", "2"))),
        "parameters.argument2 has 2 values and argument1 1, but",
    ),
    (swept(assign("//*[.//*[.//*]]", some("1"))), "which searches all of the job again for each of its elements."),
    (swept(assign("//*[*[1]/../*]", some("1"))), "which searches all of the job again for each of its elements."),
    (swept(assign("//*//*//*//*", some("1"))), "which searches all of the job again for each of its elements."),
    (swept(*[assign("//p:Executable", some("1"))] * 1001), "s:DocumentNode is number 1001 of 1001."),
    (swept("<JobDescription/>"), "JobDescription is not part of a Sweep."),
]


@pytest.mark.parametrize(("sweep", "words"), BAD_SWEEPS, ids=range(len(BAD_SWEEPS)))
def test_what_is_no_sweep(sweep: str, words: str) -> None:
    assert words in str(refused(jsdl(sweep=sweep)))


COSTLY = [
    "//*/following::*/preceding::*",
    "//*/following-sibling::*",
    "//*[/*/*[/*/*]]",
    "//*[1 and/*/*]",
    "//*[2*/*/*]",
    "//*[count(/*)>0]",
    "//*[id(.)]",
    "id(//*)",
    "//*[concat(., ., .)]",
    "//*[child::*]",
    "//*|//*|//*",
    "//p:Argument[re:test(., '^(a+)+$')]",
]


@pytest.mark.parametrize("path", COSTLY)
def test_what_would_never_end_is_not_begun(path: str) -> None:
    """libxml2 lets nobody stop it, and koalad would answer nobody meanwhile."""
    assert "which searches all of the job again" in str(refused(jsdl(sweep=swept(assign(path, some("1"))))))


@pytest.mark.parametrize(
    "path",
    [
        "/*/*//p:Argument[1]",
        "//p:POSIXApplication[p:Executable and not(p:Limit/p:Other)]/p:Argument[position() = 1]",
        "/descendant::p:Argument[string-length(.) * 2 > 1 and . != '//[/::'][1]",
        "//p:Executable/../p:Argument[last() - 1]",
    ],
)
def test_what_looks_at_itself_and_what_is_in_it_is_evaluated(path: str) -> None:
    assert commands(jsdl(sweep=swept(assign(path, some("1", "2")))))[1][1] == "2"


def test_many_xpaths_of_a_long_job_are_refused() -> None:
    program = PROGRAM + "<posix:Argument>x</posix:Argument>" * 3_000
    text = jsdl(program, sweep=swept(*[assign("//p:Executable", some("1"))] * 100))
    assert "s:DocumentNode is one of 100, in a job of 3,0" in str(refused(text))


def test_a_long_job_is_no_sweep() -> None:
    program = PROGRAM + "<posix:Argument>x</posix:Argument>" * 10_000
    assert len(component(jsdl(program)).arguments) == 10_002
    text = jsdl(program, sweep=swept(assign("//p:Executable", some("1"))))
    assert "elements, more than a sweep may. Put its arguments into a file." in str(refused(text))


TEXT = st.text(
    st.characters(min_codepoint=32, exclude_characters="<&>\x7f", exclude_categories=["Cs", "Cc"]), max_size=8
)


@given(TEXT, st.lists(TEXT, min_size=1, max_size=4), st.data())
def test_only_what_is_selected_changes(argument: str, values: list[str], data: Any) -> None:
    start = data.draw(st.integers(0, len(argument)))
    end = data.draw(st.integers(start, len(argument)))
    match = "//p:Argument[1]"
    if start < end:
        match = f"substring(//p:Argument[1], {start + 1}, {end - start})"
    else:
        start, end = 0, len(argument)
    program = f"<posix:Executable>x</posix:Executable><posix:Argument>{argument}</posix:Argument>"
    found = commands(jsdl(program, sweep=swept(assign(match, some(*values)))))
    assert [words[1] for words in found] == [argument[:start] + value + argument[end:] for value in values]


def test_staged_files_vary() -> None:
    staging = "<DataStaging><FileName>in-0.dat</FileName><Source><URI>in-0.dat</URI></Source></DataStaging>"
    both = assign("substring(//j:FileName, 4, 1)", some("a", "b"), "substring(//j:URI, 4, 1)", "//j:Argument[1]")
    names = '<s:NamespaceBinding ns="http://schemas.ggf.org/jsdl/2005/11/jsdl" prefix="j"/>'
    sweep = swept(both.replace("<s:DocumentNode>", f"<s:DocumentNode>{names}").replace("//j:Argument", "//p:Argument"))
    found = job(jsdl(more=staging, sweep=sweep))
    assert found.stage_in == ("in-{filename}.dat",)
    assert with_staged(found).stage_in == ("in-a.dat", "in-b.dat")
    alone = sweep.replace("substring(//j:URI, 4, 1)", "//p:Executable")
    assert "URI is 'in-0.dat', which lies at 'in-0.dat' on the cluster, not at 'in-{filename}.dat'." in str(
        refused(jsdl(more=staging, sweep=alone))
    )


def test_what_a_sweep_brings_back_varies_too() -> None:
    staging = "<DataStaging><FileName>out-0</FileName><Target><URI>of/x/out-0</URI></Target></DataStaging>"
    names = '<s:NamespaceBinding ns="http://schemas.ggf.org/jsdl/2005/11/jsdl" prefix="j"/>'

    def swept_over(*values: str) -> str:
        changed = assign("substring(//j:FileName, 5, 1)", some(*values), "substring(//j:URI, 10, 1)", "//p:Argument[1]")
        return swept(changed.replace("<s:DocumentNode>", f"<s:DocumentNode>{names}"))

    found = job(jsdl(more=staging, sweep=swept_over("a", "b")))
    assert found.stage_out == ("out-{filename}",)
    assert found.stage_out_to == (("out-{filename}", "of/x"),)
    fixed = staging.replace("out-0", "out")
    reason = refused(jsdl(more=fixed, sweep=swept(assign("//p:Executable", some("a", "b")))))
    assert reason.message == "job.jsdl:12: stage_out.0 is 'out', the same path for several of the 2 parameters."

"""JDL: what each attribute becomes, what the language of the time allowed, and what is refused, with its place."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_languages import read_jdl as read

from koalapy.languages import language_of
from koalapy.languages.reading import from_mapping
from koalapy.model.errors import RequestError
from koalapy.model.request import ComponentRequest, Launch, Request, WhenBusy

EVERYTHING = """\
# A parallel job over several clusters
[
  Type = "Job";
  JobType = "MPICH-G2";          // of CrossGrid
  MinNumCPU = 5;  MaxNumCPU = 8;
  Executable = "solve.sh";
  Arguments = "-n 'a b' \\"c\\"";
  StdInput = "in"; StdOutput = "out.txt"; StdError = "err.txt";
  InputSandbox = {"solve.sh", "/home/me/data/*.dat"};
  OutputSandbox = {"out.txt", "err.txt"};
  Environment = {"A=1", "B=x=y"};
  Requirements = other.OpSys == "Linux" && FreeCPUs >= MaxNumCPU
     && Member("MPICH-G2", other.GlueHostApplicationSoftwareRunTimeEnvironment);  /* of MDS */
  Rank = other.AverageSI;
  Priority = 0;
  RetryCount = 2;
  VirtualOrganisation = "crossgrid";
]
"""


def job(text: str | bytes, **overrides: str) -> Request:
    return read(text, "jobs/job.jdl", "/home/me/jobs", None, overrides)


def of(text: str) -> ComponentRequest:
    (component,) = job(text).components
    return component


def test_every_attribute_is_read() -> None:
    redirected = ("-c", 'exec <"$1" >>"$2" 2>>"$3"; shift 3; exec "$@"', "sh", "in", "out.txt", "err.txt")
    assert job(EVERYTHING) == Request(
        name="job",
        components=(
            ComponentRequest(
                processors=8,
                most=8,
                least=5,
                executable="sh",
                arguments=(*redirected, "./solve.sh", "-n", "a b", "c"),
                environment=(("A", "1"), ("B", "x=y")),
                requirements='other.OpSys == "Linux" && other.FreeCPUs >= 8 && '
                'Member ( "MPICH-G2" , other.GlueHostApplicationSoftwareRunTimeEnvironment )',
                rank="other.AverageSI",
                spread=True,
            ),
        ),
        priority=0,
        when_busy=WhenBusy.WAIT,
        stage_in=("solve.sh", "/home/me/data/*.dat"),
        stage_out=("out.txt", "err.txt"),
        directory="/home/me/jobs",
        labels=(("VirtualOrganisation", "crossgrid"),),
        retrials=2,
    )


@pytest.mark.parametrize(
    "text",
    [
        'Executable = "/bin/date";',
        'Executable = "/bin/date"',
        '[Executable = "/bin/date"]',
        '[ EXECUTABLE="/bin/date"; ]\n',
        '# one\n// two\n/* three\n*/ Executable /* four */ = // five\n "/bin/date" ; # six',
        '\ufeffExecutable = "/bin/date";',
        'Type = "job"; JobType = {"Normal"}; Executable = "/bin/date";',
    ],
)
def test_brackets_comments_and_the_last_semicolon_may_be_there_or_not(text: str) -> None:
    assert of(text) == ComponentRequest(processors=1, executable="/bin/date", launch=Launch.ONCE)


@pytest.mark.parametrize(
    ("attributes", "processors", "least", "launch", "spread"),
    [
        ("", 1, None, Launch.ONCE, False),
        ('JobType = "MPICH"; NodeNumber = 4;', 4, None, Launch.MPI, False),
        ('JobType = "mpich-p4"; MinNumCPU = 4; MaxNumCPU = 9;', 9, 4, Launch.MPI, False),
        ('JobType = "OpenMPI"; MinNumCPU = 4; MaxNumCPU = 4;', 4, None, Launch.MPI, False),
        ('JobType = {"MPICH-G2"}; MinNumCPU = 4; NodeNumber = 4;', 4, None, Launch.PER_PROCESSOR, True),
        ('JobType = "MPICH-G2"; NodeNumber = 4; MaxNumCPU = 6;', 6, 4, Launch.PER_PROCESSOR, True),
    ],
)
def test_the_type_of_a_job_decides_where_its_processes_are(
    attributes: str, processors: int, least: int | None, launch: Launch, spread: bool
) -> None:
    found = of(f'{attributes} Executable = "/bin/a";')
    assert (found.processors, found.least, found.launch, found.spread) == (processors, least, launch, spread)


@pytest.mark.parametrize(
    ("attributes", "executable"),
    [
        ('Executable = "run.sh";', "run.sh"),
        ('Executable = "run.sh"; InputSandbox = "bin/run.sh";', "./run.sh"),
        ('InputSandbox = {"other", "run.sh"}; Executable = "run.sh";', "./run.sh"),
        ('Executable = "/bin/run.sh"; InputSandbox = {"run.sh"};', "/bin/run.sh"),
    ],
)
def test_an_executable_of_the_sandbox_is_looked_up_there(attributes: str, executable: str) -> None:
    assert of(attributes).executable == executable


def test_the_processors_of_a_job_are_known_to_its_requirements() -> None:
    found = of(
        'JobType="MPICH"; NodeNumber=4; MaxNumCPU=6; Executable="a"; Requirements = A>=NodeNumber && B>MaxNumCPU;'
    )
    assert found.requirements == "other.A >= 4 && other.B > 6"


def test_it_is_read_again_from_its_mapping() -> None:
    from koalapy.languages.mapping import job_mapping

    request = job(EVERYTHING)
    assert from_mapping(job_mapping(request), "job.yaml", request.directory) == request


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('Executable = "a";', "jdl"),
        ('\n# x\n[ Executable = "a"; ]', "jdl"),
        ("components:\n", "yaml"),
        ("# a = b\ncomponents: []", "yaml"),
        ("&(executable=a)", "rsl"),
        ('{"components": []}', "yaml"),
    ],
)
def test_its_beginning_shows_the_language(text: str, language: str) -> None:
    assert language_of("-", text) == language
    assert language_of("job.jdl", text) == "jdl"


BAD = [
    ("", "1:1: the text has no attribute", "empty_file"),
    (
        'Executable = "a";\nexecutable = "b";',
        "2:1: executable stands here a second time, after line 1",
        "duplicate_key",
    ),
    ('Executable = "a"\nArguments = "b";', "2:1: Arguments stands here where ; belongs", "syntax"),
    ('Executable = "a" "b"', '1:18: "b" stands here where ; belongs', "syntax"),
    ('[ Executable = "a"; ', "1:1: this bracket is not closed", "syntax"),
    ('Executable = "a"; ]', "1:19: this bracket closes none", "syntax"),
    ("[[", "1:2: [ stands here where an attribute's name belongs", "syntax"),
    ('Exectable = "a";', "1:1: Exectable is not an attribute that is known", "unknown_key"),
    ('Executable = "a";\n  InputData = "x";', "2:3: InputData cannot be honoured", "not_honoured"),
    ('Executable="a"; Priority = 21;', "1:28: Priority is 21, which is not from 0 to 20", "wrong_value"),
    ('Executable="a"; Priority = -1;', "1:28: Priority is not a whole number", "wrong_value"),
    ('Executable="a"; RetryCount = 1.5;', "1:30: RetryCount is not a whole number", "wrong_value"),
    ('Executable="a"; Requirements = other.X = 1;', "1:40: a single = stands inside of an expression", "syntax"),
    ('Executable="a"; Requirements = other.X >;', "1:41: ; stands here where a value belongs", "syntax"),
    ('Executable="a"; Requirements = time() > 1;', "1:32: time is not a function", "unknown_function"),
    ('Executable="a"; Rank = "x";', "1:24: components.0.rank is no number", "bad_expression"),
    ('Executable="a"; Requirements = 5;', "1:32: components.0.requirements is a number", "bad_expression"),
    ('Executable="a"; MinNumCPU=4;', "1:17: MinNumCPU is for parallel jobs", "contradiction"),
    ('JobType="MPICH"; Executable="a";', "1:1: a parallel job has no MinNumCPU", "missing_key"),
    ('JobType="MPICH"; NodeNumber=4; MinNumCPU=3; Executable="a";', "1:18: NodeNumber is 4, but", "contradiction"),
    ('JobType="MPICH"; MinNumCPU=4; MaxNumCPU=3; Executable="a";', "1:31: MaxNumCPU is 3, less", "contradiction"),
    ('JobType={"MPICH","Interactive"}; Executable="a";', "1:1: a parallel job has no MinNumCPU", "missing_key"),
    ('JobType={"Normal","Interactive","MPICH"}; Executable="a";', "1:33: JobType has a second kind", "not_honoured"),
    ('JobType={"Normal","MPICH"}; Executable="a";', "1:19: JobType has a second kind", "not_honoured"),
    ('Type="DAG"; Executable="a";', "1:6: Type is 'DAG'", "not_honoured"),
    ('Executable = "bin/";', "1:14: components.0.executable is 'bin/', a directory", "wrong_value"),
    ('StdOutput = "o"; Executable = "bin/";', "1:31: components.0.executable is 'bin/', a directory", "wrong_value"),
    ('Executable = "../a"; StdInput = "i";', "1:14: components.0.executable is '../a', outside", "wrong_value"),
    ("Executable = a;", "1:14: Executable is not a text", "wrong_value"),
    ('Executable="a"; InputSandbox = {"a", b};', "1:32: InputSandbox is not a text, or a list", "wrong_value"),
    ('Executable="a"; Environment={"A"};', "1:30: 'A' sets no variable", "syntax"),
    ('Executable="a"; Environment={"A=1","A=2"};', "1:36: 'A' is set a second time", "syntax"),
    ('Executable="a"; Environment={"KOALA_X=1"};', "1:30: components.0.environment.KOALA_X", "wrong_value"),
    ('Executable="a"; InputSandbox = {"gsiftp://x/y"};', "1:33: InputSandbox names 'gsiftp://x/y'", "not_honoured"),
    ('Executable="a"; OutputSandbox={"b",\n"../x"};', "2:1: stage_out.1.path is '../x'", "wrong_value"),
    ('Executable="a"; Arguments="\'x";', "1:27: Arguments has a quote", "syntax"),
    ('Arguments="x";', "1:1: the job has no Executable", "missing_key"),
    (b'Executable = "a";\n\xff', "2:1: the text is not UTF-8 from here on", "not_text"),
    ('Executable="\0";', "1:12: a NUL character", "not_text"),
    ('Executable="a\nb";', "1:12: this text has no end", "syntax"),
    ("x" * 20_000, "1:1: the text has 20,000 bytes, more than 16,384", "too_large"),
    ("A = " + "(" * 9_000, ": more than 50 parentheses", "too_deep"),
    ("A = " + "1+" * 4_000 + "1;", ": this expression has more than 500 terms", "too_large"),
    ('Executable="a"; Requirements = [a=1].a;', "1:32: a record begins here", "not_honoured"),
]


@pytest.mark.parametrize(("text", "words", "code"), BAD, ids=range(len(BAD)))
def test_a_mistake_is_refused_with_its_place(text: str | bytes, words: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        job(text)
    reason = caught.value.reason
    assert f"jobs/job.jdl:{words}" in reason.message or (words.startswith(": ") and words in reason.message), reason
    assert reason.code == code
    assert reason.advice.endswith((".", "?", ";")), reason


def test_the_advice_lists_the_attributes_always_in_the_same_order() -> None:
    with pytest.raises(RequestError) as caught:
        job('Executable = "a"; Unheard = 1;')
    assert caught.value.reason.advice.endswith("Requirements, Rank, ExpiryTime, Executable, ….")


@given(st.text('[]{}()=;",.&|<>!?:+-*/%# \nab1eEo\\', max_size=60))
@settings(max_examples=300, deadline=None)
def test_garbage_is_read_or_refused(text: str) -> None:
    with suppress(RequestError):
        job(text)

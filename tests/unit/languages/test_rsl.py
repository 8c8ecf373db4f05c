"""Globus RSL 1.0 as a job language: what its attributes become, and what is refused."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from job_languages import read_rsl as read

from koalapy.common.registry import load
from koalapy.languages import language_of, read_job
from koalapy.languages.rsl import document_of
from koalapy.languages.rsl_attributes import COMPONENT_ATTRIBUTES, JOB_ATTRIBUTES, UNSUPPORTED
from koalapy.model.errors import Reason, RequestError
from koalapy.model.request import FOREVER, ComponentRequest, Launch, Moment, Request, RequestType
from koalapy.model.units import MINUTE, Duration

ROOT = Path(__file__).parents[3]
CLUSTERS = ["vu", "delft"]
PAGE = (ROOT / "docs" / "rsl.md").read_text()


def job(text: str) -> Request:
    return read(text, "job.rsl", "/here", CLUSTERS)


def component(more: str) -> ComponentRequest:
    return job(f"&(executable=/bin/a){more}").components[0]


def refused(text: str) -> Reason:
    with pytest.raises(RequestError) as caught:
        job(text)
    assert "\n" not in caught.value.reason.message
    assert caught.value.reason.advice
    return caught.value.reason


def test_a_conjunction_is_a_job_of_one_component() -> None:
    found = job(
        """(* a request with all that koalapy honours *)
        & (rsl_substitution = (TOP "/home/nobody") (DATA $(TOP)"/data"))
          (label = rays) (executable = $(TOP)/bin/solve) (arguments = -n 4 "a b" 'it''s' $(DATA)/in # .txt)
          (environment = (A 1) (B "x y")) (count = 8) (hostCount = 2) (maxWallTime = 10) (maxMemory = 512)
          (queue = short) (project = physics) (resourceManagerContact = VU) (jobType = multiple)
          (file_stage_in = (file:///data/a%20b.txt "a b.txt") (in/c.txt in/c.txt))
          (file_stage_out = (out.txt out.txt) (log file:///keep/logs/log))
          (dryRun = no) (save_state = yes) (gram_my_job = collective) (subjobStartType = strict-barrier)"""
    )
    assert found.components == (
        ComponentRequest(
            processors=8,
            executable="/home/nobody/bin/solve",
            arguments=("-n", "4", "a b", "it's", "/home/nobody/data/in.txt"),
            cluster="vu",
            walltime=Duration(10 * MINUTE),
            processors_per_node=4,
            memory_per_processor=512 << 20,
            environment=(("A", "1"), ("B", "x y")),
            account="physics",
            queue="short",
        ),
    )
    assert (found.name, found.directory) == ("rays", "/here")
    assert (found.stage_in, found.stage_out) == (("/data/a b.txt", "in/c.txt"), ("out.txt", "log"))
    assert found.stage_out_to == (("log", "/keep/logs"),)
    assert found.communication


def test_a_job_may_wait_for_so_many_minutes() -> None:
    assert job("&(executable = a)(max_wait = 90)").expires == Moment(after=Duration(90 * MINUTE))
    assert job("+(maxWait = 5)(&(executable = a))(&(executable = b))").expires == Moment(after=Duration(5 * MINUTE))
    reason = refused("+(&(executable = a)(max_wait = 5))(&(executable = b))")
    assert "max_wait is of one subrequest" in reason.message
    assert "max_wait is 'soon', no whole number" in refused("&(executable = a)(max_wait = soon)").message
    assert "max_wait bounds the minutes" in refused("&(executable = a)(expiration = 5)").advice


def test_a_multirequest_is_one_job_whose_components_are_its_subrequests() -> None:
    found = job(
        """+ (label = climate) (file_stage_in = (model model))
             (& (resourceManagerContact = vu) (label = "subjob 0") (executable = model) (count = 4))
             (& (resourceManagerContact = delft) (label = "subjob 1") (executable = model) (arguments = europe)
                (subjobStartType = loose-barrier))"""
    )
    assert [each.cluster for each in found.components] == ["vu", "delft"]
    assert [each.optional for each in found.components] == [False, True]
    assert [each.executable for each in found.components] == ["./model", "./model"]
    assert (found.name, found.stage_in, found.type) == ("climate", ("model",), RequestType.ORDERED)


def test_without_a_contact_a_request_is_unordered() -> None:
    assert job("+(&(executable=a))(&(executable=b))").type is RequestType.UNORDERED
    assert job("+(&(executable=a)(resourceManagerContact=vu))(&(executable=b))").type is RequestType.MIXED


@pytest.mark.parametrize(
    ("text", "executables"),
    [
        ("executable=a", ["./a"]),
        ("&(executable=/bin/a)", ["/bin/a"]),
        ("&(&(executable=bin/a))(&(count=2))", ["bin/a"]),
        ("+(&(executable=a))", ["./a"]),
        ("+(+(&(executable=a))(&(executable=b)))(&(executable=c))", ["./a", "./b", "./c"]),
        ("+(&(&(executable=a))(count=2))(&(executable=b))", ["./a", "./b"]),
    ],
)
def test_requests_in_requests(text: str, executables: list[str]) -> None:
    assert [each.executable for each in job(text).components] == executables


@pytest.mark.parametrize("name", ["maxWallTime", "max_wall_time", "MAXWALLTIME", "Max_WallTime_", "'max_wall_time'"])
def test_names_are_compared_without_case_and_underscores(name: str) -> None:
    assert component(f"({name}=5)").walltime == 5 * MINUTE


ATTRIBUTES = [
    ("", {}),
    ("(count=4)", {"processors": 4}),
    ("(count=4)(hostCount=4)", {"processors": 4, "processors_per_node": 1}),
    ("(jobType=single)(count=4)", {"processors": 4, "launch": Launch.ONCE}),
    ("(jobType=Multiple)(count=4)", {"processors": 4}),
    ("(jobType=mpi)(count=4)", {"processors": 4, "launch": Launch.MPI}),
    ("(maxTime=60)", {}),
    ("(maxTime=90)", {"walltime": Duration(90 * MINUTE)}),
    ("(minMemory=100)", {"memory_per_processor": 100 << 20}),
    ("(minMemory=100)(maxMemory=200)", {"memory_per_processor": 200 << 20}),
    ("(count=4)(maxMemory=200)", {"processors": 4, "memory_per_processor": 200 << 20}),
    (
        "(count=4)(jobType=single)(maxMemory=202)",
        {"processors": 4, "launch": Launch.ONCE, "memory_per_processor": 51 << 20},
    ),
    ("(account=physics)", {"account": "physics"}),
    ("(subjobCommsType=independent)(subjobStartType=strict-barrier)", {}),
    ("(arguments='' \"\")", {"arguments": ("", "")}),
]


@pytest.mark.parametrize(("more", "expected"), ATTRIBUTES, ids=[more for more, _ in ATTRIBUTES])
def test_an_attribute_becomes_a_key(more: str, expected: dict[str, object]) -> None:
    plain = ComponentRequest(processors=1, executable="/bin/a")
    assert component(more) == replace(plain, **expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("types", "communicates"),
    [
        (("", ""), True),
        (("(subjobCommsType=independent)",) * 2, False),
        (("(subjobCommsType=independent)", "(subjobCommsType=blocking-join)"), True),
        (("(subjobCommsType=independent)", ""), True),
        (("", "(subjobCommsType=independent)"), True),
    ],
)
def test_components_of_which_none_communicates_may_lie_in_different_networks(
    types: tuple[str, str], communicates: bool
) -> None:
    parts = "".join(f"(&(executable=a){each})" for each in types)
    assert job(f"+{parts}").communication is communicates
    assert job(f"+(communication=all){parts}").communication
    assert not job(f"+(communication=none){parts}").communication


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("&(rsl_substitution=(A x))(executable=a)(arguments=$(A))", "x"),
        ("&(executable=a)(arguments=$(A))(rslSubstitution=(A x))", "x"),
        ("&(rsl_substitution=(A x) (B $(A)y))(executable=a)(arguments=$(B))", "xy"),
        ("&(rsl_substitution=(A x))(rsl_substitution=(B $(A)y))(executable=a)(arguments=$(B))", "xy"),
        ("&(rsl_substitution=(A x))(&(executable=a)(arguments=$(A)))", "x"),
        ("+(rsl_substitution=(A x))(&(executable=a)(arguments=$(A)))", "x"),
        ("+(rsl_substitution=(A x))(&(rsl_substitution=(A z$(B y)))(executable=a)(arguments=$(A)))", "zy"),
        ("+(rsl_substitution=(A x))(&(rsl_substitution=(B $(A)2))(executable=a)(arguments=$(B)))", "x2"),
        ("&(executable=a)(arguments=$(A default))", "default"),
        ("&(executable=a)(arguments=$(A $(B 'a b')))", "a b"),
        ("&(rsl_substitution=(A ''))(executable=a)(arguments=$(A default))", ""),
        ("&(rsl_substitution=(a b) ($(a) foo))(executable=a)(arguments=$(b))", "foo"),
    ],
)
def test_variables(text: str, argument: str) -> None:
    assert job(text).components[0].arguments == (argument,)


@pytest.mark.parametrize("relation", ["=1", ">1", "=(1 2)"])
def test_a_hostile_name_does_not_reach_a_terminal(relation: str) -> None:
    reason = refused(f"&(executable=a)('\x1b]0;x\x07{'y' * 1000}'{relation})")
    assert reason.message.isprintable()
    assert reason.advice.isprintable()
    assert len(f"{reason}") < 400


def test_a_variable_holds_in_its_request_only() -> None:
    text = "+(&(rsl_substitution=(A x))(executable=$(A)))\n(&(executable=$(A)))"
    assert refused(text).message == "job.rsl:2:15: the variable 'A' is not defined."


@pytest.mark.parametrize(
    ("count", "names", "files"),
    [
        (1, ["stdout"], {"out": "printed\n"}),
        (1, ["stderr"], {"err": "wrong\n"}),
        (1, ["stdin", "stdout", "stderr"], {"out": "printed\nread", "err": "wrong\n"}),
        (2, ["stdin", "stdout", "stderr"], {"out": "printed\nread" * 2, "err": "wrong\n" * 2}),
    ],
)
def test_files_are_opened_for_the_program(tmp_path: Path, count: int, names: list[str], files: dict[str, str]) -> None:
    """The shell that opens them interprets nothing of the user's; several processes append to one file."""
    (tmp_path / "in").write_text("read")
    place = {"stdin": "in", "stdout": "out", "stderr": "err"}
    argument = "$(touch hacked); `touch hacked` & \" ' {x} *"
    more = "".join(f"({name}={place[name]})" for name in names)
    script = 'echo printed; echo wrong >&2; [ "$1" ] && cat; printf %s "$0" >argument'
    quoted = "^|" + script.replace("|", "||") + "| ^|" + argument + "|" + (" read" if "stdin" in names else " ''")
    found = job(f"&(executable=/bin/sh)(arguments=-c {quoted})(count={count}){more}").components[0]
    for _ in range(count):
        subprocess.run([found.executable, *found.arguments], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert (tmp_path / "argument").read_text() == argument
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("count", [1, 2])
def test_output_and_error_may_be_one_file(tmp_path: Path, count: int) -> None:
    text = f"&(executable=/bin/sh)(arguments=-c 'echo one; echo two >&2; echo three')(count={count})"
    found = job(f"{text}(stdout='all $x')(stderr='all $x')").components[0]
    for _ in range(count):
        subprocess.run([found.executable, *found.arguments], cwd=tmp_path, check=True)
    assert (tmp_path / "all $x").read_text() == "one\ntwo\nthree\n" * count


def test_the_words_of_a_program_keep_their_places_behind_the_shell_that_opens_files() -> None:
    document = document_of("&(executable=/bin/a)\n(stdout=o)\n(arguments=x\n y)", "job.rsl")
    argv = document.data["components"][0]["arguments"]
    found = {word: document.where(("components", 0, "arguments", argv.index(word))) for word in ("/bin/a", "x", "y")}
    assert found == {"/bin/a": "job.rsl:1:14", "x": "job.rsl:3:12", "y": "job.rsl:4:2"}


def test_it_is_chosen_by_its_ending_or_its_beginning() -> None:
    assert language_of("a.rsl") == language_of("dir.yaml/A.RSL", "a: 1") == "rsl"
    for text in ("&(a=b)", b"\xef\xbb\xbf\n & (a=b)", "+(&(a=b))", "*(a=b)", "|\n(a=b)", " (* comment *) &(a=b)"):
        assert language_of("job", text) == language_of("-", text) == "rsl"
    for text in ("", "&", "a: &(b) c", "&anchor a: 1", "- a", "(a=b)"):
        assert language_of("job", text) == "yaml"
    assert language_of("job", "a=b") == "jdl"
    assert language_of("job.yaml", "&(a=b)") == "yaml"
    assert load("koalapy.languages", "rsl") is document_of
    assert read_job("&(executable=a)", "job", "/", readers={"rsl": document_of}).name == "job"


def test_the_example_is_read() -> None:
    path = ROOT / "configs" / "examples" / "hello.rsl"
    found = read_job(path.read_bytes(), str(path), str(path.parent), readers={"rsl": document_of})
    assert [each.processors for each in found.components] == [2, 2]
    assert all((path.parent / name).is_file() for name in found.stage_in)


def test_other_values_for_once() -> None:
    found = read("&(executable=a)", "job.rsl", "/", overrides={"components.0.processors": "3", "priority": "2"})
    assert (found.components[0].processors, found.priority) == (3, 2)


REFUSED = [
    ("(count>4)", "count is compared by >, but takes one exact value"),
    ("(count!=4)", "count is compared by !="),
    ("(count=4 5)", "count has 2 values, but takes one"),
    ("(count=(4))", "count is a list"),
    ("(count=many)", "count is 'many', no whole number"),
    ("(count=-1)", "count is '-1', no whole number"),
    ("(count=1.5)", "count is '1.5', no whole number"),
    ("(count=٤)", "count is '٤', no whole number"),
    ("(count=0)", "components.0.processors is 0"),
    ("(count=2000000)", "components.0.processors is 2000000"),
    ("(count=0)(jobType=single)(maxMemory=5)", "components.0.processors is 0"),
    ("(hostCount=3)", "hostCount is 3, among which 1 process is not divided equally"),
    ("(hostCount=0)", "hostCount is 0"),
    ("(maxWallTime=0)", "components.0.walltime is 0s"),
    ("(maxWallTime=999999999)", "components.0.walltime is"),
    ("(maxTime=5)(maxWallTime=5)", "maxWallTime stands beside another limit of the run time"),
    ("(maxCpuTime=5)", "maxCpuTime limits the processor time"),
    ("(minMemory=0)", "components.0.memory_per_processor is '0M'"),
    ("(minMemory=5)(maxMemory=4)", "minMemory is 5, more than maxMemory, 4"),
    ("(jobType=condor)", "jobType is condor"),
    ("(jobType=other)", "jobType is 'other'"),
    ("(executable=/bin/b)", "executable stands here a second time, after line 1"),
    ("(Exe_cutable=/bin/b)", "Exe_cutable stands here a second time"),
    ("(&(executable=/bin/b))", "executable stands here a second time"),
    ("(arguments=a (b c))", "arguments contains a list"),
    ("(environment=A)", "environment has a value here that is no pair"),
    ("(environment=(A 1 2))", "environment has a value here that is no pair"),
    ("(environment=(A (1)))", "environment has a value here that is no pair"),
    ("(environment=(A 1) (A 2))", "environment names 'A' a second time"),
    ("(environment=(1A 1))", "components.0.environment.1A is not the name of an environment variable"),
    ("(environment=(KOALA_X 1))", "components.0.environment.KOALA_X is a name that koalapy sets"),
    ("(directory=/home/me)", "directory is not supported"),
    ("(stdin=https://h:1/f)", "stdin is the address 'https://h:1/f'"),
    ("(stdout=x-gass-cache://o)", "stdout is the address"),
    ("(stderr=gsiftp://h/f)", "stderr is the address"),
    ("(stdout=(a) (b))", "stdout has 2 values, but takes one"),
    ("(stdout='')", "stdout is empty"),
    ("(resourceManagerContact=mars)", "components.0.cluster is 'mars', which the grid does not have"),
    ("(resourceManagerContact='vu:2119/jobmanager-pbs')", "components.0.cluster is 'vu:2119/jobmanager-pbs'"),
    ("(queue='a b')", "components.0.queue"),
    ("(subjobStartType=no-barrier)", "subjobStartType is no-barrier, but the components of a job start together"),
    ("(subjobStartType=loose-barrier)", "components are all optional"),
    ("(subjobCommsType=other)", "subjobCommsType is 'other'"),
    ("(min_count=2)", "components.0.processors wants 1, fewer than the least, 2"),
    ("(reservation=r1)", "reservation is not of a job"),
    ("(dryRun=yes)", "dryRun is yes, which is an option of the command here"),
    ("(save_state=maybe)", "save_state is 'maybe'"),
    ("(file_stage_in=a b)", "file_stage_in has a value here that is no pair"),
    ("(file_stage_in=(gsiftp://h/a a))", "file_stage_in names 'gsiftp://h/a', no file of this machine"),
    ("(file_stage_in=(file://other/a a))", "file_stage_in names 'file://other/a', no file of this machine"),
    ("(file_stage_in=(/data/a b))", "'/data/a' lies at 'a' on the cluster, not at 'b'"),
    ("(file_stage_in=(/x/a a) (/y/a a))", "stage_in names '/y/a', where another file lies already"),
    ("(file_stage_out=(a https://h/a))", "file_stage_out names 'https://h/a', no file of this machine"),
    ("(file_stage_out=(a /b/c))", "'/b/c' is another name than 'a'"),
    ("(file_stage_out=(../a ../a))", "stage_out.0.path is '../a', outside the job's directory"),
    ("(file_stage_in_shared=(a a))", "file_stage_in_shared is not supported"),
    ("(file_clean_up=a)", "file_clean_up is not supported"),
    ("(two_phase=5)", "two_phase belongs to a session with Globus's job manager"),
    ("(cout=5)", "cout is not a known attribute"),
    ("(rsl_substitution>(A 1))", "rsl_substitution is compared by >"),
    ("(rsl_substitution=A)", "this defines no variable"),
    ("(rsl_substitution=(A))", "this defines no variable"),
    ("(rsl_substitution=(A 1 2))", "this defines no variable"),
    ("(rsl_substitution=(A (1)))", "this defines no variable"),
    ("(rsl_substitution=(A 1) (A 2))", "the variable 'A' is defined a second time"),
    ("(arguments=$(A))", "the variable 'A' is not defined"),
    ("(arguments=$(A b c))", "this reference does not consist of a variable's name"),
    ("(arguments=$(A (b)))", "this reference does not consist of a variable's name"),
    ("(arguments=$($(A)))", "this reference does not consist of a variable's name"),
    ("(+(&(executable=b)))", "+ stands inside of &"),
    ("(|(count=1)(count=2))", "| offers alternatives, of which koalapy cannot choose"),
    ("(*(&(executable=b)))", "* is a multistage request"),
]


@pytest.mark.parametrize(("more", "words"), REFUSED, ids=[more for more, _ in REFUSED])
def test_what_cannot_be_honoured_is_refused_by_name_line_and_column(more: str, words: str) -> None:
    message = refused(f"&(executable=/bin/a)\n  {more}").message
    assert message.startswith("job.rsl:2:" if "all optional" not in words else "job.rsl:")
    assert words in message


WHOLE = [
    ("|(&(executable=a))(&(executable=b))", "job.rsl:1:1: | offers alternatives"),
    ("&(count=4)", "job.rsl:1:1: this request has no executable."),
    ("+(&(executable=a))\n (&(count=4))", "job.rsl:2:3: this request has no executable."),
    ("+(rsl_substitution=(A b))", "job.rsl: components is empty"),
    ("+(executable=a)(&(count=2))", "job.rsl:1:3: executable stands beside the subrequests of +"),
    ("+(wait=2)(&(executable=a))", "job.rsl:1:3: wait names jobs of a multistage request"),
    ("+(label=a)(label=b)(&(executable=a))", "job.rsl:1:12: name of the job stands here a second time, after line 1."),
    ("+(&(executable=a)(file_stage_out=(a a)))", "job.rsl:1:19: file_stage_out is of one subrequest"),
    ("+(&(executable=a)(file_stage_in=(a a)))", "job.rsl:1:19: file_stage_in is of one subrequest"),
    ("+(&(executable=a)(communication=none))", "job.rsl:1:19: communication is of one subrequest"),
    ("+(&(executable=a))(*(&(executable=b)))", "job.rsl:1:20: * is a multistage request"),
    ("+(communication=some)(&(executable=a))", "job.rsl:1:3: communication is 'some'."),
    ("+" + "(&(executable=a))" * 1025, "lists 1025 components, more than 1024"),
    ("&(executable='')", "job.rsl:1:3: executable is empty."),
    ("&(executable=https://h/a)", "job.rsl:1:3: executable is the address 'https://h/a'"),
    ("&(executable=bin/)", "job.rsl:1:3: executable is 'bin/', a directory"),
    ("&(executable=../a)", "job.rsl:1:3: executable is '../a', outside"),
    ("&(executable=../a)(stdout=b)", "job.rsl:1:3: executable is '../a', outside"),
    ("&(executable=$(HOME)/a)", "job.rsl:1:14: the variable 'HOME' is not defined."),
    ("&(label=" + "x" * 200 + ")(executable=a)", "job.rsl:1:3: name has 200 characters"),
]


@pytest.mark.parametrize(("text", "words"), WHOLE, ids=[text[:60] for text, _ in WHOLE])
def test_what_a_request_cannot_be(text: str, words: str) -> None:
    assert words in refused(text).message


@pytest.mark.parametrize(
    ("name", "meant"),
    [("excutable", "executable"), ("max_walltme", "maxWallTime"), ("hostcont", "hostCount"), ("filestage_in", "")],
)
def test_the_nearest_known_name_is_offered(name: str, meant: str) -> None:
    if meant:
        assert refused(f"&(executable=a)({name}=5)").advice == f"Did you mean {meant}?"
    else:
        assert component(f"({name}=(a a))")


def test_the_advice_for_a_variable_of_globus_states_what_it_is() -> None:
    assert refused("&(executable=$(HOME)/a)").advice.startswith("Globus defines it, koalapy does not")
    assert refused("&(rsl_substitution=(TOPDIR x))(executable=$(TOPDR))").advice == "Did you mean TOPDIR?"


def test_lark_is_imported_only_once_a_request_is_read() -> None:
    code = "import sys; from koalapy.koalad import job_reader; from koalapy.languages import rsl; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "koalapy.languages.rsl" in done.stdout.split()
    assert "lark" not in done.stdout.split()


def test_the_page_names_every_attribute() -> None:
    named = {each.replace("_", "").casefold() for each in re.findall(r"`(\w+)`", PAGE)}
    for key in (*COMPONENT_ATTRIBUTES, *JOB_ATTRIBUTES, *UNSUPPORTED):
        assert key in named


def test_the_example_of_the_page_is_read() -> None:
    example = re.search(r"^    \+ .*?(?=\n\n)", PAGE, re.MULTILINE | re.DOTALL)
    assert example
    found = job(example[0])
    assert [(each.cluster, each.arguments) for each in found.components] == [
        ("vu", ("europe",)),
        ("delft", ("america",)),
    ]


# ---- multistage requests


def flow_of(text: str) -> Request:
    return read(text, "job.rsl", "/home/me", CLUSTERS)


JOB_A = "(&(executable=/bin/a))"


def test_a_multistage_request_is_a_flow_whose_jobs_have_labels_or_numbers() -> None:
    found = flow_of(
        "*(label=tree)(on_failure=stop)(rsl_substitution=(N 3))"
        "(&(label=first)(executable=/bin/a)(count=$(N))(on_error=2))"
        "(+(label=both)(wait=1)(on_error=n)(&(executable=/bin/a))(&(executable=/bin/b)))(&(executable=/bin/c))"
    )
    assert (found.name, str(found.on_failure)) == ("tree", "stop")
    assert [(job.request.name, job.after, job.request.retrials) for job in found.jobs] == [
        ("first", (), 2),
        ("both", (0,), FOREVER),
        ("3", (), None),
    ]
    assert found.jobs[0].request.processors == 3
    assert len(found.jobs[1].request.components) == 2


FLOWS_REFUSED = [
    (f"*{JOB_A}\n(&(executable=/bin/a)(wait=3))", "job.rsl:2:28: wait names job 3, and the request has 2"),
    (f"*{JOB_A}\n(&(executable=/bin/a)(wait=x))", "wait is 'x', no number of a job"),
    ("*\n(&(executable=/bin/a)(wait=2))\n(&(executable=/bin/a)(wait=1))", "job.rsl:2:23: jobs.0.after closes a circle"),
    (f"*(executable=/bin/a){JOB_A}", "job.rsl:1:3: executable stands beside the jobs of *"),
    ("*(&(label=a)(executable=/bin/a))\n(&(label=a)(executable=/bin/a))", "job.rsl:2:4: jobs.1.name is"),
    ("*(label=a)", "jobs is empty"),
    ("*(&(executable=/bin/a)(cout=1))", "job.rsl:1:24: cout is not a known attribute"),
    ("*(&(executable=/bin/a)(on_error=x))", "job.rsl:1:24: jobs.0.on_error is"),
    ("*" + "(*" * 101 + JOB_A + ")" * 101, "more than 100 parentheses are open"),
    ("*(|(executable=a)(executable=b))", "| offers alternatives"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), FLOWS_REFUSED, ids=[words for _, words in FLOWS_REFUSED])
def test_a_mistake_in_a_multistage_request_is_named_with_its_place(text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        flow_of(text)
    assert words in caught.value.reason.message

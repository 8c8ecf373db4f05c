"""Requests as Globus documents and tests them: each is read, or refused with the reason that its author would expect.

The cases are those of the job manager's tests and manual page (GRAM5); of the specification of RSL 1.0, of DUROC and
globus-job-run, and of the Java CoG Kit. The texts are ours.
"""

import pytest
from job_languages import read_rsl as read

from koalapy.languages.parsed import SourceText
from koalapy.languages.rsl_grammar import parse
from koalapy.model.errors import RequestError
from koalapy.model.request import ComponentRequest, Launch, Request

SH = "&(executable=/bin/sh)"


def job(text: str) -> Request:
    return read(text, "job.rsl", "/here")


PROGRAMS = {
    "a shell": ("&(executable=/bin/sh)(arguments=-c 'exit 3')", ["/bin/sh", "-c", "exit 3"]),
    "no arguments": ("&(executable=/bin/echo)", ["/bin/echo"]),
    "one argument": ("&(executable=/bin/echo)\n (arguments=hello)", ["/bin/echo", "hello"]),
    "two arguments": ("&(executable=/bin/echo)\n (arguments=hello world)", ["/bin/echo", "hello", "world"]),
    "quotes in quotes": ('&(executable=/bin/echo)(arguments=a "b ""c""")', ["/bin/echo", "a", 'b "c"']),
    "backslashes": (r'&(executable=/bin/printf)(arguments="%s\n" \\x)', ["/bin/printf", r"%s\n", r"\\x"]),
    "parentheses in quotes": ('&(executable=/bin/echo)(arguments="a (b)")', ["/bin/echo", "a (b)"]),
    "a dollar in quotes": ('&(executable=/bin/echo)(arguments="for $0.10?")', ["/bin/echo", "for $0.10?"]),
    "an at sign": ("&(executable=/bin/echo)(arguments=me@example.org)", ["/bin/echo", "me@example.org"]),
    "back-ticks": ('&(executable=/bin/echo)(arguments=back-ticks "(`)")', ["/bin/echo", "back-ticks", "(`)"]),
    "an apostrophe": ('&(executable=/bin/echo)(arguments="shouldn\'t")', ["/bin/echo", "shouldn't"]),
    "shell variables": (
        "&(executable = /bin/sh)(arguments  = -c 'if [ -d \"$HOME\" ] && true; then echo 1 1>&2; fi' )",
        ["/bin/sh", "-c", 'if [ -d "$HOME" ] && true; then echo 1 1>&2; fi'],
    ),
    "a comment before": ("(* LRM_SKIP:pbs,slurm *)\n&(executable=/bin/echo)", ["/bin/echo"]),
    "a substitution": (
        "&(rsl_substitution = \n (v1 x)\n)\n(executable=/bin/echo)(arguments=$(v1))",
        ["/bin/echo", "x"],
    ),
    "a substituted name": (
        "&(rsl_substitution=(a b) ($(a) foo))(executable=/bin/echo)(arguments=$(b))",
        ["/bin/echo", "foo"],
    ),
    "user delimiters": ("&(executable=/bin/echo)(arguments=^%a'b\"c%)", ["/bin/echo", "a'b\"c"]),
    "operators inside of words": ("&(executable=/bin/echo)(arguments=a&b c|d e+f)", ["/bin/echo", "a&b", "c|d", "e+f"]),
}


@pytest.mark.parametrize(("text", "words"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_and_its_arguments(text: str, words: list[str]) -> None:
    found = job(text).components[0]
    assert [found.executable, *found.arguments] == words


@pytest.mark.parametrize("count", [1, 100, 1000, 3500])
def test_many_substitutions(count: int) -> None:
    definitions = "\n".join(f"(var{number:04} val{number:04})" for number in range(count))
    text = f"&\n(rsl_substitution = {definitions}\n)\n(executable=/bin/echo)(arguments=$(var{count - 1:04}))"
    assert job(text).components[0].arguments == (f"val{count - 1:04}",)


def test_the_examples_of_the_specification() -> None:
    simple = """(* a comment *)
        & (executable = /home/nobody/a.out (* <-- an unquoted literal *))
          (arguments = arg1 "arg 2") (count = 1)"""
    assert job(simple).components == (
        ComponentRequest(processors=1, executable="/home/nobody/a.out", arguments=("arg1", "arg 2")),
    )
    variables = """
        & (rsl_substitution = (TOPDIR "/home/nobody")
                              (DATADIR $(TOPDIR)"/data")
                              (EXECDIR $(TOPDIR)/bin) )
          (executable = $(EXECDIR)/a.out
             (* ^-- implicit concatenation *))
          (arguments = $(DATADIR)/file1
             (* ^-- implicit concatenation *)
             $(DATADIR) # /file2
             (* ^-- explicit concatenation *)
             '$(FOO)'
             (* <-- a quoted literal *))
          (environment = (DATADIR $(DATADIR)))
          (count = 1)"""
    found = job(variables).components[0]
    assert found.executable == "/home/nobody/bin/a.out"
    assert found.arguments == ("/home/nobody/data/file1", "/home/nobody/data/file2", "$(FOO)")
    assert found.environment == (("DATADIR", "/home/nobody/data"),)


def test_a_request_of_the_java_cog_kit() -> None:
    text = """&(exECutable=/bin/ls)(arGUments=-arg1 -arg2 "  -arg3 ")
        (rsl_SubSTitution=(J x) (GLOBUS g) (HOME /home/me))
        (environment=(v1 value1/$(J)/value2 ) (v2 $(GLOBUS)) (v3 $(HOME)/data # /bin))"""
    found = job(text).components[0]
    assert found.arguments == ("-arg1", "-arg2", "  -arg3 ")
    assert found.environment == (("v1", "value1/x/value2"), ("v2", "g"), ("v3", "/home/me/data/bin"))


def test_variables_of_two_subrequests() -> None:
    text = """ + (& (rsl_substitution = (VAR1 /bin/one))(executable = $(VAR1)))
                 (& (rsl_substitution = (TOPDIR "/home/nobody") (EXECDIR $(TOPDIR)/bin) )
                    (executable = $(EXECDIR)/a # .out(* ^-- implicit concatenation *)))"""
    assert [each.executable for each in job(text).components] == ["/bin/one", "/home/nobody/bin/a.out"]


def test_a_multirequest_as_globus_job_run_writes_it() -> None:
    """DUROC's attributes; `resourceManagerContact` is a name of the grid file here."""
    text = """+
( &(jobType=single)(resourceManagerContact="flash")
   (subjobStartType=strict-barrier)
   (label="subjob 0")
   (executable=/bin/hostname)
   (maxtime=5)
   (environment=(GLOBUS_DUROC_SUBJOB_INDEX 0) (LD_LIBRARY_PATH /usr/lib))
   (count=5)
)
( &(resourceManagerContact="iron")
   (subjobStartType=strict-barrier)
   (label="subjob 1")
   (executable=/bin/hostname)
   (environment=(GLOBUS_DUROC_SUBJOB_INDEX 1))
   (count=2)
   (host_count=2)
)
"""
    first, second = job(text).components
    assert (first.cluster, first.processors, first.launch) == ("flash", 5, Launch.ONCE)
    assert (second.cluster, second.processors, second.processors_per_node) == ("iron", 2, 1)
    assert first.environment[0] == ("GLOBUS_DUROC_SUBJOB_INDEX", "0")


REFUSED = {
    # Globus refuses these as well
    "count": (f"{SH}(count=asdf)", "count is 'asdf', no whole number"),
    "host count": (f"{SH}(host_count=asdf)", "host_count is 'asdf', no whole number"),
    "negative host count": (f"{SH}(host_count=-1)", "host_count is '-1', no whole number"),
    "list as host count": (f"{SH}(host_count=(1))", "host_count is a list"),
    "job type": (f"{SH}(jobtype=bogus)", "jobtype is 'bogus'"),
    "list as job type": (f"{SH}(jobtype = (a list))", "jobtype is a list"),
    "memory": (f"{SH}(max_memory=-1)", "max_memory is '-1', no whole number"),
    "list as memory": (f"{SH}(min_memory=(1))", "min_memory is a list"),
    "time": (f"{SH}(maxtime=-1)", "maxtime is '-1', no whole number"),
    "list as time": (f"{SH}(max_wall_time=(1))", "max_wall_time is a list"),
    "state": (f"{SH}(save_state=bogus)", "save_state is 'bogus'"),
    "list as state": (f"{SH}(save_state=(a b))", "save_state is a list"),
    "kind of job": (f"{SH}(gram_my_job = bogus)", "gram_my_job is 'bogus'"),
    "list as kind of job": (f"{SH}(gram_my_job = (collective))", "gram_my_job is a list"),
    "dry run": (f"{SH}(dryrun=(bogus))", "dryrun is a list"),
    "nested arguments": (f"{SH}(arguments=(wrong form (of arguments)))", "arguments contains a list"),
    "unbalanced environment": (f"{SH}(environment=(a b) (c d e))", "environment has a value here that is no pair"),
    "scalar as environment": (f"{SH}(environment=scalar)", "environment has a value here that is no pair"),
    "list as executable": ("&(executable=(/bin/sh))", "executable is a list"),
    "no executable": ("&(arguments=hello)(stdout=output)", "this request has no executable"),
    "triple as substitution": (f"&(rsl_substitution=(a b c)){SH[1:]}", "this defines no variable"),
    "undefined variable": ("&(executable=$(INVALID_SUBSTITUTION))", "is not defined"),
    "nested pair": (f"{SH}(file_stage_in=(ftp://h/a (/tmp/b)))", "file_stage_in has a value here that is no pair"),
    "no pair": (f"{SH}(file_stage_in=ftp://h/a /tmp/b)", "file_stage_in has a value here that is no pair"),
    "half a pair": (f"{SH}(file_stage_out=(a))", "file_stage_out has a value here that is no pair"),
    "several outputs": (f"{SH}(stdout=a sequence (of words))", "stdout has 3 values, but takes one"),
    "nested output": (f"{SH}(stderr=(bad (form) ))", "stderr is a list"),
    "several inputs": (f"{SH}(stdin = a sequence)", "stdin has 2 values, but takes one"),
    "list as queue": (f"{SH}(queue=(a list))", "queue is a list"),
    "list as project": (f"{SH}(project=(a list))", "project is a list"),
    # Globus honours these, koalapy does not
    "directory": (f"{SH}(directory=/etc)", "directory is not supported"),
    "processor time": (f"{SH}(maxcputime=1)", "maxcputime limits the processor time"),
    "cache": (f"{SH}(gass_cache=/tmp)", "gass_cache is not supported"),
    "clean-up": (f"{SH}(file_cleanup=/tmp/a)", "file_cleanup is not supported"),
    "scratch directory": (f"{SH}(scratch_dir=.)", "scratch_dir is not supported"),
    "libraries": (f"{SH}(library_path=/usr/lib)", "library_path is not supported"),
    "remote files": (f"{SH}(remote_io_url=https://h:1)", "remote_io_url names a server of files"),
    "commit": (f"{SH}(twophase=5)", "twophase belongs to a session with Globus's job manager"),
    "restart": ("&(restart=https://localhost:2119/1/1)", "restart belongs to a session"),
    "proxy": (f"{SH}(proxy_timeout=1)", "proxy_timeout belongs to a session"),
    "shared staging": (f"{SH}(file_stage_in_shared=(a b))", "file_stage_in_shared is not supported"),
    "several destinations": (f"{SH}(stdout=(a) (b))", "stdout has 2 values, but takes one"),
    "GASS": ("&(rsl_substitution=(G https://h:1))(executable=$(G)/bin/a)", "is the address 'https://h:1/bin/a'"),
    "variable of globusrun": ("&(executable=$(GLOBUSRUN_GASS_URL)/a)", "'GLOBUSRUN_GASS_URL' is not defined"),
    "variable of the job manager": (f"{SH}(environment=(A $(LOGNAME)))", "'LOGNAME' is not defined"),
    "other relations": (f"{SH}(count>=5)", "count is compared by >="),
    "alternatives": ("|(&(executable=/a)(count=5))(&(executable=/b))", "| offers alternatives"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_read_first(text: str, words: str) -> None:
    parse(SourceText(text, "job.rsl"))
    with pytest.raises(RequestError) as caught:
        job(text)
    reason = caught.value.reason
    assert reason.message.startswith("job.rsl:1:")
    assert words in reason.message
    assert reason.advice


@pytest.mark.parametrize(
    "text",
    [
        """(* 2 *)
&(executable = /bin/sh)
 (scratch_dir = $(HOME) )
 (stdout = ( $(GLOBUSRUN_GASS_URL) # $(TEST_STDOUT) # ".001" )
           ( "x-gass-cache://" # $(TEST_STDOUT) # ".002" )
 )
 (file_stage_out = ("x-gass-cache://" # $(TEST_STDOUT) # ".001"
                    $(GLOBUSRUN_GASS_URL) # $(TEST_STDOUT) # ".001")
                   ($(SCRATCH_DIRECTORY) # "/stderr.001"
                    $(GLOBUSRUN_GASS_URL) # $(TEST_STDERR) # ".001")
 )
""",
        "&(executable = /bin/ls)\n (stdout = ( $(GASS_URL)/dev/stdout )\n   ( $(GASS_URL)/dev/stdout ))",
        '& ( "queue" = "debug") ( "max_time" != "10000")',
        '| ("count" = "1")("count" = "10")',
        '+ ( &("executable" = "1.exe") ) ( & ("executable" = "2.exe" ))',
        '"count" < "10"',
    ],
)
def test_what_globus_reads_is_read(text: str) -> None:
    parse(SourceText(text, "job.rsl"))

"""Values of job and grid files in the directives of batch scripts: whole, or refused in words."""

import itertools
import re
import shlex
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from job_languages import read_native
from koalapy_adapters.batch import pbs, sge, slurm, torque
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings
from koalapy_adapters.errors import BatchError, RequestError, Result
from koalapy_adapters.examination import sge as sge_examination
from koalapy_adapters.examination import slurm as slurm_examination
from koalapy_adapters.examination.protocol import from_stdin

FILE = Path(__file__).parents[2] / "data" / "cases" / "27-slurm-directive-values.txt"
ODD = ["proj#7", "#7", "it's", 'say"so"', "a b", "a\\b", 'a\\"b', "'a'", "a;b", "$HOME", "`id`", "a'b\"c\\d#e f"]


def job(**wishes: Any) -> BatchJob:
    return BatchJob("kabcde000000001", "/home/koala/t", ["true"], 1, 60, **wishes)


def words(dialect: ModuleType, prefix: str, of: BatchJob) -> list[str]:
    """The options of a script as the submit command reads them, which is as a shell reads words.

    sbatch ends a line at a # outside of quotes, qsub of the PBS family does not.
    """
    lines = re.findall(rf"^{re.escape(prefix)} (.*)$", dialect.script(of), re.MULTILINE)
    return [word for line in lines for word in shlex.split(line, comments=prefix == "#SBATCH")]


def after(option: str, words: list[str]) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if name == option]


@pytest.mark.parametrize("line", FILE.read_text().splitlines())
def test_slurm_gets_the_values_of_a_strangers_cluster_whole(line: str) -> None:
    option, _, value = line.partition("=")
    sbatch = {"queue": "partition"}.get(option, option)
    assert f"--{sbatch}={value}" in words(slurm, "#SBATCH", job(**{option: value}))


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("option", ["account", "qos", "reservation", "constraint"])
def test_slurm_gets_every_value_whole(option: str, value: str) -> None:
    assert f"--{option}={value}" in words(slurm, "#SBATCH", job(**{option: value}))


@pytest.mark.parametrize("value", ["defq", "haswell|broadwell", "intel&gpu", "[rack1|rack2]", "a,b", "normal*"])
def test_a_plain_value_is_written_as_it_is(value: str) -> None:
    assert f"#SBATCH --constraint={value}\n" in slurm.script(job(constraint=value))


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("dialect", [pbs, torque], ids=["pbs", "torque"])
def test_the_pbs_family_gets_every_value_whole(dialect: ModuleType, value: str) -> None:
    found = words(dialect, "#PBS", job(account=value, queue=value, constraint=value))
    assert after("-A", found) == after("-q", found) == [value]
    assert after("-l", found)[0].endswith(":" + value)


@pytest.mark.parametrize("field", ["queue", "account", "reservation", "constraint", "parallel_environment"])
@pytest.mark.parametrize("value", ["proj#7", "#7", "it's", 'say"so"', "a\\b"])
def test_grid_engine_refuses_what_its_qsub_would_drop(field: str, value: str) -> None:
    with pytest.raises(RequestError, match=field.replace("_", " ")) as caught:
        sge.script(job(**{field: value}))
    assert caught.value.code == "bad_value"


def test_grid_engine_gets_a_value_of_two_words_as_one() -> None:
    assert '#$ -q "big mem"\n' in sge.script(job(queue="big mem"))
    assert "#$ -l h=!(a|b)\n" in sge.script(job(constraint="h=!(a|b)"))


def test_grid_engine_cannot_write_to_a_directory_with_a_sign_of_comments() -> None:
    with pytest.raises(BatchError) as caught:
        sge.script(job()._replace(directory="/home/koala/a#b"))
    assert caught.value.code == "bad_directory"


def test_the_doctor_asks_by_a_script_as_jobs_are_submitted() -> None:
    cluster = BatchSettings("me", queue="batch", account="proj#7", reservation="it's")
    argv = slurm_examination.access_argv(cluster)
    assert argv[-2:] == ["sbatch", "--test-only"]
    asked = argv[4].splitlines()
    assert {"#SBATCH --partition=batch", '#SBATCH --reservation="it\'s"'} < set(asked)
    assert '#SBATCH --account="proj#7"' in asked
    assert "#$ -P physics" in sge_examination.access_argv(BatchSettings("me", account="physics"))[4].splitlines()
    with pytest.raises(RequestError, match="account"):
        sge_examination.access_argv(BatchSettings("me", account="proj#7"))


def test_the_text_reaches_the_standard_input_of_the_command() -> None:
    text = "#!/bin/sh\n#SBATCH --account=\"proj#7\" %s \\n 'x'\n"
    done = subprocess.run(from_stdin(["cat", "-"], text), capture_output=True, text=True, check=True)
    assert done.stdout == text


def test_a_refusal_names_the_batch_systems_command() -> None:
    refused = Result(["sh"], 1, "", "sbatch: error: invalid account or account/partition combination specified")
    with pytest.raises(BatchError) as caught:
        slurm_examination.try_access(lambda argv: refused, BatchSettings("me", account="none"))
    assert caught.value.result is not None
    assert caught.value.result.argv == ["sbatch", "--test-only"]


def test_the_account_of_a_strangers_job_file_reaches_slurm() -> None:
    """The charge went to `proj`, which is the part before the sign of comments."""
    text = (FILE.parent / "85-slurm-account-hash.yaml").read_text()
    (component,) = read_native(text, "job.yaml", "/here", ["alpha"]).components
    assert "--account=proj#7" in words(slurm, "#SBATCH", job(account=component.account))

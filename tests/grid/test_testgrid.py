"""The test grid is as its page describes it: real clusters, linked by a network that does not lead out."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
import pytest

from koalapy.testgrid import ContainersError, Running, layout, ready
from koalapy.testgrid.layout import CLUSTERS

NODES = {"alpha": 8, "beta": 4, "gamma": 4, "delta": 2}
WITHOUT_ACCOUNTING = ["alpha", "beta"]
SLURM = [cluster.name for cluster in CLUSTERS if cluster.batch == "slurm"]
SHARED = {"alpha": "/home/koala", "beta": "/shared/koala", "gamma": "/home/koala", "delta": "/home/koala"}
QRSH_HOSTNAMES = """cut -d' ' -f1 "$PE_HOSTFILE" | while read -r host; do
    qrsh -inherit "$host" hostname </dev/null
done
"""


@pytest.mark.parametrize("cluster", SLURM)
def test_srun_starts_a_process_on_every_processor_of_two_nodes(testgrid: Running, cluster: str) -> None:
    output = f"{SHARED[cluster]}/out"
    submit = ["sbatch", "--wait", "--nodes=2", "--ntasks=8", "--output", output, "--wrap", "srun hostname"]
    testgrid.check(cluster, submit)
    hosts = testgrid.check(cluster, ["cat", output]).split()
    assert len(hosts) == 8
    assert len(set(hosts)) == 2
    assert set(hosts) <= set(layout_of(cluster).nodes)


def test_qrsh_starts_a_process_on_two_nodes_from_one_of_them(testgrid: Running) -> None:
    script = f"qsub -sync y -V -pe mpi 8 -j y -o out -S /bin/bash <<'JOB'\n{QRSH_HOSTNAMES}JOB"
    testgrid.shell("gamma", script)
    hosts = testgrid.check("gamma", ["cat", "/home/koala/out"]).split()
    assert len(hosts) == 2
    assert len(set(hosts)) == 2
    assert set(hosts) <= set(layout_of("gamma").nodes)


@pytest.mark.parametrize("cluster", SLURM)
def test_a_step_can_be_started_from_a_node_of_the_job(testgrid: Running, cluster: str) -> None:
    script = "srun --nodes=2 --ntasks=2 --output={0}/%t bash -c 'hostname; echo $SLURMD_NODENAME'"
    wrapped = script.format(SHARED[cluster])
    testgrid.check(cluster, ["sbatch", "--wait", "--nodes=2", "--output=/dev/null", "--wrap", wrapped])
    first, second = (testgrid.check(cluster, ["cat", f"{SHARED[cluster]}/{task}"]).split() for task in (0, 1))
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert first[0] != second[0]


def test_slurm_knows_all_nodes_with_four_processors_each(testgrid: Running) -> None:
    for cluster in SLURM:
        lines = testgrid.check(cluster, ["sinfo", "-h", "-N", "-p", "batch", "-o", "%N %c %T"]).splitlines()
        assert lines == [f"{node} 4 idle" for node in layout_of(cluster).nodes]


def test_grid_engine_has_two_queues_and_two_environments_over_the_same_hosts(standing_testgrid: Running) -> None:
    assert standing_testgrid.check("gamma", ["qconf", "-sql"]).split() == ["all.q", "short.q"]
    assert standing_testgrid.check("gamma", ["qconf", "-spl"]).split() == ["mpi", "smp"]
    for environment, controls in (("mpi", "TRUE"), ("smp", "FALSE")):
        assert f"control_slaves     {controls}" in standing_testgrid.check("gamma", ["qconf", "-sp", environment])
    for queue in ("all.q", "short.q"):
        instances = standing_testgrid.check("gamma", ["qselect", "-q", queue]).split()
        assert sorted(instances) == [f"{queue}@{node}" for node in layout_of("gamma").nodes]


def test_two_queues_do_not_double_the_processors_of_a_host(testgrid: Running) -> None:
    for queue in ("all.q", "short.q"):
        submit = ["qsub", "-b", "y", "-q", queue, "-pe", "mpi", "16", "sleep", "300"]
        testgrid.check("gamma", submit)
    testgrid.eventually(lambda: states(testgrid) == ["qw", "r"], "one job runs and the other waits")


def test_the_site_s_own_libdrmaa_opens_a_session_on_the_head(standing_testgrid: Running) -> None:
    script = """GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096 python3 - <<'PYTHON'
import ctypes
drmaa = ctypes.CDLL("/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0")
text = ctypes.create_string_buffer(1024)
assert drmaa.drmaa_init(None, text, 1024) == 0, text.value
drmaa.drmaa_get_DRM_system(text, 1024)
print(text.value.decode())
drmaa.drmaa_exit(text, 1024)
PYTHON"""
    assert standing_testgrid.shell("gamma", script).strip() == "SGE 8.1.9"


def test_grid_engine_s_real_commands_come_first_in_the_login_environment(standing_testgrid: Running) -> None:
    assert standing_testgrid.check("gamma", ["which", "qsub"]).strip() == "/usr/lib/gridengine/qsub"


@pytest.mark.parametrize("cluster", WITHOUT_ACCOUNTING)
def test_a_user_can_read_the_history_of_jobs_without_accounting(testgrid: Running, cluster: str) -> None:
    submit = ["sbatch", "--parsable", "--wait", "--output=/dev/null", "--wrap", "exit 3"]
    status, output = testgrid.exec(cluster, submit)
    assert status == 3
    job = output.strip()
    status, words = testgrid.exec(cluster, ["sacct", "-j", job])
    assert status == 1
    assert "disabled" in words
    history = testgrid.check(cluster, ["sacct", "-c", "-n", "-P", "-j", job, "-o", "JobID,State"])
    assert history.strip() == f"{job}|FAILED"


@pytest.mark.parametrize(
    ("cluster", "version", "python"),
    [("alpha", "slurm-wlm 22.05", "Python 3.11"), ("delta", "slurm-wlm 24.11", "Python 3.13")],
)
def test_there_are_two_versions_of_slurm_and_of_python(
    standing_testgrid: Running, cluster: str, version: str, python: str
) -> None:
    assert standing_testgrid.check(cluster, ["sinfo", "--version"]).startswith(version)
    assert standing_testgrid.check(cluster, ["python3", "--version"]).startswith(python)


def test_delta_keeps_the_history_of_jobs_in_a_database(testgrid: Running) -> None:
    submit = ["sbatch", "--parsable", "--wait", "--output=/dev/null", "--wrap", "exit 3"]
    status, output = testgrid.exec("delta", submit)
    assert status == 3
    show = ["sacct", "-X", "-n", "-P", "-j", output.strip(), "-o", "State,Account,AllocCPUS"]
    testgrid.eventually(lambda: testgrid.check("delta", show).strip() == "FAILED|grid|2", "the database knows the job")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--account=nobody"], "Invalid account"),
        (["--account=physics"], "Invalid account"),
        (["--qos=nowhere"], "Invalid qos"),
        (["--partition=physics"], "account"),
    ],
    ids=" ".join,
)
def test_delta_holds_people_to_their_accounts(testgrid: Running, options: list[str], words: str) -> None:
    status, said = testgrid.exec("delta", ["sbatch", *options, "--wrap", "true"])
    assert status == 1
    assert words in said


def test_a_core_of_delta_is_two_threads_and_one_job_s(testgrid: Running) -> None:
    script = "for i in 1 2 3 4 5; do sbatch --quiet --output=/dev/null --ntasks=1 --wrap 'sleep 300'; done"
    testgrid.shell("delta", script)
    counts = ["sinfo", "-h", "-p", "batch", "-o", "%C"]
    testgrid.eventually(lambda: testgrid.check("delta", counts).startswith("8/0/0/8"), "four jobs fill eight threads")
    assert len(testgrid.check("delta", ["squeue", "-h", "-t", "pending"]).splitlines()) == 1


def test_torque_s_commands_run_a_job_on_beta_with_its_variables(testgrid: Running) -> None:
    script = "cd /shared/koala; printf '#!/bin/sh\necho $PBS_JOBID $PBS_O_WORKDIR\n' >job; qsub -q short job"
    job = testgrid.shell("beta", script).strip()
    output = f"/shared/koala/job.o{job}"
    testgrid.eventually(lambda: testgrid.exec("beta", ["test", "-s", output])[0] == 0, "the job has written")
    assert testgrid.check("beta", ["cat", output]).split() == [job, "/shared/koala"]
    assert job in testgrid.check("beta", ["qstat"])


def test_homes_are_shared_with_the_nodes_but_on_beta(testgrid: Running) -> None:
    for cluster in CLUSTERS:
        testgrid.check(cluster.name, ["touch", "/home/koala/mark"])
        seen = [testgrid.exec(node, ["test", "-e", "/home/koala/mark"])[0] == 0 for node in cluster.nodes]
        assert seen == [cluster.name != "beta"] * NODES[cluster.name]


def test_beta_shares_a_directory_with_its_nodes(testgrid: Running) -> None:
    testgrid.check("beta", ["touch", "/shared/koala/mark"])
    for node in layout_of("beta").nodes:
        testgrid.check(node, ["test", "-e", "/shared/koala/mark"])


@pytest.mark.parametrize("pair", [("alpha-c1", "gamma-c1"), ("beta-c4", "alpha-c8"), ("gamma-c2", "beta-c3")])
@pytest.mark.parametrize("by", ["name", "address"])
def test_nodes_of_different_clusters_reach_each_other(
    standing_testgrid: Running, pair: tuple[str, str], by: str
) -> None:
    client, server = pair
    target = server if by == "name" else standing_testgrid.containers.address(server, "cluster")
    with listening(standing_testgrid, server) as port:
        assert standing_testgrid.shell(client, f"cat </dev/tcp/{target}/{port}").strip() == server


def test_the_cluster_network_does_not_lead_out(standing_testgrid: Running) -> None:
    # The head's other address stands for the world: it answers the host, but no node finds a way to it.
    outside = standing_testgrid.containers.address("alpha", "access")
    probe = f"timeout 3 bash -c ': </dev/tcp/{outside}/22'"
    subprocess.run(["bash", "-c", probe.replace("timeout 3", "timeout 60")], check=True)
    for node in (cluster.nodes[0] for cluster in CLUSTERS):
        assert standing_testgrid.exec(node, ["bash", "-c", probe])[0] != 0
        assert standing_testgrid.exec(node, ["bash", "-c", ": </dev/tcp/alpha/22"])[0] == 0


@pytest.mark.parametrize("host", [host for each in CLUSTERS for host in (each.name, each.nodes[0])])
def test_heads_and_nodes_have_a_full_python_with_numpy(standing_testgrid: Running, host: str) -> None:
    program = "import json, shlex, shutil, tarfile, ssl, numpy; print(numpy.arange(4).sum())"
    assert standing_testgrid.check(host, ["python3", "-c", program]).strip() == "6"


@pytest.mark.parametrize("user", ["koala", "wombat"])
def test_the_grid_file_alone_suffices_to_log_in(standing_testgrid: Running, user: str) -> None:
    for name, entry in standing_testgrid.grid()["clusters"].items():
        with paramiko.SSHClient() as client:
            client.load_host_keys(entry["known_hosts"])
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            address = entry["connect"].removeprefix("ssh://koala@")
            client.connect(
                address, username=user, key_filename=entry["identity"], allow_agent=False, look_for_keys=False
            )
            _, stdout, _ = client.exec_command("hostname; whoami")
            assert stdout.read().decode().split() == [name, user]


def test_the_grid_file_names_absolute_files_that_exist(standing_testgrid: Running) -> None:
    entries = standing_testgrid.grid()["clusters"]
    assert list(entries) == ["alpha", "beta", "gamma", "delta"]
    for entry in entries.values():
        for key in ("identity", "known_hosts"):
            assert Path(entry[key]).is_absolute()
            assert Path(entry[key]).is_file()
    assert entries["beta"]["shared"] == "/shared/koala"
    assert entries["gamma"]["parallel_environment"] == "mpi"


def test_reset_takes_away_jobs_files_and_processes_of_everybody(testgrid: Running) -> None:
    for user in ("koala", "wombat"):
        testgrid.check("alpha", ["sbatch", "--exclusive", "--nodes=5", "--wrap", "sleep 300"], user)
        testgrid.shell("gamma", "qsub -b y -pe mpi 12 sleep 300", user)
        testgrid.shell("beta-c1", "setsid sleep 300 </dev/null >/dev/null 2>&1 & touch /shared/$USER/mark", user)
        testgrid.shell("alpha", "mkdir .koala; touch .koala/mark /tmp/$USER", user)
    testgrid.reset()
    for head, queue in {"alpha": ["squeue", "-h"], "gamma": ["qstat", "-u", "*"]}.items():
        assert testgrid.check(head, queue, "root") == ""
    leftovers = "ls -A /home/koala /home/wombat /tmp | grep -E 'koala$|wombat$|mark' | grep -v :"
    assert testgrid.exec("alpha", ["bash", "-c", leftovers], "root") == (1, "")
    assert testgrid.exec("beta", ["bash", "-c", "find /shared -type f"], "root") == (0, "")
    assert testgrid.exec("beta-c1", ["pgrep", "-u", "koala,wombat"], "root") == (1, "")


def test_reset_mends_what_was_paused(testgrid: Running) -> None:
    testgrid.pause("alpha-c1", "gamma")
    testgrid.reset()
    assert {each.status for each in testgrid.containers.all().values()} == {"running"}
    ready.run_jobs(testgrid.containers, timeout_s=300)


@pytest.mark.slow
def test_reset_mends_what_was_paused_stopped_unplugged_and_killed(testgrid: Running) -> None:
    containers = testgrid.containers
    before = {host: containers.address(host, "cluster") for host in layout.hosts()}
    testgrid.pause("alpha-c1", "gamma")
    containers.stop("beta-c1")
    containers.stop("alpha-c2")
    containers.disconnect("gamma-c1")
    containers.disconnect("beta", "access")
    containers.kill_process("alpha-c3", "slurmd")
    containers.kill_process("beta", "slurmctld")
    containers.kill_process("gamma-c2", "sge_execd")
    testgrid.reset()
    assert {each.status for each in containers.all().values()} == {"running"}
    assert {host: containers.address(host, "cluster") for host in layout.hosts()} == before
    ready.run_jobs(containers, timeout_s=300)


def test_a_host_that_was_unplugged_knows_the_others_by_name_again(testgrid: Running) -> None:
    """Grid Engine refuses everybody whose address has a name that it does not expect."""
    containers = testgrid.containers
    containers.disconnect("gamma-c1")
    containers.connect("gamma-c1")
    address = containers.address("gamma-c2", "cluster")
    assert testgrid.check("gamma-c1", ["getent", "hosts", address]).split() == [address, "gamma-c2"]
    ready.run_jobs(containers, timeout_s=300)


def test_a_paused_head_answers_nobody_and_a_command_on_it_is_refused(testgrid: Running) -> None:
    testgrid.pause("beta")
    address = testgrid.grid()["clusters"]["beta"]["connect"].removeprefix("ssh://koala@")
    silent = ["timeout", "2", "bash", "-c", f"head -c 1 </dev/tcp/{address}/22"]
    assert subprocess.run(silent, check=False).returncode == 124
    with pytest.raises(ContainersError, match="beta is paused"):
        testgrid.exec("beta", ["true"])


def test_a_command_on_a_host_is_printed_whole_and_finds_only_others(standing_testgrid: Running) -> None:
    run = standing_testgrid.exec
    assert run("delta-c1", ["sh", "-c", 'echo out; echo err >&2; printf %s "$0"; exit 7', "it's"]) == (
        7,
        "out\nerr\nit's",
    )
    assert len(run("delta-c1", ["head", "-c", "3000000", "/dev/zero"]).output) == 3_000_000
    assert run("delta-c1", ["pgrep", "--full", "nobody's name"]) == (1, "")
    assert run("delta-c1", ["sh", "-c", "echo out; kill -KILL $PPID"]) == (137, "out\n")


@contextmanager
def listening(testgrid: Running, host: str) -> Iterator[int]:
    """A server on the host, on a port of its own choice, that sends its host's name to whoever connects."""
    program = (
        "import os, socket\n"
        "server = socket.create_server(('', 0))\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); os.dup2(os.open('/dev/null', os.O_RDWR), 1); os.dup2(1, 2)\n"
        "    while True:\n"
        "        peer = server.accept()[0]; peer.sendall(socket.gethostname().encode()); peer.close()\n"
        "print(server.getsockname()[1])\n"
    )
    yield int(testgrid.check(host, ["python3", "-c", program]))
    testgrid.containers.kill_process(host, "python3", user="koala")


def layout_of(name: str) -> layout.Cluster:
    (cluster,) = (cluster for cluster in CLUSTERS if cluster.name == name)
    return cluster


def states(testgrid: Running) -> list[str]:
    lines = testgrid.check("gamma", ["qstat", "-u", "*"]).splitlines()[2:]
    return sorted(line.split()[4] for line in lines)

"""`rtsched slurm`: what is not ready is told; slurm.conf is changed by --apply alone, and back."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rtsched.adapters.readiness import submit_settings
from rtsched.adapters.slurm.installed import built_for
from rtsched.adapters.slurm.rows import node_rows
from rtsched.adapters.slurm.setup import (
    HANDED_OUT,
    PROLOG,
    ProbeResult,
    Setup,
    findings,
    probe_nodes,
    wanted,
)
from rtsched.cli.slurm import show_changes
from rtsched.errors import AdapterError

CONF = "ClusterName=x\nJobSubmitPlugins=lua # site\nPriorityType=priority/multifactor\n"
READY = {
    "jobsubmitplugins": "lua,rtsched",
    "accountingstoreflags": "job_comment,job_extra",
    "plugindir": "/opt/rtsched:/usr/lib/slurm",
}
GOOD = Setup(
    path=Path("/etc/slurm/slurm.conf"),
    conf=READY,
    running={"jobsubmitplugins": "lua,rtsched", "slurmuser": "slurm(64030)"},
    version="26.05.5",
    plugin=Path("/opt/rtsched/job_submit_rtsched.so"),
    plugin_version="26.05.5",
    level="Operator",
    run_owner="rtsched",
)


def test_slurm_user_needs_no_level():
    """A daemon that runs as SlurmUser may do everything, whatever sacctmgr says."""
    found = findings(replace(GOOD, user="slurm", level="None", run_owner="slurm"))
    assert [x.what for x in found if x.state == "wrong"] == [
        "the submit filter trusts rtsched, the daemon runs as slurm"
    ]


def test_all_is_good():
    """Where all is ready nothing is wrong or worth a note."""
    assert {each.state for each in findings(GOOD)} == {"good"}


@pytest.mark.parametrize(
    ("change", "state", "what", "remedy"),
    [
        (
            {"plugin": None},
            "wrong",
            "no job_submit_rtsched.so in PluginDir (/opt/rtsched:/usr/lib/slurm)",
            "make -C contrib/slurm install PLUGINDIR=/usr/lib/slurm",
        ),
        ({"version": "22.05.8"}, "wrong", "22.05.8 is too old", "upgrade to Slurm 23.11 or later"),
        ({"version": "26.11.0"}, "note", "not tested with Slurm 26.11.0: the newest", "shadow"),
        ({"plugin_version": ""}, "wrong", "cannot be loaded", "rebuild it"),
        ({"sends_idle": False}, "wrong", "does not tell which nodes are idle", "rebuild it"),
        ({"version": "26.05.6"}, "wrong", "slurmctld cannot start", "rebuild it"),
        ({"conf": {}}, "wrong", "JobSubmitPlugins is not set", "install --apply"),
        ({"conf": READY | {"taskprolog": PROLOG}}, "note", "every step fails", "--nodes"),
        ({"conf": READY | {"taskprolog": HANDED_OUT}}, "note", "every step fails", "--nodes"),
        (
            {"conf": READY | {"prioritytype": "priority/basic"}},
            "note",
            "site factor",
            "multifactor",
        ),
        ({"running": None, "silence": "no"}, "wrong", "does not answer: no", "start slurmctld"),
        ({"running": {}}, "wrong", "the running controller uses", "scontrol reconfigure"),
        (
            {"running": {"slurm_conf": "/opt/slurm/etc/slurm.conf"}},
            "wrong",
            "the running controller reads /opt/slurm/etc/slurm.conf",
            "--slurm-conf /opt/slurm/etc/slurm.conf",
        ),
        ({"skew_s": -90.0}, "wrong", "clock is -90 s", "NTP"),
        ({"federation": "fed"}, "note", "in the federation fed: jobs with", "rtsched of its own"),
        (
            {"filters": ("root",)},
            "wrong",
            "runs as slurm, who may not query",
            'filters = ["slurm"]',
        ),
        ({"user_exists": False}, "wrong", "the user rtsched does not exist", "useradd"),
        ({"level": "None"}, "wrong", "is not an Operator", "adminlevel=Operator"),
        ({"level": ""}, "note", "no permissions for", "SlurmUser"),
        ({"run_owner": ""}, "wrong", "/run/rtsched does not exist", "start the daemon"),
        ({"run_owner": "root"}, "wrong", "belongs to root", "chown rtsched"),
        ({"run": Path("/run/x")}, "wrong", "listens on /run/x/submit.sock", "set socket ="),
        ({"submit": {"daemon_user": "me"}}, "wrong", "trusts me", "set daemon_user = rtsched"),
        ({"submit": {"promised_jobs": "/x"}}, "wrong", "filter reads /x", "set promised_jobs ="),
        (
            {"submit": {"on_failure": "hold", "share_nodes": "true"}},
            "note",
            "ask for less than whole nodes",
            "set share_nodes = false",
        ),
        (
            {"submit": {"on_failure": "hold"}, "share_nodes": True},
            "note",
            "ask for whole nodes",
            "set share_nodes = true",
        ),
        ({"submit": {"sokcet": "x"}}, "wrong", "unknown setting 'sokcet'", "correct"),
        (
            {"conf": READY | {"schedulerparameters": "bf_continue,enable_user_top"}},
            "note",
            "by `scontrol top` a user's jobs",
            "remove enable_user_top",
        ),
    ],
)
def test_every_finding_has_a_remedy(change, state, what, remedy):
    """Each thing that can be wrong is told with what to do."""
    found = [each for each in findings(replace(GOOD, **change)) if each.state != "good"]
    assert any(
        each.state == state and what in each.what and remedy in each.remedy for each in found
    ), found
    assert all(each.remedy for each in found)


SHARED = READY | {
    "selecttype": "select/cons_tres",
    "selecttypeparameters": "CR_Core_Memory",
    "schedulerparameters": "bf_continue,bf_window_linear=30",
    "defmempercpu": "1000",
    "grestypes": "gpu",
    "accountingstoragetres": "gres/gpu,gres/gpu:a100",
}


@pytest.mark.parametrize(
    ("change", "state", "what", "remedy"),
    [
        ({}, "", "", ""),
        ({"selecttype": "select/linear"}, "wrong", "share_nodes needs SelectType=", "slurm.conf"),
        ({"schedulertype": "sched/builtin"}, "wrong", "needs SchedulerType=sched/backfill", "set"),
        ({"schedulerparameters": ""}, "note", "no bf_window_linear", "bf_window_linear=30"),
        ({"defmempercpu": None}, "note", "gets all memory of its nodes", "set DefMemPerCPU"),
        ({"accountingstoragetres": ""}, "note", "has no gres/gpu: jobs that", "add gres/gpu"),
        ({"licenses": "matlab:4"}, "note", "no bf_licenses: jobs that need licences", "add bf_lic"),
    ],
)
def test_where_promised_jobs_share_nodes(change, state, what, remedy):
    """What Slurm's own scheduler needs for it is looked at, and only there."""
    conf = {name: value for name, value in (SHARED | change).items() if value is not None}
    assert {each.state for each in findings(replace(GOOD, conf=conf))} == {"good"}
    found = findings(replace(GOOD, conf=conf, share_nodes=True))
    odd = [each for each in found if each.state != "good"]
    assert [each.state for each in odd] == ([state] if state else [])
    assert all(what in each.what and remedy in each.remedy for each in odd), odd


def test_what_is_wanted():
    """The lines follow from what there is; lists are added to, and PluginDir stays what it is."""
    setup = replace(GOOD, conf={"jobsubmitplugins": "lua", "taskprolog": "/x"})
    plain = {
        "JobSubmitPlugins": "lua,rtsched",
        "AccountingStoreFlags": "job_comment,job_extra",
    }
    assert wanted(setup) == plain
    assert wanted(replace(setup, running={"plugindir": "/usr/lib/slurm"})) == plain
    setup = replace(setup, conf={"jobsubmitplugins": "lua", "plugindir": "/a:/b"})
    assert wanted(setup) == plain | {"PluginDir": "/a:/b"}


def test_a_task_prolog_is_wanted_where_it_is_asked_for():
    """It goes in when it is asked for, stays where it is, and goes when it is not wanted."""
    assert "TaskProlog" not in wanted(GOOD)
    assert wanted(GOOD, True)["TaskProlog"] == PROLOG
    for present in (PROLOG, HANDED_OUT):
        setup = replace(GOOD, conf=READY | {"taskprolog": present})
        assert wanted(setup)["TaskProlog"] == wanted(setup, True)["TaskProlog"] == present
        assert "TaskProlog" not in wanted(setup, False)


def test_what_nodes_answered():
    """Nodes that cannot run a TaskProlog are wrong where it is in use, and told with how many."""
    many = {f"n{i}": "it does not exist" for i in range(20)}
    asked = ProbeResult(("a", "b"), many, {"c": "drained"})
    used = replace(GOOD, conf=READY | {"taskprolog": PROLOG})
    by_state = {x.state: x for x in findings(used, asked) if "task_prolog" in x.what}
    assert "n7 (it does not exist) and 12 more" in by_state["wrong"].what
    assert "--no-task-prolog" in by_state["wrong"].remedy
    assert by_state["good"].what == f"2 nodes can run {PROLOG}"
    notes = [x.what for x in findings(GOOD, asked) if x.state == "note"]
    assert any("do not need to: n0" in what for what in notes)
    assert any("c (drained)" in what for what in notes)


def test_filter_settings(tmp_path):
    """Settings of the filter are read as the filter reads them; no file says nothing."""
    path = tmp_path / "submit.conf"
    assert submit_settings(path) == {}
    path.write_text("# x\n\n  socket = /run/a  \ndaemon_user=me\n")
    assert submit_settings(path) == {"socket": "/run/a", "daemon_user": "me"}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Make a head node of made-up commands; return the options that name its files."""
    commands = {
        "scontrol": f"echo 'Configuration data as of {time.time():.0f}'\n"
        "echo 'JobSubmitPlugins        = lua'\n"
        f"echo 'PluginDir               = {tmp_path / 'plugins'}:/usr/lib64/slurm'\n"
        "echo 'SlurmUser               = slurm(1)'",
        "sacctmgr": "echo 'rtsched|Operator'",
        "slurmctld": "echo 'slurm 26.05.5'",
    }
    for name, text in commands.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "site.toml").write_text('planner = "mcdf"\n[[plugin]]\nname = "mcdf"\n')
    return (
        *("--slurm-conf", tmp_path / "slurm.conf", "--config", tmp_path / "site.toml"),
        *("--submit-conf", tmp_path / "submit.conf"),
    )


@pytest.fixture
def plugin(tmp_path):
    """Build a library that says it was built for Slurm 26.05.5, and calls what is not there."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source = tmp_path / "plugin.c"
    source.write_text(
        "#include <stdint.h>\nextern void slurm_info(const char *);\n"
        'const char looked_up[] = "idle_node_bitmap";\n'
        f"const uint32_t plugin_version = {26 << 16 | 5 << 8 | 5};\n"
        'void go(void) { slurm_info("x"); }\n'
    )
    directory = tmp_path / "plugins"
    directory.mkdir()
    made = directory / "job_submit_rtsched.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return directory


def test_check(run, site, plugin):
    """The machine is asked, and what is not ready is told, with status 1; as JSON too."""
    assert built_for(plugin / "job_submit_rtsched.so") == "26.05.5"
    result = run("slurm", "check", *site)
    assert result.exit_code == 1, result.stderr
    text = " ".join(result.stdout.split())
    assert "is built for Slurm 26.05.5" in text
    assert "JobSubmitPlugins=lua, wanted: lua,rtsched" in text
    assert "rtsched has AdminLevel=Operator" in text
    (plugin / "job_submit_rtsched.so").unlink()
    result = run("slurm", "check", *site, "--json")
    found = json.loads(result.stdout)
    assert {"state", "what", "remedy"} == set(found[0])
    assert any("install PLUGINDIR=/usr/lib64/slurm" in each["remedy"] for each in found)
    assert any("no job_submit_rtsched.so" in each["what"] for each in found)


def test_a_slurm_elsewhere(run, site, plugin, tmp_path, monkeypatch):
    """Where slurm.conf is not in /etc, the controller tells where it is; plug-ins likewise."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr("rtsched.cli.slurm.SLURM_CONF", tmp_path / "none")
    scontrol = tmp_path / "bin" / "scontrol"
    told = f"echo 'SLURM_CONF              = {tmp_path / 'slurm.conf'}'\n"
    scontrol.write_text(scontrol.read_text() + told)
    shown = run("slurm", "install", *site[2:]).stdout
    assert f"--- {tmp_path / 'slurm.conf'}" in shown
    found = run("slurm", "check", *site[2:]).stdout
    assert "job_submit_rtsched.sois" in "".join(found.split())  # a long path is folded anywhere


def test_install_shows_first(run, site, plugin, tmp_path):
    """Without --apply the change is shown and nothing is written."""
    result = run("slurm", "install", *site)
    assert result.exit_code == 0, result.stderr
    assert "+JobSubmitPlugins=lua,rtsched" in result.stdout
    assert "PluginDir" not in result.stdout
    assert "TaskProlog" not in result.stdout
    assert "Remaining steps" in result.stdout
    assert (tmp_path / "slurm.conf").read_text() == CONF
    assert "use --apply" in result.stderr


def test_install_and_uninstall(run, site, plugin, tmp_path):
    """With --apply it is written, beside a backup, once; and taken out again without a trace."""
    path = tmp_path / "slurm.conf"
    path.chmod(0o640)
    for _ in range(2):
        result = run("slurm", "install", *site, "--apply")
        assert result.exit_code == 0, result.stderr
    assert "nothing to change" in result.stdout
    assert "\nJobSubmitPlugins=lua,rtsched\n" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    (backup,) = tmp_path.glob("slurm.conf.rtsched-*")
    assert backup.read_text() == CONF
    result = run("slurm", "uninstall", "--slurm-conf", path)
    assert "-JobSubmitPlugins=lua,rtsched" in result.stdout
    assert "lua,rtsched" in path.read_text()
    result = run("slurm", "uninstall", "--slurm-conf", path, "--apply")
    assert result.exit_code == 0
    assert "scontrol reconfigure" in result.stderr
    assert path.read_text() == CONF
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_no_install_that_stops_slurm(run, site, tmp_path, refused):
    """Lines with which slurmctld would not start are not written."""
    refused(run("slurm", "install", *site, "--apply"), "slurmctld cannot start")
    assert (tmp_path / "slurm.conf").read_text() == CONF


def test_a_plugin_of_another_release(run, site, plugin, tmp_path, refused):
    """A filter that was built for another release is refused too."""
    (tmp_path / "bin" / "slurmctld").write_text("#!/bin/sh\necho 'slurm 26.05.6'\n")
    options = (*site, "--apply")
    refused(run("slurm", "install", *options), "built for Slurm 26.05.5", "26.05.6")


NODE = "NodeName={} CPUTot=4 RealMemory=1000 State={} Partitions=all"
SLOW = """
for word in "$@"; do
    case $word in --nodelist=*a*) echo "rtsched_node a 0"; exec sleep 100 ;; esac
done
echo "srun: error: Task launch for StepId=1.0 failed on node c: Connection refused" >&2
echo "srun: error: b: task 1: Exited with exit code 1" >&2
exit 1
"""


def made_up_srun(tmp_path, text):
    """Return a command in srun's place: nodes that hang, or go while they are asked."""
    path = tmp_path / "srun"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_nodes_that_do_not_answer(tmp_path):
    """Asking ends in time; who answered counts, whom srun lost is told, and who says nothing."""
    rows = node_rows("\n".join(NODE.format(name, "IDLE") for name in "abcd"))
    began = time.monotonic()
    asked = probe_nodes("/x", rows, made_up_srun(tmp_path, SLOW), seconds=0.7)
    assert time.monotonic() - began < 30
    assert asked.able == ("a",)
    assert asked.unable == dict.fromkeys("bcd", "no answer within 0.7 s")
    asked = probe_nodes("/x", rows[1:], made_up_srun(tmp_path, SLOW), seconds=30)
    assert asked.unable == {
        "b": "steps fail there",
        "c": "Connection refused",
        "d": "no answer",
    }
    away = node_rows(f"{NODE.format('a', 'IDLE*')}\n{NODE.format('b', 'IDLE+DRAIN')}")
    assert probe_nodes("/x", away, "/no/srun").unasked == {"a": "down", "b": "drained"}
    with pytest.raises(AdapterError, match="/no/srun cannot be run"):
        probe_nodes("/x", node_rows(NODE.format("a", "IDLE")), "/no/srun")


def test_a_task_prolog_beside_the_sites_own(run, site, plugin, tmp_path, refused):
    """A TaskProlog of the site's own is never replaced by ours."""
    path = tmp_path / "slurm.conf"
    path.write_text(CONF + "TaskProlog=/x\n")
    words = ("--task-prolog", "--apply")
    refused(run("slurm", "install", *site, *words), "TaskProlog=/x is the site's own; make it call")
    words = ("--task-prolog", "--force-task-prolog", "--apply")
    refused(run("slurm", "install", *site, *words), "TaskProlog=/x is the site's own; make it call")


def test_a_forced_task_prolog(run, site, plugin, tmp_path):
    """Whoever says so gets it without a question to the nodes; a later installation keeps it."""
    path = tmp_path / "slurm.conf"
    words = ("--task-prolog", "--force-task-prolog", "--apply")
    assert run("slurm", "install", *site, *words).exit_code == 0
    assert f"\nTaskProlog={PROLOG}\n" in path.read_text()
    assert "nothing to change" in run("slurm", "install", *site, "--apply").stdout
    assert run("slurm", "install", *site, "--no-task-prolog", "--apply").exit_code == 0
    assert "TaskProlog" not in path.read_text()
    assert "JobSubmitPlugins=lua,rtsched" in path.read_text()


def test_no_slurm(run, tmp_path, refused, monkeypatch):
    """Where there is no slurm.conf that is one sentence; no controller is a finding."""
    path = tmp_path / "slurm.conf"
    refused(run("slurm", "check", "--slurm-conf", path), "--slurm-conf")
    refused(run("slurm", "uninstall", "--slurm-conf", path), "--slurm-conf")
    path.write_text(CONF)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(path))
    result = run("slurm", "check", "--config", tmp_path / "none.toml")
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "the controller does not answer" in text
    assert "none.toml does not exist" in text


def test_a_broken_site(run, site, tmp_path):
    """Mistakes in the site's settings are findings beside the others."""
    (tmp_path / "site.toml").write_text("[daemon]\nrun = 3\n")
    result = run("slurm", "check", *site)
    assert result.exit_code == 1
    assert "daemon.run" in result.stdout
    assert "see `rtsched check`" in " ".join(result.stdout.split())


def test_restoring_needs_what_was_asked_for(tmp_path, run):
    """Where it cannot be read nothing is restored by halves; root may lack the right on NFS."""
    config = tmp_path / "site.toml"
    config.write_text(f'[slurm]\nmemory = "{tmp_path}"\n[daemon]\nrun = "{tmp_path}"\n')
    result = run("slurm", "restore", "--config", config, "--apply")
    assert result.exit_code == 2
    text = " ".join(result.stderr.split())
    assert f"{tmp_path} cannot be read (Is a directory)" in text
    assert "runuser -u rtsched -- rtsched slurm restore" in text


def test_restoring_needs_a_site_that_can_be_read(run, tmp_path):
    """The defaults may name another file than the site: nothing is undone by a guess."""
    config = tmp_path / "site.toml"
    config.write_text("[slurm]\nmemory = 3\n")
    result = run("slurm", "restore", "--config", config)
    assert result.exit_code == 2
    assert "slurm.memory" in result.stderr
    assert "correct it first" in " ".join(result.stderr.split())


def test_somebody_else_writes(tmp_path, monkeypatch, run, site, plugin, refused):
    """A file that changed in between is left alone, and no backup stays."""
    path = tmp_path / "slurm.conf"
    from rtsched.adapters.slurm import slurm_conf

    real = slurm_conf.installed

    def meanwhile(*arguments):
        new = real(*arguments)
        path.write_text(CONF + "# mine\n")
        return new

    monkeypatch.setattr(slurm_conf, "installed", meanwhile)
    result = run("slurm", "install", *site, "--apply")
    assert result.exit_code == 2
    assert "changed concurrently" in result.stderr
    assert path.read_text() == CONF + "# mine\n"
    assert not list(tmp_path.glob("slurm.conf.*"))


def test_changes_are_shown_with_their_outcomes(capsys):
    """What is undone is one line or one object each; a failure comes with Slurm's message."""
    changes = [("release 12", "done", ""), ("delete rt_3", "failed", "denied"), ("a", None, "")]
    show_changes(changes, as_json=False)
    assert capsys.readouterr().out == "release 12\ndelete rt_3: denied\na\n"
    show_changes(changes, as_json=True)
    assert json.loads(capsys.readouterr().out)[1:] == [
        {"change": "delete rt_3", "outcome": "failed", "message": "denied"},
        {"change": "a", "outcome": None, "message": ""},
    ]

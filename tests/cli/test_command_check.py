"""`rtsched check`."""

import json
import re

import pytest

SITE = """\
description = "our site"
planner = "mcdf"
[system]
loop = "conservative"
[[plugin]]
name = "width"
mode = "warn"
on_error = "defer"
settings = { nodes = 64, queues = ["main"] }
[[plugin]]
name = "mcdf"
settings = { nodes = "fastest" }
[policy.trial]
description = "[bold]what we may do[/]"
[[policy.trial.plugin]]
name = "width"
settings = { nodes = 2 }
"""

GOLDEN = """\
site.toml: no errors

policy site  our site
  loop = "conservative"  (set here)
  planner = mcdf
  plug-ins, in the order in which they are called:
    #  plug-in  mode     hooks  on error  weight  settings
    1  width    warn     admit  defer     1       nodes = 64, queues = ["main"]
    2  mcdf     enforce  admit  abstain   1       nodes = "fastest"

policy trial  [bold]what we may do[/]
  planner = none
  plug-ins, in the order in which they are called:
    #  plug-in  mode     hooks  on error  weight  settings
    1  width    enforce  admit  abstain   1       nodes = 2

workload"""

DEFAULT = re.compile(r"  (?!planner)[a-z_]+ = .*(?<!\(set here\))")
"""A line that shows a default of the simulated system, or of the workload."""


def site(tmp_path, text):
    """Write a site.toml."""
    (tmp_path / "site.toml").write_text(text)


@pytest.mark.usefixtures("made_up")
def test_good_file(run, tmp_path):
    """Policies with plug-ins in order, modes and planner are printed."""
    site(tmp_path, SITE)
    result = run("check", "site.toml")
    assert result.exit_code == 0, result.stderr
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    defaults = [line for line in lines if DEFAULT.fullmatch(line)]
    assert "\n".join(line for line in lines if line not in defaults).startswith(GOLDEN)
    assert [line for line in defaults if line.startswith("  deadline_rule = ")]
    assert defaults.count('  order = "arrival"') == 2


@pytest.mark.usefixtures("made_up")
def test_json(run, tmp_path):
    """A good file: all policies with their plug-ins, hooks and notes, and all settings."""
    site(tmp_path, SITE)
    result = run("check", "site.toml", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["file"], found["errors"]) == ("site.toml", [])
    assert list(found["policies"]) == ["site", "trial"]
    own = found["policies"]["site"]
    assert own["system"]["loop"] == "conservative"
    assert own["planner"] == "mcdf"
    assert own["plugin"][0] == {
        "name": "width",
        "mode": "warn",
        "on_error": "defer",
        "weight": 1.0,
        "settings": {"nodes": 64, "queues": ["main"]},
    }
    assert own["hooks"] == {"width": ["admit"], "mcdf": ["admit"]}
    assert own["notes"] == []
    assert found["policies"]["trial"]["description"] == "[bold]what we may do[/]"
    assert found["daemon"]["cycle"] == 5.0
    assert "slurm" in found
    assert "condor" not in found


def test_json_of_mistakes(run, tmp_path):
    """They are the only thing in it, and the status is 2 as without --json."""
    site(tmp_path, 'planer = "mcdf"\n[system]\ndepth = -1\n')
    result = run("check", "site.toml", "--json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert list(found) == ["file", "errors"]
    assert [error.partition(":")[0] for error in found["errors"]] == ["planer", "system.depth"]


@pytest.mark.usefixtures("made_up")
def test_every_mistake_in_one_go(run, tmp_path, refused):
    """Each mistake is one line with file and path; the status is 2."""
    site(
        tmp_path,
        """\
        planer = "mcdf"
        planner = "none"
        [system]
        loop = "eazy"
        depth = -1
        [workload]
        seed = "x"
        [[plugin]]
        name = "mcfd"
        [[plugin]]
        name = "width"
        mode = "maybe"
        settings = { nodes = -1, units = "node" }
        [[plugin]]
        name = "width"
        settings = { nodes = 0, hue = "red" }
        [policy.p]
        loop = "easy"
        """,
    )
    result = run("check", "site.toml")
    paths = (
        "planer",
        "planner",
        "system.loop",
        "system.depth",
        "workload.seed",
        "plugin[0].name",
        "plugin[1].mode",
        "plugin[1].settings.nodes",
        "plugin[1].settings.units",
        "plugin[2].name",
        "plugin[2].settings.nodes",
        "plugin[2].settings.hue",
        "policy.p.loop",
    )
    refused(result, *(f"site.toml: {path}: " for path in paths))
    assert len(result.stderr.splitlines()) == len(paths)


@pytest.mark.parametrize("name", ["a,b", "", " ", " easy", "site"])
def test_names_that_no_option_can_give(run, tmp_path, refused, name):
    """A policy that `--policy` could not name, or that hides the site's own, is a mistake."""
    site(tmp_path, f"[policy.{json.dumps(name)}]\n")
    refused(run("check", "site.toml"), "site.toml: policy.", "name")


@pytest.mark.usefixtures("made_up")
def test_plugin_that_cannot_be_made(run, tmp_path, refused):
    """Right tables are not enough: every plug-in is made once."""
    site(tmp_path, "[[plugin]]\nname = 'unmade'\n[[policy.p.plugin]]\nname = 'unmade'\n")
    result = run("check", "site.toml")
    refused(result, "plug-in 'unmade': cannot be created: OSError: no such table", "policy.p: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"= 3\n", "is not valid TOML"),
        (b"\xff\xfe\x00", "is not valid TOML"),
        (b"description = 'cut", "is not valid TOML"),
    ],
)
def test_no_toml(run, tmp_path, refused, content, said):
    """A missing, binary or truncated file is one sentence."""
    if content is not None:
        (tmp_path / "site.toml").write_bytes(content)
    refused(run("check", "site.toml"), "site.toml: ", said)


def test_directory(run, tmp_path, refused):
    """A directory is no site.toml."""
    refused(run("check", tmp_path), "cannot be read: Is a directory")


def test_empty_file_is_a_site(run, tmp_path):
    """Everything has a default."""
    site(tmp_path, "")
    result = run("check", "site.toml")
    assert result.exit_code == 0
    assert "plug-ins: none" in result.stdout


def test_no_file_is_named(run, refused):
    """Without a file and without --schema the command says what it wants."""
    refused(run("check"), "give a SITE.TOML or --schema")


@pytest.mark.usefixtures("made_up")
def test_schema(run):
    """The schema holds every plug-in's settings, each under its name."""
    result = run("check", "--schema")
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    table = schema["$defs"]["PluginTable"]
    assert {"width", "mcdf"} <= set(table["properties"]["name"]["enum"])
    by_name = {
        each["if"]["properties"]["name"]["const"]: each["then"]["properties"]["settings"]["$ref"]
        for each in table["allOf"]
    }
    for name, reference in by_name.items():
        kind = schema["$defs"][reference.removeprefix("#/$defs/")]
        assert kind["additionalProperties"] is False, name
    width = schema["$defs"][by_name["width"].removeprefix("#/$defs/")]
    assert width["properties"]["nodes"]["exclusiveMinimum"] == 0
    assert width["required"] == ["nodes"]


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("[system]\norder = 'priority'", "no enforced plug-in sets priorities"),
        ("[[plugin]]\nname = 'multifactor'", "multifactor sets priorities, which order = arrival"),
        (
            "planner = 'mcdf'\n[[plugin]]\nname = 'mcdf'\nmode = 'shadow'",
            "the planner mcdf is not enforced: no promises will be given",
        ),
        (
            "[policy.easy]\n",
            "a preset is named easy too: with this file `--policy easy` means this",
        ),
    ],
)
def test_notes(run, tmp_path, text, note):
    """What is no mistake but hardly meant is noted."""
    site(tmp_path, text)
    result = run("check", "site.toml")
    assert result.exit_code == 0, result.stderr
    assert note in " ".join(result.stdout.split())


@pytest.mark.parametrize(("text", "named"), [("", True), ("late_starters = 'requeue'", False)])
def test_changed_defaults_are_named(run, tmp_path, text, named):
    """Of settings that the file does not have; one that a site has set keeps its meaning."""
    site(tmp_path, f"[daemon]\n{text}")
    note = "note: daemon.late_starters is now 'leave' by default; it was 'requeue'"
    said = " ".join(run("check", "site.toml").stdout.split())
    assert (note in said.replace('"', "'")) == named
    found = json.loads(run("check", "site.toml", "--json").stdout)["changed_defaults"]
    assert any("late_starters" in each for each in found) == named


def test_defaults_that_only_live_systems_have_are_named(run, tmp_path):
    """Where the site sets them, there is nothing to say."""
    for settings, named in (("", True), ("settings = { beside_plan = false }", False)):
        site(tmp_path, f"planner = 'mcdf'\n[[plugin]]\nname = 'mcdf'\n{settings}\n")
        found = json.loads(run("check", "site.toml", "--json").stdout)["changed_defaults"]
        text = "beside_plan of plug-in mcdf is now true by default on live systems; it was false"
        assert (text in found) == named
        assert any("promises_per_user is now 2000" in each for each in found)


def test_a_planner_that_cannot_plan_around_periodic_work(run, tmp_path, refused):
    """It would promise its time: one sentence names the planners and settings that would not."""
    work = "[[workload.periodic]]\nname = 'backup'\nperiod = 86400\nduration = 3600"
    plugin = "[[plugin]]\nname = 'mcdf'\n"
    site(tmp_path, f"planner = 'mcdf'\n{work}\n{plugin}settings = {{ rounds = 2 }}\n")
    said = "would promise the time of the periodic work of [[workload.periodic]]; remove"
    refused(run("check", "site.toml"), "site.toml: planner: 'mcdf' as configured", said)
    site(tmp_path, f"planner = 'mcdf'\n{work}\n{plugin}")
    assert run("check", "site.toml").exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[system]\nmachine = 'sliced'\nloop = 'fcfs'", "machine 'sliced' follows no plan"),
        (
            "[system]\nmachine = 'time-shared'\nloop = 'fcfs'",
            "machine 'time-shared' follows no plan",
        ),
        ("[system]\nmachine = 'preemptive'\nloop = 'edf'", "jobs that are never suspended"),
    ],
)
def test_promises_that_nobody_would_keep(run, tmp_path, refused, text, said):
    """A planner whose plans the machine or the periodic work would break is one sentence."""
    plugin = "[[plugin]]\nname = 'mcdf'\n"
    site(tmp_path, f"planner = 'mcdf'\n{text}\n{plugin}")
    refused(run("check", "site.toml"), "site.toml: planner: ", said)
    site(tmp_path, f"planner = 'mcdf'\n{text}\n{plugin}mode = 'shadow'\n")
    assert run("check", "site.toml").exit_code == 0
    site(tmp_path, f"{text}\n")
    assert run("check", "site.toml").exit_code == 0


@pytest.mark.parametrize(
    ("system", "settings", "said"),
    [
        ("", "form = 'edf'", "suspend jobs, which machine 'exclusive' does not support"),
        (
            "machine = 'preemptive'\nloop = 'edf'\nslot = 60",
            "form = 'edf', slot = 1",
            "'spare' plans in slots of 1 s, machine 'preemptive' has slots of 60 s",
        ),
        ("machine = 'preemptive'\nloop = 'edf'\nslot = 60", "form = 'edf', slot = 60", ""),
        ("", "form = 'gaps'", ""),
    ],
)
def test_planner_and_machine_agree_on_suspension(run, tmp_path, refused, system, settings, said):
    """A plan that suspends jobs needs the machine for it, with the same slots."""
    periodic = "[[workload.periodic]]\nname = 'backup'\nperiod = 86400\nduration = 3600\n"
    plugin = f"[[plugin]]\nname = 'spare'\nsettings = {{ {settings} }}\n"
    site(tmp_path, f"planner = 'spare'\n[system]\n{system}\n{plugin}{periodic}")
    result = run("check", "site.toml")
    if said:
        refused(result, "site.toml: planner: ", said)
    else:
        assert result.exit_code == 0, result.stderr


def test_recurring_work_where_jobs_share_nodes(run, tmp_path, refused):
    """Planners that leave it its time keep to amounts too; another one is refused."""
    table = "[[workload.periodic]]\nname = 'a'\nperiod = 10\nduration = 2\namounts = { cpu = 1 }\n"
    shared = "[workload]\nunit = 'resources'\n"
    policy = "[policy.p]\nplanner = '{0}'\nplugin = [{{ name = '{0}' }}]\n"
    for planner in ("spare", "mcdf"):
        site(tmp_path, shared + table + policy.format(planner))
        result = run("check", "site.toml")
        assert result.exit_code == 0, result.stderr
    rounds = policy.format("mcdf").replace("'mcdf' }]", "'mcdf', settings = { rounds = 2 } }]")
    site(tmp_path, shared + table + rounds)
    refused(run("check", "site.toml"), "site.toml: policy.p: planner: 'mcdf' as configured plans")


MACHINES = """\
[policy.sliced]
system = { machine = "sliced", loop = "ste", quantum = 60.0 }
[policy.shared]
system = { machine = "time-shared", loop = "fcfs" }
"""


def test_settings_of_the_machine_alone(run, tmp_path):
    """A policy's settings are those of its machine; other machines' are not shown."""
    site(tmp_path, MACHINES)
    policies = run("check", "site.toml").stdout.partition("\nworkload\n")[0]
    shown = policies.split("policy ")[1:]
    names = [[line.split(" = ")[0].strip() for line in part.splitlines() if "=" in line]
             for part in shown]  # fmt: skip
    exclusive, sliced, shared = (set(some) for some in names)
    assert {"order", "depth", "requeue"} <= exclusive
    assert {"quantum", "split"} <= sliced
    assert "migration_cost" in shared
    assert not exclusive & {"quantum", "split", "migration_cost", "slot"}
    assert not sliced & {"order", "depth", "requeue", "migration_cost", "slot"}
    assert not shared & {"order", "depth", "requeue", "quantum", "split", "slot"}


def test_rules_and_periodic_work_are_checked(run, tmp_path, refused):
    """What a replay would refuse whatever the log is, the check refuses too."""
    table = "[[workload.periodic]]\nname = 'a'\nperiod = 10\n"
    site(tmp_path, f"{table}duration = 20\n{table}duration = 2\ndeadline = 50\n")
    refused(
        run("check", "site.toml"),
        "site.toml: workload.periodic[0].duration: 20 s of work do not fit",
        "site.toml: workload.periodic[1].deadline: 50 s are more than the period",
    )


def test_plugin_for_another_kind_of_machine(run, tmp_path):
    """Node choice for shared nodes is refused where they are not, and the other way round."""
    machine = 'system = { machine = "time-shared", loop = "fcfs" }'
    shadow = '[[policy.c.plugin]]\nname = "sed"\nmode = "shadow"'
    site(
        tmp_path,
        '[[policy.a.plugin]]\nname = "sed"\nsettings = { time_sharing = true }\n'
        f'[policy.b]\n{machine}\n[[policy.b.plugin]]\nname = "sed"\n'
        f"[policy.c]\n{machine}\n{shadow}\n",
    )
    result = run("check", "site.toml")
    lines = result.stderr.splitlines()
    assert result.exit_code == 2
    assert len(lines) == 2
    assert "policy.a: plugin 'sed' is set for a machine on which jobs share its nodes" in lines[0]
    assert "policy.b: plugin 'sed' is set for a machine on which a node runs one job" in lines[1]


SHARED = '[workload]\nunit = "resources"\n[[plugin]]\nname = "{}"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHARED.format("psts"), None),
        (SHARED.format("sed"), None),
        (SHARED.format("fastest"), "site.toml: plugin 'fastest' chooses whole nodes for jobs"),
        (
            SHARED.format("psts") + '[system]\nplacement = "best_fit"\n',
            "site.toml: system.placement: 'best_fit' would ignore the order in which plugin 'psts'",
        ),
    ],
)
def test_plugins_that_place_jobs_on_shared_nodes(run, tmp_path, refused, text, said):
    """Those that know what jobs ask for are good; others, and rules beside them, are refused."""
    site(tmp_path, text)
    result = run("check", "site.toml")
    if said is None:
        assert result.exit_code == 0
    else:
        refused(result, said)


def test_machine_without_periodic_work(run, tmp_path, refused):
    """A policy on a machine that has no place for it is refused with its name."""
    table = "[[workload.periodic]]\nname = 'a'\nperiod = 10\nduration = 2\n"
    site(tmp_path, f"{table}[policy.shared.system]\nmachine = 'time-shared'\nloop = 'fcfs'\n")
    refused(
        run("check", "site.toml"), "site.toml: policy.shared: system.machine: 'time-shared' does no"
    )


def test_settings_that_do_not_go_together(run, tmp_path):
    """A setting of another machine, or a loop that it lacks, is told for every policy at once."""
    systems = {
        "a": (
            '"time-shared", loop = "easy"',
            "loop: invalid value 'easy' on machine 'time-shared'",
        ),
        "b": ('"sliced", loop = "serial"', "loop: invalid value 'serial' on machine 'sliced'"),
        "c": ('"exclusive", quantum = 5.0', "quantum: is a setting of machine 'sliced'"),
    }
    lines = [f"[policy.{k}]\nsystem = {{ machine = {v} }}\n" for k, (v, _) in systems.items()]
    site(tmp_path, "".join(lines) + '[workload]\nprice_of = "cor"\n')
    result = run("check", "site.toml")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 4
    for name, (_, said) in systems.items():
        assert f"policy.{name}.system.{said}" in result.stderr


@pytest.mark.parametrize(
    ("settings", "refused"), [("{ staggered = true }", True), ("{ rounds = 8 }", False)]
)
def test_what_only_a_replay_can_follow_is_noted(run, tmp_path, settings, refused):
    """A file that `rtsched serve` would refuse is no mistake; what to change for it is said."""
    path = tmp_path / "site.toml"
    path.write_text(f'[[plugin]]\nname = "mcdf"\nsettings = {settings}\n')
    result = run("check", path)
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert ("`rtsched serve` refuses this file: plugin 'mcdf'" in said) == refused
    assert ("set staggered = false" in said) == refused

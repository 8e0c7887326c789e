"""The docs say what the code does: generated pages, links, commands, tables, messages."""

import importlib
import importlib.util
import inspect
import itertools
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import click
import msgspec
import numpy as np
import pytest

from rtsched.adapters.condor import setup as condor_setup
from rtsched.adapters.slurm import setup as slurm_setup
from rtsched.cli import main
from rtsched.core import hookspecs
from rtsched.core.chain import Chain
from rtsched.core.config import PluginTable
from rtsched.core.plugins import Found
from rtsched.daemon.messages import REASONS
from rtsched.daemon.metrics import METRICS
from rtsched.daemon.questions import AnyQuestion
from rtsched.daemon.settings import DaemonSettings, LiveSite, Scope
from rtsched.logs.sacct_lines import ROLES, SACCT, SACCT_COLUMNS
from rtsched.model.verdicts import Reason, Verdict
from rtsched.replay.measures import MEASURES
from rtsched.replay.policies import RECOMMENDED, load_site, presets
from rtsched.testing import make_cluster, make_jobs, make_snapshot

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
TOOLS = TOP / "tools" / "docs"
PAGES = sorted([*TOP.glob("*.md"), *DOCS.rglob("*.md")])
BY_HAND = [path for path in PAGES if path.parent.name != "reference"]
OPERATORS = "();<>|&"
FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def generate():
    """Return tools/docs/generate.py as a module; its neighbours can be imported too."""
    sys.path.insert(0, str(TOOLS))
    yield importlib.import_module("generate")
    sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def reference():
    """Return the pages of the reference by name."""
    return {path.stem: path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md")}


def shown(path):
    """Return a page's name for test ids."""
    return path.relative_to(TOP).as_posix()


def blocks(path, language):
    """Return the texts of a page's fenced blocks of one language."""
    found = FENCED.findall(path.read_text("utf-8"))
    return [text for info, text in found if info.strip() == language]


def test_manual_pages_are_up_to_date(generate):
    """Whoever changes a command runs tools/docs/generate.py: packages carry the manual pages."""
    assert generate.stale(generate.man_pages()) == []


def test_every_command_has_a_manual_page(generate):
    """Each has a page with all options, those of the commands in it too; rtsched(1) names it."""
    pages = {path.stem: path.read_text("utf-8") for path in (DOCS / "man").glob("*.1")}
    names = main.list_commands(click.Context(main))
    assert set(pages) == {"rtsched", *(f"rtsched-{name}" for name in names)}
    for name, command in importlib.import_module("pages_for_admins").commands().items():
        words = name.split()
        if len(words) == 1:
            continue
        assert f".BR rtsched\\-{words[1]} (1)" in pages["rtsched"]
        page = pages[f"rtsched-{words[1]}"].replace("\\-", "-")
        if isinstance(command, click.Group):
            continue
        assert name in page
        for option in command.params:
            if isinstance(option, click.Option):
                assert all(word in page for word in option.opts), (name, option.opts)


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
@pytest.mark.parametrize(
    "path", [*sorted((DOCS / "man").glob("*.1")), TOP / "contrib/slurm/rtsched-submit.7"], ids=str
)
def test_manual_pages_are_well_formed(path):
    """Troff has nothing to say against them."""
    words = ["groff", "-man", "-Tutf8", "-ww", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "SEE ALSO" in re.sub(".\b", "", done.stdout)


@pytest.mark.slow
def test_terminal_excerpts_are_up_to_date(generate, tmp_path):
    """What README and tutorial show is what their commands print."""
    outputs = importlib.import_module("outputs")
    terminal = outputs.Terminal(tmp_path)
    for excerpt in outputs.excerpts():
        assert terminal.shown(excerpt) == excerpt.output, excerpt.command


def hooks():
    """Return the hooks that hookspecs declares."""
    return {name: value for name, value in vars(hookspecs).items() if name.startswith("rtsched_")}


def test_every_hook_is_documented_with_its_arguments(reference):
    """Page, heading and argument list."""
    for name, function in hooks().items():
        arguments = ", ".join(["self", *inspect.signature(function).parameters])
        assert f"## {name}\n" in reference["hooks"]
        assert f"def {name}({arguments})" in reference["hooks"]


def test_every_setting_is_documented(generate, reference):
    """Settings of plug-ins under their plug-in, tables of a site.toml under theirs."""
    installed = importlib.import_module("installed")
    for name, entry in installed.built_in().items():
        section = reference["plugins"].partition(f"## {name}\n")[2].partition("\n## ")[0]
        for setting in entry.config.__struct_fields__:
            assert f"| `{setting}` |" in section, (name, setting)
    from rtsched.core.config import PluginTable
    from rtsched.replay.policies import Policy, SiteSettings

    tables = type(Policy().system), type(SiteSettings().workload)
    for kind in (SiteSettings, Policy, PluginTable, *tables):
        for setting in kind.__struct_fields__:
            assert f"| `{setting}` |" in reference["site"], (kind, setting)


def text_of_tests():
    """Return the text of all tests but those of this file."""
    others = [path for path in (TOP / "tests").rglob("*.py") if path.name != Path(__file__).name]
    return "\n".join(path.read_text("utf-8") for path in others)


def test_every_reason_is_documented_and_asserted(generate, reference):
    """Each reason of core and built-in plug-ins has an anchor, and a test that names its code."""
    text = text_of_tests()
    codes = list(importlib.import_module("pages_for_authors").reasons())
    assert codes
    for code in codes:
        assert f'<a id="{code}"></a>' in reference["reasons"]
    assert [code for code in codes if f'"{code}"' not in text] == []


def test_reason_codes_begin_with_their_plugin(generate):
    """`mcdf.no-room` is one of mcdf."""
    installed = importlib.import_module("installed")
    for name, entry in installed.built_in().items():
        for reason in installed.reasons_of(entry.plugin):
            assert isinstance(reason, Reason)
            assert reason.code.startswith(f"{name}.")


def test_every_measure_is_documented(reference):
    """Each name of the registry is in the table."""
    assert MEASURES
    for name in MEASURES:
        assert f"| `{name}` |" in reference["measures"]


def test_every_command_and_option_is_documented(generate, reference):
    """Each command has a section, and each of its options a row there."""
    commands = importlib.import_module("pages_for_admins").commands()
    assert {f"rtsched {name}" for name in main.list_commands(click.Context(main))} < set(commands)
    for name, command in commands.items():
        section = reference["commands"].partition(f"## {name}\n")[2].partition("\n## ")[0]
        for param in command.params:
            if isinstance(param, click.Option):
                assert all(f"`{option}`" in section for option in param.opts), (name, param.opts)
                assert param.help, (name, param.name)


def test_every_hook_has_a_test_of_its_name():
    """A hook without a test that is named after it is not tested."""
    names = re.findall(r"def (test_\w+)", text_of_tests())
    for hook in hooks():
        short = hook.removeprefix("rtsched_")
        assert any(short in name for name in names), f"no test is named after {hook}"


def slug(heading):
    """Return the anchor that a heading gets."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def anchors(path):
    """Return all anchors of a page."""
    text = path.read_text("utf-8")
    bare = FENCED.sub("", text)
    headings = re.findall(r"^#+ (.+)$", bare, re.MULTILINE)
    return {slug(heading) for heading in headings} | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_links_resolve(path):
    """Every relative link leads to a file, and to an anchor in it."""
    text = FENCED.sub("", path.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        assert other.exists(), target
        if fragment:
            assert fragment in anchors(other), target


@pytest.mark.parametrize("name", ["tutorial.md", "calibrate.md"])
def test_exports_are_made_with_one_command(name):
    """The pages show the command that messages name; a calibration needs job names too."""
    commands = [
        text.replace("\\\n", " ").partition(">")[0].split()
        for text in blocks(DOCS / name, "sh")
        if text.startswith("sacct ")
    ]
    (words,) = commands
    for option in ("--starttime", "--endtime"):
        del words[words.index(option) : words.index(option) + 2]
    names = "JobName," if name == "calibrate.md" else ""
    assert words == SACCT.replace(SACCT_COLUMNS, names + SACCT_COLUMNS).split()
    assert set(SACCT_COLUMNS.lower().split(",")) <= {
        each for some in ROLES.values() for each in some
    }


def command_lines(path):
    """Return every `rtsched ...` command line in a page's fenced blocks, as words."""
    for text in [*blocks(path, "sh"), *blocks(path, "console")]:
        command = ""
        for line in text.replace("\\\n", " ").splitlines():
            command += line.removeprefix("$ ")
            try:
                words = split(command)
            except ValueError:  # a quoted text of several lines
                command += "\n"
                continue
            command = ""
            for operator, part in itertools.groupby(words, lambda word: not word.strip(OPERATORS)):
                words = [] if operator else list(part)
                if words[:1] == ["rtsched"]:
                    yield words[1:]


def split(command):
    """Return the words and operators of a command line."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return list(words)


def parse(group, words, context):
    """Parse a command line down to the command that it names, running nothing."""
    command = group.get_command(context, words[0])
    assert command is not None, words
    rest = words[1:]
    if isinstance(command, click.Group):
        inner = click.Context(command, info_name=words[0], parent=context)
        parse(command, rest, inner)
    else:
        command.make_context(words[0], list(rest), parent=context)


@pytest.mark.parametrize("path", BY_HAND, ids=shown)
def test_command_lines_parse(path):
    """Commands, options and their values in hand-written pages are those that exist."""
    context = click.Context(main, info_name="rtsched")
    for words in command_lines(path):
        if words[:1] in (["--version"], ["--help"]):
            continue
        parse(main, words, context)


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_site_tables_are_valid(path, tmp_path, generate, documented):
    """A block marked `toml site` is a whole site.toml without a mistake."""
    ours = (
        Found("width-limit", "site-plugins", "1.0", lambda: documented.WidthLimit),
        Found("turns", "site-plugins", "1.0", lambda: documented.Turns),
    )
    found = importlib.import_module("installed").built_in() | {one.name: one for one in ours}
    for text in blocks(path, "toml site"):
        file = tmp_path / "site.toml"
        file.write_text(text, "utf-8")
        load_site(file, found)


@pytest.fixture(scope="session")
def documented(tmp_path_factory):
    """Return the Python blocks of docs/plugins.md as one module."""
    path = tmp_path_factory.mktemp("documented") / "documented_plugins.py"
    path.write_text("\n\n".join(blocks(DOCS / "plugins.md", "python")), "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_plugin_page_runs(documented):
    """The examples of docs/plugins.md pass their own tests."""
    tests = [value for name, value in vars(documented).items() if name.startswith("test_")]
    assert len(tests) >= 4
    for test in tests:
        test()


def test_the_guides_begin_with_the_recommended_planner() -> None:
    """Which planner a site begins with is said in one constant, and the guides say the same."""
    policy = presets()[RECOMMENDED]
    (plugin,) = policy.plugin
    planner, settings = policy.planner, plugin.settings
    guides = ("tutorial", "slurm/install", "condor/install", "condor/sharing")
    texts = [(DOCS / f"{name}.md").read_text() for name in guides]
    texts.append((TOP / "examples" / "site.toml").read_text())
    for text in texts:
        assert set(re.findall(r'^planner = "(.+)"$', text, re.MULTILINE)) == {planner}
        for name, value in settings.items():
            assert f"{name} = {value}" in text
    assert f"[`{RECOMMENDED}`]" in (DOCS / "policies.md").read_text()
    assert f"`{RECOMMENDED}`" in (TOP / "README.md").read_text()


ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMES = sorted(set(re.findall(r"`(rtsched(?:_plugins)?(?:\.\w+)+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_is_there(name: str) -> None:
    """A module, or something in one."""
    home, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(home), last)


def test_the_rooms_are_those_of_the_contract() -> None:
    """Row by row, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = (
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["name"] == "Imports point one way"
    )
    rows = PAGE.split("```text\n")[1].split("```")[0].splitlines()
    shown = [set(re.split(r"\s{3,}", row)) & set(re.findall(r"\w+", row)) for row in rows]
    wanted = [set(re.findall(r"rtsched\.(\w+)", layer)) for layer in layers]
    assert shown == wanted


def test_files_that_are_named_are_there() -> None:
    """Those of contrib, too."""
    for path in re.findall(r"`(contrib/[\w./]+)`", PAGE):
        assert (ROOT / path).exists(), path


REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_every_metric_is_documented():
    """Each metric stands on its page with its labels."""
    text = (REFERENCE / "metrics.md").read_text("utf-8")
    for name, metric in METRICS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert all(f"`{label}`" in row for label in metric.labels)


def test_every_question_is_documented():
    """Each question and each field of its report stands on its page, with a meaning."""
    text = (REFERENCE / "queries.md").read_text("utf-8")
    for question in get_args(AnyQuestion):
        part = text.partition(f"\n## {question.__struct_config__.tag}\n")[2].partition("\n## ")[0]
        for kind in (question, question.Answer):
            for field in msgspec.structs.fields(kind):
                start = f"| `{field.encode_name}` |"
                row = next(line for line in part.splitlines() if line.startswith(start))
                assert len(re.split(r"(?<!\\)\|", row)[3].strip()) > 3


def test_every_reason_of_the_daemon_is_documented():
    """Each code that stands in its source is known, and each known one stands there."""
    source = Path(__file__).resolve().parents[2] / "rtsched" / "daemon"
    texts = [path.read_text("utf-8") for path in source.glob("*.py") if path.name != "reasons.py"]
    code = re.compile(r'"((?:submit|wait|likely)\.(?!sock\b)[a-z-]+)"')
    given = {found for text in texts for found in code.findall(text)}
    assert given == set(REASONS)
    page = (REFERENCE / "reasons.md").read_text("utf-8")
    assert all(f"\n## {code}\n\n{meaning}" in page for code, meaning in REASONS.items())


def test_every_setting_of_the_filter_is_documented():
    """The page has those that filter and library, and the commands that check them, know."""
    page = (REFERENCE / "submit.md").read_text("utf-8")
    slurm, condor = page.partition("## Slurm")[2].split("## HTCondor")
    assert set(re.findall(r"^\| `(\w+)`", slurm, re.MULTILINE)) == slurm_setup.SUBMIT_KEYS
    assert set(re.findall(r"^\| `(\w+)`", condor, re.MULTILINE)) == condor_setup.SUBMIT_KEYS


def test_every_setting_of_a_live_site_is_documented():
    """Each has a row under the table that it stands in."""
    page = (REFERENCE / "site.md").read_text("utf-8")
    kinds = {"`[daemon]`": DaemonSettings, "`[[scope]]`": Scope, "`[slurm]`": None}
    for title, kind in kinds.items():
        part = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        kind = kind or type(LiveSite().slurm)
        assert all(f"| `{each.name}` |" in part for each in msgspec.structs.fields(kind)), title


QUOTING = ("operations.md", "promises.md")
SOURCES = (".py", ".c", ".cpp", ".conf")
WORDS = 3
"""From so many words on, a text between placeholders is looked up."""
OF_OTHERS = {
    "ERROR in transform RtFrozen",
    "database or disk is full",
    "start timed out",
    "the daemon could not be reached",
    "the daemon could not evaluate",
}
"""Messages of HTCondor, SQLite and systemd, and two that the filter composes."""


def source() -> str:
    """Return all sources, with literals that follow one another joined."""
    tops = (TOP / top for top in ("rtsched", "plugins", "contrib"))
    files = [path for top in tops for path in top.rglob("*") if path.suffix in SOURCES]
    text = "\n".join(path.read_text("utf-8", errors="ignore") for path in sorted(files))
    return re.sub(r"\s+", " ", re.sub(r'"\s*\n\s*f?"', "", text))


def quoted(page: str) -> list[str]:
    """Return what stands between the placeholders of messages in first cells of a page's tables."""
    cells = re.findall(r"^\| ([^|]*) \|", (TOP / "docs" / page).read_text("utf-8"), re.MULTILINE)
    texts = [text for cell in cells for text in re.findall(r"`([^`]*)`", cell)]
    parts = [
        part.strip()
        for text in texts
        if text not in OF_OTHERS
        for part in re.split(r"\.\.\.|\b[A-Z]\b|[:;()='\"]|\bmin\b", text)
    ]
    return [part for part in parts if len(part.split()) >= WORDS and part not in OF_OTHERS]


@pytest.mark.parametrize("page", QUOTING)
def test_messages_are_those_of_the_sources(page: str) -> None:
    """Who searches the docs for a message finds it."""
    parts = quoted(page)
    assert len(parts) > 10
    text = source()
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize(
    ("code", "job", "sentence"),
    [
        ("limits.too-wide", {"size": [5]}, "requests 5 nodes, the limit is 4"),
        (
            "limits.too-long",
            {"wall_time": [7200.0]},
            "requests 2 h of run time, the limit is 1 h",
        ),
        (
            "limits.no-time-limit",
            {"wall_time": [np.inf]},
            "states no run time, the limit is 1 h",
        ),
        (
            "limits.never-fits",
            {"size": [3], "partition": ["small"]},
            "needs 3 nodes, its partition has 2 available",
        ),
    ],
)
def test_limits_say_why(code, job, sentence):
    """The reason's code is stable, its sentence names what was asked for and the limit."""
    table = PluginTable("limits", settings={"size": 4, "wall_time": 3600.0})
    cluster = make_cluster(8, partitions={"small": [0, 1]})
    verdicts = Chain.load([table]).admit(make_jobs(**job), make_snapshot(cluster=cluster)).verdicts
    assert verdicts.code.tolist() == [Verdict.REJECT]
    (finding,) = verdicts.findings
    assert finding.reason.code == code
    assert finding.text(0) == sentence

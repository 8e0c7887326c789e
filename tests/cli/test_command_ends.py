"""How commands end: one sentence on standard error, a documented status, no traceback."""

import os
import re
import resource
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import rtsched.cli
from rtsched.cli import main
from rtsched.cli.common import Partial
from rtsched.errors import AdapterError, ConfigError, PluginError


def ended(monkeypatch, error, *arguments):
    """Run a command whose work raises `error`."""

    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("rtsched.core.plugins.discover", fail)
    return CliRunner().invoke(main, ["plugins", *arguments])


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            ConfigError(["a: is wrong", "b: too"], "s.toml"),
            2,
            ["s.toml: a: is wrong", "s.toml: b: too"],
        ),
        (PluginError("x", "raised"), 2, ["plug-in 'x': raised"]),
        (AdapterError("slurmctld did not answer"), 3, ["slurmctld did not answer"]),
        (KeyboardInterrupt(), 130, ["interrupted"]),
        (Partial("easy is done"), 130, ["interrupted; easy is done"]),
        (
            MemoryError(),
            2,
            ["out of memory; replay a shorter part of the log, or on a larger machine"],
        ),
    ],
)
def test_error_is_a_sentence_and_a_status(monkeypatch, error, status, said):
    """Each error prints its problems one a line and ends with its class's status."""
    result = ended(monkeypatch, error)
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr.splitlines() == [f"rtsched: error: {line}" for line in said]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("repaly", "No such command 'repaly'. Did you mean 'replay'?"),
        ("stat", "No such command 'stat'. Did you mean 'status'?"),
        ("xyz", "No such command 'xyz'."),
        ("slurm chekc", "No such command 'chekc'. Did you mean 'check'?"),
        ("condor instal", "No such command 'instal'. Did you mean 'install'?"),
        ("synth lubblin", "No such command 'lubblin'. Did you mean 'lublin'?"),
        ("reproduce mcfd", "No such command 'mcfd'. Did you mean 'mcdf'?"),
    ],
)
def test_a_command_that_there_is_not(typed, said):
    """It is named with the one that was meant, and where to read on."""
    result = CliRunner().invoke(main, typed.split())
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: {said}"
    assert "--help' for help" in result.stderr


def test_compiled_code_without_a_place_is_no_defect(monkeypatch):
    """A cache directory of somebody else is said, with what to do."""
    error = RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")
    result = ended(monkeypatch, error)
    assert result.exit_code == 2
    assert "set NUMBA_CACHE_DIR" in result.stderr


def test_control_characters_are_written_out(monkeypatch):
    """What a log smuggles into a sentence does not reach the terminal."""
    result = ended(monkeypatch, ConfigError(["job \x1b[31m is odd"]))
    assert result.stderr == "rtsched: error: job \\x1b[31m is odd\n"


def test_defect_says_how_to_report_it(monkeypatch):
    """An exception nobody foresaw is one sentence, not a traceback."""
    result = ended(monkeypatch, ZeroDivisionError("division\nby zero"))
    assert result.exit_code == 70
    (line,) = result.stderr.splitlines()
    assert "ZeroDivisionError: division by zero" in line
    assert "--debug" in line


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), ConfigError(["x"])])
def test_debug_shows_the_traceback(monkeypatch, error):
    """With --debug the traceback comes before the sentence."""
    result = ended(monkeypatch, error, "--debug")
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("rtsched: error: ")


def test_debug_may_stand_before_the_command(monkeypatch):
    """`rtsched --debug COMMAND` is the same as `rtsched COMMAND --debug`."""
    monkeypatch.setattr("rtsched.core.plugins.discover", lambda: 1 / 0)
    result = CliRunner().invoke(main, ["--debug", "plugins"])
    assert "Traceback" in result.stderr


def test_unknown_command_is_a_usage_error():
    """A command that does not exist ends with 2."""
    result = CliRunner().invoke(main, ["replai"])
    assert result.exit_code == 2
    assert "replai" in result.stderr


def test_version():
    """`--version` prints name and version, which is a release."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", rtsched.__version__)
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"rtsched, version {rtsched.__version__}\n"


@pytest.mark.parametrize("name", list(rtsched.cli.COMMANDS))
def test_every_option_has_a_help_text(name):
    """A site admin finds every option explained, and the summary agrees with the command."""
    command = main.get_command(None, name)
    assert command.name == name
    assert "--debug" in {flag for each in command.params for flag in each.opts}
    assert command.help
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.help, f"{name} {parameter.name}"
    shown = CliRunner().invoke(main, [name, "--help"])
    assert shown.exit_code == 0
    assert "--debug" in shown.output


def test_help_lists_all_commands():
    """`rtsched --help` and `rtsched` alone list commands and exit statuses."""
    text = CliRunner().invoke(main, ["--help"]).output
    for name, summary in rtsched.cli.COMMANDS.items():
        assert name in text
        assert summary in text
    assert "interrupted" in text


def test_help_imports_nothing_heavy():
    """`rtsched --help` stays quick: no array, table or plot library is imported for it."""
    code = (
        "import sys; from click.testing import CliRunner; from rtsched.cli import main;"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0;"
        "heavy = {'numpy', 'numba', 'pyarrow', 'plotly', 'rich', 'jinja2'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_numpy_starts_no_threads():
    """A command that imports numpy has one thread, on a host of any size."""
    code = (
        "from click.testing import CliRunner; from rtsched.cli import main;"
        "assert CliRunner().invoke(main, ['plugins']).exit_code == 0;"
        "import sys; assert 'numpy' in sys.modules; "
        "sys.exit(open('/proc/self/status').read().partition('Threads:')[2].split()[0] != '1')"
    )
    few = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    assert subprocess.run([sys.executable, "-c", code], env=few, check=False).returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_that_lacks_characters_is_no_defect(tmp_path, encoding):
    """What it lacks is a question mark."""
    log = tmp_path / "log.swf"
    log.write_text("1 0 5 60 2 -1 -1 2 90 -1 1 1 1 -1 1 -1 -1 -1\n")
    words = ["replay", str(log), "--policy", "easy,edf-easy-admit", "--no-out"]
    result = CliRunner(charset=encoding).invoke(main, words)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"promises kept[ |]+\?[ |]+\?[ |]+1 of 1", result.stdout)


def test_closed_pipe_is_quiet():
    """`rtsched ... | head` ends without a word when the reader goes away."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "rtsched", "plugins"], stdout=pipe, stderr=subprocess.PIPE
        )
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["plugins"], ["plugins", "--json"]], ids=str)
def test_a_full_disk_is_no_defect(arguments):
    """One sentence, whether rich writes the output or click."""
    command = [sys.executable, "-m", "rtsched", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "rtsched: error: output cannot be written (No space left on device); "
        "free space or write it elsewhere\n"
    )


def test_help_is_quick():
    """`rtsched --help` takes a fraction of a second of processor time, Python's start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "rtsched", "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3


NO_OUTPUT = {f"rtsched {name}" for name in ("notices", "rest", "serve")} | {
    f"rtsched {system} {name}"
    for system in ("slurm", "condor")
    for name in ("install", "uninstall")
}
"""What serves, and what prints a difference between files, in the form that `patch` takes."""


def leaves(command, name):
    """Yield each command that is no group, with its name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command, info_name=name)
    for each in command.list_commands(context):
        yield from leaves(command.get_command(context, each), f"{name} {each}")


def test_results_can_be_had_as_json():
    """Every command that prints results has --json."""
    without = {
        name
        for name, command in leaves(main, "rtsched")
        if "--json" not in {flag for each in command.params for flag in each.opts}
    }
    assert without == NO_OUTPUT


@pytest.mark.parametrize(
    "command",
    [
        ("replay", "log.swf", "--no-report", "--out"),
        ("replay", "log.swf", "--no-out", "--html"),
        ("synth", "lublin", "--jobs", "3", "--nodes", "8", "-o"),
        ("anonymise", "log.swf", "--key", "key", "-o"),
        ("anonymise", "log.swf", "-o", "others.swf", "--key"),
        ("calibrate", "log.swf", "--out"),
    ],
)
def test_names_that_are_too_long_or_empty(run, refused, tmp_path, command):
    """As of `--key "$KEY"` where nothing is set; results beside the log need no name."""
    (tmp_path / "log.swf").write_text("1 0 0 10 1 -1 -1 1 20 -1 1 1 1 -1 1 -1 -1 -1\n")
    refused(run(*command, "x" * 300), "cannot be written (File name too long)", command[-1])
    if command[-1] != "--out":
        refused(run(*command, ""), ".: ", "directory")

"""`rtsched chunk`: what was planned for the job that runs this, or for a job that waits.

Of a divisible load a node takes the parts one by one (`Parts`). The first call on a node writes
them, in the order of the plan's rounds, into a file; each call takes the next one, holding a lock
on that file. So a job's tasks on a node can ask at a time, and what the plan was is asked once.
Nothing here needs another host: nodes share nothing.

The file is `JOB.RESTART.NODE` in /tmp/rtsched-UID on Slurm, so that a requeued job begins anew; on
HTCondor it is in the scratch directory of the job, which is another one after a restart.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import click

from rtsched.cli.asking import report_of, socket_option
from rtsched.cli.common import Exit, debug_option, say
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rtsched.daemon.questions import ChunkReport


_RECORD = re.compile(r"^ *Comment=rtsched:promise (.*)$", re.MULTILINE)
_WORD = re.compile(r"(deadline|nodes|fractions|rounds|on)=(.*)", re.DOTALL)
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)
_NUMBER = re.compile(r"(?=.{1,31}$)[0-9]+(?:\.[0-9]*)?(?:e-?[0-9]+)?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_SECONDS = 10.0


@click.command("chunk")
@click.argument("job", metavar="[JOB]", required=False)
@click.option(
    "--next", "take", is_flag=True, help="Take the next part of the load: print its FROM and TO."
)
@click.option("--restart", is_flag=True, help="Forget which parts were taken on this node.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@socket_option
@debug_option
@click.pass_context
def command(
    ctx: click.Context, job: str | None, take: bool, restart: bool, as_json: bool, path: str
) -> None:
    """Print the plan of a promised job, as shell variables RTSCHED_*.

    Inside a job it needs no daemon: it reads the record in the job and also prints this node's
    part. `eval "$(rtsched chunk)"` sets what our TaskProlog sets, where a site has it; a
    job of HTCondor has it set from the start. With JOB it queries the daemon for the current plan,
    which may change until the job starts. The exit status is 1 if there is no plan.

    With --next it prints the next part of the load for this node, as `FROM TO` between 0 and 1,
    in the order of the plan's rounds. Each part is given once, whichever of the job's tasks on the
    node asks. The exit status is 1 when none is left, and another one on errors.
    """
    if take or restart:
        if job is not None or (take and restart):
            raise click.UsageError("--next and --restart are used alone, inside a job")
        _in_turn(ctx, restart, as_json)
        return
    if job is not None:
        from rtsched.daemon.questions import Chunk

        found = of_report(report_of(Chunk(job), path))
    else:
        found = _planned()
    if not found:
        say("rtsched: there is no plan for this job")
        ctx.exit(Exit.FINDINGS)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(as_object(found)).decode())
        return
    for name, value in found.items():
        click.echo(f"export RTSCHED_{name}={value}")


def _planned() -> dict[str, str]:
    """Return the plan of the job that runs this; empty if it has none."""
    if "_CONDOR_JOB_AD" in os.environ:
        return given(os.environ)
    return variables(record_text(os.environ), os.environ)


def _in_turn(ctx: click.Context, restart: bool, as_json: bool) -> None:
    """Print the next part of the load, or begin again."""
    with Parts(*state_of(os.environ)) as parts:
        if restart:
            parts.forget()
            return
        part = parts.take(_planned)
    if not part:
        ctx.exit(Exit.FINDINGS)
    if as_json:
        import msgspec

        start, end = part.split()
        click.echo(msgspec.json.encode({"from": float(start), "to": float(end)}).decode())
    else:
        click.echo(part)


def record_text(environment: Mapping[str, str]) -> str:
    """Return a text with the record of the job that runs this: scontrol's, or what it was told.

    Raises
    ------
    AdapterError
        If this is no job, or Slurm does not answer.
    """
    job = environment.get("SLURM_JOB_ID", "")
    if not _WHOLE.fullmatch(job):
        raise AdapterError("not inside a job of Slurm or HTCondor; give a JOB")
    if environment.get("RTSCHED_JOB") == job:
        words = ("deadline", "nodes", "fractions", "rounds", "on")
        given_words = (f"{word}={environment.get(f'RTSCHED_{word.upper()}', '')}" for word in words)
        return f"Comment=rtsched:promise {' '.join(given_words)}"
    scontrol = environment.get("RTSCHED_SCONTROL", "scontrol")
    try:
        done = subprocess.run(  # noqa: S603 - an argument list, the job's number was checked
            [scontrol, "show", "job", job],
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise AdapterError(f"{scontrol} is not installed here; give a JOB") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise AdapterError(f"Slurm does not show job {job} ({error})") from error
    return done.stdout.decode("utf-8", "replace")


def variables(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the names (without RTSCHED_) and values that a record means; empty if it is none.

    The same as `contrib/slurm/task_prolog.sh` prints, from the same words: only numbers and names
    of nodes pass.
    """
    record = _RECORD.search(text)
    words: dict[str, str] = {}
    for word in re.split(r"[ \t]+", record[1]) if record else ():
        if match := _WORD.fullmatch(word):
            words.setdefault(match[1], match[2])
    job, whole = environment.get("SLURM_JOB_ID", ""), _WHOLE.fullmatch
    if not (whole(words.get("deadline", "")) and whole(words.get("nodes", "")) and job.isdigit()):
        return {}
    found = {"JOB": job, "DEADLINE": words["deadline"], "NODES": words["nodes"]}
    names = words.get("on", "").split(":")
    if not all(_NAME.fullmatch(name) for name in names):
        return found
    found["ON"] = words["on"]
    here = _place(names, environment)
    if here >= len(names):
        return found
    if here >= 0:
        found["CHUNK"] = str(here)
    fractions = words.get("fractions", "").split(":")
    if len(fractions) == len(names) and _numbers(words["fractions"]):
        found["FRACTIONS"] = words["fractions"]
        if _numbers(words.get("rounds", "")):
            found["ROUNDS"] = words["rounds"]
        found |= _part(fractions, here) if here >= 0 else {}
    return found


def given(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a job of HTCondor was told in its environment, numbers and one slot's name."""
    found = {}
    for name in ("DEADLINE", "NODES", "CHUNK", "FRACTION", "FROM", "TO"):
        value = environment.get(f"RTSCHED_{name}", "")
        if _NUMBER.fullmatch(value):
            found[name] = value
    if _numbers(environment.get("RTSCHED_ROUNDS", "")):
        found["ROUNDS"] = environment["RTSCHED_ROUNDS"]
    if re.fullmatch(r"[\w.@#-]{1,255}", environment.get("RTSCHED_NODE", ""), re.ASCII):
        found["NODE"] = environment["RTSCHED_NODE"]
    return found


def _numbers(text: str) -> bool:
    """Return whether these are numbers, joined by colons."""
    return all(_NUMBER.fullmatch(share) for share in text.split(":"))


def _place(names: Sequence[str], environment: Mapping[str, str]) -> int:
    """Return this node's place in the list, by its name, else by its number in the job; or -1."""
    here = environment.get("SLURMD_NODENAME", "")
    if here in names:
        return len(names) - 1 - names[::-1].index(here)
    number = environment.get("SLURM_NODEID", "")
    return int(number) if _WHOLE.fullmatch(number) else -1


def _part(fractions: Sequence[str], here: int) -> dict[str, str]:
    """Return which part of the load a node computes."""
    before = 0.0
    for share in fractions[:here]:
        before += float(share)
    before = min(before, 1.0)
    to = before + float(fractions[here])
    to = 1.0 if here == len(fractions) - 1 or to > 1 else to
    return {"FRACTION": fractions[here], "FROM": f"{before:.12g}", "TO": f"{to:.12g}"}


def of_report(report: ChunkReport) -> dict[str, str]:
    """Return a present plan under the same names."""
    deadline = [] if report.deadline is None else [("DEADLINE", f"{report.deadline:.0f}")]
    found = {"JOB": report.job, **dict(deadline), "NODES": str(len(report.nodes))}
    found["ON"] = ":".join(report.nodes)
    if report.fractions:
        found["FRACTIONS"] = ":".join(f"{share:.9g}" for share in report.fractions)
    if report.rounds:
        found["ROUNDS"] = ":".join(f"{share:.9g}" for share in report.rounds)
    return found


def as_object(found: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables as JSON has them: numbers as numbers, lists as lists."""
    shown: dict[str, Any] = {}
    for name, value in found.items():
        if name == "ON":
            shown["on"] = value.split(":")
        elif name in {"FRACTIONS", "ROUNDS"}:
            shown[name.lower()] = [float(share) for share in value.split(":")]
        elif name in {"FRACTION", "FROM", "TO"}:
            shown[name.lower()] = float(value)
        else:
            shown[name.lower()] = int(value) if value.isdigit() else value
    return shown


_FILE_WORD = re.compile(r"[A-Za-z0-9._-]{1,255}", re.ASCII)
_SHARE = r"\d+(?:\.\d*)?(?:e-?\d+)?"
_STATE = re.compile(rf"((?:{_SHARE} {_SHARE}\n)+)\n(x*)", re.ASCII)
_LARGEST = 1 << 16


def parts_of(found: Mapping[str, str]) -> list[str]:
    """Return a node's parts of the load in the order of the rounds, each as `FROM TO`.

    Each begins where the one before ends, to the last digit.

    Parameters
    ----------
    found : mapping of str to str
        What `rtsched chunk` prints, without RTSCHED_.

    Raises
    ------
    AdapterError
        If that divides no load.
    """
    if not found:
        raise AdapterError("there is no plan for this job, so its load is not divided")
    if "FROM" not in found or "TO" not in found:
        raise AdapterError("the plan of this job gives this node no part of a load")
    start, end = float(found["FROM"]), float(found["TO"])
    shares = [float(share) for share in found.get("ROUNDS", "1").split(":")]
    whole, so_far = sum(shares), 0.0
    bounds = [found["FROM"]]
    for share in shares[:-1]:
        so_far += share
        bounds.append(f"{start + (end - start) * so_far / whole if whole else start:.12g}")
    bounds.append(found["TO"])
    return [f"{before} {after}" for before, after in pairwise(bounds)]


def state_of(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return directory and name of the file for the job that runs this, on this node.

    Raises
    ------
    AdapterError
        If this is no job.
    """
    if "_CONDOR_JOB_AD" in environment:
        scratch = environment.get("_CONDOR_SCRATCH_DIR", "")
        if not scratch:
            raise AdapterError("_CONDOR_SCRATCH_DIR is not set")
        return os.path.join(scratch, ".rtsched"), "parts"
    if not environment.get("SLURM_JOB_ID", ""):
        raise AdapterError("not inside a job of Slurm or HTCondor")
    words = [
        environment["SLURM_JOB_ID"],
        environment.get("SLURM_RESTART_COUNT", "") or "0",
        environment.get("SLURMD_NODENAME", "") or os.uname().nodename,
    ]
    if not all(_FILE_WORD.fullmatch(word) for word in words):
        raise AdapterError("SLURM_JOB_ID, SLURM_RESTART_COUNT or SLURMD_NODENAME is not valid")
    base = environment.get("RTSCHED_STATE_DIR", "") or "/tmp"  # noqa: S108 - its owner is checked
    return os.path.join(base, f"rtsched-{os.geteuid()}"), ".".join(words)


class Parts:
    """The file of a node's parts, locked while it is open.

    Parameters
    ----------
    directory, name : str
        Where it is; the directory is made if it is missing.

    Raises
    ------
    AdapterError
        If it cannot be used, or could have been written by somebody else.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, name)
        self._file = -1
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                about = os.fstat(place)
                if about.st_uid != os.geteuid() or about.st_mode & 0o022:
                    raise AdapterError(
                        f"{directory} belongs to another user, or others may write to it; "
                        "set RTSCHED_STATE_DIR to another directory"
                    )
                how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
                self._file = os.open(name, how, 0o600, dir_fd=place)
            finally:
                os.close(place)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            self.__exit__()
            raise self._unusable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def take(self, plan: Callable[[], Mapping[str, str]]) -> str:
        """Return the next part as `FROM TO`, and note that it is taken; empty: none is left.

        `plan` is called for the first part only. What is noted survives this process; a part that
        was taken is not given again.

        Raises
        ------
        AdapterError
            If the file is damaged or cannot be written, or the plan divides no load. Nothing is
            taken then.
        """
        try:
            text = os.pread(self._file, _LARGEST, 0).decode("ascii", "replace")
            if not text:
                text = "\n".join([*parts_of(plan()), "", ""])
                self._append(text, 0)
        except OSError as error:
            raise self._unusable(error) from error
        found = _STATE.fullmatch(text)
        if found is None:
            raise AdapterError(
                f"{self._path} is damaged; `rtsched chunk --restart` makes this node begin anew"
            )
        parts, taken = found[1].splitlines(), len(found[2])
        if taken >= len(parts):
            return ""
        try:
            self._append("x", len(text))
        except OSError as error:
            raise self._unusable(error) from error
        return parts[taken]

    def forget(self) -> None:
        """Take no part as taken, and ask for the plan again.

        Raises
        ------
        AdapterError
            If the file cannot be written.
        """
        try:
            os.ftruncate(self._file, 0)
        except OSError as error:
            raise self._unusable(error) from error

    def _append(self, text: str, at: int) -> None:
        """Write all of a text at the end of the file, or nothing."""
        written = os.pwrite(self._file, text.encode(), at)
        if written < len(text):
            os.ftruncate(self._file, at)
            raise OSError("no space left")

    def _unusable(self, error: OSError) -> AdapterError:
        return AdapterError(f"{self._path} cannot be used: {error.strerror or error}")

"""The commands of a guide, run in order, and what stands in for systemd there.

A fenced block that is to be run has a comment in front of it: `<!-- run: root -->`, or whoever is
to run it. `<!-- run: alice, fails -->` says that its last command must fail, and
`<!-- run: root, on daemon -->` on which of several hosts it runs. A block that goes into a file has
`<!-- file: /etc/rtsched/rest.toml -->`; with `, add` it is added to what is there.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed import Box, Sandbox
from testbed.access_point import AccessPoint
from testbed.images import SOURCES, Sources, compiled

BLOCK = re.compile(
    r"^<!-- (?:run: (?P<user>\w+)(?:, on (?P<host>\w+))?(?P<fails>, fails)?|"
    r"file: (?P<file>\S+?)(?P<add>, add)?) -->\n+"
    r"```\w+\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
KERNELS = "/var/cache/rtsched"
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """One block of commands.

    Attributes
    ----------
    section : str
        The heading that it stands under.
    user : str
        Who runs it.
    fails : bool
        Whether its last command must fail.
    text : str
        The commands, for sh, or the lines of a file.
    file : str
        The file that the lines go into; of commands empty.
    add : bool
        Whether they are added to those that the file has.
    host : str
        Which host it is for; empty: the only one.
    """

    section: str
    user: str
    fails: bool
    text: str
    file: str = ""
    add: bool = False
    host: str = ""


def blocks(path: Path) -> list[Block]:
    """Return the blocks of a guide that are to be run, in order."""
    text = path.read_text("utf-8")
    headings = [(match.start(), match[1]) for match in HEADING.finditer(text)]
    found = []
    for match in BLOCK.finditer(text):
        section = [title for at, title in headings if at < match.start()][-1:]
        user, fails = match["user"] or "root", bool(match["fails"])
        file, add = match["file"] or "", bool(match["add"])
        host = match["host"] or ""
        found.append(Block("".join(section), user, fails, match["text"], file, add, host))
    return found


def _write(box: Box | Sandbox, block: Block) -> None:
    """Write a block's file; what is added to a table that is there goes into that table."""
    path = box.path(block.file)
    text = block.text
    if block.add:
        there = path.read_text()
        table, _, lines = text.partition("\n")
        known = f"{table}\n" in there
        text = there.replace(f"{table}\n", f"{table}\n{lines}") if known else f"{there}\n{text}"
    path.write_text(text)


# No network: what pip would fetch is there already, and a wheel is built with it.
ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "false",
}


def unpack(box: Box | AccessPoint, *, kernels: bool) -> None:
    """Copy the sources to where the guides expect them, and a replacement of systemd's commands.

    With `kernels`, those that other daemons of this checkout have compiled are copied too: to
    compile them takes a minute, and one guide that does so shows that it works.
    """
    tops = ("pyproject.toml", "README.md", "LICENSE", "rtsched", "plugins", "contrib", "docs/man")
    Sources(*tops).write(box.path(SOURCES))
    stand_in(box)
    if kernels:
        kept = box.path(KERNELS)
        shutil.copytree(compiled(), kept)
        for path in (kept, *kept.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)


def stand_in(box: Box | Sandbox | AccessPoint) -> None:
    """Put a replacement of systemd's commands in front of them: no systemd runs in a sandbox."""
    for name in ("systemctl", "journalctl"):
        file = box.path(f"/usr/local/bin/{name}")
        file.write_text(SYSTEMCTL)
        file.chmod(0o755)


def follow(
    box: Box | Sandbox,
    found: Sequence[Block],
    env: Mapping[str, str] | None = ENV,
    timeout: float = 450,
) -> tuple[dict[str, str], str]:
    """Run blocks in order; return what was printed, by section, of all and of the last one."""
    reply, last = dict[str, str](), ""
    for block in found:
        if block.file:
            _write(box, block)
            continue
        words = ["sh", "-eu", "-c", block.text]
        done = box.run(words, user=block.user, env=env, timeout=timeout, check=False)
        last = done.stdout + done.stderr
        assert (done.returncode != 0) == block.fails, f"{block.text}\n{last}"
        reply[block.section] = reply.get(block.section, "") + last
    return reply, last


WAITING = "Dependencies"
"""The section of user guides that is run under `spare`, too."""

FORGET = """
userdel rtsched
rm -rf /var/lib/rtsched /etc/rtsched /usr/lib/rtsched /run/rtsched
# A busy test machine is slow; `make install` keeps a file that is there.
mkdir /etc/rtsched
echo timeout_ms = 5000 >/etc/rtsched/submit.conf
"""
"""As Debian's packages leave a host: no user of ours."""


def use(box: Box, path: Path, planner: str, expected: Mapping[str, str]) -> dict[str, str]:
    """Run the commands of a user guide, under `spare` those of chains, and check what they print.

    Return that, by section.
    """
    found = blocks(path)
    chosen = [block for block in found if block.section == WAITING or planner == "portfolio"]
    if planner == "spare":
        chosen.insert(0, next(block for block in found if " <<" in block.text))
    replies, _ = follow(box, chosen, env=None, timeout=60)
    for section, text in replies.items():
        assert expected[section] in text, text
    sections = {WAITING, "Ask for a deadline"} if planner == "spare" else set(expected)
    assert set(replies) == sections
    return replies


def install(
    box: Box, path: Path, submitted: str, offer: str, *, prompt: str = "", kernels: bool = True
) -> None:
    """Run the commands of an install guide on a bare system; the last is told a feasible deadline.

    They have to work as they stand, and none that is to be run is passed over.

    Parameters
    ----------
    box : Box
        The system.
    path : Path
        The guide.
    submitted, offer : str
        What users read of a job that is accepted, and as a pattern what of one that is rejected.
    prompt : str
        What stands before our words.
    kernels : bool
        Whether they are compiled already.
    """
    found = blocks(path)
    assert path.read_text("utf-8").count("```sh\n") == len(found), "a mistake in the guide"
    assert "Rollback" in {block.section for block in found}
    box.run(["sh", "-c", FORGET], check=False)
    unpack(box, kernels=kernels)
    before = configuration(box)
    reply, last = follow(box, [block for block in found if block.section != "Rollback"])
    assert "portfolio (shadow) would reject it" in reply["Shadow"]
    assert f"{prompt}rtsched: warning: " in reply["Warn"]
    assert all(submitted in reply[section] for section in ("Shadow", "Warn"))
    assert f"{prompt}rtsched: promised to end by" in reply["Enforce"]
    assert re.search(rf"rtsched: rejected: .* Feasible: .*{offer}", last)
    follow(box, [block for block in found if block.section == "Rollback"])
    assert configuration(box) == before


def configuration(box: Box) -> dict[str, bytes]:
    """Return what a batch system's daemons are told, by file."""
    files = sorted(box.path("/etc/condor/config.d").rglob("*"))
    files.append(box.path("/etc/slurm/slurm.conf"))
    return {str(path): path.read_bytes() for path in files if path.is_file()}


SYSTEMCTL = r'''#!/usr/bin/python3
"""Runs a unit as its file says, as far as the commands of the guide need it."""

import os
import pathlib
import pwd
import signal
import socket
import subprocess
import sys
import time

UNITS = [pathlib.Path("/etc/systemd/system"), pathlib.Path("/usr/lib/systemd/system")]
STATE = pathlib.Path("/run/stand-in")
# What is done by a filter of system calls; that may imply NoNewPrivileges, see systemd.exec(5).
FILTERED = [
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "PrivateDevices",
    "ProtectClock",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "SystemCallArchitectures",
    "SystemCallFilter",
]
PRIVATE = ["unshare", "--mount", "sh", "-ec", "mount -t tmpfs none /tmp; exec \"$@\"", "sh"]


def settings(name):
    found = {}
    unit = next(top / f"{name}.service" for top in UNITS if (top / f"{name}.service").exists())
    drop_ins = [file for top in UNITS for file in top.glob(f"{name}.service.d/*.conf")]
    for file in (unit, *sorted(drop_ins, key=lambda file: file.name)):
        for line in file.read_text().splitlines():
            key, given, value = line.partition("=")
            if given and not line.startswith("#"):
                found.setdefault(key, []).append(value)
    return found


def pid(name):
    try:
        number = int((STATE / f"{name}.pid").read_text())
        os.kill(number, 0)
        return number
    except (OSError, ValueError):
        return 0


def directories(unit, owner):
    for key, top in (("Runtime", "/run"), ("State", "/var/lib"), ("Cache", "/var/cache")):
        for word in unit.get(f"{key}Directory", []):
            path = pathlib.Path(top, word)
            path.mkdir(exist_ok=True)
            path.chmod(int(unit.get(f"{key}DirectoryMode", ["755"])[0], 8))
            os.chown(path, owner.pw_uid, owner.pw_gid)


def start(name):
    if pid(name):
        return
    unit = settings(name)
    owner = pwd.getpwnam(unit["User"][0])
    directories(unit, owner)
    variables = " ".join(unit.get("Environment", [])).split()
    words = dict(pair.split("=", 1) for pair in variables)
    STATE.mkdir(exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = str(STATE / f"{name}.notify")
    pathlib.Path(address).unlink(missing_ok=True)
    listener.bind(address)
    os.chmod(address, 0o666)
    for before in unit.get("ExecStartPre", []):
        subprocess.run(before.split(), check=True)
    private = PRIVATE if unit["PrivateTmp"][-1] == "yes" else []
    user = ["setpriv", "--reuid", owner.pw_name, "--regid", unit["Group"][0], "--init-groups"]
    bounds = [word.lower() for word in unit["CapabilityBoundingSet"][0].split()]
    kept = ",".join(["-all", *(f"+{word.removeprefix('cap_')}" for word in bounds)])
    user += ["--bounding-set", kept, "--inh-caps", "-all"]
    if not {"NoNewPrivileges", *FILTERED}.isdisjoint(unit):
        user += ["--no-new-privs"]
    with open(STATE / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            [*private, *user, *unit["ExecStart"][0].split()],
            env={"PATH": "/usr/sbin:/usr/bin", "LANG": "C", "NOTIFY_SOCKET": address, **words},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            umask=int(unit["UMask"][0], 8),
            start_new_session=True,
        )
    (STATE / f"{name}.pid").write_text(str(process.pid))
    if unit.get("Type") != ["notify"]:
        return
    listener.settimeout(0.2)
    deadline = time.monotonic() + float(unit.get("TimeoutStartSec", ["90"])[0])
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = (STATE / f"{name}.log").read_text(errors="replace").splitlines()[-9:]
            said = f"Job for {name}.service failed; see journalctl -u {name}"
            sys.exit("\n".join([said, *lines]))
        try:
            if b"READY=1" in listener.recv(4096):
                return
        except TimeoutError:
            pass
    sys.exit(f"{name}.service: start timed out")


def stop(name):
    number = pid(name)
    if number:
        os.kill(number, signal.SIGTERM)
    while pid(name):
        time.sleep(0.05)


def reloads(name):
    text = (STATE / f"{name}.log").read_text(errors="replace")
    return text.count("settings_reloaded") + text.count("reload_failed")


def reload(name):
    """Reload, and wait as an admin does who reads the log."""
    before = reloads(name)
    for word in settings(name)["ExecReload"]:
        subprocess.run(word.replace("$MAINPID", str(pid(name))).split(), check=True)
    deadline = time.monotonic() + 60
    while reloads(name) == before and time.monotonic() < deadline:
        time.sleep(0.05)


def show(name):
    known = any((top / f"{name}.service").exists() for top in UNITS)
    print(f"Id={name}.service")
    print(f"LoadState={'loaded' if known else 'not-found'}")
    print(f"ActiveState={'active' if pid(name) else 'inactive'}")


def main(arguments):
    options = {word for word in arguments if word.startswith("-")}
    verb, *names = [word for word in arguments if not word.startswith("-")]
    for name in names:
        enabled = STATE / f"{name}.enabled"
        if verb == "show":
            show(name)
        elif verb == "is-enabled":
            print("enabled" if enabled.exists() else "disabled")
            sys.exit(0 if enabled.exists() else 1)
        elif verb == "enable":
            STATE.mkdir(exist_ok=True)
            enabled.touch()
        elif verb == "disable":
            enabled.unlink(missing_ok=True)
        if verb in {"stop", "restart"} or (verb == "disable" and "--now" in options):
            stop(name)
        if verb in {"start", "restart"} or (verb == "enable" and "--now" in options):
            start(name)
        if verb == "reload":
            reload(name)


if sys.argv[0].endswith("journalctl"):
    sys.stdout.write((STATE / f"{sys.argv[sys.argv.index('-u') + 1]}.log").read_text())
else:
    main(sys.argv[1:])
'''

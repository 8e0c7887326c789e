"""Lines in slurm.conf: read as Slurm reads them, put in, and taken out without a trace."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.slurm.slurm_conf import (
    OFF,
    installed,
    settings,
    uninstalled,
    with_all,
    with_last,
)
from rtsched.errors import ConfigError, InputError

HERE = Path("/etc/slurm/slurm.conf")
WANTED = {"JobSubmitPlugins": "lua,rtsched", "PluginDir": "/opt/a:/usr/lib/slurm"}
CONF = r"""# a site
ClusterName=x
jobsubmitplugins=lua   # ours
SlurmctldPort=6817 SlurmdPort=6818
SchedulerParameters=bf_window=100,\
  bf_continue
NodeName=n[1-4] CPUs=4 TaskProlog=odd
#JobSubmitPlugins=old
"""


def test_reading():
    """Names in any case, comments, continued lines and several values in a line are understood."""
    found = settings(HERE, CONF)
    assert found["jobsubmitplugins"][0][:1] == ("lua",)
    assert found["jobsubmitplugins"][0].line == 3
    assert found["slurmdport"][0].value == "6818"
    assert not found["slurmdport"][0].alone
    assert found["schedulerparameters"][0].value == "bf_window=100,"
    assert "taskprolog" not in found
    assert "nodename" not in found


def test_putting_in():
    """Our values stand in a block at the end; what they replace is a comment where it was."""
    text = installed(HERE, CONF, WANTED)
    assert text.splitlines()[2] == OFF + "jobsubmitplugins=lua   # ours"
    assert text.splitlines()[-3:-1] == [f"{name}={value}" for name, value in WANTED.items()]
    found = settings(HERE, text)
    assert [each.value for each in found["jobsubmitplugins"]] == ["lua,rtsched"]
    assert installed(HERE, text, WANTED) == text
    assert uninstalled(text) == CONF


def test_only_what_is_missing():
    """A value that is so already stays where it is; nothing missing, nothing changes."""
    text = CONF + "PluginDir=/opt/a:/usr/lib/slurm\n"
    changed = installed(HERE, text, WANTED)
    assert changed.count("PluginDir") == 1
    assert installed(HERE, CONF, {"ClusterName": "x"}) == CONF
    assert installed(HERE, CONF, {}) == CONF


def test_other_values_later():
    """Another value than an earlier installation's takes its place, and the old line comes back."""
    text = installed(HERE, installed(HERE, CONF, WANTED), {"JobSubmitPlugins": "rtsched"})
    assert "JobSubmitPlugins=rtsched\n" in text
    assert "lua,rtsched" not in text
    assert uninstalled(text) == CONF


def test_what_is_wanted_no_more():
    """What our block sets and is not wanted any more goes; what the site set stays."""
    text = installed(HERE, CONF, WANTED)
    left = {name: WANTED[name] for name in ["JobSubmitPlugins"]}
    assert installed(HERE, text, left) == installed(HERE, CONF, left)
    assert installed(HERE, text, {}) == CONF


def test_a_continued_line():
    """A line that goes on is put aside as a whole."""
    text = installed(HERE, CONF, {"SchedulerParameters": "x"})
    assert text.splitlines()[5] == OFF + "  bf_continue"
    assert uninstalled(text) == CONF


def test_where_we_must_not(tmp_path):
    """A value in an included file, or beside others, is left to the admin."""
    (tmp_path / "more.conf").write_text("JobSubmitPlugins=lua\n")
    path = tmp_path / "slurm.conf"
    path.write_text("include more.conf\nInclude none.conf\nInclude slurm.conf\n")
    assert settings(path)["jobsubmitplugins"][0].value == "lua"
    with pytest.raises(ConfigError, match=r"more.conf:1: .* set JobSubmitPlugins=lua,rtsched"):
        installed(path, path.read_text(), WANTED)
    with pytest.raises(ConfigError, match="shares its line"):
        installed(HERE, CONF, {"SlurmdPort": "1"})


def test_no_file(tmp_path):
    """A file that cannot be read is told with the option that names another."""
    with pytest.raises(InputError, match="--slurm-conf"):
        settings(tmp_path / "none")


def test_lists():
    """Ours comes last in a list of plug-ins, once; flags are taken in any case."""
    assert with_last("", "rtsched") == "rtsched"
    assert with_last("lua,rtsched", "rtsched") == "lua,rtsched"
    assert with_last("rtsched,lua", "rtsched") == "lua,rtsched"
    assert with_all("JOB_comment", ("job_comment", "job_extra")) == "JOB_comment,job_extra"


LINES = st.lists(
    st.sampled_from([
        *("", "#", "A=1", "JobSubmitPlugins=lua", "JOBSUBMITPLUGINS=\\", "lua # x", "PluginDir=/b"),
        *("NodeName=a CPUs=1", "\\", "é\udc80=\x00", "# JobSubmitPlugins=x", "A=1\r", "Plugin Dir"),
    ]),
    max_size=8,
)  # fmt: skip


@given(LINES, st.booleans())
def test_in_and_out(lines, ends):
    """Whatever the file is, what goes in comes out again byte by byte, and doubles nothing."""
    text = "\n".join(lines) + ("\n" if ends else "")
    try:
        once = installed(HERE, text, WANTED)
    except ConfigError:  # a value shares its line with another
        return
    assert uninstalled(once) == text
    assert installed(HERE, once, WANTED) == once
    for name, value in WANTED.items():
        assert [each.value for each in settings(HERE, once)[name.lower()]] == [value]

"""`rtsched plugins`."""

import json

WORKING = ("width", "raises", "unmade")
GOLDEN = """\
width  site-plugins 1.2
  Turn away jobs wider than the site allows.
  hooks: admit
  nodes (required)  (int > 0)
      Widest job admitted.
  unit = "node"  (core | node)
      What is counted.
  queues = []  (list of text)
      Partitions it holds for.

raises  site-plugins 1.2
  Fail at every question.
  hooks: admit

unmade  site-plugins 1.2
  Fail when it is made.
"""


def test_listing(run, listed):
    """The text names distribution, version, hooks, settings with type and default."""
    listed(*WORKING)
    result = run("plugins")
    assert result.exit_code == 0
    assert result.stdout == GOLDEN


def test_broken_ones_are_listed_with_the_cause(run, listed):
    """A plug-in that cannot be imported, or has odd settings, does not hide the others."""
    listed("lost", "odd", *WORKING)
    result = run("plugins")
    assert result.exit_code == 1
    assert "cannot be used: ModuleNotFoundError: No module 'x'" in result.stdout
    assert "cannot be used: its Config cannot be read" in result.stdout
    assert result.stdout.endswith(GOLDEN)


def test_json(run, listed):
    """`--json` gives the same as data."""
    listed("lost", "odd", *WORKING)
    result = run("plugins", "--json")
    shown = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert list(shown) == ["lost", "odd", "width", "raises", "unmade"]
    assert shown["lost"]["error"]
    assert shown["width"]["error"] is None
    assert shown["width"]["hooks"] == ["admit"]
    assert shown["width"]["settings"][0] == {
        "name": "nodes",
        "kind": "int > 0",
        "default": None,
        "required": True,
        "description": "Widest job admitted.",
    }


def test_none_installed(run, listed):
    """Without plug-ins the command says what to do."""
    listed()
    assert "pip install rtsched" in run("plugins").stdout


def test_built_in_ones_are_described(run):
    """Every setting of the plug-ins that rtsched ships has a description."""
    shown = json.loads(run("plugins", "--json").stdout)
    assert "mcdf" in {entry["name"] for entry in shown}
    for entry in shown:
        assert entry["summary"]
        assert entry["hooks"]
        assert all(setting["description"] for setting in entry["settings"])

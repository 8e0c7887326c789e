"""Modules are loaded without the garbage collector, and it looks through them no more."""

import gc
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from rtsched.loading import loading, without_collection


def test_what_is_loaded_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is loaded nothing is kept, and garbage is collected again in any case."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loaded_once.py").write_text("import gc\nassert not gc.isenabled()\n")
    (tmp_path / "not_loaded.py").write_text("1 / 0\n")
    try:
        for module, kept in ("not_loaded", 0), ("loaded_once", 1), ("loaded_once", 0):
            held = gc.get_freeze_count()
            with suppress(ZeroDivisionError), loading():
                import_module(module)
            assert gc.isenabled()
            assert (gc.get_freeze_count() > held) == kept
    finally:
        gc.unfreeze()


def test_a_collector_at_rest_is_left_so() -> None:
    """Who had it rest before has it rest on."""
    gc.disable()
    try:
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    with without_collection():
        assert not gc.isenabled()
    assert gc.isenabled()

"""What the tests share. `tests/README.md` says where a test goes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fuzz import cli
from fuzz.platform.json import from_json
from fuzz.tlc.runs import MODULES

ROOT = Path(__file__).parent.parent
RECORDINGS = ROOT / "tests" / "recordings"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest file first: begun last, it would leave the other worker idle."""
    items.sort(key=lambda item: "spark" not in item.keywords)


def altered_twin(folder: Path, module: str, *changes: tuple[str, str]) -> Path:
    """Copies the TLA+ modules into a new folder, with texts of a twin, each of which is there once, replaced."""
    shutil.copytree(MODULES, folder)
    for old, new in changes:
        parts = [path for path in sorted(folder.glob(f"{module}*.tla")) if not path.stem.endswith("Properties")]
        [path] = [path for path in parts if old in path.read_text()]
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))
    return folder


class Ran(NamedTuple):
    """What a command gave: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it must be."""
        assert self.out.count("\n") == 1, self.out
        return from_json(self.out)


@pytest.fixture
def brokerproof(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command line in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        code = cli.run([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run

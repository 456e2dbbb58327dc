"""What may be imported without paying for what it doesn't use, checked in fresh interpreters."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import headway

SOURCE = Path(headway.__file__).parent
HEAVY = {"gguf", "openai", "ray", "safetensors", "starlette", "torch", "transformers", "uvicorn"}
LIGHT = (
    "headway",
    "headway.bench",
    "headway.cli.main",
    "headway.config",
    "headway.core",
    "headway.engine",
    "headway.executors.replay",
    "headway.executors.simulated",
    "headway.metrics",
    "headway.planning",
    "headway.profiles",
    "headway.report",
    "headway.sim",
    "headway.workload",
)


def loaded_by(code: str) -> set[str]:
    """Return the top-level names of the modules that the code loads."""
    probe = "import sys; before = set(sys.modules)\n" + code
    probe += "\nprint(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


def modules_of(package: str) -> list[str]:
    """Return all modules of a package, itself included."""
    spec = find_spec(package)
    assert spec is not None
    if spec.submodule_search_locations is None:
        return [package]
    folder = Path(spec.submodule_search_locations[0])
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.py"))
    return [
        ".".join([package, *file.with_suffix("").parts]).removesuffix(".__init__") for file in files
    ]


@pytest.mark.parametrize("package", LIGHT)
def test_light_modules_load_nothing_heavy(package: str) -> None:
    names = modules_of(package) if package != "headway" else [package]
    loaded = loaded_by("\n".join(f"import {name}" for name in names))
    assert "headway" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("package", ["headway", "headway.core", "headway.errors"])
def test_the_heart_loads_only_the_standard_library(package: str) -> None:
    names = modules_of(package) if package != "headway" else [package]
    loaded = loaded_by("\n".join(f"import {name}" for name in names))
    assert loaded - set(sys.stdlib_module_names) == {"headway"}


def test_the_help_loads_only_what_it_prints() -> None:
    loaded = loaded_by("from headway.cli.main import main; main(['--help'])")
    assert not loaded & {"argparse", "msgspec", "numpy", "tomllib"}


def test_core_imports_only_the_standard_library_even_inside_functions() -> None:
    allowed = {*sys.stdlib_module_names}
    for path in [*SOURCE.joinpath("core").rglob("*.py"), SOURCE / "errors.py"]:
        for name in imported_names(path):
            inside = name == "headway.errors" or name.startswith("headway.core")
            assert inside or name.partition(".")[0] in allowed, f"{path.name} imports {name}"


def test_core_reads_no_clock_and_draws_no_random_number() -> None:
    for path in SOURCE.joinpath("core").rglob("*.py"):
        names = {name.partition(".")[0] for name in imported_names(path)}
        assert not names & {"time", "datetime", "random", "secrets", "os", "io", "socket"}, (
            path.name
        )


def imported_names(path: Path) -> Iterator[str]:
    """Yield every module named by an import statement, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield node.module or ""

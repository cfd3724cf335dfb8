"""Laws of the repository itself: what is packaged, documented, pinned and said."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
#: The folders that are the package; everything else beside the root's own modules stays out of the wheel.
TOPS = ("agents", "environments", "evaluators", "kernels", "memory")


def modules() -> list[Path]:
    """Return the package's modules, relative to the root."""
    found = [path for top in TOPS for path in (ROOT / top).rglob("*.py") if "__pycache__" not in path.parts]
    return sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.py"), *found])


def tracked() -> list[str]:
    """Return the files that git knows or would take."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_listed_packages_are_the_folders_on_disk() -> None:
    on_disk = {".".join(("orienteer", *path.parent.parts)) for path in modules()}
    assert sorted(SETUPTOOLS["packages"]) == sorted(on_disk)
    assert not [folder for folder in on_disk if not (ROOT / Path(*folder.split(".")[1:]) / "__init__.py").exists()]


def test_tests_are_no_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


# --- docstrings and annotations --------------------------------------------------------------------------------------


def missing(path: Path) -> list[str]:
    """Return what a module's public names lack."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = [] if ast.get_docstring(tree) else [f"{path}: no docstring"]

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If | ast.Try | ast.With):
                visit(child, prefix)
            elif isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                if not ast.get_docstring(child):
                    found.append(f"{path}:{child.lineno} {prefix}{child.name}: no docstring")
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                dunder = child.name.startswith("__") and child.name.endswith("__")
                if child.name.startswith("_") and not dunder:
                    continue
                where = f"{path}:{child.lineno} {prefix}{child.name}"
                if not dunder and not ast.get_docstring(child):
                    found.append(f"{where}: no docstring")
                if not is_kernel(child):
                    found.extend(f"{where}: {name} has no annotation" for name in unannotated(child, bool(prefix)))

    visit(tree, "")
    return found


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a function is compiled by Triton, whose arguments have no Python types."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def unannotated(function: ast.FunctionDef | ast.AsyncFunctionDef, method: bool) -> list[str]:
    """Return the arguments without annotation, and ``return``."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    static = any("staticmethod" in ast.unparse(decorator) for decorator in function.decorator_list)
    if method and not static:
        plain = plain[1:]
    every = [*plain, *arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))]
    names = [argument.arg for argument in every if argument.annotation is None]
    return names if function.returns is not None else [*names, "return"]


def test_public_names_have_docstrings_and_annotations() -> None:
    # Tasks are in the form that users write, which has neither.
    checked = [path for path in modules() if path.parts[:2] != ("kernels", "tasks")]
    assert not [problem for path in checked for problem in missing(path)]


def test_the_walk_sees_what_is_missing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("class A:\n    def f(self, a, *b):\n        pass\ndef _hidden(x): ...\n")
    assert [problem.split(": ", 1)[1] for problem in missing(bad)] == [
        "no docstring",
        "no docstring",
        "no docstring",
        "a has no annotation",
        "b has no annotation",
        "return has no annotation",
    ]


# --- words -----------------------------------------------------------------------------------------------------------


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    private = {str(ROOT), sys.prefix}
    if len(Path.home().parts) > 2:
        private.add(str(Path.home()))
    private = {place for place in private if len(Path(place).parts) > 2}
    home = re.compile(r"(?:/home|/Users)/[A-Za-z][\w.-]*/")
    found = []
    for name in tracked():
        data = (ROOT / name).read_bytes()
        if b"\0" in data[:4096] or name == "tests/test_repository.py":
            continue
        text = data.decode("utf-8", "replace")
        found += [f"{name}: {place}" for place in private if re.search(re.escape(place) + r"(?![\w-])", text)]
        found += [f"{name}: {match.group()}" for match in home.finditer(text)]
    assert not found


def test_readme_opens_with_the_two_commands() -> None:
    head = "\n".join((ROOT / "README.md").read_text().splitlines()[:20])
    assert "make run" in head and "make test" in head


# --- pins ------------------------------------------------------------------------------------------------------------


def normal(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_stated_dependency_is_pinned() -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9_.-]+)==([0-9][\w.]*)", line)
            assert match, f"not an exact public version: {line}"
            assert normal(match[1]) not in pins, f"pinned twice: {line}"
            pins[normal(match[1])] = match[2]
    project = PROJECT["project"]
    stated = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {normal(re.match(r"[A-Za-z0-9_.-]+", dependency).group()) for dependency in stated}  # type: ignore[union-attr]
    assert not names - set(pins)


def test_installed_versions_are_the_pinned_ones() -> None:
    wrong = []
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" not in line:
            continue
        name, wanted = line.split("==")
        try:
            found = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
        if found != wanted and name != "setuptools":
            wrong.append(f"{name} {found}, tested with {wanted}")
    if wrong:
        pytest.skip("installed without constraints.txt: " + "; ".join(wrong))


# --- the wheel -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build the wheel from a copy of the files that git knows and return the names in it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in tracked():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "-w", str(out), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = out.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return archive.namelist()


def test_wheel_holds_the_package_and_nothing_else(wheel: list[str]) -> None:
    strange = [name for name in wheel if not re.match(r"orienteer(-[^/]+\.dist-info)?/", name)]
    assert not strange
    assert not [name for name in wheel if name.startswith(("orienteer/tests", "orienteer/docs"))]


def test_wheel_holds_every_module_and_data_file(wheel: list[str]) -> None:
    leaves = ("py.typed", "cli.py", "errors.py", "syntax.py")
    inside = [name for name in tracked() if name.split("/")[0] in TOPS or name in leaves]
    wanted = {f"orienteer/{name}" for name in inside if not name.endswith("README.md")}
    assert sorted(wanted - set(wheel)) == []


def test_entry_points_load() -> None:
    for group in ("console_scripts", "orienteer.methods"):
        points = [p for p in importlib.metadata.entry_points(group=group) if p.value.startswith("orienteer.")]
        assert points, f"no entry points in {group}: install the project"
        for point in points:
            assert callable(point.load())

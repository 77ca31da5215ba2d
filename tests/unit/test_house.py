"""The house: its layout, its links, who imports whom, its public names, its helps."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hotrow
from hotrow.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "platform" / "hotrow"
LINKS = ("cli", "ops", "protos", "serving", "trainer")

# The higher may import the lower; two of the same height only themselves.
HEIGHTS = {"cli": 5, "trainer": 4, "serving": 4, "ops": 3, "core": 2, "protos": 1, "_native": 0}

# Inside serving, the lowest first; above them all the server and the client.
SERVING_ROOMS = [
    "wire",
    "monitoring",
    "config",
    "data_plane",
    "updates",
    "lifecycle",
    "admin",
]

PUBLIC_NAMES = [
    "SGD",
    "Adagrad",
    "Adam",
    "Admission",
    "Cache",
    "Constant",
    "DistributedEmbedding",
    "EarlyStopping",
    "Expiry",
    "FeatureConfig",
    "Ftrl",
    "HotrowError",
    "Momentum",
    "Normal",
    "RowwiseAdagrad",
    "Schedule",
    "Staleness",
    "TableConfig",
    "Uniform",
    "__version__",
    "bind",
    "export_changes",
    "export_model",
]

# What the help of each command must name: its users rely on it.
HELPS = {
    ("train",): ["CONFIG.yaml", "--set", "--run-dir", "--resume", "--workers", "--online"],
    ("export",): [
        "RUN_DIR",
        "--to",
        "--name",
        "--version",
        "--store",
        "--standalone",
        "--incremental",
    ],
    ("serve",): ["--model_name", "--model_base_path", "--port", "--rest_api_port", "--store"],
    ("predict",): ["--server HOST:PORT", "--model", "--data FILE", "--limit"],
    ("evaluate",): ["--server HOST:PORT", "--model", "--data FILE"],
    ("data",): ["generate", "convert", "inspect"],
    ("delete",): ["STORE_URL", "--model", "--generation", "--store_user"],
    ("data", "generate"): ["OUT", "--rows", "--valid-rows", "--keys", "--skew", "--noise"],
    ("data", "convert"): ["IN", "OUT.parquet", "--format", "--on-malformed"],
    ("data", "inspect"): ["FILE", "--format", "--top"],
    ("versions",): ["DIR|STORE_URL", "--json", "--store"],
    ("rollback",): [
        "BASE_DIR",
        "--name",
        "--to VERSION|CUT",
        "--wait_seconds",
        "--json",
        "--token_file",
    ],
    ("status",): [
        "[RUN_DIR|HOST:PORT]",
        "--watch",
        "--json",
        "--store",
        "--model",
        "--server",
        "--token_file",
    ],
    ("pause",): ["RUN_DIR|HOST:PORT", "--reason", "--token_file"],
    ("resume",): ["RUN_DIR|HOST:PORT", "--force", "--token_file"],
    ("inspect",): [
        "DIR|STORE_URL",
        "--table",
        "--histograms",
        "--json",
    ],
}


def git(*arguments: str) -> str:
    """Returns what git prints about this checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_the_source_root_is_no_package() -> None:
    """A package named `platform` would hide Python's own module and break TensorFlow."""
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert not git("ls-files", "platform/__init__.py")


def test_pythons_own_platform_and_tensorflow_import_from_the_root() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.system()); import tensorflow"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "Linux\n"


def test_the_rooms_are_links_in_git_and_in_the_checkout() -> None:
    links = {}
    for line in git("ls-files", "-s", "platform/hotrow").splitlines():
        facts, path = line.split("\t")
        mode, blob, _ = facts.split(" ")
        if mode == "120000":
            links[Path(path).name] = git("cat-file", "-p", blob)
    assert links == {name: f"../../{name}" for name in LINKS}
    for name, target in links.items():
        assert (CORE / name).readlink() == Path(target)
        assert (CORE / name).resolve() == ROOT / name


def test_importing_the_core_and_the_readers_does_not_import_tensorflow() -> None:
    modules = ["hotrow", "hotrow.cli.main", "hotrow.trainer.data", "hotrow.trainer.data.synthetic"]
    modules += [f"hotrow.{p.stem}" for p in CORE.glob("*.py") if p.stem != "__init__"]
    for package in ("config", "spec"):
        modules += [f"hotrow.{package}.{p.stem}" for p in (CORE / package).glob("*.py")]
    program = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "print({'tensorflow', 'keras'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "set()\n"


def test_the_supervisor_of_a_server_imports_no_numpy() -> None:
    program = "import sys, hotrow.cli.serve\nprint({'numpy', 'pydantic'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "set()\n"


def test_the_public_names_are_those_of_the_list() -> None:
    assert sorted(hotrow.__all__) == sorted(PUBLIC_NAMES)
    assert dir(hotrow) == sorted(PUBLIC_NAMES)
    for name in PUBLIC_NAMES:
        assert getattr(hotrow, name) is not None
    with pytest.raises(AttributeError, match="module 'hotrow' has no attribute 'Tabel'"):
        _ = hotrow.Tabel


def sources() -> Iterator[tuple[str, Path]]:
    """Yields (module name, file) of every Python module of the package, generated ones too."""
    rooms = [(f"hotrow.{name}", ROOT / name) for name in LINKS]
    for package, folder in [("hotrow", CORE), *rooms]:
        for path in sorted(folder.rglob("*.py")):  # rglob does not follow the links
            parts = path.relative_to(folder).with_suffix("").parts
            if folder == CORE and parts[0] in LINKS:
                continue
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


def room(module: str) -> str:
    """Returns the room of a module of the package; the core for what is in no other."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in HEIGHTS else "core"


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line, module) of each import in a file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = str(node.module)
            if module == "hotrow":
                yield from ((node.lineno, f"hotrow.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


SOURCES = list(sources())


def test_every_room_has_been_read() -> None:
    rooms = {room(module) for module, _ in SOURCES}
    assert rooms == {"core", "cli", "ops", "protos", "serving", "trainer"}


def test_rooms_import_only_what_is_lower() -> None:
    wrong = []
    for module, path in SOURCES:
        own = room(module)
        for line, name in imported(path):
            if name.split(".")[0] != "hotrow" or name == "hotrow":
                continue
            other = room(name)
            # The door of the package opens `ops` when a name of it is first asked for; see below.
            if module == "hotrow" and other == "ops":
                continue
            if other != own and HEIGHTS[other] >= HEIGHTS[own]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {own} imports {name}")
    assert wrong == []


def test_the_door_imports_the_layer_only_when_it_is_asked_for() -> None:
    top = ast.parse((CORE / "__init__.py").read_text()).body
    at_import = {
        str(node.module) for node in top if isinstance(node, ast.ImportFrom) and node.module
    }
    assert at_import <= {"__future__", "typing", "hotrow", "hotrow.errors", "hotrow.spec"} | {
        "hotrow.version"
    }


def test_rooms_are_imported_by_their_one_name() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: import hotrow.{name}"
        for _, path in SOURCES
        for line, name in imported(path)
        if name.split(".")[0] in LINKS
    ]
    assert wrong == []


def test_core_and_readers_never_import_tensorflow() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in SOURCES
        if room(module) == "core" or module.startswith("hotrow.trainer.data")
        for line, name in imported(path)
        if name.split(".")[0] in {"tensorflow", "keras", "tensorflow_serving"}
    ]
    assert wrong == []


def test_the_list_of_helps_has_every_command() -> None:
    assert {names[0] for names in HELPS} == set(COMMANDS)


@pytest.mark.parametrize("names", HELPS, ids=" ".join)
def test_a_help_names_the_main_options(
    names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*names, "--help"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith(f"Usage: platform {' '.join(names)} ")
    assert "\\b" not in printed.out
    assert "\b" not in printed.out
    assert max(map(len, printed.out.splitlines())) <= 100
    for option in HELPS[names]:
        assert option in printed.out


def test_helps_do_not_wait_for_tensorflow() -> None:
    program = (
        "import sys; from hotrow.cli.main import main\n"
        f"codes = [main([*names, '--help']) for names in {list(HELPS)!r}]\n"
        "print(codes, {'tensorflow', 'keras'} & set(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.stderr == f"{[0] * len(HELPS)} set()\n"


def test_no_file_names_what_its_readers_do_not_have() -> None:
    """What is installed comes from the user's own index; paths are relative or given; what is
    cited is in the repository or published."""
    hosts = ["pypi", "pythonhosted", "anaconda", "npmjs", "crates", "proxy.golang"]
    host = "|".join(rf"{re.escape(name)}\.(org|com|io)" for name in hosts)
    machine = r"(?<![\w.})])/(work|root)\b"
    cited = r"design (D|section )\d|\(D\d+[a-z]?\)|\breference/\w+\.md|\b[Ii]ssue \d"
    pattern = re.compile(f"{host}|{machine}|{cited}")
    wrong = []
    for name in git("ls-files", "-z").split("\0")[:-1]:
        path = ROOT / name
        if path.is_symlink() or not path.is_file():
            continue
        content: Any = path.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if found := pattern.search(line):
                wrong.append(f"{name}:{number}: {found.group()}")
    assert wrong == []


def test_no_room_of_serving_imports_a_higher_one() -> None:
    def height(module: str) -> int:
        name = (*module.split("."), "", "")[2]
        return SERVING_ROOMS.index(name) if name in SERVING_ROOMS else len(SERVING_ROOMS)

    serving = [(module, path) for module, path in SOURCES if room(module) == "serving"]
    rooms = {module.split(".")[2] for module, _ in serving if module.count(".") > 2}
    assert rooms == {*SERVING_ROOMS, "native"}
    upward = [
        f"{path.relative_to(ROOT)}:{line} imports {other}"
        for module, path in serving
        for line, other in imported(path)
        if room(other) == "serving" and height(other) > height(module)
    ]
    assert upward == []


def test_no_room_of_the_native_code_includes_a_higher_one() -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "rooms", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("native", "house"), [("ops/native", "core"), ("serving/native", ".")])
def test_native_tests_stand_in_the_rooms_of_what_they_test(native: str, house: str) -> None:
    home, tests = ROOT / native / house, ROOT / native / "tests"
    rooms = {path.parent.relative_to(home) for path in home.glob("**/*.h")}
    tested = {path.parent.relative_to(tests) for path in tests.glob("**/*_test.cc")}
    assert tested <= rooms, tested - rooms


@pytest.mark.parametrize("listed", sorted(git("ls-files", "*/CMakeLists.txt").split()))
def test_every_source_that_a_build_names_is_there(listed: str) -> None:
    """Those of fuzz targets, too, which no other test builds."""
    folder = (ROOT / listed).parent
    text = (ROOT / listed).read_text()
    named = set(re.findall(r"(?<=[\s(])(?:\.\./)*\w+(?:/\w+)*\.(?:cc|cu)(?=[\s)])", text))
    assert named
    assert {source for source in named if not (folder / source).is_file()} == set()

"""The files of docker/ agree with each other, with the built libraries and with the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import hotrow

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
BUILT = ["hotrow-server", "libhotrow_core.so", "libhotrow_tf.so", "_native*.so"]
# In every Debian image.
ESSENTIAL = {"libc6", "libgcc-s1", "libstdc++6"}


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded


def stages(path: Path) -> list[str]:
    """Returns the text of each stage, lines put together again."""
    text = path.read_text().replace("\\\n", " ")
    return re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]


def test_there_are_two_images() -> None:
    assert [path.name for path in DOCKERFILES] == ["serving.Dockerfile", "trainer.Dockerfile"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_the_last_stage_installs_the_libraries_that_ours_load(path: Path) -> None:
    package = Path(hotrow.__file__).parent
    files = [file for pattern in BUILT for file in package.glob(pattern)]
    assert len(files) == len(BUILT)
    printed = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout
    # apt installs what these libraries load in turn.
    headers = subprocess.run(["readelf", "-d", *files], capture_output=True, text=True, check=True)
    named = set(re.findall(r"\(NEEDED\).*\[(.+)\]", headers.stdout))
    loaded = {
        os.path.realpath(found)
        for name, found in re.findall(r"(\S+) => (/\S+)", printed)
        if name in named
    }
    system = sorted(file for file in loaded if not Path(file).is_relative_to(package.resolve()))
    # With the folder's name: another architecture's library has the same name elsewhere.
    owners = subprocess.run(
        ["dpkg", "-S", *(f"*/{Path(file).parent.name}/{Path(file).name}" for file in system)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    needed = {line.split(":")[0] for line in owners.splitlines()} - ESSENTIAL
    assert needed
    installed = re.search(r"apt-get install -y --no-install-recommends ([^&]*)", stages(path)[-1])
    assert installed is not None
    # apt takes a name that begins with ^ for a regular expression.
    patterns = [re.escape(n) if n[0] != "'" else n.strip("'") for n in installed[1].split()]
    assert not [name for name in needed if not any(re.fullmatch(p, name) for p in patterns)]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_the_image_does_not_run_as_root(path: Path) -> None:
    users = re.findall(r"^USER (\S+)$", stages(path)[-1], re.MULTILINE)
    assert users == ["10001:10001"]


def test_what_is_copied_from_the_tree_is_there_and_not_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert [name for name in allowed if not (ROOT / name).exists()] == []
    # The rooms of the package are links to folders beside it.
    assert {"platform", "cli", "ops", "protos", "serving", "trainer"} <= set(allowed)
    for path in DOCKERFILES:
        for arguments in re.findall(r"^COPY (?!--from)(.*)$", path.read_text(), re.MULTILINE):
            for name in arguments.split()[:-1]:
                assert (ROOT / name).exists(), f"{path.name}: COPY {name}"
                top = [a for a in allowed if name == "." or f"{name}/".startswith(f"{a}/")]
                assert top, f"{path.name}: COPY {name} is ignored"


def test_compose_names_files_ports_and_services_that_there_are() -> None:
    services = compose()["services"]
    assert set(services) == {"server", "prometheus", "grafana", "trainer", "redis"}
    for service in services.values():
        if "build" in service:
            context = DOCKER / service["build"]["context"]
            assert context.resolve() == ROOT
            assert (context / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DOCKER / source).exists()
            elif not source.startswith("$"):
                assert source in compose()["volumes"]
    exposed = re.search(r"^EXPOSE (.*)$", stages(DOCKERFILES[0])[-1], re.MULTILINE)
    assert exposed is not None
    ports = exposed[1].split()
    assert services["server"]["ports"] == [f"{port}:{port}" for port in ports]
    scraped = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["scrape_configs"]
    assert scraped[0]["static_configs"] == [{"targets": [f"server:{ports[1]}"]}]


def test_packages_are_printed_by_group() -> None:
    """What the images install, and `make setup`."""

    def printed(*groups: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, ROOT / ".ci" / "requirements", *groups]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    both = printed("install", "build").stdout.split()
    assert "tensorflow==2.21.*" in both
    assert "ninja" in both
    assert "ninja" not in printed("install").stdout.split()
    refused = printed("Install")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "requirements: Install; legal are install, build, kafka, gpu, dev\n"

"""What a client shows to a store."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.errors import InvalidArgumentError, NotFoundError
from hotrow.store.access import StoreAccess, read_access


def test_the_password_is_that_of_the_environment() -> None:
    assert read_access(environment={"HOTROW_STORE_PASSWORD": "sesame"}).password == "sesame"
    assert read_access(environment={}).password == ""


@pytest.mark.parametrize("content", ["sesame", "sesame\n", "sesame\r\n"])
def test_a_file_goes_before_the_environment(tmp_path: Path, content: str) -> None:
    (tmp_path / "password").write_bytes(content.encode())
    file = str(tmp_path / "password")
    access = read_access(password_file=file, environment={"HOTROW_STORE_PASSWORD": "other"})
    assert access.password == "sesame"


def test_a_password_is_not_shown() -> None:
    access = StoreAccess(username="eve", password="sesame")
    assert "sesame" not in f"{access!r} {access}"
    assert "eve" in repr(access)


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"\xff"])
def test_a_file_without_one_password_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "password").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"_password_file .*password: ") as refused:
        read_access(password_file=str(tmp_path / "password"), environment={})
    assert "two" not in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match="--store_password_file nowhere: No such file"):
        read_access(password_file="nowhere")
    with pytest.raises(NotFoundError, match="--store_ca nowhere: No such file"):
        read_access(ca_file="nowhere")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"--store_ca .*: Is a directory"):
        read_access(ca_file=str(tmp_path))


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="--store_cert without --store_key: give both"):
        read_access(cert_file="cert")
    with pytest.raises(InvalidArgumentError, match="--store_key without --store_cert: give both"):
        read_access(key_file="key")


def test_a_command_takes_the_access_out_of_its_options(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("password_file", "ca", "cert", "key")}
    for path in files.values():
        path.write_text(path.name)

    @click.command
    @store_flags
    @click.option("--other")
    def command(**flags: object) -> None:
        access = take_store_access(flags)
        click.echo(f"{access} {access.password} {flags}")

    arguments = [f"--store_{name}={path}" for name, path in files.items()]
    result = CliRunner().invoke(command, [*arguments, "--store_user=eve", "--other=1"])
    at = f"ca_file='{files['ca']}', cert_file='{files['cert']}', key_file='{files['key']}'"
    at += ", wait_replicas=0"
    assert result.output == (f"StoreAccess(username='eve', {at}) password_file {{'other': '1'}}\n")

"""Builds the native part with CMake; everything else is in setup.cfg.

Options of CMake come from CMAKE_ARGS, as with other packages: "-DHOTROW_CUDA=ON" for a GPU.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# What is built -> file name. All are Extensions, or editable installs would lose all but one.
BUILT = {
    "hotrow._native": f"_native{sysconfig.get_config_var('EXT_SUFFIX')}",
    "hotrow.libhotrow_core": "libhotrow_core.so",
    "hotrow.libhotrow_tf": "libhotrow_tf.so",
    "hotrow.hotrow_server": "hotrow-server",
}


class CMakeBuild(build_ext):
    """Runs CMake on ops/native once and copies what it built into the package."""

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the path of a file inside the package tree."""
        package, _, name = fullname.rpartition(".")
        known = BUILT.get(f"hotrow.{name}")
        if known is None:
            return str(super().get_ext_filename(fullname))  # type: ignore[no-untyped-call]
        return str(Path(*package.split("."), known))

    def run(self) -> None:
        """Configures and builds; incremental when the build folder is kept."""
        # A developer's build folder is kept; that of `pip install .` belongs to an environment
        # that is gone afterwards.
        kept = self.editable_mode or self.inplace
        build = (ROOT / "build" if kept else Path(self.build_temp)) / "native"
        configure = [
            "cmake", "-S", str(ROOT / "ops" / "native"), "-B", str(build), "-G", "Ninja",
            f"-DPython_EXECUTABLE={sys.executable}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]  # fmt: skip
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build)], check=True)
        for extension in self.extensions:
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            # By unlink, not in place: a running process may have the old library mapped.
            target.unlink(missing_ok=True)
            self.copy_file(str(build / "lib" / target.name), str(target))


setup(
    ext_modules=[Extension(name, sources=[]) for name in BUILT],
    cmdclass={"build_ext": CMakeBuild},
)

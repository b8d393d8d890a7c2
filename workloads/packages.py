"""Data sets, models and optimizers from other packages, given by qualified names such as ``mine:net``.

A package registers them as entry points in the groups ``scaling_limits.datasets``, ``scaling_limits.models`` and
``scaling_limits.optimizers``:

    [project.entry-points."scaling_limits.models"]
    net = "mine.networks:net"

A name can also consist of a module and a function in it, such as ``my_models:net``. Packages are imported only when a
study needs them.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from workloads.base import BadInput, first_line, nearest

KINDS = ("dataset", "model", "optimizer")
_QUALIFIED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*:[A-Za-z_][A-Za-z0-9_.]*")
_HEX = 16  # hex digits of a source's hash in a plan


class Found(NamedTuple):
    """An object found in another package.

    Attributes:
      value: the data set, model or optimizer.
      module: name of the module that defines it.
      version: version of its package, or empty if the module does not belong to a package.
    """

    value: Any
    module: str
    version: str


def is_qualified(name: object) -> bool:
    """Returns whether a name refers to another package."""
    return isinstance(name, str) and ":" in name


def names(kind: str) -> list[str]:
    """Returns the qualified names that installed packages register, without importing the packages."""
    entries = importlib.metadata.entry_points(group=f"scaling_limits.{kind}s")
    return sorted(f"{entry.dist.name}:{entry.name}" for entry in entries if entry.dist is not None)


@functools.cache
def find(kind: str, name: str) -> Found:
    """Imports the object with a qualified name.

    Args:
      kind: one of ``KINDS``.
      name: qualified name, such as ``mine:net``.

    Raises:
      BadInput: the package is not installed, cannot be imported, or does not define the name.
    """
    if not _QUALIFIED.fullmatch(name):
        raise BadInput(f"{kind} {name!r} is not a qualified name, such as mine:net")
    package, _, attribute = name.partition(":")
    for entry in importlib.metadata.entry_points(group=f"scaling_limits.{kind}s", name=attribute):
        if entry.dist is not None and _same(entry.dist.name, package):
            value = _attribute(_module(kind, name, entry.module), entry.attr, kind, name)
            return Found(value, entry.module, entry.dist.version)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # commands that are installed as scripts do not look for modules here
    value = _attribute(_module(kind, name, package), attribute, kind, name)
    return Found(value, package, _version(package))


def identity(kind: str, name: str) -> dict[str, str]:
    """Returns the identity of the code that a qualified name refers to: its package's version and its module's hash."""
    target = find(kind, name)
    source = getattr(sys.modules[target.module], "__file__", None)
    digest = hashlib.sha256(Path(source).read_bytes() if source else b"").hexdigest()[:_HEX]
    return {"version": target.version, "module": f"{target.module} sha256:{digest}"}


def name_of(function: Any) -> str:
    """Returns the qualified name of a function.

    Raises:
      BadInput: other processes cannot import the function, because it is defined in a notebook, a script or another
        function.
    """
    module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    shown = qualified or repr(function)[:60]
    if not module or not qualified:
        raise BadInput(f"{shown} is not a function of a module. Give a function, or a name such as mine:net.")
    if module == "__main__" or "<" in qualified:
        where = "a notebook or a script" if module == "__main__" else "another function"
        raise BadInput(
            f"{shown} is defined in {where}, where workers cannot import it. Save it in a file such as my_models.py, "
            f"and use `from my_models import {qualified.rpartition('.')[2]}`."
        )
    return f"{module}:{qualified}"


def _module(kind: str, name: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            package = name.partition(":")[0]
            raise BadInput(f"{kind} {name} needs the package {package}, which is not installed here") from None
        raise BadInput(f"{kind} {name} cannot be imported ({first_line(error)})") from None
    except Exception as error:  # code of others can raise anything
        raise BadInput(f"{kind} {name} cannot be imported ({type(error).__name__}: {first_line(error)})") from None


def _attribute(module: ModuleType, path: str, kind: str, name: str) -> Any:
    value: Any = module
    for part in path.split("."):
        if not hasattr(value, part):
            public = [member for member in vars(module) if not member.startswith("_")]
            raise BadInput(f"{kind} {name}: {module.__name__} has no {path}; {nearest(path, public)}")
        value = getattr(value, part)
    return value


def _version(module: str) -> str:
    """Returns the version of the package that contains a module, or an empty string if there is no package."""
    for package in importlib.metadata.packages_distributions().get(module.partition(".")[0], ()):
        return importlib.metadata.version(package)
    return ""


def _same(package: str, distribution: str) -> bool:
    """Returns whether two names refer to the same package. Case and the difference between - and _ are ignored."""
    return re.sub(r"[-_.]+", "-", package).lower() == re.sub(r"[-_.]+", "-", distribution).lower()

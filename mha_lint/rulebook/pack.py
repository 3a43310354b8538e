"""Load a rule pack: a folder whose every ``*.py`` file holds one rule.

The rules that ship with mha-lint are a pack like any other. In a checkout it is the top-level
folder ``rules/``; a wheel carries it as ``mha_lint/_rules`` (see ``force-include`` in
pyproject.toml), so no top-level module called ``rules`` is ever installed.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mha_lint.model.documentation import RuleDoc
from mha_lint.model.rule import Rule
from mha_lint.model.settings import UsageError
from mha_lint.rulebook.documentation import parse_documentation

_PACKAGE = Path(__file__).resolve().parents[1]


class PackError(UsageError):
    """A rule pack that cannot be used; the message names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a rule's docstring: a complete small module."""

    bad: bool
    source: str


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule with the file that it stands in and that file's docstring."""

    rule: Rule
    name: str
    path: Path
    doc: str

    @property
    def code(self) -> str:
        """Return the rule's code, "MHA204"."""
        return self.rule.code

    @property
    def documentation(self) -> RuleDoc:
        """Return the docstring taken apart, with the rule's identity."""
        return parse_documentation(
            self.doc, self.rule, name=self.name, family=self.path.parent.name
        )

    @property
    def examples(self) -> list[Example]:
        """Return the Bad and then the Good examples of the docstring."""
        page = self.documentation
        return [Example(True, s) for s in page.bad] + [Example(False, s) for s in page.good]


def builtin_pack() -> Path:
    """Return the folder of the rules that ship with mha-lint.

    Raises:
        PackError: the installation lacks them.
    """
    for folder in (_PACKAGE / "_rules", _PACKAGE.parent / "rules"):
        if folder.is_dir():
            return folder
    raise PackError(f"the built-in rules are missing beside {_PACKAGE}")


def load_pack(folder: Path) -> list[LoadedRule]:
    """Load every rule of `folder`, sorted by code.

    Raises:
        PackError: the folder holds no rule, a file cannot be imported or holds not exactly one
            rule, a file has no docstring, or two files claim one code.
    """
    loaded = sorted((_load_rule(path, folder) for path in _rule_files(folder)), key=_code)
    if not loaded:
        raise PackError(f"{folder}: no rule files")
    for one, other in itertools.pairwise(loaded):
        if one.code == other.code:
            raise PackError(f"{other.path}: {one.code} is taken by {one.path}")
    return loaded


def _rule_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("[!_]*.py"))


def _code(loaded: LoadedRule) -> str:
    return loaded.code


def _load_rule(path: Path, folder: Path) -> LoadedRule:
    module = _import(path, folder)
    rules = [value for value in vars(module).values() if isinstance(value, Rule)]
    if len(rules) != 1:
        raise PackError(f"{path}: holds {len(rules)} rules, must hold 1")
    checks = (rules[0].site, rules[0].subject, rules[0].comment)
    if len([check for check in checks if check is not None]) != 1:
        raise PackError(f"{path}: must check either a site or a subject")
    if not module.__doc__:
        raise PackError(f"{path}: has no docstring")
    return LoadedRule(rules[0], path.stem.replace("_", "-"), path, module.__doc__)


def _import(path: Path, folder: Path) -> ModuleType:
    # The name is the file's own, so that tracebacks read well and two packs never clash.
    name = f"mha_lint_pack:{path.relative_to(folder).with_suffix('').as_posix()}@{folder}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PackError(f"{path}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in a rule file look themselves up here
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise PackError(f"{path}: {type(error).__name__}: {error}") from error
    return module

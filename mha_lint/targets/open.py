"""Open a target: load its file, find the class or function, build it and run one call."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import re
import sys
import time
from pathlib import Path
from types import FunctionType
from typing import Any

from torch import nn

from mha_lint.model.report import NotChecked
from mha_lint.model.source import Span
from mha_lint.model.target import TargetSpec
from mha_lint.targets.failures import (
    error_text,
    flags,
    not_made,
    same_at_every_size,
    too_slow,
    with_trace,
)
from mha_lint.targets.importing import fill_packages
from mha_lint.targets.infer.chance import breaks_when_longer, fails_at_any_size
from mha_lint.targets.infer.search import Outcome, Search
from mha_lint.targets.large import WithoutLarge, is_large
from mha_lint.targets.lively import livelier
from mha_lint.targets.load import Loaded, load_file, load_module
from mha_lint.targets.make import FileMaker, StageError
from mha_lint.targets.masked import masked
from mha_lint.targets.memory import MemoryLimitError, available, memory_limit, refused
from mha_lint.targets.notebooks.versions import until
from mha_lint.targets.scan import scan_source
from mha_lint.targets.session import describe
from mha_lint.targets.shrink import is_heavy, is_larger, shrunk
from mha_lint.targets.source import Source, SourceError, definition, read_source
from mha_lint.targets.subject import How, Recipe, Subject
from mha_lint.targets.symbolic import apart
from mha_lint.targets.timelimit import TimeLimitError, time_limit
from mha_lint.targets.usage import Usage, find_usages

MOST_USAGES = 8
MOST_REAL = 1 << 25
"""Parameters of a module that is made smaller, above which it is measured on its sizes alone."""


def open_subject(spec: TargetSpec, *, timeout: float) -> Subject | NotChecked:
    """Build what `spec` names and the arguments of one call, within `timeout` seconds.

    Every failure is a `NotChecked` with one clear line; nothing of user code escapes.
    """
    deadline = time.monotonic() + timeout
    outcome = _open(spec, timeout, deadline)
    if isinstance(outcome, NotChecked) and not outcome.target:
        return dataclasses.replace(outcome, target=spec.text)
    return outcome


def _open(spec: TargetSpec, timeout: float, deadline: float) -> Subject | NotChecked:
    if spec.path is not None:
        version = (spec.qualname, spec.line) if spec.qualname and spec.line else None
        loaded = load_file(spec.path, timeout=timeout, wanted=_names_in(spec), version=version)
    elif spec.module is not None:
        loaded = load_module(spec.module, timeout=timeout)
    else:
        return NotChecked(f"{spec.text} names neither a file nor a module")
    if isinstance(loaded, NotChecked):
        return loaded
    maker = FileMaker(spec, loaded, _span(loaded, spec), notes=tuple(loaded.session.notes))
    opener = _Opener(spec, loaded, maker, deadline, loaded.source)
    try:
        with time_limit(deadline - time.monotonic()), maker.environment():
            return opener.open()
    except TimeLimitError:
        return NotChecked(
            f"building and calling {spec.qualname or spec.text} took longer than {timeout:g} s",
            "pass a smaller --build and --call, or raise --timeout",
        )


def without_large(maker: FileMaker) -> FileMaker:
    """Return `maker` with a mode in which large tensors take no memory."""
    return dataclasses.replace(maker, mode=WithoutLarge())


def is_without_large(subject: Subject) -> bool:
    """Return whether the large weights of `subject` have no values."""
    return isinstance(subject.module, nn.Module) and is_large(subject.module)


@dataclasses.dataclass(slots=True)
class _Opener:
    spec: TargetSpec
    loaded: Loaded
    maker: FileMaker
    deadline: float
    source: Source

    def open(self) -> Subject | NotChecked:
        """Return what runs, unless it does so only at the one length that was chosen for it."""
        found = self._opened()
        if isinstance(found, NotChecked) or is_without_large(found):
            return found
        error = breaks_when_longer(self.maker, found)
        if error is None:
            return found
        failure = StageError("call", error)
        told = not_made(self.maker, failure, found.build, found.call, certain=True)
        words = told.problem.message if told.problem is not None else ""
        reason = f"calling {found.build} with ({found.call}) works at this length only: {words}"
        return dataclasses.replace(told, reason=reason)

    def _opened(self) -> Subject | NotChecked:
        """Try what was stated, else what the user's code shows, else what can be inferred."""
        spec = self.spec
        if spec.build is not None and spec.call is not None:
            return self._stated(Recipe(spec.build, spec.call, "stated"))
        name = spec.qualname
        if spec.build is not None:
            return self._searched(None, spec.build, build=spec.build)
        if name is None:
            return NotChecked(f"{spec.text} names no class or function")
        made = self._find(name)
        if isinstance(made, NotChecked):
            return made
        self._look_where_defined(made)
        if isinstance(made, nn.Module):
            return self._searched(made, name, build=name)
        if not callable(made):
            return NotChecked(f"{name} is a {type(made).__name__}, not a class or function")
        if spec.call is not None:
            return self._searched(made, name, call=spec.call)
        plain = name.rpartition(".")[2]
        usages = find_usages(self.source, plain, beside=self.spec.path is not None)
        used = self._used([u for u in usages if u.call is not None])
        if used is not None:
            return used
        for usage in [u for u in usages if u.call is None][:3]:
            if usage.build != name:
                self._import_for(usage)
                found = self._searched(made, name, build=usage.build, how="built")
                if isinstance(found, Subject):
                    return self._lighter(found, made, name)
        return self._searched(made, name)

    def _lighter(self, found: Subject, made: Any, name: str) -> Subject:
        """Return `found`, which nobody wrote a call of, at sizes of our own if it is too heavy."""
        if not is_heavy(found) or is_without_large(found):
            return found
        small = self._searched(made, name)
        return small if isinstance(small, Subject) and not is_heavy(small) else found

    def _find(self, name: str) -> Any:
        value: Any = self.loaded.module
        for part in name.split("."):
            try:
                value = getattr(value, part)
            except AttributeError:
                failed = self.loaded.session.failed.get(part)
                if failed is not None:
                    return NotChecked(
                        f"{name} could not be defined: {describe(failed)}", "", error_text(failed)
                    )
                where = self.spec.path or self.spec.module
                near = difflib.get_close_matches(part, dir(value), n=2, cutoff=0.7)
                hint = f"did you mean {' or '.join(near)}?" if near else ""
                return NotChecked(f"{where} has no class or function {name}", hint)
        return value

    def _look_where_defined(self, made: Any) -> None:
        """Follow a name that the file only imports to the file that defines it."""
        if not isinstance(made, type | FunctionType):
            return
        home = sys.modules.get(made.__module__ or "")
        file = getattr(home, "__file__", None)
        here = Path(self.loaded.source.path).absolute()
        if not isinstance(file, str) or Path(file).absolute() == here or not file.endswith(".py"):
            return
        try:
            source = read_source(file)
        except SourceError:
            return
        span = _definition(source, made.__qualname__)
        if span is not None:
            self.maker = dataclasses.replace(self.maker, span=span)
            self.source = source

    def _stated(self, recipe: Recipe) -> Subject | NotChecked:
        try:
            try:
                with memory_limit(available() * 2 // 3):
                    return self.maker.evaluate(recipe)
            except StageError as failure:
                if not refused(failure.error):
                    raise
                maker = without_large(self.maker)
                with maker.mode or contextlib.nullcontext():
                    return maker.evaluate(recipe)
        except StageError as failure:
            return not_made(self.maker, failure, recipe.build, recipe.call, certain=True)

    def _used(self, usages: list[Usage]) -> Subject | NotChecked | None:
        """Return the first usage that runs, the other calls of the same construction noted.

        When none runs and the file's own one breaks on a width or a layout, that is the answer.
        """
        broken: NotChecked | None = None
        for usage in usages[:MOST_USAGES]:
            assert usage.call is not None
            self._import_for(usage)
            calls = dict.fromkeys((apart(usage.call), usage.call))
            for call in calls:
                try:
                    subject = self.maker.evaluate(Recipe(usage.build, call, "usage"))
                except StageError as failure:
                    if broken is None and usage.own and not usage.doubtful:
                        told = not_made(self.maker, failure, usage.build, call, certain=True)
                        sure = fails_at_any_size(failure.error, self.loaded.home) is not None
                        broken = told if told.problem is not None or sure else None
                    continue
                others = dict.fromkeys(u.call for u in usages if u.build == usage.build and u.call)
                subject.other_calls = tuple(c for c in others if c != call)
                return shrunk(self.maker, subject) if is_heavy(subject) else subject
        return broken

    def _import_for(self, usage: Usage) -> None:
        """Import what the usage's own block imported: ``from types import SimpleNamespace``."""
        scope = self.maker.namespace()
        names = dict(usage.imports)
        for name in sorted(names.keys() - scope.keys()):
            package, _, attribute = names[name].rpartition(".")
            try:
                if package:
                    value = getattr(importlib.import_module(package), attribute)
                else:
                    value = importlib.import_module(attribute)
            except Exception:  # then the usage cannot be evaluated, and the next one is tried
                continue
            self.maker.extra[name] = value

    def _searched(
        self,
        made: Any,
        name: str,
        *,
        build: str | None = None,
        call: str | None = None,
        how: How = "inferred",
    ) -> Subject | NotChecked:
        search = Search(self.maker, made, name, self.deadline, build=build, call=call)
        if build is None and not isinstance(made, type):
            search.factory = self._is_factory(name)
        outcome = search.run()
        if outcome.subject is None and self._entered(outcome):
            search = Search(self.maker, made, name, self.deadline, build=build, call=call)
            search.factory = build is None and not isinstance(made, type) and self._is_factory(name)
            outcome = search.run()
        if outcome.subject is None:
            large = self._without_large(made, name, build, call, outcome)
            return large if large is not None else self._not_found(outcome, name)
        subject = outcome.subject
        if how == "built":
            subject.recipe = dataclasses.replace(subject.recipe, how=how)
        if build is None and self.spec.build is None:
            subject = livelier(self.maker, subject)
        if self.spec.call is None:
            subject = masked(self.maker, subject)
        if self.spec.build is None and self.spec.call is None and is_heavy(subject):
            return shrunk(self.maker, subject)
        return subject

    def _entered(self, outcome: Outcome) -> bool:
        """Run the ``__init__`` files of the user's packages where something looked up is not there.

        Tell whether there was any: what they import may be entered into a table.
        """
        failure = outcome.failure
        if failure is None or failure.stage != "build":
            return False
        error, session = failure.error, self.loaded.session
        own = type(error).__module__ in session.modules
        if not own and not isinstance(error, LookupError | NameError | ValueError):
            return False
        session.state.loading = True
        try:
            with time_limit((self.deadline - time.monotonic()) / 3):
                return fill_packages(session)
        except TimeLimitError:
            return False
        finally:
            session.state.loading = False

    def _without_large(
        self, made: Any, name: str, build: str | None, call: str | None, outcome: Outcome
    ) -> Subject | None:
        """Build what takes too much memory, or too long, on shapes alone: then smaller, if it can be."""
        failure = outcome.failure
        heavy = failure is not None and (
            isinstance(failure.error, MemoryLimitError) or refused(failure.error)
        )
        if not heavy and not (failure is None and outcome.seconds):
            return None
        maker = without_large(self.maker)
        search = Search(maker, made, name, self.deadline, build=build, call=call)
        with maker.mode or contextlib.nullcontext():
            found = search.run().subject
        if found is None:
            return None
        small = found
        if self.spec.build is None:
            with memory_limit():
                small = shrunk(self.maker, found)
        if small is found or is_larger(small, MOST_REAL):
            if not is_without_large(found):
                return None  # what takes the memory are no weights
            small = found
            found.notes += ("too large to be made: measured on its sizes alone",)
        return small

    def _is_factory(self, name: str) -> bool:
        source, line = self.source, self.spec.line
        if source.notebook is not None and line is not None:  # what uses it later does not count
            source = dataclasses.replace(source, tree=until(source.tree, line))
        candidates = scan_source(source)
        name = name.rpartition(".")[2]
        return not any(c.qualname == name and c.kind == "function" for c in candidates)

    def _not_found(self, outcome: Outcome, name: str) -> NotChecked:
        if outcome.failure is None and outcome.seconds:
            return too_slow(self.maker, outcome.build, outcome.call, outcome.seconds)
        if outcome.failure is None:
            return NotChecked(f"{name} could not be built", flags(f"{name}(...)", "..."))
        certain = self.spec.build is not None or outcome.certain
        told = not_made(
            self.maker,
            outcome.failure,
            outcome.build,
            outcome.call,
            outcome.unsure,
            certain=certain,
        )
        if told.problem is None and not certain and self.spec.call is None:
            problem = same_at_every_size(outcome.first_errors, self.loaded.home)
            if problem is not None:
                return dataclasses.replace(told, problem=problem, hint=problem.help)
        if outcome.certain:
            return told
        return with_trace(told, self.maker, outcome.failure, outcome.build)


def _names_in(spec: TargetSpec) -> frozenset[str]:
    """Return the names that the target and its expressions use of the file."""
    text = f"{spec.qualname or ''} {spec.build or ''} {spec.call or ''}"
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))


def _span(loaded: Loaded, spec: TargetSpec) -> Span:
    """Return the line of ``class X`` or ``def x``, else the first line of the file."""
    found = _definition(loaded.source, spec.qualname, spec.line) if spec.qualname else None
    return found or Span(str(Path(loaded.source.path).absolute()), 1, 1, 1, 1)


def _definition(source: Source, qualname: str, line: int | None = None) -> Span | None:
    node = definition(source, qualname, line)
    if node is None:
        return None
    text = source.text.split("\n")[node.lineno - 1].rstrip()
    path = str(Path(source.path).absolute())
    return Span(path, node.lineno, node.col_offset + 1, node.lineno, len(text) + 1)

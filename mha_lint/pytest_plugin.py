"""``pytest --mha-lint``: check every attention module or function that a test-suite calls.

Nothing is imported or changed unless the option is given.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.targets.arrival import Arrival

if TYPE_CHECKING:
    from mha_lint.model.finding import Finding
    from mha_lint.model.report import RunReport
    from mha_lint.targets.live import Watcher

NAME = "mha-lint"
_KEY = "mha_lint_report"
_TOOLS = ("_pytest", "pluggy", "xdist", "execnet", "hypothesis", "pytest_mock", "pytest_asyncio")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup(NAME, "attention that the tests compute")
    group.addoption(
        "--mha-lint", action="store_true", help="Check the attention that the tests compute."
    )
    group.addoption(
        "--mha-lint-strict",
        action="store_true",
        help="The same, and fail the session if anything was found.",
    )
    for name, what in (("select", "Run these rules only"), ("ignore", "Do not run these rules")):
        group.addoption(
            f"--mha-lint-{name}",
            metavar="CODE,...",
            help=f"{what}: codes, prefixes as MHA2, or ALL.",
        )
    group.addoption(
        "--mha-lint-expect",
        metavar="WORD",
        action="append",
        default=[],
        help="What the code is meant to be: causal, cross, mask=keep, ... Repeatable.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start, if asked to."""
    strict = bool(config.getoption("--mha-lint-strict"))
    if config.getoption("--mha-lint") or strict:
        _require_known(config)
        config.pluginmanager.register(_Session(config, strict=strict), f"{NAME}-session")


def _require_known(config: pytest.Config) -> None:
    """Refuse words and codes that do not exist, before a test is run."""
    from mha_lint.model.contract import EXPECTATIONS, unknown_expectation
    from mha_lint.model.settings import UsageError
    from mha_lint.rulebook.pack import builtin_pack, load_pack
    from mha_lint.rulebook.select import check_selectors

    for word in config.getoption("--mha-lint-expect"):
        if word not in EXPECTATIONS:
            raise pytest.UsageError(f"--mha-lint-expect: {unknown_expectation(word)}")
    known = [rule.code for rule in load_pack(builtin_pack())]
    for option in ("--mha-lint-select", "--mha-lint-ignore"):
        try:
            check_selectors(_codes(config, option), known, option)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error


def _codes(config: pytest.Config, option: str) -> tuple[str, ...]:
    text = config.getoption(option) or ""
    return tuple(code.strip().upper() for code in text.split(",") if code.strip())


class _Session:
    """Watches the tests of one process; the process that reports also joins what others found."""

    def __init__(self, config: pytest.Config, *, strict: bool) -> None:
        self._config = config
        self._strict = strict
        self._cwd = str(Path.cwd())
        self._process = os.getpid()
        self._watcher: Watcher | None = None
        self._running: Any = None
        self._reports: list[RunReport] = []
        self._trouble: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch while a test runs, with its fixtures."""
        self._running = (sys._getframe(0).f_back, item.nodeid)
        arrival = Arrival("torch", self._start)
        arrival.install()
        try:
            return (yield)
        finally:
            arrival.remove()
            self._running = None
            if self._watcher is not None and os.getpid() == self._process:
                self._watcher.stop()

    def _start(self) -> None:
        from mha_lint.engine.watched import is_user_file, watcher

        def is_user(path: str) -> bool:
            return is_user_file(path) and not any(part in _TOOLS for part in Path(path).parts)

        if self._watcher is None:
            self._watcher = watcher(self._cwd, is_user=is_user)
        base, name = self._running
        self._watcher.label(name)
        self._watcher.start(base)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge what was seen, now that no test is disturbed by it."""
        worker = getattr(session.config, "workeroutput", None)
        if self._watcher is not None:
            self._reports.append(self._judged(self._watcher))
        if worker is not None:
            worker[_KEY] = pickle.dumps(self._reports)
        elif self._strict and session.exitstatus == pytest.ExitCode.OK and self._bad():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judged(self, watcher: Watcher) -> RunReport:
        from mha_lint.engine.watched import check_watched
        from mha_lint.model.settings import Settings

        settings = Settings(self._cwd)
        settings = dataclasses.replace(
            settings,
            select=_codes(self._config, "--mha-lint-select") or settings.select,
            ignore=_codes(self._config, "--mha-lint-ignore"),
        )
        expect = tuple(self._config.getoption("--mha-lint-expect"))
        return check_watched(watcher.seen(), settings, expect=expect, flat=False)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take what a worker of xdist found."""
        sent = getattr(node, "workeroutput", {}).get(_KEY)
        if sent is None:
            self._trouble.append(f"worker {node.gateway.id} ended without a report")
            return
        self._reports += pickle.loads(sent)

    def _bad(self) -> list[Finding]:
        """Return what --mha-lint-strict fails for."""
        report = self._joined()
        found = [] if report is None else report.findings()
        return [f for f in found if f.severity.rank > 0]

    def _joined(self) -> RunReport | None:
        """Return one report of all processes: each finding once, targets in order of their place."""
        if not self._reports:
            return None
        from mha_lint.model.report import Status

        kept: dict[object, Any] = {}
        for report in self._reports:
            for target in report.targets:
                key = (
                    target.target,
                    target.status,
                    tuple((f.code, f.span) for f in target.findings),
                )
                kept.setdefault((*key, tuple(s.id for s in target.sites)), target)
        targets = sorted(kept.values(), key=lambda t: (t.path, t.line or 0))
        empty = all(t.status is Status.NO_ATTENTION for t in targets)
        return dataclasses.replace(
            self._reports[0],
            targets=tuple(targets),
            crashes=tuple(c for r in self._reports for c in r.crashes),
            notes=("no attention was found",) if empty else (),
            seconds=sum(r.seconds for r in self._reports),
        )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what was found."""
        terminalreporter.section(NAME)
        for text in self._trouble:
            terminalreporter.write_line(f"{NAME}: {text}", red=True)
        report = self._joined()
        if report is None:
            if not self._trouble:
                terminalreporter.write_line("no test imported torch: there is nothing to check")
            return
        from mha_lint.report.text import render
        from mha_lint.report.view import View

        verbose = self._config.get_verbosity() > 0
        writer = terminalreporter._tw
        view = View(self._cwd, color=bool(writer.hasmarkup), verbose=verbose)
        terminalreporter.write(render(report, view))
        if self._strict:
            for finding in self._bad():
                tests = list(self._tests(report, finding))
                where = f" ({tests[0]})" if tests else ""
                line = f"FAILED {finding.span} {finding.code} {finding.rule}{where}"
                terminalreporter.write_line(line, red=True)

    def _tests(self, report: RunReport, finding: Finding) -> Generator[str]:
        """Yield the tests in which `finding` was met."""
        for target in report.targets:
            if finding in target.findings:
                yield from (n.removeprefix("in ") for n in target.notes if n.startswith("in "))

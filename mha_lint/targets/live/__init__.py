"""Calls that a running program really makes: a copy of what was called, and a subject made of it."""

from __future__ import annotations

from mha_lint.targets.live.snapshot import Snapshot as Snapshot
from mha_lint.targets.live.snapshot import take as take
from mha_lint.targets.live.subject import live_subject as live_subject
from mha_lint.targets.live.watch import StopRun as StopRun
from mha_lint.targets.live.watch import Watcher as Watcher
from mha_lint.targets.live.watch_found import Seen as Seen

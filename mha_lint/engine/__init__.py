"""Take targets through the stages: the only place that knows their order."""

from __future__ import annotations

from mha_lint.engine.live import check_calls as check_calls
from mha_lint.engine.run import Progress as Progress
from mha_lint.engine.run import check as check
from mha_lint.engine.run import inspect as inspect
from mha_lint.engine.watched import check_watched as check_watched
from mha_lint.engine.watched import watcher as watcher

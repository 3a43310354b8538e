"""Take targets through the stages: the only place that knows their order."""

from __future__ import annotations

from mha_lint.engine.run import Progress as Progress
from mha_lint.engine.run import check as check
from mha_lint.engine.run import inspect as inspect

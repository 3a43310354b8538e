"""The config of a model with its own sizes and fewer layers: some of each kind."""

from __future__ import annotations

from typing import Any

from mha_lint.targets.pretrained.layers import fewer_layers


def with_fewer_layers(config: Any) -> Any | None:
    """Return a config that differs from `config` in its layers alone; None if there are none fewer.

    Raises whatever the library raises for a config that it does not take.
    """
    values = config.to_dict()
    shorter = fewer_layers(values, frozenset())
    if shorter == values:
        return None
    return type(config).from_dict(shorter)

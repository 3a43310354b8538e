"""The numbers that a construction names."""

from __future__ import annotations

import dataclasses
from typing import Any

from mha_lint.targets.sizes import sizes_of, stated_of


@dataclasses.dataclass
class Config:
    hidden_size: int = 48
    head_dim: int = 16
    rate: float = 0.5

    def __getattribute__(self, name: str) -> Any:
        if name == "head_dim":
            raise RuntimeError("each layer has its own")
        return super().__getattribute__(name)


def test_an_attribute_that_cannot_be_read_has_no_number() -> None:
    assert sizes_of({"config": Config(), "heads": 3}) == {"hidden_size": 48, "heads": 3}
    assert stated_of({"config": Config()}) == {"hidden_size": 48, "rate": 0.5}

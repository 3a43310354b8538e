"""What the factories of transformers modules share: the cases, configs, masks, tables and caches."""

from __future__ import annotations

import importlib
import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

BOTH = ("eager", "sdpa")
EAGER = ("eager",)
SDPA = ("sdpa",)


@dataclass(frozen=True, slots=True)
class Case:
    """One module: the factory's name, the arguments of a call, the implementations it has.

    ``expect``: the codes that must be reported on it, each with its reason in a comment.
    ``settled_by``: the contract that a user states where what is expected is meant.
    ``name``: where a factory has several calls. ``todo``: why the case fails for now.
    """

    factory: str
    call: str
    implementations: tuple[str, ...] = BOTH
    expect: tuple[str, ...] = ()
    settled_by: str = ""
    name: str = ""
    todo: str = ""

    def build(self, implementation: str) -> str:
        """Return the expression that builds it with `implementation`."""
        return f"{self.factory}({implementation!r})"


def pick(family: str, part: str, name: str) -> Any:
    """Return `name` of a family's "configuration" or "modeling" file."""
    return getattr(importlib.import_module(f"transformers.models.{family}.{part}_{family}"), name)


def configured(family: str, name: str, implementation: str, **settings: Any) -> Any:
    """Return a config whose attention is computed by `implementation`."""
    config = pick(family, "configuration", name)(**settings)
    config._attn_implementation = implementation
    return config


def built(family: str, name: str, *arguments: Any, **settings: Any) -> nn.Module:
    """Return a module of a family, initialised from one seed, in eval mode."""
    torch.manual_seed(0)
    module = pick(family, "modeling", name)(*arguments, **settings)
    assert isinstance(module, nn.Module)
    module.eval()  # LeViT's returns None
    return module


def rotary(head_dim: int, length: int) -> tuple[Tensor, Tensor]:
    """Return the cos and sin tables of a rotation by halves, each (1, T, head_dim)."""
    frequency = torch.pow(10000.0, -torch.arange(0, head_dim, 2) / head_dim)
    angle = torch.arange(length)[:, None] * frequency
    angle = torch.cat((angle, angle), dim=-1)[None]
    return angle.cos(), angle.sin()


def causal(length: int) -> Tensor:
    """Return an additive causal mask (1, 1, T, T)."""
    smallest = torch.finfo(torch.float32).min
    return torch.full((length, length), smallest).triu(1)[None, None]


def slopes(heads: int, length: int) -> Tensor:
    """Return the linear biases of BLOOM and Falcon, (h, 1, T), for one sample's heads."""
    base = 2.0 ** (-(2.0 ** -(math.log2(heads) - 3)))
    powers = torch.pow(base, torch.arange(1, heads + 1))
    return powers[:, None, None] * torch.arange(length)[None, None, :]


def tokens(batch: int, length: int) -> Tensor:
    """Return token ids (B, T) of a vocabulary of 40, none of them a special token."""
    return torch.randint(10, 40, (batch, length))


def padded(batch: int, length: int, *, left: bool = False) -> Tensor:
    """Return 1 for tokens and 0 for padding, (B, T): the last sample is two tokens short."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, slice(None, 2) if left else slice(-2, None)] = 0
    return mask


def past(layers: int, heads: int, length: int, head_dim: int, batch: int = 2) -> dict[str, Any]:
    """Return the argument that holds `length` cached positions in each layer.

    Its name is "cache" in younger releases of transformers, "past_key_values" in older ones.
    """
    cache = importlib.import_module("transformers.cache_utils").DynamicCache()
    for layer in range(layers):
        keys, values = torch.randn(2, batch, heads, length, head_dim)
        cache.update(keys, values, layer)
    forward = pick("llama", "modeling", "LlamaModel").forward
    return {
        "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values": cache
    }

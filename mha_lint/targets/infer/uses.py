"""What a constructor does with one of its parameters, or with an entry of a config."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import torch

from mha_lint.targets.infer.vocabulary import Role

TAKES: dict[str, tuple[Role | None, ...]] = {
    "Linear": (Role.WIDTH, Role.WIDTH, Role.FLAG),
    "LayerNorm": (Role.WIDTH, Role.EPSILON),
    "RMSNorm": (Role.WIDTH, Role.EPSILON),
    "BatchNorm1d": (Role.WIDTH,),
    "BatchNorm2d": (Role.WIDTH,),
    "InstanceNorm2d": (Role.WIDTH,),
    "GroupNorm": (Role.GROUPS, Role.WIDTH),
    "Embedding": (Role.VOCABULARY, Role.WIDTH),
    "Conv1d": (Role.WIDTH, Role.WIDTH, Role.KERNEL, Role.STEP),
    "Conv2d": (Role.WIDTH, Role.WIDTH, Role.KERNEL, Role.STEP),
    "Conv3d": (Role.WIDTH, Role.WIDTH, Role.KERNEL, Role.STEP),
    "Dropout": (Role.RATE,),
    "DropPath": (Role.RATE,),
    "MultiheadAttention": (Role.WIDTH, Role.HEADS, Role.RATE),
    "TransformerEncoderLayer": (Role.WIDTH, Role.HEADS, Role.INNER, Role.RATE),
    "TransformerDecoderLayer": (Role.WIDTH, Role.HEADS, Role.INNER, Role.RATE),
    "TransformerEncoder": (Role.MODULE, Role.LAYERS),
    "LSTM": (Role.WIDTH, Role.WIDTH, Role.LAYERS),
    "GRU": (Role.WIDTH, Role.WIDTH, Role.LAYERS),
    "range": (Role.LAYERS,),
    "arange": (Role.LENGTH,),
}
"""What torch's layers take, by position."""

KEYWORDS = {
    "in_features": Role.WIDTH, "out_features": Role.WIDTH, "embed_dim": Role.WIDTH,
    "num_heads": Role.HEADS, "nhead": Role.HEADS, "d_model": Role.WIDTH, "kdim": Role.WIDTH,
    "vdim": Role.WIDTH, "dropout": Role.RATE, "bias": Role.FLAG, "batch_first": Role.FLAG,
    "kernel_size": Role.KERNEL, "num_layers": Role.LAYERS, "dim_feedforward": Role.INNER,
    "in_channels": Role.WIDTH, "out_channels": Role.WIDTH, "eps": Role.EPSILON, "p": Role.RATE,
    "num_embeddings": Role.VOCABULARY, "embedding_dim": Role.WIDTH, "dtype": Role.DTYPE,
    "device": Role.DEVICE,
}  # fmt: skip

OF_VALUES = frozenset(
    {n for kind in (str, dict, list, torch.Tensor) for n in dir(kind)}
    | {"to_dict", "forward", "parameters", "modules", "eval", "train", "apply"}
)
"""Methods of plain values, tensors and modules: what has them is no object that answers questions."""

MADE_OF_SIZES = frozenset({"zeros", "ones", "randn", "empty", "rand", "full"})


@dataclass(slots=True)
class Evidence:
    """What is done with one reference.

    ``entries``: names read from it, with "attribute", "item", "get" or "method". ``table``: it is
    read by keys that only running it tells. ``members``: enum members that it is compared with, and
    ``choices``: strings. ``names``: what it is assigned to. ``calls``: numbers of arguments it is
    called with in the constructor; ``taken``: how it is called elsewhere, as (number of arguments,
    names of the others). ``kinds``: names of classes that it is tested for. ``length``: items it is
    unpacked into; ``items``: items that each of its items is unpacked into. ``wholes``: references
    that it divides. ``optional``: it may be None. ``array``: it is an array of numpy.
    """

    roles: list[Role] = field(default_factory=list)
    entries: dict[str, set[str]] = field(default_factory=dict)
    table: bool = False
    array: bool = False
    members: list[enum.Enum] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    used_as_module: bool = False
    taken: set[tuple[int, tuple[str, ...]]] = field(default_factory=set)
    items: int = 0
    iterated: bool = False
    length: int = 0
    tested: bool = False
    optional: bool = False
    divides: bool = False
    divided: bool = False
    wholes: set[str] = field(default_factory=set)

    def role(self) -> Role | None:
        """Return the role that speaks loudest, or None."""
        if self.roles:
            return max(self.roles, key=self.roles.count)
        if self.divides:  # also d // heads beside heads // kv_heads
            return Role.HEADS
        return Role.WIDTH if self.divided else None

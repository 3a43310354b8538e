"""Calls of submodules: torch's layers tell their widths, the user's are read in turn."""

from __future__ import annotations

import math
import re

from torch import nn

from mha_lint.targets.infer.evidence import Ref
from mha_lint.targets.infer.tensor_calls import TensorCalls

WITHOUT_WIDTH = (nn.Dropout, nn.Identity, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid)
SAME_WIDTH = (
    nn.LayerNorm, nn.Dropout, nn.Identity, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid,
    nn.Softmax, nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.RMSNorm,
)  # fmt: skip


_AXES = re.compile(r"\([^)]*\)|\S+")


class ModuleCalls(TensorCalls):
    """What calls of submodules tell about the inputs that they are given."""

    def submodule(
        self, part: nn.Module, arguments: list[Ref | None], keywords: dict[str | None, Ref | None]
    ) -> Ref | None:
        """Look at the call of a submodule with these inputs."""
        first = arguments[0] if arguments else next(iter(keywords.values()), None)
        if isinstance(part, nn.Sequential) and len(part):
            if first is not None and (pattern := _pattern(part[0])):
                self._rearranged(first, pattern, part[0], _next_width(part))
                return None
            for index, inner in enumerate(part):
                if isinstance(inner, WITHOUT_WIDTH) and index < len(part) - 1:
                    continue
                made = self.submodule(inner, arguments, keywords)
                return None if made is None else Ref(made.name, whole=False)
        if isinstance(part, nn.MultiheadAttention):
            return self._multihead(part, arguments, keywords)
        if first is not None and (pattern := _pattern(part)):
            self._rearranged(first, pattern, part, None)
            return None
        if first is not None:
            evidence = self.found[first.name]
            match part:
                case nn.Embedding():
                    self.index(first, part)
                    return None
                case nn.Linear():
                    evidence.vote_last(part.in_features, 2 if first.whole else 0)
                    return Ref(first.name, whole=False)
                case nn.LayerNorm():
                    evidence.vote_last(part.normalized_shape[-1], 2 if first.whole else 0)
                    return first
                case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
                    rank = len(part.kernel_size) + 2
                    evidence.vote_rank(rank, 3)
                    if first.whole:
                        evidence.channels[1] = part.in_channels
                    return Ref(first.name, whole=False)
                case nn.BatchNorm2d() | nn.GroupNorm():
                    channels = getattr(part, "num_features", getattr(part, "num_channels", 0))
                    if first.whole:
                        evidence.channels[1] = channels
                    return first
                case nn.LSTM() | nn.GRU():
                    evidence.vote_rank(3, 2)
                    evidence.vote_last(part.input_size, 2 if first.whole else 0)
                    return None
                case _ if isinstance(part, SAME_WIDTH):
                    return first
        if type(part).__module__.startswith("torch.nn"):
            width = getattr(getattr(part, "self_attn", None), "embed_dim", None)
            for ref in arguments:
                if ref is not None and width is not None and ref.whole:
                    self.found[ref.name].vote_last(width, 2)
                    self.found[ref.name].vote_rank(3, 1)
            for key, ref in keywords.items():
                if ref is not None and key is not None and "mask" in key:
                    self.found[ref.name].as_mask = True
                    self.hides(ref, True)
                    self.found[ref.name].vote_rank(2, 1)
            return first
        return self.function(part.forward, part, arguments, keywords)

    def _rearranged(self, ref: Ref, pattern: str, layer: nn.Module, width: int | None) -> None:
        """Read the pattern of an einops layer; `width`: what the layer behind it takes.

        ``b c (h p1) (w p2) -> b (h w) (p1 p2 c)`` in front of a layer of width p1 * p2 * 3: c is 3.
        """
        left, _, right = pattern.partition("->")
        axes = _AXES.findall(left)
        if "..." in axes:
            return
        evidence = self.found[ref.name]
        evidence.vote_rank(len(axes), 3)
        evidence.letters.append(tuple(a.strip("()").lower() for a in axes))
        known: dict[str, int] = dict(getattr(layer, "axes_lengths", {}))
        made = _AXES.findall(right)
        parts = made[-1].strip("()").split() if made else []
        rest = [name for name in parts if name not in known]
        if width is None or len(rest) != 1 or rest[0] not in axes or not ref.whole:
            return
        channels, left_over = divmod(width, math.prod(known[n] for n in parts if n in known))
        if left_over == 0 and axes.index(rest[0]) == 1:
            evidence.channels[1] = channels
        elif left_over == 0 and axes.index(rest[0]) == len(axes) - 1:
            evidence.vote_last(channels, 2)

    def _multihead(
        self,
        part: nn.MultiheadAttention,
        arguments: list[Ref | None],
        keywords: dict[str | None, Ref | None],
    ) -> Ref | None:
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        given: dict[str | None, Ref | None] = dict(zip(names, arguments, strict=False))
        given |= keywords
        for key, width in (("query", part.embed_dim), ("key", part.kdim), ("value", part.vdim)):
            ref = given.get(key)
            if ref is not None:
                self.found[ref.name].vote_rank(3, 2)
                self.found[ref.name].vote_last(width, 2 if ref.whole else 0)
        for key in ("key_padding_mask", "attn_mask"):
            ref = given.get(key)
            if ref is not None:
                self.found[ref.name].as_mask = True
                self.found[ref.name].vote_rank(2, 2)
                self.hides(ref, True)
                if key == "attn_mask":
                    self.found[ref.name].letters.append(("t", "s"))
        return None


def _pattern(part: nn.Module) -> str | None:
    """Return the pattern of an einops layer (Rearrange, Reduce), None for any other module."""
    pattern = getattr(part, "pattern", None)
    return pattern if isinstance(pattern, str) and "->" in pattern else None


def _next_width(parts: nn.Sequential) -> int | None:
    """Return the width that the first of torch's layers behind the first part takes."""
    for part in list(parts)[1:]:
        match part:
            case nn.Linear():
                return part.in_features
            case nn.LayerNorm():
                return part.normalized_shape[-1]
            case _ if not isinstance(part, WITHOUT_WIDTH):
                return None
    return None

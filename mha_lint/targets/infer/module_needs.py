"""What a built module tells about the inputs it needs: their width and dtype."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def module_width(module: nn.Module) -> int | None:
    """Return the width that the module's input most likely has."""
    for part in module.modules():
        match part:
            case nn.Linear():
                return part.in_features
            case nn.LayerNorm():
                return part.normalized_shape[-1]
            case nn.MultiheadAttention():
                return int(part.embed_dim)
            case nn.Conv2d() | nn.Conv1d():
                return part.in_channels
            case nn.Embedding():
                return part.embedding_dim
    for parameter in module.parameters():
        if parameter.dim() >= 2:
            return parameter.shape[-1]
    return None


def module_dtype(module: Any) -> str:
    """Return the dtype that float inputs need ("" for the default)."""
    if isinstance(module, nn.Module):
        for parameter in module.parameters():
            if parameter.is_floating_point():
                same = parameter.dtype == torch.get_default_dtype()
                return "" if same else str(parameter.dtype)
    return ""

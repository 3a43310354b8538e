"""Start torch's generators, without what ``torch.manual_seed`` does besides."""

from __future__ import annotations

import torch


def seed_torch(seed: int) -> None:
    """Start torch's generators at `seed`.

    ``torch.manual_seed`` formats a stack trace each time for a GPU that is not in use yet.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)

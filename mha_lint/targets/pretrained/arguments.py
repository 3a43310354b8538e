"""Tensors for the arguments of a model's forward, by the argument's name: the likeliest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mha_lint.targets.pretrained.needs import Needs

Maker = Callable[[], object]


def makers(name: str, needs: Needs, others: frozenset[str]) -> list[Maker]:
    """Return ways to make the argument `name`, none where the name is not known.

    ``others``: names that the forward takes too.
    """
    batch, length = needs.batch, needs.length
    if name.endswith("input_ids") or name in ("input_ids", "text_ids", "task_inputs"):
        return _tokens(needs)
    if name in ("bbox", "boxes"):
        return [lambda: _boxes(needs)]
    if name in ("past_values", "future_values", "past_observed_mask", "past_time_features"):
        return _series(name, needs)
    if "grid_thw" in name or name == "grid_hw":
        return [lambda: _grid(needs), lambda: _grid(needs)[:, 1:]]
    if "pixel_values" in name or name in ("image", "images"):
        return _images(needs, others, video="video" in name)
    if name in ("hidden_states", "inputs") and others & {"grid_thw", "grid_hws"}:
        return [lambda: _flat_patches(needs)]
    if name == "pixel_mask":
        return [lambda: torch.ones(batch, *needs.image, dtype=torch.long)]
    if name in ("pixel_attention_mask", "spatial_shapes"):
        return _navit(name, needs)
    if name.endswith("position_ids") and ("pixel" in name or "image" in name):
        return [lambda: _places(needs)]
    if name in ("image_sizes", "target_sizes", "original_sizes"):
        return _extents(name, needs)
    if name in ("input_features", "audio_mel", "input_audio_embeds", "audio_features"):
        return _spectra(needs)
    if name in ("input_values", "audio_values", "waveform", "speech"):
        return _sounds(needs)
    if name in ("input_features_mask", "feature_attention_mask", "audio_mel_mask"):
        return [
            lambda: torch.ones(batch, needs.spectrum, dtype=torch.long),
            lambda: torch.ones(batch, needs.spectrum, dtype=torch.bool),
        ]
    if name == "classes_structure":
        return [lambda: torch.ones(batch, dtype=torch.long)]
    if name == "merge_sizes":
        merge = needs.whole("spatial_merge_size", "merge_size", default=1)
        return [lambda: torch.full((batch,), merge)]
    if name in ("freq", "timesteps", "lengths"):
        steps = 1 if name != "timesteps" else length
        return [lambda: torch.zeros(batch, steps, dtype=torch.long)]
    if (size := needs.get(f"{name.removesuffix('s')}_dim", f"{name[:3]}_dim")) is not None:
        return [lambda: torch.randn(batch, length, int(size))]
    if name in ("rewards", "returns_to_go"):
        return [lambda: torch.randn(batch, length, 1)]
    if name.endswith(("mask", "mask_bool")):
        shapes = ((batch, length), (batch, length, 1), (batch, 1))
        return [lambda shape=shape: torch.ones(shape, dtype=torch.long) for shape in shapes]  # type: ignore[misc]
    if name.endswith("ids") or name.endswith("labels"):
        return [lambda: torch.zeros(batch, length, dtype=torch.long)]
    return []


def token_ids(needs: Needs) -> Tensor:
    """Return token ids (B, T), none of them a special token."""
    choice = torch.tensor(needs.ordinary)
    return choice[torch.randint(len(choice), (needs.batch, needs.length))]


def _tokens(needs: Needs) -> list[Maker]:
    """Return token ids, for models with several codes at a place in their layouts too."""
    books = needs.books
    several: list[Maker] = [
        lambda: _repeated(token_ids(needs), books + 1),
        lambda: _repeated(token_ids(needs), books),
        lambda: _repeated(token_ids(needs), books).transpose(1, 2),
        lambda: token_ids(needs).repeat_interleave(books, 0),
    ]
    return [lambda: token_ids(needs), *(several if books > 1 else ())]


def _repeated(ids: Tensor, times: int) -> Tensor:
    return ids.unsqueeze(-1).repeat(1, 1, times)


def _extents(name: str, needs: Needs) -> list[Maker]:
    """Return heights and widths of images, in pixels and in patches."""
    pixels = torch.tensor(needs.image)
    patches = pixels // max(needs.patch, 1)
    first, second = (patches, pixels) if name == "target_sizes" else (pixels, patches)
    return [
        lambda: first.expand(needs.batch, 2).clone(),
        lambda: pixels.expand(needs.batch, 1, 2).clone(),
        lambda: second.expand(needs.batch, 2).clone(),
    ]


def _boxes(needs: Needs) -> Tensor:
    corners = torch.randint(1, 20, (needs.batch, needs.length, 2))
    most = needs.whole("max_2d_position_embeddings", default=64)
    return torch.cat((corners, corners + torch.randint(1, 12, corners.shape)), -1).clamp(
        max=most - 1
    )


def _images(needs: Needs, others: frozenset[str], *, video: bool) -> list[Maker]:
    """Return images in the layouts that models take, those that the signature hints at first."""
    batch, channels, (height, width) = needs.batch, needs.channels, needs.image
    frames = needs.frames
    plain = [
        lambda: torch.randn(batch, channels, height, width),
        lambda: torch.randn(batch, frames, channels, height, width),
        lambda: torch.randn(batch, 1, channels, height, width),
        lambda: torch.randn(batch, channels, frames, height, width),
    ]
    count, patch = batch * needs.side**2, needs.patch
    packed: list[Maker] = [
        lambda: _flat_patches(needs),
        lambda: _padded_patches(needs),
        lambda: torch.randn(count, channels, patch, patch),
    ]
    grids = [o for o in others if "grid_thw" in o or o == "grid_hw"]
    if grids:
        return [*packed, *plain]
    if "target_sizes" in others:  # the patches of all images in one row
        return [lambda: torch.randn(1, channels, patch, count * patch), *plain, *packed]
    if others & {"spatial_shapes", "image_position_ids", "pixel_position_ids"}:
        return [packed[1], packed[0], *plain]
    if video or needs.get("num_frames", "frames_per_clip") is not None:
        return [plain[1], plain[0], *plain[2:], *packed]
    if others & {"pixel_attention_mask", "image_sizes", "num_local_patches"}:
        return [plain[2], *plain, *packed]
    return [*plain, *packed]


def _patch_size(needs: Needs) -> int:
    keys = ("temporal_patch_size", "patch_temporal")
    times = needs.whole(*keys, near=("vision",), default=1)
    return needs.channels * times * needs.patch**2


def _grid(needs: Needs) -> Tensor:
    side = needs.side
    return torch.tensor([[1, side, side]] * needs.batch)


def _flat_patches(needs: Needs) -> Tensor:
    return torch.randn(needs.batch * needs.side**2, _patch_size(needs))


def _padded_patches(needs: Needs) -> Tensor:
    return torch.rand(needs.batch, needs.side**2, _patch_size(needs))


def _places(needs: Needs) -> Tensor:
    side = needs.side
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.stack((columns, rows), -1).reshape(1, -1, 2).expand(needs.batch, -1, 2).clone()


def _navit(name: str, needs: Needs) -> list[Maker]:
    batch, side = needs.batch, needs.side
    if name == "spatial_shapes":
        return [lambda: torch.tensor([[side, side]] * batch)]
    return [
        lambda: torch.ones(batch, side * side, dtype=torch.long),
        lambda: torch.ones(batch, 1, *needs.image, dtype=torch.bool),
        lambda: torch.ones(batch, *needs.image, dtype=torch.bool),
        lambda: torch.ones(batch, 1, dtype=torch.bool),
    ]


def _spectra(needs: Needs) -> list[Maker]:
    batch, frames, mels = needs.batch, needs.spectrum, needs.mels
    return [
        lambda: torch.randn(batch, mels, frames),
        lambda: torch.randn(batch, frames, mels),
        lambda: torch.randn(batch, 1, frames, mels),
        lambda: torch.randn(batch, frames, 2 * mels),
    ]


def _sounds(needs: Needs) -> list[Maker]:
    batch, mels = needs.batch, needs.mels
    longest = needs.whole("max_length", default=64)
    hop = 1
    for keys in (("downsampling_ratios",), ("upsampling_ratios",), ("conv_stride",)):
        ratios = needs.get(*keys)
        if isinstance(ratios, list | tuple) and ratios:
            for ratio in ratios:
                hop *= ratio if isinstance(ratio, int) else 1
            break
    samples = max(1600, hop * 8)
    return [
        lambda: torch.randn(batch, samples),
        lambda: torch.randn(batch, 1, samples),
        lambda: torch.randn(batch, longest, mels),
        lambda: torch.randn(batch, 64, mels),
        lambda: torch.randn(batch, 1, 8, hop * 2),
        lambda: torch.randn(batch, needs.length, needs.width),
    ]


def _series(name: str, needs: Needs) -> list[Maker]:
    batch = needs.batch
    context = needs.whole("context_length", "prediction_length", default=32)
    lags = needs.get("lags_sequence", default=[0]) or [0]
    length = context + max(lags)
    channels = needs.whole("num_input_channels", "input_size", default=1)
    if name == "future_values":
        length = needs.whole("prediction_length", default=8)
    if name == "past_time_features":
        features = needs.whole("num_time_features", default=1)
        return [lambda: torch.randn(batch, length, features)]
    make = torch.ones if name == "past_observed_mask" else torch.randn
    flat: list[Maker] = [lambda: make(batch, length), lambda: make(batch, context)]
    wide: list[Maker] = [lambda: make(batch, context, channels)]
    return [*wide, *flat] if needs.get("num_input_channels") is not None else [*flat, *wide]


def states(needs: Needs) -> list[Maker]:
    """Return tensors of floats in the shapes that states of a model have."""
    batch, length, width = needs.batch, needs.length, needs.width
    shapes: Sequence[tuple[int, ...]] = (
        (batch, length, width), (batch, width), (batch, width, length), (length, width), (batch,)
    )  # fmt: skip
    return [lambda shape=shape: torch.randn(shape) for shape in shapes]  # type: ignore[misc]

"""What a call of a model must know of its config: vocabulary, image, patches, sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mha_lint.targets.pretrained.leaves import leaves
from mha_lint.targets.pretrained.roles import Role

BATCH = 2


@dataclass(frozen=True, slots=True)
class Needs:
    """Reads a config's dict. ``length``: of a text. ``batch``: samples."""

    values: dict[str, Any]
    length: int = 7
    batch: int = BATCH

    def get(self, *keys: str, near: tuple[str, ...] = (), default: Any = None) -> Any:
        """Return the first value under one of `keys`, in parts named like `near` first."""
        parts = list(_parts(self.values, ""))
        ranked = sorted(parts, key=lambda p: not any(n in p[0] for n in near)) if near else parts
        for _, part in ranked:
            for key in keys:
                value = part.get(key)
                if value is not None and not isinstance(value, dict):
                    return value
        return default

    def whole(self, *keys: str, near: tuple[str, ...] = (), default: int) -> int:
        """Return an integer, the first one of a list."""
        value = self.get(*keys, near=near, default=default)
        while isinstance(value, list | tuple) and value:
            value = value[0]
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    @property
    def vocabulary(self) -> int:
        """Return how many token ids any part takes."""
        keys = ("vocab_size", "text_vocab_size", "input_vocab_size", "n_words", "entity_vocab_size")
        found = [p[k] for _, p in _parts(self.values, "") for k in keys if _whole(p.get(k))]
        return min((v for v in found if v > 8), default=32)

    @property
    def ordinary(self) -> list[int]:
        """Return token ids that are no special ones."""
        special = {x.value for x in leaves(self.values) if x.role is Role.TOKEN}
        low = range(3, max(min(self.vocabulary, 60), 8))
        return [i for i in low if i not in special] or [3]

    def token(self, kind: str) -> int | None:
        """Return the token that stands for an image, a video or a sound."""
        names = [f"{kind}_token_id", f"{kind}_token_index", f"{kind}_token_idx", f"{kind}_token"]
        names += [f"media_{n}" for n in names] + [
            "media_placeholder_token_id",
            "placeholder_token_id",
        ]
        if kind == "image":
            names += ["image_patch_id", "img_token_id", "image_patch_token_id", "vision_token_id"]
        value = self.get(*names)
        return value if _whole(value) else None

    def opening(self, kind: str) -> int | None:
        """Return the token that stands before those of an image."""
        kinds = ("vision", kind) if kind in ("image", "video") else (kind,)
        value = self.get(*(f"{k}_start_token_id" for k in kinds))
        return value if _whole(value) else None

    @property
    def image(self) -> tuple[int, int]:
        """Return height and width of an image."""
        keys = ("image_size", "img_size", "input_resolution", "crop_size", "force_image_size")
        value = self.get(*keys, near=("vision", "image", "vit"))
        if isinstance(value, dict):
            value = [value.get("height"), value.get("width")]
        if isinstance(value, list | tuple) and value and _whole(value[0]):
            return value[0], value[-1]
        if _whole(value):
            return value, value
        patch = self.patch
        stages = len(self.get("depths", "hidden_sizes", near=("vision",), default=[]) or [])
        return (64, 64) if stages or patch < 2 else (4 * patch, 4 * patch)

    @property
    def patch(self) -> int:
        """Return the side of a patch."""
        keys = ("patch_size", "spatial_patch_size", "vision_patch_size", "patch_kernel_size")
        return self.whole(*keys, near=("vision", "image", "vit"), default=1)

    @property
    def channels(self) -> int:
        """Return the channels of an image."""
        keys = ("num_channels", "in_channels", "in_chans", "num_input_channels", "image_channels")
        return self.whole(*keys, near=("vision", "image", "backbone"), default=3)

    @property
    def frames(self) -> int:
        """Return the frames of a video."""
        keys = ("num_frames", "frames_per_clip", "max_num_frames", "num_image_with_embedding")
        frames = self.whole(*keys, near=("vision", "video"), default=2)
        return frames if frames <= 16 else 4

    @property
    def side(self) -> int:
        """Return patches along a side: a multiple of those that are merged."""
        merge = self.whole("spatial_merge_size", "merge_size", "downsample_factor", default=1)
        return max(4, 2 * merge)

    @property
    def spectrum(self) -> int:
        """Return the frames of a spectrogram: all that a model with fixed positions takes."""
        positions = self.whole("max_source_positions", near=("audio", "encoder"), default=0)
        if positions and self.get("num_mel_bins") is not None:
            return 2 * positions
        return 128

    @property
    def books(self) -> int:
        """Return how many codes stand at each place of a sequence, 0 where there is one."""
        keys = ("num_codebooks", "n_codes_total", "num_quantizers", "num_audio_codebooks")
        return self.whole(*keys, near=("decoder",), default=0)

    @property
    def width(self) -> int:
        """Return the width of the states."""
        keys = ("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "dim")
        return self.whole(*keys, near=("text", "decoder"), default=32)

    @property
    def mels(self) -> int:
        """Return the bands of a spectrogram."""
        keys = (
            "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "n_mels",
            "input_feat_size", "feature_size", "input_size", "input_dim", "num_mels", "mel_bins",
        )  # fmt: skip
        return self.whole(*keys, near=("audio", "speech", "encoder"), default=80)


def _parts(values: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield name, values
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _parts(value, f"{name}.{key}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

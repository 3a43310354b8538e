"""Attention modules are found by name and shape, and layers that are alike are folded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from mha_lint.dims.attention import find_modules, fold, place, ranges
from mha_lint.dims.compare import Comparison
from mha_lint.dims.config import sections
from mha_lint.dims.data import Checkpoint, DimsReport, Tensor

transformers = pytest.importorskip("transformers")


def checkpoint(shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint:
    return Checkpoint("a", {n: Tensor(n, s, "F16") for n, s in shapes.items()})


def found(shapes: dict[str, tuple[int, ...]]) -> dict[str, set[str]]:
    return {m.path: set(m.projections) for m in find_modules(checkpoint(shapes))}


def test_ranges() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_layers_that_are_alike_are_one() -> None:
    shapes = {
        f"h.{i}.attn.{n}.weight": (64, 64) for i in range(12) for n in ("q", "k", "v", "proj")
    }
    ((kind,),) = [f.kinds for f in fold(find_modules(checkpoint(shapes)))]
    assert (place(kind), len(kind)) == ("h.0-11.attn", 12)


def test_single_heads_in_a_list_are_one_module(workshop: Any) -> None:
    shapes = {
        f"blocks.{b}.sa.heads.{h}.{n}.weight": (16, 64)
        for b in range(2)
        for h in range(4)
        for n in ("key", "query", "value")
    } | {f"blocks.{b}.sa.proj.weight": (64, 64) for b in range(2)}
    (group,) = workshop.diagnose(None, shapes).groups
    assert group.where == "blocks.0-1.sa.heads"
    assert group.sizes == {"d_model": 64, "h": 4, "h_kv": 4, "d_k": 16, "d_v": 16}


def test_an_axis_of_heads_is_read(workshop: Any) -> None:
    shapes = {f"layer.0.rel_attn.{n}": (1024, 16, 64) for n in "qkvo"}
    (group,) = workshop.diagnose(None, shapes).groups
    assert (group.sizes["h"], group.sizes["d_k"]) == (16, 64)


def test_other_maps_are_no_attention() -> None:
    assert found({"layers.0.mixer.in_proj.weight": (4096, 1024)}) == {}
    assert found({"mlp.key.weight": (64, 64), "mlp.value.weight": (64, 64)}) == {}
    assert (
        found({"encoder.value_proj.weight": (64, 64), "encoder.output_proj.weight": (64, 64)}) == {}
    )


def test_a_recurrence_is_not_read(workshop: Any) -> None:
    shapes = {
        "layers.0.linear_attn.in_proj_qkv.weight": (4096, 1024),
        "layers.0.linear_attn.out_proj.weight": (1024, 2048),
        "layers.0.linear_attn.conv1d.weight": (4096, 1, 4),
        "layers.0.linear_attn.A_log": (16,),
    }
    report = workshop.diagnose(None, shapes)
    assert [g.status for g in report.groups] == ["not read"]
    assert report.exit_code == 2


def test_a_name_whose_shape_does_not_fit_is_reported(workshop: Any) -> None:
    shapes = {
        "attn.q_proj.weight": (64, 64),
        "attn.k_proj.weight": (64, 64),
        "attn.v_proj.weight": (64,),
        "attn.out_proj.weight": (64, 64),
    }
    report = workshop.diagnose(None, shapes)
    assert (
        "attn: v_proj.weight (64,) is a projection by its name, by its shape it is none"
    ) in report.notes


def test_keys_from_another_width(workshop: Any) -> None:
    shapes = {
        "cross_attn.to_q.weight": (320, 320),
        "cross_attn.to_k.weight": (320, 768),
        "cross_attn.to_v.weight": (320, 768),
        "cross_attn.to_out.0.weight": (320, 320),
        "cross_attn.to_out.0.bias": (320,),
    }
    (group,) = workshop.diagnose({"hidden_size": 320, "num_attention_heads": 8}, shapes).groups
    assert (group.status, group.kv_width, group.sizes["d_k"]) == ("solved", 768, 40)


def test_weights_stored_as_in_out_without_a_bias(workshop: Any) -> None:
    shapes = {"attn.c_attn.weight": (768, 2304), "attn.c_proj.weight": (768, 768)}
    (group,) = workshop.diagnose({"n_embd": 768, "n_head": 12}, shapes).groups
    assert group.sizes == {"d_model": 768, "h": 12, "h_kv": 12, "d_k": 64, "d_v": 64}


HEADS: dict[str, tuple[Callable[[Any], int], Callable[[Any], int]]] = {
    name: (lambda c: c.num_attention_heads, lambda c: c.hidden_size // c.num_attention_heads)
    for name in (
        "bert", "roberta", "electra", "gpt2", "opt", "bloom", "gpt_neox", "llama", "mistral", "phi",
        "phi3", "vit", "deit", "clip_vision_model", "falcon", "deberta", "xlnet", "gptj", "codegen",
    )
}  # fmt: skip
HEADS |= {
    name: (lambda c: c.num_attention_heads, lambda c: c.head_dim) for name in ("gemma", "qwen3")
}
HEADS["t5"] = (lambda c: c.num_heads, lambda c: c.d_kv)
HEADS["whisper"] = (
    lambda c: c.encoder_attention_heads,
    lambda c: c.d_model // c.encoder_attention_heads,
)
HEADS["deepseek_v3"] = (
    lambda c: c.num_attention_heads,
    lambda c: c.qk_nope_head_dim + c.qk_rope_head_dim,
)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.filterwarnings("ignore")
def test_the_names_of_a_library_are_understood(name: str) -> None:
    config = transformers.AutoConfig.for_model(name)
    for key in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"):
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, 1)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    state = {n: Tensor(n, tuple(v.shape), "F32") for n, v in model.state_dict().items()}
    report = DimsReport()
    Comparison(Checkpoint(name, state), sections(config.to_dict()), report).run()
    heads, width = (get(config) for get in HEADS[name])
    assert report.contradictions == []
    assert {(g.status, g.sizes["h"], g.sizes["d_k"]) for g in report.groups} == {
        ("solved", heads, width)
    }


def test_numbers_of_a_path_may_be_odd() -> None:
    names = ["9" * 5000, "9" * 4999 + "8", "²", "٣", "٤", "7"]
    shapes = {f"h.{n}.attn.{r}_proj.weight": (8, 8) for n in names for r in "qkv"}
    report = DimsReport()
    Comparison(checkpoint(shapes), [], report).run()
    assert [g.where for g in report.groups if g.count > 1] == ["h.3-4,7.attn"]
    assert sum(g.count for g in report.groups) == 6

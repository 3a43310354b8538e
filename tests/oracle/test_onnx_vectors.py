"""The reference against the golden vectors of ONNX's Attention operator, computed by others.

All node tests of the operator that ship with onnx are compared, in their output Y. Left out are
the "expanded" ones, whose vectors are those of the case without that suffix, and the further
outputs (caches, intermediate products), which are no attention. What the operator does around the
attention (cache, padded masks, 3-D layout) is done here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mha_lint.oracle.reference import attention, merge_heads, split_heads

onnx = pytest.importorskip("onnx", reason="the golden vectors come with the package onnx")

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
CASES = sorted(
    path.name for path in FOLDER.glob("test_attention_*") if not path.name.endswith("_expanded")
)


def load(name: str) -> tuple[dict[str, Tensor], dict[str, Any], Tensor]:
    """Return the inputs by formal name, the attributes and the golden Y of a case."""
    model = onnx.load(FOLDER / name / "model.onnx")
    (node,) = model.graph.node
    assert node.op_type == "Attention"
    formal = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
    data = FOLDER / name / "test_data_set_0"
    given = iter(sorted(data.glob("input_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2])))
    inputs = {f: tensor(next(given)) for f, used in zip(formal, node.input, strict=False) if used}
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return inputs, attributes, tensor(data / "output_0.pb")


def tensor(path: Path) -> Tensor:
    proto = onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    return torch.from_numpy(onnx.numpy_helper.to_array(proto).copy())


def additive_mask(inputs: dict[str, Tensor], t_k: int) -> Tensor | None:
    """Return the operator's masks as one additive part; what a short mask lacks is hidden."""
    mask, seen = inputs.get("attn_mask"), inputs.get("nonpad_kv_seqlen")
    additive: Tensor | None = None
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
        missing = t_k - mask.shape[-1]
        additive = torch.nn.functional.pad(mask.double(), (0, missing), value=-torch.inf)
    if seen is not None:
        beyond = torch.arange(t_k)[None] >= seen[:, None]
        hidden = torch.zeros(beyond.shape, dtype=torch.float64).masked_fill(beyond, -torch.inf)
        hidden = hidden[:, None, None, :]
        additive = hidden if additive is None else additive + hidden
    return additive


@pytest.mark.parametrize("name", CASES)
def test_reference_reproduces_the_golden_vector(name: str) -> None:
    inputs, attributes, golden = load(name)
    q, k, v = inputs["Q"], inputs["K"], inputs["V"]
    flat = q.dim() == 3
    if flat:
        q = split_heads(q, attributes["q_num_heads"])
        k = split_heads(k, attributes["kv_num_heads"])
        v = split_heads(v, attributes["kv_num_heads"])
    past = 0
    if "past_key" in inputs:
        past = inputs["past_key"].shape[2]
        k = torch.cat((inputs["past_key"], k), 2)
        v = torch.cat((inputs["past_value"], v), 2)
    context = attention(
        q,
        k,
        v,
        scale=attributes.get("scale"),
        additive=additive_mask(inputs, k.shape[2]),
        causal=bool(attributes.get("is_causal", 0)),
        causal_shift=past,
        softcap=attributes.get("softcap") or None,
    )
    found = merge_heads(context) if flat else context
    tolerance = 1e-3 if golden.dtype == torch.float16 else 1e-6
    assert found.shape == golden.shape
    assert (found - golden.double()).abs().max().item() <= tolerance


def test_no_case_got_lost() -> None:
    assert len(CASES) >= 63
    assert {"test_attention_4d_gqa_causal", "test_attention_3d_with_past_and_present"} <= set(CASES)

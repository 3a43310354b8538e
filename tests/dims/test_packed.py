"""Adapters and quantised weights: their stored shapes are never taken for widths."""

from __future__ import annotations

from typing import Any

Shapes = dict[str, tuple[int, ...]]
CONFIG = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
ROWS = {"q_proj": 4096, "k_proj": 1024, "v_proj": 1024, "o_proj": 4096}
AT = "model.layers.0.self_attn"


def stored(parts: dict[str, tuple[Any, ...]]) -> Shapes:
    """Return the tensors of all four projections; "r" stands for the rows of each."""

    def size(value: Any, rows: int) -> int:
        return int(value(rows)) if callable(value) else int(value)

    return {
        f"{AT}.{p}.{end}": tuple(size(v, rows) for v in shape)
        for p, rows in ROWS.items()
        for end, shape in parts.items()
    }


def same(rows: int) -> int:
    return rows


def eighth(rows: int) -> int:
    return rows // 8


GPTQ = stored(
    {"qweight": (512, same), "scales": (32, same), "qzeros": (32, eighth), "g_idx": (4096,)}
)
AWQ = stored({"qweight": (4096, eighth), "scales": (32, same), "qzeros": (32, eighth)})


def test_gptq_and_awq_widths_come_from_the_scales(workshop: Any) -> None:
    for shapes in (GPTQ, AWQ):
        dtypes = {n: "I32" for n in shapes if n.endswith(("qweight", "qzeros", "g_idx"))}
        report = workshop.diagnose(CONFIG, shapes, dtypes=dtypes)
        (group,) = report.groups
        assert report.contradictions == []
        assert group.sizes == {"d_model": 4096, "h": 32, "h_kv": 8, "d_k": 128, "d_v": 128}
        assert report.notes[0] == (
            f"{AT}: k_proj, q_proj, v_proj, o_proj: packed (qweight, scales): stored shapes are no widths; "
            "known: k_proj 1024 rows, q_proj 4096 rows, v_proj 1024 rows, o_proj 4096 rows"
        )


def test_a_packed_checkpoint_still_contradicts_a_config(workshop: Any) -> None:
    report = workshop.diagnose(CONFIG | {"num_key_value_heads": 32}, GPTQ)
    (found,) = report.contradictions
    assert "that is 32 query and 8 key/value heads" in found.message
    assert "k_proj (1024, 4096) by its packed (qweight, scales) tensors" in found.message


def test_four_bit_weights_hold_so_many_numbers(workshop: Any) -> None:
    shapes = {
        n: s
        for p, rows in ROWS.items()
        for n, s in {
            f"{AT}.{p}.weight": (rows * 4096 // 2, 1),
            f"{AT}.{p}.weight.absmax": (rows * 64,),
            f"{AT}.{p}.weight.quant_map": (16,),
            f"{AT}.{p}.weight.quant_state.bitsandbytes__nf4": (80,),
        }.items()
    }
    dtypes = {n: "U8" for n in shapes if n.endswith(("weight", "nf4"))}
    report = workshop.diagnose(CONFIG, shapes, dtypes=dtypes)
    (group,) = report.groups
    assert report.contradictions == []
    assert (group.status, group.sizes["h"], group.sizes["h_kv"]) == ("solved", 32, 8)
    wrong = workshop.diagnose(CONFIG | {"num_key_value_heads": 32}, shapes, dtypes=dtypes)
    assert "32 query and 8 key/value heads" in wrong.contradictions[0].message
    alone = workshop.diagnose(None, shapes, dtypes=dtypes)
    assert alone.contradictions == []
    assert alone.groups[0].status == "open"


def test_int8_keeps_its_shape(workshop: Any) -> None:
    shapes = stored({"weight": (same, 4096), "SCB": (same,)})
    report = workshop.diagnose(CONFIG, shapes, dtypes={n: "I8" for n in shapes if "weight" in n})
    assert report.groups[0].sizes["h_kv"] == 8


def test_packed_integers_without_companions_say_nothing(workshop: Any) -> None:
    shapes = stored({"weight": (same, 512)})
    report = workshop.diagnose(CONFIG, shapes, dtypes=dict.fromkeys(shapes, "I32"))
    assert report.contradictions == []
    assert any("stored shapes are no widths; known: no width" in n for n in report.notes)


def test_an_adapter_of_two_projections(workshop: Any) -> None:
    at = "base_model.model.model.layers.{}.self_attn"
    shapes = {
        f"{at.format(i)}.{p}.lora_{side}.weight": shape
        for i in range(2)
        for p, rows in (("q_proj", 4096), ("v_proj", 1024))
        for side, shape in (("A", (16, 4096)), ("B", (rows, 16)))
    }
    report = workshop.diagnose(CONFIG, shapes)
    (group,) = report.groups
    assert report.contradictions == []
    assert group.sizes == {"d_model": 4096, "h": 32, "h_kv": 8, "d_k": 128, "d_v": 128}
    wrong = workshop.diagnose(CONFIG | {"hidden_size": 5120}, shapes)
    assert wrong.contradictions[0].message == (
        "q_proj (4096, 4096) by its LoRA tensors: that is d_model 4096, the config says hidden_size = 5120"
    )


def test_a_width_of_0_is_none(workshop: Any) -> None:
    report = workshop.diagnose(
        {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 0},
        {
            "a.q_proj.weight": (64, 64),
            "a.k_proj.weight": (64, 0, 8),
            "a.v_proj.lora_B.weight": (0, 4),
            "b.qkv_proj.weight": (192, 64),
            "b.o_proj.weight": (64, 64),
        },
    )
    assert "config num_key_value_heads = 0: it must be positive" in [
        c.message for c in report.contradictions
    ]


def test_a_packed_weight_without_any_axis_is_no_projection(workshop: Any) -> None:
    report = workshop.diagnose(
        None,
        {"a.q_proj.weight": (), "a.q_proj.weight_scale": (4, 4), "a.k_proj.weight": (4, 4)},
        dtypes={"a.q_proj.weight": "U8"},
    )
    assert report.contradictions == []

"""Configs and checkpoints as they should not be, for ``mha-lint dims``: nothing of them is true."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from mha_lint.dims import report_json, report_text
from mha_lint.dims.config import ALIASES, LAYERS, PARTS, ROTARY_PLACES, ROTARY_SHARE, ROTARY_WIDTH
from mha_lint.dims.data import SourceError
from mha_lint.dims.diagnose import diagnose
from mha_lint.report.view import View
from tests.fuzz.parsers_watch import one_line, pick, require

NUMBERS = (
    0, 1, 2, 3, 7, 8, 12, 64, 96, 128, 768, 1024, 4096, 12288, -1, -64, 2**31, 2**44, 2**47, 2**48 - 1,
    2**53, 2**61 - 1, 2**63, 2**64, 1000000007 * 998244353, 10**30, 10**400, 10**4000, 614889782588491410,
)  # fmt: skip
SIZES = (0, 1, 2, 3, 8, 12, 64, 96, 128, 768, 1024, 2304, 3072, 4096, 2**31, 2**47, 281474976710597)
KEYS = (
    *(k for keys in ALIASES.values() for k in keys), *LAYERS, *ROTARY_WIDTH, *ROTARY_SHARE, *ROTARY_PLACES,
    *PARTS, "encoder_attention_heads", "num_global_key_value_heads", "swa_head_dim", "mrope_section",
    "multi_query", "new_decoder_architecture", "attn_type", "rope_theta", "text_config", "vision_config",
    "per_layer_config", "0", "1", "²", "٣", "9" * 30, "9" * 5000, "", "x.y", "\ud800", "\x1b[31m\n",
    "weight_map", "decoder_hidden_size", "_heads", "num__heads", "architectures", "qk_head_dim",
)  # fmt: skip

_leaves = pick(NUMBERS) | pick(
    (None, True, False, 0.5, 1.5, 1e308, float("inf"), float("nan"), -0.0, "", "8", "multihead_attention",
     "multiquery_attention", [], {}, [8, 8], [16, 24, 24], [0], [2**70] * 3, [10**4299] * 12, [[8]])
)  # fmt: skip
_objects: SearchStrategy[Any] = st.recursive(
    st.dictionaries(pick(KEYS), _leaves, max_size=8),
    lambda inner: st.dictionaries(pick(KEYS), inner | _leaves, max_size=6),
    max_leaves=6,
)


def _plain(draw: DrawFn) -> dict[str, Any]:
    """Return a config that is nearly sound, so that what follows is reached."""
    keys = draw(st.lists(pick(sorted(ALIASES)), max_size=6, unique=True))
    return {ALIASES[k][draw(st.integers(0, 1)) % len(ALIASES[k])]: draw(_leaves) for k in keys}


@st.composite
def configs(draw: DrawFn) -> bytes:
    """Return the bytes of a config file."""
    value = {**_plain(draw), **draw(_objects)}
    data = json.dumps(value).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 11)):
        case 0:
            data = draw(pick((b"[" * 99999, b'{"a":' * 9999, b"", b"null", b"[]", b"1" * 5000)))
        case 1:
            at = draw(st.integers(0, len(data)))
            data = data[:at] + draw(st.binary(max_size=4)) + data[at:]
        case 2:
            data = b"\xef\xbb\xbf" + data
        case 3:
            data = data.decode("utf-8", "replace").encode("utf-16")
        case _:
            pass
    return data


_PLACES = (
    "", "a", "layers.0.self_attn", "layers.1.self_attn", "layers.².attn", "layers.٣.attn", "h.0.attn", "self",
    "encoder.layer.0.attention.self", "decoder.layers.0.encoder_attn", "heads.0", "heads.1", "x" * 3000,
    "layers." + "9" * 30, "layers." + "9" * 5000 + ".attn", ".".join("a" * 2000), "..", "\x1b[31m\n", "\ud800",
    "attn_heads.0", "attn_heads.1", "model.layers.00.attn", "model.layers.0.attn",
)  # fmt: skip
_PARTS = (
    "q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "qkv", "in_proj_weight", "in_proj_bias", "c_attn",
    "kv_b_proj", "kv_a_proj_with_mqa", "q_a_proj", "q_b_proj", "q_norm", "k_norm", "to_q", "to_kv", "query",
    "key", "value", "dense", "A_log", "sinks", "rotary_emb.inv_freq", "logit_scale", "qk", "wq", "pos_bias_u",
    "relative_attention_bias", "wo", "norm", "fc", "",
)  # fmt: skip
_ENDS = (
    ".weight", ".weight", ".weight", ".bias", ".lora_A.weight", ".lora_B.weight", ".qweight", ".scales",
    ".qzeros", ".weight_packed", ".weight_scale", ".absmax", ".ia3_l", "", ".base_layer.weight", ".0.weight",
    ".weight.quant_state.bitsandbytes__nf4", ".kernel", ".default.x.y.z.weight",
)  # fmt: skip
_names = st.builds(
    lambda place, part, end: f"{place}.{part}{end}".lstrip("."),
    pick(_PLACES), pick(_PARTS), pick(_ENDS),
)  # fmt: skip
_shapes = st.lists(pick(SIZES), max_size=3) | pick(
    (
        [768, 768],
        [2304, 768],
        [768, 2304],
        [4096, 4096],
        [1024, 4096],
        [1, 1, 1],
        [1] * 17,
        [2**47] * 16,
    )
)
_dtypes = pick(("F16", "F16", "F32", "U8", "I8", "I32", "F4", "BOOL", "C64", "X9", "", "é"))


@st.composite
def headers(draw: DrawFn) -> bytes:
    """Return the bytes of a .safetensors file, whose header may lie."""
    entries: dict[str, Any] = {}
    begin = 0
    same = draw(pick((None, None, *_PLACES)))
    for _ in range(draw(st.integers(0, 9))):
        name = draw(_names)
        if same is not None:
            name = f"{same}.{draw(pick(_PARTS))}{draw(pick(_ENDS))}".lstrip(".")
        shape, dtype = draw(_shapes), draw(_dtypes)
        bits = {"F16": 16, "F32": 32, "I32": 32, "F4": 4, "C64": 64}.get(dtype, 8)
        numbers = 1
        for size in shape:
            numbers *= size
        end = begin + (numbers * bits + 7) // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    if entries and draw(st.integers(0, 4)) == 0:
        broken = draw(pick(sorted(entries)))
        key = draw(pick(("dtype", "shape", "data_offsets", "x")))
        wrong = draw(
            _leaves | pick(([-1, 2], [2, 1], [0, 2**64], [[1], [2]], [1.0, 2.0], [True, 1]))
        )
        entries[broken][key] = wrong
    text = json.dumps(entries).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 11)):
        case 0:
            text = draw(
                pick((b"[" * 99999, b'{"a":' * 9999, b"{}", b"[]", b"", b'{"a":1,"a":2}', b"\xff"))
            )
        case 1:
            return draw(st.binary(max_size=20))
        case 2:
            length = draw(pick((0, 7, 10**8, 10**8 + 1, 2**63, 2**64 - 1, 99_999_999)))
            return struct.pack("<Q", length) + text
        case _:
            pass
    padding = int(draw(pick((0, 0, 8, 100))))
    return struct.pack("<Q", len(text)) + bytes(text) + b"\0" * padding


def _state(draw: DrawFn) -> Any:
    """Return what a training script may have saved."""
    import torch

    tensors: dict[Any, Any] = {}
    for _ in range(draw(st.integers(0, 5))):
        shape = draw(st.lists(pick((0, 1, 2, 3, 8, 24)), max_size=3))
        tensors[draw(_names)] = torch.zeros(shape)
    odd = draw(pick((None, 1, "x", [1], {"a": 1}, (2, 3), 1.5, {"state_dict": {}})))
    if odd is not None:
        tensors[draw(pick(("state_dict", "model", 3, None, (1, 2))))] = odd
    for key in draw(st.lists(pick(("state_dict", "model", "x")), max_size=5)):
        tensors = {key: tensors}
    return tensors


def _bombs() -> dict[str, Callable[[], bytes]]:
    """Return pickles that grow when they are read, or when they are shown."""
    doubled = b"]" + b"".join(b"2a" for _ in range(3))
    deep = b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."
    tuples = b"\x80\x02)" + b"2\x86" * 60 + b"."
    return {
        "deep": lambda: deep,
        "laughs": lambda: tuples,
        "doubled": lambda: b"\x80\x02" + doubled + b".",
        "long": lambda: b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b".",
        "negative": lambda: b"\x80\x02\x8b" + struct.pack("<i", -5) + b".",
        "string": lambda: b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x.",
        "bytes": lambda: b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",
        "frame": lambda: b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"N.",
        "memo": lambda: b"\x80\x02Nr\xff\xff\xff\xff.",
        "global": lambda: b"cos\nsystem\n(S'true'\ntR.",
        "power": lambda: b"\x80\x02cbuiltins\npow\nK\x02J\xff\xff\xff\x7f\x86R.",
        "bytearray": lambda: b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        "key": lambda: b"\x80\x02}" + b")" + b"2\x86" * 40 + b"Ns.",
        "state": lambda: b"\x80\x02}(X\x05\x00\x00\x00modelh\x00u.",
        "loop": lambda: b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s.",
    }


@st.composite
def states(draw: DrawFn) -> bytes:
    """Return the bytes of a file of torch.save, or of one that looks like it."""
    import torch

    bombs = _bombs()
    buffer = io.BytesIO()
    match draw(st.integers(0, 5)):
        case 0:
            pickled = bombs[draw(pick(sorted(bombs)))]()
            if draw(st.booleans()):
                return pickled
            kind = draw(pick((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
            with zipfile.ZipFile(buffer, "w", kind) as archive:
                archive.writestr("archive/data.pkl", pickled)
                archive.writestr("archive/version", "3\n")
            return buffer.getvalue()
        case 1:
            return pickle.dumps(draw(pick(([1], {"a": 1}, None, "x" * 99, 2**5000))))
        case 2:
            return draw(st.binary(max_size=64))
        case _:
            pass
    legacy = draw(st.booleans())
    torch.save(_state(draw), buffer, _use_new_zipfile_serialization=not legacy)
    data = bytearray(buffer.getvalue())
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(
            st.binary(max_size=5) | pick((b"\xff" * 4, b"\0" * 8))
        )
    return bytes(data)


@st.composite
def indices(draw: DrawFn) -> bytes:
    """Return the bytes of an index of shards."""
    names = draw(
        st.dictionaries(
            _names,
            pick(("a.safetensors", "b.bin", "config.json", "../x", "", ".", "..", "/dev/zero", "\0", "x\n",
                             "n" * 300, "pipe.safetensors", "loop.bin", 3, None, "index.safetensors.index.json")),
            max_size=4,
        )
    )  # fmt: skip
    return json.dumps({"weight_map": names, "metadata": draw(_leaves)}).encode()


def check_config(data: bytes, folder: Path) -> None:
    """Diagnose a config."""
    (folder / "config.json").write_bytes(data)
    _diagnosed([folder / "config.json"])


def check_header(data: bytes, folder: Path) -> None:
    """Diagnose a checkpoint, alone and with a config."""
    (folder / "model.safetensors").write_bytes(data)
    (folder / "config.json").write_text(
        '{"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 0, "head_dim": 4096}'
    )
    _diagnosed([folder / "model.safetensors"])
    _diagnosed([folder])


def check_both(case: tuple[bytes, bytes], folder: Path) -> None:
    """Diagnose a checkpoint with a config, where both may lie."""
    (folder / "config.json").write_bytes(case[0])
    (folder / "model.safetensors").write_bytes(case[1])
    _diagnosed([folder / "config.json", folder / "model.safetensors"])


def check_state(data: bytes, folder: Path) -> None:
    """Diagnose what torch.save may have written."""
    (folder / "model.pt").write_bytes(data)
    _diagnosed([folder / "model.pt"])


def check_index(data: bytes, folder: Path) -> None:
    """Diagnose an index of shards."""
    import os

    (folder / "model.safetensors.index.json").write_bytes(data)
    (folder / "a.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    os.mkfifo(folder / "pipe.safetensors")
    (folder / "loop.bin").symlink_to("loop.bin")
    _diagnosed([folder / "model.safetensors.index.json"])
    _diagnosed([folder])
    os.mkfifo(folder / "config.json")
    _diagnosed([folder / "config.json"])


def _diagnosed(paths: list[Path]) -> None:
    try:
        report = diagnose(paths)
    except SourceError as error:
        one_line(str(error))
        require(str(paths[0].parent) in str(error), "a message without the file's name")
        return
    text = report_json.render(report)
    require(text == report_json.render(diagnose(paths)), "two results for one file")
    loaded = json.loads(text, parse_constant=lambda name: require(False, f"{name} in JSON"))
    require(loaded["exit_code"] in (0, 1, 2), "no exit code")
    shown = report_text.render(report, View(str(paths[0].parent)))
    require(
        all(c.isprintable() or c == "\n" or c > "\x9f" for c in shown),
        "control characters in a report",
    )
    for found in report.contradictions:
        require(
            "\n" not in found.message and bool(found.message), "a contradiction of several lines"
        )
    require(all("\n" not in note for note in report.notes), "a note of several lines")

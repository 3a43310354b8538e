"""Kinds of inputs by the names that forwards give them."""

from __future__ import annotations

import re

from mha_lint.targets.words import words

MASK = re.compile(r"mask|padding|^pad|valid$|keep$|^keep")
BIAS = re.compile(r"bias|rel_pos$|relative_pos|pos_emb|alibi")
IDS = re.compile(
    r"(^|_)(ids?|idx|idxs|tokens?|indices|labels?|targets?|seqs?)$|^(input_ids|idx|token)|segment"
)
POSITIONS = re.compile(r"position|^pos(_ids|ition)?$|^pos$|offsets$")
LENGTHS = re.compile(r"len(gth)?s$|^n_valid|_lengths?$|^valid_lens?$|prefix_len|lens")
SIZES = re.compile(
    r"^(h|w|height|width|n|t|seq_len|length|size|start_pos|start|offset|step|layer_idx|num_\w+|"
    r"batch_size|cur_pos|index|i|l|q_len|patch_h|patch_w|n_\w+|window|h_?w|level|layer|max_len)$"
)
CROSS = re.compile(
    r"memory|context|^ctx|^enc|encoder_|^kv|^key|^k$|^value|^v$|cond|^text|^mem$|^src_kv|source|"
    r"latents?$|^y$|^z$|other|reference|_kv$|^ks$|^vs$|keys|values|cross|^m$|support|image_feat"
)
TARGET = re.compile(r"^(tgt|trg|target|query|q|queries|dec)")
EDGES = re.compile(r"^(edge_?(index|idx|indices|list)|edges)$")
PAIRS = re.compile(r"matri(x|ces)$|^adj|affinity|pairwise|^dist(ances?)?$")
OF_EDGES = re.compile(r"^(edge|link|bond)_\w+$|^relations?$")
KINDS = re.compile(r"_(type|types|id|ids|label|labels|kind)$")
QKV = re.compile(
    r"^(q|k|v|query|key|value|queries|keys|values|qs|ks|vs)(_(layer|states?|tensor))?$"
)
COSINE = re.compile(r"(^|_)(cos|sin)(_|$)")
CACHE = re.compile(r"past|cache|^state$|^prev|hist|_mem$")
HALF = re.compile(r"^(k|v|key|value|keys|values)_|_(k|v|key|value|keys|values)$")
ROTARY = re.compile(r"freqs|rotary|rope|^cos$|^sin$|^cos_|^sin_|cis")
TIME = re.compile(r"^(temb|time_emb|t_emb|emb|time|timesteps?|sigma)$")
FLAG = re.compile(r"^(use|is|return|need|need_weights|causal|training|output)(_|$)|_first$|causal")
SIZE_NAMES = {
    "H": words("h height patch_h"),
    "W": words("w width patch_w"),
    "T": words("n t seq_len length l q_len max_len"),
    "B": words("batch_size"),
    "h": words("num_heads n_heads"),
}
"""Axis symbols by the names of ints that say how long the axis is."""

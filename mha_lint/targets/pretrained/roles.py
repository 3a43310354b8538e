"""What an integer of a config counts, told by its key: a first guess, which building corrects."""

from __future__ import annotations

import enum
import re


class Role(enum.StrEnum):
    """What is counted, which decides how it is made smaller."""

    WIDTH = "widths"
    HEADS = "heads"
    KV_HEADS = "key/value heads"
    HEAD_DIM = "head dims"
    SECTION = "rotary sections"
    LAYERS = "layers"
    DEPTHS = "blocks of stages"
    LAYER_INDEX = "layer indices"
    THRESHOLD = "layer thresholds"
    TAIL = "last layers"
    PERIOD = "layer periods"
    VOCABULARY = "vocabularies"
    TOKEN = "token ids"
    POSITIONS = "positions"
    WINDOW = "windows"
    TILE = "windows of images"
    EXPERTS = "experts"
    CHOSEN = "chosen experts"
    GROUPS = "groups of experts"
    CHOSEN_GROUPS = "chosen groups"
    IMAGE = "images"
    PATCH = "patches"
    PATCHES = "numbers of patches"
    QUERIES = "learned queries"
    CODEBOOKS = "code books"
    FRAMES = "frames"
    CODES = "codes"
    NORM_GROUPS = "groups of channels"
    KEEP = "kept"


_RULES: tuple[tuple[Role, str], ...] = (
    (Role.KEEP, r"kernel|padding|dilation|sampling_rate|hop_length|max_new|num_channels|^seed$"
                r"|loss|cost|_ignore_|coefficient|chunk_size_feed|mask_time|mask_feature_(l|m)"
                r"|num_feat_extract|num_conv_pos|conv_layers|lstm_layers|temporal_patch|tubelet"
                r"|type_vocab|pretraining_tp|num_nextn|mel_bins|attention_types|window_layers_ty"
                r"|_d_conv|conv_L|n_fft|min_position|dt_rank|time_step"
                r"|audio_channels|merge_size|shuffle|scale_factor|upsampl(?!e_groups)|downsampl|subsampl"
                r"|compress|mlp_ratio|expan|_factor$|hc_|altup|_mult$|gate_rank$|adapter_layers"
                r"|conv_stride|adaptor_stride|^strides?$|patch_padding|num_fpn|feature_levels"
                r"|feat_strides|n_points|bucket|distance|bins$|speaker"),
    (Role.SECTION, r"(^|_)(m?rope_)?sections?$|_sections?$"),
    (Role.TOKEN, r"token_ids?$|token_index$|token_idx$|_token_id_|^(bos|eos|pad|unk|mask|cls|sep)_index$"
                 r"|(?<!per)_token$|start_id$|end_id$"),
    (Role.CODES, r"codebook_size"),
    (Role.VOCABULARY, r"vocab|num_embeddings$|^n_words$|head_out_channels|vocab_offset"
                      r"|num_codevectors|num_ctc_classes|token_offset|^bins$"),
    (Role.CHOSEN_GROUPS, r"topk_group|moe_topk_group|top_k_group"),
    (Role.GROUPS, r"^(moe_)?n_groups?$|^num_expert_group|^moe_n_group"),
    (Role.NORM_GROUPS, r"(^|_)groups$"),
    (Role.CHOSEN, r"experts_per_tok|per_token$|moe_top_?k|^top_?k(_experts)?$|moe_k$|num_selected_experts"
                  r"|num_experts_per|router_topk"),
    (Role.KEEP, r"shared_experts?$|experts_interval|expert_capacity"),
    (Role.EXPERTS, r"^(moe_)?(num|n)_(routed_|local_|zero_)?experts?$|(num|n)_(routed|local)_experts"
                   r"|ffn_num_experts|^num_experts$|moe_num_experts$|zero_expert_num"),
    (Role.PERIOD, r"_period$|_offset$|(_|^)pattern$|_interval$|every_(n|k)|every$|_sparse_step$|layer_step$"
                  r"|_frequency$|layer_freq$|_stride_layers$"),
    (Role.TAIL, r"kv_shared_layers"),
    (Role.THRESHOLD, r"first_k_dense|first_k|max_window_layers|merge_index|num_dense_layers"
                     r"|num_hash_layers|insert_layer"
                     r"|layer_index_(start|end)|start_layer|dense_prefix|num_dense"),
    (Role.LAYER_INDEX, r"ind(ices|exes)$|_idxs$|feature_layers?$|select_layer$|cross_attention_layers$"
                       r"|attn_layers?$|(layers?|hook)_ids?$|hybrid_layer|moe_layers$|_blocks$(?<!num_blocks)"
                       r"(?<!^n_blocks)|rope_(scaling_)?layers$|source_layers$|subsample_layers"),
    (Role.DEPTHS, r"^depths?$|blocks_per_stage|stage_num_blocks|num_blocks|layer_depths|numb_of_layers"),
    (Role.LAYERS, r"(^|_)(num|n)_.*(layers?|blocks?)$|^(n_)?layers?$|_layers$|^depth$|_depth$(?<!max_depth)"
                  r"(?<!min_depth)|^num_layers"),
    (Role.KV_HEADS, r"key_value_heads|kv_heads|kv_n_heads|n_head_kv|multi_query_group|num_kv"
                    r"|num_key_value(?!_groups)"),
    (Role.HEAD_DIM, r"head_dim|head_size|d_kv$|(^|_)d_head$|kv_channels|rotary_dim|dim_head"
                    r"|dim_per_head|head_width"),
    (Role.HEADS, r"(^|_)(n|num|n_self|self)_?heads?$|attention_heads|num_heads|n_heads?$|heads?_per_stage"
                 r"|_heads$|^nhead"),
    (Role.TILE, r"^window_size|window_size_per|_window_size$"),
    (Role.WINDOW, r"window|local_attention|attention_chunk|^chunk_size$|_chunk_size$|^block_size$|_block_size$"
                  r"|local_radius|global_block|chunk_length$|context_(left|right|size)|lookback"
                  r"|index_topk|topk_tokens|^mamba_chunk"),
    (Role.PATCHES, r"feature_sizes|feat_sizes|image_embedding_size"
                   r"|image_seq_len|num_patches|tokens_per_image|num_image_tokens|num_position_embeddings"
                   r"|video_seq_len|position_embedding_size|num_soft_tokens"),
    (Role.IMAGE, r"image_size|img_size|input_resolution|crop_size|input_size$|image_width|image_height"),
    (Role.PATCH, r"patch_size|patch_stride|^patch$|patch_sizes"),
    (Role.QUERIES, r"^num_queries|num_query_tokens|num_latents|n_latents|query_num|num_denoising|train_num_points"
                   r"|query_length"),
    (Role.CODEBOOKS, r"num_(residual_)?(codebooks|quantizers)$"),
    (Role.FRAMES, r"^num_frames$|frames_per_clip"),
    (Role.POSITIONS, r"position_embeddings|n_positions|n_ctx|max_seq|seq_len|max_position|source_positions"
                     r"|target_positions|max_length|seq_length|rel_extent|max_pos_emb|num_positions"
                     r"|context_length"),
    (Role.WIDTH, r"hidden|embed|embd|emb_dim|(^|_)dim|size|width|channels?$|d_model|d_ff|ffn|inner|rank"
                 r"|filters|planes|units|proj|intermediate|(^|_)dims?$|channel|_nf$|mlp|features$"
                 r"|conv_dim|d_state$|state_size|_ssm$"),
)  # fmt: skip

_COMPILED = [(role, re.compile(pattern)) for role, pattern in _RULES]
SMALL = 16
"""A width of up to this stays."""


def role_of(key: str, value: int, in_list: bool = False) -> Role:
    """Return what the integer under `key` counts."""
    name = key.lower()
    for role, pattern in _COMPILED:
        if not pattern.search(name):
            continue
        if role is Role.WIDTH and value <= SMALL:
            return Role.KEEP
        if role is Role.NORM_GROUPS and value >= 64:
            return Role.WIDTH
        if role is Role.DEPTHS and not in_list:
            return Role.LAYERS
        if role is Role.LAYERS and in_list:
            return Role.DEPTHS
        if role is Role.LAYER_INDEX and not in_list and re.search(r"(num|n)_", name):
            return Role.LAYERS
        return role
    return Role.KEEP

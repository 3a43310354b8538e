"""What a parameter or config field is, by its name. Names are hints: what a body does with a
parameter, and the errors of a first run, overrule them.
"""

from __future__ import annotations

import enum
import functools
import re


class Role(enum.StrEnum):
    """What a constructor argument or config entry sets."""

    WIDTH = "width"
    HEADS = "heads"
    KV_HEADS = "kv-heads"
    HEAD_DIM = "head-dim"
    LENGTH = "length"
    SOURCE = "source"
    VOCABULARY = "vocabulary"
    CLASSES = "classes"
    LAYERS = "layers"
    INNER = "inner"
    RATIO = "ratio"
    RATE = "rate"
    FLAG = "flag"
    CAUSAL = "causal"
    SIDE = "side"
    WINDOW = "window"
    PATCH = "patch"
    KERNEL = "kernel"
    STEP = "step"
    GROUPS = "groups"
    COUNT = "count"
    RANK = "rank"
    INDEX = "index"
    CHUNK = "chunk"
    BATCH = "batch"
    EPSILON = "epsilon"
    BASE = "base"
    SCALE = "scale"
    SPREAD = "spread"
    NORM = "norm"
    ACTIVATION = "activation"
    LABEL = "label"
    DTYPE = "dtype"
    DEVICE = "device"
    CONFIG = "config"
    NONE = "none"
    MODULE = "module"


_EXACT: dict[Role, str] = {
    Role.HEADS: """heads head h n_heads n_head num_heads num_head nheads nhead nh
        num_attention_heads num_attn_heads attention_heads attn_heads attn_head head_num
        heads_num head_count n_attn_heads n_attention_heads number_of_heads numheads no_heads
        multi_head nb_heads num_query_heads n_q_heads query_heads num_q_heads q_heads
        encoder_attention_heads decoder_attention_heads heads_count nr_heads num_hds""",
    Role.KV_HEADS: """kv_heads n_kv_heads num_kv_heads num_key_value_heads n_kv_head kv_head
        num_kv_head n_kv kv_groups num_groups_kv nkv n_local_kv_heads num_query_groups
        n_query_groups num_kv_groups key_value_heads n_groups_kv""",
    Role.HEAD_DIM: """head_dim dim_head head_size d_head d_k d_v d_kv dk dv kv_channels per_head
        head_width dim_per_head head_channels num_head_channels key_size value_size
        attention_head_dim attention_head_size qk_head_dim v_head_dim size_per_head hd
        head_features kv_dim_head dim_heads dims_per_head head_hidden_size key_channels_per_head
        d_q dq hidden_per_head""",
    Role.WIDTH: """dim d_model model_dim dmodel embed_dim embedding_dim emb_dim emb embed
        emb_size embed_size embedding_size hidden hidden_size hidden_dim hid_dim hid hsize
        n_embd n_embed n_emb d_embed d_hidden width channels channel in_channels in_channel
        inplanes planes c dims dim_in in_dim in_features input_dim input_size d_in n_feat
        n_feats num_features features feature_dim feat_dim feat feats size d e n_units units
        n_model n_hidden num_hidden nhid ninp num_channels in_planes query_dim q_dim key_dim
        k_dim kdim value_dim v_dim vdim d_qkv qk_dim context_dim cross_attention_dim ctx_dim
        memory_dim latent_dim lat_dim encoder_dim decoder_dim enc_dim dec_dim dim_out out_dim
        out_channels out_channel output_dim out_features output_size d_out n_out n_in dim_model
        model_size model_width attn_dim att_dim attention_dim proj_dim hidden_channels base_dim
        token_dim node_dim state_dim x_dim cin cout in_width out_width inner_dim_total kv_dim
        encoder_hidden_size text_dim image_dim vis_dim visual_dim lang_dim audio_dim qkv_dim
        atom_dim edge_dim pair_dim msa_dim residual_dim in_size d_emb dimension embedding
        n_state n_dims num_hiddens query_size in_ch out_ch ch mid_channels adim idim odim
        embed_dims attention_size img_dim tgt_dim src_dim in_feats out_feats dim_q dim_k dim_v
        dim_context""",
    Role.LENGTH: """length seq_len seq_length seqlen max_len max_length maxlen max_seq_len
        max_seq_length max_sequence_length sequence_length block_size block ctx_len
        context_length context_len context_size context n_ctx ctx n_positions
        max_position_embeddings max_positions max_tokens num_tokens n_tokens tokens num_patches
        n_patches num_patch patches time_steps timesteps input_length in_len target_len n_points
        num_points points max_t t num_frames n_frames frames max_context_length num_positions
        max_seqlen max_pos nodes num_nodes n_nodes q_len tgt_len pred_len max_relative_position
        max_rel_pos n_seq sequence_len max_distance""",
    Role.SOURCE: """src_len source_len kv_len memory_len mem_len src_seq_len context_tokens""",
    Role.VOCABULARY: """vocab vocab_size n_vocab vocabulary_size ntoken ntokens num_embeddings
        src_vocab_size tgt_vocab_size trg_vocab_size input_vocab_size target_vocab_size
        src_vocab tgt_vocab n_src_vocab n_trg_vocab num_vocab voc_size n_token vsize vocabulary
        dict_size padded_vocab_size""",
    Role.CLASSES: """num_classes n_classes nclass n_class num_labels classes num_class nclasses""",
    Role.LAYERS: """layers n_layers n_layer num_layers num_layer depth num_hidden_layers nlayers
        n_blocks num_blocks blocks num_encoder_layers num_decoder_layers n_block enc_layers
        dec_layers encoder_layers decoder_layers stages n stack_size block_num nlayer repeat
        num_repeats""",
    Role.INNER: """dim_feedforward d_ff ff_dim dff d_inner mlp_dim ffn_dim ff_hidden
        intermediate_size hidden_features inner_dim ffn_hidden ff_size ffn_size mlp_hidden d_ffn
        pf_dim feedforward_dim forward_dim fc_dim ff d_mlp mlp_size ffn_embed_dim feedforward
        dim_ff filter_size mlp_hidden_dim ffn_dim_hidden encoder_ffn_dim inner_size n_inner
        d_feedforward ffn_hidden_size ff_inner hidden_ff""",
    Role.RATIO: """mlp_ratio expansion expand ff_mult mult mlp_ratios forward_expansion
        expansion_factor ffn_ratio ff_expansion expansion_ratio ff_ratio mlp_mult""",
    Role.RATE: """dropout drop p p_drop dropout_p attn_drop attn_dropout proj_drop drop_rate
        drop_path attention_dropout dropout_rate resid_pdrop attn_pdrop embd_pdrop drop_prob
        dropout_prob hidden_dropout_prob attention_probs_dropout_prob resid_dropout
        residual_dropout pdrop embed_dropout ff_dropout emb_dropout qkv_drop drop_path_rate
        dropatt rate do dp att_dropout attn_p proj_p attention_dropout_rate layer_dropout
        hidden_dropout dropout_ratio attn_drop_rate proj_drop_rate activation_dropout keep_prob
        pdropout""",
    Role.CAUSAL: """causal is_causal autoregressive masked mask use_mask decoder is_decoder
        unidirectional mask_flag apply_mask mask_future causal_mask""",
    Role.SIDE: """img_size image_size resolution input_resolution feat_size fmap_size
        feature_size spatial map_size grid_size grid height fmap h_size w_size image_resolution
        spatial_size hw image_height image_width img_h img_w fmap_res feature_map_size input_hw
        shape""",
    Role.WINDOW: """window_size window win_size ws win local_window_size sliding_window
        attention_window""",
    Role.PATCH: "patch_size patch p_size stride_patch patch_len",
    Role.KERNEL: "kernel_size kernel ksize k_size kernel_sizes conv_kernel_size",
    Role.STEP: """stride dilation sr_ratio reduction_ratio dilation_rate reduction downsample
        sr_ratios pool_size r_ratio kv_stride q_stride stripe""",
    Role.GROUPS: "groups num_groups n_groups norm_groups norm_num_groups group",
    Role.COUNT: """num_latents n_latents num_queries n_queries num_mem n_mem mem_tokens
        memory_tokens num_registers rank r lora_rank k topk top_k num_experts n_experts experts
        num_clusters num_landmarks landmarks num_branches n_points_attn num_levels n_levels
        num_scales num_memory_slots slots num_slots num_seeds n_global num_global buckets
        num_buckets n_hashes relative_attention_num_buckets""",
    Role.RANK: "spatial_dims spatial_dim num_dims num_spatial_dims ndim ndims n_dim dimensions",
    Role.INDEX: """layer_idx layer_id layer_index layer_number layer_num idx block_idx index
        layer i""",
    Role.CHUNK: """chunk_size chunk segment_len segment_length bucket_size chunks n_chunks
        segment_size""",
    Role.BATCH: "batch_size bs batch bsz max_batch_size b",
    Role.EPSILON: """eps epsilon norm_eps layer_norm_eps rms_norm_eps layer_norm_epsilon
        layernorm_eps""",
    Role.BASE: """base theta rope_theta rope_base rotary_base freq_base rope_scaling_base""",
    Role.SCALE: """scale temperature temp tau alpha beta gamma qk_scale scaling softmax_scale
        norm_factor scale_factor softcap logit_cap factor lambda_init""",
    Role.SPREAD: """init_std initializer_range std init_scale init_values layer_scale init_value""",
    Role.NORM: """norm_layer norm_cls norm_class norm_fn norm_type_class layer_norm_cls
        norm_func""",
    Role.ACTIVATION: """act_layer activation act act_fn hidden_act activation_fn nonlinearity
        act_func activation_function hidden_activation ff_activation nonlin act_cls""",
    Role.DTYPE: "dtype param_dtype torch_dtype compute_dtype",
    Role.DEVICE: "device dev gpu",
    Role.CONFIG: """config cfg conf args hparams hp params opt opts options settings spec
        model_args model_config hyperparams configs configuration argument arguments model_cfg
        hyper ns""",
}  # fmt: skip

_NAMES = {name: role for role, names in _EXACT.items() for name in names.split()}

_PARTS: tuple[tuple[str, Role], ...] = (
    (r"_(field|column|prefix|suffix)$", Role.LABEL),
    (r"(^|_)(kv|key_value)_?heads?$|kv_head", Role.KV_HEADS),
    (r"head_?(dim|size|width|channels|chs?$)|(dim|size|channels)_per_(att\w*_)?head",
     Role.HEAD_DIM),
    (r"heads?$|^n?_?heads?_|_nhead|^(n|num)_(att\w*_)?heads", Role.HEADS),
    (r"drop|_prob$|_rate$", Role.RATE),
    (r"causal|autoregress", Role.CAUSAL),
    (r"^(use|is|has|with|do|return|need|enable|apply|add|share|learn|no|normali[sz]e)_|bias$"
     r"|_first$|^(pre|post)_?norm$|_norm$|flash|verbose|debug|bidirectional|qk_?norm|norm_first"
     r"|^(fused|flip|shared|trainable|learnable|affine|residual|gated|rotary|rope|xpos|cosine)$",
     Role.FLAG),
    (r"vocab", Role.VOCABULARY),
    (r"(width|depth|channel)_?(factor|mult)", Role.RATIO),
    (r"n_?layers?|num_.*layers|^(num|n)_.*blocks?$|depth", Role.LAYERS),
    (r"feed_?forward|ffn|mlp|_ff$|^ff_|intermediate", Role.INNER),
    (r"ratio$|expan", Role.RATIO),
    (r"lora_|_rank$", Role.COUNT),
    (r"(max|seq|ctx|context|block|position|token|patch|frame).*(len|length|size|num|s)$|_len$|^len_"
     r"|^(num|n)_(pos|tok|patch|frame|step|node|time)", Role.LENGTH),
    (r"len(gth)?_(kv|k|key|keys|src|source|memory|context)$", Role.SOURCE),
    (r"len(gth)?_(q|query|queries|tgt|target)$", Role.LENGTH),
    (r"window", Role.WINDOW),
    (r"patch", Role.PATCH),
    (r"chunk|segment|bucket", Role.CHUNK),
    (r"(img|image|resol|grid|spatial|height|width_px)", Role.SIDE),
    (r"eps", Role.EPSILON),
    (r"theta", Role.BASE),
    (r"scale|temper", Role.SCALE),
    (r"(^|_)(idx|id|index)$", Role.INDEX),
    (r"class", Role.CLASSES),
    (r"dim|width|channels?|hidden|embd?|embed|feat|planes|units|_d$|^d_|_size$|_ch$|^in_|^out_",
     Role.WIDTH),
    (r"^(num|n)_", Role.COUNT),
)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def role_of(name: str) -> Role | None:
    """Return what the parameter or field `name` sets, or None if its name does not say."""
    plain = _snake(name)
    if plain in _NAMES:
        return _NAMES[plain]
    for pattern, role in _PARTS:
        if re.search(pattern, plain):
            return role
    return None


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")

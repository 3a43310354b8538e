"""Factories for models of sound and of time series of the transformers package.

mha-lint loads this file by path, as it does hugging_face.py. Frames are padded on the right; where
a mask of frames comes as a bool tensor, true is a frame.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.acceptance.cases import (
    EAGER,
    SDPA,
    Case,
    built,
    causal,  # noqa: F401 - named in calls
    configured,
    padded,  # noqa: F401 - named in calls
    tokens,  # noqa: F401 - named in calls
)

SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 3,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
PAIR = {
    "vocab_size": 40,
    "d_model": 48,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}


def _encoder(family: str, name: str, implementation: str, **settings: Any) -> nn.Module:
    config = configured(family, f"{name}Config", implementation, **SIZES | settings)
    return built(family, f"{name}Encoder", config)


def _model(family: str, name: str, implementation: str, **settings: Any) -> nn.Module:
    config = configured(family, f"{name}Config", implementation, **settings)
    return built(family, f"{name}Model", config)


def wav2vec2(implementation: str = "eager") -> nn.Module:
    """Return a wav2vec 2.0 encoder: positions by a convolution, padded frames set to zero."""
    return _encoder("wav2vec2", "Wav2Vec2", implementation)


def conformer_relative(implementation: str = "eager") -> nn.Module:
    """Return a Conformer encoder: relative positions by a shift, as in Transformer-XL."""
    settings = {"position_embeddings_type": "relative", "conv_depthwise_kernel_size": 3}
    return _encoder("wav2vec2_conformer", "Wav2Vec2Conformer", implementation, **settings)


def conformer_rotary(implementation: str = "eager") -> nn.Module:
    """Return a Conformer encoder that rotates the states before its projections."""
    settings = {"position_embeddings_type": "rotary", "conv_depthwise_kernel_size": 3}
    return _encoder("wav2vec2_conformer", "Wav2Vec2Conformer", implementation, **settings)


def wav2vec2_bert(implementation: str = "eager") -> nn.Module:
    """Return a Wav2Vec2-BERT encoder: queries meet an embedding of each clamped distance."""
    settings = {"conv_depthwise_kernel_size": 3, "left_max_position_embeddings": 4}
    settings |= {"right_max_position_embeddings": 2}
    return _encoder("wav2vec2_bert", "Wav2Vec2Bert", implementation, **settings)


def wavlm(implementation: str = "eager") -> nn.Module:
    """Return a WavLM encoder: a relative bias, gated by the queries."""
    settings = {"num_buckets": 8, "max_bucket_distance": 16}
    return _encoder("wavlm", "WavLM", implementation, **settings)


def sew_d(implementation: str = "eager") -> nn.Module:
    """Return a SEW-D encoder: content and position meet in three products, one factor for all."""
    sizes = {k: v for k, v in SIZES.items() if not k.startswith("num_conv")}
    settings = sizes | {"position_buckets": 4, "max_position_embeddings": 16}
    config = configured("sew_d", "SEWDConfig", implementation, **settings)
    return built("sew_d", "SEWDTransformerEncoder", config)


def speecht5(implementation: str = "eager") -> nn.Module:
    """Return a SpeechT5 encoder: queries meet an embedding of each distance."""
    settings = PAIR | {"hidden_size": 48, "encoder_max_relative_position": 4}
    config = configured("speecht5", "SpeechT5Config", implementation, **settings)
    return built("speecht5", "SpeechT5EncoderWithTextPrenet", config)


def speech_to_text(implementation: str = "eager") -> nn.Module:
    """Return a Speech2Text model: convolutions shorten the frames and their mask."""
    frames = {"input_feat_per_channel": 8, "num_conv_layers": 1, "conv_kernel_sizes": [3]}
    lengths = {"conv_channels": 16, "max_source_positions": 32, "max_target_positions": 16}
    settings = PAIR | frames | lengths
    return _model("speech_to_text", "Speech2Text", implementation, **settings)


def whisper_model(implementation: str = "eager") -> nn.Module:
    """Return a Whisper: keys without bias, scaled queries, no mask over the frames."""
    frames = {"num_mel_bins": 8, "max_source_positions": 7, "max_target_positions": 16}
    return _model("whisper", "Whisper", implementation, **PAIR | {"pad_token_id": 0}, **frames)


def musicgen(implementation: str = "eager") -> nn.Module:
    """Return a MusicGen decoder over two code books, with cross-attention."""
    sizes = {"vocab_size": 40, "hidden_size": 48, "num_attention_heads": 3, "ffn_dim": 64}
    settings = {"num_hidden_layers": 1, "num_codebooks": 2, "max_position_embeddings": 32}
    config = configured("musicgen", "MusicgenDecoderConfig", implementation, **sizes, **settings)
    return built("musicgen", "MusicgenDecoder", config)


def bark_semantic(implementation: str = "eager") -> nn.Module:
    """Return a Bark semantic decoder: a triangle kept as a buffer."""
    sizes = {"hidden_size": 48, "num_heads": 3, "num_layers": 1, "block_size": 16}
    vocabulary = {"input_vocab_size": 40, "output_vocab_size": 40}
    config = configured("bark", "BarkSemanticConfig", implementation, **sizes, **vocabulary)
    return built("bark", "BarkSemanticModel", config)


def bark_fine(implementation: str = "eager") -> nn.Module:
    """Return a Bark fine model, which is not causal."""
    sizes = {"hidden_size": 48, "num_heads": 3, "num_layers": 1, "block_size": 16}
    vocabulary = {"input_vocab_size": 40, "output_vocab_size": 40, "n_codes_total": 2}
    config = configured("bark", "BarkFineConfig", implementation, **sizes, **vocabulary)
    return built("bark", "BarkFineModel", config)


def ast(implementation: str = "eager") -> nn.Module:
    """Return an audio spectrogram transformer: overlapping patches, two tokens before them."""
    sizes = {k: v for k, v in SIZES.items() if not k.startswith("num_conv")}
    patches = {"patch_size": 4, "frequency_stride": 3, "time_stride": 3, "max_length": 12}
    config = configured(
        "audio_spectrogram_transformer",
        "ASTConfig",
        implementation,
        **sizes,
        **patches,
        num_mel_bins=8,
    )
    return built("audio_spectrogram_transformer", "ASTModel", config)


def parakeet(implementation: str = "eager") -> nn.Module:
    """Return a Parakeet encoder: relative positions by a shift, in one bias for the scores."""
    sizes = {k: v for k, v in SIZES.items() if not k.startswith("num_conv")}
    frames = {"num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 3}
    config = configured("parakeet", "ParakeetEncoderConfig", implementation, **sizes, **frames)
    return built("parakeet", "ParakeetEncoder", config)


def moonshine(implementation: str = "eager") -> nn.Module:
    """Return a Moonshine: most of each head is rotated, by neighbouring pairs."""
    sizes = {"vocab_size": 40, "hidden_size": 48, "intermediate_size": 64}
    heads = {"encoder_num_attention_heads": 3, "decoder_num_attention_heads": 3}
    heads |= {"encoder_num_key_value_heads": 3, "decoder_num_key_value_heads": 3}
    layers = {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1}
    return _model("moonshine", "Moonshine", implementation, **sizes, **heads, **layers)


def mimi(implementation: str = "eager") -> nn.Module:
    """Return a Mimi transformer: causal, with a window."""
    sizes = {k: v for k, v in SIZES.items() if not k.startswith("num_conv")}
    settings = {"num_key_value_heads": 3, "head_dim": 16, "sliding_window": 3}
    config = configured("mimi", "MimiConfig", implementation, **sizes, **settings)
    return built("mimi", "MimiTransformerModel", config)


def vits(implementation: str = "eager") -> nn.Module:
    """Return a VITS text encoder: embeddings of near distances for keys and for values."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1, "ffn_dim": 64}
    config = configured("vits", "VitsConfig", implementation, **sizes, window_size=2)
    return built("vits", "VitsEncoder", config)


def time_series(implementation: str = "eager") -> nn.Module:
    """Return a time series transformer's encoder."""
    sizes = {k: v for k, v in PAIR.items() if k != "vocab_size"}
    settings = sizes | {"prediction_length": 4, "context_length": 7, "feature_size": 5}
    config = configured(
        "time_series_transformer", "TimeSeriesTransformerConfig", implementation, **settings
    )
    config.feature_size = 5
    return built("time_series_transformer", "TimeSeriesTransformerEncoder", config)


def informer(implementation: str = "eager") -> nn.Module:
    """Return an Informer attention: the most telling queries attend, the others take the mean."""
    return built("informer", "InformerProbSparseAttention", 48, 3, sampling_factor=2)


def patchtst(implementation: str = "eager") -> nn.Module:
    """Return a PatchTST: each channel's patches attend to each other, normalised by batch."""
    sizes = {"num_input_channels": 2, "context_length": 24, "patch_length": 4, "patch_stride": 4}
    widths = {"d_model": 48, "num_attention_heads": 3, "num_hidden_layers": 1, "ffn_dim": 64}
    return _model("patchtst", "PatchTST", implementation, **sizes, **widths)


def timesfm(implementation: str = "eager") -> nn.Module:
    """Return a TimesFM attention: a learned factor for each channel of the queries."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "head_dim": 16, "num_hidden_layers": 1}
    config = configured("timesfm", "TimesFmConfig", implementation, **sizes)
    return built("timesfm", "TimesFmAttention", config, 0)


FRAMES = "torch.randn(3, 7, 48), attention_mask=padded(3, 7).bool()"
LEFT = "tokens(3, 7), attention_mask=padded(3, 7, left=True)"

CASES = (
    Case("wav2vec2", FRAMES, SDPA),
    Case("conformer_relative", FRAMES, EAGER),
    Case("conformer_rotary", FRAMES, SDPA),
    Case("wav2vec2_bert", FRAMES, EAGER),
    Case("wavlm", FRAMES, EAGER),
    Case("sew_d", "torch.randn(3, 7, 48), padded(3, 7)", EAGER),
    Case("speecht5", "tokens(3, 7), attention_mask=padded(3, 7)", EAGER),
    Case(
        "speech_to_text",
        "torch.randn(3, 14, 8), attention_mask=torch.ones(3, 14, dtype=torch.long),"
        " decoder_input_ids=tokens(3, 5)",
        EAGER,
    ),
    Case("whisper_model", "torch.randn(2, 8, 14), decoder_input_ids=tokens(2, 5)", SDPA),
    Case("musicgen", "tokens(4, 7), encoder_hidden_states=torch.randn(2, 5, 48)", EAGER),
    Case("bark_semantic", LEFT, EAGER),
    Case("bark_fine", "1, torch.randint(40, (3, 7, 2)), attention_mask=padded(3, 7)", EAGER),
    Case("ast", "torch.randn(2, 12, 8)", SDPA),
    Case("parakeet", "torch.randn(2, 32, 16)", SDPA),
    Case("moonshine", "torch.randn(2, 1600), decoder_input_ids=tokens(2, 5)", SDPA),
    Case("mimi", "torch.randn(2, 7, 48)", SDPA),
    Case("vits", "torch.randn(3, 7, 48), padded(3, 7).unsqueeze(-1), padded(3, 7)", EAGER),
    Case("time_series", "padded(3, 7), torch.randn(3, 7, 5)", EAGER),
    Case("informer", "torch.randn(2, 12, 48)", EAGER),
    Case("patchtst", "torch.randn(2, 24, 2)", EAGER),
    Case("timesfm", "torch.randn(2, 7, 48), attention_mask=causal(7)", SDPA),
)

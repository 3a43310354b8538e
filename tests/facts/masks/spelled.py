"""One causal mask over five positions, spelled in many ways; each hides the same pairs."""

from __future__ import annotations

from tests.facts.conftest import PLAIN, edited

SCALE = "        scores = scores / math.sqrt(self.d_k)\n"
HIDDEN = "        hidden = torch.ones(T, T).triu(1).bool()\n"


def masked(*lines: str, before: str = SCALE) -> str:
    """Return the plain module with `lines` between its scale and its softmax."""
    return PLAIN.replace(SCALE, before + "".join(f"        {line}\n" for line in lines))


def fused(arguments: str, *lines: str) -> str:
    """Return the plain module with one fused call, and `lines` ahead of it."""
    return edited(
        PLAIN,
        ("        scores = q @ k.transpose(-2, -1)\n", "".join(f"        {x}\n" for x in lines)),
        (SCALE, ""),
        ("        weights = scores.softmax(dim=-1)\n", ""),
        (
            "context = weights @ v",
            f"context = F.scaled_dot_product_attention(q, k, v, {arguments})",
        ),
    )


MADE = HIDDEN.strip()
LIBRARY = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, x):
        T = x.shape[1]
        hidden = torch.ones(T, T).triu(1).bool()
        y, w = self.attn(x, x, x, attn_mask=hidden, need_weights=NEED)
        return y
"""
LOOP = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.q = nn.ModuleList([nn.Linear(d_model, d_model // num_heads) for _ in range(num_heads)])
        self.k = nn.ModuleList([nn.Linear(d_model, d_model // num_heads) for _ in range(num_heads)])
        self.v = nn.ModuleList([nn.Linear(d_model, d_model // num_heads) for _ in range(num_heads)])
        self.out = nn.Linear(d_model, d_model)
        self.register_buffer("tri", torch.tril(torch.ones(16, 16)))

    def forward(self, x):
        T = x.shape[1]
        contexts = []
        for q, k, v in zip(self.q, self.k, self.v):
            s = q(x) @ k(x).transpose(1, 2) / q.out_features**0.5
            s = s.masked_fill(self.tri[:T, :T] == 0, float("-inf"))
            contexts.append(s.softmax(-1) @ v(x))
        return self.out(torch.cat(contexts, -1))
"""
CAUSAL: dict[str, tuple[str, str, float]] = {
    "filled": (masked(MADE, "scores = scores.masked_fill(hidden, -1e9)"), "filled", -1e9),
    "in place": (
        masked(MADE, "scores.masked_fill_(hidden, float('-inf'))"),
        "filled",
        -float("inf"),
    ),
    "where": (
        masked(MADE, "scores = torch.where(hidden, torch.finfo(scores.dtype).min, scores)"),
        "filled",
        -3.4028234663852886e38,
    ),
    "assigned": (
        masked(MADE, "scores[:, :, hidden] = float('-inf')"),
        "filled",
        -float("inf"),
    ),
    "by indices": (
        masked("i, j = torch.triu_indices(T, T, 1)", "scores[..., i, j] = -1e10"),
        "filled",
        -1e10,
    ),
    "added": (
        masked("scores = scores + torch.full((T, T), float('-inf')).triu(1)"),
        "added",
        -float("inf"),
    ),
    "taken off": (masked(MADE, "scores = scores - 1e9 * hidden"), "added", -1e9),
    "fused, bool": (fused("attn_mask=~hidden", MADE), "filled", -float("inf")),
    "fused, float": (
        fused("attn_mask=bias", "bias = torch.full((T, T), -1e9).triu(1)"),
        "added",
        -1e9,
    ),
    "fused, flag": (fused("is_causal=True"), "filled", -float("inf")),
    "library": (LIBRARY.replace("NEED", "False"), "added", -float("inf")),
    "library, with weights": (LIBRARY.replace("NEED", "True"), "added", -float("inf")),
    "head by head": (LOOP, "filled", -float("inf")),
}
"""Text, how the mask acts, and the number that hides."""

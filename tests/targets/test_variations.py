"""Tests of mha_lint.targets.variations."""

from __future__ import annotations

from collections.abc import Callable

from mha_lint.targets.subject import Subject
from mha_lint.targets.variations import variations

Open = Callable[..., object]

SOURCE = """
class Branches(nn.Module):
    def __init__(self, dim, heads, batch_first=False, qk_scale=None, bias=True, fused=True):
        super().__init__()
        self.heads, self.batch_first, self.fused = heads, batch_first, fused
        self.scale = qk_scale or (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
    def forward(self, x, mask=None, past=None, verbose=False):
        if not self.batch_first:
            x = x.transpose(0, 1)
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        s = q @ k.mT * self.scale
        if mask is not None:
            s = s.masked_fill(~mask[:, None, None, :], -torch.inf)
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
"""


def _variations(opened: Open, **stated: str) -> dict[str, Subject]:
    subject = opened(SOURCE, "Branches", **stated)
    assert isinstance(subject, Subject)
    return {v.label: v.subject for v in variations(subject)}


def test_flags_are_flipped_and_optional_inputs_given(opened: Open) -> None:
    found = _variations(opened)
    assert list(found) == [
        "batch_first=True", "qk_scale=0.1", "fused=False", "mask given", "past given",
    ]  # fmt: skip
    assert found["fused=False"].build == "Branches(dim=24, heads=4, fused=False)"
    assert found["fused=False"].stated["fused"] is False
    assert found["qk_scale=0.1"].stated["qk_scale"] == 0.1


def test_another_layout_gets_other_inputs(opened: Open) -> None:
    subject = opened(SOURCE, "Branches")
    assert isinstance(subject, Subject)
    assert subject.args[0].shape == (7, 3, 24)
    assert _variations(opened)["batch_first=True"].args[0].shape == (3, 7, 24)


def test_given_inputs_have_the_sizes_of_the_call(opened: Open) -> None:
    found = _variations(opened, build="Branches(40, 5, True)", call="torch.randn(2, 6, 40)")
    assert found["mask given"].kwargs["mask"].shape == (2, 6)
    assert bool(found["mask given"].kwargs["mask"].all())
    past = found["past given"].kwargs["past"]
    assert [t.shape for t in past] == [(2, 5, 10, 8)] * 2
    assert found["batch_first=False"].build == "Branches(40, 5, False)"


def test_the_subject_itself_stays(opened: Open) -> None:
    subject = opened(SOURCE, "Branches")
    assert isinstance(subject, Subject)
    before = (subject.build, subject.call, dict(subject.kwargs))
    list(variations(subject))
    assert (subject.build, subject.call, dict(subject.kwargs)) == before

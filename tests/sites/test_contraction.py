"""Every spelling of a product summed over an axis has the same reading."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from mha_lint.capture import Recording
from mha_lint.sites.contraction import Contraction, contraction_of

Record = Callable[..., Recording]
Product = Callable[[Tensor, Tensor], Tensor]


def the_one(recording: Recording) -> Contraction:
    found = [c for n in recording.graph.nodes if (c := contraction_of(recording, n)) is not None]
    assert len(found) == 1
    return found[0]


def letters(found: Contraction) -> str:
    """Spell `found` as an einsum, labels in order of appearance, broadcast axes as 1."""
    names: dict[int, str] = {}

    def spell(labels: tuple[int | None, ...]) -> str:
        return "".join(
            "1" if x is None else names.setdefault(x, "abcdefgh"[len(names)]) for x in labels
        )

    return f"{spell(found.left_labels)},{spell(found.right_labels)}->{spell(found.out_labels)}"


@pytest.mark.parametrize(
    ("product", "left", "right", "equation"),
    [
        (lambda a, b: a @ b, (2, 4, 5, 6), (2, 4, 6, 7), "abcd,abde->abce"),
        (torch.matmul, (5, 6), (6, 7), "ab,bc->ac"),
        (torch.mm, (5, 6), (6, 7), "ab,bc->ac"),
        (lambda a, b: torch.mm(mat2=b, input=a), (5, 6), (6, 7), "ab,bc->ac"),
        (lambda a, b: torch.inner(other=b, input=a), (5, 6), (7, 6), "ab,cb->ac"),
        (lambda a, b: torch.tensordot(b=b, a=a, dims=1), (5, 6), (6, 7), "ab,bc->ac"),
        (torch.bmm, (3, 5, 6), (3, 6, 7), "abc,acd->abd"),
        (torch.mv, (5, 6), (6,), "ab,b->a"),
        (lambda a, b: a @ b, (6,), (6, 7), "a,ab->b"),
        (torch.dot, (6,), (6,), "a,a->"),
        (lambda a, b: a @ b, (2, 4, 5, 6), (6, 7), "abcd,de->abce"),
        (lambda a, b: a @ b, (4, 5, 6), (2, 4, 6, 7), "abc,dace->dabe"),
        (lambda a, b: a @ b, (2, 4, 5, 6), (2, 1, 6, 7), "abcd,a1de->abce"),
        (lambda a, b: a @ b, (1, 5, 6), (3, 6, 7), "1ab,cbd->cad"),
        (torch.nn.functional.linear, (2, 5, 6), (7, 6), "abc,dc->abd"),
        (torch.inner, (2, 5, 6), (7, 6), "abc,dc->abd"),
        (lambda a, b: torch.tensordot(a, b, dims=1), (2, 5, 6), (6, 7), "abc,cd->abd"),
        (lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), (2, 5, 6), (5, 6, 7), "abc,bcd->ad"),
        (lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), (2, 5, 4, 6), (2, 7, 4, 6), "abcd,aecd->acbe"),
        (lambda a, b: torch.einsum("b q h d , b k h d -> b h q k", a, b), (2, 5, 4, 6), (2, 7, 4, 6), "abcd,aecd->acbe"),
        (lambda a, b: torch.einsum("ij,jk", a, b), (5, 6), (6, 7), "ab,bc->ac"),
        (lambda a, b: torch.einsum("...qd,...kd->...qk", a, b), (2, 4, 5, 6), (2, 4, 7, 6), "abcd,abed->abce"),
        (lambda a, b: torch.einsum("...qd,kd->...qk", a, b), (2, 4, 5, 6), (7, 6), "abcd,ed->abce"),
        (lambda a, b: torch.einsum("bqd,bkd->bqk", [a, b]), (2, 5, 6), (2, 7, 6), "abc,adc->abd"),
        (lambda a, b: torch.einsum("bqhd,bkhd->bqk", a, b), (2, 5, 4, 6), (2, 7, 4, 6), "abcd,aecd->abe"),
        (lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), (2, 4, 5, 6), (2, 1, 7, 6), "abcd,a1ed->abce"),
        (lambda a, b: (a[:, :, None] * b[:, None]).sum(-1), (2, 5, 6), (2, 7, 6), "ab1c,a1dc->abd"),
        (lambda a, b: (a[:, :, None] * b[:, None]).sum(-1, keepdim=True), (2, 5, 6), (2, 7, 6), "ab1c,a1dc->abd1"),
        (lambda a, b: torch.baddbmm(torch.zeros(1), a, b), (3, 5, 6), (3, 6, 7), "abc,acd->abd"),
        (lambda a, b: torch.addmm(torch.zeros(1), a, b), (5, 6), (6, 7), "ab,bc->ac"),
    ],
)  # fmt: skip
def test_spellings(
    product: Product,
    left: tuple[int, ...],
    right: tuple[int, ...],
    equation: str,
    recorded: Record,
) -> None:
    a, b = torch.randn(left), torch.randn(right)
    recording = recorded(lambda x, y: product(x, y), a, b)
    found = the_one(recording)
    assert letters(found) == equation
    # What it says is what the call computes.
    named = {label: chr(97 + i) for i, label in enumerate(dict.fromkeys(
        x for x in (*found.left_labels, *found.right_labels) if x is not None
    ))}  # fmt: skip

    def squeezed(value: Tensor, labels: tuple[int | None, ...]) -> tuple[Tensor, str]:
        gone = [i for i, x in enumerate(labels) if x is None]
        return value.squeeze(gone), "".join(named[x] for x in labels if x is not None)

    (u, us), (v, vs) = (
        squeezed(recording.values[node], labels)
        for node, labels in ((found.left, found.left_labels), (found.right, found.right_labels))
    )
    out = "".join(named[x] for x in found.out_labels if x is not None)
    computed = torch.einsum(f"{us},{vs}->{out}", u, v)
    expected = product(a, b)
    torch.testing.assert_close(computed.reshape(expected.shape), expected)


def test_the_parts_of_a_product(recorded: Record) -> None:
    found = the_one(
        recorded(
            lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b),
            torch.randn(2, 5, 4, 6),
            torch.randn(2, 7, 4, 6),
        )
    )
    b, q, h, d = found.left_labels
    k = found.right_labels[1]
    assert found.summed == {d}
    assert found.free(True) == (q,)
    assert found.free(False) == (k,)
    assert found.shared == (b, h)
    assert found.side(True) == (found.left, found.left_labels)
    assert found.side(False) == (found.right, found.right_labels)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a * b,
        lambda a, b: a + b,
        lambda a, b: torch.einsum("bqd,bqd->bqd", a, b),
        lambda a, b: torch.einsum("bqd,bkd->bqkd", a, b),
        lambda a, b: (a + b).sum(-1),
        lambda a, b: torch.cat((a, b), 1),
        lambda a, b: (torch.complex(a, a) @ torch.complex(b, b).mT).abs(),
        lambda a, b: torch.einsum("bii->bi", a[..., :5]) + b.sum(-1),
    ],
)
def test_what_is_no_contraction(function: Product, recorded: Record) -> None:
    recording = recorded(function, torch.randn(2, 5, 6), torch.randn(2, 5, 6))
    assert [n for n in recording.graph.nodes if contraction_of(recording, n) is not None] == []


def test_an_argument_is_no_contraction(recorded: Record) -> None:
    recording = recorded(lambda a: a * 2, torch.randn(2, 3))
    nodes: list[fx.Node] = list(recording.graph.nodes)
    assert all(contraction_of(recording, n) is None for n in nodes)

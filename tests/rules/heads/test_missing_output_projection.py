"""MHA101: the concatenated heads are never mixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Dims,
    Kind,
    Known,
    OutputProjection,
    SiteFacts,
    Unknown,
    UnknownFactError,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def without(
    *, declared: tuple[str, ...] = (), span: Span | None = None, enclosing: str | None = None
) -> Known[OutputProjection]:
    fact = OutputProjection(False, declared=declared, span=span, enclosing=enclosing)
    return Known(fact, "no map follows the merge")


def test_several_heads_without_a_map(check: Check, site: Site, at: At) -> None:
    assert check("MHA101", site(output_projection=without())) == [
        Violation(
            "the 4 heads are concatenated, but no learned map mixes them",
            at=at(25),
            here="the heads leave here unmixed",
            why="W_O is part of the definition: without it each head writes to its own channels"
            " only",
            help="self.output = nn.Linear(d_model, d_model); return self.output(context)",
            evidence=("no map follows the merge",),
            confirm="identity: no learned map stands between the concatenated heads and the output",
        )
    ]


def test_a_declared_map_that_is_dropped_is_named(check: Check, site: Site, at: At) -> None:
    fact = without(declared=("fc_concat.weight", "fc_concat.bias"), span=at(27))
    (found,) = check("MHA101", site(output_projection=fact))
    assert found.message == (
        "the 4 heads are concatenated, but no learned map mixes them:"
        " fc_concat never reaches the output"
    )
    assert found.help == "return self.fc_concat(context)"
    assert found.at == at(27)


def test_several_dropped_maps_are_named(check: Check, site: Site) -> None:
    (found,) = check("MHA101", site(output_projection=without(declared=("a.weight", "b.weight"))))
    assert found.message.endswith("mixes them: a and b never reach the output")
    assert found.help.startswith("self.output = nn.Linear(d_model, d_model)")


def test_the_map_is_written_with_the_users_names(check: Check, site: Site) -> None:
    fact = Known(OutputProjection(False, model_width="embed_dim"), "no map follows the merge")
    (found,) = check("MHA101", site(output_projection=fact))
    assert found.help.startswith("self.output = nn.Linear(embed_dim, embed_dim)")
    narrow = Known(Dims(24, 4, 4, 6, 5, 7, 7, 3))
    (found,) = check("MHA101", site(output_projection=fact, dims=narrow))
    assert found.help.startswith("self.output = nn.Linear(num_heads * v_dim, embed_dim)")


@pytest.mark.parametrize(
    ("declared", "module", "help_"),
    [
        ("blocks.0.attn.proj.weight", "blocks.0.attn", "return self.proj(context)"),
        ("blocks.0.proj.weight", "blocks.0.attn", "apply blocks.0.proj to the context"),
        ("w_o", "", "return context @ self.w_o"),
    ],
)
def test_the_map_is_called_as_its_owner_does(
    check: Check, site: Site, declared: str, module: str, help_: str
) -> None:
    fact = without(declared=(declared,))
    info = replace(site().info, module=module)
    (found,) = check("MHA101", site(output_projection=fact, info=info))
    assert found.help == help_


def test_one_head_needs_no_map(check: Check, site: Site) -> None:
    one = Known(Dims(24, 1, 1, 24, 24, 7, 7, 3))
    assert check("MHA101", site(output_projection=without(), dims=one)) == []


def test_the_map_may_stand_in_the_enclosing_class(check: Check, site: Site) -> None:
    assert check("MHA101", site(output_projection=without(enclosing="BertLayer"))) == []


@pytest.mark.parametrize("kind", [Kind.POOLING, Kind.LINEAR, Kind.CHANNEL])
def test_other_kinds_are_not_judged(check: Check, site: Site, kind: Kind) -> None:
    assert check("MHA101", site(output_projection=without(), kind=kind)) == []


def test_cross_attention_is_judged(check: Check, site: Site) -> None:
    assert len(check("MHA101", site(output_projection=without(), kind=Kind.CROSS))) == 1


def test_undecided_while_the_number_of_heads_is_unknown(check: Check, site: Site) -> None:
    with pytest.raises(UnknownFactError, match="no heads"):
        check("MHA101", site(output_projection=without(), dims=Unknown("no heads")))

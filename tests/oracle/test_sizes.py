"""What one size cannot tell, a second one can; what neither can is said to be equivalent."""

from __future__ import annotations

from dataclasses import replace

from mha_lint.oracle import compare, confirm
from tests.oracle.conftest import FIRST, SECOND, Make, Size, make_site, softmax_over

SQUARE = Size(heads=6, kv_heads=6)
"""Here num_heads is head_dim, so 1/sqrt(num_heads) is 1/sqrt(head_dim)."""
BY_HEADS = Make(scale=lambda s: s.heads**-0.5)


def test_the_right_reading_wins_at_one_size() -> None:
    assert compare(make_site(SQUARE, BY_HEADS)).verdict == "match"


def test_a_second_size_tells_a_coincidence_from_the_truth() -> None:
    for first, second in ((SQUARE, SECOND), (SECOND, SQUARE)):
        verdict = compare(make_site(first, BY_HEADS), make_site(second, BY_HEADS))
        assert [(d.key, d.name) for d in verdict.deviations] == [("scale", "1/sqrt(num_heads)")]
        assert verdict.deviations[0].equivalent == ()


def test_names_that_no_size_at_hand_tells_apart_are_equivalent() -> None:
    size = Size(t_q=5, t_k=5)
    verdict = compare(make_site(size, BY_HEADS))
    (deviation,) = verdict.deviations
    assert deviation.name == "1/sqrt(num_heads)"
    assert deviation.equivalent == ("scale 1/sqrt(T_k)",)
    assert verdict.explanation is not None
    end = "scale 1/sqrt(num_heads) cannot be told from scale 1/sqrt(T_k) at these sizes"
    assert verdict.explanation.endswith(end)
    both = compare(make_site(size, BY_HEADS), make_site(SECOND, BY_HEADS))
    assert both.deviations[0].equivalent == ()
    assert both.explanation == both.deviations[0].sentence


def test_one_sample_leaves_its_axis_open() -> None:
    """With one sample, heads and samples together are the heads alone."""
    make = Make(weigh=softmax_over(1))
    (deviation,) = compare(make_site(Size(batch=1), make)).deviations
    assert deviation.name == "heads"
    assert deviation.equivalent == ()
    (deviation,) = compare(make_site(Size(batch=1), make), make_site(SECOND, make)).deviations
    assert deviation.name == "heads"


def test_a_constant_needs_one_value_at_both_sizes() -> None:
    odd = Make(scale=lambda s: s.t_k**-0.37)
    (deviation,) = compare(make_site(FIRST, odd), make_site(SECOND, odd)).deviations
    assert (deviation.key, deviation.name) == ("scale", "no named quantity")
    fixed = Make(scale=lambda _: 0.37)
    (deviation,) = compare(make_site(FIRST, fixed), make_site(SECOND, fixed)).deviations
    assert deviation.name == "constant 0.37"


def test_a_fault_at_the_second_size_alone_is_a_mismatch() -> None:
    verdict = compare(make_site(FIRST), make_site(SECOND, Make(weigh=softmax_over(1))))
    assert verdict.verdict == "mismatch"
    assert verdict.unexplained
    assert verdict.departs_at == "weights"


def test_a_second_size_that_cannot_be_compared_is_left_out() -> None:
    second = replace(make_site(SECOND), reason_skip="not rebuilt")
    assert compare(make_site(FIRST), second).verdict == "match"
    make = Make(weigh=softmax_over(1))
    verdict = compare(make_site(FIRST, make), replace(make_site(SECOND), weights=second.raw[:1]))
    assert confirm(verdict, "softmax-axis") is not None


def test_reasons_to_skip_are_passed_on() -> None:
    verdict = compare(replace(make_site(FIRST), reason_skip="additive attention has no q.k"))
    assert (verdict.verdict, verdict.explanation) == ("skipped", "additive attention has no q.k")
    site = make_site(FIRST)
    verdict = compare(replace(site, weights=site.weights[:, :2]))
    assert verdict.verdict == "skipped"
    assert verdict.explanation == "weights of shape (15, 2, 7) do not belong to scores (15, 7, 7)"


def test_tensors_of_another_dtype_are_not_compared() -> None:
    site = make_site(FIRST)
    verdict = compare(replace(site, logits=site.logits.float()))
    assert verdict.verdict == "skipped"
    assert verdict.explanation == "the tensors are float32, not float64"

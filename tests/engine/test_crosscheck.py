"""Every site is compared with the reference, and what is found is proved by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.engine.crosscheck import device_of
from mha_lint.model.report import CrossCheck
from mha_lint.model.settings import UsageError
from tests.facts.conftest import PLAIN
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.engine.conftest import Check, Edit


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_matches(name: str, checked: Check) -> None:
    spelling = SPELLINGS[name]
    cls = spelling.build.partition("(")[0]
    report = checked(
        f"a.py::{cls}", files={"a.py": spelling.text}, build=spelling.build, call=spelling.call
    )
    (target,) = report.targets
    assert target.findings == ()
    (found,) = target.crosscheck
    assert (found.verdict, found.departs_at, found.explanation) == ("match", None, None)
    assert (found.device, found.dtype) == ("cpu", "float64")
    assert found.max_abs_error is not None and found.tolerance is not None
    assert found.max_abs_error <= found.tolerance < 1e-7


@pytest.mark.parametrize(
    ("edit", "departs", "code"),
    [
        (("scores / math.sqrt(self.d_k)", "scores / math.sqrt(C)"), "scores", "MHA202"),
        (("scores / math.sqrt(self.d_k)", "scores * 1"), "scores", "MHA201"),
        (("softmax(dim=-1)", "softmax(dim=-2)"), "weights", "MHA204"),
        (("scores.softmax(dim=-1)", "scores"), "weights", "MHA205"),
        (("k = self.k_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
          "k = self.k_proj(x).view(B, self.h, T, self.d_k)"), "operands", "MHA104"),
        (("context.transpose(1, 2).reshape(B, T, C)", "context.reshape(B, T, C)"),
         "output", "MHA105"),
    ],
)  # fmt: skip
def test_what_departs_and_where(
    edit: tuple[str, str], departs: str, code: str, judged: Edit
) -> None:
    target = judged(edit)
    (found,) = target.crosscheck
    assert (found.verdict, found.departs_at) == ("mismatch", departs)
    assert found.max_abs_error is not None and found.tolerance is not None
    assert found.max_abs_error > 1e3 * found.tolerance
    assert found.explanation
    (finding,) = [f for f in target.findings if f.code == code]
    assert finding.confirmed_by


def test_two_faults_at_once(judged: Edit) -> None:
    target = judged(
        ("scores / math.sqrt(self.d_k)", "scores / math.sqrt(C)"),
        ("context.transpose(1, 2).reshape(B, T, C)", "context.reshape(B, T, C)"),
    )
    assert sorted(f.code for f in target.findings) == ["MHA105", "MHA202"]
    assert all(f.confirmed_by for f in target.findings)
    assert target.crosscheck[0].verdict == "mismatch"


def test_a_mask_is_no_deviation(judged: Edit) -> None:
    target = judged(
        ("        weights = scores",
         "        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float('-inf'))\n"
         "        weights = scores")
    )  # fmt: skip
    assert target.findings == ()
    assert target.crosscheck[0].verdict == "match"
    assert target.sites[0].mask == "causal"


def test_what_the_reference_does_not_know_is_skipped(judged: Edit) -> None:
    target = judged(
        ("        scores = q @ k.transpose(-2, -1)\n", ""),
        ("        scores = scores / math.sqrt(self.d_k)\n", ""),
        ("        weights = scores.softmax(dim=-1)\n", ""),
        (
            "context = weights @ v",
            "context = q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v)",
        ),
    )
    (found,) = target.crosscheck
    assert (found.verdict, found.departs_at, found.max_abs_error) == ("skipped", None, None)
    assert found.explanation == "linear attention has no reference in multi-head attention"


def test_a_design_that_the_reference_does_not_know_is_no_fault(judged: Edit) -> None:
    target = judged(("scores = scores / math.sqrt(self.d_k)",
                     "scores = scores / math.sqrt(self.d_k) * torch.linspace(1, 2, T)"))  # fmt: skip
    assert [f.code for f in target.findings] == []


def test_devices() -> None:
    assert device_of("cpu") == "cpu"
    assert device_of("cuda") == "cuda"
    assert device_of("auto") in ("cpu", "cuda")


def test_a_device_that_is_not_there(checked: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"^--device cuda: this machine has no CUDA device$"):
        checked("a.py", files={"a.py": PLAIN}, device="cuda")
    (row,) = checked("a.py::MHA", files={"a.py": PLAIN}, device="auto").targets[0].crosscheck
    assert (row.verdict, row.device) == ("match", "cpu")


def test_errors_are_told_with_one_digit(judged: Edit) -> None:
    found: CrossCheck = judged(
        ("scores / math.sqrt(self.d_k)", "scores / math.sqrt(C)")
    ).crosscheck[0]
    for value in (found.max_abs_error, found.tolerance):
        assert value is not None and float(f"{value:.0e}") == value

"""Faithfulness says whether a recording holds on other inputs, and what breaks it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mha_lint.capture import record


def test_sizes_taken_from_values_are_reported() -> None:
    def forward(x: Any, n: Any) -> Any:
        return x[: int(n[0])].sum(0)

    found = record(forward, (torch.randn(9, 3), torch.arange(1, 8)), {}).faithful
    assert not found.ok
    assert "values or sizes that depend on the input were fixed" in found.why


def test_outputs_of_other_shape_are_reported() -> None:
    def forward(x: Any, n: Any) -> Any:
        return x[: int(n[0])]

    found = record(forward, (torch.randn(9, 3), torch.arange(1, 8)), {}).faithful
    assert not found.ok
    assert found.max_error == float("inf")
    assert "has shape" in found.why


def test_a_module_that_fails_on_other_inputs_is_reported() -> None:
    def forward(x: Any) -> Any:
        if x[0] != 7:
            raise ValueError("the first must be 7")
        return x * 2

    found = record(forward, (torch.arange(7, 16) / 1.0,), {}).faithful
    assert not found.ok
    assert found.why == ("the module fails on other inputs: ValueError: the first must be 7")


def test_integers_that_fit_no_other_way_are_kept() -> None:
    def forward(x: Any, ends: Any) -> Any:
        return torch.cat([p.softmax(0) for p in x.split(ends.diff().tolist())])

    def baked(x: Any, ends: Any) -> Any:
        return forward(x, ends) * float(x[0])

    given = torch.randn(9), torch.tensor([0, 2, 5, 9])
    found = record(forward, given, {}).faithful
    assert found.ok
    assert found.why == (
        "replay and module agree on fresh inputs, integers as recorded: it fails on other ones"
    )
    assert not record(baked, given, {}).faithful.ok


def test_what_a_failed_run_wrote_is_undone() -> None:
    ends = torch.tensor([0, 2, 5, 9])
    record(lambda x: x.split(ends.diff().tolist())[0] * 2, (torch.randn(9),), {})
    lengths = torch.tensor([0, 2, 5, 9])
    record(lambda x, e: x.split(e.diff().tolist())[0] * 2, (torch.randn(9), lengths), {})
    assert lengths.tolist() == [0, 2, 5, 9]


def test_control_flow_on_data_is_found() -> None:
    def forward(x: Any) -> Any:
        return x.exp() if x[0] > 0 else x.sin()

    x = torch.randn(64)
    outcomes = {record(forward, (torch.where(x > 0, x, s * x),), {}).faithful.ok for s in (1, -1)}
    assert outcomes <= {True, False}
    flipped = [record(forward, (x * s,), {}).faithful.ok for s in (1.0, -1.0)]
    assert False in flipped


def test_half_precision_has_its_own_tolerance() -> None:
    module = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).half().eval()
    found = record(module, (torch.randn(2, 5, 16).half(),), {}).faithful
    assert found.ok
    assert found.max_error < 1e-2


def test_meta_tensors_are_not_compared() -> None:
    with torch.device("meta"):
        module, x = nn.Linear(4, 4), torch.randn(2, 4)
    recording = record(module, (x,), {})
    assert recording.faithful.ok
    assert "meta" in recording.faithful.why
    assert recording.outputs[0].meta["shape"] == (2, 4)


def test_not_a_number_must_agree() -> None:
    def forward(x: Any) -> Any:
        return torch.where(x > 0, x.sum() / 0 * 0, x)

    assert record(forward, (torch.randn(8),), {}).faithful.ok


def test_suspicion_is_dropped_once_fresh_inputs_agree() -> None:
    def forward(x: Any) -> Any:
        return x * torch.Tensor([1.0, 2.0])  # a constructor that torch does not report

    recording = record(forward, (torch.randn(3, 2),), {})
    assert recording.faithful.ok
    assert not any("tainted" in n.meta for n in recording.graph.nodes)


def test_a_recording_need_not_be_compared() -> None:
    found = record(nn.Linear(4, 4), (torch.randn(2, 4),), {}, compare=False).faithful
    assert (found.ok, found.why) == (False, "not checked")

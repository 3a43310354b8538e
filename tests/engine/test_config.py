"""A config.json: a small copy of the model and its real sizes in one report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mha_lint.engine import check
from mha_lint.engine.config import judge_copy
from mha_lint.model.finding import Severity
from mha_lint.model.report import Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import builtin_pack, load_pack
from mha_lint.targets.live import live_subject, take
from mha_lint.targets.pretrained.larger import LARGER
from mha_lint.targets.resolve import parse_target

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def judged(folder: Path, values: Any) -> TargetReport:
    (folder / "config.json").write_text(json.dumps(values))
    spec = parse_target("config.json", cwd=str(folder))
    (report,) = check([spec], Settings(str(folder))).targets
    return report


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> TargetReport:
    return judged(tmp_path_factory.mktemp("llama"), LLAMA)


def test_the_sites_have_the_sizes_of_the_model(llama: TargetReport) -> None:
    (site,) = llama.sites
    assert (site.d_model, site.num_heads, site.num_kv_heads, site.head_dim) == (4096, 32, 8, 128)
    assert site.repeated == 32
    assert (site.mask, site.output_projection) == ("causal", True)
    assert site.scale_named == "1/sqrt(head_dim)"


def test_the_copy_decides_what_takes_a_call(llama: TargetReport) -> None:
    assert (llama.status, llama.findings, llama.undecided) == (Status.CHECKED, (), ())
    assert [c.verdict for c in llama.crosscheck] == ["match"]
    assert llama.class_name == "LlamaForCausalLM"


def test_a_scale_that_published_weights_may_hold_is_a_warning(tmp_path: Path) -> None:
    values = {"model_type": "gpt_neo", "num_layers": 2, "attention_types": [[["global"], 2]]}
    report = judged(tmp_path, values | {"hidden_size": 64, "num_heads": 4, "vocab_size": 90})
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("MHA201", Severity.WARNING)
    assert finding.message.endswith("unless the published weights, which were not read, hold it")


def test_a_scale_that_published_weights_were_trained_with_is_a_warning(tmp_path: Path) -> None:
    report = judged(tmp_path, {"model_type": "cvt"})
    assert {(f.code, f.severity) for f in report.findings} == {("MHA202", Severity.WARNING)}
    assert all("published for this code" in f.message for f in report.findings)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, 'has no "model_type"'),
        ({"model_type": "nobody"}, 'has no model type "nobody"'),
        ({"model_type": "mine", "auto_map": {"AutoModel": "a.B"}}, "comes with its weights"),
        ([1], "holds no JSON object"),
    ],
)
def test_what_cannot_be_read_fails_with_the_reason(
    tmp_path: Path, values: Any, reason: str
) -> None:
    report = judged(tmp_path, values)
    assert report.status is Status.FAILED
    assert report.reason is not None and reason in report.reason


class Stage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.out = nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (4, 6)).transpose(1, 2) for m in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.mT / 6**0.5, -1)
        joined: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return joined


class Pictures(nn.Module):
    """Halves a picture until hardly anything is left to attend to."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.stage = nn.Conv2d(3, 24, 8, 8), Stage()

    def forward(self, pixels: Tensor) -> Tensor:
        mixed: Tensor = self.stage(self.down(pixels).flatten(2).mT)
        return mixed


def small(module: nn.Module, x: Tensor) -> TargetReport:
    torch.manual_seed(0)
    subject = live_subject(take(module, (x,), {}))
    rules = load_pack(builtin_pack())
    return judge_copy(subject, TargetSpec(text="small"), Settings("/"), rules).report


def test_one_position_is_judged_in_a_larger_picture() -> None:
    report = small(Pictures(), torch.randn(2, 3, 8, 8))
    assert report.status is Status.CHECKED
    assert [(s.module, s.num_heads) for s in report.sites] == [("stage", 4)]
    assert report.notes[-1] == LARGER


@pytest.mark.parametrize("most", ["LONGEST", "LARGEST"])
def test_a_model_that_is_too_much_is_judged_by_its_modules(
    most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = nn.Sequential(Stage(), nn.Linear(24, 24))
    assert small(module, torch.randn(2, 7, 24)).notes[-1].startswith("called with")
    monkeypatch.setattr(f"mha_lint.engine.config.{most}", 10)
    report = small(module, torch.randn(2, 7, 24))
    assert report.notes[-1] == "too much to be judged as a whole: its modules were"
    assert [(s.module, s.num_heads) for s in report.sites] == [("0", 4)]

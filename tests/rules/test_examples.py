"""The Bad and Good modules of every rule's docstring build, run, and differ in one thing only."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mha_lint.model.report import RunReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import Example, LoadedRule, builtin_pack, load_pack

RULES = load_pack(builtin_pack())
EXAMPLES = [
    pytest.param(loaded, example, id=f"{loaded.rule.code}-{'bad' if example.bad else 'good'}")
    for loaded in RULES
    for example in loaded.examples
]
NAMED = re.compile(r"^# (build|call): (.+)$", re.MULTILINE)


def build_and_call(source: str, name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], Any]:
    """Return the module in eval mode, the arguments and the (first) output that an example asks for."""
    stated = dict(NAMED.findall(source))
    assert list(stated) == ["build", "call"]
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, name, "exec"), scope)
    torch.manual_seed(0)
    module = eval(stated["build"], scope)
    arguments = eval(f"({stated['call']},)", scope)
    assert isinstance(module, nn.Module)
    module.eval()
    with torch.no_grad():
        output = module(*arguments)
    return module, arguments, output[0] if isinstance(output, tuple) else output


def plain_attention(
    module: nn.Module, query: torch.Tensor, memory: torch.Tensor, heads: int
) -> torch.Tensor:
    """Return multi-head attention with the projections of `module`, one head at a time."""
    parameters = dict(module.named_parameters())

    def project(name: str, x: torch.Tensor) -> torch.Tensor:
        weight = parameters.get(f"{name}.weight", parameters.get(name))
        assert weight is not None
        bias = parameters.get(f"{name}.bias")
        return x @ weight.T + (0 if bias is None else bias)

    q, k, v = project("query", query), project("key", memory), project("value", memory)
    width = q.shape[-1] // heads
    contexts = []
    for i in range(heads):
        part = slice(i * width, (i + 1) * width)
        scores = torch.einsum("bid,bjd->bij", q[..., part], k[..., part]) / width**0.5
        weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
        contexts.append(torch.einsum("bij,bjd->bid", weights, v[..., part]))
    return project("output", torch.cat(contexts, dim=-1))


@pytest.mark.parametrize(("loaded", "example"), EXAMPLES)
def test_example_builds_and_runs(loaded: LoadedRule, example: Example) -> None:
    _, arguments, output = build_and_call(example.source, loaded.rule.code)
    assert output.shape[0] == arguments[0].shape[0] == 3
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("loaded", RULES, ids=lambda r: r.rule.code)
def test_rule_has_one_bad_and_one_good_example(loaded: LoadedRule) -> None:
    assert [example.bad for example in loaded.examples] == [True, False]


@pytest.mark.parametrize("loaded", RULES, ids=lambda r: r.rule.code)
def test_good_is_the_repaired_bad(loaded: LoadedRule) -> None:
    bad, good = (example.source.splitlines() for example in loaded.examples)
    changes = [
        line
        for line in difflib.ndiff(bad, good)
        if line.startswith(("- ", "+ ")) and not NAMED.match(line[2:])
    ]
    assert 1 <= len(changes) <= 6, "\n".join(changes)


@pytest.mark.parametrize("loaded", RULES, ids=lambda r: r.rule.code)
def test_good_is_attention(loaded: LoadedRule) -> None:
    module, arguments, output = build_and_call(loaded.examples[1].source, loaded.rule.code)
    parts = dict(module.named_parameters())
    if not {"query", "key", "value", "output"} <= {name.split(".")[0] for name in parts}:
        pytest.skip("is not written with projections query, key, value and output")
    expected = plain_attention(module, arguments[0], arguments[-1], heads=4)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loaded", RULES, ids=lambda r: r.rule.code)
def test_documentation_is_complete(loaded: LoadedRule) -> None:
    page = loaded.documentation
    assert page.summary.endswith(".")
    assert len(page.what) > 80
    assert len(page.why) > 80
    assert page.references


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    """Return the report of one run over all examples."""
    from mha_lint.engine import check

    folder = tmp_path_factory.mktemp("examples")
    specs: list[TargetSpec] = []
    for loaded in RULES:
        for example in loaded.examples:
            name = f"{loaded.rule.code}_{'bad' if example.bad else 'good'}.py"
            Path(folder, name).write_text(example.source, encoding="utf-8")
            stated = dict(NAMED.findall(example.source))
            specs.append(
                TargetSpec(
                    text=name,
                    path=name,
                    qualname=stated["build"].partition("(")[0],
                    build=stated["build"],
                    call=stated["call"],
                )
            )
    return check(specs, Settings(cwd=str(folder)))


def test_all_rules_tell_of_the_bad_one_its_own_code_alone(judged: RunReport) -> None:
    assert len(judged.targets) == 2 * len(RULES)
    for target in judged.targets:
        code, _, kind = target.target.removesuffix(".py").partition("_")
        found = {finding.code for finding in target.findings}
        assert found == ({code} if kind == "bad" else set()), (target.target, target.reason)
    assert judged.crashes == ()

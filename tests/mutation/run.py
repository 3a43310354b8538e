"""Checks every single-edit mutant of fixtures/correct/bases and says which faults were named.

    python tests/mutation/run.py [--list] [--command "mha-lint"] [--json FILE] [-v]

Counted are mutants that run and that differ in their outputs from the right module: a mutant whose
call fails is loud by itself, and one whose outputs are equal on every call below, in eval and in
training mode, is no fault. Nor is one that equals the right module once its learned weights are renamed (W_q
for W_k, the columns of W_o in another order of heads and channels): training finds the one as well
as the other. A mutant is named rightly when a warning or error has one of the codes
that describe its edit; a rule that is left undecided is a miss. `--list` writes the list of mutants,
`mutants.json` beside this file, which is fixed before rules are changed.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import shlex
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutation.operators import Source, edits  # noqa: E402  # needs the line above

BASES = ROOT / "fixtures" / "correct" / "bases"
LIST = Path(__file__).with_name("mutants.json")
SEED = 0
MIN_NAMED = 0.97
SAME = 1e-9
"""Relative, in float64: a different order of sums gives less."""
MORE_CALLS = {
    "cached_decoder": (
        "torch.randn(2, 1, 32), (torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8))",
        "torch.randn(2, 3, 32), (torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8))",
    ),
    "raw_weights_window": ("torch.randn(2, 5, 32)",),
}
"""Further calls on which a mutant may differ, by base."""


def mutants() -> list[dict[str, Any]]:
    """Return every mutant: base, operator, the line, the text before and after, the codes."""
    found = []
    for path in sorted(BASES.glob("*.py")):
        source = Source(path.read_text())
        for number, edit in enumerate(edits(source)):
            found.append(
                {
                    "id": f"{path.stem}-{number:03}",
                    "operator": edit.operator,
                    "line": source.text.count("\n", 0, edit.start) + 1,
                    "before": source.text[edit.start : edit.end],
                    "after": edit.text,
                    "offset": edit.start,
                    "codes": list(edit.codes),
                }
            )
    return found


def base_of(mutant: dict[str, Any]) -> Path:
    """Return the file that a mutant was made from."""
    return BASES / f"{mutant['id'].rpartition('-')[0]}.py"


def text_of(mutant: dict[str, Any]) -> str:
    """Return the source of a mutant."""
    base: str = base_of(mutant).read_text()
    start: int = mutant["offset"]
    assert base[start:].startswith(mutant["before"]), mutant["id"]
    after: str = mutant["after"]
    return base[:start] + after + base[start + len(mutant["before"]) :]


def header(path: Path, key: str) -> str:
    """Return what follows ``# key:`` at the top of a base."""
    lines = path.read_text().splitlines()
    return next(x.removeprefix(f"# {key}: ") for x in lines if x.startswith(f"# {key}: "))


def loaded(text: str, name: str) -> ModuleType:
    """Return the module of a source."""
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, name, "exec"), module.__dict__)
    module.__dict__.setdefault("torch", torch)
    return module


Weights = dict[str, Tensor]
Renaming = Callable[[Weights], Weights]


def outputs(text: str, base: Path, renaming: Renaming = dict) -> list[Tensor]:
    """Return the outputs of all calls, in eval and in training mode, from equal random numbers."""
    torch.set_default_dtype(torch.float64)
    module = loaded(text, base.stem)
    found: list[Tensor] = []
    for call in (header(base, "call"), *MORE_CALLS.get(base.stem, ())):
        for training in (False, True):
            torch.manual_seed(SEED)
            subject = eval(header(base, "build"), module.__dict__).train(training)
            own = {n: w.clone() for n, w in subject.state_dict().items()}
            subject.load_state_dict(renaming(own))
            arguments = eval(f"({call},)", module.__dict__)
            torch.manual_seed(SEED + 1)
            out = subject(*arguments)
            found.append(out[0] if isinstance(out, tuple) else out)
    return found


def renamings(weights: Weights) -> Iterator[Renaming]:
    """Yield ways to give the learned weights other places that change nothing that is learned."""
    names = sorted(n for n, w in weights.items() if w.dim() > 1)
    for one, other in itertools.combinations(names, 2):
        if weights[one].shape == weights[other].shape:
            yield functools.partial(_exchanged, one=_stem(one), other=_stem(other))
    for name in names:
        rows, width = weights[name].shape[0], weights[name].shape[-1]
        if rows == 3 * width:
            order = torch.arange(rows).view(3, -1)[[1, 0, 2]].flatten()
            yield functools.partial(_reordered, name=_stem(name), order=order, axis=0)
        yield functools.partial(_reordered, name=name, order=torch.arange(rows - 1, -1, -1), axis=0)
        for heads in range(2, width):
            if width % heads == 0:
                order = torch.arange(width).view(heads, -1).T.flatten()
                yield functools.partial(_reordered, name=name, order=order, axis=-1)


def _exchanged(weights: Weights, *, one: str, other: str) -> Weights:
    return {name: weights[_other(name, one, other)] for name in weights}


def _reordered(weights: Weights, *, name: str, order: Tensor, axis: int) -> Weights:
    return {
        n: w.index_select(axis, order)
        if n.startswith(name) and w.dim() and w.shape[axis] == len(order)
        else w
        for n, w in weights.items()
    }


def _stem(name: str) -> str:
    return name.removesuffix("weight")


def _other(name: str, one: str, other: str) -> str:
    for a, b in ((one, other), (other, one)):
        if name.startswith(a):
            return b + name.removeprefix(a)
    return name


def differ(one: list[Tensor], other: list[Tensor]) -> bool:
    """Return whether any output differs by more than rounding."""
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape:
            return True
        gap = (a - b).abs().nan_to_num(nan=1.0)
        if bool((gap > SAME * a.abs().max()).any()):
            return True
    return False


def sort_out(mutant: dict[str, Any]) -> str:
    """Return "fails", "equal" (renamed or not) or "fault"."""
    base = base_of(mutant)
    right = outputs(base.read_text(), base)
    text = text_of(mutant)
    try:
        wrong = outputs(text, base)
    except Exception:
        return "fails"
    if not differ(right, wrong):
        return "equal"
    weights: Weights = eval(header(base, "build"), loaded(text, base.stem).__dict__).state_dict()
    for renaming in renamings(weights):
        try:
            if not differ(right, outputs(text, base, renaming)):
                return "equal"
        except Exception:  # a renaming that does not fit
            continue
    return "fault"


def judged(chosen: list[dict[str, Any]], command: str) -> dict[str, dict[str, Any]]:
    """Return the reported target of each mutant."""
    with tempfile.TemporaryDirectory() as folder:
        tables = []
        for mutant in chosen:
            base = base_of(mutant)
            path = Path(folder, mutant["id"], base.name)
            path.parent.mkdir()
            path.write_text(text_of(mutant))
            build = header(base, "build")
            tables.append(
                "[[tool.mha-lint.target]]\n"
                f"path = {json.dumps(str(path))}\nclass = {json.dumps(build.partition('(')[0])}\n"
                f"build = {json.dumps(build)}\ncall = {json.dumps(header(base, 'call'))}\n"
            )
        config, result = Path(folder, "mutants.toml"), Path(folder, "report.json")
        config.write_text("\n".join(tables))
        run = [*shlex.split(command), "check", "--config", str(config), "--format", "json"]
        subprocess.run([*run, "-o", str(result)], check=False, capture_output=True)
        report = json.loads(result.read_text())
    return {Path(t["path"]).parent.name: t for t in report["targets"]}


def main() -> int:
    """Run, print a table by operator and the misses, and return 0 if enough were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--command", default="mha-lint")
    parser.add_argument("--json", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        text = json.dumps({"seed": SEED, "mutants": mutants()}, indent=1)
        LIST.write_text(text + "\n")
        print(len(mutants()), "mutants")
        return 0
    listed: list[dict[str, Any]] = json.loads(LIST.read_text())["mutants"]
    kinds = {m["id"]: sort_out(m) for m in listed}
    chosen = [m for m in listed if kinds[m["id"]] == "fault"]
    targets = judged(chosen, arguments.command)
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in listed:
        rows[mutant["operator"]][kinds[mutant["id"]]] += 1
    misses: list[str] = []
    verdicts = []
    for mutant in chosen:
        target = targets[mutant["id"]]
        loud = {
            f["code"]: f["line"]
            for f in target["findings"]
            if f["severity"] in ("warning", "error")
        }
        named = bool(set(loud) & set(mutant["codes"]))
        rows[mutant["operator"]]["named"] += named
        rows[mutant["operator"]]["seen"] += bool(loud)
        verdicts.append({**mutant, "found": loud, "status": target["status"], "named": named})
        if not named:
            where = ", ".join(f"{c}@{n}" for c, n in loud.items()) or target["status"]
            misses.append(
                f"{mutant['id']}:{mutant['line']} {mutant['operator']}:"
                f" {mutant['before']!r} -> {mutant['after']!r}: {where}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(verdicts, indent=1))
    print("| operator | mutants | fail | equal | faults | seen | named |")
    print("|---|---|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for operator, row in rows.items():
        total.update(row)
        print(_line(operator, row))
    print(_line("all", total))
    for miss in misses:
        print("  " + miss)
    share = total["named"] / max(1, total["fault"])
    print(f"named: {share:.1%} of {total['fault']}")
    return 0 if share >= MIN_NAMED else 1


def _line(name: str, row: Counter[str]) -> str:
    count = row["fails"] + row["equal"] + row["fault"]
    cells = (count, row["fails"], row["equal"], row["fault"], row["seen"], row["named"])
    return f"| {name} | " + " | ".join(str(c) for c in cells) + " |"


if __name__ == "__main__":
    sys.exit(main())

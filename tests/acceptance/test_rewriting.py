"""Verdicts depend on what code computes: not on names, on whose layers it uses, or where it stands.

Each rewriting runs over a part of the fixtures, another one for each: a sixth of the faulty ones, at
least one of every code, and a few of the correct ones. All of them run with REWRITE_ALL=1 in the
environment, which takes some minutes, and then what is listed in MISSED is looked at as well.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mha_lint.model.finding import Severity
from mha_lint.model.report import RunReport, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from tests.acceptance.rewriting import Text, in_a_model, own_layers, renamed
from tests.fixtures.conftest import Fixture, fixtures

Rewrite = Callable[[Text], Text | None]
ALL = os.environ.get("REWRITE_ALL", "") not in ("", "0")
FAULTY, CORRECT, LEAST = 6, 10, 1
"""Of the faulty files each sixth is taken, at least one of a code, and of the correct each tenth."""

LOST: dict[Rewrite, frozenset[str]] = {
    renamed: frozenset(),
    own_layers: frozenset(),
    # A model that states all sizes and rates leaves none to vary, drops returned weights, and is one
    # class more that would have to be judged.
    in_a_model: frozenset({"MHA103", "MHA113", "MHA117", "MHA403", "MHA002"}),
}
"""What each rewriting takes away: codes that need not be found any more, or may be."""
_UNMASKED = "it has no mask of any kind: that it is meant to be causal is told by a name alone"
_SEEN_BOTH_WAYS = (
    "that it is meant to see both ways is told by the names of classes and parts alone"
)
_SECOND_SIZE = "which argument is the width and which the number of heads is told by their names"
_NO_HEADS = (
    "a window's size or a second width is taken for the number of heads where no name says what it is:"
    " MHA103 besides, which should say that it is not sure"
)
_LENGTHS = "which numbers are lengths is told by their names"
_WINDOW = "how long a window is meant is told by a name"
_RATE = "which dropout a rate is meant for is told by its name"
MISSED: dict[tuple[Rewrite, str], str] = {
    (renamed, "correct/masks/backward_attention.py"): "the name says that it reads backwards",
    (renamed, "faulty/heads/einsum_weight_orientation.py"): _NO_HEADS,
    (renamed, "faulty/dropout/projection_rate_on_weights.py"): _RATE,
    (renamed, "faulty/heads/logits_called_weights.py"): (
        "that what is returned is meant to be the weights is told by its name"
    ),
    (renamed, "faulty/masks/bert_layer_with_triangle.py"): _SEEN_BOTH_WAYS,
    (renamed, "faulty/masks/causal_flag_never_read.py"): _UNMASKED,
    (renamed, "faulty/masks/cross_attention_gets_target_mask.py"): (
        "which of two equally long sequences an unread mask is for is told by its name, so that it"
        " is told of besides; that cross-attention got the other's mask, could be measured"
    ),
    (renamed, "faulty/masks/decoder_masks_swapped.py"): "whose mask is whose is told by names",
    (renamed, "faulty/masks/decoder_without_any_mask.py"): _UNMASKED,
    (renamed, "faulty/masks/encoder_of_translation_causal.py"): _SEEN_BOTH_WAYS,
    (renamed, "faulty/masks/encoder_shares_causal_attention.py"): _SEEN_BOTH_WAYS,
    (renamed, "faulty/masks/frame_lengths_never_used.py"): (
        "that unread whole numbers are lengths, and not classes or speakers, is told by their name"
    ),
    (renamed, "faulty/masks/image_patches_causal.py"): _SEEN_BOTH_WAYS,
    (renamed, "faulty/masks/real_or_real_pairs.py"): "what a mask is for is told by its name",
    (renamed, "faulty/masks/recorder_cross_attention_causal.py"): (
        "the line of the call is told by the name of its part: the mask's own line is told instead"
    ),
    (renamed, "faulty/masks/tiny_gpt_without_mask.py"): _UNMASKED,
    (renamed, "correct/causal/first_layer_asked_to_see_all.py"): (
        "which flag is switched off outright, so that a layer sees all, is known by its name"
    ),
    (renamed, "faulty/causal/flag_passed_to_the_cross_layer.py"): (
        "which flag asks for the triangle is known by its name: the line is that of the mask"
    ),
    (renamed, "faulty/causal/linear_state_of_all_keys.py"): _UNMASKED,
    (renamed, "faulty/masks/class_token_takes_the_last_place.py"): _LENGTHS,
    (renamed, "faulty/masks/first_padded_frame_kept.py"): _LENGTHS,
    (renamed, "faulty/masks/halo_shorter_on_one_side.py"): _WINDOW,
    (renamed, "faulty/masks/zeroed_beats_stay_keys.py"): _LENGTHS,
    (renamed, "faulty/masks/window_one_short.py"): _WINDOW,
    (renamed, "faulty/variants/head_count_written_out.py"): _SECOND_SIZE,
    (renamed, "faulty/variants/head_width_written_out.py"): _SECOND_SIZE,
    (own_layers, "faulty/variants/seeds_scaled_by_width.py"): (
        "learned queries with a bias of one's own: the map behind the bias is not seen"
    ),
    (in_a_model, "correct/masks/caller_passes_the_triangle.py"): (
        "the model passes no mask, so that its class is not as causal as it is called"
    ),
    (in_a_model, "correct/causal/cost_of_the_summary_returned.py"): (
        "the model drops what the summary costs, so that nobody asks for the summary any more"
    ),
    (in_a_model, "faulty/causal/weights_asked_for_see_all.py"): (
        "the model passes no flags on, so that there is no branch of its own"
    ),
    (in_a_model, "faulty/masks/halo_shorter_on_one_side.py"): (
        "how long a window is meant is told by an argument that the model does not have"
    ),
    (in_a_model, "faulty/masks/window_one_short.py"): (
        "a model that states all sizes does not say how long the window is"
    ),
}
"""Files whose verdict a rewriting changes, and why that may be, or what could be measured instead."""
CROSSCHECKED = frozenset({"MHA901", "MHA902"})
"""What only the cross-check can tell, which is left out here."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was done, the fixtures by their new files, and the report of one run."""

    rewrite: Rewrite
    cases: dict[str, Fixture]
    report: RunReport


def _eligible(rewrite: Rewrite) -> Iterator[tuple[Fixture, Text]]:
    """Yield the fixtures that can be rewritten so, each with what becomes of it."""
    for fixture in fixtures():
        # Designs stand at the edge of what attention is: there a verdict may rest on how it is used.
        edge = rewrite is not renamed and "correct/designs/" in fixture.name
        if edge or fixture.todo or (not ALL and (rewrite, fixture.name) in MISSED):
            continue
        text = Text(fixture.path.read_text(encoding="utf-8"), fixture.build, fixture.call)
        made = rewrite(text)
        if made is not None:
            yield fixture, made


def _chosen(rewrite: Rewrite) -> list[tuple[Fixture, Text]]:
    """Return all that can be rewritten so, or a part of it, in which no code is left out."""
    pairs = list(_eligible(rewrite))
    if ALL:
        return pairs
    turn = list(LOST).index(rewrite)
    by_code: dict[str, list[str]] = defaultdict(list)
    for fixture, _ in pairs:
        for code in sorted({min(e.codes) for e in fixture.expected}):
            by_code[code].append(fixture.name)
    correct = [f.name for f, _ in pairs if not f.expected]
    taken = set(correct[turn::CORRECT])
    for names in by_code.values():
        part = names[turn::FAULTY]
        taken.update(part if len(part) >= LEAST else names[:LEAST])
    return [(fixture, made) for fixture, made in pairs if fixture.name in taken]


@pytest.fixture(scope="module", params=LOST, ids=lambda r: r.__name__)
def rewritten(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Rewritten:
    from mha_lint.engine import check  # imports torch, which collecting these tests need not

    rewrite: Rewrite = request.param
    folder = tmp_path_factory.mktemp(rewrite.__name__)
    cases: dict[str, Fixture] = {}
    specs: list[TargetSpec] = []
    for fixture, made in _chosen(rewrite):
        path = Path(folder, f"{len(cases)}_{fixture.path.name}")
        path.write_text(made.source, encoding="utf-8")
        cases[path.name] = fixture
        qualname = made.build.split("(", 1)[0]
        specs.append(
            TargetSpec(
                text=path.name, path=str(path), qualname=qualname, build=made.build, call=made.call
            )
        )
    report = check(specs, Settings(cwd=str(folder), crosscheck=False))
    return Rewritten(rewrite, cases, report)


def _wrong(target: TargetReport, fixture: Fixture, lost: frozenset[str]) -> list[str]:
    """Return what is not as in the file that was rewritten."""
    if target.status not in {Status.CHECKED, Status.UNDECIDED}:
        return [f"{target.status}: {target.reason}"]
    expected = {code for e in fixture.expected for code in e.codes}
    loud = {
        (f.code, f.span.line)
        for f in target.findings
        if not f.suppressed and (f.severity is not Severity.NOTE or f.code in expected)
    }
    wrong = [
        f"no {e}, but {sorted(loud)}"
        for e in fixture.expected
        if not e.codes & lost and not any(c in e.codes and line in e.lines for c, line in loud)
    ]
    stray = {c for c, _ in loud} - expected - fixture.allowed - lost
    return [*wrong, f"besides {sorted(stray)}"] if stray else wrong


def test_the_same_is_found(rewritten: Rewritten) -> None:
    rewrite, report = rewritten.rewrite, rewritten.report
    wrong = [f"{crash.target}: {crash.error}" for crash in report.crashes]
    for target in report.targets:
        assert target.path is not None
        fixture = rewritten.cases[Path(target.path).name]
        found = _wrong(target, fixture, LOST[rewrite] | CROSSCHECKED)
        if (rewrite, fixture.name) not in MISSED:
            wrong += [f"{fixture.name}: {what}" for what in found]
        elif not found:
            wrong.append(f"{fixture.name}: is found all the same: take it out of MISSED")
    assert not wrong, "\n".join([f"{len(rewritten.cases)} files", *wrong])

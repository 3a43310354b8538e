"""A small model of the same kind: shrink a config, build and run it, and take back what fails."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from mha_lint.targets.pretrained.building import build, parameter_count
from mha_lint.targets.pretrained.calling import NoInputsError, inputs_of
from mha_lint.targets.pretrained.climbing import Outcome, climb
from mha_lint.targets.pretrained.filling import filled, open_keys, without_timm
from mha_lint.targets.pretrained.layers import fewer_layers
from mha_lint.targets.pretrained.leaves import leaves, replaced
from mha_lint.targets.pretrained.mending import Mend, mended, mends, with_room
from mha_lint.targets.pretrained.reading import other_classes
from mha_lint.targets.pretrained.roles import Role
from mha_lint.targets.pretrained.sizes import smaller

MOST_PARAMETERS = 200_000_000
"""0.8 GB as float32."""
TRIES = 40
SECONDS = 32.0


@dataclass(frozen=True, slots=True)
class ShrunkConfig:
    """A small config whose model runs: it, and the call that does. ``notes``: what was done."""

    config: Any
    notes: tuple[str, ...]
    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class CannotShrinkError(Exception):
    """No smaller config that was tried could be built and run.

    ``stage``: "config", "build", "size" or "call", where the best try failed.
    """

    def __init__(self, stage: str, error: Exception) -> None:
        """Keep where the best try failed, and why."""
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = error


STAGES = ("config", "size", "build", "call", "done")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is left as it was (roles and keys), and how often widths are doubled.

    ``filled``: keys that the config leaves open and that get a value. ``architecture``: the class
    to build, where not the config's own. ``mended``: what did not fit together in the config.
    ``partial``: the call may leave out images and sounds.
    """

    undone: frozenset[str] = frozenset()
    wider: int = 0
    filled: frozenset[str] = frozenset()
    architecture: str = ""
    mended: frozenset[Mend] = frozenset()
    partial: bool = False


def shrunk(
    config: Any, *, variant: int = 0, tries: int = TRIES, seconds: float = SECONDS
) -> ShrunkConfig:
    """Return a small config like `config`, with which a real float32 model was built and called.

    ``variant``: 0 or 1, two different small sizes. Raises `CannotShrinkError`.
    """
    shrinker = _Shrinker(config, variant, time.monotonic() + seconds)
    found = climb(Plan(), shrinker.attempt, shrinker.changes, tries=tries, seconds=seconds)
    if found.error is not None:
        raise CannotShrinkError(STAGES[found.progress[0]], found.error) from found.error
    small, model, args, kwargs = found.value
    notes = shrinker.notes(found.tried)
    return ShrunkConfig(small, notes, model, args, kwargs)


class _Shrinker:
    def __init__(self, config: Any, variant: int, deadline: float) -> None:
        self.config = config
        self.values = without_timm(config.to_dict())
        self.variant = variant
        self.deadline = deadline

    def attempt(self, plan: Plan) -> Outcome[Plan]:
        """Shrink as planned, build on meta, count, build and call."""
        stage = 0
        try:
            small = self.planned(plan)
            stage = 2
            count = parameter_count(small)
            if count is not None and count > MOST_PARAMETERS:
                raise MemoryError(f"{count} parameters")
            model = build(small)
            stage = 3
            left = min(SECONDS / 4, max(1.0, self.deadline - time.monotonic()))
            args, kwargs = inputs_of(
                model, small, variant=self.variant, partial=plan.partial, seconds=left
            )
        except NoInputsError as error:
            return Outcome(plan, (stage, error.progress[1], 0), error.error)
        except MemoryError as error:
            return Outcome(plan, (1, 0, 0), error)
        except Exception as error:
            return Outcome(plan, (stage, 0, 0), error)
        return Outcome(plan, (4, 0, 0), None, (small, model, args, kwargs))

    def planned(self, plan: Plan) -> Any:
        """Return the small config of a plan."""
        shorter = fewer_layers(filled(self.values, plan.filled), plan.undone)
        new = smaller(shorter, variant=self.variant, undone=plan.undone, wider=plan.wider)
        small_values = with_room(mended(replaced(shorter, new), plan.mended))
        small = type(self.config).from_dict(small_values)
        if plan.architecture:
            small.architectures = [plan.architecture]
        return small

    def changes(self, failed: Outcome[Plan]) -> Iterator[Plan]:
        """Yield plans that take back less and less likely causes of the error."""
        plan = failed.tried
        assert failed.error is not None
        text = _story(failed.error)
        found = leaves(self.values)
        roles = {leaf.role for leaf in found}
        keys = {leaf.key: leaf.role for leaf in found if leaf.role is not Role.KEEP}
        named = [
            k for k in keys if k in text and k not in plan.undone and keys[k] not in plan.undone
        ]
        suspects = dict.fromkeys(keys[k] for k in named)
        yield from self._filled(plan, text)
        for mend in mends(str(failed.error)):
            yield replace(plan, mended=plan.mended | {mend})
        if failed.progress[0] == 3 and not plan.partial:
            yield replace(plan, partial=True)
        if failed.progress[0] > 1:
            yield from self._others(plan, failed.error)
        if failed.progress[0] == 1:
            named, suspects = [], {}
        else:
            if Role.WIDTH not in plan.undone:
                yield replace(plan, wider=plan.wider + 1)
        for key in named[:6]:
            yield replace(plan, undone=plan.undone | {key})
        for role in (*suspects, *_ORDER):
            if role in roles and role not in plan.undone:
                yield replace(plan, undone=plan.undone | {role})
        if plan.wider < 4 and Role.WIDTH not in plan.undone:
            yield replace(plan, wider=plan.wider + 2)

    def _filled(self, plan: Plan, text: str) -> Iterator[Plan]:
        """Yield plans that give a value to what the config leaves open."""
        keys = open_keys(self.values) - plan.filled
        named = frozenset(k for k in keys if k in text)
        for some in (*(frozenset({k}) for k in sorted(named)), named, keys):
            loose = "None" in text or text.startswith(("empty()", "topk()"))
            if some and (loose or some & named):
                yield replace(plan, filled=plan.filled | some)

    def _others(self, plan: Plan, error: Exception) -> Iterator[Plan]:
        """Yield plans for another class of the same kind of model."""
        words = ("has no attribute", "forward", "unexpected keyword")
        if not plan.architecture and any(w in str(error) for w in words):
            for name in other_classes(self.config):
                yield replace(plan, architecture=name)

    def notes(self, plan: Plan) -> tuple[str, ...]:
        """Say what was made smaller, and what was not."""
        name = getattr(self.config, "model_type", "") or type(self.config).__name__
        first = f"measured at a small size of {name}, every integer of its config shrunk alike"
        notes = [first]
        if plan.undone:
            notes.append("left as they were: " + ", ".join(sorted(plan.undone)))
        if plan.filled:
            notes.append(
                "given a value, where the config has none: " + ", ".join(sorted(plan.filled))
            )
        if plan.mended:
            notes.append("the config's parts did not fit together, and were made to")
        if plan.architecture:
            notes.append(f"built as {plan.architecture}")
        if plan.partial:
            notes.append("called without images and sounds where these did not go with the text")
        return tuple(notes)


_ORDER = (
    Role.IMAGE, Role.PATCHES, Role.WINDOW, Role.TILE, Role.POSITIONS, Role.HEADS, Role.HEAD_DIM,
    Role.SECTION, Role.EXPERTS, Role.VOCABULARY, Role.QUERIES, Role.CODEBOOKS, Role.PERIOD,
    Role.DEPTHS, Role.LAYER_INDEX, Role.THRESHOLD, Role.LAYERS, Role.WIDTH,
)  # fmt: skip


def _story(error: Exception) -> str:
    """Return the error's message with the source lines that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.line or "" for frame in frames if "transformers" in frame.filename]
    return "\n".join([str(error), *lines[-6:]])

"""Evaluate a recipe: build the module, make the arguments, run the call once."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mha_lint.model.source import Span
from mha_lint.model.speakable import speakable
from mha_lint.model.target import TargetSpec
from mha_lint.targets.attribute_dict import AnyKey, AttributeDict
from mha_lint.targets.decouple import decoupled
from mha_lint.targets.guard import deterministic_mode, guarded, set_deterministic_mode
from mha_lint.targets.large import WithoutLarge, has_no_values
from mha_lint.targets.load import Loaded
from mha_lint.targets.resize import resized
from mha_lint.targets.seeds import seed_torch
from mha_lint.targets.session import is_interrupt
from mha_lint.targets.sizes import bound_arguments, sizes_of, stated_of
from mha_lint.targets.stacks import Shortening
from mha_lint.targets.subject import Decoupled, Maker, Recipe, Subject, names_of
from mha_lint.targets.tensors import tensors_in
from mha_lint.targets.timelimit import TimeLimitError

SEED = 0


class StageError(Exception):
    """User code failed in the stage "build", "arguments" or "call"; the cause is attached."""

    def __init__(self, stage: str, error: BaseException) -> None:
        """Wrap `error`, which user code raised in `stage`."""
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = error


class ClassGivenError(TypeError):
    """A --build expression names the class in place of building it."""


@dataclass(frozen=True, slots=True)
class FileMaker(Maker):
    """Makes subjects from recipes in one loaded file."""

    spec: TargetSpec
    loaded: Loaded
    span: Span
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """Names that expressions may use besides those of the module."""
    mode: WithoutLarge | None = None
    """Under which user code runs, for modules that are too large to be made."""
    shortening: Shortening | None = None
    """Which layers of what is built are left out."""

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Guard user code and make its modules importable."""
        with self.loaded.environment(), self.mode or contextlib.nullcontext():
            yield

    def namespace(self) -> dict[str, Any]:
        """Return a scratch copy of the module's names, with torch, nn, F and math."""
        known: dict[str, Any] = {"torch": torch, "nn": nn, "F": nn.functional, "math": math}
        known |= {"SimpleNamespace": SimpleNamespace, "AttributeDict": AttributeDict}
        known["AnyKey"] = AnyKey
        return {**known, **self.extra, **vars(self.loaded.module)}

    def make(self, recipe: Recipe) -> Subject:
        """Evaluate `recipe` in a guarded environment; see `evaluate`.

        Raises:
            StageError: user code failed.
        """
        with self.environment():
            return self.evaluate(recipe)

    def build(self, expression: str) -> Any:
        """Evaluate `expression` alone, in the current environment, and return the module.

        Raises:
            StageError: user code failed.
        """
        return self._build(expression, self.namespace())[0]

    def _build(self, expression: str, namespace: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
        with _stage("build"):
            _seed(SEED)
            with _visible_uninitialised_memory():
                module = eval(_compiled(expression, "eval"), namespace)
            if isinstance(module, type):
                raise ClassGivenError(f"{expression} is the class itself, not a module of it")
            if not callable(module):
                raise TypeError(f"{expression} made a {type(module).__name__}, not a module")
            if not isinstance(module, nn.Module):
                return module, ()
            if self.shortening is not None:
                self.shortening.of(module)
            return module, in_eval_mode(module)

    def evaluate(self, recipe: Recipe, *, built: Any = None) -> Subject:
        """Build, make the arguments and call once, in the current environment.

        `built`: a module that ``recipe.build`` made before, to be used once more.

        Raises:
            StageError: user code failed; its cause has the user's traceback.
        """
        namespace = self.namespace()
        module = built
        filled: tuple[str, ...] = ()
        if built is None:
            module, filled = self._build(recipe.build, namespace)
        with _stage("arguments"):
            _seed(SEED + 1)
            namespace["__arguments"] = lambda *a, **k: (a, k)
            with torch.no_grad():
                code = _compiled(f"__arguments({recipe.call})", "eval")
                args, kwargs = eval(code, namespace)
        bound = bound_arguments(recipe, namespace)
        subject = Subject(
            spec=self.spec,
            name=self.spec.qualname or recipe.build,
            span=self.span,
            module=module,
            args=args,
            kwargs=kwargs,
            argument_names=names_of(args, kwargs, parameters_of(module)),
            recipe=recipe,
            namespace=namespace,
            sizes=sizes_of(bound),
            stated=stated_of(bound),
            notes=self.notes + filled,
            maker=self,
        )
        with _first_call(module):
            run_once(subject)
        subject.notes += tuple(dict.fromkeys(self.loaded.session.state.said))
        return subject

    def resized(self, subject: Subject) -> Iterator[Subject]:
        """See `mha_lint.targets.resize`."""
        return resized(self, subject)

    def decoupled(self, subject: Subject) -> list[Decoupled]:
        """See `mha_lint.targets.decouple`."""
        return decoupled(self, subject)

    def shortened(self, shortening: Shortening) -> Maker:
        """Return a maker of the same with the layers left out that `shortening` names."""
        return dataclasses.replace(self, shortening=shortening)


def _seed(seed: int) -> None:
    """Make what user code draws repeatable, whichever library it draws it from."""
    seed_torch(seed)
    random.seed(seed)
    numpy_random: Any = sys.modules.get("numpy.random")  # not imported for this: it takes 5 ms
    if numpy_random is not None:
        numpy_random.seed(seed)


@contextlib.contextmanager
def _first_call(module: Any) -> Iterator[None]:
    """Undo what a call keeps for the next one, where nothing was kept: keys that are made once."""
    parts = list(module.modules()) if isinstance(module, nn.Module) else []
    unset = [(part, [n for n, v in vars(part).items() if v is None]) for part in parts]
    yield
    for part, names in unset:
        for name in names:
            if isinstance(vars(part).get(name), torch.Tensor):
                setattr(part, name, None)


@dataclass(frozen=True, slots=True)
class MadeOnce(Maker):
    """What cannot be made again, for the reason ``why``."""

    why: str

    def make(self, recipe: Recipe) -> Subject:
        """Refuse.

        Raises:
            StageError: always.
        """
        raise StageError("build", RuntimeError(self.why))

    def resized(self, subject: Subject) -> Iterator[Subject]:
        """Yield nothing."""
        yield from ()

    def environment(self) -> contextlib.AbstractContextManager[object]:
        """Run its code guarded."""
        return guarded()


def run_once(subject: Subject) -> Any:
    """Call the subject on copies of its arguments and return the output.

    Raises:
        StageError: the call failed, or its output holds no tensor.
    """
    with _stage("call"), torch.no_grad():
        seed_torch(SEED + 2)
        output = subject.module(*fresh(subject.args), **fresh(subject.kwargs))
        if next(tensors_in(output), None) is None:
            raise TypeError(f"the call returned {type(output).__name__}, without any tensor")
        return output


def fresh(value: Any) -> Any:
    """Return `value` with its tensors cloned, so that in-place code leaves the original alone."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (list, tuple, set):
        return type(value)(fresh(item) for item in value)
    if type(value) is dict:
        return {key: fresh(item) for key, item in value.items()}
    return value


@contextlib.contextmanager
def _stage(name: str) -> Iterator[None]:
    try:
        yield
    except (StageError, TimeLimitError):
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        told = speakable(error)
        raise StageError(name, told) from told


def _compiled(text: str, mode: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code: CodeType = compile(text, "<mha-lint>", mode)
    return code


@contextlib.contextmanager
def _visible_uninitialised_memory() -> Iterator[None]:
    """Fill ``torch.empty`` with NaN, so that parameters left uninitialised can be told."""
    on, warn = deterministic_mode()
    set_deterministic_mode(True, warn_only=True)
    try:
        yield
    finally:
        set_deterministic_mode(on, warn_only=warn)


def in_eval_mode(module: nn.Module) -> tuple[str, ...]:
    """Put `module` into eval mode and give uninitialised parameters repeatable values."""
    module.eval()  # its result is not used: some classes override it and return None
    filled = []
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            if _is_unset(tensor):
                width = tensor.shape[-1] if tensor.dim() > 1 else 1
                noise = torch.randn(tensor.shape, generator=generator) * width**-0.5
                tensor.copy_(torch.where(tensor.isnan(), noise.to(tensor.dtype), tensor))
                filled.append(name)
        for part in module.modules():  # buffers and caches made by torch.empty
            for held in [*part._buffers.values(), *vars(part).values()]:
                if isinstance(held, torch.Tensor) and _is_unset(held):
                    held.nan_to_num_(0.0)
    if not filled:
        return ()
    return (f"parameters left uninitialised were filled at random: {', '.join(filled)}",)


def _is_unset(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` still holds the NaN that torch.empty was made to put there."""
    if is_lazy(tensor) or has_no_values(tensor):
        return False
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    return tensor.device.type == "cpu" and bool(tensor.isnan().any())


def parameters_of(module: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that positional arguments of a call fill."""
    target = module.forward if isinstance(module, nn.Module) else module
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds]

"""Tests of mha_lint.targets.importing: packages of the user that are loaded in part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mha_lint.targets.load import Loaded, load_file
from mha_lint.targets.subject import Subject

Write = Callable[..., Path]


def _loaded(path: Path) -> Loaded:
    outcome = load_file(str(path), timeout=10.0)
    assert isinstance(outcome, Loaded), outcome.reason
    return outcome


def test_a_version_is_read_without_running_the_package(write: Write) -> None:
    write(
        "import os\n__version__ = '3.' + str(len(os.sep))\nraise RuntimeError('heavy')\n",
        "kit/__init__.py",
        head=False,
    )
    path = write("from kit import __version__ as V\n", "kit/attention.py", head=False)
    assert _loaded(path).module.V == "3.1"


def test_a_name_of_a_package_whose_init_failed_before_it(write: Write) -> None:
    write(
        "from pathlib import Path\nfrom .broken import gone\nROOT = Path('/here')\n"
        "CACHE = ROOT / 'cache'\n",
        "kit/__init__.py",
        head=False,
    )
    write("value = 1 / 0\n", "kit/broken.py", head=False)
    path = write(
        """
        import kit
        def where():
            return kit.CACHE
        """,
        "kit/attention.py",
    )
    loaded = _loaded(path)
    with loaded.environment():
        assert loaded.module.where() == Path("/here/cache")


def test_what_the_siblings_enter_into_a_table(
    write: Write, opened: Callable[..., object], tmp_path: Path
) -> None:
    write(
        "from .score import Score\nfrom .scaled import Scaled\n", "scores/__init__.py", head=False
    )
    write(
        """
        class Score(nn.Module):
            known = {}
            @classmethod
            def enter(cls, name):
                def entered(kind):
                    cls.known[name] = kind
                    return kind
                return entered
        """,
        "scores/score.py",
    )
    write(
        """
        from .score import Score
        @Score.enter("scaled")
        class Scaled(Score):
            def forward(self, q, k):
                return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        """,
        "scores/scaled.py",
    )
    subject = opened(
        """
        from scores.score import Score
        class Attend(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim) for _ in range(3))
                self.score = Score.known["scaled"]()
            def forward(self, x):
                weights = self.score(self.to_q(x), self.to_k(x)).softmax(-1)
                return weights @ self.to_v(x)
        """,
        "Attend",
    )
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert subject.build == "Attend(dim=24)"

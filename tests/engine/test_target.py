"""One target through the stages: what is reported, and why a target could not be judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mha_lint.model.finding import Severity
from mha_lint.model.report import RunReport, Status, TargetReport
from tests.engine.conftest import line_of
from tests.facts.conftest import HEADER, PLAIN, edited

if TYPE_CHECKING:
    from tests.engine.conftest import Check, Edit

SHAPE = ("B, T, C = x.shape", "{}\n        B, T, C = x.shape")


def only(report: RunReport) -> TargetReport:
    assert report.crashes == ()
    (target,) = report.targets
    return target


def test_a_right_module(judged: Edit) -> None:
    target = judged()
    assert (target.target, target.path) == ("attention.py::MHA", "attention.py")
    assert (target.class_name, target.line, target.status) == ("MHA", 8, Status.CHECKED)
    assert (target.findings, target.undecided, target.notes) == ((), (), ())
    assert (target.reason, target.hint) == (None, None)
    assert [s.id for s in target.sites] == ["MHA.0"]
    assert [(c.site, c.verdict) for c in target.crosscheck] == [("MHA.0", "match")]


@pytest.mark.parametrize(
    ("edit", "code", "at", "severity"),
    [
        (("scores / math.sqrt(self.d_k)", "scores / math.sqrt(C)"), "MHA202", "math.sqrt(C)", "error"),
        (("scores / math.sqrt(self.d_k)", "scores * 1"), "MHA201", "scores = q @", "error"),
        (("softmax(dim=-1)", "softmax(dim=-2)"), "MHA204", "softmax(dim=-2)", "error"),
        (("scores.softmax(dim=-1)", "scores"), "MHA205", "context = weights", "error"),
        (("scores.softmax(dim=-1)", "scores.softmax(dim=-1).softmax(dim=-1)"), "MHA206", "softmax", "error"),
        (("k = self.k_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
          "k = self.k_proj(x).view(B, self.h, T, self.d_k)"), "MHA104", "k = self", "error"),
        (("context.transpose(1, 2).reshape(B, T, C)", "context.reshape(B, T, C)"),
         "MHA105", "merged = ", "error"),
        (("return self.out_proj(merged)", "return merged"), "MHA101", "return merged", "error"),
        (("v = self.v_proj(x)", "v = self.k_proj(x)"), "MHA106", "v = self", "error"),
    ],
)  # fmt: skip
def test_a_wrong_module(
    edit: tuple[str, str], code: str, at: str, severity: str, judged: Edit
) -> None:
    target = judged(edit)
    found = {f.code: f for f in target.findings}
    assert code in found, [(f.code, f.message) for f in target.findings]
    finding = found[code]
    assert (finding.site, finding.span.path) == ("MHA.0", "attention.py")
    assert finding.span.line == line_of(edited(PLAIN, edit), at)
    assert finding.severity.value == severity
    loud = {f.code for f in target.findings if f.severity.rank >= Severity.WARNING.rank}
    assert loud == {code}


UNEVEN = (
    "scores.softmax(dim=-1)",
    "scores.softmax(dim=-1)\n        weights = weights / weights.amax(-1, keepdim=True)",
)


def test_sums_other_than_one_are_told_where_nothing_else_is(judged: Edit) -> None:
    (finding,) = judged(UNEVEN).findings
    assert (finding.code, finding.severity, finding.site) == ("MHA901", Severity.WARNING, None)
    assert "MHA.0: the weights of one query sum to " in finding.message
    assert finding.message.endswith(", not to 1")
    found = judged(UNEVEN, ("math.sqrt(self.d_k)", "math.sqrt(C)")).findings
    assert [f.code for f in found] == ["MHA202"]


def test_how_it_was_built_is_told_unless_it_was_stated(checked: Check) -> None:
    inferred = only(checked("a.py::MHA", files={"a.py": PLAIN}))
    assert inferred.notes == (
        "built as MHA(d_model=24, num_heads=4), called with torch.randn(3, 7, 24) (inferred)",
    )
    used = PLAIN + '\n\nif __name__ == "__main__":\n    MHA(36, 6)(torch.randn(2, 3, 36))\n'
    as_used = only(checked("b.py::MHA", files={"b.py": used}))
    assert as_used.notes == (
        "built as MHA(36, 6), called with torch.randn(2, 3, 36) (as the file itself uses it)",
    )
    assert as_used.sites[0].d_model == 36
    made = PLAIN + "\n\nmodel = MHA(36, 6)\n"
    as_made = only(checked("c.py::MHA", files={"c.py": made}))
    assert as_made.notes == (
        "built as MHA(36, 6), as in the file itself; called with torch.randn(3, 7, 36) (inferred)",
    )


def test_only_what_was_inferred_is_called_so(checked: Check) -> None:
    plain = edited(PLAIN, ("d_model, num_heads", "d_model=24, num_heads=4"))
    assert only(checked("a.py::MHA", files={"a.py": plain})).notes == (
        "built as MHA(), with its defaults; called with torch.randn(3, 7, 24) (inferred)",
    )
    assert only(checked("a.py::MHA", build="MHA(24, 4)")).notes == (
        "called with torch.randn(3, 7, 24) (inferred)",
    )
    assert only(checked("a.py::MHA", call="torch.randn(2, 5, 24)")).notes == (
        "built as MHA(), with its defaults",
    )


# --- what could not be judged --------------------------------------------------------------------


def test_a_missing_file(checked: Check, folder: Path) -> None:
    (folder / "attention.py").write_text("x = 1\n")
    target = only(checked("atention.py"))
    assert (target.status, target.target) == (Status.FAILED, "atention.py")
    assert target.reason == "no such file: atention.py"
    assert target.hint == "did you mean attention.py?"


def test_a_syntax_error(checked: Check) -> None:
    target = only(checked("broken.py", files={"broken.py": "def f(:\n    pass\n"}))
    assert (target.status, target.path) == (Status.FAILED, "broken.py")
    assert target.reason == "syntax error at broken.py:8: invalid syntax"


def test_a_file_in_another_coding(checked: Check, folder: Path) -> None:
    (folder / "latin.py").write_bytes("# caf\xe9\nclass MHA: ...\n".encode("latin-1"))
    target = only(checked("latin.py"))
    assert target.status is Status.FAILED
    assert target.reason == "latin.py is not UTF-8 text (line 1 or 2)"
    assert target.hint == "save it as UTF-8, or state its coding in line 1"


def test_a_file_without_any_class(checked: Check) -> None:
    report = checked("plain.py", files={"plain.py": "x = 1\n"})
    assert (report.targets, report.notes) == ((), ("no attention was found",))
    assert report.exit_code(Severity.WARNING) == 0


def test_an_unknown_class(checked: Check) -> None:
    target = only(checked("a.py::MHAA", files={"a.py": PLAIN}))
    assert target.status is Status.FAILED
    assert target.reason == "a.py has no class or function MHAA"
    assert target.hint == "did you mean MHA?"


def test_a_class_that_cannot_be_defined(checked: Check) -> None:
    text = PLAIN.replace("class MHA(nn.Module)", "class MHA(NoSuchBase)")
    target = only(checked("a.py::MHA", files={"a.py": text}))
    assert target.status is Status.FAILED
    assert target.reason == "MHA could not be defined: NameError: name 'NoSuchBase' is not defined"


def test_a_constructor_that_raises(checked: Check) -> None:
    text = edited(PLAIN, ("self.h = num_heads", "raise RuntimeError('no such luck')"))
    target = only(checked("a.py::MHA", files={"a.py": text}))
    assert (target.status, target.line) == (Status.FAILED, 8)
    assert target.reason == (
        "building MHA(d_model=24, num_heads=4) failed: RuntimeError: no such luck"
    )
    assert target.hint is not None
    assert target.hint.startswith('pass --build "MHA(')
    assert "no such luck" in target.detail and "Traceback" in target.detail


def test_a_forward_that_raises(checked: Check) -> None:
    text = edited(PLAIN, ("B, T, C = x.shape", "raise RuntimeError('not today')"))
    target = only(
        checked("a.py::MHA", files={"a.py": text}, build="MHA(24, 4)", call="torch.ones(2, 5, 24)")
    )
    assert target.status is Status.FAILED
    assert target.reason == (
        "calling MHA(24, 4) with (torch.ones(2, 5, 24)) failed: RuntimeError: not today"
    )


@pytest.mark.parametrize("place", ["import", "build", "call"])
def test_leaving_the_program(place: str, checked: Check) -> None:
    text = {
        "import": PLAIN + "\n\nraise SystemExit(3)\n",
        "build": edited(PLAIN, ("self.h = num_heads", "raise SystemExit(3)")),
        "call": edited(PLAIN, ("B, T, C = x.shape", "raise SystemExit(3)")),
    }[place]
    target = only(
        checked("a.py::MHA", files={"a.py": text}, build="MHA(24, 4)", call="torch.randn(2, 5, 24)")
    )
    if place == "import":  # what only works at top level is left out
        assert target.status is Status.CHECKED
    else:
        assert target.status is Status.FAILED
        assert target.reason is not None and target.reason.endswith("failed: SystemExit: 3")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ("MHA(24", "building MHA(24 failed: SyntaxError: '(' was never closed"),
        ("Nope(24)", "building Nope(24) failed: NameError: name 'Nope' is not defined"),
        ("MHA(24)", "building MHA(24) failed: TypeError: MHA.__init__() missing 1 required"),
        ("24", "building 24 failed: TypeError: 24 made a int, not a module"),
    ],
)
def test_a_wrong_build_expression(build: str, reason: str, checked: Check) -> None:
    target = only(
        checked("a.py::MHA", files={"a.py": PLAIN}, build=build, call="torch.randn(2, 5, 24)")
    )
    assert target.status is Status.FAILED
    assert target.reason is not None and target.reason.startswith(reason)
    assert "\n" not in target.reason


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("torch.randn(2, 5, 24", "making the arguments torch.randn(2, 5, 24 failed: SyntaxError"),
        (
            "torch.randn(2, 5, 25)",
            "calling MHA(24, 4) with (torch.randn(2, 5, 25)) failed: RuntimeError",
        ),
        ("nothing", "making the arguments nothing failed: NameError"),
    ],
)
def test_a_wrong_call_expression(call: str, reason: str, checked: Check) -> None:
    target = only(checked("a.py::MHA", files={"a.py": PLAIN}, build="MHA(24, 4)", call=call))
    assert target.status is Status.FAILED
    assert target.reason is not None and target.reason.startswith(reason)
    assert "\n" not in target.reason


def test_heads_that_do_not_divide_the_width(checked: Check) -> None:
    call = "torch.randn(2, 5, 24)"
    target = only(checked("a.py::MHA", files={"a.py": PLAIN}, build="MHA(24, 5)", call=call))
    assert target.status is Status.FAILED
    (finding,) = target.findings
    assert (finding.code, finding.rule) == ("MHA102", "indivisible-width")
    assert (finding.span.path, finding.span.line) == ("a.py", line_of(PLAIN, "q = self.q_proj"))
    assert "h = 5 does not divide C = 24 (remainder 4)" in finding.message
    assert finding.confirmed_by == "the call raises this error"


ROUTER = """\
class Router(nn.Module):
    def __init__(self, d_model=24, experts=3):
        super().__init__()
        self.gate = nn.Linear(d_model, experts)
        self.value = nn.Parameter(torch.randn(experts, d_model))

    def forward(self, x):
        weights = torch.softmax(self.gate(x), dim=-1)
        return weights @ self.value
"""


def test_no_attention_where_some_was_named(checked: Check) -> None:
    report = checked("a.py::Router", files={"a.py": ROUTER})
    target = only(report)
    assert (target.status, target.sites) == (Status.FAILED, ())
    assert target.reason == "no attention was found in the recorded call"
    assert report.exit_code(Severity.WARNING) == 2


def test_no_attention_where_a_scan_came_by(checked: Check) -> None:
    report = checked("a.py", files={"a.py": ROUTER})
    assert [t.status for t in report.targets] == [Status.NO_ATTENTION]
    assert report.notes == ("no attention was found",)
    assert report.exit_code(Severity.WARNING) == 0


def test_baked_values_are_not_judged(judged: Edit) -> None:
    baked = "scores = torch.from_numpy((q @ k.transpose(-2, -1)).detach().numpy().copy())"
    target = judged(("scores = q @ k.transpose(-2, -1)", baked))
    assert target.status is Status.FAILED
    assert target.findings == ()
    assert target.reason is not None


def test_an_undecided_rule_is_told(judged: Edit) -> None:
    target = judged(
        ("self.h = num_heads", "self.h = num_heads\n        self.talk = nn.Linear(num_heads, num_heads)"),
        ("weights = scores.softmax",
         "scores = self.talk(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)\n        weights = scores.softmax"),
    )  # fmt: skip
    assert target.status is Status.UNDECIDED
    why = "the scale could not be measured: the heads are mixed before the softmax"
    assert {(u.code, u.site, u.why) for u in target.undecided} >= {
        ("MHA201", "MHA.0", why),
        ("MHA202", "MHA.0", why),
    }


def test_the_cross_check_can_be_left_out(checked: Check) -> None:
    target = only(checked("a.py::MHA", files={"a.py": PLAIN}, crosscheck=False))
    assert (target.status, target.crosscheck) == (Status.CHECKED, ())


def test_an_own_line_is_told_where_the_path_is_absolute(checked: Check, folder: Path) -> None:
    (folder / "a.py").write_text(HEADER + PLAIN)
    target = only(checked(f"{folder / 'a.py'}::MHA"))
    assert (target.path, target.line, target.status) == ("a.py", 8, Status.CHECKED)


def test_where_no_call_succeeds_the_target_is_failed_whatever_a_trace_shows(
    checked: Check,
) -> None:
    text = edited(PLAIN, ("def forward(self, x):", "def forward(self, x, ticket):"),
                  (SHAPE[0], f'if ticket.secret != 7: raise ValueError("no")\n        {SHAPE[0]}'))  # fmt: skip
    report = checked("attention.py::MHA", files={"attention.py": text}, build="MHA(24, 4)")
    target = only(report)
    assert (target.status, target.sites, target.findings) == (Status.FAILED, (), ())
    assert report.exit_code(Severity.WARNING) == 2
    line = line_of(text, "scores = q @")
    assert target.reason is not None and f"seems to stand at line {line} (scores)" in target.reason
    assert target.hint == 'pass --build "MHA(24, 4)" --call "x=torch.randn(2, 10, 24), ticket=..."'

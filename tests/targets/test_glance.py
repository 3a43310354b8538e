"""Tests of mha_lint.targets.glance: what a scan could find is never passed over."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mha_lint.targets.glance import decoded, glance
from mha_lint.targets.imports import Imports
from mha_lint.targets.signals import CONTRACTIONS, KERNELS, TORCH_LAYERS, contracts, torch_layer


def _computes(source: str) -> bool:
    return glance(textwrap.dedent(source)).computes


@pytest.mark.parametrize("name", sorted(CONTRACTIONS))
@pytest.mark.parametrize(
    "call",
    [
        "x = {}(a, b)",
        "x = a.{}(b)",
        "x = torch . {} (a, b)",
        "x = (torch.{})(a, b)",
        "x = (torch.{}  # by hand\n    )(a, b)",
        "x = torch.{} \\\n    (a, b)",
    ],
)
def test_a_contraction_by_name(name: str, call: str) -> None:
    source = call.format(name)
    assert any(contracts(node) for node in ast.walk(ast.parse(source)))
    assert _computes(source)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_by_name(name: str) -> None:
    assert _computes(f"y = {name}(q, k, v)")
    assert _computes(f"from kernels import {name}_varlen as fast\ny = fast(q, k, v)")


@pytest.mark.parametrize("name", sorted(TORCH_LAYERS))
def test_a_layer_of_torch(name: str) -> None:
    source = f"from torch.nn import {name} as Layer\nclass A(Layer):\n    pass"
    assert torch_layer(ast.Name("Layer"), Imports({"Layer": f"torch.nn.{name}"}, {})) == name
    assert _computes(source)


@pytest.mark.parametrize(
    "source",
    [
        "x = a @ b",
        "x = a@b",
        "x = (a\n     @ b)",
        "x = (a\n@b\n)",
        "x = (a\n@b(\n    c)\n)\ndef f(): pass",
        "x = (a\n@b\n@c)\ndef f(): pass",
        "x = a \\\n@b\ndef f(): pass",
        "x = a \\\r\n@b\r\ndef f(): pass",
        "x = a \\\r@b\rdef f(): pass",
        "@keep(a @ b)\ndef f(): pass",
        "@keep\ndef f(x=a @ b): pass",
        "x = '#' in n and a @ b",
        "x = d['#'] @ b",
        "x = '\"' ; y = a @ b ; z = '\"'",
        "x = '''it's''' ; y = a @ b",
        "x = r'\\' ' ; y = a @ b",
        "x = '\\\\' ; y = a @ b ; z = ''",
        "x = '' ; y = a @ b ; z = ''",
        "x = f'{a @ b}'",
        "x = f'{d[\"k\"] @ b}'",
        "x = Rf'''{\n    a @ b}'''",
        "x = f\"{d[\"k\"] @ b}\"",
        "x = f\"{d['}'][\"k\"] @ b}\"",
        "x = 'never ends\ny = a @ b",
    ],
)  # fmt: skip
def test_a_matrix_product(source: str) -> None:
    assert _computes(source)


@pytest.mark.parametrize(
    "source",
    [
        "x = (a * b).sum(-1)",
        "x = (a * b) . sum (-1)",
        "x = (a * b  # each\n     ).sum(-1)",
        "def f():\n    return(a * b).sum(-1)",
        "x = torch.sum(a * b, -1)",
        "x = sum(a * b)",
        "x = sum((a * b))",
        "x = torch.sum(f(a, ')') * b, -1)",
        "x = torch.sum(  # )\n    a * b)",
    ],
)
def test_a_sum_of_products(source: str) -> None:
    assert any(contracts(node) for node in ast.walk(ast.parse(source)))
    assert _computes(source)


@pytest.mark.parametrize(
    "source",
    [
        "# a @ b",
        '"""Write to a@b.org, or matmul(a, b)."""',
        "x = 'a @ b'",
        "@cached\ndef f(): pass",
        "@cached  # once\n@wraps(g, (1, [2]))\n\n# still\n@a.b\nasync def f(): pass",
        "@mark.each('name', ['@', \"a@b\"])\nclass A: pass",
        "x = total(a * b)",
        "x = sum(a * b for a, b in pairs)",
        "x = sum(counts) * 2",
        "x = f(a * b).sum()",
        "x = (a ** 2).sum()",
        "x = command(a)",
        "x = dotted(a); y = dot",
        "x @= y",
        "class Transformer: pass",
        "x = f'{name}: {count}'",
        "def dot_(a): pass",
    ],
)
def test_what_computes_nothing_of_the_kind(source: str) -> None:
    ast.parse(source)
    assert not _computes(source)


def test_letters_that_python_reads_as_others() -> None:
    assert _computes("x = \uff4datmul(a, b)")
    assert _computes("from torch import nn\nclass A(nn.\uff34ransformer): pass")
    assert not _computes("x = '\uff20'  # \uff20 \uff4datmul(a, b)")


def test_a_script_from_a_notebook_is_no_python_as_it_stands() -> None:
    assert _computes("!echo it's\nx = a @ b\n!echo it's")
    assert _computes("# %%\n%cd 'here\nx = dot(a, b)\n%cd 'there")


def test_names_that_are_imported() -> None:
    found = glance(
        textwrap.dedent(
            """
            import os
            from .parts import (  # both (of them)
                One, Two as Other,
            )
            from .. import up
            from . \\
                deep . er import x; from a.b import *
            try: raise E from error
            except E: pass
            from last import z
            class A: pass
            class B[T](A): pass
            """
        )
    )
    assert found.classes == {"A", "B"}
    assert [(one.level, one.module) for one in found.imported] == [
        (1, "parts"), (2, ""), (1, "deep.er"), (0, "a.b"), (0, "last"),
    ]  # fmt: skip
    assert {"One", "Two"} <= found.imported[0].names
    assert "z" in found.imported[-1].names


def test_bytes_and_their_coding() -> None:
    assert decoded("x = 'é'".encode()) == "x = 'é'"
    assert decoded(b"\xef\xbb\xbfx = 1") == "x = 1"
    assert decoded(b"# coding: latin-1\nx = '\xe9'") == "# coding: latin-1\nx = 'é'"
    assert decoded(b"#!/usr/bin/python\n# coding: latin-1\nx = '\xe9'") is not None
    assert decoded("x = 1".encode("utf-16")) is None
    assert decoded("x = 1".encode("utf-16-le")) is None
    assert decoded(b"x = '\xe9'") is None
    assert decoded(b"# coding: nothing\nx = 1") is None
    assert decoded(b"# coding: rot13\nx = 1") is None

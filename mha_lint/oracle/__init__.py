"""Compare a site with the reference attention: an independent, numeric second opinion."""

from __future__ import annotations

from mha_lint.oracle.data import Native as Native
from mha_lint.oracle.data import Operand as Operand
from mha_lint.oracle.data import SiteData as SiteData
from mha_lint.oracle.data import named_scales as named_scales
from mha_lint.oracle.half import DRAWS as DRAWS
from mha_lint.oracle.half import Draw as Draw
from mha_lint.oracle.half import Precision as Precision
from mha_lint.oracle.half import exact_attention as exact_attention
from mha_lint.oracle.half import half_bound as half_bound
from mha_lint.oracle.half import precision_of as precision_of
from mha_lint.oracle.identify import compare as compare
from mha_lint.oracle.verdict import Deviation as Deviation
from mha_lint.oracle.verdict import Verdict as Verdict
from mha_lint.oracle.verdict import confirm as confirm

"""Give facts the names that the user's own constructor has for them, for what findings propose."""

from __future__ import annotations

import dataclasses

from mha_lint.model.facts import Known, SiteFacts, SubjectFacts
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.subject import Subject


def named_by_user(facts: SubjectFacts, subject: Subject) -> SubjectFacts:
    """Return `facts` with d_model called as the argument of the class that holds the heads."""
    return dataclasses.replace(facts, sites=tuple(_named(site, subject) for site in facts.sites))


def _named(site: SiteFacts, subject: Subject) -> SiteFacts:
    output, dims = site.output_projection, site.dims
    if not isinstance(output, Known) or not isinstance(dims, Known) or site.info.module:
        return site
    width = dims.value.d_model
    names = [n for n, v in subject.sizes.items() if v == width and role_of(n) is Role.WIDTH]
    if len(names) != 1 or not names[0].isidentifier():
        return site
    value = dataclasses.replace(output.value, model_width=names[0])
    return dataclasses.replace(site, output_projection=dataclasses.replace(output, value=value))

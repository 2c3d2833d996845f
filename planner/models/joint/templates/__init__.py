"""Fabric templates of one site: every shape and family that may be built, what it costs, and how it slows traffic."""

from planner.models.joint.templates.chooser import Template, Templates
from planner.models.joint.templates.traffic import Traffic
from planner.plan.declared import TEMPLATE_OUTSIDE, TEMPLATE_SPACE

__all__ = ["TEMPLATE_OUTSIDE", "TEMPLATE_SPACE", "Template", "Templates", "Traffic"]

"""How agents reach their models: the gateway that an extension offers, what that costs, whom trouble is told."""

from __future__ import annotations

from jackfield.host.models.gateways import Gateways, Use

__all__ = ["Gateways", "Use"]

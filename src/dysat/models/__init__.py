"""One method, one file."""

from dysat.models.base import LinkModel
from dysat.models.dysat import DySAT

MODELS: dict[str, type[LinkModel]] = {model.method: model for model in (DySAT,)}

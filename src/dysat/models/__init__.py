"""One method, one file."""

from dysat.models.base import EmbeddingModel
from dysat.models.dysat import DySAT

MODELS: dict[str, type[EmbeddingModel]] = {model.method: model for model in (DySAT,)}

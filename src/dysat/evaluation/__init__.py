"""How well links are predicted: examples, the probe, AUC. Never imports a model: it is given embeddings or scores."""

"""Quality of link prediction: examples, probe, metrics. Works on embeddings and scores; imports no model."""

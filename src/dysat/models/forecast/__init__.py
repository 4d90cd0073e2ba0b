"""The pair score of the default model, and the candidates it ranks."""

"""Models evaluated step by step."""

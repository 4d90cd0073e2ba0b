"""Base classes of all models, their options and presets."""

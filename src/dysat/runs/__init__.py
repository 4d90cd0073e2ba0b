"""Run folders: train, resume, update, follow."""

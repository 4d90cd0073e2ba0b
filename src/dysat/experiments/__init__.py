"""The paper, and ours."""

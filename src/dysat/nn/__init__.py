"""The equations: attention layers, objectives, sparse operations, and logistic regression."""

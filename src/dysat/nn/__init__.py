"""The equations: attention, its sparse sums, and the logistic regression of the probe."""

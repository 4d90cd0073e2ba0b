"""Models without training epochs: heuristics, SVD, and pair models. A learned model should beat them."""

"""Samples drawn from a graph for training: walks and their contexts, negatives, pairs, triads, neighbourhoods."""

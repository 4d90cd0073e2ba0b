"""What training draws from a graph: walks, the contexts of a node, and negatives."""

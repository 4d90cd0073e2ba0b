"""Options chosen on validation links."""

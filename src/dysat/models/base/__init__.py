"""What all models share."""

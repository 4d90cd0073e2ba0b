"""What commands print: tables, progress, errors, JSON."""

"""Text for people and other programs: printable, JSON, CSV, TOML."""

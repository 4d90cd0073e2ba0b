"""Read event logs of every format, column by column."""

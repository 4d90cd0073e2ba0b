"""Logs of events in every format, read column by column."""

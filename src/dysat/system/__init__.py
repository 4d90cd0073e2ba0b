"""Files, locks, compiled code and process settings; nothing here knows about graphs."""

"""Nothing about graphs: files, locks, compiled code and the process."""

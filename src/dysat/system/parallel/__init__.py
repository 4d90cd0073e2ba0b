"""Threads, processes and machines that share work: thread limits, worker processes, ranks, and Ray."""

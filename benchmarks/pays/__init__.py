"""Parts of freshness_pays.py: events in the order of their times, their replay, results."""

"""What every long-running process of ours has in common: its log, its end, and how its command line is read."""

"""Proof before production: engines that can be had without a GPU."""

"""The engine's side: what a consumer of the published batch reads, and what it reports back."""

"""What loadtide's decisions saved, by what a Prometheus has recorded of them."""

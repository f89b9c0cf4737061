"""`loadtide probe`: what a metrics page or a Prometheus holds for loadtide, and the policy lines that read it."""

"""What the operator declares: the policy model, the YAML file, and ScaledObject metadata."""

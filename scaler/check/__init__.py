"""`loadtide check`: mistakes in ScaledObjects, policies and Deployments, found before they cost anything."""

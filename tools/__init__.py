"""What people use around the apps: local engine, report, experiments, starting Flower."""

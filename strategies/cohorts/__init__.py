"""Rules by which clients gather in cohorts."""

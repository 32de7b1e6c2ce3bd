"""Which strategy fits my data? ``python -m compare -c "task='digits'"`` runs them and answers."""

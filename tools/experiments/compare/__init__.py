"""Which strategy fits my data? ``forager compare -c "task='digits'"`` runs them and answers."""

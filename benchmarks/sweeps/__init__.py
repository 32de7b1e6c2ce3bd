"""What benchmarks make of a sweep: a command line, measures, tables and curves."""

"""What both sides of the wire share: record names, array records, files of state, codecs."""

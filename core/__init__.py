"""What all layers share: rows, watermarks, reports of operators, steps that run at the source."""
